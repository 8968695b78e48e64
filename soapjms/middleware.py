"""Middleware: functions that run, in order, around calls and around services.

A middleware function gets an `OutgoingCall` or a `Request`, and `call_next`, which passes it on and returns the result.
It may change the first before and the result after, and may call `call_next` once, several times, or not at all. The
first function of a list is the outermost.
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
    """Say whether calling the function makes a coroutine: it is `async def`, or an object whose `__call__` is."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def middleware_given(given: Iterable[Callable[..., Any]]) -> tuple[Callable[..., Any], ...]:
    """Return the caller's middleware as a tuple.

    Raises:
        UsageError: it is not a list of functions.
    """
    found: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not callable(each) or isinstance(each, type):
            raise UsageError(
                f"middleware must be a list of functions (call, call_next), the outermost first, got {each!r}"
            )
    return found


def plain(given: Iterable[Callable[..., Any]], instead: str) -> tuple[Callable[..., Any], ...]:
    """Return middleware of plain functions; `instead` says, in the error, where `async def` functions go.

    Raises:
        UsageError: it is not a list of functions, or one of them is `async def`.
    """
    found = middleware_given(given)
    for each in found:
        if is_coroutine(each):
            raise UsageError(f"middleware must be plain functions here, got the async def {each!r}: {instead}")
    return found


def coroutines(given: Iterable[Callable[..., Any]], instead: str) -> tuple[Callable[..., Any], ...]:
    """Return middleware of `async def` functions; `instead` says, in the error, where plain functions go.

    Raises:
        UsageError: it is not a list of functions, or one of them is plain, which would block the event loop.
    """
    found = middleware_given(given)
    for each in found:
        if not is_coroutine(each):
            raise UsageError(f"middleware must be async def functions here, got {each!r}: {instead}")
    return found


def around(
    middleware: Iterable[Callable[..., Any]], last: Callable[[T], R], checked: Callable[[Any], R]
) -> Callable[[T], R]:
    """Return a function that runs middleware around `last`; `checked` sees, and may refuse, what each one returns."""
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
    """Return message properties to send beside those of the binding.

    Raises:
        UsageError: JMS allows no property of this name or value, or the property belongs to the binding.
    """
    for name in values:
        if str(name).startswith(PROPERTY_PREFIX):
            raise UsageError(f"the property {name} belongs to the binding, and must not be set by others")
    try:
        return application_properties(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"JMS does not allow a property of the message: {error}") from None
