"""Metrics as Prometheus reads them: a registry of the library's, and the text that it exposes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from threading import Event

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    answer_to,
    arrivals,
    envelope,
    eventually,
    greeter,
    request_message,
)
from places import ROOT
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from brokers import Connection, ConnectionState
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Request, Service
from soapjms.observing import Place, Side
from soapjms.prometheus import Metrics, exposition
from soapjms.protocol import names

CALLS = "soapjms_client_calls_total"
REQUESTS = "soapjms_service_requests_total"


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Read the exposition: by name and the values of the labels in their order by name, without empty ones."""
    _, text = exposition(registry)
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()) if value)): each.value
        for family in text_string_to_metric_families(text.decode())
        for each in family.samples
    }


class TestMetrics(Peers):
    """Clients and dispatchers that share a registry."""

    @pytest.fixture
    def registry(self) -> CollectorRegistry:
        return CollectorRegistry()

    @pytest.fixture
    def client(self, connection: Connection, registry: CollectorRegistry) -> Iterator[Client]:
        with Client(connection, URI, timeout=PATIENCE, observer=Metrics(registry)) as client:
            yield client

    def until(self, registry: CollectorRegistry, *sample: str, is_: float = 1) -> None:
        """Wait for a value."""
        eventually(lambda: samples(registry).get(sample) == is_, f"{sample} is {is_}")

    def test_calls(self, client: Client, other: Connection, registry: CollectorRegistry) -> None:
        """Calls and one-way messages, by what they came to, at both sides, and how long they took."""
        with Dispatcher(other, URI, greeter(), observer=Metrics(registry)):
            for operation in ("greetMe", "greetMe", "fail", "madeUp"):
                client.call(envelope(operation=operation))
            client.send(envelope())
            reply_to = client._connection.temporary()
            wrong = request_message("greeter", reply_to, properties={names.CONTENT_TYPE: None})
            client._connection.send(wrong)
            self.until(registry, "soapjms_service_requests_in_progress", "queue:greeter", "one-way", is_=0)
            self.until(registry, REQUESTS, "queue:greeter", "fault", "request-response", "missingContentType")
        found, place, pair = samples(registry), "queue:greeter", "request-response"
        assert {key: value for key, value in found.items() if key[0] == CALLS} == {
            (CALLS, place, "response", pair): 2,
            (CALLS, place, "fault", pair): 2,
            (CALLS, place, "sent", "one-way"): 1,
        }
        assert {key: value for key, value in found.items() if key[0] == REQUESTS} == {
            (REQUESTS, place, f"{{{NS}}}greetMe", "response", pair): 2,
            (REQUESTS, place, f"{{{NS}}}greetMe", "done", "one-way"): 1,
            (REQUESTS, place, f"{{{NS}}}fail", "fault", pair): 1,
            (REQUESTS, place, "fault", pair): 1,
            (REQUESTS, place, "fault", pair, "missingContentType"): 1,
        }
        assert found["soapjms_client_call_seconds_count", place, "response", pair] == 2
        assert 0 < found["soapjms_client_call_seconds_sum", place, "response", pair] < 2 * PATIENCE
        assert found["soapjms_client_call_seconds_bucket", place, "+Inf", "response", pair] == 2
        assert found["soapjms_service_request_seconds_count", place, "fault", pair] == 2
        assert found["soapjms_service_events_total", place, "missingContentType"] == 1
        assert found["soapjms_service_events_total", place, "accepted"] == 5

    def test_in_progress(self, client: Client, other: Connection, registry: CollectorRegistry) -> None:
        """What is under way is counted up and down; what a client drops is an event."""
        gauge = "soapjms_client_calls_in_progress", "queue:greeter", "request-response"
        with arrivals(other, client._destination) as found:
            future = client.submit(envelope())
            assert samples(registry)[gauge] == 1
            future.cancel()
            assert samples(registry)[gauge] == 0
            other.send(answer_to(found.next()))
            self.until(registry, "soapjms_client_events_total", "queue:greeter", "late")
        assert samples(registry)[CALLS, "queue:greeter", "cancelled", "request-response"] == 1

    def test_redelivered(self, broker: Broker, client: Client, registry: CollectorRegistry) -> None:
        """A request that comes again is counted, and is there as 0 before."""
        name = "soapjms_service_redelivered_requests_total", "queue:greeter"
        first, service = broker.connect(), greeter()
        service.operation(f"{{{NS}}}leave")(lambda request: first.close(0))
        with Dispatcher(first, URI, service, workers=1, observer=Metrics(registry)):
            assert samples(registry)[name] == 0
            future = client.submit(envelope(operation="leave"))
            self.until(registry, REQUESTS, "queue:greeter", f"{{{NS}}}leave", "lost", "request-response")
        with broker.connect() as second, Dispatcher(second, URI, service, observer=Metrics(registry)):
            assert future.result(PATIENCE).fault is None
            self.until(registry, *name)

    def test_connection(self, registry: CollectorRegistry) -> None:
        """Losses and reconnects begin at 0; the end of a connection is neither."""
        metrics, place = Metrics(registry), Place(Side.SERVICE, GREETER)
        losses = "soapjms_connection_losses_total", "queue:greeter", "service"
        reconnects = "soapjms_connection_reconnects_total", "queue:greeter", "service"
        metrics.started(place)
        assert (samples(registry)[losses], samples(registry)[reconnects]) == (0, 0)
        for state in (ConnectionState.LOST, ConnectionState.CONNECTED, ConnectionState.LOST, ConnectionState.CLOSED):
            metrics.connection_changed(place, state)
        assert (samples(registry)[losses], samples(registry)[reconnects]) == (2, 1)

    def test_health(self, other: Connection, client: Client, registry: CollectorRegistry) -> None:
        """How a dispatcher is when it is asked: while it serves, while all workers are at work for long, at the end."""
        held, service = Event(), Service()

        @service.operation(f"{{{NS}}}greetMe")
        def wait(request: Request) -> None:
            held.wait(PATIENCE)

        def measured(dispatcher: Dispatcher) -> tuple[list[float], float]:
            """Ask it; return whether it is ready and live, and its workers, and for how long it is stalled."""
            dispatcher.health(PATIENCE)
            found = samples(registry)
            names = ("ready", "live", "workers", "stalled_seconds")
            *others, stalled = (found[f"soapjms_service_{name}", "queue:greeter"] for name in names)
            return others, stalled

        with Dispatcher(other, URI, service, workers=2, stalled_after=0.2, observer=Metrics(registry)) as dispatcher:
            assert measured(dispatcher) == ([1, 1, 2], 0)
            calls = [client.submit(envelope()) for _ in range(2)]
            eventually(lambda: measured(dispatcher)[0] == [0, 1, 2], "it is not ready, as all are at work")
            assert measured(dispatcher)[1] >= 0.2
            held.set()
            assert all(each.result(PATIENCE).fault is None for each in calls)
            eventually(lambda: measured(dispatcher) == ([1, 1, 2], 0), "it is ready again")
            other.close()
            assert measured(dispatcher) == ([0, 0, 2], 0)

    def test_several(self, registry: CollectorRegistry) -> None:
        """Two of one registry are as one; those of different registries are not."""
        place = Place(Side.CLIENT, GREETER)
        for metrics in (Metrics(registry), Metrics(registry), Metrics(CollectorRegistry())):
            metrics.counted(place, "late", 2)
        assert samples(registry)["soapjms_client_events_total", "queue:greeter", "late"] == 4


def test_not_installed() -> None:
    """Without the library the error names the extra, and nothing else of ours needs it."""
    program = (
        "import sys; sys.modules['prometheus_client'] = sys.modules['opentelemetry'] = None\n"
        "import soapjms, soapjms.observing\n"
        "for name in ('prometheus', 'opentelemetry'):\n"
        "    try: __import__(f'soapjms.{name}')\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first.endswith("pip install 'soapjms[prometheus]'")
    assert second.endswith("pip install 'soapjms[opentelemetry]'")


def test_the_page_runs() -> None:
    """The Python of docs/observing.md runs as it stands, and is measured."""
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    answered = CALLS, "queue:greeter", "response", "request-response"
    before = samples(REGISTRY).get(answered, 0)  # the registry is the whole process's
    exec(compile(block, "docs/observing.md", "exec"), {})
    assert samples(REGISTRY)[answered] == before + 1


def test_documented() -> None:
    """docs/observing.md has each metric, and no other."""
    registry = CollectorRegistry()
    Metrics(registry)
    there = {each.name for each in registry.collect()}
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    assert {each.removesuffix("_total") for each in re.findall(r"`(soapjms_\w+)`", page)} == there


def test_labels_are_documented() -> None:
    """Each metric has the labels that docs/observing.md says, and perhaps some that are always empty at a client."""
    registry = CollectorRegistry()
    Metrics(registry)
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`soapjms_\w+`(?:, )?)+) \| \w+ \| (.*?) \|$", page, re.MULTILINE)
    documented = {
        name: {each.split()[0].rstrip(":") for each in re.sub(r"\(.*?\)|:.*", "", labels).split(", ")}
        for names_, labels in rows
        for name in re.findall(r"soapjms_\w+", names_)
    }
    for collector in registry._collector_to_names:
        name = collector._name + ("_total" if collector._type == "counter" else "")  # type: ignore[attr-defined]
        labels = set(collector._labelnames)  # type: ignore[attr-defined]
        assert labels - ({"operation"} if "_client_" in name else set()) == documented.pop(name), name
    assert documented == {}
