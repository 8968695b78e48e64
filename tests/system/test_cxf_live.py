"""Apache CXF, live: its client calls our service, and our client its, on both brokers and over both protocols of ours.

A core of cases is in `make test`; `make soak` has all that there are: CXF's own connection over OpenWire, the protocol
of Artemis itself and AMQP, each kind of destination, of message and of reply. What fails for a fault of CXF's or of a
broker's is an expected failure with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from calling_kit import PATIENCE, SOAP_11, SOAP_12, Wrapped, eventually, fresh
from cxf_kit import (
    CXF_WAYS,
    FAULT_CASES,
    KINDS,
    PLAIN,
    REFUSALS,
    THEIR_CLIENT,
    THEIR_SERVICE,
    Answer,
    Case,
    Cxf,
    Side,
    answer_in,
    at_their_client,
    echo_service,
    request_of,
    uri_of,
)
from lxml import etree
from real_brokers import RealBroker

import soapjms
from brokers import Connection, Message, Properties, typed
from soapjms import CallTimeoutError, Client, Dispatcher, Recorder, SoapVersion
from soapjms.protocol.errors import SoapFaultError
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.names import REC_NAMESPACE
from soapjms.protocol.record import from_json

pytestmark = pytest.mark.broker


TOPICS: Final = "?temporaryQueues=topics"

FUTILE: Final = 2.0
"""Seconds that a call waits for an answer that will not come."""

TEXT: Final = "Zoë <&> \u2713"


def cases(side: Side) -> Any:
    """Parametrize a test by all cases; those beyond the few are for `make soak`."""
    few, found = side.few(), list[Any]()
    for case in side.all():
        fault, marks = side.foreign(case), list[Any]()
        if fault is not None:
            marks.append(pytest.mark.xfail(strict=True, raises=fault.error, reason=fault.reason))
        if case not in few:
            marks.append(pytest.mark.soak)
        found.append(pytest.param(case, marks=marks, id=str(case)))
    return pytest.mark.parametrize("case", found)


@pytest.fixture
def broker(case: Case, request: pytest.FixtureRequest) -> RealBroker:
    """Run the broker of the case."""
    found: RealBroker = request.getfixturevalue(case.broker)
    return found


@pytest.fixture
def connection(case: Case, broker: RealBroker) -> Iterator[Connection]:
    """Connect to it by the protocol of the case."""
    with soapjms.connect(url_of(broker, case)) as connection:
        yield connection


def url_of(broker: RealBroker, case: Case) -> str:
    """Write the URL of our connection; see `TestTemporaryQueuesOnArtemis`."""
    url: str = getattr(broker, f"{case.protocol}_url")
    return f"{url}{TOPICS}" if case[:3] == ("artemis", "amqp", "openwire") else url


class TestTheirClient:
    """CXF's client calls our service."""

    @cases(THEIR_CLIENT)
    def test_all(self, cxf: Cxf, broker: RealBroker, connection: Connection, case: Case) -> None:
        """Each operation, with text, an empty text and none; one-way; faults: declared, failed, and of the binding."""
        name = fresh("cxf")
        uri = uri_of(broker, name, case.destination, case.over, **client_options(case, name))
        service, heard = echo_service(case.version)
        more = {"gzip": "true"} if case.more == "gzip" else {}

        def call(operation: str, text: str | None = "", **options: str) -> Answer:
            return cxf.call(uri, operation, text, case.version, **more, **options)

        ours = f"jms:{case.destination}:{name}"
        options = [f"{key}={value}" for key, value in more.items()]
        with (
            cxf.client(uri, case.version, *options),
            Dispatcher(connection, ours, service, reply_topics=case.replies == "topic", workers=1) as dispatcher,
        ):
            assert [call("greetMe", each) for each in (TEXT, "", None)] == [ok(TEXT), ok(""), Answer("null", ())]
            assert call("testFault", "broken") == Answer("declared", ("42", "broken"))
            call("pingMe", TEXT)
            call("pingMe", "")
            eventually(lambda: sorted(map(str, heard)) == ["", TEXT], "it was heard")
            assert call("pingCount") == ok("2")
            assert call("greetMe", "fail") == Answer("fault", failed_in(case.version))
            assert call("greetMe", "a", bindingVersion="0.3") == Answer("fault", refused_in(case.version))
        assert dispatcher.counts["answered"] == 7, dict(dispatcher.counts)


@pytest.mark.parametrize(
    "case",
    [
        Case("artemis", "stomp", "openwire", SOAP_11, replies="no id"),
        Case("artemis", "amqp", "openwire", SOAP_11, replies="no id"),
        Case("artemis", "amqp", "amqp", SOAP_11, replies="no id"),
    ],
    ids=str,
)
def test_captured_without_correlation_id(
    cxf: Cxf, broker: RealBroker, connection: Connection, case: Case, tmp_path: Path
) -> None:
    """What the service records pairs each request with its response by the JMSMessageID that its sender knows."""
    name = fresh("cxf")
    uri = uri_of(broker, name, over=case.over, **client_options(case, name))
    with (
        cxf.client(uri, case.version),
        Recorder(tmp_path / "log.jsonl") as recorder,
        Dispatcher(connection, f"jms:queue:{name}", echo_service(case.version)[0], recorder=recorder),
    ):
        called = [cxf.begin(uri, "greetMe", f"call {number}", case.version) for number in range(20)]
        assert [each.result(PATIENCE) for each in called] == [["ok", f"call {number}"] for number in range(20)]
        eventually(lambda: recorder.written == 40, "each message was recorded")
    records = [from_json(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    exchanges = list(exchanges_of(records))
    assert len(exchanges) == 20
    for each in exchanges:
        assert each.request is not None
        assert each.response is not None
        asked, told = (text_of_body(part.message) for part in (each.request, each.response))
        assert asked == told
        assert each.request.message.correlation_id is None
        assert each.response.message.correlation_id == each.request.message.message_id


def text_of_body(message: Message) -> str:
    """Return the one text in an envelope."""
    body = message.body
    assert isinstance(body, bytes | memoryview)
    return "".join(etree.fromstring(bytes(body)).itertext())


def ok(text: str) -> Answer:
    """Make the answer that holds a text."""
    return Answer("ok", (text,))


def client_options(case: Case, name: str) -> dict[str, str | int]:
    """Return the parameters of CXF's URI that make its client that of the case."""
    options: dict[str, str | int] = {"receiveTimeout": round(1000 * (FUTILE if at_their_client(case) else PATIENCE))}
    if case.kind == "text":
        options["messageType"] = "text"
    if case.more == "non-persistent":
        options |= {"deliveryMode": "NON_PERSISTENT", "priority": 7, "timeToLive": 60_000}
    match case.replies:
        case "no id":
            options["useConduitIdSelector"] = "false"
        case "named":
            options["replyToName"] = f"{name}.replies"
        case "topic":
            options["topicReplyToName"] = f"{name}.replies"
    return options


def failed_in(version: SoapVersion) -> tuple[str, ...]:
    """Return what CXF makes of the fault for a function that failed: code, subcodes, reason, detail."""
    code = "Server" if version is SOAP_11 else "Receiver"
    return f"{{{version.namespace}}}{code}", "", "the service failed", ""


def refused_in(version: SoapVersion) -> tuple[str, ...]:
    """Return likewise of the fault of the binding for a version that there is not."""
    subcode = f"{{{REC_NAMESPACE}}}unrecognizedBindingVersion"
    codes = (subcode, "") if version is SOAP_11 else (f"{{{version.namespace}}}Sender", subcode)
    return *codes, "SOAPJMS_bindingVersion is '0.3', not 1.0", ""


class TestTheirService:
    """Our client calls CXF's service."""

    @cases(THEIR_SERVICE)
    def test_all(self, cxf: Cxf, broker: RealBroker, connection: Connection, case: Case) -> None:
        """Each operation, with text, an empty text and none; one-way; faults: declared, and of what failed."""
        name, zipped = fresh("cxf"), ("gzip",) if case.more == "gzip" else ()
        with (
            cxf.service(uri_of(broker, name, case.destination, case.over), case.version, *zipped) as service,
            our_client(connection, name, case) as client,
        ):
            if case.destination == "topic":  # which it subscribes to a moment after it has begun
                eventually(lambda: name in broker.counters().consumers, "it listens")
            assert [greeting(client, case, each) for each in (TEXT, "", None)] == [TEXT, "", None]
            with pytest.raises(SoapFaultError, match="declared") as caught:
                client.call(request_of(case.version, "testFault", "broken")).raise_for_fault()
            assert "".join(caught.value.detail.itertext()) == "42broken"
            for text in (TEXT, ""):
                client.send(request_of(case.version, "pingMe", text))
            eventually(lambda: sorted(cxf.heard(service)) == ["", TEXT], "it was heard")
            assert answer_in(client.call(request_of(case.version, "pingCount"))) == "2"
            with pytest.raises(SoapFaultError, match="as it was asked to"):
                client.call(request_of(case.version, "greetMe", "fail")).raise_for_fault()
        assert client.counts == {}


def greeting(client: Client, case: Case, text: str | None) -> str | None:
    """Call `greetMe`, and return what came, in a message of the kind that was sent that keeps all rules but a habit.

    CXF's answers never expire, though they should with their request.
    """
    response = client.call(request_of(case.version, "greetMe", text))
    assert response.message.message_type is KINDS[case.kind]
    assert {each.assertion for each in response.findings()} == {"Local-2.6.2.3-expiration"}
    return answer_in(response)


def our_client(connection: Connection, name: str, case: Case) -> Client:
    """Make the client of a case."""
    properties: dict[str, Any] = {}
    if case.more == "gzip":
        properties["contentEncoding"] = "gzip"
    if case.more == "non-persistent":
        properties |= {"deliveryMode": "NON_PERSISTENT", "priority": 7, "timeToLive": 60_000}
    if case.replies in ("named", "topic"):
        properties["replyToName" if case.replies == "named" else "topicReplyToName"] = f"{name}.replies"
    return Client(
        connection,
        f"jms:{case.destination}:{name}",
        properties=properties,
        message_type=KINDS[case.kind],
        replies="exclusive" if case.replies == "exclusive" else None,
        timeout=PATIENCE,
    )


class Altered(Wrapped):
    """A connection that sends requests with other properties than the client set.

    Attributes:
        changes: values by name; None leaves a property out.
    """

    changes: Mapping[str, str | None] = {}

    def send(self, message: Message, transaction: Any = None, **options: Any) -> Any:
        kept = [each for each in message.properties if each.name not in self.changes]
        put = [typed(name, value) for name, value in self.changes.items() if value is not None]
        return super().send(replace(message, properties=Properties((*kept, *put))), transaction, **options)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, marks=() if each.over == "openwire" else pytest.mark.soak, id=str(each))
        for each in FAULT_CASES
    ],
)
class TestTheirFaults:
    """CXF's service answers our client with a fault, which our client tells as what it is."""

    def test_of_the_service(self, cxf: Cxf, broker: RealBroker, connection: Connection, case: Case) -> None:
        """A declared one, with its detail; a function that fails; an operation that there is not."""
        name = fresh("cxf")
        receiver, sender = ("Server", "Client") if case.version is SOAP_11 else ("Receiver", "Sender")
        with (
            cxf.service(uri_of(broker, name, over=case.over), case.version),
            our_client(connection, name, case) as client,
        ):

            def told(operation: str, text: str) -> tuple[object, ...]:
                error = fault_in(client.call(request_of(case.version, operation, text)))
                detail = "" if error.detail is None else "".join(error.detail.itertext())
                return error.code, error.subcode, error.reason, error.blame, detail

            space = f"{{{case.version.namespace}}}"
            assert told("testFault", "broken") == (f"{space}{receiver}", None, "declared", "Receiver", "42broken")
            failed = f"{space}{receiver}", None, "as it was asked to", "Receiver", ""
            assert told("greetMe", "fail") == failed
            code, subcode, reason, blame, detail = told("sing", "loud")
            assert (code, subcode, blame, detail) == (f"{space}{sender}", None, "Sender", "")
            assert "}sing was not recognized" in str(reason)
            assert answer_in(client.call(request_of(case.version, "greetMe", TEXT))) == TEXT

    def test_of_the_binding(self, cxf: Cxf, broker: RealBroker, connection: Connection, case: Case) -> None:
        """It has the subcode that CXF wrote, and the caller is to blame. With SOAP 1.2 CXF looks at none of this."""
        name, altered = fresh("cxf"), Altered(connection)
        with (
            cxf.service(uri_of(broker, name, over=case.over), case.version),
            our_client(altered, name, case) as client,
        ):
            for what, value, subcode in REFUSALS:
                altered.changes = {f"SOAPJMS_{what}": value}
                response = client.call(request_of(case.version, "greetMe", TEXT))
                if case.version is SOAP_12:
                    assert answer_in(response) == TEXT
                    continue
                error = fault_in(response)
                assert (error.subcode, error.blame) == (subcode, "Sender"), error.reason
            altered.changes = {}
            assert answer_in(client.call(request_of(case.version, "greetMe", TEXT))) == TEXT


def fault_in(response: soapjms.Response) -> SoapFaultError:
    """Return the fault that a response holds."""
    with pytest.raises(SoapFaultError) as caught:
        response.raise_for_fault()
    return caught.value


class TestTemporaryQueuesOnArtemis:
    """Over OpenWire CXF's service takes one that our client made over AMQP for deleted, unless it is a topic.

    A named queue for replies helps, too, as above.
    """

    @pytest.mark.parametrize("over", CXF_WAYS["artemis"])
    def test_topics(self, cxf: Cxf, artemis: RealBroker, over: str) -> None:
        """CXF answers to those that are topics; each call may have one of its own."""
        name = fresh("cxf")
        with (
            cxf.service(uri_of(artemis, name, over=over)),
            soapjms.connect(artemis.amqp_url + TOPICS) as connection,
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as one_for_all,
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE, replies="exclusive") as one_each,
        ):
            for client in (one_for_all, one_each):
                assert answer_in(client.call(request_of(SOAP_11, "greetMe", TEXT))) == TEXT

    @pytest.mark.parametrize(
        ("over", "option", "left"),
        [*((over, TOPICS, 0) for over in CXF_WAYS["artemis"]), ("core", "", 1), ("amqp", "", 1)],
    )
    def test_answer_to_who_left(self, cxf: Cxf, artemis: RealBroker, over: str, option: str, left: int) -> None:
        """Nothing stays of one to a temporary queue that is a topic; of one to another a queue that nobody empties."""
        name, before = fresh("cxf"), artemis.counters().messages
        with soapjms.connect(artemis.amqp_url + option) as gone, Client(gone, f"jms:queue:{name}") as client:
            asked = client.submit(request_of(SOAP_11, "greetMe", TEXT), timeout=PATIENCE)
            eventually(lambda: artemis.counters().messages.get(name) == 1, "the request is there")
        assert asked.exception(PATIENCE) is not None
        with (
            soapjms.connect(artemis.amqp_url + TOPICS) as connection,
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
            cxf.service(uri_of(artemis, name, over=over)),
        ):
            assert answer_in(client.call(request_of(SOAP_11, "greetMe", TEXT))) == TEXT  # it answers one by one
            eventually(lambda: name not in artemis.counters().messages, "both requests were accepted")
        found = {each: count for each, count in artemis.counters().messages.items() if each not in before}
        for each in found:
            artemis.delete_queue(each)
        assert list(found.values()) == [1] * left

    def test_without_advisories(self, cxf: Cxf, artemis: RealBroker) -> None:
        """A connection factory that looks for no advisories does not miss any."""
        name = fresh("cxf")
        url = f"{artemis.openwire_url}?jms.watchTopicAdvisories=false"
        with (
            cxf.service(uri_of(artemis, name, jndiURL=url)),
            soapjms.connect(artemis.amqp_url) as connection,
            our_client(connection, name, PLAIN) as client,
        ):
            assert answer_in(client.call(request_of(SOAP_11, "greetMe", TEXT))) == TEXT

    def test_what_it_says(self, cxf: Cxf, artemis: RealBroker) -> None:
        """CXF's log has the reason; the caller's error is a time-out."""
        name, before = fresh("cxf"), len(cxf.log.read_text("utf-8", "replace"))
        with (
            soapjms.connect(artemis.amqp_url) as connection,
            Client(connection, f"jms:queue:{name}", timeout=FUTILE) as client,
            cxf.service(uri_of(artemis, name)),
            pytest.raises(CallTimeoutError),
        ):
            client.call(request_of(SOAP_11, "greetMe", TEXT))
        assert "Cannot publish to a deleted Destination" in cxf.log.read_text("utf-8", "replace")[before:]
