"""The examples run: in one process on the embedded broker, and as programs on ActiveMQ."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import runpy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from calling_kit import PATIENCE, eventually, fresh
from lxml import etree
from places import ROOT
from real_brokers import RealBroker

import soapjms
from brokers import Message
from brokers.embedded.connection import EmbeddedConnection

EXAMPLES = ROOT / "examples"
LONGEST_WAIT_MS = 30_000
"""How long an example waits for an answer at most, in milliseconds."""
SHOWN = """\
SOAP 1.1: Hello World
SOAP 1.2: Hello World
at once: Hello Ann
at once: Hello Bob
at once: Hello Cem
a fault: whom shall I greet? (Sender)
pinged
"""


def example(name: str) -> ModuleType:
    """Load an example as a module."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_greeter(capsys: pytest.CaptureFixture[str]) -> None:
    """Service and client of the greeter, in one process."""
    url, stop, shown = f"embedded:{fresh('broker')}", Event(), list[str]()

    def is_pinged() -> bool:
        shown.extend(capsys.readouterr().out.splitlines(keepends=True))
        return "pinged by World\n" in shown

    with soapjms.connect(url), ThreadPoolExecutor(1) as other:
        served = other.submit(example("greeter_service").main, [url], stop.wait)
        try:
            assert example("greeter_client").main([url]) == 0
            eventually(is_pinged, "the ping arrived")
        finally:
            stop.set()
        assert served.result(PATIENCE) == 0
    shown.extend(capsys.readouterr().out.splitlines(keepends=True))
    service = {"serving jms:queue:greeter at embedded\n", "pinged by World\n", "answered 6 requests\n"}
    assert "".join(line for line in shown if line not in service) == SHOWN
    assert service < set(shown)


def test_typed_service(capsys: pytest.CaptureFixture[str]) -> None:
    """The typed greeter, called through zeep by the same WSDL, in both SOAP versions."""
    url, stop, shown = f"embedded:{fresh('broker')}", Event(), list[str]()

    def is_pinged() -> bool:
        shown.extend(capsys.readouterr().out.splitlines())
        return "pinged by World" in shown

    with soapjms.connect(url), ThreadPoolExecutor(1) as other:
        served = other.submit(example("typed_service").main, [url], stop.wait)
        try:
            assert example("zeep_client").main([url]) == 0
            eventually(is_pinged, "the ping arrived")
        finally:
            stop.set()
        assert served.result(PATIENCE) == 0
    shown.extend(capsys.readouterr().out.splitlines())
    assert {"greeting World in SOAP 1.1", "greeting World in SOAP 1.2", "a fault: whom shall I greet? (env:Client)"} < {
        *shown
    }
    assert [each for each in shown if each.startswith("at once")] == SHOWN.splitlines()[2:5]


@pytest.mark.parametrize("name", ["greeter_service", "greeter_client", "typed_service", "zeep_client"])
def test_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """When it is asked for help, an example says how it is run."""
    main = example(name).main
    assert (main(["--help"], Event().wait) if name.endswith("service") else main(["--help"])) == 2
    assert f"python examples/{name}.py [stomp://" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(each, id=each.stem, marks=[pytest.mark.spark] * (each.stem == "replay_on_spark"))
        for each in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_without_arguments(path: Path, tmp_path: Path) -> None:
    """Each example runs without a broker or anything else of the reader's, in any folder, and ends."""
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "asyncio_greeter",
        "bridge",
        "capture_and_replay",
        "demo",
        "fastapi_greeter",
        "greeter_client",
        "mtom_photos",
        "zeep_client",
    ],
)
def test_no_request_outlives_its_caller(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example waits for expires when it stops waiting, if no service has taken it until then."""
    requests = list[tuple[Message, float]]()
    send = EmbeddedConnection.send

    def noted(self: EmbeddedConnection, message: Message, *arguments: Any, **options: Any) -> Any:
        if message.reply_to is not None:
            requests.append((message, time.time() * 1000))
        return send(self, message, *arguments, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, *(["--engine", "local"] if name == "demo" else [])])
    monkeypatch.setattr(EmbeddedConnection, "send", noted)
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert requests
    for message, at in requests:
        assert message.expiration is not None
        assert 0 < message.expiration - at <= LONGEST_WAIT_MS


WITHOUT = """\
import runpy, sys
for name in sys.argv[2:]:
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
sys.argv[1:] = [sys.argv[1]]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Runs an example as if some packages were not installed."""


@pytest.mark.parametrize(
    ("name", "missing", "told"),
    [
        ("bridge", ["starlette"], "soapjms.bridge.http needs starlette (…): pip install 'soapjms[bridge]'"),
        ("bridge", ["uvicorn"], "soapjms.bridge.listener needs uvicorn (…): pip install 'soapjms[bridge]'"),
        ("fastapi_greeter", ["fastapi"], "…: this example needs pip install fastapi 'soapjms[bridge]'"),
        ("test_greeter", ["pytest", "_pytest"], "…: this example needs pip install 'soapjms[testing]'"),
        (
            "replay_on_spark",
            ["pandas", "py4j", "pyspark"],
            "Error: pyspark is not installed. Type: pip install 'soapjms[spark]'",
        ),
    ],
)
def test_without_its_extra(name: str, missing: list[str], told: str, tmp_path: Path) -> None:
    """An example that needs another extra than those of the README's first line says what to type."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(EXAMPLES / f"{name}.py"), *missing],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    start, _, end = told.partition("…")
    lines = done.stderr.splitlines()
    assert any(line.startswith(start) and line.endswith(end) for line in lines), done.stderr


@pytest.fixture(params=["embedded", pytest.param("activemq", marks=pytest.mark.broker)])
def url(request: pytest.FixtureRequest) -> str:
    """A broker."""
    if request.param == "embedded":
        return f"embedded:{fresh('broker')}"
    stomp_url: str = request.getfixturevalue(request.param).stomp_url
    return stomp_url


def test_topic_news(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A one-way message on a topic reaches everybody who listens."""
    assert example("topic_news").main([url]) == 0
    assert capsys.readouterr().out == "paper: Snow in June\nradio: Snow in June\n"


def test_mtom_photos(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A photo goes as an attachment and comes back as one, each octet as it was."""
    photo, framed = tmp_path / "photo.png", tmp_path / "framed.png"
    photo.write_bytes(bytes(range(256)) * 10)
    assert example("mtom_photos").main([url, str(photo), str(framed)]) == 0
    assert framed.read_bytes() == b"===" + photo.read_bytes() + b"==="
    assert capsys.readouterr().out == "sent 2560 octets, got 2566\nas multipart/related\n"


def test_bridge(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """HTTP in, JMS between, a WSGI application behind."""
    assert example("bridge").main([url]) == 0
    assert capsys.readouterr().out == "Hello Ann\nHello Bob\n"


def test_asyncio_greeter(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """asyncio on both sides."""
    assert example("asyncio_greeter").main([url]) == 0
    assert capsys.readouterr().out == "Hello Ann\nHello Bob\nHello Cem\n"


def test_capture_and_replay(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broken request is found, and no other rule is broken; the folder need not be there."""
    folder = tmp_path / "a" / "b"
    assert example("capture_and_replay").main([url, str(folder)]) == 0
    assert capsys.readouterr().out == (
        "captured 4 messages\nreplayed 2 exchanges: failed\nProtocol-2016: SOAPJMS_contentType is missing or empty\n"
    )
    assert (folder / "report" / "report.html").is_file()


@pytest.mark.parametrize("name", ["topic_news", "mtom_photos", "asyncio_greeter", "bridge", "capture_and_replay"])
def test_usage_of_the_others(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So do these."""
    assert example(name).main(["--help"]) == 2
    assert f"python examples/{name}.py [stomp://" in capsys.readouterr().err


def test_demo(tmp_path: Path) -> None:
    """What `make demo` runs, but for Spark: it ends with 0 if everything came out as it should."""
    words = [sys.executable, str(EXAMPLES / "demo.py"), "--out", str(tmp_path / "demo"), "--engine", "local"]
    where = {"PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(words, cwd=tmp_path, env=where, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "missingRequestURI" in done.stdout
    assert (tmp_path / "demo" / "replay" / "report.html").is_file()


async def ask(app: Any, query: str) -> tuple[int, Any]:
    """Send a GET of /greeting to an ASGI application, as a server would; return status and answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/greeting",
        "raw_path": b"/greeting",
        "query_string": query.encode(),
        "root_path": "",
        "headers": [],
    }
    await app(scope, receive, send)
    body = b"".join(event.get("body", b"") for event in sent)
    return sent[0]["status"], json.loads(body)


def test_fastapi_greeter(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An HTTP request becomes a call; a fault, and a name that XML cannot hold, become HTTP errors."""
    monkeypatch.setenv("SOAPJMS_CONNECTION", url)
    app = example("fastapi_greeter").app
    service = example("greeter_service")

    async def ask_all(*queries: str) -> list[tuple[int, Any]]:
        async with app.router.lifespan_context(app):
            answers = [await ask(app, query) for query in queries]
            count = await asyncio.to_thread(counter.call, etree.Element("{urn:greeter}countGreetings"))
            assert count.element is not None
            assert count.element.text == "2"
            return answers

    with (
        soapjms.connect(url) as connection,
        soapjms.Dispatcher(connection, service.URI, service.service),
        soapjms.Client(connection, "jms:queue:greetings", timeout=PATIENCE) as counter,
    ):
        answers = asyncio.run(ask_all("name=World", "name=%3CEve%3E", "name=", "name=%00"))
    assert answers[:3] == [
        (200, {"greeting": "Hello World"}),
        (200, {"greeting": "Hello <Eve>"}),
        (422, {"detail": "whom shall I greet?"}),
    ]
    assert answers[3][0] == 422


def test_fastapi_greeter_as_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The greeter and the application are at the same broker, which may be one of the environment."""
    monkeypatch.setenv("SOAPJMS_CONNECTION", f"embedded:{fresh('broker')}")
    asyncio.run(example("fastapi_greeter").main())
    assert capsys.readouterr().out == '{"greeting":"Hello World"}\n'


def test_fastapi_greeter_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence becomes an HTTP error too."""
    monkeypatch.setenv("SOAPJMS_CONNECTION", f"embedded:{fresh('broker')}")
    app = example("fastapi_greeter").app

    async def ask_in_vain() -> tuple[int, Any]:
        async with app.router.lifespan_context(app):
            app.state.greeter.client.timeout = 0.1
            return await ask(app, "name=World")

    assert asyncio.run(ask_in_vain()) == (504, {"detail": "the greeter did not answer in time"})


@pytest.mark.broker
def test_greeter_on_activemq(activemq: RealBroker) -> None:
    """The same as two programs over STOMP; the service ends when it is asked to."""
    command = [sys.executable, str(EXAMPLES / "greeter_service.py"), activemq.stomp_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            command = [sys.executable, str(EXAMPLES / "greeter_client.py"), activemq.stomp_url]
            client = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (client.returncode, client.stdout, client.stderr) == (0, SHOWN, "")
            assert service.stdout is not None
            assert "pinged by World\n" in iter(service.stdout.readline, "")
        finally:
            service.terminate()
        rest, _ = service.communicate(timeout=PATIENCE)
    assert (service.returncode, rest) == (0, "answered 6 requests\n")
