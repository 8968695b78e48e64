"""Message and correlation ids: AMQP has four types for them, JMS has strings.

What is no string on the wire gets a prefix that says so, and an id with that prefix goes out as what it was. So the
JMSMessageID of a request is a JMSCorrelationID that its sender recognises, whatever it made its ids of.

Spec: AMQP JMS Mapping 1.0, JMSMessageID and JMSCorrelationID.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from proton import ulong

JMS_PREFIX: Final = "ID:"
ENCODED: Final = "ID:AMQP_"
NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
STRING: Final = "ID:AMQP_STRING:"

DECODERS: Final[Mapping[str, Callable[[str], object]]] = {
    NO_PREFIX: str,
    STRING: str,
    "ID:AMQP_ULONG:": lambda text: _ulong(text),
    "ID:AMQP_UUID:": UUID,
    "ID:AMQP_BINARY:": bytes.fromhex,
}


def to_wire(text: str) -> object:
    """Return an id as it goes on the wire: as what it once was there, if it says so and that is true, else as text."""
    for prefix, decode in DECODERS.items():
        if text.startswith(prefix):
            try:
                return decode(text.removeprefix(prefix))
            except ValueError:  # only looks like one
                return text
    return text


def message_id(value: object) -> str | None:
    """Return a message-id of the wire as JMSMessageID, which begins with `ID:`; None for none, or of no such type."""
    if isinstance(value, str) and not value.startswith(JMS_PREFIX):
        return NO_PREFIX + value
    return correlation_id(value)


def correlation_id(value: object) -> str | None:
    """Return a correlation-id of the wire as JMSCorrelationID: text as it is; None for none, or of no such type."""
    match value:
        case str():
            return STRING + value if value.startswith(ENCODED) else value
        case UUID():
            return f"ID:AMQP_UUID:{value}"
        case bytes() | memoryview():
            return f"ID:AMQP_BINARY:{bytes(value).hex().upper()}"
        case bool():
            return None
        case int():
            return f"ID:AMQP_ULONG:{int(value)}"
    return None


def _ulong(text: str) -> Any:
    if not (text.isascii() and text.isdigit() and int(text[:21]) < 1 << 64):
        raise ValueError(f"no unsigned 64-bit number: {text!r}")
    return ulong(int(text))
