"""brokers.environment: variables of connections, under their names and under those that they had before."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from places import ROOT

from brokers.environment import OLD_NAMES, PASSWORD, USER, name_in, variable


def test_the_new_name_wins() -> None:
    """The old one is read if the new one is not set, and not otherwise."""
    assert variable({"SOAPJMS_USER": "new", "BROKERS_USER": "old"}, USER) == "new"
    assert variable({"SOAPJMS_USER": "", "BROKERS_USER": "old"}, USER) == ""
    assert variable({"BROKERS_PASSWORD": "old"}, PASSWORD) == "old"
    assert variable({}, USER) is None
    assert name_in({"BROKERS_USER": "old"}, USER) == "BROKERS_USER"


@pytest.mark.parametrize("name", OLD_NAMES)
def test_names(name: str) -> None:
    """All begin alike, and nothing but the beginning has changed."""
    assert OLD_NAMES[name] == name.replace("SOAPJMS_", "BROKERS_")
    assert name in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


PROGRAM = """
import brokers
for attempt in range(2):
    try:
        brokers.connect("stomp://127.0.0.1:1,127.0.0.1:2", timeout=5)
    except brokers.ConnectionFailedError:
        pass
"""


def warnings_of(**variables: str) -> list[str]:
    """Run a program that reads the variables several times; return what it says without a log of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr.splitlines()


def test_a_warning_once() -> None:
    """All old names are told at once, however often they are read, without values; the new ones need no word."""
    assert warnings_of(BROKERS_USER="me", BROKERS_PASSWORD="s3cret") == [
        "old names of variables are set, which are still read: BROKERS_USER, BROKERS_PASSWORD; the new names are "
        "SOAPJMS_USER, SOAPJMS_PASSWORD"
    ]
    assert warnings_of(SOAPJMS_USER="me", SOAPJMS_PASSWORD="s3cret", BROKERS_USER="you") == []


def test_no_other_prefix() -> None:
    """No file of the product reads a variable with a prefix of ours but by this table."""
    for folder in ("brokers", "soapjms"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "environment.py":
                assert not re.search(r"\bBROKERS_[A-Z]", path.read_text(encoding="utf-8")), path
