"""How a failed test shows a message: whole where it is short, and nothing that a terminal acts on."""

from __future__ import annotations

from typing import Final

from brokers.message import Body, Message
from soapjms.protocol.record import Record
from soapjms.protocol.uri.showing import visible

LONGEST_BODY: Final = 2000
LONGEST_VALUE: Final = 300
"""Characters that are shown."""

HEADERS: Final = {
    "JMSMessageID": "message_id",
    "JMSCorrelationID": "correlation_id",
    "JMSReplyTo": "reply_to",
    "JMSExpiration": "expiration",
}


def message_shown(message: Message, indent: str = "    ") -> str:
    """Show a message in several lines: type and destination, headers, properties, and its body as it came."""
    lines = [f"{message.message_type} message to {visible(str(message.destination))}"]
    for name, attribute in HEADERS.items():
        value = getattr(message, attribute)
        if value is not None:
            lines.append(f"{name} = {_value(value)}")
    lines += [f"{visible(each.name)} = {_value(each.value)}" for each in message.properties]
    return "\n".join(indent + line for line in [*lines, *_body_lines(message.body)])


def record_shown(record: Record) -> str:
    """Show a captured message in one line: when it passed, what it was, where to, what is in it."""
    message = record.message
    body = " ".join("".join(_body_lines(message.body)).split())
    words = [
        f"{record.time:%H:%M:%S.%f}",
        str(record.direction or "message"),
        f"to {visible(str(message.destination))}",
    ]
    return " ".join([*words, body if len(body) <= LONGEST_VALUE else f"{body[:LONGEST_VALUE]}…"])


def _value(value: object) -> str:
    text = visible(str(value))
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text)} characters)"


def _body_lines(body: Body) -> list[str]:
    if body is None:
        return ["(no body)"]
    if isinstance(body, bytes | memoryview):
        text = bytes(body[: 4 * LONGEST_BODY]).decode("utf-8", "backslashreplace")
    else:
        text = body if isinstance(body, str) else repr(body)
    size = len(body)
    shown = [visible(line) for line in text[:LONGEST_BODY].splitlines()] or ["(an empty body)"]
    return shown if len(text) <= LONGEST_BODY else [*shown, f"… (the body has {size} in all)"]
