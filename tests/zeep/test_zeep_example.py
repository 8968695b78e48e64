"""The example of zeep runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from calling_kit import PATIENCE, fresh
from places import ROOT
from real_brokers import RealBroker

import soapjms
import soapjms.zeep
from soapjms import Dispatcher

EXAMPLES = ROOT / "examples"
URL = "stomp://admin:admin@localhost:61613"
SHOWN = """\
SOAP 1.1: Hello World
SOAP 1.2: Hello World
at once: Hello Ann
at once: Hello Bob
at once: Hello Cem
a fault: whom shall I greet? (env:Client)
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


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a broker where the greeter is served; its WSDL is in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "greeter.wsdl").write_bytes((EXAMPLES / "greeter.wsdl").read_bytes())
    url = f"embedded:{fresh('broker')}"
    greeter = example("greeter_service").service
    with (
        soapjms.connect(url) as connection,
        Dispatcher(connection, "jms:queue:greeter", greeter),
    ):
        yield url


def test_the_example(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the service of the other example, in one process."""
    assert example("zeep_client").main([url]) == 0
    assert capsys.readouterr().out.replace("pinged by World\n", "") == SHOWN


def test_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the URL of a broker, it calls a service in its own process."""
    assert example("zeep_client").main([]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith(("greeting ", "pinged by "))) == SHOWN


@pytest.mark.broker
def test_the_example_on_activemq(activemq: RealBroker) -> None:
    """The same as two programs over STOMP."""
    command = [sys.executable, str(EXAMPLES / "greeter_service.py"), activemq.stomp_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline().startswith("serving")
            command = [sys.executable, str(EXAMPLES / "zeep_client.py"), activemq.stomp_url]
            client = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (client.returncode, client.stdout, client.stderr) == (0, SHOWN, "")
        finally:
            service.terminate()
        service.communicate(timeout=PATIENCE)
