"""The examples run: in one process on the embedded broker, and as programs on ActiveMQ."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
from calling_kit import PATIENCE, eventually, fresh
from real_brokers import RealBroker

import soapjms

EXAMPLES = Path(__file__).parent.parent / "examples"
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
        served = other.submit(example("greeter_service").main, [url], stop)
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


@pytest.mark.parametrize("name", ["greeter_service", "greeter_client"])
def test_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the URL of a broker, an example says how it is run."""
    main = example(name).main
    assert (main([], Event()) if name == "greeter_service" else main([])) == 2
    assert f"python examples/{name}.py stomp://" in capsys.readouterr().err


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
