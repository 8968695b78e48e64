"""`connect` and `Completion`; what adapters do is in the broker contract."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from pathlib import Path
from queue import SimpleQueue
from threading import current_thread, get_ident
from time import sleep
from typing import Any

import pytest
from places import ROOT

from brokers import (
    BrokerError,
    Completion,
    Connection,
    DestinationKind,
    UnknownSchemeError,
    UsageError,
    connect,
    queue,
)
from brokers.adapter.failover import read_failover
from brokers.url import are_local

PATIENCE = 20.0


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "callbacks") as executor:
        yield executor


@pytest.mark.parametrize(
    ("library", "url", "extra"),
    [
        ("proton", "amqp://127.0.0.1:1", "amqp"),
        ("stomp", "stomp://127.0.0.1:1", "stomp"),
        ("stomp", "failover:(stomp://127.0.0.1:1)", "stomp"),
    ],
)
def test_an_adapter_that_is_not_installed(library: str, url: str, extra: str, tmp_path: Path) -> None:
    """It says what to type, in a program and at the command line."""
    text = f"brokers.{extra} needs {library}: pip install 'soapjms[{extra}]'"
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import brokers\n"
        f"try: brokers.connect({url!r})\nexcept brokers.NotInstalledError as error: print(error)\n"
        "from soapjms.cli import main\n"
        f"sys.argv = ['soapjms', 'unsubscribe', 'a', '--uri', 'jms:topic:t', '--connection', {url!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{text}\n", f"Error: {text}\n", 2)


async def coroutine(*_: Any) -> None:
    """Take anything; nobody awaits it."""


class CallableCoroutine:
    async def __call__(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on_delivery": coroutine}, "on_delivery must be a plain function, not async def"),
        ({"on_delivery": CallableCoroutine()}, "on_delivery must be a plain function, not async def"),
        ({"on_delivery": None}, "on_delivery must be a plain function"),
        ({"on_refused": coroutine}, "on_refused must be a plain function, not async def"),
        ({"on_problem": "print"}, "on_problem must be a plain function"),
        ({"destination": "orders"}, "destination must be one such as brokers.queue"),
        ({"selector": 5}, "names and selector of a subscription must be str, got 5"),
    ],
)
def test_arguments_of_consume(wrong: dict[str, Any], message: str) -> None:
    """What cannot be is refused at once; else each message would be lost, or a dead letter."""
    with connect("embedded:arguments") as connection:
        arguments: dict[str, Any] = {"destination": queue("orders"), "on_delivery": print, **wrong}
        with pytest.raises(UsageError, match=message):
            connection.consume(**arguments)


@pytest.mark.parametrize("wrong", ["temporary-queue", DestinationKind.QUEUE, None])
def test_kind_of_a_temporary_destination(wrong: Any) -> None:
    """What is none is refused."""
    with (
        connect("embedded:arguments") as connection,
        pytest.raises(UsageError, match="kind must be that of a temporary destination, such as DestinationKind"),
    ):
        connection.temporary(wrong)


@pytest.mark.parametrize("wrong", [5, ["dead"], b"dead"])
def test_queue_of_dead_letters(wrong: Any) -> None:
    """What is no name is refused before anything is connected to."""
    with pytest.raises(UsageError, match="deadLetters must be the name of a queue, such as 'orders', got"):
        connect("stomp://127.0.0.1:1", dead_letters=wrong)


@pytest.mark.parametrize("url", ["kafka://host", "kafka:host:1"])
def test_unknown_scheme(url: str) -> None:
    """A URL that no adapter serves raises an error that names those that exist; it is a ValueError too."""
    with pytest.raises(
        UnknownSchemeError, match=r"known are: amqp, amqp\+ws, amqp\+wss, amqps, embedded, failover, smqp, smqps, stomp"
    ) as caught:
        connect(url)
    assert isinstance(caught.value, BrokerError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("url", [5, None, b"embedded:", "stomp://[::1", "stomp://clerk:s3cr3t\u2100@host"])
def test_no_url(url: Any) -> None:
    """What is no URL at all raises the same error, which says how one looks, and repeats no password."""
    with pytest.raises(UnknownSchemeError, match="as in embedded:NAME or stomp://USER:PASSWORD@HOST:PORT") as caught:
        connect(url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("stomp:", "must name a host"),
        ("stomp:localhost:61613", "must end with the port"),
        ("stomp://localhost:99999", "must be a number from 1 to 65535"),
        ("stomp://localhost:0", "must be a number from 1 to 65535"),
        ("stomp://clerk:s3cr3t/x@localhost", "in user and password percent-encoded"),
        ("stomp://clerk:x/s3cr3t@localhost", "in user and password percent-encoded"),
        ("stomp://clerk:x#s3cr3t@localhost", "in user and password percent-encoded"),
        ("stomp://localhost:s3cr3t", "must be a number from 1 to 65535"),
    ],
)
def test_urls_that_stomp_cannot_use(url: str, says: str) -> None:
    """What is wrong with a STOMP URL is said with its form; what may be a password is not repeated."""
    with pytest.raises(ValueError, match=says) as caught:
        connect(url)
    assert "write stomp://USER:PASSWORD@HOST:PORT" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, True, "5", None])
@pytest.mark.parametrize("url", ["embedded:", "stomp://localhost:61613", "amqp://localhost"])
def test_a_time_out_that_is_none(url: str, timeout: Any) -> None:
    """It is refused before anybody is connected to, whatever the broker."""
    with pytest.raises(ValueError, match=r"timeout must be a positive, finite number of seconds, got"):
        connect(url, timeout=timeout)


def test_the_scheme_in_any_case() -> None:
    """A scheme may be in capitals."""
    with connect("EMBEDDED:case") as connection:
        assert isinstance(connection, Connection)
        assert connection.capabilities.broker == "embedded"


def test_unknown_option() -> None:
    """An option that the adapter does not have is named."""
    with pytest.raises(UsageError, match="connections to embedded: have no option colour="):
        connect("embedded:options", colour="red")


def test_no_adapter_is_imported_before_it_is_asked_for() -> None:
    """`import brokers` loads no adapter; `connect` loads the one that the scheme names."""
    program = (
        "import sys, brokers\n"
        "print([name for name in ('brokers.embedded', 'brokers.stomp', 'stomp') if name in sys.modules])\n"
        "brokers.connect('embedded:').close()\n"
        "print([name for name in ('brokers.embedded', 'brokers.stomp', 'stomp') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["[]", "['brokers.embedded']"]


def test_a_program_that_does_not_close_still_ends() -> None:
    """A program that leaves a connection with a consumer open ends by itself."""
    program = (
        "from brokers import *\n"
        "connection = connect('embedded:')\n"
        "connection.consume(queue('a'), lambda delivery: delivery.accept())\n"
        "message = Message(message_type=MessageType.TEXT, body='x', destination=queue('a'))\n"
        "connection.send(message).add_done_callback(lambda future: None)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class TestCompletion:
    """A future whose callbacks run on an executor."""

    def test_callbacks_run_on_the_executor(self, executor: ThreadPoolExecutor) -> None:
        """Whether added before or after, a callback runs on the executor's thread, with the future."""
        seen: SimpleQueue[tuple[str, Future[int], int]] = SimpleQueue()
        future: Completion[int] = Completion(lambda: executor)

        def note(done: Future[int]) -> None:
            seen.put((current_thread().name, done, done.result()))

        future.add_done_callback(note)
        future.set_result(7)
        future.add_done_callback(note)
        for _ in range(2):
            assert seen.get(timeout=PATIENCE) == ("callbacks_0", future, 7)
        assert future.result() == 7

    def test_on_settled_runs_at_once(self, executor: ThreadPoolExecutor) -> None:
        """Book-keeping runs on the thread that settles the future, before `set_exception` returns."""
        seen = list[int]()
        future: Completion[int] = Completion(lambda: executor)
        future.on_settled(lambda _: seen.append(get_ident()))
        future.set_exception(BrokerError("no"))
        assert seen == [get_ident()]
        assert isinstance(future.exception(), BrokerError)

    def test_waiting(self, executor: ThreadPoolExecutor) -> None:
        """Whoever waits has the result, or the error, or its own time-out, after which nothing is kept of it."""
        future: Completion[int] = Completion(lambda: executor)
        for ask in (future.result, future.exception):
            for timeout in (0, -1, 0.001):
                with pytest.raises(TimeoutError):
                    ask(timeout)
        assert future._gates == []
        with ThreadPoolExecutor(3) as threads:
            asked = [
                threads.submit(future.result, PATIENCE),
                threads.submit(future.result),
                threads.submit(future.exception),
            ]
            while len(future._gates or ()) < 3:
                sleep(0.001)
            assert future.set_running_or_notify_cancel()
            assert not future.cancel(), "it runs"
            future.set_exception(BrokerError("no"))
        assert [type(each.exception() or each.result()) for each in asked] == [BrokerError] * 3

    def test_waiting_for_many(self, executor: ThreadPoolExecutor) -> None:
        """The functions of the library take them too."""
        futures = [Completion[int](lambda: executor) for _ in range(3)]
        assert wait(futures, 0).not_done == {*futures}
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(lambda: [each.result() for each in as_completed(futures, PATIENCE)])
            while not all(each._waiters for each in futures):
                sleep(0.001)
            for number in (2, 0, 1):
                futures[number].settle(number)
            assert asked.result() == [2, 0, 1]
        assert wait(futures, 0, FIRST_EXCEPTION).done == {*futures}

        async def awaited() -> int:
            return await asyncio.wrap_future(futures[2])

        assert asyncio.run(awaited()) == 2

    def test_only_once(self, executor: ThreadPoolExecutor) -> None:
        """A future that is done stays as it is; `settle` does not mind, as with one that was cancelled."""
        future: Completion[int] = Completion(lambda: executor)
        future.set_result(1)
        for again in (lambda: future.set_result(2), lambda: future.set_exception(BrokerError("no"))):
            with pytest.raises(InvalidStateError):
                again()
        future.settle(2)
        assert (future.result(), future.exception(), future.cancel(), future.cancelled()) == (1, None, False, False)
        given_up: Completion[int] = Completion(lambda: executor)
        told = list[int]()
        given_up.revoke = lambda: told.append(1) or True  # type: ignore[func-returns-value]
        assert given_up.cancel()
        assert given_up.cancel()
        given_up.settle(2)
        assert told == [1]
        for ask in (given_up.result, given_up.exception):
            with pytest.raises(CancelledError):
                ask(0)
        assert "cancelled" in repr(given_up)

    def test_cancelled(self, executor: ThreadPoolExecutor) -> None:
        """A cancelled future calls back too."""
        seen: SimpleQueue[bool] = SimpleQueue()
        future: Completion[int] = Completion(lambda: executor)
        future.add_done_callback(lambda done: seen.put(done.cancelled()))
        assert future.cancel()
        assert seen.get(timeout=PATIENCE) is True

    def test_after_the_executor_was_shut_down(self) -> None:
        """While the owner closes, a callback runs on the thread that settles the future."""
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        seen = list[int]()
        future: Completion[int] = Completion(lambda: executor)
        future.add_done_callback(lambda _: seen.append(get_ident()))
        future.set_result(1)
        assert seen == [get_ident()]

    def test_a_callback_that_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        """An exception that leaves a callback is logged, and later callbacks run."""
        seen = list[int]()
        with ThreadPoolExecutor(1) as executor:
            future: Completion[int] = Completion(lambda: executor)
            future.add_done_callback(lambda _: 1 // 0)
            future.add_done_callback(lambda _: sys.exit("enough"))
            future.add_done_callback(lambda done: seen.append(done.result()))
            future.set_result(1)
        assert seen == [1]
        assert "ZeroDivisionError" in caplog.text
        assert "SystemExit: enough" in caplog.text


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("stomp://user:password@localhost:61613", True),
        ("amqp://127.0.0.1:5672", True),
        ("stomp://[::1]:61613", True),
        ("failover:(stomp://localhost:1,stomp://127.0.0.2:2)", True),
        ("stomp://user:password@broker:61613", False),
        ("stomp://user:password@localhost:61613,broker:61613", False),
        ("failover:(stomp://localhost:1,stomp://broker:2)", False),
    ],
)
def test_local(url: str, local: bool) -> None:
    """A broker is on this machine if its URL says so; several are if all of them are."""
    assert are_local(read_failover(url, reconnect=True).urls) is local
