"""The types of the binding properties' values: how each is read from text and shown to people.

Spec: SOAP/JMS 2.2; RFC 6167 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from brokers.message import DeliveryMode
from soapjms.protocol.uri import fits_long

Value: TypeAlias = str | int | bool

LONGEST_LIFETIME_MILLISECONDS: Final = 1 << 62
"""Lifetime of a message, in milliseconds, that a longer one counts as, so that JMSExpiration stays a JMS long."""

_PRIORITY: Final = re.compile(r"0*[0-9]")


def uncarried(text: str) -> str | None:
    """Name the first character of a text that headers and properties cannot carry over every protocol; None if none."""
    position = text.find("\0")
    if position >= 0:
        return f"NUL at {position}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"half of a surrogate pair, {text[error.start]!r}, at {error.start}"
    return None


def _text(value: str) -> Value:
    if uncarried(value) is not None:
        raise ValueError(value)
    return value


def _delivery_mode(value: str) -> Value:
    return DeliveryMode[value].value


def _priority(value: str) -> Value:
    if not _PRIORITY.fullmatch(value):
        raise ValueError(value)
    return int(value[-1])


def _milliseconds(value: str) -> Value:
    if not value.isascii() or not value.isdigit() or not fits_long(value):
        raise ValueError(value)
    return int(value)


def _boolean(value: str) -> Value:
    return {"true": True, "1": True, "false": False, "0": False}[value]


def _as_it_is(value: Value) -> Value:
    return value


class Type(NamedTuple):
    """The type of a property's value: a description of accepted texts, a function to read one, and one to show it."""

    accepted: str
    read: Callable[[str], Value]
    shown: Callable[[Value], Value] = _as_it_is


TEXT: Final = Type("any string without NUL and halves of surrogate pairs", _text)
DELIVERY_MODE: Final = Type("PERSISTENT or NON_PERSISTENT", _delivery_mode, lambda value: DeliveryMode(int(value)).name)
PRIORITY: Final = Type("an integer from 0 to 9", _priority)
MILLISECONDS: Final = Type("milliseconds, digits only, below 2 to the 63; 0 for no end", _milliseconds)
BOOLEAN: Final = Type("true or false", _boolean)
