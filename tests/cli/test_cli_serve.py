"""`soapjms serve` as a user types it, with a broker of ours: options, health, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from calling_kit import PATIENCE, envelope, eventually
from cli_kit import process
from click.testing import CliRunner, Result
from places import ROOT
from ports import nobody
from serving_kit import SERVICES, asked, port_of, serving
from wsdl_kit import with_import_from_above

from brokers.amqp.listener import Listener
from brokers.embedded import Broker as EmbeddedBroker
from brokers.embedded.connection import EmbeddedConnection
from soapjms import Client, connect
from soapjms.cli.commands import soapjms
from soapjms.observing import Health
from soapjms.serving import Board, ServeOptions, StatusPage, StatusResponse, health_answers
from soapjms.serving.runner import run as serve
from soapjms.serving.status_page import ENDING, MAX_PAGE_CONNECTIONS, STALE_SECONDS, START_TIMEOUT
from soapjms.serving.supervisor import ProcessSlot

WELL = Health(live=True, ready=True, problem="", under_way=2, round_trip=0.001)
WSDL = SERVICES.parent / "wsdl" / "echo-soap11.wsdl"
EMBEDDED = ["--connection", "embedded:", "--uri", "jms:queue:bank"]
NOWHERE = ["--connection", "stomp://127.0.0.1:1", "--uri", "jms:queue:bank"]


@pytest.fixture
def bank(shared_url: str) -> list[str]:
    """The options for a queue of a broker that other processes reach."""
    return ["--connection", shared_url, "--uri", "jms:queue:bank"]


def run(*arguments: str) -> Result:
    """Run the command line in this process, which has an embedded broker, for what ends at once."""
    with connect("embedded:"):
        return CliRunner().invoke(soapjms, ["serve", *arguments], env={"SOAPJMS_URI": None, "SOAPJMS_CONNECTION": None})


class TestUsage:
    """What makes no sense ends with 2, says what would, and repeats no password."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "Missing argument 'MODULE:SERVICE'"),
            (["a:b"], "Missing option '--connection'"),
            (["a:b", *EMBEDDED, "--wsdl", str(WSDL)], "give either --uri or --wsdl"),
            (["a:b", *EMBEDDED, "--port", "x"], "--port is for a WSDL"),
            (["a:b", *EMBEDDED, "--workers", "0"], "0 is not in the range x>=1"),
            (["a:b", *EMBEDDED, "--processes", "0"], "0 is not in the range x>=1"),
            (["a:b", *EMBEDDED, "--profile", "x"], "'rec-2012'"),
            (["a:b", *EMBEDDED, "--set", "x"], "a property must be NAME=VALUE, such as priority=7, got 'x'"),
            (["a:b", *EMBEDDED, "--health", "x"], "an address must be HOST:PORT, such as 127.0.0.1:8080, got 'x'"),
            (["a:b", *EMBEDDED, "--health", "127.0.0.1:99999"], "must be HOST:PORT"),
            (["a:b", *EMBEDDED, "--health", "192.0.2.1:1"], "cannot listen at 192.0.2.1:1"),
            (["a:b", "--connection", "embedded:", "--wsdl", "nothing.wsdl"], "'nothing.wsdl', which does not exist"),
            (["a:b", *EMBEDDED, "--names", "nothing.toml"], "'nothing.toml', which does not exist"),
        ],
    )
    def test_options(self, arguments: list[str], said: str) -> None:
        """The command line itself."""
        done = run(*arguments)
        assert done.exit_code == 2
        assert said in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["bank", *EMBEDDED], "must be MODULE:NAME, such as bank.service:service, got 'bank'"),
            (["nowhere:service", *EMBEDDED], "the module nowhere cannot be imported: No module named 'nowhere'"),
            (["bank.py:service", *EMBEDDED], "must be MODULE:NAME, got 'bank.py:service'; write bank:service"),
            (["a/b.py:service", *EMBEDDED], "must be MODULE:NAME, got 'a/b.py:service'; write a.b:service"),
            (
                ["bank:nobody", *EMBEDDED],
                f"target must be a soapjms.Service, got bank:nobody; {SERVICES / 'bank.py'} has: bank:service",
            ),
            (
                ["bank:service", "--connection", "embedded:"],
                "give either --uri or --wsdl; only a service that was made",
            ),
            (["bank:service", "--connection", "embedded:", "--uri", "jms"], "a JMS URI begins with jms:"),
            (["bank:service", "--connection", "x:secret", "--uri", "jms:queue:a"], "no broker adapter"),
            (
                ["bank:service", "--connection", "stomp://u:secret@h/x", "--uri", "jms:queue:a"],
                "a stomp URL must end with",
            ),
            (["bank:service", "--connection", "embedded:", "--uri", "jms:jndi:nothing"], "nothing"),
            (["bank:service", *EMBEDDED, "--dead-letters", "bank"], "a queue other than the served one"),
            (["bank:service", *EMBEDDED, "--reply-topic", "a", "--reply-topic", "b.>"], "reply_topics allows 'b.>'"),
            (["bank:service", *EMBEDDED, "--reply-queue", "dlq.a"], "reply_queues allows 'dlq.a'"),
            (["bank:service", *EMBEDDED, "--reply-queue", "jms:queue:a"], "must be the name of a queue, such as 'a'"),
            (["bank:service", *EMBEDDED, "--dead-letters", "jms:queue:a"], "must be the name of a queue, such as 'a'"),
        ],
    )
    def test_what_is_served(self, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it is told to serve."""
        monkeypatch.chdir(SERVICES)
        monkeypatch.syspath_prepend(str(SERVICES))
        done = run(*arguments)
        assert (done.exit_code, done.stderr.startswith("Error: ")) == (2, True)
        assert said in done.stderr
        assert "secret" not in done.stderr

    @pytest.mark.parametrize("words", [["serve", "bank:service"], ["bridge", "wsgi", "wsgi_greeter:application"]])
    @pytest.mark.parametrize("url", ["embedded:", "EMBEDDED:nobody"])
    def test_nobody_reaches_an_embedded_broker(self, words: list[str], url: str) -> None:
        """It is refused at once, with what to do: no client can be in the process of the command."""
        done = process(*words, "--connection", url, "--uri", "jms:queue:bank", cwd=SERVICES)
        (line,) = [each for each in done.stderr.decode().splitlines() if each.startswith("Error: ")]
        assert (done.returncode, done.stdout) == (2, b"")
        assert line == (
            f"Error: --connection '{url}' is a broker inside of this process, where no client is. Run a broker, such "
            "as soapjms broker --amqp localhost:5672, and give --connection amqp://localhost:5672 here and to clients; "
            "or serve from the program that calls, with soapjms.Dispatcher"
        )

    def test_nobody_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a broker it ends with 1: that may be better the next time."""
        monkeypatch.chdir(SERVICES)
        monkeypatch.syspath_prepend(str(SERVICES))
        with nobody() as port:
            done = run("bank:service", "--connection", f"stomp://u:secret@127.0.0.1:{port}", "--uri", "jms:queue:a")
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: no connection to stomp://127.0.0.1")
        told = " ".join(run("--help").stdout.split())
        assert "1 requests were left unfinished or failed, or the broker cannot be reached or refuses the login" in told
        assert "secret" not in done.stderr

    @pytest.mark.parametrize("processes", ["1", "2"])
    @pytest.mark.parametrize(
        ("program", "said"),
        [
            (
                "import soapjms\nsoapjms.Service.from_wsdl('none.wsdl')\n",
                "InvalidWsdlError: .*bad_bank.py:2, in <module>",
            ),
            ("import nowhere\n", r"ModuleNotFoundError: No module named 'nowhere' \(.*bad_bank.py:1, in <module>"),
            ("raise SystemExit('bye')\n", r"SystemExit: bye \(.*bad_bank.py:1, in <module>"),
            ("def:\n", r"SyntaxError: invalid syntax \(bad_bank.py, line 1\)$"),
        ],
    )
    def test_a_mistake_in_the_module_is_said_once(
        self, program: str, said: str, processes: str, tmp_path: Path
    ) -> None:
        """In one line, with where it is, however many processes are to serve."""
        (tmp_path / "bad_bank.py").write_text(program)
        done = process("serve", "bad_bank:service", *NOWHERE, "--processes", processes, cwd=tmp_path)
        (line,) = done.stderr.decode().splitlines()
        assert (done.returncode, done.stdout) == (2, b"")
        assert re.match(f"Error: the module bad_bank cannot be imported: {said}", line), line

    def test_no_password_is_shown(self) -> None:
        """What the command line said may be printed: the URL is left out."""
        assert "secret" not in repr(ServeOptions(target="a:b", connection="stomp://u:secret@h"))


class TestOneProcess:
    """Without --processes."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ends_when_told(self, tmp_path: Path, number: signal.Signals, bank: list[str]) -> None:
        """It tells its health, ends at a signal with 0, and what it did is in its log."""
        with serving("bank:service", *bank, "--health", "127.0.0.1:0", marks=tmp_path) as served:
            served.until_serving()
            port = port_of(served)
            eventually(lambda: asked(port, "/ready")[0] == 200, "it is ready")
            status, said = asked(port, "/live")
            assert (status, said["live"], said["ready"]) == (200, True, True)
            (process,) = said["processes"]
            assert process["pid"] == served.process.pid == served.pids()[0]
            assert (process["under_way"], process["problem"]) == (0, "")
            assert 0 < process["round_trip"] < PATIENCE
            served.process.send_signal(number)
            assert served.ended() == 0
        assert "served: none" in "".join(served.err)

    def test_json(self, tmp_path: Path, bank: list[str]) -> None:
        """What it says is an object a line."""
        options = [*bank, "--health", "127.0.0.1:0", "--json"]
        with serving("bank:service", *options, marks=tmp_path) as served:
            eventually(lambda: len(served.out) == 2, "it says both")
            health, bank = map(json.loads, served.out)
            assert (health["telling"], health["paths"]) == ("health", ["/live", "/ready"])
            assert asked(health["port"], "/live")[0] in (200, 503)
            assert bank == {"serving": "queue:bank", "broker": "brokers-embedded/1", "process": served.process.pid}

    def test_json_log(self, tmp_path: Path, bank: list[str]) -> None:
        """With --log-format json the log is an object a line, with the event and its fields."""
        with serving("bank:service", *bank, "--log-format", "json", marks=tmp_path) as served:
            served.until_serving()
            served.process.terminate()
            assert served.ended() == 0
        said = list(map(json.loads, served.err))
        (ended,) = [each for each in said if each.get("event") == "serve.ended"]
        assert (ended["level"], ended["logger"], ended["counts"]) == ("INFO", "soapjms.serve", "none")
        assert ended["message"] == "served: none"

    def test_from_the_environment(self, tmp_path: Path, shared_url: str) -> None:
        """What is not on the command line may be in the environment; the command line wins."""
        environment = {
            "SOAPJMS_CONNECTION": shared_url,
            "SOAPJMS_URI": "jms:queue:other",
            "SOAPJMS_LOG_LEVEL": "ERROR",
        }
        with serving("bank:service", "--uri", "jms:queue:bank", marks=tmp_path, **environment) as served:
            served.until_serving()
            assert served.out[0].startswith("serving queue:bank at brokers-embedded")
            served.process.terminate()
            assert served.ended() == 0
        assert served.err == []

    def test_wsdl(self, tmp_path: Path, shared_url: str) -> None:
        """Where requests come to may be in a WSDL, and JNDI names in a file."""
        names = tmp_path / "names.toml"
        names.write_text('[queues]\n"jms/Bank" = "bank"\n')
        for options in (["--wsdl", str(WSDL)], ["--uri", "jms:jndi:jms%2FBank", "--names", str(names)]):
            with serving("bank:service", "--connection", shared_url, *options, marks=tmp_path) as served:
                served.until_serving()
                served.process.terminate()
                assert served.ended() == 0

    def test_imports_from_elsewhere(self, tmp_path: Path, shared_url: str) -> None:
        """The error says what to allow, and the option `--allow` does."""
        options = ["--connection", shared_url, "--wsdl", str(with_import_from_above(tmp_path))]
        refused = process("serve", "bank:service", *options, cwd=SERVICES)
        assert (refused.returncode, b"or allow its folder" in refused.stderr) == (2, True)
        with serving("bank:service", *options, "--allow", str(tmp_path), marks=tmp_path) as served:
            served.until_serving()
            assert served.out[0].startswith("serving queue:ledger at ")
            served.process.terminate()
            assert served.ended() == 0


class TestProcesses:
    """With --processes."""

    def test_started_again(self, tmp_path: Path, bank: list[str]) -> None:
        """One that is killed is followed by another; all end when told, with 0."""
        options = [*bank, "--processes", "2", "--health", "127.0.0.1:0"]
        with serving("bank:service", *options, marks=tmp_path) as served:
            served.until_serving(2)
            port = port_of(served)
            eventually(lambda: len(asked(port, "/ready")[1]["processes"]) == 2, "both tell their health")
            first, second = served.pids()
            os.kill(first, signal.SIGKILL)
            served.until_serving(3)
            third = served.pids()[2]
            eventually(
                lambda: {each["pid"] for each in asked(port, "/live")[1]["processes"]} == {second, third},
                "the third tells its health",
            )
            served.process.terminate()
            assert served.ended() == 0
        assert re.search(rf"process {first} ended with -9; another starts in 0\.5 s", "".join(served.err))

    def test_usage(self, tmp_path: Path) -> None:
        """What makes no sense is not tried again and again."""
        with serving("bank:nobody", *NOWHERE, "--processes", "2", marks=tmp_path) as served:
            assert served.ended() == 2
        assert "target must be a soapjms.Service, got bank:nobody" in "".join(served.err)

    def test_debug(self, tmp_path: Path) -> None:
        """Where an error is from is shown, by the one process that was started first, and once."""
        (tmp_path / "broken_bank.py").write_text("import soapjms\n1 / 0\n")
        options = [*NOWHERE, "--processes", "2", "--debug"]
        with serving("broken_bank:service", *options, marks=tmp_path, PYTHONPATH=f"{ROOT}:{tmp_path}") as served:
            assert served.ended() == 2
        said = "".join(served.err)
        assert (said.count("Traceback"), said.count("Error: the module")) == (1, 1)

    def test_parent_killed(self, tmp_path: Path, bank: list[str]) -> None:
        """If the one that started them is killed, the others end by themselves."""
        with serving("bank:service", *bank, "--processes", "2", marks=tmp_path) as served:
            served.until_serving(2)
            served.process.kill()
            assert served.ended() == -9  # and its output has ended, which they had too
            for pid in served.pids():
                eventually(lambda: not is_running(pid), "it ended")  # noqa: B023 - called at once

    def test_pauses(self) -> None:
        """Between one that ends soon and the next there is a pause, each twice as long, up to half a minute."""
        slot = ProcessSlot(since=float("inf"))
        assert [slot.pause() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        slot.since = float("-inf")
        assert slot.pause() == 0.5


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


ECHO = """
import soapjms
service = soapjms.Service()
service.operation("{urn:greeter}greetMe")(lambda request: request.element)
"""


@pytest.mark.parametrize("transactions", [True, False])
def test_transactions(transactions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--no-transactions` has requests accepted and answered without any."""
    url, uri, begun = f"embedded:transactions-{transactions}", "jms:queue:bank", list[object]()
    begin = EmbeddedConnection.begin
    monkeypatch.setattr(EmbeddedConnection, "begin", lambda self: (begun.append(self), begin(self))[1])
    (tmp_path / "echoing.py").write_text(ECHO, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    stop, is_ready, ends = Event(), Event(), list[bool]()
    served = ServeOptions(target="echoing:service", connection=url, uri=uri, transactions=transactions)
    report = lambda health: is_ready.set() if health.ready else None  # noqa: E731
    thread = Thread(target=lambda: ends.append(serve(served, stop, report)))
    with connect(url) as connection, Client(connection, uri, timeout=PATIENCE) as client:
        thread.start()
        assert is_ready.wait(PATIENCE)
        assert client.call(envelope("Ann")).fault is None
        stop.set()
        thread.join(PATIENCE)
    assert (bool(begun), ends) == (transactions, [True])


class TestHealthPage:
    """What is told over HTTP."""

    @pytest.fixture
    def board(self) -> Board:
        return Board()

    @pytest.fixture
    def port(self, board: Board) -> Iterator[int]:
        with StatusPage("127.0.0.1:0", health_answers(board)) as page:
            yield page.port

    def test_starting(self, board: Board, port: int) -> None:
        """Before the first report it is live, and not ready."""
        assert asked(port, "/live") == (200, {"live": True, "ready": False, "problem": "", "processes": []})
        assert asked(port, "/ready")[0] == 503

    @pytest.mark.parametrize(
        ("reports", "live", "ready"),
        [
            ([(True, True)], 200, 200),
            ([(True, False)], 200, 503),
            ([(False, False)], 503, 503),
            ([(True, True), (False, False)], 200, 200),
        ],
    )
    def test_reports(self, board: Board, port: int, reports: list[tuple[bool, bool]], live: int, ready: int) -> None:
        """One process that is live or ready is enough."""
        for pid, (is_live, is_ready) in enumerate(reports, 1):
            board.note(pid, Health(is_live, is_ready, "" if is_ready else "why", 0, None))
        assert (asked(port, "/live")[0], asked(port, "/ready?verbose")[0]) == (live, ready)

    def test_hung(self, board: Board, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that tells nothing any more is named, and lives no more, whoever else does; once it ended all is well."""
        now = time.monotonic()
        monkeypatch.setattr("soapjms.serving.status_page.time", SimpleNamespace(monotonic=lambda: now))
        board.note(1, WELL)
        now += STALE_SECONDS
        board.note(2, WELL)
        status, said = asked(port, "/live")
        hung, well = said["processes"]
        assert (status, said["live"], said["ready"]) == (503, False, True)
        assert (hung["pid"], hung["live"], hung["ready"], hung["age"]) == (1, False, False, STALE_SECONDS)
        assert hung["problem"] == "the process has not reported for 15 s: it hangs"
        assert (well["pid"], well["live"], well["problem"]) == (2, True, "")
        assert asked(port, "/ready")[0] == 200
        board.forget(1)
        assert asked(port, "/live")[0] == 200

    def test_ending(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once it is to end nothing is ready, and nothing hangs, however long it takes; who is dead stays so."""
        now, stop = time.monotonic(), Event()
        monkeypatch.setattr("soapjms.serving.status_page.time", SimpleNamespace(monotonic=lambda: now))
        board = Board(stop=stop)
        board.note(1, WELL)
        board.note(2, replace(WELL, live=False, ready=False, problem="closed"))
        board.started(3)
        stop.set()
        now += START_TIMEOUT + STALE_SECONDS
        members = board.members()
        assert (members["live"], members["ready"], board.hung()) == (True, False, {})
        assert [(each["live"], each["problem"]) for each in members["processes"]] == [(True, ENDING), (False, "closed")]

    def test_hung_at_the_start(self, board: Board, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that was started and never reports is given more time, and then named; those that report are not."""
        now = time.monotonic()
        monkeypatch.setattr("soapjms.serving.status_page.time", SimpleNamespace(monotonic=lambda: now))
        for pid in (1, 2, 3):
            board.started(pid)
        board.forget(3)
        now += START_TIMEOUT - 1
        board.note(1, WELL)
        assert (asked(port, "/live")[0], board.hung()) == (200, {})
        now += 1
        status, said = asked(port, "/live")
        well, hung = said["processes"]
        assert (status, said["ready"], well["pid"], well["live"]) == (503, True, 1, True)
        assert (hung["pid"], hung["live"], hung["ready"], hung["under_way"]) == (2, False, False, 0)
        assert board.hung() == {2: "the process has not reported for 120 s: it hangs"}
        board.note(2, WELL)
        assert (asked(port, "/live")[0], board.hung()) == (200, {})

    def test_ended(self, board: Board, port: int) -> None:
        """Of processes that ended is told why, until there is another; a restart of all would not help."""
        board.note(1, WELL)
        board.forget(1, "process 1 ended with 1: no broker")
        said = {"live": True, "ready": False, "problem": "process 1 ended with 1: no broker", "processes": []}
        assert (asked(port, "/live"), asked(port, "/ready")) == ((200, said), (503, said))
        board.note(2, WELL)
        assert asked(port, "/ready")[1]["problem"] == ""

    def test_other_requests(self, port: int) -> None:
        """There is nothing else, and HEAD has no body."""
        assert asked(port, "/metrics") == (404, None)
        head = urllib.request.Request(f"http://127.0.0.1:{port}/live", method="HEAD")
        with urllib.request.urlopen(head, timeout=PATIENCE) as response:
            assert (response.status, response.read()) == (200, b"")
            assert response.headers["Server"].strip() == "soapjms"

    def test_crowd(self, port: int) -> None:
        """Those who connect and say nothing are left after a while; beyond so many the first of them end at once."""
        silent = [
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(2 * MAX_PAGE_CONNECTIONS)
        ]
        assert asked(port, "/live")[0] == 200
        assert [each.recv(1) for each in silent] == [b""] * len(silent)
        for client in silent:
            client.close()
        assert asked(port, "/live")[0] == 200


class TestMetrics:
    """`--metrics`."""

    def test_one_page(self, tmp_path: Path, bank: list[str]) -> None:
        """Metrics may be where health is; what is counted seldom is there before it happens."""
        options = [*bank, "--health", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        with serving("bank:service", *options, marks=tmp_path) as served:
            served.until_serving()
            (port,) = [line.split()[5].rstrip(":") for line in served.out if line.startswith("health and metrics at")]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
                kind, text = response.headers["Content-Type"], response.read().decode()
            assert asked(int(port), "/live")[0] == 200
        assert kind.startswith("text/plain; version=")
        assert 'soapjms_connection_losses_total{destination="queue:bank",side="service"} 0.0' in text

    def test_that_fails(self) -> None:
        """What cannot be told is an error of the page, which goes on."""

        def tell() -> StatusResponse:
            raise OSError("no such file")

        with StatusPage(
            "127.0.0.1:0", {"/metrics": tell, "/live": lambda: StatusResponse("application/json", b"{}")}
        ) as page:
            assert asked(page.port, "/metrics") == (500, None)
            assert asked(page.port, "/live") == (200, {})

    def test_a_guard_that_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        """It lets nobody in, is answered as an error of the page, and logged."""

        def guard(query: str, headers: object) -> None:
            raise ZeroDivisionError("broken")

        with StatusPage("127.0.0.1:0", {"/live": lambda: StatusResponse("text/plain", b"")}, guard) as page:
            assert asked(page.port, "/live") == (500, None)
        assert "ZeroDivisionError: broken" in caplog.text

    def test_no_address(self) -> None:
        """An address that is none is refused before anything begins."""
        done = run("bank:service", *EMBEDDED, "--metrics", "here")
        assert done.exit_code == 2
        assert "such as 127.0.0.1:8080, got 'here'" in done.output


def test_store(tmp_path: Path, bank: list[str]) -> None:
    """The store is a file, made if it is not there."""
    path = tmp_path / "requests.db"
    with serving("bank:service", *bank, "--store", str(path), "--lease", "1", marks=tmp_path) as served:
        served.until_serving()
        served.process.terminate()
        assert served.ended() == 0
    assert path.exists()


def test_store_and_broker_elsewhere(tmp_path: Path) -> None:
    """A store is for one machine, of which is warned where others may serve as well."""
    path = tmp_path / "requests.db"
    with Listener(EmbeddedBroker("elsewhere"), port=0) as listener:
        url = f"amqp://0.0.0.0:{listener.port}"  # this machine, by a name that does not say so
        with serving(
            "bank:service", "--connection", url, "--uri", "jms:queue:bank", "--store", str(path), marks=tmp_path
        ) as served:
            served.until_serving()
            served.process.terminate()
            assert served.ended() == 0
        assert "".join(served.err).count(f"the store {path} is for the processes of this machine") == 1
