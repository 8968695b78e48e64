"""Strict reading of JSON: limits on what is read, and members that must be of a certain kind.

What a value means is not for here; see `record`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from soapjms.protocol.errors import InvalidRecordError

E = TypeVar("E", bound=StrEnum)

MAX_DEPTH: Final = 64
"""How deep the JSON of a record may be nested: what is read here is written again deeper in a program's stack."""


def read_json(text: str) -> Any:
    """Read a JSON text: no NaN or Infinity, no number beyond a double, not nested too deeply.

    Raises:
        InvalidRecordError: it is not JSON, or beyond a limit.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        _check_depth(value, MAX_DEPTH)
    except RecursionError:
        raise InvalidRecordError(f"the JSON is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise InvalidRecordError(f"not JSON: {error}") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write it as a string and its type under types")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {shown(text)} is beyond a double")
    return number


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if not left:
            raise RecursionError
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)


class Kind(NamedTuple):
    """A JSON type that a member must have, and how to say so."""

    wanted: str
    test: Callable[[Any], bool]


OBJECT: Final = Kind("an object", lambda value: isinstance(value, dict))
LIST: Final = Kind("a list", lambda value: isinstance(value, list))
TEXT: Final = Kind("a string", lambda value: isinstance(value, str))
FLAG: Final = Kind("true or false", lambda value: isinstance(value, bool))
INTEGER: Final = Kind(
    "an integer of at most 64 bits",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63,
)


def shown(value: object) -> str:
    """Return a value as a message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def member(members: Mapping[str, Any], name: str, kind: Kind, default: Any, place: str = "") -> Any:
    """Return a member of the given kind; absent and null give the default.

    Raises:
        InvalidRecordError: it is of another kind; the message names the member, `place` before it.
    """
    value = members.get(name)
    if value is None:
        return default
    if not kind.test(value):
        raise InvalidRecordError(f"member {place}{name} is {shown(value)}; {kind.wanted} is required")
    return value


def choice(choices: type[E], members: Mapping[str, Any], name: str, place: str = "", *, required: bool = False) -> Any:
    """Return a member that is one of an enumeration; absent and null give None unless it is required."""
    value = members.get(name)
    if value is None and not required:
        return None
    try:
        return choices(value)  # type: ignore[arg-type]  # whatever it is: a value that is no choice raises
    except ValueError:
        known = ", ".join(choices)
        raise InvalidRecordError(f"member {place}{name} is {shown(value)}; accepted are: {known}") from None


def of_kind(kind: Kind, value: Any) -> Any:
    """Return a value that must be of the given kind.

    Raises:
        ValueError: it is another.
    """
    if not kind.test(value):
        raise ValueError(f"{kind.wanted} is required, not {shown(value)}")
    return value
