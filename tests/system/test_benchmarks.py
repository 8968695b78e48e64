"""The benchmarks' kit: a run writes results that hold what was measured, and they can be drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from lxml import etree
from places import ROOT

BENCHMARKS = ROOT / "benchmarks"


def run(name: str, *arguments: str) -> str:
    """Run a benchmark and return what it prints."""
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_results_and_pictures(tmp_path: Path) -> None:
    """Each side of each round is in the file of results, with its ratio over the first side; the picture names them."""
    printed = run("calls.py", "--rows", "embedded", "--pairs", "2", "--seconds", "0.1", "--results", str(tmp_path))
    results: dict[str, Any] = json.loads((tmp_path / "embedded.json").read_text())
    assert results["machine"]["cores"] > 0
    assert results["versions"]["soapjms"]
    assert "calls.py --rows embedded --pairs 2" in results["command"]
    assert [row["row"] for row in results["rows"]] == ["embedded, plain", "embedded, transactions"]
    for row in results["rows"]:
        assert row["row"] in printed
        assert list(row["sides"]) == list(row["runs"]) == ["1 in flight", "8 in flight", "32 in flight"]
        first = [each["rate"] for each in row["runs"]["1 in flight"]]
        mine = [each["rate"] for each in row["runs"]["32 in flight"]]
        figure = row["sides"]["32 in flight"]["rate"]
        assert [figure["low"], figure["high"]] == sorted(mine)
        assert figure["median"] == median(mine)
        ratios = sorted(one / other for one, other in zip(mine, first, strict=True))
        assert figure["over"] == {"low": ratios[0], "median": median(ratios), "high": ratios[1]}
        goal = row["goals"][-1]
        assert goal["met"] is (figure["over"]["median"] >= goal["bound"])
    run("plot.py", str(tmp_path))
    picture = etree.parse(tmp_path / "embedded.svg")
    texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"embedded, plain", "embedded, transactions", "32 in flight", "rate"} <= texts


def test_pictures_show_the_results(tmp_path: Path) -> None:
    """Each file of results in the repository has a picture, drawn from it as it is."""
    results = BENCHMARKS / "results"
    shutil.copytree(results, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.svg"))
    run("plot.py", str(tmp_path))
    drawn, kept = ({path.name: path.read_text("utf-8") for path in at.glob("*.svg")} for at in (tmp_path, results))
    assert drawn == kept, "run `python benchmarks/plot.py`"


@pytest.mark.browser
@pytest.mark.peer
def test_the_live_report_is_measured() -> None:
    """Of a small result all that is printed for a large one; times are not judged here, as the machine may be busy."""
    command = [sys.executable, str(BENCHMARKS / "report.py"), "--rows", "live", "--rounds", "2"]
    sizes = ["--messages", "3000", "--findings", "300"]
    printed = subprocess.run([*command, *sizes], capture_output=True, text=True, timeout=120, check=False).stdout
    figures = dict(re.findall(r"^live: (.*?) {2,}([0-9.]+(?= (?:MB|s|MiB)\b)|yes|no)", printed, re.MULTILINE))
    assert figures["an open finding stays open"] == "yes", printed
    assert 0 < float(figures["octets of an update on the wire"]) <= float(figures["octets of the page on the wire"]) < 1
    for name in ("first paint", "from a new result to its update", "memory of the server"):
        assert float(figures[name]) > 0
