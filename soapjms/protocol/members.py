"""Strict reading of JSON: limits on what is read, and members that must be of a certain kind.

What a value means is not for here; see `record`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
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
        value = DECODER.decode(text)
    except RecursionError:
        raise InvalidRecordError(NESTED) from None
    except ValueError as error:
        raise InvalidRecordError(f"not JSON: {error}") from None
    check_depth(value)
    return value


NESTED: Final = f"JSON that is nested more than {MAX_DEPTH} deep"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write it as a string and its type under types")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {shown(text)} is beyond a double")
    return number


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def check_depth(value: Any, left: int = MAX_DEPTH) -> None:
    """Refuse a value of JSON that is nested too deeply.

    Raises:
        InvalidRecordError: it is.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if not left:
            raise InvalidRecordError(NESTED)
        for each in value.values() if kind is dict else value:
            if type(each) in NESTING:
                check_depth(each, left - 1)


NESTING: Final = frozenset({dict, list})


class Kind(NamedTuple):
    """A JSON type that a member must have, and how to say so; of integers those that fit 64 bits."""

    wanted: str
    type: type

    def test(self, value: object) -> bool:
        """Say whether a value is of this kind."""
        return type(value) is self.type and (type(value) is not int or -(1 << 63) <= value < 1 << 63)


OBJECT: Final = Kind("an object", dict)
LIST: Final = Kind("a list", list)
TEXT: Final = Kind("a string", str)
FLAG: Final = Kind("true or false", bool)
INTEGER: Final = Kind("an integer of at most 64 bits", int)


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


@cache
def _by_value(choices: type[StrEnum]) -> dict[Any, Any]:
    return {each.value: each for each in choices}


def choice(choices: type[E], members: Mapping[str, Any], name: str, place: str = "", *, required: bool = False) -> Any:
    """Return a member that is one of an enumeration; absent and null give None unless it is required."""
    value = members.get(name)
    if value is None and not required:
        return None
    try:
        return _by_value(choices)[value]
    except (KeyError, TypeError):  # TypeError: a list or an object
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


def union(members: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of two objects; what is an object in both is put together likewise, else the second counts."""
    both = dict(members)
    for name, value in more.items():
        inside = both.get(name)
        both[name] = union(inside, value) if isinstance(inside, dict) and isinstance(value, dict) else value
    return both
