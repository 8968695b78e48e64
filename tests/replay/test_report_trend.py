"""Many replays in one page: a small chart for each party."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser_kit import Opens, problems
from cli_kit import run
from replay_logs import CXF, at, request, response, write_log
from report_kit import ATTACK, Page, traffic

from brokers import queue
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, capture
from soapjms.replay import Summary, replay
from soapjms.replay.report import load, trend
from soapjms.replay.report.trend import HEIGHT, MAX_PARTIES, MAX_RUNS


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Replay three weeks: a service breaks nothing, then is not seen, then its client breaks a rule in half."""
    found = []
    for week, bad in ((0, 0), (1, None), (2, 5)):
        records = []
        for number in range(10):
            name = "orders" if bad is not None else "billing"
            asked = request(number, destination=queue(name))
            if bad is not None and number < bad:
                asked = replace(asked, priority=12)
            time = at(week * 604800 + number)
            records += [capture(asked, time, Direction.REQUEST), capture(response(number), time, Direction.RESPONSE)]
        found.append(tmp_path / f"week{week}")
        replay(write_log(tmp_path / f"{week}.jsonl", *records), found[-1], engine="local")
    return found


def runs(folders: list[Path]) -> list[Summary]:
    """Read the results."""
    return [load(each) for each in folders]


def test_each_party_has_a_chart(folders: list[Path]) -> None:
    """With a column for each run that has its messages, and the numbers of the last run."""
    source = trend(runs(folders))
    words = " ".join(Page(source).words.split())
    assert "3 replays, 20 Nov 2026 to 4 Dec 2026" in words
    assert "Clients of queue:orders" in words
    assert "In the last run 5 failed of 10 requests: 50 %, 0 % before." in words
    assert "Most has changed for clients of queue:orders: from 0 % of their messages to 50 %." in words
    assert "The upper line is 50 % of its messages." in words
    assert trend(runs(folders)[::-1]) == source, "whatever the order of the folders"
    assert "Not seen in the last run." in words
    orders = source[source.index("Clients of queue:orders") :].partition("</li>")[0]
    assert orders.count("<rect") == 2
    assert orders.count('class="failed"') == 1
    assert "10 messages, 50 % failed, 0 % warning" in orders


def test_messages_that_failed_and_had_warnings(tmp_path: Path) -> None:
    """They count as both, so both shares may be more than the whole; the bars fill the chart and no more."""
    replay(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out", engine="local")
    source = trend(runs([tmp_path / "out", tmp_path / "out"]))
    assert "The upper line is 100 % of its messages." in " ".join(Page(source).words.split())
    service = source[source.index("The service at queue:billing") :].partition("</li>")[0]
    assert "60 messages, 20 % failed, 100 % warning" in service
    assert sum(float(each) for each in re.findall(r'<rect[^>]*height="([0-9.]+)"', service)) == 2 * HEIGHT


def test_what_cannot_be_one_trend(folders: list[Path], tmp_path: Path) -> None:
    """One run, too many, and runs by different profiles."""
    one, *others = runs(folders)
    for wrong in ([], [one], [one] * (MAX_RUNS + 1)):
        with pytest.raises(UsageError, match=f"a trend needs 2 to {MAX_RUNS} runs, got {len(wrong)}"):
            trend(wrong)
    replay(CXF, tmp_path / "cr", "cr-2009", "local")
    with pytest.raises(UsageError, match="the first run was judged by profile rec-2012, the second by cr-2009"):
        trend([one, *others, load(tmp_path / "cr")])


def test_only_so_many_parties_are_shown(folders: list[Path]) -> None:
    """Those of the last run, by what they break, come first."""
    one, *_ = runs(folders)
    (party, *_) = one.members["parties"]
    many = [{**party, "destination": f"queue:{number}"} for number in range(MAX_PARTIES + 9)]
    crowded = replace(one, members={**one.members, "parties": many})
    assert trend([one, crowded]).count("<li><h2>") == MAX_PARTIES


def test_the_command(folders: list[Path], tmp_path: Path) -> None:
    """It writes a page that only its owner can read; more than two folders need it."""
    page = tmp_path / "trend.html"
    names = list(map(str, folders))
    done = run("report", *names, "--trend", str(page))
    assert (done.exit_code, done.output) == (0, f"trend: {page}\n")
    assert page.read_text("utf-8") == trend(runs(folders))
    assert page.stat().st_mode & 0o777 == 0o600
    for options, said in (
        (names, "two folders are compared on the terminal, got 3; --trend PAGE takes more"),
        ([*names, "--trend", str(page), "--json"], "--trend writes a page of its own"),
        ([names[0], "--trend", str(page)], "a trend needs 2 to"),
    ):
        done = run("report", *options)
        assert done.exit_code == 2
        assert said in done.output


@pytest.mark.browser
@pytest.mark.peer
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_from_reading_it(folders: list[Path], tmp_path: Path, opens: Opens, scheme: str) -> None:
    """Nor does a hostile name of a destination do any harm."""
    one, other, _ = runs(folders)
    (party, *rest) = one.members["parties"]
    hostile = [{**party, "destination": f"queue:{ATTACK}"}, *rest]
    page = tmp_path / "trend.html"
    page.write_text(trend([replace(one, members={**one.members, "parties": hostile}), other]), "utf-8")
    shown = opens(page, color_scheme=scheme, bypass_csp=True)
    assert problems(shown) == []
    assert shown.locator("script, img, iframe").count() == 0
