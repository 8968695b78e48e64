"""What README and docs/zeep.md show of zeep runs as it stands; so does the example."""

from __future__ import annotations

import asyncio
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from calling_kit import PATIENCE, fresh
from lxml import etree
from places import ROOT
from real_brokers import RealBroker
from zeep_kit import NS, gallery_wsdl, made

import soapjms
import soapjms.zeep
from soapjms import Dispatcher, Request, Service

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


def blocks(path: Path) -> list[str]:
    """Return the Python of a page that names a WSDL."""
    found: list[str] = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [each for each in found if ".wsdl" in each and "soapjms.zeep" in each]


def example(name: str) -> ModuleType:
    """Load an example as a module."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gallery() -> Service:
    """Make a service that says how many attachments came."""
    service = Service()

    @service.operation(f"{{{NS}}}frame")
    def frame(request: Request) -> etree._Element:
        print(f"{len(request.attachments)} attachments")
        return made("framed", title="")

    return service


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a broker where greeter and gallery are served; their WSDLs are in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "greeter.wsdl").write_bytes((EXAMPLES / "greeter.wsdl").read_bytes())
    (tmp_path / "gallery.wsdl").write_text(gallery_wsdl(), encoding="utf-8")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    url = f"embedded:{fresh('broker')}"
    greeter = example("greeter_service").service
    with (
        soapjms.connect(url) as connection,
        Dispatcher(connection, "jms:queue:greeter", greeter),
        Dispatcher(connection, "jms:queue:gallery", gallery()),
    ):
        yield url


def test_the_quick_start(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From a WSDL to an answer in at most ten lines."""
    (block,) = blocks(ROOT / "README.md")
    assert len(block.splitlines()) <= 10
    exec(compile(block.replace(URL, url), "README.md", "exec"), {})
    assert capsys.readouterr().out == "Hello World\n"


def test_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each block, with a connection and the imports that it stands in for."""
    found = blocks(ROOT / "docs" / "zeep.md")
    assert len(found) == 3
    for block in found:
        with soapjms.connect(url) as connection:
            scope: dict[str, Any] = {
                "soapjms": soapjms, "connection": connection, "pathlib": pathlib, "asyncio": asyncio
            }  # fmt: skip
            exec(compile(block.replace(URL, url), "docs/zeep.md", "exec"), scope)
            if "main" in scope:
                asyncio.run(scope["main"]())
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if "attachments" in line] == [
        "1 attachments",
        "0 attachments",
        "1 attachments",
    ]
    assert "['Hello Ann', 'Hello Bob']" in shown


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
