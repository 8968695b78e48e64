"""What proton says happened: its events, of which only what is asked for becomes an object of Python's.

proton's own event makes an object of everything that it is about, down to the connection, which takes longer than to
read a small message. It looks into proton's C library for that, as proton's own binding does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import cproton
from proton import Collector, Connection, Delivery, EventType, Link, Session, Transport


def _wrapped(kind: Any, found: Any) -> Any:
    return kind.wrap(found)


class LookedAtDelivery(Delivery):
    """A delivery of which proton makes objects of both its states only once one of them is asked for."""

    def __init__(self, impl: Any) -> None:
        super(Delivery, self).__init__(impl)

    def __getattr__(self, name: str) -> Any:
        whole: Any = Delivery
        self.__dict__["_attrs"] = whole(self.__dict__["_impl"]).__dict__["_attrs"]
        return super().__getattr__(name)


class EngineEvent:
    """An event. What it is not about is None; it is looked at before the next one."""

    __slots__ = ("_delivery", "_event", "_link")

    def __init__(self, event: Any) -> None:
        self._event = event
        self._link: Any = None
        self._delivery: Any = None

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
    def link_key(self) -> int:
        """The `hash` of the link, which no other has while it is there; asking makes no object of it."""
        return hash(cproton.addressof(cproton.pn_event_link(self._event)))

    @property
    def delivery(self) -> Any:
        """The delivery."""
        if self._delivery is None:
            found = cproton.pn_event_delivery(self._event)
            self._delivery = None if cproton.isnull(found) else LookedAtDelivery(found)
        return self._delivery

    @property
    def transport(self) -> Any:
        """The transport."""
        return _wrapped(Transport, cproton.pn_event_transport(self._event))


def happenings(collector: Collector) -> Iterator[tuple[EventType, EngineEvent]]:
    """Yield what happened, in order; each is let go of when the next is asked for."""
    collected = cast("Any", collector)._impl
    while not cproton.isnull(event := cproton.pn_collector_peek(collected)):
        yield EventType.TYPES[cproton.pn_event_type(event)], EngineEvent(event)
        cproton.pn_collector_pop(collected)
