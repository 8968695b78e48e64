"""The journey of a new user: the wheel with one extra alone does what that extra is for, and brings nothing else.

The extras that install quickly; `make journey` has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from distribution_kit import build
from journey import COLLECTIONS, LEGS, NONE, PAGE, JourneyError, Leg, Visit, extras, run, travel, uninvited

QUICK = ("none", "cli", "zeep", "bridge", "codegen", "replay", "wsse", "prometheus", "opentelemetry", "testing")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build(tmp_path_factory.mktemp("built"))[0]


@pytest.mark.peer
@pytest.mark.parametrize("extra", QUICK)
def test_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    """It installs, its program does all its steps, and no package of another extra came with it."""
    visit = travel(extra, wheel, tmp_path / "journey")
    assert visit.steps
    assert uninvited(visit) == frozenset()


@pytest.mark.peer
@pytest.mark.broker
def test_over_a_network(wheel: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With the extra for STOMP a service and a client find each other at a real broker."""
    url: str = request.getfixturevalue("activemq").stomp_url
    visit = travel("stomp", wheel, tmp_path / "journey", url)
    assert [step for step, _ in visit.steps] == ["service", "call"]
    assert uninvited(visit) == frozenset()


def test_all_extras() -> None:
    """Every extra of pyproject.toml has its leg, or is made of others."""
    assert LEGS.keys() | COLLECTIONS == extras().keys()


def test_what_must_not_come() -> None:
    """A package that only another extra names is told; what the extra names by way of others, or needs, is not."""
    visit = Visit("cli", 1.0, frozenset({"click", "rich", "lxml", "pygments", "pyarrow"}), 1.0, ())
    assert uninvited(visit) == {"pyarrow"}
    wsse = Visit("wsse", 1.0, frozenset({"zeep", "xmlsec", "requests"}), 1.0, ())
    assert uninvited(wsse) == frozenset()
    bridge = Visit("bridge", 1.0, frozenset({"click", "rich", "uvicorn"}), 1.0, ())
    assert uninvited(bridge) == {"rich"}, "uvicorn needs click"


def test_a_program_that_fails(tmp_path: Path) -> None:
    """Its error is in that of the journey; the steps before it are told."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first\necho because >&2\nexit 3\n")
    python.chmod(0o755)
    steps = run(python, Leg("", "greet"), tmp_path, "")
    assert next(steps)[0] == "first"
    with pytest.raises(JourneyError, match=r"greet.py ended with 3: because"):
        next(steps)


def test_the_page_has_them_all() -> None:
    """docs/install.md has a row for each; `make journey` writes its figures."""
    named = re.findall(
        r"^\| `?([a-z]+)`? \|.*\| \d+ \| \d+ \| \d+ \|.*\d\.\d \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert named == [*LEGS]
    assert named[0] == NONE
