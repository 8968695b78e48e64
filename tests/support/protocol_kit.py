"""What the tests of the nodes share: envelopes, endpoints, and a broker that is one function."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, Final

from brokers.message import Message, MessageType, Property, queue, typed
from soapjms.protocol.names import REC_2012, Mep, Profile, SoapVersion
from soapjms.protocol.properties import resolve
from soapjms.protocol.requesting import Endpoint, RequestingNode
from soapjms.protocol.uri import checked
from soapjms.protocol.values import Value

NOW: Final = 1_800_000_000_000
QUEUE: Final = queue("in")
REPLIES: Final = queue("replies")
_numbers = count(1)


def envelope(version: SoapVersion = SoapVersion.SOAP_11, text: str = "ä") -> bytes:
    """Write an envelope in UTF-8, without XML declaration."""
    space = version.namespace
    inside = f'<x xmlns="urn:x">{text}</x>'
    return f'<e:Envelope xmlns:e="{space}"><e:Body>{inside}</e:Body></e:Envelope>'.encode()


def endpoint(
    uri: str = "jms:queue:in",
    profile: Profile = REC_2012,
    message_type: MessageType = MessageType.BYTES,
    **environment: Value,
) -> Endpoint:
    """Resolve an endpoint from its URI and the environment."""
    parsed = checked(uri)
    return Endpoint.of(parsed, resolve(parsed, environment), profile, message_type)


def started(
    at: Endpoint | None = None,
    mep: Mep = Mep.REQUEST_RESPONSE,
    *,
    version: SoapVersion = SoapVersion.SOAP_11,
    **options: Any,
) -> tuple[RequestingNode, Message]:
    """Start an exchange; return the node and the message as the broker delivers it."""
    node = RequestingNode(at or endpoint(), mep)
    if mep is Mep.REQUEST_RESPONSE:
        options = {"reply_to": REPLIES, "correlation_id": f"c-{next(_numbers)}", "timeout": 1000, **options}
    body = options.pop("body", envelope(version))
    message = node.start(body, destination=QUEUE, now=NOW, **options)
    return node, delivered(message)


def delivered(message: Message) -> Message:
    """Do what a broker does: set the message id, the time stamp, and each header that nobody set to its default."""
    return replace(
        message,
        message_id=f"ID:{next(_numbers)}",
        timestamp=NOW,
        delivery_mode=message.delivery_mode or 2,
        priority=4 if message.priority is None else message.priority,
        expiration=message.expiration or 0,
        redelivered=False,
    )


def changed(message: Message, *gone: str, **values: Any) -> Message:
    """Return a message without the SOAPJMS_ properties named, and with these of other values."""
    kept = [each for each in message.properties if each.name.removeprefix("SOAPJMS_") not in gone]
    new: list[Property] = [typed(f"SOAPJMS_{name}", value) for name, value in values.items()]
    return replace(message, properties=type(message.properties)(kept).merged(new))
