"""The log events of both packages: nothing is logged otherwise, and their names and fields are stable and usable."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest

import brokers.events
from brokers.events.log_event import LogEvent
from soapjms import events
from soapjms.cli.serve import IndentedTraceback, JsonLine

ROOT = Path(__file__).resolve().parents[2]
NAMES = ROOT / "tests" / "data" / "log-events.txt"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
TABLES = {"brokers": brokers.events, "soapjms": events}
NUMBER = re.compile(r"%\((\w+)\)[^sr]")
ALL = [*brokers.events.EVENTS, *events.EVENTS]


def calls() -> list[tuple[str, ast.Call, ast.Attribute]]:
    """Return the calls of methods in both packages, each with its place."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node, node.func)
        for package in TABLES
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]


def test_nothing_is_logged_but_by_an_event() -> None:
    loggers = {"log", "logger", "logging"}
    assert [
        place
        for place, _, method in calls()
        if method.attr in LEVELS and isinstance(method.value, ast.Name) and method.value.id in loggers
    ] == []


def test_each_event_is_used_and_gets_its_fields() -> None:
    used = list[LogEvent]()
    for place, call, method in calls():
        if method.attr == "log" and ast.unparse(method.value).startswith("events."):
            assert isinstance(method.value, ast.Attribute)
            event = getattr(TABLES[place.partition("/")[0]], method.value.attr)
            used.append(event)
            if not any(isinstance(each, ast.Starred) for each in call.args):
                assert len(call.args) == len(event.fields), place
    assert set(used) == set(ALL)


def test_names_are_stable() -> None:
    """Whoever changes this list breaks the filters and alarms of users."""
    assert (
        sorted(f"{each.name} {' '.join(each.fields)}".strip() for each in ALL) == NAMES.read_text("utf-8").splitlines()
    )
    assert len({each.name for each in ALL}) == len(ALL)


@pytest.mark.parametrize("event", ALL, ids=lambda each: each.name)
def test_fields_fit_the_text_and_the_record(event: LogEvent) -> None:
    standard = {*vars(logging.makeLogRecord({})), "message", "asctime", "event"}
    assert not standard & set(event.fields)
    assert event.name.isascii()
    assert event.logger.partition(".")[0] in TABLES
    assert event.meaning.endswith(".")


def test_a_record_has_the_event_its_fields_and_the_place_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    hostile = "a\x1b[2J\nb"
    events.REQUEST_EXPIRED.log(hostile, 2.5, "jms:queue:orders")
    (record,) = caplog.records
    assert (record.levelname, record.name, record.filename) == ("WARNING", "soapjms.dispatcher", Path(__file__).name)
    assert "\x1b" not in record.getMessage()
    assert "\n" not in record.getMessage()
    line = JsonLine().format(record)
    assert "\x1b" not in line
    assert "\n" not in line
    members = json.loads(line)
    assert members["event"] == "request.expired"
    assert (members["correlation_id"], members["seconds"], members["destination"]) == (hostile, 2.5, "jms:queue:orders")


class Hostile:
    """A value that is no text, whose text and representation a peer chose."""

    def __str__(self) -> str:
        return "a\x1b[2J\nb\u2028\r"

    __repr__ = __str__


@pytest.mark.parametrize(
    "hostile", [f"{Hostile()}", Hostile(), ValueError(f"{Hostile()}")], ids=["text", "object", "error"]
)
@pytest.mark.parametrize("event", ALL, ids=lambda each: each.name)
def test_no_text_has_control_characters(event: LogEvent, hostile: object, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a peer sends: the fields have it as it came, and the text has its escapes."""
    caplog.set_level(logging.DEBUG, event.logger)
    numbers = set(NUMBER.findall(event.text))
    event.log(*(7 if name in numbers else hostile for name in event.fields))
    assert caplog.records[-1].message.isprintable()
    raw = [name for name in event.fields if name not in numbers]
    assert {getattr(caplog.records[-1], name) for name in raw} <= {f"{Hostile()}"}


def test_json_has_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no such account")
    except ValueError:
        events.OPERATION_FAILED.log("transfer", "jms:queue:orders", "7")
    members = json.loads(JsonLine().format(caplog.records[0]))
    assert members["operation"] == "transfer"
    assert "test_json_has_the_traceback" in members["traceback"]
    assert "no such account" in members["traceback"]


def test_no_error_passes_for_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Tracebacks in the format for people have the words of peers too."""
    try:
        raise ValueError("no such account\n2026-11-29 INFO bank: paid\x1b[1A")
    except ValueError:
        events.OPERATION_FAILED.log("transfer", "jms:queue:orders", "7")
    _, *lines = IndentedTraceback("%(message)s").format(caplog.records[0]).splitlines()
    assert lines[-1] == "  2026-11-29 INFO bank: paid\\x1b[1A"
    assert all(each.startswith("  ") and each.isprintable() for each in lines)


def test_nothing_is_made_of_the_values_while_the_level_is_off() -> None:
    class Untold:
        def __str__(self) -> str:
            raise AssertionError("it was made a text")

    logging.getLogger("soapjms.dispatcher").setLevel(logging.ERROR)
    try:
        events.REQUEST_ADDRESSING_REFUSED.log(Untold(), Untold(), Untold())
    finally:
        logging.getLogger("soapjms.dispatcher").setLevel(logging.NOTSET)
