"""`soapjms call --record`: a captured request is sent again with its mistakes, and gets its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import NS, Wrapped, answer_to, envelope, greeter, responder, take_one
from cli_kit import run, said
from replay_logs import at

import soapjms
from brokers import Connection, Message, MessageType, properties, queue
from brokers.message import Destination, DestinationKind, Properties
from soapjms.client.repetition import losses, repeat
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, UsageError
from soapjms.protocol.record import Direction, Record, capture, to_json

RIGHT = {
    "SOAPJMS_requestURI": "jms:queue:greeter",
    "SOAPJMS_bindingVersion": "1.0",
    "SOAPJMS_contentType": "text/xml; charset=utf-8",
}
GONE = Destination(DestinationKind.TEMPORARY_QUEUE, "ID:gone:1")


@pytest.fixture
def served(connection: Connection) -> Iterator[soapjms.Dispatcher]:
    """A greeter at that broker that refuses whatever the specification has a subcode for."""
    with soapjms.Dispatcher(connection, "jms:queue:greeter", greeter(), strict=True) as dispatcher:
        yield dispatcher


def captured(changes: dict[str, Any] | None = None, without: str = "", **headers: Any) -> Record:
    """Capture a request: its properties with changes, without one, and with these headers."""
    own = {name: value for name, value in {**RIGHT, **(changes or {})}.items() if name != without}
    values: dict[str, Any] = {
        "message_type": MessageType.BYTES,
        "body": envelope(),
        "properties": properties(own),
        "destination": queue("greeter"),
        "reply_to": GONE,
        "message_id": "ID:then-1",
        "correlation_id": "then-1",
        "delivery_mode": 2,
        "priority": 7,
        "timestamp": 1795176000000,
    }
    return capture(Message(**{**values, **headers}), at(0), Direction.REQUEST)


def octets(*records: Record) -> bytes:
    """Write a log."""
    return "".join(f"{to_json(each)}\n" for each in records).encode()


BROKEN = [
    (captured({"SOAPJMS_bindingVersion": "0.3"}), "unrecognizedBindingVersion"),
    (captured(without="SOAPJMS_contentType"), "missingContentType"),
    (captured(without="SOAPJMS_requestURI"), "missingRequestURI"),
    (captured({"SOAPJMS_requestURI": "jms:queue:greeter?targetService=x"}), "targetServiceNotAllowedInRequestURI"),
    (captured({"SOAPJMS_requestURI": "jms:queue greeter"}), "malformedRequestURI"),
    (captured({"SOAPJMS_contentType": "text/xml; charset=utf-16"}), "contentTypeMismatch"),
    (captured(message_type=MessageType.MAP, body=properties({"a": 1})), "unsupportedJMSMessageFormat"),
]


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(("record", "subcode"), BROKEN, ids=[subcode for _, subcode in BROKEN])
def test_a_broken_request_gets_its_fault_again(url: str, record: Record, subcode: str) -> None:
    """It is not mended on the way; the rule that it breaks is said."""
    answer = said("call", "--record", "-", "--connection", url, status=1, stdin=octets(record))
    assert answer["fault"]["subcode"] == subcode
    assert any(each["outcome"] == "failed" for each in answer["findings"])
    done = run("call", "--record", "-", "--connection", url, stdin=octets(record))
    assert done.exit_code == 1
    assert f"fault {subcode}: " in done.stderr
    assert " MUST: " in done.stderr


@pytest.mark.usefixtures("served")
def test_a_right_request_gets_its_answer(url: str, tmp_path: Path) -> None:
    """From a file, beside its response, which is left aside."""
    asked = captured()
    answered = capture(answer_to(asked.message), at(1), Direction.RESPONSE)
    log = tmp_path / "captured.jsonl"
    log.write_bytes(octets(asked, answered))
    done = run("call", "--record", log, "--connection", url)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f'"{NS}">Hello World<' in done.stdout


def test_the_message_is_the_same(url: str, connection: Connection) -> None:
    """Octets, properties with their types, and headers; the ids are new, what a provider writes is left out."""
    more = properties({"n": 7, "flag": True, "JMSXGroupID": "g", "JMSXDeliveryCount": 3})
    record = captured(body=b"\xff\x00no XML", type="t", expiration=1795176000000 + 60_000)
    record = replace(record, message=replace(record.message, properties=record.message.properties.merged(more)))
    log = octets(capture(record.message, at(0), Direction.REQUEST))
    assert run("call", "--record", "-", "--connection", url, "--timeout", "0.1", stdin=log).exit_code == 3
    message = take_one(connection, queue("greeter"))
    assert (message.body, message.message_type, message.type) == (b"\xff\x00no XML", "bytes", "t")
    assert (message.delivery_mode, message.priority) == (2, 7)
    assert message.expiration is not None
    assert message.timestamp is not None
    assert 55_000 < message.expiration - message.timestamp < 65_000
    kept = Properties(each for each in record.message.properties if each.name != "JMSXDeliveryCount")
    assert set(kept) <= set(message.properties)
    assert message.properties.value("JMSXDeliveryCount") != 3
    assert message.correlation_id not in (None, "then-1")
    assert message.reply_to not in (None, GONE)


def test_a_one_way_message(url: str, connection: Connection) -> None:
    """Nothing is waited for; the rules that it breaks are said."""
    record = replace(captured({"SOAPJMS_bindingVersion": "0.3"}, reply_to=None), direction=Direction.ONE_WAY)
    sent = said("call", "--record", "-", "--connection", url, status=1, stdin=octets(record))
    assert sent["sent"] is True
    assert [each["assertion"] for each in sent["findings"]] == ["Protocol-2010"]
    assert take_one(connection, queue("greeter")).reply_to is None
    done = run("call", "--record", "-", "--connection", url, stdin=octets(record))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Protocol-2010 MUST: " in done.stderr


def test_another_destination(url: str, connection: Connection) -> None:
    """A test system has another queue; the requestURI stays as captured."""
    record = replace(captured(reply_to=None), direction=None)
    done = run("call", "--record", "-", "--connection", url, "--uri", "jms:queue:test", stdin=octets(record))
    assert done.exit_code == 0
    assert take_one(connection, queue("test")).properties.value("SOAPJMS_requestURI") == "jms:queue:greeter"


def test_an_answer_that_is_no_envelope(url: str, connection: Connection) -> None:
    """It is a finding, not the end."""
    with responder(connection, queue("greeter"), lambda request: [answer_to(request, body=b"oops")]):
        done = run("call", "--record", "-", "--connection", url, stdin=octets(captured()))
        answer = said("call", "--record", "-", "--connection", url, status=1, stdin=octets(captured()))
    assert done.exit_code == 1
    assert "the answer is no SOAP envelope: " in done.stderr
    assert (answer["body"], answer["fault"]) == (None, None)
    assert "Protocol-2030" in [each["assertion"] for each in answer["findings"]]


def test_no_answer(url: str) -> None:
    """The status is that of any call without one."""
    done = run("call", "--record", "-", "--connection", url, "--timeout", "0.1", stdin=octets(captured()))
    # an embedded broker of nobody else is refused
    assert done.exit_code == 2
    with soapjms.connect(url):
        done = run("call", "--record", "-", "--connection", url, "--timeout", "0.1", stdin=octets(captured()))
    assert done.exit_code == 3
    assert "no answer came in time, from queue:greeter" in done.stderr


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(captured(), direction=Direction.RESPONSE), "got 1 records"),
        (replace(captured(), truncated=True), "the body was cut when it was captured"),
        (captured(destination=None), "does not show the name of the destination: give it as a jms: URI"),
        (captured(destination=GONE), "was temporary, and is gone: give another one as a jms: URI"),
        (captured(priority=12), "JMSPriority must be from 0 to 9 for a provider, got 12"),
        (captured(delivery_mode=7), "JMSDeliveryMode must be 1 or 2 for a provider, got 7"),
    ],
)
@pytest.mark.usefixtures("connection")
def test_what_cannot_be_sent_as_it_was_is_refused(url: str, record: Record, words: str) -> None:
    """With what to do instead; nothing is sent."""
    done = run("call", "--record", "-", "--connection", url, stdin=octets(record))
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"", "--record must hold one request or one-way message, got nothing"),
        (octets(captured(), captured()), "got 2 requests: give its line of the log alone"),
        (b"{}\n", "line 1 of --record must be a capture record: "),
        (b"\xff\n", "line 1 of --record must be a capture record: "),
    ],
)
def test_what_is_no_request_is_refused(url: str, stdin: bytes, words: str) -> None:
    """By its line."""
    done = run("call", "--record", "-", "--connection", url, stdin=stdin)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--action", "urn:a"],
        ["--one-way"],
        ["--text"],
        ["--set", "priority=3"],
        ["--operation", "greetMe"],
        ["hello.xml"],
    ],
)
def test_options_that_write_a_message_are_refused(url: str, words: list[str]) -> None:
    """The record has all of it."""
    done = run("call", "--record", "-", "--connection", url, *words, stdin=octets(captured()))
    assert done.exit_code == 2
    assert "leave out" in done.stderr


@pytest.mark.usefixtures("served")
def test_a_configuration_of_calls_does_not_count(url: str) -> None:
    """It is for messages that are written."""
    done = run("call", "--record", "-", "--connection", url, stdin=octets(captured()), SOAPJMS_CALL_SET="priority=3")
    assert (done.exit_code, done.stderr) == (0, "")


class Untyped(Wrapped):
    """A connection that carries all properties as strings, as over STOMP, and refuses some messages."""

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, typed_properties=False, broker="ActiveMQ")

    def send(self, message: Message, transaction: Any = None, **options: Any) -> Any:
        if message.message_type is MessageType.MAP:
            raise UsageError("over STOMP a message must be of type text or bytes, got map")
        return super().send(message, transaction, **options)


def test_what_a_connection_cannot_carry_is_said(connection: Connection) -> None:
    """Before anything is sent, with the connection that can; what was captured without types may go."""
    wire = Untyped(connection)
    with pytest.raises(UsageError, match=r"flag is a JMS boolean, and this connection to ActiveMQ .* one over AMQP"):
        repeat(wire, captured({"flag": True}), timeout=1)
    null = captured({"x": None})
    assert [each for each in losses(null, wire.capabilities) if "x is a null string" in each]
    untyped = captured({"flag": True})
    assert not list(losses(replace(untyped, message=replace(untyped.message, untyped=True)), wire.capabilities))
    with pytest.raises(UsageError, match="cannot be sent as it was captured: over STOMP a message must be"):
        repeat(wire, captured(message_type=MessageType.MAP, body=properties({"a": "b"})), timeout=1)


class Failing(Wrapped):
    """A connection whose broker does not confirm, or refuses."""

    def __init__(self, inner: Connection, error: BaseException | None) -> None:
        super().__init__(inner)
        self.error = error

    def send(self, message: Message, transaction: Any = None, **options: Any) -> Any:
        from brokers.threads.futures import Completion

        future: Any = Completion(None)  # type: ignore[arg-type]
        if self.error is not None:
            future.set_exception(self.error)
        return future


def test_a_broker_that_takes_nothing(connection: Connection) -> None:
    """What became of the request is known, or not."""
    from brokers.errors import SendFailedError

    with pytest.raises(CallFailedError, match="the request could not be sent: full") as failed:
        repeat(Failing(connection, SendFailedError("full")), captured(), timeout=1)
    assert failed.value.is_known
    with pytest.raises(CallTimeoutError, match="the broker did not confirm it in time") as late:
        repeat(Failing(connection, None), captured(reply_to=None), timeout=0.1)
    assert not late.value.is_known


def test_a_record_of_the_report_is_sent(url: str, connection: Connection) -> None:
    """JSON may have escapes: what they stand for is sent."""
    line = json.dumps(json.loads(to_json(captured({"x": "a!b"}, reply_to=None)))).replace("!", "\\u0021")
    assert run("call", "--record", "-", "--connection", url, stdin=line.encode()).exit_code == 0
    assert take_one(connection, queue("greeter")).properties.value("x") == "a!b"
