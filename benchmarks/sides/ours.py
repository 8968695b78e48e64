"""Our client and our service, with their defaults where the setting says nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from statistics import quantiles

from lxml import etree

import brokers
import soapjms
from brokers import Connection
from brokers.embedded import Broker
from sides import CLOSE, OPEN, WARM_UP, Caller, Load, Measured, Setting, children_seconds, envelope

SLOW_SECONDS = 10.0
"""Seconds that a slow function takes."""


def service_of(connection: Connection, setting: Setting) -> soapjms.Dispatcher:
    """Make a dispatcher for an echo; the text `slow` makes it take its time. `measure` answers the size of a part."""
    made = soapjms.Service()

    @made.operation("{urn:bench}echo")
    def echo(request: soapjms.Request) -> etree._Element:
        if request.element[0].text == "slow":
            time.sleep(SLOW_SECONDS)
        return request.element

    @made.operation("{urn:bench}measure")
    def measure(request: soapjms.Request) -> etree._Element:
        answer = etree.Element("{urn:bench}octets")
        answer.text = str(len(request.attachments.octets_of(request.element)))
        return answer

    return soapjms.Dispatcher(
        connection,
        f"jms:queue:{setting.queue}",
        made,
        workers=max(1, setting.in_flight // setting.processes),
        transactional=setting.transactional,
        store=setting.store or None,
    )


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Serve while the `with` statement lasts."""
    with brokers.connect(setting.url) as connection, service_of(connection, setting):
        yield


class Client(Caller):
    """Calls with our client: `call` with one in flight, futures with several."""

    def __init__(self, setting: Setting, connection: Connection | None = None) -> None:
        self._stack = ExitStack()
        if connection is None:
            connection = self._stack.enter_context(brokers.connect(setting.url))
        uri = f"jms:queue:{setting.queue}?deliveryMode={'PERSISTENT' if setting.persistent else 'NON_PERSISTENT'}"
        self.client = self._stack.enter_context(soapjms.Client(connection, uri, timeout=60))
        self._envelope = envelope(setting.octets)
        self._is_alone = setting.in_flight == 1 and not setting.rate
        self._waiting: SimpleQueue[tuple[int, Callable[[], soapjms.Response]]] = SimpleQueue()

    def submit(self, number: int) -> None:
        if self._is_alone:
            self._waiting.put((number, partial(self.client.call, self._envelope)))
        else:
            self._waiting.put((number, self.client.submit(self._envelope).result))

    async def take(self) -> int:
        number, answer = self._waiting.get()
        answer().raise_for_fault()
        return number

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Submitted(Client):
    """Waits for the futures of our client, even with one in flight."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._is_alone = False


class Tasks(Client):
    """Calls with our client for asyncio, each in a task."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._tasks: SimpleQueue[tuple[int, asyncio.Task[soapjms.Response]]] = SimpleQueue()
        self._async = soapjms.AsyncClient(self.client._connection, self.client.endpoint.request_uri, timeout=60)

    def submit(self, number: int) -> None:
        self._tasks.put((number, asyncio.ensure_future(self._async.call(self._envelope))))

    async def take(self) -> int:
        number, task = self._tasks.get()
        (await task).raise_for_fault()
        return number

    def __exit__(self, *_: object) -> None:
        self._async.client.close()
        super().__exit__()


class Awaited(Client):
    """Awaits the futures of our client on an event loop."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._awaited: SimpleQueue[tuple[int, Awaitable[soapjms.Response]]] = SimpleQueue()

    def submit(self, number: int) -> None:
        self._awaited.put((number, self.client.submit(self._envelope)))

    async def take(self) -> int:
        number, answer = self._awaited.get()
        (await answer).raise_for_fault()
        return number


@contextmanager
def embedded(setting: Setting) -> Iterator[Client]:
    """Serve and call in one process, on a broker in memory."""
    broker = Broker()
    with (
        broker.connect() as serving,
        broker.connect() as calling,
        service_of(serving, setting),
        Client(setting, calling) as client,
    ):
        yield client


class Mtom(Client):
    """Sends an MTOM part of so many octets and measures how much memory both processes take at their peak."""

    async def figures(self, setting: Setting) -> dict[str, float]:
        small, large = (
            soapjms.Attachment(b"x" * size, "application/octet-stream", "part@bench") for size in (1024, setting.octets)
        )
        for _ in range(WARM_UP):
            self._send(small)
        processes = {"client": "self", "service": str(setting.processes_of["service"][0])}
        before = {}
        for role, process in processes.items():
            Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak is what is used now
            before[role] = peak_octets(process)
        for _ in range(3):
            self._send(large)
        return {
            f"{role} × part": (peak_octets(process) - before[role]) / setting.octets
            for role, process in processes.items()
        }

    def _send(self, part: soapjms.Attachment) -> None:
        space = f"{{{soapjms.SoapVersion.SOAP_11.namespace}}}"
        root = etree.Element(f"{space}Envelope")
        element = etree.SubElement(etree.SubElement(root, f"{space}Body"), "{urn:bench}measure")
        element.append(part.include())
        self.client.call(root, attachments=[part]).raise_for_fault()


def peak_octets(process: str) -> int:
    """Return the largest resident size of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


class BesideSlow(Client):
    """Measures calls while a function takes seconds, and before."""

    async def figures(self, setting: Setting) -> dict[str, float]:
        self._percentile(1.0)
        usual = self._percentile(setting.seconds)
        slow = self.client.submit(OPEN + b"slow" + CLOSE)
        beside = self._percentile(SLOW_SECONDS - 0.2)
        slow.result()
        return {"usual p99 ms": usual, "p99 ms": beside, "p99 over usual": beside / usual}

    def _percentile(self, seconds: float) -> float:
        taken, until = [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            started = time.perf_counter()
            self.client.call(self._envelope).raise_for_fault()
            taken.append(1e3 * (time.perf_counter() - started))
        return quantiles(taken, n=100)[98]


class Long(Client):
    """Compares the rate after 100,000 calls with that after 1,000."""

    async def figures(self, setting: Setting) -> dict[str, float]:
        load = Load(self, setting.in_flight)
        rates = []
        for calls in (1_000, 100_000):
            await load.run(inf, calls)
            rates.append(await load.run(setting.seconds) / setting.seconds)
        await load.drain()
        return {"first rate": rates[0], "rate": rates[1], "rate over first": rates[1] / rates[0]}


class Start(Measured):
    """Measures the processor time of a Python command: the least of several, after one that compiles."""

    async def figures(self, setting: Setting) -> dict[str, float]:
        found = []
        for _ in range(6):
            before = children_seconds()
            subprocess.run([sys.executable, *setting.command], check=True, stdout=subprocess.DEVNULL)
            found.append(1e3 * (children_seconds() - before))
        return {"ms": min(found[1:])}


@contextmanager
def start(setting: Setting) -> Iterator[Start]:
    """Have nothing to begin or to end."""
    yield Start()
