"""What both nodes write alike: body, content type, content encoding, and the SOAPJMS_ properties.

Spec: SOAP/JMS 2.2.3, 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from brokers.message import MessageType, Properties, Property, PropertyType
from soapjms.protocol import names
from soapjms.protocol.attachments import Attachment, packaged
from soapjms.protocol.content import ENCODERS, detect_encoding
from soapjms.protocol.envelope import Envelope, serialize
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.properties import BINDING_PROPERTIES, Carrier
from soapjms.protocol.values import Value


def body_and_type(
    parsed: Envelope,
    octets: bytes,
    message_type: MessageType,
    action: str | None = None,
    profile: Profile = names.DEFAULT_PROFILE,
    attachments: Sequence[Attachment] = (),
) -> tuple[bytes | str, str]:
    """Return the body for a message type, and its content type.

    A BytesMessage gets the octets as they are, with their own encoding as charset; a TextMessage the characters,
    without XML declaration, which would say nothing. With attachments that becomes the first part.

    Raises:
        UsageError, OSError: see `packaged`.

    Spec: SOAP/JMS 2.2.3 contentType, 2.4; REC 2.4.1.
    """
    body: bytes | str = octets
    if message_type is MessageType.TEXT:
        body, charset = serialize(parsed.root).decode("utf-8"), "utf-8"
    else:
        seen = detect_encoding(octets)
        charset = seen.declared or ("utf-8" if seen.family == "ascii" else seen.family)
    kind = content_type(profile.media_types[parsed.version], charset, action)
    return packaged(body, kind, parsed, attachments) if attachments else (body, kind)


def encoded(body: bytes | str, encoding: str | None) -> bytes | str:
    """Put octets into a content encoding, None for identity. Spec: REC 2.2.3 contentEncoding."""
    return body if encoding is None or isinstance(body, str) else ENCODERS[encoding](body)


def content_type(media_type: str, charset: str, action: str | None = None) -> str:
    """Write a content type as SOAP over HTTP has it; the action parameter is that of application/soap+xml."""
    text = f"{media_type}; charset={charset}"
    if media_type == SoapVersion.SOAP_12.media_type and action:
        escaped = action.replace("\\", "\\\\").replace('"', '\\"')
        text += f'; action="{escaped}"'
    return text


class _Carried(NamedTuple):
    """What one message of a dialect carries: binding properties with their names there, and constants."""

    properties: tuple[tuple[str, str], ...]
    constants: tuple[Property, ...]
    quotes_action: bool


def _carried(profile: Profile, carrier: Carrier) -> _Carried:
    rows = [
        (row.name, profile.spelled(row.message_property))
        for row in BINDING_PROPERTIES.values()
        if row.message_property is not None
        and (carrier in row.carriers or carrier in profile.also_on.get(row.name, ()))
    ]
    constants = [Property(name, PropertyType.STRING, value) for name, value in profile.constants.items()]
    known = tuple((name, spelled) for name, spelled in rows if spelled is not None)
    return _Carried(known, tuple(constants), profile.quotes_action)


_CARRIED: Final[Mapping[tuple[str, Carrier], _Carried]] = {
    (profile.name, carrier): _carried(profile, carrier) for profile in names.PROFILES.values() for carrier in Carrier
}


def message_properties(
    carrier: Carrier, values: Mapping[str, Value | None], profile: Profile = names.DEFAULT_PROFILE
) -> Properties:
    """Return the SOAPJMS_ properties of a message: those of the table that it carries and that have a value.

    A dialect has other names for some; what it has no property for is dropped.
    """
    carried = _CARRIED[profile.name, carrier]
    return _properties(carried, tuple([values.get(name) for name, _ in carried.properties]))


@lru_cache(maxsize=1024)
def _properties(carried: _Carried, values: tuple[Value | None, ...]) -> Properties:
    """Make the properties of a message; most messages of a client have the same ones."""
    return Properties(
        (
            *(
                Property(spelled, PropertyType.BOOLEAN, value)
                if isinstance(value, bool)
                else Property(spelled, PropertyType.STRING, f'"{value}"' if quoted else value)
                for (name, spelled), value in zip(carried.properties, values, strict=True)
                if value is not None
                for quoted in (carried.quotes_action and name == "soapAction",)
            ),
            *carried.constants,
        )
    )
