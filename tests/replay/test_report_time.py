"""The report over time: when parties changed, the percentiles, and a time that the reader chooses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browser_kit import Opens
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect
from replay_logs import write_log
from report_kit import Page, traffic

from soapjms.replay import replay
from soapjms.replay.report.milestones import MAX_MILESTONES, milestones

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)


def hour(number: float) -> str:
    """Return a time of the run, which takes 100 hours."""
    return (BEGIN + timedelta(hours=number)).isoformat()


def party(seen: tuple[float, float], broke: tuple[float, float] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a party with the hours at which it was seen, and broke rules."""
    times = dict(zip(("first", "last"), map(hour, seen), strict=True))
    failed = (None, None) if broke is None else tuple(map(hour, broke))
    found = {**times, "firstFailed": failed[0], "lastFailed": failed[1], "messages": 50, "stack": None}
    return {"destination": "queue:a", "node": "requesting", **found, **changes}


def told(*parties: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the milestones of a run of 100 hours, by hour."""
    found = milestones({"time": {"first": hour(0), "last": hour(100)}, "parties": list(parties)})
    return [((each.time - BEGIN) / timedelta(hours=1), each.text) for each in found]


def test_who_came_and_went() -> None:
    """A party that was not there from the beginning, or not to the end; one with another stack is another party."""
    assert told(party((0, 100)), party((1, 96))) == []
    assert told(party((0, 100)), party((30, 90), stack="cxf")) == [
        (30, "clients of queue:a (Apache CXF) first seen"),
        (90, "clients of queue:a (Apache CXF) last seen"),
    ]


def test_who_began_to_break_rules_and_ceased() -> None:
    """Later than the party came, and earlier than it went."""
    assert told(party((0, 100), (0, 99))) == []
    assert told(party((0, 100), (40, 60), node="responding")) == [
        (40, "the service at queue:a begins to break rules"),
        (60, "the service at queue:a breaks no rule after this"),
    ]


def test_what_is_no_milestone() -> None:
    """What few messages show, what is known of no certain destination, and what would be too many lines."""
    assert told(party((30, 90), messages=2), party((30, 90), destination=None)) == []
    assert len(told(*(party((30 + n, 90)) for n in range(40)))) == MAX_MILESTONES
    assert milestones({"time": {"first": None, "last": None}, "parties": []}) == []
    assert milestones({"time": {"first": hour(1), "last": hour(1)}, "parties": [party((1, 1))]}) == []


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Replay an hour of traffic."""
    replay(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out", engine="local")
    return tmp_path / "out" / "report.html"


def test_percentiles_are_in_the_charts_and_in_numbers(out: Path) -> None:
    """The median, 95 % and 99 %, also without scripts."""
    words = " ".join(Page(out.read_text("utf-8")).words.split())
    assert "50 % within" in words
    assert "99 % within" in words
    assert "99th percentile" in words


@pytest.mark.browser
@pytest.mark.peer
class TestChoice:
    """In a browser: dragging over a chart, two sliders, zooming in and out."""

    @pytest.fixture
    def page(self, out: Path, opens: Opens) -> BrowserPage:
        """Open the page."""
        return opens(out)

    def test_a_time_is_chosen_by_dragging(self, page: BrowserPage) -> None:
        """All charts show it, and a line says what happened then; a click chooses the whole time again."""
        chart = page.locator("figure svg").nth(1)
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 30, steps=4)
        page.mouse.up()
        assert page.locator("figure svg .brush").count() == 3
        said = page.locator("#within").inner_text()
        assert said.startswith("2026-11-20 12:1")
        assert " messages, " in said
        assert "median " in said
        assert "failed most: " in said
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + 30)
        assert page.locator("figure svg .brush").count() == 0
        assert page.locator("#within").inner_text() == ""

    def test_a_time_is_chosen_by_keys(self, page: BrowserPage) -> None:
        """The numbers are those of the log."""
        page.locator("#from").focus()
        for _ in range(100):
            page.keyboard.press("ArrowRight")
        expect(page.locator("figure svg .brush").first).to_be_visible()
        said = page.locator("#within").inner_text()
        assert said.startswith("2026-11-20 12:29:")
        assert " to 2026-11-20 12:59:" in said
        found = re.search(r"([0-9]+) messages", said)
        assert found is not None
        assert 115 < int(found[1]) < 125

    def test_zooming(self, page: BrowserPage) -> None:
        """The charts show the chosen time alone, and the whole time again as it was."""
        whole = page.locator("figure").first.inner_html()
        half = str(int(page.locator("#from").get_attribute("max") or 0) // 2)
        page.locator("#from").fill(half)
        half = page.locator("#from").input_value()
        page.locator("#zoom").click()
        assert page.locator("figure").first.inner_html() != whole
        assert page.locator("figure svg rect.messages").count() > 5
        assert page.locator("#from").input_value() == half
        page.locator("#whole").click()
        assert page.locator("figure").first.inner_html() == whole
        assert page.locator("#whole").is_hidden()
