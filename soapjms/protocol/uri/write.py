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
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def escape(text: str) -> str:
    """Escape all but unreserved characters, as UTF-8 with upper-case digits: fits both grammars, in every part.

    Raises:
        InvalidUriError: half of a surrogate pair, which has no UTF-8.
    """
    return _escaped("a part of a JMS URI", text)


def _escaped(what: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise InvalidUriError(
            f"{what} holds half of a surrogate pair, {text[error.start]!r}, at {error.start}: that has no UTF-8; "
            f"what can be written is Unicode text"
        ) from None


def build(variant: str, destination: str, parameters: Iterable[tuple[str, str]] = ()) -> str:
    """Write a URI from decoded parts; every part is escaped so that strict and draft-03 read it alike.

    Repeats of a parameter are kept, in order. A priority is written without leading zeros.

    Raises:
        InvalidUriError: a part that may not be empty is, or is not Unicode, or the result breaks a MUST.
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
    """Return a priority as its one digit: a strict reader might not take more. Other values stay as they are."""
    return value[-1] if name == "priority" and PARAMETERS[name].accepted.fullmatch(value) else value


def rewrite(uri: JmsUri) -> str:
    """Write what was read, in whatever mode, in the strict form: parts escaped, all parameters kept and in order.

    A parameter without `=` gets an empty value, as the grammar knows no other form.

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
        InvalidUriError: it is not valid in this mode; the message says what and where.
    """
    uri = parse(text, mode)
    for finding in uri.findings:
        if finding.severity is not Severity.NOTE:
            raise InvalidUriError(f"{quoted(uri.redacted)} at {finding.position}: {finding.text} ({finding.code})")
    return uri


# Comparing


def canonical(uri: JmsUri) -> str:
    """Return the form to compare by: no needless escapes, last of each name only, sorted by name.

    What it keeps apart: `/` and `%2F`, which are different URIs, and a default that is written from one that is not.

    Spec: RFC 6167 4; RFC 3986 6.2.2.
    """
    scheme, colon, rest = uri.base.partition(":")
    base = scheme.lower() + colon + _normal(rest)
    last = {each.name: each for each in uri.parameters}
    query = "&".join(_normal(last[name].raw) for name in sorted(last))
    return f"{base}?{query}" if query else base


def equivalent_destination(one: JmsUri, other: JmsUri) -> bool:
    """Say whether two URIs name the same destination in the same way: variant and name are the same when decoded.

    Weaker than `canonical`: `%2F` is `/`, and parameters do not count. It says nothing across brokers or JNDI contexts,
    and a URI that is not well-formed names nothing.
    """
    return one.well_formed and other.well_formed and _named(one) == _named(other)


def _named(uri: JmsUri) -> tuple[bytes, bytes]:
    """Return the octets of variant and destination: decoded before they are UTF-8, so that any can be compared."""
    _, variant, destination = uri.base.split(":", 2)
    return octets_of(variant), octets_of(destination)


def _normal(raw: str) -> str:
    """Write escapes in upper case, and those of unreserved characters as the characters."""
    return _ESCAPE.sub(lambda found: _plain(found.group()), raw)


def _plain(escaped: str) -> str:
    character = chr(int(escaped[1:], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else escaped.upper()
