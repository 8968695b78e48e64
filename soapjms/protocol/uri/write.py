"""Writing `jms:` URIs, always in the strict form, and comparing them.

Spec: RFC 6167 4, 5; RFC 3986 6.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.uri.findings import Mode, Severity
from soapjms.protocol.uri.model import PARAMETERS, JmsUri
from soapjms.protocol.uri.parser import octets_of, parse
from soapjms.protocol.uri.redact import quoted

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


def escape(text: str) -> str:
    """Escape all but unreserved characters, as UTF-8 with upper-case digits; valid in both grammars, in every part.

    Raises:
        InvalidUriError: the text has half of a surrogate pair, which has no UTF-8.
    """
    return _escaped("a part of a JMS URI", text)


def _escaped(what: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise InvalidUriError(
            f"{what} must be Unicode text, got half of a surrogate pair, {text[error.start]!r}, at {error.start}, "
            f"which has no UTF-8"
        ) from None


def build(variant: str, destination: str, parameters: Iterable[tuple[str, str]] = ()) -> str:
    """Write a URI from decoded parts; every part is escaped so that strict and draft-03 read it alike.

    Repeated parameters are kept, in order. A priority is written without leading zeros.

    Raises:
        InvalidUriError: a part is empty and must not be, or is not Unicode, or the result breaks a MUST.
    """
    base = f"jms:{_escaped('the variant', variant)}:{_escaped('the destination', destination)}"
    query = "&".join(
        _escaped("the name of a parameter", name)
        + "="
        + _escaped(f"the parameter {quoted(name)}", _written(name, value))
        for name, value in parameters
    )
    return checked(f"{base}?{query}" if query else base, Mode.STRICT).text


def _written(name: str, value: str) -> str:
    """Return a priority as one digit, as a strict reader might not accept more; other values stay as they are."""
    return value[-1] if name == "priority" and PARAMETERS[name].accepted.fullmatch(value) else value


def rewrite(uri: JmsUri) -> str:
    """Write a URI that was read in any mode in the strict form: parts escaped, all parameters kept in order.

    A parameter without `=` gets an empty value, as the grammar allows no other form.

    Raises:
        InvalidUriError: the URI is not well-formed, its octets are not UTF-8, or it breaks a MUST.
    """
    for finding in uri.findings:
        if finding.severity is Severity.SYNTAX or finding.code == "escapeNotUtf8":
            raise InvalidUriError(f"{quoted(uri.redacted)} at {finding.position}: {finding.text} ({finding.code})")
    return build(str(uri.variant), str(uri.destination), [(each.name, each.value or "") for each in uri.parameters])


def checked(text: str, mode: Mode = Mode.LENIENT) -> JmsUri:
    """Read a URI that the caller wants to use.

    Raises:
        InvalidUriError: the URI is not valid in this mode; the message says what is wrong and where.
    """
    uri = parse(text, mode)
    for finding in uri.findings:
        if finding.severity is not Severity.NOTE:
            raise InvalidUriError(f"{quoted(uri.redacted)} at {finding.position}: {finding.text} ({finding.code})")
    return uri


# Comparing


def canonical(uri: JmsUri) -> str:
    """Return the form to compare by: no needless escapes, only the last parameter of each name, sorted by name.

    `/` and `%2F` stay different, as in the specification, and so do an explicit default and an absent parameter.

    Spec: RFC 6167 4; RFC 3986 6.2.2.
    """
    scheme, colon, rest = uri.base.partition(":")
    base = scheme.lower() + colon + _normal(rest)
    last = {each.name: each for each in uri.parameters}
    query = "&".join(_normal(last[name].raw) for name in sorted(last))
    return f"{base}?{query}" if query else base


def equivalent_destination(one: JmsUri, other: JmsUri) -> bool:
    """Say whether two URIs name the same destination in the same way: their decoded variants and names are equal.

    Weaker than `canonical`: `%2F` equals `/`, and parameters are ignored. The result has no meaning across brokers or
    JNDI contexts; a URI that is not well-formed is equivalent to none.
    """
    return one.well_formed and other.well_formed and _named(one) == _named(other)


def _named(uri: JmsUri) -> tuple[bytes, bytes]:
    """Return the octets of variant and destination, with escapes decoded; they need not be valid UTF-8."""
    _, variant, destination = uri.base.split(":", 2)
    return octets_of(variant), octets_of(destination)


def _normal(raw: str) -> str:
    """Write escapes in upper case, and escapes of unreserved characters as the characters."""
    return _ESCAPE.sub(lambda found: _plain(found.group()), raw)


def _plain(escaped: str) -> str:
    character = chr(int(escaped[1:], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else escaped.upper()
