"""Checks of which source of a binding property counted: what the sender was given, beside the message it made of it.

Spec: SOAP/JMS 2.2, 3.4.4, 3.4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from soapjms.protocol import names
from soapjms.protocol.assertions.headers import CLOCK_TOLERANCE, read_as_type
from soapjms.protocol.assertions.model import Case
from soapjms.protocol.properties import Origin
from soapjms.protocol.showing import shown


def _lifetime(case: Case) -> object | None:
    message = case.message.message
    if not message.expiration:
        return message.expiration
    return message.expiration - message.timestamp if message.timestamp else None


def _reply_name(case: Case) -> object | None:
    """Return the name of the reply destination; for the variant jndi it is a name to be looked up, not this one."""
    uri, reply = case.message.request_uri, case.message.message.reply_to
    return None if reply is None or uri is None or uri.variant == "jndi" else reply.name


SHOWN: Final[Mapping[str, Callable[[Case], object | None]]] = {
    "deliveryMode": lambda case: case.message.message.delivery_mode,
    "timeToLive": _lifetime,
    "priority": lambda case: case.message.message.priority,
    "replyToName": _reply_name,
    "targetService": lambda case: case.message.text(names.TARGET_SERVICE),
}
"""The binding properties whose value a message shows, and how to see it there; None where the capture lacks it."""

Rule = tuple[Callable[[Case], bool], Callable[[Case], str | None]]

MARKUP: Final = (Origin.PORT, Origin.SERVICE, Origin.BINDING)


def _agrees(name: str, wanted: object, seen: object) -> bool:
    if name == "timeToLive" and isinstance(wanted, int) and isinstance(seen, int) and wanted:
        return abs(wanted - seen) <= CLOCK_TOLERANCE
    return wanted == seen


def _won(case: Case, winners: tuple[Origin, ...], losers: tuple[Origin, ...]) -> Iterator[tuple[str, object, object]]:
    """Yield name, value and what the message shows of each property whose value is from one of `winners`.

    Of those only that were given by one of `losers` too; of all where there are none.
    """
    properties = case.setting.properties
    assert properties is not None
    for name, show in SHOWN.items():
        found, seen = properties.get(name), show(case)
        if found is None or found.origin not in winners or seen is None:
            continue
        if not losers or any(each.origin in losers for each in properties.overridden.get(name, ())):
            yield name, found.value, seen


def _rule(winners: tuple[Origin, ...], losers: tuple[Origin, ...]) -> Rule:
    """Make the two functions of a row: whether a source won over another, and whether the message shows that."""

    def applies(case: Case) -> bool:
        return any(_won(case, winners, losers))

    def check(case: Case) -> str | None:
        wrong = [each for each in _won(case, winners, losers) if not _agrees(*each)]
        said = (f"{name} is {shown(wanted)}, the message shows {shown(seen)}" for name, wanted, seen in wrong)
        over = f", over {' and '.join(losers)}" if losers else ""
        return f"by {' or '.join(winners)}{over}: {'; '.join(said)}" if wrong else None

    return applies, check


ENVIRONMENT_FIRST: Final = _rule((Origin.ENVIRONMENT,), (Origin.URI, *MARKUP))
"""Spec: SOAP/JMS 2.2; Protocol-2001."""
MARKUP_REACHES: Final = _rule(MARKUP, ())
"""Spec: SOAP/JMS 3.4.4; WSDLUsage-3001."""
PORT_FIRST: Final = _rule((Origin.PORT, Origin.SERVICE), (Origin.SERVICE, Origin.BINDING))
"""Spec: SOAP/JMS 3.4.4; WSDLUsage-3002."""
URI_BEFORE_MARKUP: Final = _rule((Origin.URI,), MARKUP)
"""Spec: SOAP/JMS 3.4.5; WSDLUsage-3003."""


def _repeated(case: Case) -> Iterator[tuple[str, object, object]]:
    """Yield name, last value and what the message shows of each property that the requestURI has with several values.

    None where the sender is known to have taken the value from elsewhere.
    """
    uri, properties = case.message.request_uri, case.setting.properties
    for name, show in SHOWN.items() if uri is not None else ():
        assert uri is not None
        values = [each.value for each in uri.parameters if each.name == name]
        known = None if properties is None else properties.get(name)
        if len(set(values)) < 2 or (known is not None and known.origin is not Origin.URI):
            continue
        last, seen = read_as_type(name, values[-1]), show(case)
        if last is not None and seen is not None:
            yield name, last, seen


def repeats_a_parameter(case: Case) -> bool:
    """The requestURI still has a property more than once, with different values."""
    uri = case.message.request_uri
    return uri is not None and len(uri.parameters) > 1 and any(_repeated(case))


def last_one_counts(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2; Protocol-2002."""
    wrong = [each for each in _repeated(case) if not _agrees(*each)]
    said = (f"{name} is {shown(wanted)} at last, the message shows {shown(seen)}" for name, wanted, seen in wrong)
    return "; ".join(said) or None
