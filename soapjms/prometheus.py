"""Metrics for Prometheus: `Client(..., observer=Metrics())`, `Dispatcher(..., observer=Metrics())`.

Needs the extra `prometheus`. `docs/observing.md` lists all metrics. Labels have few values: a text that a peer can
choose freely is never one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

try:
    from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.metrics_core import Metric
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise ImportError(
        f"soapjms.prometheus needs prometheus-client ({_error}): pip install 'soapjms[prometheus]'"
    ) from _error

from brokers.connection import ConnectionState
from soapjms.observing import Begun, Ended, Health, Observation, Observer, Place, Side
from soapjms.protocol.exchange import Pattern

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets, in seconds: from a call on one machine to the usual timeouts."""

WHERE: Final = ("destination", "pattern")

NOUNS: Final = {Side.CLIENT: ("client_calls", "client_call"), Side.SERVICE: ("service_requests", "service_request")}


class _Family:
    """The metrics of all clients, or of all dispatchers, in one registry."""

    def __init__(self, side: Side, registry: CollectorRegistry) -> None:
        many, one = NOUNS[side]
        self.ended = Counter(
            f"soapjms_{many}",
            "Calls, one-way messages or requests that ended, by outcome.",
            (*WHERE, "operation", "outcome", "subcode"),
            registry=registry,
        )
        self.seconds = Histogram(
            f"soapjms_{one}_seconds",
            "Duration from beginning to end: at a service, until the broker has the answer.",
            (*WHERE, "operation", "outcome"),
            buckets=SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge(
            f"soapjms_{many}_in_progress", "Under way now.", WHERE, registry=registry, multiprocess_mode="livesum"
        )
        self.events = Counter(
            f"soapjms_{side}_events",
            "Events that the client or dispatcher counts, by their names in its `counts`.",
            ("destination", "event"),
            registry=registry,
        )


class _Families:
    """All metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sides = {side: _Family(side, registry) for side in Side}
        self.redelivered = Counter(
            "soapjms_service_redelivered_requests",
            "Requests that were delivered before, as far as the broker or the store can tell.",
            ("destination",),
            registry=registry,
        )
        self.subscriptions = Gauge(
            "soapjms_service_subscriptions",
            "Subscriptions of dispatchers at the broker, one for each worker.",
            ("destination",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.ready = Gauge(
            "soapjms_service_ready",
            "Dispatchers that were ready at their last health check.",
            ("destination",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.live = Gauge(
            "soapjms_service_live",
            "Dispatchers that could still serve at their last health check.",
            ("destination",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.workers = Gauge(
            "soapjms_service_workers",
            "Workers of dispatchers, each of which needs a subscription.",
            ("destination",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.stalled = Gauge(
            "soapjms_service_stalled_seconds",
            "Seconds since a request was last finished, while requests are under way.",
            ("destination",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        of_whom = ("side", "destination")
        self.losses = Counter("soapjms_connection_losses", "Connections lost.", of_whom, registry=registry)
        self.reconnects = Counter(
            "soapjms_connection_reconnects", "Connections made again.", of_whom, registry=registry
        )


class _Measured(Observation):
    """One call, one-way message or request."""

    __slots__ = ("_began", "_destination", "_families", "_family", "_where")

    def __init__(self, families: _Families, begun: Begun) -> None:
        self._families = families
        self._family = families.sides[begun.place.side]
        self._destination = str(begun.place.destination)
        self._where = self._destination, str(Pattern.ONE_WAY if begun.one_way else Pattern.REQUEST_RESPONSE)
        self._family.in_progress.labels(*self._where).inc()
        self._began = perf_counter()

    def ended(self, ended: Ended) -> None:
        """Count the end and the duration."""
        seconds = perf_counter() - self._began
        self._family.in_progress.labels(*self._where).dec()
        self._family.seconds.labels(*self._where, ended.operation, ended.outcome).observe(seconds)
        self._family.ended.labels(*self._where, ended.operation, ended.outcome, ended.subcode).inc()
        if ended.redelivered:
            self._families.redelivered.labels(self._destination).inc()


_known: WeakKeyDictionary[CollectorRegistry, _Families] = WeakKeyDictionary()
_knowing: Final = Lock()
# A registry accepts each metric once, and a program has one registry: the `Metrics` that a module makes for its client
# and the one that the command makes for its dispatcher share the same metrics.


class Metrics(Observer):
    """Counts and measures, for any number of clients and dispatchers. Instances with one registry share its metrics.

    Args:
        registry: holds the metrics; by default that of `prometheus_client`.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        with _knowing:
            if registry not in _known:
                _known[registry] = _Families(registry)
            self._families = _known[registry]

    def started(self, place: Place) -> None:
        """Start rare counters at 0, so that their first event shows as a change."""
        of_whom = place.side, str(place.destination)
        self._families.losses.labels(*of_whom)
        self._families.reconnects.labels(*of_whom)
        if place.side is Side.SERVICE:
            self._families.redelivered.labels(str(place.destination))
            self._families.subscriptions.labels(str(place.destination))

    def begun(self, begun: Begun) -> Observation:
        """Start measuring."""
        return _Measured(self._families, begun)

    def counted(self, place: Place, what: str, times: int) -> None:
        """Count the event."""
        self._families.sides[place.side].events.labels(str(place.destination), what).inc(times)

    def connection_changed(self, place: Place, state: ConnectionState) -> None:
        """Count losses and reconnects; a closed connection was closed on purpose, or its loss was counted before."""
        of_whom = place.side, str(place.destination)
        if state is ConnectionState.LOST:
            self._families.losses.labels(*of_whom).inc()
        elif state is ConnectionState.CONNECTED:
            self._families.reconnects.labels(*of_whom).inc()

    def subscriptions_changed(self, place: Place, change: int, problem: str) -> None:
        """Update the number of subscriptions at the broker."""
        self._families.subscriptions.labels(str(place.destination)).inc(change)

    def health_checked(self, place: Place, health: Health) -> None:
        """Set whether the dispatcher is ready and live, its number of workers, and for how long it has stalled."""
        where, families = str(place.destination), self._families
        families.ready.labels(where).set(health.ready)
        families.live.labels(where).set(health.live)
        families.workers.labels(where).set(health.workers)
        families.stalled.labels(where).set(health.stalled)


# For `soapjms serve --metrics`


def exposition(registry: CollectorRegistry = REGISTRY) -> tuple[str, bytes]:
    """Return the metrics for Prometheus to read: the content type and the text."""
    return CONTENT_TYPE, generate_latest(registry)


def exposition_of(directory: str, hung: Collection[int] = ()) -> tuple[str, bytes]:
    """Return the same for all processes that keep their metrics in a directory (`PROMETHEUS_MULTIPROC_DIR`).

    The gauges of processes that hang, `hung`, are left out, as they are out of date; their counters stay.
    """
    registry = CollectorRegistry()
    registry.register(_OfProcesses(directory, hung))
    return exposition(registry)


class _OfProcesses(Collector):
    def __init__(self, directory: str, hung: Collection[int]) -> None:
        self._directory = Path(directory)
        self._hung = tuple(f"_{pid}.db" for pid in hung)

    def collect(self) -> Iterable[Metric]:
        """Add up all files except the gauges of processes that hang."""
        files = [str(each) for each in self._directory.glob("*.db") if not self._is_stale(each.name)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]  # no types here
        return merged

    def _is_stale(self, name: str) -> bool:
        return name.startswith("gauge_live") and name.endswith(self._hung)


def forget(pid: int, directory: str) -> None:
    """Remove the live gauges of a process that has ended from the sums. Its counters stay."""
    mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]  # likewise
