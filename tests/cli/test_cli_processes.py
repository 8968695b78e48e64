"""`soapjms serve --processes N` where something is amiss: no broker at the start, a process that hangs."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import urllib.request
from contextlib import closing
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from calling_kit import PATIENCE, OnRealBrokers, envelope, eventually, text_of
from ports import nobody
from prometheus_client.parser import text_string_to_metric_families
from serving_kit import IMPATIENT, SERVICES, asked, port_of, serving

from brokers import Connection
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from soapjms import Client
from soapjms.serving import Board, ServeOptions
from soapjms.serving.supervisor import Supervisor


def test_no_broker_at_the_start(tmp_path: Path) -> None:
    """It tries again and again, is not ready and says why, but live; once a broker is there all processes serve."""
    with nobody() as port:
        options = ["--connection", f"amqp://127.0.0.1:{port}", "--uri", "jms:queue:bank", "--health", "127.0.0.1:0"]
        with serving("bank:service", *options, "--processes", "2", marks=tmp_path, command=IMPATIENT) as served:
            eventually(lambda: "health at" in "".join(served.out), "it tells its health")
            health = port_of(served)
            assert asked(health, "/ready")[0] == 503
            eventually(lambda: asked(health, "/ready")[1]["problem"], "it says why")
            status, said = asked(health, "/live")
            assert (status, said["live"], said["ready"], said["processes"]) == (200, True, False, [])
            assert re.match(rf"process \d+ ended with 1: no connection to amqp://127\.0\.0\.1:{port}", said["problem"])
            eventually(lambda: "".join(served.err).count("; another starts in") > 1, "it tries again")
            assert served.pids() == []
            with Listener(Broker(), port=port) as listener:
                served.until_serving(2)
                eventually(lambda: len(asked(health, "/ready")[1]["processes"]) == 2, "both tell their health")
                eventually(lambda: asked(health, "/ready")[0] == asked(health, "/live")[0] == 200, "all is well")
                assert listener.guests >= 2
                served.process.terminate()
                assert served.ended() == 0


def test_no_process_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system has none it is tried again; those that serve go on."""
    start, refusals, board, stop = SpawnProcess.start, [BlockingIOError(11, "no more processes")] * 2, Board(), Event()

    def start_but_the_second(process: SpawnProcess) -> None:
        if board.members()["ready"] and refusals:
            raise refusals.pop()
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", start_but_the_second)
    monkeypatch.chdir(SERVICES)
    monkeypatch.setenv("BANK_MARKS", str(tmp_path))
    served = ServeOptions(target="bank:service", connection="embedded:", uri="jms:queue:bank", processes=2)
    ends, supervisor = list[bool](), Supervisor(served, board)
    thread = Thread(target=lambda: ends.append(supervisor.run(stop)))
    thread.start()
    try:
        eventually(lambda: len(board.members()["processes"]) == 2, "both tell their health")
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert (ends, refusals) == ([True], [])
    assert caplog.text.count("no process could be started ([Errno 11] no more processes); trying again in") == 2


def test_hangs_before_it_serves(tmp_path: Path) -> None:
    """One that hangs while it imports the module is named at /live and in the log; SIGKILL makes another start."""
    with Listener(Broker(), port=0) as listener:
        options = ["--connection", f"amqp://127.0.0.1:{listener.port}", "--uri", "jms:queue:bank"]
        options += ["--processes", "2", "--health", "127.0.0.1:0", "--start-timeout", "3"]
        with serving("hanging_bank:service", *options, marks=tmp_path) as served:
            served.until_serving()
            port = port_of(served)
            eventually((tmp_path / "hangs").exists, "the second hangs")
            eventually(lambda: asked(port, "/ready")[0] == 200, "the first serves")

            def silent() -> list[dict[str, Any]]:
                return [each for each in asked(port, "/live")[1]["processes"] if each["pid"] not in served.pids()]

            eventually(silent, "it is named")
            assert asked(port, "/live")[0] == 503
            (said,) = silent()
            hung = said["pid"]
            assert (said["live"], said["ready"]) == (False, False)
            assert "the process has not reported for" in said["problem"]
            eventually(lambda: f"process {hung}: the process has not reported" in "".join(served.err), "it is logged")
            os.kill(hung, signal.SIGKILL)
            served.until_serving(2)
            eventually(lambda: asked(port, "/live")[0] == 200, "another is live")
            assert hung not in served.pids()
            served.process.terminate()
            assert served.ended() == 0
    assert sum(f"process {hung}: " in line and "it hangs" in line for line in served.err) == 1


class TestHung(OnRealBrokers):
    """A process that neither works nor ends."""

    @pytest.mark.parametrize(
        ("transactions", "is_stored"),
        [
            ("--transactions", True),
            ("--no-transactions", False),
            pytest.param("--transactions", False, marks=pytest.mark.soak),
            pytest.param("--no-transactions", True, marks=pytest.mark.soak),
        ],
    )
    def test_stopped_at_work(
        self, url: str, connection: Connection, uri: str, tmp_path: Path, transactions: str, is_stored: bool
    ) -> None:
        """/live says no, and which it is; what it was working on is answered by another, as the broker notices."""
        options = ["--connection", with_heartbeat(url), "--uri", uri, "--processes", "2", "--workers", "1"]
        options += ["--health", "127.0.0.1:0", "--metrics", "127.0.0.1:0", transactions]
        if is_stored:
            options += ["--store", str(tmp_path / "requests.db"), "--lease", "1"]
        with (
            Client(connection, uri, timeout=PATIENCE) as client,
            serving("bank:service", *options, marks=tmp_path, command=IMPATIENT, BANK_WORK="2") as served,
        ):
            served.until_serving(2)
            port = port_of(served)
            eventually(lambda: len(asked(port, "/ready")[1]["processes"]) == 2, "both tell their health")
            eventually(lambda: gauges(port) == {"ready": 2, "live": 2, "workers": 2}, "both are measured")
            future = client.submit(envelope("Ann", operation="work"))
            eventually(lambda: busy(port), "one works")
            (hung,) = busy(port)
            stop(hung, tmp_path)
            try:
                (other,) = set(served.pids()) - {hung}
                assert text_of(future.result(PATIENCE)) == f"{other}"
                eventually(lambda: asked(port, "/live")[0] == 503, "it is not live")
                said = {each["pid"]: each for each in asked(port, "/live")[1]["processes"]}
                assert "the process has not reported for" in said[hung]["problem"]
                assert (said[hung]["live"], said[other]["live"]) == (False, True)
                assert asked(port, "/ready")[0] == 200
                assert gauges(port) == {"ready": 1, "live": 1, "workers": 1}
            finally:
                os.kill(hung, signal.SIGCONT)
            eventually(lambda: asked(port, "/live")[0] == 200, "it goes on")
            eventually(lambda: gauges(port) == {"ready": 2, "live": 2, "workers": 2}, "it is measured again")
            assert text_of(client.call(envelope("Eve", operation="work"))) in {f"{hung}", f"{other}"}
            served.process.terminate()
            assert served.ended() == 0

    @pytest.mark.parametrize("ends", ["continued", "killed"])
    def test_stopped_in_a_transaction(
        self, url: str, connection: Connection, uri: str, tmp_path: Path, ends: str
    ) -> None:
        """The others go on, but for what is to write; /ready and the log name the process and its request meanwhile."""
        options = ["--connection", with_heartbeat(url), "--uri", uri, "--processes", "2", "--workers", "4"]
        options += ["--health", "127.0.0.1:0", "--store", str(tmp_path / "requests.db"), "--lease", "1"]
        with (
            Client(connection, uri, timeout=2 * PATIENCE) as client,
            serving("bank:service", *options, marks=tmp_path, command=IMPATIENT, BANK_WORK="0.05") as served,
        ):
            served.until_serving(2)
            port, mark = port_of(served), tmp_path / "holder"
            held = client.submit(envelope("Ann", operation="hold"))
            eventually(lambda: mark.exists() and mark.read_text(), "one writes")
            hung = int(mark.read_text())
            stop(hung, tmp_path)
            try:
                said = f"requests.db: process {hung} has had a request.transaction since "
                others = [client.submit(envelope(f"{number}", operation="work")) for number in range(8)]
                assert str(hung) not in {text_of(each.result(PATIENCE)) for each in others}
                booking = client.submit(envelope("Bob", operation="book"))
                eventually(lambda: said in str(asked(port, "/ready")[1]), "/ready names it")
                eventually(lambda: asked(port, "/ready")[0] == 503, "it is not ready")
                assert text_of(client.call(envelope("Eve", operation="work"))) != str(hung)
                assert not booking.done()
                eventually(lambda: f"a request waits: {tmp_path}/{said}" in "".join(served.err), "the log names it")
            finally:
                (tmp_path / "go-on").touch()
                os.kill(hung, signal.SIGCONT if ends == "continued" else signal.SIGKILL)
            assert text_of(booking.result(PATIENCE)) == "booked Bob"
            assert text_of(held.result(PATIENCE)) == "held Ann"
            eventually(lambda: asked(port, "/ready")[0] == 200, "it is ready again")
            served.process.terminate()
            assert served.ended() == 0
        with closing(sqlite3.connect(tmp_path / "requests.db")) as database:
            assert sorted(database.execute("SELECT text FROM booked")) == [("Ann",), ("Ann",), ("Bob",)]

    def test_never_returns_with_a_transaction(self, url: str, connection: Connection, uri: str, tmp_path: Path) -> None:
        """A function that never returns loses its transaction; the log names its request; all others are answered."""
        options = ["--connection", url, "--uri", uri, "--processes", "2", "--workers", "2", "--grace", "0"]
        options += ["--store", str(tmp_path / "requests.db"), "--transaction-timeout", "3"]
        with (
            Client(connection, uri, timeout=2 * PATIENCE) as client,
            serving("bank:service", *options, marks=tmp_path, BANK_WORK="0.05") as served,
        ):
            served.until_serving(2)
            held = client.submit(envelope("Ann", operation="hold"))
            eventually((tmp_path / "holder").exists, "one writes")
            for number in range(8):
                client.call(envelope(f"{number}", operation="work")).raise_for_fault()
            for name in ("Bob", "Eve"):
                assert text_of(client.call(envelope(name, operation="book"))) == f"booked {name}"
            assert not held.done()
            hung = (tmp_path / "holder").read_text()
            log = "".join(served.err)
            assert f"requests.db: process {hung} has had a request.transaction since " in log
            assert "for too long: it is rolled back" in log
            (tmp_path / "go-on").touch()
            fault = held.result(PATIENCE).fault
            assert fault is not None
            assert fault.reason == "the service failed"
            served.process.terminate()
            served.ended()
        with closing(sqlite3.connect(tmp_path / "requests.db")) as database:
            assert sorted(database.execute("SELECT text FROM booked")) == [("Bob",), ("Eve",)]


def with_heartbeat(url: str) -> str:
    """Have signs of life every second, so that a broker soon notices who gives none."""
    return f"{url}{'&' if '?' in url else '?'}heartbeat=1000"


def stop(pid: int, folder: Path) -> None:
    """Stop a process, but not in the moment in which it has the claims of a store in the folder locked."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        claims = folder / "requests.db-claims"
        if not claims.exists():
            return
        with closing(sqlite3.connect(claims, timeout=1.0, isolation_level=None)) as others:
            try:
                others.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # SQLite lets nobody else write until it goes on
                os.kill(pid, signal.SIGCONT)
            else:
                others.execute("ROLLBACK")
                return


def gauges(port: int) -> dict[str, float]:
    """Return how many dispatchers are measured to be ready and live, and their workers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
        found = text_string_to_metric_families(response.read().decode())
        values = {each.name: sum(sample.value for sample in each.samples) for each in found}
    return {each: values.get(f"soapjms_service_{each}", 0) for each in ("ready", "live", "workers")}


def busy(port: int) -> list[int]:
    """List the processes that work on something."""
    return [each["pid"] for each in asked(port, "/live")[1]["processes"] if each["under_way"]]
