"""The report over time: when parties changed, the percentiles, and a time that the reader chooses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from browser_kit import Opens
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect
from replay_logs import request, write_log
from report_kit import Page, traffic

from soapjms.protocol.record import Direction, capture
from soapjms.replay import replay
from soapjms.replay.report.milestones import MAX_MILESTONES, milestones

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)


def hour(number: float) -> str:
    """Return a time of the run, which takes 100 hours."""
    return (BEGIN + timedelta(hours=number)).isoformat()


def party(seen: tuple[float, float], *, messages: int = 500, **changes: Any) -> dict[str, Any]:
    """Return a party with the hours at which it was seen."""
    found = {**times(*seen), "failed": {}, "warning": {}, "messages": messages, "stack": None, "times": {}}
    return {"destination": "queue:a", "node": "requesting", **found, **changes}


def times(first: float, last: float) -> dict[str, str]:
    """Return two hours as summary.json has them."""
    return {"first": hour(first), "last": hour(last)}


def breaking(node: str = "requesting", number: int = 50, **rules: tuple[float, float]) -> dict[str, Any]:
    """Return a party that is there all the time, and breaks rules at some hours."""
    broke = {name: times(*hours) for name, hours in rules.items()}
    return party((0, 100), node=node, failed=dict.fromkeys(rules, number), times=broke)


def told(*parties: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the milestones of a run of 100 hours, by hour."""
    found = milestones({"time": {"first": hour(0), "last": hour(100)}, "parties": list(parties)})
    return [((each.time - BEGIN) / timedelta(hours=1), each.text) for each in found]


def test_who_came_and_went() -> None:
    """A party that was not there from the beginning, or not to the end; one with another stack is another party."""
    assert told(party((0, 100)), party((1, 96))) == []
    assert told(party((30, 90), messages=20)) == [], "a silence of few gaps is chance"
    assert told(party((0, 100)), party((30, 90), stack="cxf")) == [
        (30, "clients of queue:a (Apache CXF) first seen"),
        (90, "clients of queue:a (Apache CXF) last seen"),
    ]


def test_who_began_to_break_a_rule_and_ceased() -> None:
    """Later than the party came, and earlier than it went; each rule by itself, but for those that change together."""
    assert told(breaking(a=(0, 99))) == []
    assert told(breaking("responding", a=(40, 60), b=(0, 100), c=(40.5, 99), d=(40.7, 80))) == [
        (40, "the service at queue:a begins to break a and 2 more rules"),
        (60, "the service at queue:a no longer breaks a after this"),
        (80, "the service at queue:a no longer breaks d after this"),
    ]
    assert told(breaking(a=(20, 90))) == [
        (20, "clients of queue:a begin to break a"),
    ]


def test_one_breach_is_no_beginning() -> None:
    """Neither is what goes on so seldom that it may have been there before."""
    assert told(breaking(number=1, a=(40, 40))) == []
    assert told(breaking(number=6, a=(40, 60))) == []


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
        assert re.match(
            r"For the chosen time[.] A column is [0-9.]+ seconds?; ", page.locator("#scale >> xpath=..").inner_text()
        )
        warned = [json.loads(each.inner_text())["time"]["s"] for each in page.locator("#data").all()]
        assert all(not span[3] for span in warned[0]) == (page.locator("figure svg rect.warning").count() == 0)
        page.locator("#whole").click()
        assert page.locator("figure").first.inner_html() == whole
        assert page.locator("#whole").is_hidden()
        assert page.locator("#scale").inner_text().startswith("For the whole run. A column is ")

    def test_the_address_has_the_chosen_time(self, page: BrowserPage) -> None:
        """It is the same after the page was loaded again, and for whoever gets the address."""
        page.locator("#from").focus()
        for _ in range(100):
            page.keyboard.press("ArrowRight")
        said = page.locator("#within").inner_text()
        page.locator("#zoom").click()
        assert re.search(r"[#]\?.*time=[0-9]+-[0-9]+.*zoom=[0-9]+-[0-9]+", page.url)
        page.reload()
        assert page.locator("#within").inner_text() == said
        assert page.locator("#whole").is_visible()
        page.goto(page.url.partition("&zoom=")[0])
        expect(page.locator("#whole")).to_be_hidden()
        assert page.locator("#within").inner_text() == said
        page.goto(page.url.partition("#")[0] + "#?q=nothing")
        expect(page.locator("figure svg .brush")).to_have_count(0)


ZONES = {"Asia/Kolkata": "GMT+5:30", "America/St_Johns": "GMT-3:30", "Asia/Kathmandu": "GMT+5:45", "UTC": "UTC"}
"""Time zones, most of them not a whole number of hours from UTC, with their offsets in winter as Chromium has them."""
NAMED = {
    "Asia/Kolkata": "your time zone, India Standard Time (GMT+5:30)",
    "America/St_Johns": "your time zone, Newfoundland Standard Time (GMT-3:30)",
    "Asia/Kathmandu": "your time zone, Nepal Time (GMT+5:45)",
    "UTC": "UTC",
}
TIMES = """() => [...document.querySelectorAll('#time ~ * [data-t]')].map((each) => [
  each.closest('svg') ? each.localName : 'cell', Number(each.dataset.t), each.textContent
])"""


def times_on(page: BrowserPage) -> list[tuple[str, datetime, str]]:
    """Return what has a time in the part on time: `text`, `title` or `cell`, its time in UTC, and its text."""
    return [(kind, datetime.fromtimestamp(time / 1000, UTC), said) for kind, time, said in page.evaluate(TIMES)]


def labels(page: BrowserPage) -> Iterator[tuple[datetime, str]]:
    """Yield the labels below the first chart."""
    for text in page.locator("figure svg").first.locator("text.time").all():
        yield datetime.fromtimestamp(int(text.get_attribute("data-t") or "") / 1000, UTC), text.inner_html()


def sparse(folder: Path, begin: datetime, step: timedelta, number: int) -> Path:
    """Replay a log with one message at each step of time."""
    asked = (capture(request(n), begin + n * step, Direction.REQUEST) for n in range(number))
    replay(write_log(folder / "log.jsonl", *asked), folder / "sparse", engine="local")
    return folder / "sparse" / "report.html"


@pytest.mark.browser
@pytest.mark.peer
class TestZone:
    """In a browser: the charts are in the reader's time zone."""

    @pytest.mark.parametrize("zone", ZONES)
    def test_all_times_of_the_charts_are_in_the_zone(self, out: Path, opens: Opens, zone: str) -> None:
        """Labels, titles of columns and the table; the part says which zone that is."""
        page = opens(out, timezone_id=zone)
        found = times_on(page)
        assert {kind for kind, _, _ in found} == {"text", "title", "cell"}
        for kind, time, said in found:
            local = time.astimezone(ZoneInfo(zone))
            if kind != "text":
                assert said.partition(": ")[0] == f"{local:%-d %b %H:%M}"
        before = None
        for time, said in labels(page):
            local = time.astimezone(ZoneInfo(zone))
            assert said == (f"{local:%H:%M}" if local.date() == before else f"{local:%-d %b %H:%M}")
            before = local.date()
        told = f"A column is 1 minute; times in the charts are in {NAMED[zone]}."
        assert told in page.locator("#time + p").inner_text()

    def test_without_scripts_they_are_in_utc(self, out: Path, opens: Opens) -> None:
        """Which is said."""
        page = opens(out, timezone_id="Asia/Kolkata", java_script_enabled=False)
        assert "times in the charts are in UTC." in page.locator("#time + p").inner_text()
        assert next(iter(labels(page))) == (datetime(2026, 11, 20, 12, tzinfo=UTC), "20 Nov 12:00")

    @pytest.mark.parametrize("zone", ZONES)
    def test_a_chosen_time_is_the_same_time(self, out: Path, opens: Opens, zone: str) -> None:
        """In other words, with the same numbers; also where the charts show it alone."""
        page = opens(out, timezone_id=zone)
        page.locator("#from").focus()
        for _ in range(100):
            page.keyboard.press("ArrowRight")
        began, ended = (datetime(2026, 11, 20, *time, tzinfo=UTC) for time in ((12, 29, 37, 500000), (12, 59, 36)))
        said, _, numbers = page.locator("#within").inner_text().partition(f" {ZONES[zone]}: ")
        shown = [datetime.fromisoformat(each).replace(tzinfo=ZoneInfo(zone)) for each in said.split(" to ")]
        assert abs(shown[0] - began) < timedelta(minutes=1)
        assert abs(shown[1] - ended) < timedelta(minutes=1)
        utc = opens(out)
        utc.locator("#from").fill(page.locator("#from").input_value())
        assert utc.locator("#within").inner_text().endswith(f" UTC: {numbers}")
        local = began.astimezone(ZoneInfo(zone))
        assert f"{local:%-d %b %Y, %H:}" in (page.locator("#from").get_attribute("aria-valuetext") or "")
        page.locator("#zoom").click()
        assert page.locator("#within").inner_text() == f"{said} {ZONES[zone]}: {numbers}"
        zoomed = list(labels(page))
        assert zoomed[0][0] == shown[0]
        for index, (time, text) in enumerate(zoomed):
            local = time.astimezone(ZoneInfo(zone))
            clock = f"{local:%H:%M:%S}.{local.microsecond // 10000:02}"
            assert text == (clock if index else f"{local:%-d %b} {clock}")

    def test_clocks_are_changed(self, tmp_path: Path, opens: Opens) -> None:
        """Where summer time ends in the chosen time, each end has its offset: the same hour comes twice."""
        begin = datetime(2026, 11, 1, 3, 30, tzinfo=UTC)
        page = opens(sparse(tmp_path, begin, timedelta(minutes=1), 120), timezone_id="America/St_Johns")
        zone = "Newfoundland Daylight Time (GMT-2:30), then Newfoundland Standard Time (GMT-3:30)"
        assert f"your time zone, {zone}." in page.locator("#time + p").inner_text()
        page.locator("#from").fill(str(int(page.locator("#from").get_attribute("max") or 0) // 4))
        said = page.locator("#within").inner_text().partition(" messages")[0]
        told = r"^2026-11-01 01:[0-9:.]+ GMT-2:30 to 2026-11-01 01:59:[0-9.]+ GMT-3:30: [0-9]+$"
        assert re.match(told, said), said

    def test_days_begin_at_another_hour(self, tmp_path: Path, opens: Opens) -> None:
        """Columns are of whole days in UTC, so elsewhere they have their time; the year is said where it changes."""
        log = sparse(tmp_path, datetime(2026, 12, 10, 12, tzinfo=UTC), timedelta(weeks=1), 31)
        there = opens(log, timezone_id="Asia/Kolkata")
        assert [said for _, said in labels(there)] == [
            "10 Dec 2026 05:30", "21 Jan 2027 05:30", "4 Mar 05:30", "15 Apr 05:30", "27 May 05:30", "8 Jul 05:30",
        ]  # fmt: skip
        here = opens(log, java_script_enabled=False)
        assert [said for _, said in labels(here)] == [
            "10 Dec 2026", "21 Jan 2027", "4 Mar", "15 Apr", "27 May", "8 Jul",
        ]  # fmt: skip
        for page in (there, here):
            shown = page.locator("figure svg").first
            edge, boxes = shown.bounding_box(), [text.bounding_box() for text in shown.locator("text.time").all()]
            assert edge is not None
            ends = [(box["x"], box["x"] + box["width"]) for box in boxes if box is not None]
            assert ends[-1][1] <= edge["x"] + edge["width"] + 1
            assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
