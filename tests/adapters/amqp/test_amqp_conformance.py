"""The claim of docs/conformance-amqp.md: which roles, and that each is shown by tests of its own."""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import pytest
from places import ROOT

sys.path.insert(0, str(ROOT / "tools/docs"))

import amqp as page

ROLES = {
    "provider": {"test_amqp_terminus", "test_amqp_listener", "test_amqp_rhea"},
    "user": {"test_amqp_user"},
    "client": {"test_amqp_websocket", "test_amqp_user"},
    "server": {"test_amqp_listener"},
}
"""The files that show a role, by what the rows call it."""

TOLD = tomllib.loads((ROOT / "tools/docs/amqp.toml").read_text("utf-8"))["specification"]
ROWS = [row for specification in TOLD for row in specification["rows"]]


@pytest.mark.parametrize("row", [row for row in ROWS if row[2] in ROLES], ids=lambda row: row[0])
def test_at20_each_role_is_judged_by_its_own_rows(row: list[Any]) -> None:
    """AT-20: what binds one role is shown by a test of that role."""
    name, _, role, *_ = row
    assert [each for each in page.named_in_tests()[name] if each.partition("::")[0] in ROLES[role]]


def test_ws36_every_must_is_shown() -> None:
    """AT-20, WS-36: both roles of both specifications are claimed, and each MUST has a test."""
    assert ["*user*" in each["text"] and "*provider*" in each["text"] for each in TOLD] == [True, False]
    assert "*client*" in TOLD[1]["text"]
    assert "*server*" in TOLD[1]["text"]
    shown = page.named_in_tests()
    assert [row[0] for row in ROWS if row[3].startswith("MUST") and not shown[row[0]]] == []


def test_other_brokers_were_asked_or_it_is_said_why_not() -> None:
    """Each requirement once: as one of a test at other people's brokers, or with the reason why there is none."""
    told = tomllib.loads((ROOT / "tools/docs/amqp.toml").read_text("utf-8"))
    unasked = [each for names, _ in told["not_asked"]["rows"] for each in page.identifiers(names)]
    asked = page.found_asked()
    assert len(set(unasked)) == len(unasked)
    assert not asked & set(unasked)
    assert {row[0] for row in ROWS if row[3] != "definition"} - asked - set(unasked) == set()
