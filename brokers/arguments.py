"""Checks of callers' arguments that adapters and their users share; each error says what would be accepted."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isawaitable, iscoroutinefunction
from math import inf
from os import PathLike
from threading import TIMEOUT_MAX
from time import monotonic
from types import UnionType
from typing import Any, Final, TypeGuard, TypeVar

from brokers.errors import UsageError

T = TypeVar("T")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether something is a number; True and False are none here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int]:
    """Return whether something is a whole number, at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def at_least_one(value: int, name: str) -> int:
    """Return a whole number that is at least 1; `name` names it in the error.

    Raises:
        UsageError: it is not a whole number of at least 1.
    """
    if not is_count(value):
        raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def finite(seconds: float, name: str = "timeout") -> float:
    """Return a time that is positive and finite.

    Raises:
        UsageError: it is not a positive, finite number of seconds, or longer than the machine can wait (centuries).
    """
    if not is_number(seconds) or not 0 < seconds <= TIMEOUT_MAX:
        raise UsageError(f"{name} must be a positive, finite number of seconds, got {seconds!r}")
    return seconds


def not_negative(seconds: float, name: str = "timeout") -> float:
    """Return a time that is finite, and may be 0.

    Raises:
        UsageError: it is not a number of seconds, negative, or longer than the machine can wait (centuries).
    """
    if not is_number(seconds) or not 0 <= seconds <= TIMEOUT_MAX:
        raise UsageError(f"{name} must be a finite number of seconds, at least 0, got {seconds!r}")
    return seconds


def time_to_close(deadline: float) -> float:
    """Return the deadline of a `close`, in seconds; what has passed already counts as 0.

    Raises:
        UsageError: it is not a finite number of seconds, or longer than the machine can wait (centuries).
    """
    if not is_number(deadline) or not -TIMEOUT_MAX <= deadline <= TIMEOUT_MAX:
        raise UsageError(f"deadline must be a finite number of seconds, got {deadline!r}")
    return max(0.0, deadline)


def end_of(timeout: float | None) -> float:
    """Return when the monotonic clock will have passed a timeout; infinity for None.

    Raises:
        UsageError: it is not a number of seconds.
    """
    if timeout is None:
        return inf
    try:
        return monotonic() + timeout
    except TypeError:
        raise UsageError(f"timeout must be a number of seconds or None, got {timeout!r}") from None


def switch(value: bool, name: str) -> bool:
    """Return an option that is on or off.

    Raises:
        UsageError: it is neither True nor False; `"no"`, for example, would count as True.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {value!r}")
    return value


def instance(value: object, name: str, kind: type[Any] | UnionType, what: str) -> None:
    """Check the class of a value; `what` says in the error what is accepted.

    Raises:
        UsageError: it is of another class.
    """
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {what}, got {value!r:.100}")


def items(
    given: Iterable[T], name: str, what: str = "a list of strings", kind: type[Any] | UnionType = str
) -> tuple[T, ...]:
    """Return the items of a list; `what` says in the error what is accepted, and `kind` is the class of an item.

    Raises:
        UsageError: it is not a list but, for example, a single string, whose characters would count as items; or an
            item is of another class.
    """
    is_single = isinstance(given, str | bytes | PathLike)
    if not is_single and isinstance(given, Iterable):
        found = tuple(given)
        if all(isinstance(each, kind) for each in found):
            return found
    hint = f"; write [{given!r}]" if is_single and isinstance(given, kind) else ""
    raise UsageError(f"{name} must be {what}, got {given!r}{hint}")


def is_coroutine(function: object) -> bool:
    """Say whether calling the function makes a coroutine: it is `async def`, or an object whose `__call__` is."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_plain_function(given: object) -> bool:
    """Say whether a function can be called and answers at once: what an `async` one returns would count as true."""
    return callable(given) and not is_coroutine(given)


def plain_answer(found: T, name: str) -> T:
    """Return the answer of a caller's function that decides something, such as who is let in.

    Raises:
        TypeError: it is an awaitable, which nobody awaits: taken for an answer, it would be true.
    """
    if isawaitable(found):
        raise TypeError(f"{name} must be a function that answers at once, got an awaitable from it")
    return found


def check_callback(given: object, name: str) -> None:
    """Check that a function can be called on a thread.

    Raises:
        UsageError: it cannot be called, or is `async def`: nobody would await it, so it would never run.
    """
    if not is_plain_function(given):
        raise UsageError(f"{name} must be a plain function, not async def, got {given!r}")


URI_PREFIX: Final = "jms:"
"""Begin of a URI of a destination, in any case; no name of a queue or topic that a caller gives begins with it."""


def uri_problem(name: str, kind: str = "queue") -> str | None:
    """Say why the name of a queue or topic is none, if it is a `jms:` URI; None if it is not."""
    if not name.lower().startswith(URI_PREFIX):
        return None
    example = name.partition("?")[0].rpartition(":")[2] or "orders"
    return f"must be the name of a {kind}, such as {example!r}, not a URI, got {name!r}"


def destination_name(what: str, name: str, kind: str = "queue") -> str:
    """Return the name of a queue or topic that a caller gave; `what` names the argument in the error.

    Raises:
        UsageError: it is a `jms:` URI, or no text.
    """
    if not isinstance(name, str):
        raise UsageError(f"{what} must be the name of a {kind}, such as 'orders', got {name!r}")
    problem = uri_problem(name, kind)
    if problem is not None:
        raise UsageError(f"{what} {problem}")
    return name
