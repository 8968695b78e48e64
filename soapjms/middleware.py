"""Middleware: functions around calls and around services, in order, each with what comes next.

One gets what goes on (an `OutgoingCall`, or a `Request`) and `call_next`, which goes on with it and returns what came
back. It may change the one before and the other after, call next several times, or not at all. The first in a list is
the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

from brokers.message import Properties, PropertyValue
from soapjms.observing import application_properties
from soapjms.protocol.errors import UsageError

PROPERTY_PREFIX: Final = "SOAPJMS_"

T = TypeVar("T")
R = TypeVar("R")


def is_coroutine(function: object) -> bool:
    """Say whether calling it makes a coroutine: an `async def` function, or an object whose `__call__` is one."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def middleware_given(given: Iterable[Callable[..., Any]]) -> tuple[Callable[..., Any], ...]:
    """Return what a caller gave as middleware.

    Raises:
        UsageError: it is no list of functions.
    """
    found: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not callable(each) or isinstance(each, type):
            raise UsageError(
                f"middleware is {each!r}; it is a list of functions (call, call_next), the outermost first"
            )
    return found


def plain(given: Iterable[Callable[..., Any]], instead: str) -> tuple[Callable[..., Any], ...]:
    """Return middleware that is no `async def`; `instead` says where that goes.

    Raises:
        UsageError: it is no list of functions, or one of them is `async`.
    """
    found = middleware_given(given)
    for each in found:
        if is_coroutine(each):
            raise UsageError(f"the middleware {each!r} is async def; here it is a plain function: {instead}")
    return found


def around(
    middleware: Iterable[Callable[..., Any]], last: Callable[[T], R], checked: Callable[[Any], R]
) -> Callable[[T], R]:
    """Return what runs middleware around `last`; what each returns goes through `checked`, which may refuse it."""
    for each in reversed(tuple(middleware)):
        last = partial(_step, each, last, checked)
    return last


def _step(each: Callable[..., Any], call_next: Callable[[T], R], checked: Callable[[Any], R], given: T) -> R:
    return checked(each(given, call_next))


def around_async(
    middleware: Iterable[Callable[..., Any]], last: Callable[[T], Awaitable[R]], checked: Callable[[Any], R]
) -> Callable[[T], Awaitable[R]]:
    """Do the same with `async def` functions."""
    for each in reversed(tuple(middleware)):
        last = partial(_async_step, each, last, checked)
    return last


async def _async_step(
    each: Callable[..., Awaitable[Any]],
    call_next: Callable[[T], Awaitable[R]],
    checked: Callable[[Any], R],
    given: T,
) -> R:
    return checked(await each(given, call_next))


def properties_of(values: Mapping[str, PropertyValue]) -> Properties:
    """Return properties for a message beside those of the binding.

    Raises:
        UsageError: JMS has no property of such a name, or it is the binding's.
    """
    for name in values:
        if str(name).startswith(PROPERTY_PREFIX):
            raise UsageError(f"the property {name} is the binding's own, and not for others to set")
    try:
        return application_properties(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a property of the message is not as JMS has it: {error}") from None
