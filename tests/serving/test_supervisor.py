"""`soapjms.serving` as a program uses it: a service with its page, in one process and in several."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest
from calling_kit import PATIENCE, envelope, eventually, text_of
from ports import nobody
from serving_kit import SERVICES, asked

from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.errors import BrokerError
from soapjms import Client, Dispatcher, Request, Service, UsageError, connect
from soapjms.observing import Health
from soapjms.serving import Board, ServeOptions, StatusPage, health_answers, serve, watch
from soapjms.serving.status_page import ENDING

URI = "jms:queue:bank"


class Program:
    """A program that serves on a thread of its own, and what it was told."""

    def __init__(
        self,
        options: ServeOptions,
        initializer: Callable[[], None] | None = None,
        error: Exception | None = None,
    ) -> None:
        self.stop = Event()
        self.told: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._error = error  # raised by each announcement
        self._end: Future[bool] = Future()
        self._thread = Thread(target=self._serve, args=[options, initializer])
        self._thread.start()

    def _serve(self, options: ServeOptions, initializer: Callable[[], None] | None) -> None:
        try:
            self._end.set_result(serve(options, self.stop, announce=self._announce, initializer=initializer))
        except Exception as error:
            self._end.set_exception(error)

    def _announce(self, text: str, members: Mapping[str, Any]) -> None:
        self.told.put(members)
        if self._error is not None:
            raise self._error

    def ended(self) -> bool:
        """End it; return what `serve` returned, or raise what it raised."""
        self.stop.set()
        self._thread.join(PATIENCE)
        return self._end.result(0)


def echoing() -> Service:
    """Make a service that answers with what it gets."""
    service = Service()
    service.operation("{urn:greeter}greetMe")(lambda request: request.element)
    return service


def test_a_service_with_its_page() -> None:
    """A service of the program's own is served, tells over HTTP that it is ready, and ends when told."""
    url = "embedded:serving-program"
    program = Program(ServeOptions(target=echoing(), connection=url, uri=URI, health="127.0.0.1:0"))
    try:
        page = program.told.get(timeout=PATIENCE)
        assert (page["telling"], page["paths"]) == ("health", ["/live", "/ready"])
        assert program.told.get(timeout=PATIENCE) == {
            "serving": "queue:bank", "broker": "embedded", "process": os.getpid(),
        }  # fmt: skip
        eventually(lambda: asked(page["port"], "/ready")[0] == 200, "it is ready")
        with connect(url) as connection, Client(connection, URI, timeout=PATIENCE) as client:
            client.call(envelope("Ann")).raise_for_fault()
    finally:
        assert program.ended()
    with pytest.raises(OSError, match="refused"):
        asked(page["port"], "/live")


def test_an_announcement_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """As when the reader of standard output has ended: the log has it, and serving goes on."""
    url = "embedded:serving-unwritten"
    options = ServeOptions(target=echoing(), connection=url, uri=URI)
    program = Program(options, error=BrokenPipeError(32, "Broken pipe"))
    try:
        program.told.get(timeout=PATIENCE)
        with connect(url) as connection, Client(connection, URI, timeout=PATIENCE) as client:
            client.call(envelope("Ann")).raise_for_fault()
    finally:
        assert program.ended()
    assert "serving queue:bank at embedded" in caplog.text
    assert "standard output did not take that line: [Errno 32] Broken pipe" in caplog.text


def test_functions_of_the_program() -> None:
    """Middleware and what says who sent a request are given as functions, too."""
    url, seen = "embedded:serving-functions", list[str]()
    options = ServeOptions(
        target=echoing(),
        connection=url,
        uri=URI,
        middleware=(lambda request, handle: (seen.append("middleware"), handle(request))[1],),
        verify=lambda request, element: (seen.append("verify"), "Ann")[1],
    )
    program = Program(options)
    try:
        program.told.get(timeout=PATIENCE)
        with connect(url) as connection, Client(connection, URI, timeout=PATIENCE) as client:
            client.call(envelope("Ann")).raise_for_fault()
    finally:
        assert program.ended()
    assert seen == ["verify", "middleware"]


def test_while_it_ends() -> None:
    """It is live and not ready, as it finishes requests and takes no others."""
    url, begun, goes_on = "embedded:serving-ends", Event(), Event()
    service = Service()

    @service.operation("{urn:greeter}greetMe")
    def greet(request: Request) -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE)
        return request.element

    program = Program(ServeOptions(target=service, connection=url, uri=URI, health="127.0.0.1:0"))
    try:
        port = program.told.get(timeout=PATIENCE)["port"]
        program.told.get(timeout=PATIENCE)
        eventually(lambda: asked(port, "/ready")[0] == 200, "it is ready")
        with connect(url) as connection, Client(connection, URI, timeout=PATIENCE) as client:
            answer = client.submit(envelope("Ann"))
            assert begun.wait(PATIENCE)
            program.stop.set()
            status, said = asked(port, "/ready")
            assert (status, said["live"], said["processes"][0]["problem"]) == (503, True, ENDING)
            assert asked(port, "/live")[0] == 200
            goes_on.set()
            answer.result(PATIENCE).raise_for_fault()
    finally:
        goes_on.set()
        assert program.ended()


def test_a_dispatcher_of_the_program() -> None:
    """It is watched until it lives no more; the page tells how it is."""
    board, found, stop = Board(), Future[Health | None](), Event()
    with (
        connect("embedded:serving-watched") as connection,
        Dispatcher(connection, URI, echoing()) as dispatcher,
        StatusPage("127.0.0.1:0", health_answers(board)) as page,
    ):
        watching = Thread(
            target=lambda: found.set_result(watch(dispatcher.health, stop, partial(board.note, os.getpid())))
        )
        watching.start()
        try:
            eventually(lambda: asked(page.port, "/ready")[0] == 200, "it is ready")
            connection.close()
            health = found.result(PATIENCE)
        finally:
            stop.set()
            watching.join(PATIENCE)
        assert health is not None
        assert not health.live
        assert asked(page.port, "/live")[0] == 503


def note(folder: Path) -> None:
    """Note that this process has begun."""
    (folder / f"{os.getpid()}").touch()


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is set up as the program wants, and the program hears what each serves; all end when told."""
    monkeypatch.chdir(SERVICES)
    monkeypatch.setenv("BANK_MARKS", f"{tmp_path}")
    with Listener(Broker(), port=0) as listener:
        url = f"amqp://127.0.0.1:{listener.port}"
        program = Program(
            ServeOptions(target="bank:service", connection=url, uri=URI, processes=2), partial(note, tmp_path)
        )
        try:
            served = [program.told.get(timeout=PATIENCE) for _ in range(2)]
            assert [each["serving"] for each in served] == ["queue:bank"] * 2
            pids = {each["process"] for each in served}
            assert pids == {int(each.name) for each in tmp_path.iterdir()}
            assert os.getpid() not in pids
            with connect(url) as connection, Client(connection, URI, timeout=PATIENCE) as client:
                assert int(text_of(client.call(envelope("Ann", operation="work")))) in pids
        finally:
            assert program.ended()


def test_a_module_that_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that is started while the module cannot be imported, as during a deployment, ends no other."""
    monkeypatch.chdir(tmp_path)
    module = Path("deployed_bank.py")
    module.write_text(f"import sys; sys.path.append({str(SERVICES)!r})\nfrom bank import service\n")
    with Listener(Broker(), port=0) as listener:
        url = f"amqp://127.0.0.1:{listener.port}"
        program = Program(ServeOptions(target="deployed_bank:service", connection=url, uri=URI, processes=2))
        try:
            first, _ = (program.told.get(timeout=PATIENCE)["process"] for _ in range(2))
            works = module.read_text()
            module.write_text("this is being deployed")
            os.kill(first, signal.SIGKILL)
            eventually(lambda: "module deployed_bank cannot be imported" in caplog.text, "the log says it")
            module.write_text(works)
            assert program.told.get(timeout=PATIENCE)["serving"] == "queue:bank"
        finally:
            assert program.ended()
    assert re.search(
        r"process \d+ ended with 1: the module deployed_bank cannot .*; another starts in 1 s", caplog.text
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_what_makes_no_sense(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the program, in however many processes, and is told as it is."""
    monkeypatch.chdir(SERVICES)
    monkeypatch.syspath_prepend(SERVICES)
    with pytest.raises(
        UsageError, match=r"target must be a soapjms\.Service, got bank:nobody; /.*/bank\.py has: bank:service"
    ):
        serve(ServeOptions(target="bank:nobody", connection="embedded:", uri=URI, processes=processes), Event())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": 0}, "processes must be a whole number of at least 1, got 0"),
        ({"processes": -1}, "processes must be a whole number of at least 1"),
        ({"processes": "2"}, "processes must be a whole number of at least 1, got '2'"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"prefetch": 1.5}, "prefetch must be a whole number of at least 1"),
        ({"max_deliveries": None}, "max_deliveries must be a whole number of at least 1"),
        ({"grace": "x"}, "grace must be a finite number of seconds, at least 0, got 'x'"),
        ({"grace": -1}, "grace must be a finite number"),
        ({"start_timeout": "x"}, "start_timeout must be a positive, finite number of seconds"),
        ({"stalled_after": 0}, "stalled_after must be a positive"),
        ({"lease": -1}, "lease must be a positive"),
        ({"transaction_timeout": float("nan")}, "transaction_timeout must be a positive"),
        ({"transactions": "no"}, "transactions must be True or False, got 'no'"),
        ({"traces": 1}, "traces must be True or False"),
        ({"target": 5}, r"target must be a soapjms\.Service, or MODULE:NAME of one, got 5"),
        ({"connection": b"embedded:"}, "connection must be the URL of the broker, got a bytes"),
        ({"middleware": "a:b"}, "middleware must be a tuple or list, got 'a:b'"),
        ({"reply_queue": "answers"}, "reply_queue must be a tuple"),
        ({"allow": "/usr"}, r"allow must be a tuple or list, got '/usr'; write \['/usr'\]"),
        ({"allow": Path("/usr")}, "allow must be a tuple or list, got PosixPath"),
        ({"processes": 2, "verify": lambda request, security: "me"}, "verify must be MODULE:NAME, or a function that"),
        ({"processes": 2, "middleware": [lambda request, call_next: None]}, "middleware must be MODULE:NAME, or a fun"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    """They are refused when the options are made, before anything is served."""
    given: dict[str, Any] = {"target": "bank:service", "connection": "embedded:", "uri": URI, **options}
    with pytest.raises(UsageError, match=says):
        ServeOptions(**given)


def test_several_processes_import_the_service() -> None:
    """A service of the program's own is not another process's."""
    with pytest.raises(UsageError, match=r"target must be MODULE:NAME for several processes.*got <soapjms.*Service"):
        serve(ServeOptions(target=echoing(), connection="embedded:", uri=URI, processes=2), Event())


def test_no_broker() -> None:
    """One process does not try again: that is the program's to decide."""
    with nobody() as port, pytest.raises(BrokerError, match=r"no connection to stomp://127\.0\.0\.1"):
        serve(ServeOptions(target=echoing(), connection=f"stomp://127.0.0.1:{port}", uri=URI), Event())


def test_the_end_while_the_broker_does_not_answer() -> None:
    """Serving ends at once, and a connection that comes about later is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        program = Program(ServeOptions(target=echoing(), connection=url, uri=URI))
        broker, _ = listener.accept()
        with broker:
            assert broker.recv(1)
            assert program.ended()
            broker.settimeout(PATIENCE)
            broker.sendall(b"CONNECTED\nversion:1.2\n\n\0")
            while broker.recv(65536):
                pass


def test_options_are_picklable() -> None:
    """As each of several processes gets them."""
    options = ServeOptions(target="bank:service", connection="embedded:", uri=URI, properties={"timeToLive": "1"})
    assert pickle.loads(pickle.dumps(options)) == options
