"""`async` functions of a service: on one loop, with a deadline, whatever leaves them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from logging import WARNING
from typing import Any

import pytest
from calling_kit import PATIENCE, element, eventually
from service_kit import GREET, accepted

from soapjms import Request, RequestExpiredError, Service
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.service.event_loop import OwnLoop


def said(service: Service, **changes: Any) -> str | None:
    """Return what a service answers, or the reason of its fault."""
    made = as_envelope(service.answer(accepted(**changes)).envelope)
    fault = read_fault(made)
    return fault.reason if fault is not None else made.content.text if made.content is not None else None


def threads() -> list[threading.Thread]:
    """List the threads of loops."""
    return [each for each in threading.enumerate() if each.name == "soapjms-loop"]


def test_at_once() -> None:
    """Functions wait for each other on one thread: each request is worked on while the others are."""
    service, seen, everybody = Service(), set[int](), asyncio.Event()
    waiting: list[Request] = []

    @service.operation(GREET)
    async def greet(request: Request) -> Any:
        seen.add(threading.get_ident())
        waiting.append(request)
        if len(waiting) == 4:
            everybody.set()
        await everybody.wait()
        return element("said", request.element.text or "")

    with ThreadPoolExecutor(4) as workers:
        answers = [workers.submit(said, service) for _ in range(4)]
        assert [each.result(PATIENCE) for each in answers] == ["Ann"] * 4
    assert len(seen) == 1


def test_deadline(caplog: pytest.LogCaptureFixture) -> None:
    """A function that does not return is cancelled when its request expires: the worker is free again.

    The log has one line about it, without a traceback.
    """
    service, ended = Service(), list[str]()

    @service.operation(GREET)
    async def greet(request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    begun = time.monotonic()
    assert said(service, expiration=time.time_ns() // 1_000_000 + 1000) == "the service failed"
    assert ended == ["cancelled"]
    assert time.monotonic() - begun < 20
    (logged,) = caplog.records
    assert (logged.__dict__["event"], logged.levelno, bool(logged.exc_info)) == ("operation.expired", WARNING, False)
    assert "greetMe was cancelled, since its request from queue:greeter" in logged.message


@pytest.mark.parametrize("seconds", [None, 0.05])
def test_times_of_its_own(seconds: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """A function that runs out of its own time, or that fails while it is cancelled, has failed."""
    service = Service()

    @service.operation(GREET)
    async def greet(request: Request) -> None:
        try:
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("no rollback") from None

    life = 60_000 if seconds else 100
    assert said(service, expiration=time.time_ns() // 1_000_000 + life) == "the service failed"
    (logged,) = caplog.records
    assert logged.__dict__["event"] == "operation.failed"
    assert ("TimeoutError" if seconds else "ValueError: no rollback") in caplog.text


def test_expiry_for_middleware() -> None:
    """Middleware sees that the request expired, and may answer."""
    seen = list[BaseException]()

    def watched(request: Request, call_next: Any) -> Any:
        try:
            return call_next(request)
        except TimeoutError as error:
            seen.append(error)
            return element("said", "too late")

    service = Service(middleware=[watched])

    @service.operation(GREET)
    async def greet(request: Request) -> None:
        await asyncio.Event().wait()

    assert said(service, expiration=time.time_ns() // 1_000_000 + 50) == "too late"
    assert [type(each) for each in seen] == [RequestExpiredError]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_is_raised(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """It is the failure of this request; the loop goes on."""
    service = Service()
    raised: list[BaseException] = [error]

    @service.operation(GREET)
    async def greet(request: Request) -> Any:
        if raised:
            raise raised.pop()
        return element("said", "hello")

    assert said(service) == "the service failed"
    assert type(error).__name__ in caplog.text
    assert said(service) == "hello"


async def exits() -> None:
    raise SystemExit(1)


@pytest.mark.parametrize(
    "stop",
    [
        lambda: asyncio.ensure_future(exits()),
        lambda: asyncio.get_running_loop().call_soon(sys.exit),
        lambda: asyncio.get_running_loop().stop(),
    ],
    ids=["task", "callback", "stop"],
)
def test_stopped_loop(stop: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    """What a function leaves on the loop cannot end it: this request and later ones are answered; the log says so."""
    service, left = Service(), list[object]()

    @service.operation(GREET)
    async def greet(request: Request) -> Any:
        left.append(stop())
        await asyncio.sleep(0.01)
        return element("said", "hello")

    with ThreadPoolExecutor(1) as worker:
        assert [worker.submit(said, service).result(PATIENCE) for _ in range(2)] == ["hello"] * 2
    assert "operation.loop_stopped" in {getattr(each, "event", "") for each in caplog.records}
    left.clear()


def test_context() -> None:
    """Context variables of the worker's thread, such as a trace, are there; those it sets stay its own."""
    variable: ContextVar[str] = ContextVar("variable", default="none")
    loop = OwnLoop()

    async def change() -> str:
        before = variable.get()
        variable.set("inner")
        return before

    variable.set("outer")
    assert loop.run(change(), None) == "outer"
    assert variable.get() == "outer"


def test_transaction(caplog: pytest.LogCaptureFixture) -> None:
    """The store's transaction waits for other writers, which would hold up the loop: it is refused, and said why."""
    service = Service()

    @service.operation(GREET)
    async def greet(request: Request) -> None:
        request.transaction.execute("SELECT 1")

    assert said(service) == "the service failed"
    assert "request.transaction waits for other threads and would block the event loop" in caplog.text


def test_end() -> None:
    """The thread ends with the service; what runs there is cancelled."""
    gc.collect()
    before = threads()
    service, begun = Service(), threading.Event()

    @service.operation(GREET)
    async def greet(request: Request) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        begun.tasks = [task]  # type: ignore[attr-defined]
        begun.set()

    said(service)
    assert begun.is_set()
    (ours,) = (each for each in threads() if each not in before)
    del service, greet
    gc.collect()
    eventually(lambda: not ours.is_alive(), "the thread ended")
    assert begun.tasks[0].cancelled()  # type: ignore[attr-defined]
