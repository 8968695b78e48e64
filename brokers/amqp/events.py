"""proton's events, with Python objects created only for the parts that are used; see `transfers` for deliveries.

proton's own events create objects for everything they refer to, which takes longer than reading a small message. This
module uses proton's C library directly, as proton's own binding does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import cproton
from cproton_ffi import lib
from proton import Connection, Delivery, Event, EventType, Link, Session, Transport


def _wrapped(kind: Any, found: Any) -> Any:
    return kind.wrap(found)


def key_of(link: Any) -> Any:
    """Return what a link is known by while it exists: the library's pointer to it."""
    return link._impl


class LookedAtDelivery(Delivery):
    """A delivery that creates the objects of its two states only when one of them is used."""

    def __init__(self, impl: Any) -> None:
        super(Delivery, self).__init__(impl)

    def __getattr__(self, name: str) -> Any:
        whole: Any = Delivery
        self.__dict__["_attrs"] = whole(self.__dict__["_impl"]).__dict__["_attrs"]
        return super().__getattr__(name)


class EngineEvent:
    """An event. A part that it does not refer to is None. It must be used before the next event is taken."""

    __slots__ = ("_event", "_link")

    def __init__(self, event: Any) -> None:
        self._event = event
        self._link: Any = None

    @property
    def connection(self) -> Any:
        """The connection."""
        return _wrapped(Connection, cproton.pn_event_connection(self._event))

    @property
    def session(self) -> Any:
        """The session."""
        return _wrapped(Session, cproton.pn_event_session(self._event))

    @property
    def link(self) -> Any:
        """The link."""
        if self._link is None:
            self._link = _wrapped(Link, cproton.pn_event_link(self._event))
        return self._link

    @property
    def link_key(self) -> Any:
        """The library's pointer to the link, as `key_of` returns it; this does not create an object for it."""
        return lib.pn_event_link(self._event)

    @property
    def transfer(self) -> Any:
        """The delivery, without an object for it; see `brokers.amqp.transfers`."""
        return lib.pn_event_delivery(self._event)

    @property
    def transport(self) -> Any:
        """The transport."""
        return _wrapped(Transport, cproton.pn_event_transport(self._event))


Handlers: TypeAlias = Mapping[Any, Callable[..., None]]
"""Functions for proton's events; other events are ignored.

Each is called with an `EngineEvent`. That of `TRANSFER` comes before that of `Event.DELIVERY`, and is called with the
key of the link and the transfer.
"""

TRANSFER: Final = "transfer"
"""The key of the function for deliveries, which are most of the events."""

_DELIVERY: Final = Event.DELIVERY.number


def dispatch(collector: Any, handlers: Handlers) -> None:
    """Pass the events to their handlers, in order; each is released once it was handled."""
    collected, types, take = collector._impl, EventType.TYPES, handlers.get(TRANSFER)
    while event := lib.pn_collector_peek(collected):
        number = lib.pn_event_type(event)
        if number == _DELIVERY and take is not None:
            take(lib.pn_event_link(event), lib.pn_event_delivery(event))
        else:
            handle = handlers.get(types[number])
            if handle is not None:
                handle(EngineEvent(event))
        lib.pn_collector_pop(collected)
