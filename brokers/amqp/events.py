"""proton's events, with Python objects created only for the parts that are used.

proton's own events create objects for everything they refer to, which takes longer than reading a small message. This
module uses proton's C library directly, as proton's own binding does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import cproton
from proton import Collector, Connection, Delivery, EventType, Link, Session, Transport


def _wrapped(kind: Any, found: Any) -> Any:
    return kind.wrap(found)


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
        """The `hash` of the link, unique while the link exists; this does not create an object for it."""
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
    """Yield the events in order; each is released when the next one is taken."""
    collected = cast("Any", collector)._impl
    while not cproton.isnull(event := cproton.pn_collector_peek(collected)):
        yield EventType.TYPES[cproton.pn_event_type(event)], EngineEvent(event)
        cproton.pn_collector_pop(collected)
