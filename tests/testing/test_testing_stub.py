"""A stub of a service: what it answers, and what it says when something else came than was expected."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from calling_kit import NS, PATIENCE, URI, Peers, element, envelope, eventually, request_message, take_one, text_of

import soapjms
from brokers import Connection, topic
from soapjms import CR_2009, REC_2012, CallTimeoutError, Client, Profile, SoapVersion
from soapjms.testing import StubService, Traffic, UnmetExpectationsError

GREET = f"{{{NS}}}greetMe"
PING = f"{{{NS}}}pingMe"
SOON = 0.5
"""Seconds to wait for what will not come."""


def said(text: str) -> str:
    """Write an answer."""
    return f'<greetMeResponse xmlns="{NS}">{text}</greetMeResponse>'


async def later(request: soapjms.Request) -> None:
    """Answer, as a stub cannot."""


class TestStub(Peers):
    """A stub on the embedded broker, and a client of it."""

    @pytest.fixture
    def stub(self, other: Connection) -> Iterator[StubService]:
        stub = StubService(other, URI)
        yield stub
        stub.close()

    def unmet(self, stub: StubService) -> str:
        """Return what the stub says at the end."""
        with pytest.raises(UnmetExpectationsError) as caught:
            stub.verify(SOON)
        return str(caught.value)

    @pytest.mark.parametrize("content", [said("Hi"), said("Hi").encode(), element("greetMeResponse", "Hi")])
    @pytest.mark.parametrize("version", SoapVersion)
    def test_responds(self, stub: StubService, client: Client, content: object, version: SoapVersion) -> None:
        """With an element, or one written as XML, in the SOAP version of the request; each time anew."""
        stub.expect(GREET).respond(content).times(2)  # type: ignore[arg-type]
        for _ in range(2):
            response = client.call(envelope(version=version))
            assert (text_of(response), response.envelope.version) == ("Hi", version)
            assert response.findings() == ()
        stub.verify()
        assert [request.element.text for request in stub.requests] == ["World", "World"]

    def test_a_function_responds(self, stub: StubService, client: Client) -> None:
        """A function gets the request; unless told otherwise the body is empty."""
        stub.expect(GREET).respond(lambda request: element("greetMeResponse", f"Dear {request.element.text}"))
        stub.expect(GREET)
        assert text_of(client.call(envelope("Ann"))) == "Dear Ann"
        assert client.call(envelope("Ann")).element is None
        stub.verify()

    def test_attachments(self, stub: StubService, client: Client) -> None:
        """A Reply sends attachments along."""
        photo = soapjms.Attachment(b"\x89PNG", "image/png", "photo@example")
        stub.expect(GREET).respond(soapjms.Reply(element("greetMeResponse"), [photo]))
        assert bytes(client.call(envelope()).attachments.find("cid:photo@example").content) == b"\x89PNG"

    def test_headers(self, stub: StubService, client: Client) -> None:
        """A header block that must be understood is taken for understood: it is the test's to look at."""
        stub.expect(GREET, lambda request: request.envelope.header[0].text == "me").respond(said("Hi"))  # type: ignore[index]
        block = f'<e:Header><who xmlns="{NS}" e:mustUnderstand="1">me</who></e:Header>'
        assert text_of(client.call(envelope().decode().replace("<e:Body>", f"{block}<e:Body>"))) == "Hi"
        stub.verify()

    def test_a_fault_of_the_application(self, stub: StubService, client: Client) -> None:
        """Raised by a function, or given: no problem of the test."""
        stub.expect(GREET).respond(soapjms.SoapFaultError("closed", blame="Sender", detail=element("until", "9")))
        fault = client.call(envelope()).fault
        assert fault is not None
        assert (fault.reason, fault.subcode) == ("closed", None)
        assert fault.detail is not None
        assert fault.detail[0].text == "9"
        stub.verify()

    @pytest.mark.parametrize("version", SoapVersion)
    @pytest.mark.parametrize(
        ("profile", "subcode"),
        [(each, subcode) for each in (CR_2009, REC_2012) for subcode in sorted(each.subcodes)],
        ids=lambda value: value.name if isinstance(value, Profile) else str(value),
    )
    def test_a_fault_of_the_binding(
        self, other: Connection, connection: Connection, profile: Profile, subcode: str, version: SoapVersion
    ) -> None:
        """In the shape and the namespace of the profile. Spec: SOAP/JMS 2.8."""
        with StubService(other, URI, profile=profile) as stub, Client(connection, URI, profile=profile) as client:
            stub.expect(GREET).fault(str(subcode), "not so")
            fault = client.call(envelope(version=version), timeout=PATIENCE).fault
            assert fault is not None
            assert (fault.subcode, fault.namespace, fault.reason) == (subcode, profile.namespace, "not so")

    def test_delay(self, stub: StubService, client: Client) -> None:
        """An answer that is late: the caller gives up, and closing the stub does not wait."""
        stub.expect(GREET).delay(600)
        with pytest.raises(CallTimeoutError):
            client.call(envelope(), timeout=0.5)
        began = time.monotonic()
        stub.verify()
        stub.close()
        assert time.monotonic() - began < PATIENCE

    def test_several_at_once(self, other: Connection, client: Client) -> None:
        """With more workers one that is delayed holds up nobody."""
        with StubService(other, URI, workers=2) as stub:
            stub.expect(GREET, lambda request: request.element.text == "slow").delay(600)
            stub.expect(GREET).respond(said("Hi"))
            slow = client.submit(envelope("slow"))
            assert text_of(client.call(envelope("quick"))) == "Hi"
            eventually(lambda: len(stub.requests) == 2, "the slow one is being answered")
            stub.close()
            assert slow.result(PATIENCE).element is None

    def test_any_order(self, stub: StubService, client: Client) -> None:
        """Expectations are met in any order; of one name in that in which they were made."""
        stub.expect(GREET).respond(said("1"))
        stub.expect(GREET).respond(said("2"))
        stub.expect(PING).any_times()
        client.call(envelope(operation="pingMe"))
        assert [text_of(client.call(envelope())) for _ in range(2)] == ["1", "2"]
        client.call(envelope(operation="pingMe"))
        stub.verify()

    def test_where(self, stub: StubService, client: Client) -> None:
        """An expectation takes what it is for."""
        for name in ("Ann", "Bob"):
            stub.expect(GREET, lambda request, name=name: request.element.text == name).respond(said(f"Dear {name}"))
        assert [text_of(client.call(envelope(name))) for name in ("Bob", "Ann")] == ["Dear Bob", "Dear Ann"]
        stub.verify()

    def test_a_sequence(self, stub: StubService, client: Client) -> None:
        """In a sequence each waits for those before it; what may come any number of times ends with the next."""
        with stub.in_sequence():
            stub.expect(PING).any_times()
            stub.expect(GREET)
            stub.expect(PING)
        for operation in ("pingMe", "pingMe", "greetMe", "pingMe"):
            assert client.call(envelope(operation=operation)).fault is None
        stub.verify()
        assert client.call(envelope(operation="pingMe")).fault is not None
        assert "is over, as a later one in the sequence came" in self.unmet(stub)

    def test_out_of_sequence(self, stub: StubService, client: Client) -> None:
        """What comes before its turn is not expected, and is said so to the caller too."""
        with stub.in_sequence():
            stub.expect(PING)
            stub.expect(GREET)
        fault = client.call(envelope()).fault
        assert fault is not None
        why = f"{GREET} (expected once, came never) must come after {PING} (expected once, came never) in a sequence"
        assert fault.reason == f"the stub did not expect {GREET}: {why}"
        assert f"unexpected:\n  {GREET}: {why}\n" in self.unmet(stub)

    def test_never_came(self, stub: StubService, client: Client) -> None:
        """What was expected and did not come is named, and how often it came."""
        stub.expect(GREET).times(2)
        stub.expect(PING)
        client.call(envelope())
        assert self.unmet(stub) == (
            "the stub at queue:greeter did not receive what was expected\n"
            "missing:\n"
            f"  {GREET} (expected twice, came once)\n"
            f"  {PING} (expected once, came never)"
        )

    def test_unexpected(self, stub: StubService, client: Client) -> None:
        """What came and was not expected is shown, and answered with a fault; what is expected stays expected."""
        stub.expect(PING)
        fault = client.call(envelope("Eve"), soap_action="urn:greet").fault
        assert fault is not None
        assert fault.reason == f"the stub did not expect {GREET}: expected are: {PING}"
        told = self.unmet(stub)
        assert f"missing:\n  {PING} (expected once, came never)\n" in told
        assert f"unexpected:\n  {GREET}: expected are: {PING}\n    bytes message to queue:greeter\n" in told
        assert "    SOAPJMS_soapAction = urn:greet\n" in told
        assert re.search(r"\n    <e:Envelope .*>Eve</greetMe>", told)

    def test_once_too_often(self, stub: StubService, client: Client) -> None:
        """One request more than expected fails the test; so does one that is never to come."""
        stub.expect(GREET)
        stub.expect(PING).times(0)
        assert client.call(envelope()).fault is None
        assert client.call(envelope()).fault is not None
        assert client.call(envelope(operation="pingMe")).fault is not None
        told = self.unmet(stub)
        assert f"  {GREET}: {GREET} (expected once, came once) is complete\n" in told
        assert f"  {PING}: {PING} (expected never, came never) is complete\n" in told
        assert "missing:" not in told

    def test_nothing_is_expected(self, stub: StubService, client: Client) -> None:
        """A stub that expects nothing takes nothing; an empty body is none of a name. Not all of many are shown."""
        empty = f'<e:Envelope xmlns:e="{SoapVersion.SOAP_11.namespace}"><e:Body/></e:Envelope>'
        assert client.call(empty).fault is not None
        for _ in range(6):
            assert client.call(envelope()).fault is not None
        told = self.unmet(stub)
        assert "  its SOAP body is empty\n" in told
        assert told.count(f"  {GREET}: nothing is expected\n") == 4
        assert told.endswith("\n  and 2 more")

    def test_a_request_that_breaks_a_rule(self, stub: StubService, connection: Connection) -> None:
        """Is answered as the specification says, never given to an expectation, and fails the test."""
        stub.expect(GREET).any_times()
        reply_to = connection.temporary()
        bad = request_message("greeter", reply_to, properties={"SOAPJMS_contentType": None})
        connection.send(bad).result(PATIENCE)
        assert b"missingContentType" in bytes(take_one(connection, reply_to).body)  # type: ignore[arg-type]
        told = self.unmet(stub)
        assert "  a message that is not passed to a service (fault): missingContentType: " in told
        assert stub.requests == ()

    def test_one_way(self, stub: StubService, client: Client) -> None:
        """A one-way message is waited for: `verify` does not come before it."""
        stub.expect(PING).times(3)
        for _ in range(3):
            client.send(envelope(operation="pingMe"))
        stub.verify(PATIENCE)
        assert [request.one_way for request in stub.requests] == [True] * 3

    def test_one_way_that_comes_late(self, stub: StubService, client: Client) -> None:
        """`verify` waits as long as it is told for what another thread is about to send."""
        stub.expect(PING)
        with ThreadPoolExecutor(1) as another:
            waiting = another.submit(stub.verify, PATIENCE)
            client.send(envelope(operation="pingMe"))
            waiting.result(PATIENCE)

    def test_what_the_test_says_fails(self, stub: StubService, client: Client) -> None:
        """An assertion in a function of the test's, or in a `where`, fails the test, not only the call."""

        def check(request: soapjms.Request) -> None:
            raise AssertionError("whom?")

        stub.expect(GREET).respond(check)
        stub.expect(PING, check)
        assert client.call(envelope()).fault is not None
        assert client.call(envelope(operation="pingMe")).fault is not None
        told = self.unmet(stub)
        assert f"{GREET}: the function that answers it failed: AssertionError('whom?')" in told
        assert f"{PING}: its `where` failed: AssertionError('whom?')" in told

    def test_a_where_that_nobody_awaits(self, stub: StubService, client: Client) -> None:
        """It fails the test; what it returns would count as true for any request."""

        class Later:
            def __await__(self) -> Iterator[None]:
                yield

        stub.expect(GREET, lambda request: Later())
        assert client.call(envelope()).fault is not None
        assert f"{GREET}: its `where` failed: TypeError('where must be a function that" in self.unmet(stub)

    def test_with(self, other: Connection, connection: Connection) -> None:
        """A `with` statement verifies at its end, unless it ends with another error."""
        with pytest.raises(UnmetExpectationsError), StubService(other, URI) as stub, Client(connection, URI) as client:
            client.call(envelope())
        with Client(connection, URI) as client, pytest.raises(CallTimeoutError), StubService(other, URI) as stub:
            self.call_late(stub, client)

    def call_late(self, stub: StubService, client: Client) -> None:
        """Call a stub that answers late, and expects another call."""
        stub.expect(GREET).delay(600).times(2)
        client.call(envelope(), timeout=0.05)

    def test_a_topic(self, other: Connection, connection: Connection) -> None:
        """A stub may stand at a topic."""
        uri = "jms:topic:news"
        with StubService(other, uri) as stub, Client(connection, uri) as client:
            stub.expect(PING)
            client.send(envelope(operation="pingMe"))
            stub.verify(PATIENCE)
            assert stub.requests[0].message.destination == topic("news")

    def test_recorded(self, other: Connection, client: Client, tmp_path: Path) -> None:
        """What a stub records is there when the caller has its answer."""
        with Traffic(tmp_path / "log.jsonl") as traffic, StubService(other, URI, recorder=traffic) as stub:
            stub.expect(GREET).times(20)
            for number in range(1, 21):
                client.call(envelope())
                assert [len(exchange.messages) for exchange in traffic.exchanges()] == [2] * number

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            (lambda stub: stub.expect("{urn:x"), "name of an element must be written"),
            (lambda stub: stub.expect(7), "must be given the name of an element"),
            (lambda stub: stub.expect(GREET).respond("<a>"), "got text that is not well-formed"),
            (lambda stub: stub.expect(GREET).respond(7), "None or a function, got 7"),
            (lambda stub: stub.expect(GREET).respond(later), "content must be a plain function, not an async one"),
            (lambda stub: stub.expect(GREET).fault("noSuchFault"), "got 'noSuchFault'; they are: contentEnc"),
            (
                lambda stub: stub.expect(GREET).delay(-1),
                "number of seconds, at least 0, got -1",
            ),
            (lambda stub: stub.expect(GREET).delay(float("nan")), "at least 0, got nan"),
            (lambda stub: stub.expect(GREET).times(-1), "number must be an integer of at least 0, got -1"),
            (lambda stub: stub.expect(GREET).times(1.5), "at least 0, got 1.5"),
        ],
    )
    def test_mistakes(self, stub: StubService, wrong: object, told: str) -> None:
        """What cannot be is said at once, with what would be accepted."""
        with pytest.raises(soapjms.UsageError, match=re.escape(told)):
            wrong(stub)  # type: ignore[operator]

    def test_a_subcode_of_another_edition(self, other: Connection) -> None:
        """The edition of 2009 has no fault that came later."""
        stub = StubService(other, URI, profile="cr-2009")
        try:
            with pytest.raises(soapjms.UsageError, match="subcode must be one of cr-2009, got 'missingSoapAction'"):
                stub.expect(GREET).fault("missingSoapAction")
        finally:
            stub.close()
