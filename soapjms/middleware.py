"""Middleware: functions that run, in order, around calls and around services.

A middleware function gets an `OutgoingCall` or a `Request`, and `call_next`, which passes it on and returns the result.
It may change the first before and the result after, and may call `call_next` once, several times, or not at all. The
first function of a list is the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Final, TypeVar

from brokers.arguments import is_coroutine
from brokers.message import Properties, PropertyValue
from soapjms.observing import application_properties
from soapjms.protocol.errors import UsageError

PROPERTY_PREFIX: Final = "SOAPJMS_"

T = TypeVar("T")
R = TypeVar("R")


def takes(function: object, count: int) -> bool:
    """Say whether something is a function or the like, but no class, that so many positional arguments can be given to.

    This is so if it has no known signature.
    """
    if not callable(function) or isinstance(function, type):
        return False
    try:
        found = signature(function, follow_wrapped=False)  # a wrapper is called with its own arguments
    except (TypeError, ValueError):  # as with some built-in functions
        return True
    try:
        found.bind(*[None] * count)
    except TypeError:
        return False
    return True


def middleware_given(given: Iterable[Callable[..., Any]], *, is_async: bool | None) -> tuple[Callable[..., Any], ...]:
    """Return the caller's middleware as a tuple.

    Args:
        given: the functions.
        is_async: whether they must be `async def`, as plain ones would block an event loop; None for either, but alike.

    Raises:
        UsageError: it is not a list of functions, or not of such.
    """
    found: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not takes(each, 2):
            raise UsageError(
                f"middleware must be a list of functions (call, call_next), the outermost first, got {each!r}"
            )
        is_async = is_coroutine(each) if is_async is None else is_async
        if is_coroutine(each) is not is_async:
            wanted = "async def" if is_async else "plain"
            rest = "only an AsyncClient takes async def functions, and takes no others"
            raise UsageError(f"middleware must be {wanted} functions here, got {each!r}; {rest}")
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
