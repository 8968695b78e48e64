"""The parts that both nodes write in the same way: body, content type, content encoding and SOAPJMS_ properties.

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


def written_body(
    parsed: Envelope,
    octets: bytes,
    message_type: MessageType,
    action: str | None = None,
    profile: Profile = names.DEFAULT_PROFILE,
    attachments: Sequence[Attachment] = (),
    encoding: str | None = None,
) -> tuple[bytes | str, str, str | None]:
    """Return the body for a message type, its content type, and its content encoding.

    A BytesMessage gets the octets as they are, with their own encoding as charset; a TextMessage gets the characters,
    without an XML declaration, which would have no meaning. With attachments the envelope becomes the first part, and
    there is no content encoding.

    Raises:
        UsageError, OSError: see `packaged`.

    Spec: SOAP/JMS 2.2.3 contentType, 2.4; REC 2.4.1, 2.2.3 contentEncoding.
    """
    body: bytes | str = octets
    if message_type is MessageType.TEXT:
        body, charset = serialize(parsed.root).decode("utf-8"), "utf-8"
    else:
        seen = detect_encoding(octets)
        charset = seen.declared or ("utf-8" if seen.family == "ascii" else seen.family)
    kind = content_type(profile.media_types[parsed.version], charset, action)
    if attachments:
        return *packaged(body, kind, parsed, attachments), None
    if encoding is not None and isinstance(body, bytes):
        return ENCODERS[encoding](body), kind, encoding
    return body, kind, None


@lru_cache(maxsize=256)
def content_type(media_type: str, charset: str, action: str | None = None) -> str:
    """Write a content type as in SOAP over HTTP; only application/soap+xml has the action parameter."""
    text = f"{media_type}; charset={charset}"
    if media_type == SoapVersion.SOAP_12.media_type and action:
        escaped = action.replace("\\", "\\\\").replace('"', '\\"')
        text += f'; action="{escaped}"'
    return text


class _Carried(NamedTuple):
    """What a message of a dialect carries: binding properties with their names in the dialect, and constants."""

    properties: tuple[tuple[str, str], ...]
    constants: tuple[Property, ...]
    quotes_action: frozenset[SoapVersion]


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


@lru_cache(maxsize=1024)
def message_properties(
    carrier: Carrier,
    profile_name: str,
    request_uri: str | None,
    content_type: str,
    content_encoding: str | None,
    is_fault: bool = False,
    soap_action: str | None = None,
    target_service: str | None = None,
) -> Properties:
    """Return the SOAPJMS_ properties of a message: those of the table that it carries and that have a value.

    A dialect has other names for some, and omits those that it does not have. Most messages of a program have the same
    properties, so recent ones are cached; `message_properties.__wrapped__` bypasses the cache, for values of a peer
    that may be of any length.
    """
    values: Mapping[str, Value | None] = {
        "requestURI": request_uri,
        "bindingVersion": names.BINDING_VERSION_VALUE,
        "contentType": content_type,
        "contentEncoding": content_encoding,
        "soapAction": soap_action,
        "targetService": target_service,
        "isFault": is_fault,
    }
    carried = _CARRIED[profile_name, carrier]
    # With attachments the content type, which we wrote, has the envelope's media type as its start-info.
    is_soap12 = SoapVersion.SOAP_12.media_type in content_type
    is_quoted = (SoapVersion.SOAP_12 if is_soap12 else SoapVersion.SOAP_11) in carried.quotes_action
    written = [
        _property(spelled, value, quoted=is_quoted and name == "soapAction")
        for name, spelled in carried.properties
        if (value := values[name]) is not None  # each row of the table has an entry above, even if None
    ]
    return Properties((*written, *carried.constants))


def _property(name: str, value: Value, *, quoted: bool) -> Property:
    if isinstance(value, bool):
        return Property(name, PropertyType.BOOLEAN, value)
    return Property(name, PropertyType.STRING, f'"{value}"' if quoted else value)
