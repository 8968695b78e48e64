"""Every command speaks JSON: those that come to an end print one object, those that serve one a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pytest
from calling_kit import PATIENCE, eventually, fresh
from cli_kit import commands, run, said
from places import ROOT
from replay_logs import at, request
from serving_kit import started
from wsdl_kit import DATA

import soapjms
from brokers import properties, queue
from soapjms.protocol.record import Direction, capture, to_json

WSDL = DATA / "echo-soap11.wsdl"
CXF = ROOT / "tests" / "data" / "cxf-exchanges.jsonl"
EMBEDDED = ["--connection", "embedded:"]
HERE = "127.0.0.1:0"


LEAVES: Final = {" ".join(words): each for words, each in commands() if not isinstance(each, click.Group)}


def replayed(folder: Path) -> Path:
    """Make the results of a replay."""
    said("replay", CXF, "--local", "--out", folder / "report", status=1)
    return folder / "report"


ENDING: Final[Mapping[str, Callable[[Path], tuple[Sequence[object], int]]]] = {
    "call": lambda folder: ([WSDL], 0),
    "capture": lambda folder: (["--setting", "artemis"], 0),
    "doctor": lambda folder: ([*EMBEDDED, "--out", folder], 0),
    "explain": lambda folder: (["jms:queue:a?priority=7"], 0),
    "generate": lambda folder: ([folder / "made", "--messages", "20"], 0),
    "replay": lambda folder: ([CXF, "--local", "--out", folder / "report"], 1),
    "report": lambda folder: ([replayed(folder)], 0),
    "unsubscribe": lambda folder: (["archive", *EMBEDDED, "--uri", "jms:topic:news"], 0),
    "uri parse": lambda folder: (["jms:queue:a"], 0),
    "wsdl add-port": lambda folder: ([WSDL, "--to", "jms:queue:b", "-o", folder / "more.wsdl"], 0),
    "wsdl generate": lambda folder: ([WSDL, "--package", "echo_client", "--out", folder], 0),
    "wsdl inspect": lambda folder: ([WSDL], 0),
    "wsdl lint": lambda folder: ([WSDL], 0),
}
"""How each is run, and the status that it ends with. What a call and a capture find, their own tests read as JSON."""

SERVING: Final[Mapping[str, Sequence[str]]] = {
    "bridge http": ["--to", "jms:queue:a", "--listen", HERE, "--health", HERE],
    "bridge wsgi": ["wsgi_greeter:application", "--uri", "jms:queue:a", "--health", HERE],
    "broker": ["--smqp", HERE, "--amqp", HERE],
    "serve": ["bank:service", "--uri", "jms:queue:a", "--health", HERE],
}
"""How those are run that go on until they are told to end, all but `broker` with a broker; each says two places."""


def test_every_command_is_here() -> None:
    """And has the option, in the same words."""
    assert {*ENDING, *SERVING} == set(LEAVES)
    for path, command in LEAVES.items():
        (option,) = [each for each in command.params if "--json" in each.opts]
        assert (option.name, getattr(option, "is_flag", False)) == ("as_json", True), path


@pytest.mark.parametrize("path", ENDING)
def test_those_that_end(path: str, tmp_path: Path) -> None:
    """One object, and nothing on standard error."""
    arguments, status = ENDING[path](tmp_path)
    with soapjms.connect(*EMBEDDED[1:]):
        found = said(*path.split(), *arguments, status=status)
    assert isinstance(found, dict)
    assert found


@pytest.mark.parametrize("path", SERVING)
def test_those_that_serve(path: str, shared_url: str, tmp_path: Path) -> None:
    """An object a line for each place, at once."""
    variables = {"BANK_MARKS": str(tmp_path)} | ({} if path == "broker" else {"SOAPJMS_CONNECTION": shared_url})
    with started(*path.split(), *SERVING[path], "--json", **variables) as served:
        eventually(lambda: len(served.out) == 2 or served.process.poll() is not None, "both places are said")
        places: list[Any] = [json.loads(line) for line in served.out]
        served.process.terminate()
        assert served.ended() == 0, "".join(served.err)
    assert len(served.out) == 2
    assert all(isinstance(each, dict) and each for each in places)


def test_what_a_log_says_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    """In the objects of replay and report, controls and formats are escapes; letters stay as they are."""
    name = "Bö\x9b2J\u202e"
    asked = capture(request(1, destination=queue(name)), at(1), Direction.REQUEST)
    (tmp_path / "log.jsonl").write_text(to_json(asked) + "\n", encoding="utf-8")
    replay = run("replay", tmp_path / "log.jsonl", "--local", "--out", tmp_path / "out", "--json")
    report = run("report", tmp_path / "out", "--json")
    compared = run("report", tmp_path / "out", tmp_path / "out", "--json")
    for done in (replay, report, compared):
        assert done.stderr == ""
        assert r"Bö\u009b2J\u202e" in done.stdout
        assert name in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_lists() -> None:
    """What only lists something does so too."""
    assert "charset" in said("generate", "--list")["violations"]
    assert said("capture", "--setting", "activemq")["file"].startswith("conf/activemq.xml")
    assert said("call", WSDL)["operations"]


def test_a_call() -> None:
    """What is answered is in it, with the messages."""
    url, uri = f"embedded:{fresh('broker')}", "jms:queue:echo"
    service = soapjms.Service.from_wsdl(WSDL)
    service.operation("greetMe")(lambda requestType: f"Hello {requestType}")
    with soapjms.connect(url) as connection, soapjms.Dispatcher(connection, uri, service):
        broken = capture(request(1, destination=queue("echo"), properties=properties({})), at(1), Direction.REQUEST)
        again = said("call", "--connection", url, "--record", "-", status=1, stdin=to_json(broken).encode())
        assert again["findings"]
        words = ["--connection", url, "--uri", uri, "--timeout", PATIENCE, WSDL, "greetMe", "requestType=Bob"]
        assert said("call", *words)["result"] == "Hello Bob"
