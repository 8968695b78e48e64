"""The report in a real browser, without a window: it opens, filters, sorts, can be reached by everybody, loads nothing.

`make packages` fetches axe-core, which finds what keeps people from reading a page.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser_kit import Opens, lines, problems, search
from playwright.sync_api import Page, expect
from replay_logs import CXF, at, request, write_log
from report_kit import attacks, large, traffic

from soapjms.protocol.record import Direction, capture
from soapjms.replay import replay
from soapjms.replay.report import html, write
from soapjms.replay.report.page import examples, page_data
from soapjms.replay.report.tables import lines as lines_of
from soapjms.replay.report.tables import rows, search_term
from soapjms.replay.terms import LateRecord

pytestmark = [pytest.mark.browser, pytest.mark.peer]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replay some traffic of two services, with a line that is no record, as one that came too late is left out."""
    folder = tmp_path_factory.mktemp("report")
    write_log(folder / "log.jsonl", *traffic())
    (folder / "bad.jsonl").write_text("no record\n")
    summary = replay(folder, folder / "out", engine="local")
    late = (LateRecord("late.jsonl", 7, "2026-11-20T12:00:00.000000Z"),)
    write(replace(summary, members={**summary.members, "late": 1}, late=late), folder / "out")
    return folder / "out" / "report.html"


# Searching


def test_a_search_is_kept_in_the_address(report: Path, opens: Opens) -> None:
    """What is typed narrows the causes, the assertions and the destinations; its address shows the same again."""
    page = opens(report)
    whole = lines(page)
    assert ["12", "failed", "Protocol-2010"] in whole
    assert page.locator("#tally").inner_text() == ""
    search(page, "a:Protocol-2010 s:failed q:orders")
    assert lines(page) == [["12", "failed", "Protocol-2010"]]
    assert "1 of " in page.locator("#tally").inner_text()
    assert page.locator("#rows tbody tr:visible").count() == 1
    assert page.locator("#places tbody tr:visible td:first-child").all_inner_texts() == ["queue:orders"]
    again = opens(report, page.url.removeprefix(report.as_uri()))
    assert lines(again) == [["12", "failed", "Protocol-2010"]]
    again.fill("#query", "")
    expect(again.locator("#causes tr.cause:visible")).to_have_count(len(whole))
    assert lines(again) == whole


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s:failed", lambda cause: cause["v"] == "failed"),
        ("s:failed,missing", lambda cause: cause["v"] in ("failed", "missingInput")),
        ("-s:failed", lambda cause: cause["v"] != "failed"),
        ("s:prereq a:Local", lambda cause: cause["v"] == "prereqFailed" and "Local" in cause["a"]),
        ("c:missingcontenttype", lambda cause: "missingContentType" in cause["c"]),
        ("BINDINGVERSION", lambda cause: "bindingversion" in (cause["t"] + cause["r"] + str(cause["c"])).lower()),
        ('"is missing or"', lambda cause: "is missing or" in str(cause)),
        ("m:ID:client-113", lambda cause: "ID:client-113" in str(cause["s"])),
        ("l:should", lambda cause: "SHOULD" in cause["l"]),
        ("nothing-of-the-kind", lambda cause: False),
    ],
)
def test_the_search_language(report: Path, opens: Opens, text: str, kept: Callable[[Any], bool]) -> None:
    """Each field finds what it says, and nothing else."""
    page = opens(report)
    causes = page.evaluate("JSON.parse(document.querySelector('#data').textContent).causes")
    search(page, text)
    wanted = sorted([str(each["n"]), each["a"]] for each in causes if kept(each))
    assert sorted([number, name] for number, _, name in lines(page)) == wanted


def test_counts_are_of_the_destinations_searched_for(report: Path, opens: Opens) -> None:
    """A cause that two services have is counted for one of them, and destinations for one assertion."""
    page = opens(report)
    search(page, "q:billing s:failed")
    found = {name: int(number) for number, _, name in lines(page)}
    assert found["Protocol-2016"] == 12
    assert "Protocol-2010" not in found
    search(page, "a:2010 s:failed")
    row = page.locator("#places tbody tr:visible")
    assert row.count() == 1
    assert row.locator("td.n").all_inner_texts()[-2:] == ["12", "0"]


def test_what_a_search_does_not_narrow_says_so(report: Path, opens: Opens) -> None:
    """Charts, the counts of assertions and of faults are of the whole run; counts of a cause's answers go."""
    page = opens(report)
    answers = page.locator("#causes tr.cause:visible .answers")
    assert any(re.search(r"observed none: \d+$", text) for text in answers.all_inner_texts())
    search(page, "q:billing s:failed")
    assert answers.count() > 0
    assert not any(re.search(r"\d$", text) for text in answers.all_inner_texts())
    for name in ("Over time", "Assertions", "Faults"):
        assert "whole run" in page.locator("section", has=page.get_by_role("heading", name=name)).inner_text()


def test_an_unknown_field_is_said(report: Path, opens: Opens) -> None:
    """With those that there are; what else was asked for is shown."""
    page = opens(report)
    search(page, "x:orders a:2010 s:failed")
    assert "x: is not a field; fields are a: s: q: p: n: l: c: m:" in page.locator("#tally").inner_text()
    assert lines(page) == [["12", "failed", "Protocol-2010"]]


def test_verdicts_are_buttons_too(report: Path, opens: Opens) -> None:
    """They write into the search, and show what it says."""
    page = opens(report)
    page.fill("#query", "a:2010")
    page.get_by_role("button", name=re.compile("^failed")).click()
    assert page.input_value("#query") == "a:2010 s:failed"
    assert lines(page) == [["12", "failed", "Protocol-2010"]]
    page.get_by_role("button", name=re.compile("^input missing")).click()
    assert page.input_value("#query") == "a:2010 s:failed,missinginput"
    page.get_by_role("button", name=re.compile("^failed")).click()
    expect(page.get_by_role("button", name=re.compile("^failed"))).to_have_attribute("aria-pressed", "false")
    assert page.input_value("#query") == "a:2010 s:missinginput"


def test_a_verdict_says_how_many_causes_it_has(report: Path, opens: Opens) -> None:
    """As many as it lists."""
    page = opens(report)
    for name in ("failed", "warning", "input missing"):
        button = page.get_by_role("button", name=re.compile(f"^{name} [0-9]+$"))
        number = int(button.inner_text().removeprefix(name))
        button.click()
        assert len(lines(page)) == number
        button.click()


def test_a_number_leads_to_its_findings(report: Path, opens: Opens) -> None:
    """From the table of assertions to the causes."""
    page = opens(report)
    page.locator("#rows tr[data-id='Protocol-2010'] td.failed a").click()
    expect(page.locator("#query")).to_have_value("a:Protocol-2010 s:failed")
    assert lines(page) == [["12", "failed", "Protocol-2010"]]


def test_a_party_leads_to_its_findings(report: Path, opens: Opens) -> None:
    """Its name, and what it breaks besides; a number stands for what the search then shows."""
    page = opens(report)
    card = page.locator("li.party", has_text="clients of queue:orders").first
    assert page.locator("li.party.passed h2 a").count() == 0  # there is nothing to see
    card.locator("h2 a").click()
    expect(page.locator("#query")).to_have_value("q:queue:orders n:requesting p:cxf")
    assert lines(page)
    assert all(
        "queue:orders" in text and "queue:billing" not in text
        for text in page.locator("#causes tr.cause:visible td.where").all_inner_texts()
    )
    bar = card.locator("rect").evaluate_all(
        "all => all.map((each) => [each.className.baseVal, each.width.baseVal.value])"
    )
    deeds = re.search(r"in (\d+) of (\d+) requests", card.locator(".deeds").inner_text())
    assert deeds is not None
    failed, messages = map(int, deeds.groups())
    assert bar[0] == ["failed", failed]
    assert sum(width for _, width in bar) == messages
    assert f"{failed} of {messages} messages broke a MUST" in (card.locator(".share").get_attribute("title") or "")


@pytest.mark.parametrize(
    ("name", "term"),
    [
        ("queue:orders", "q:queue:orders"),
        ("queue:a b", 'q:"queue:a b"'),
        ("queue:a,b", 'q:"queue:a,b"'),
        ('queue:a "b" c', 'q:"queue:a "'),
        ("queue:<b>&'", 'q:"queue:<b>&\'"'),
        ("x" * 300, f"q:{'x' * 200}"),
    ],
)
def test_any_name_can_be_searched_for(name: str, term: str) -> None:
    """As far as the search language can hold it."""
    assert search_term("q", name) == term


# Sorting and opening


def test_tables_are_sorted_by_their_headers(report: Path, opens: Opens) -> None:
    """Numbers as numbers, the largest first; again the other way round; the address keeps it."""
    page = opens(report)
    head = page.locator("#causes th", has_text="Messages")
    head.get_by_role("button").click()
    numbers = [int(number.replace(",", "")) for number, _, _ in lines(page)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [int(number.replace(",", "")) for number, _, _ in lines(page)] == sorted(numbers)
    again = opens(report, page.url.removeprefix(report.as_uri()))
    assert lines(again) == lines(page)


def test_the_keyboard_does_it_all(report: Path, opens: Opens) -> None:
    """A slash goes to the search, a cause opens by its button, Escape empties the search."""
    page = opens(report)
    page.keyboard.press("/")
    page.keyboard.type("a:Protocol-2010 s:failed")
    expect(page.locator("#causes tr.cause:visible")).to_have_count(1)
    button = page.locator("#causes tr.cause:visible .open")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    samples = page.locator(".sample")
    assert samples.count() == 3
    text = samples.first.inner_text()
    for part in (
        "20 Nov 2026, 12:00:00 UTC",
        "SOAPJMS_bindingVersion",
        "0.3",
        "unrecognizedBindingVersion",
        "<s:Envelope",
    ):
        assert part in text
    page.keyboard.press("Enter")
    expect(samples).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""


def test_a_click_anywhere_on_a_cause_opens_it(report: Path, opens: Opens) -> None:
    """Also beside the button; another one closes it."""
    page = opens(report)
    reason = page.locator("#causes tr.cause:visible td.wide bdi").first
    reason.click()
    expect(page.locator("article.sample").first).to_be_visible()
    reason.click()
    expect(page.locator("article.sample")).to_have_count(0)


@pytest.mark.parametrize("name", ["orders", "billing"])
def test_a_search_for_a_destination_shows_its_messages(report: Path, opens: Opens, name: str) -> None:
    """Among the earliest ones that the page has; where those went elsewhere it says so."""
    page = opens(report)
    search(page, f"q:{name}")
    for button in page.locator("#causes .open:visible").all():
        button.click()
    samples = page.locator("article.sample .message.judged").all_inner_texts()
    assert samples
    assert all(f"queue:{name}" in text for text in samples)
    for detail in page.locator("tr.detail:not(:has(article))").all_inner_texts():
        assert "went to other destinations" in detail


def test_links_to_sections_keep_the_search(report: Path, opens: Opens) -> None:
    """They move the focus, too."""
    page = opens(report)
    search(page, "s:failed")
    page.get_by_role("link", name="Over time").click()
    assert page.input_value("#query") == "s:failed"
    assert page.evaluate("document.activeElement.id") == "time"
    assert "q=s:failed" in page.url


# For everybody


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_keeps_people_from_reading_it(report: Path, opens: Opens, scheme: str, width: int) -> None:
    """axe-core finds nothing: as it opens, with messages open, and with a search that finds nothing."""
    page = opens(report, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page.add_style_tag(content="*, *::before { transition: none !important }")
    assert problems(page) == []
    page.locator("#causes .open").first.click()
    page.locator(".help summary").click()
    page.locator("details.numbers summary").click()
    assert problems(page) == []
    search(page, "nothing-of-the-kind x:y")
    assert problems(page) == []


def test_the_page_is_no_wider_than_a_telephone(report: Path, opens: Opens) -> None:
    """Tables move within their frames, not the page; findings fit as they are, and can be sorted."""
    page = opens(report, viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#causes .open").first.click()
    for part in ("td.wide", "td.where", ".sample"):
        shown = page.locator(f"#causes {part} >> visible=true")
        boxes = [box for each in shown.all() if (box := each.bounding_box()) is not None]
        assert boxes
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes), part
    page.get_by_role("button", name="Assertion").first.click()
    assert [each[2] for each in lines(page)] == sorted(each[2] for each in lines(page))


@pytest.mark.parametrize("width", [390, 768, 1100, 1300, 2560])
def test_the_page_fits_every_screen(report: Path, opens: Opens, width: int) -> None:
    """Nothing is beyond the edge but what has a frame to move in; texts of charts are of a size to read."""
    page = opens(report, viewport={"width": width, "height": 1000})
    page.locator("#causes .open").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    label = page.locator("figure svg text.time").first.bounding_box()
    assert label is not None
    assert label["height"] > 10
    for row in page.locator("#rows tbody tr:visible").all()[:5]:
        boxes = [box for cell in row.locator("td:visible").all() if (box := cell.bounding_box()) is not None]
        assert boxes
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def test_four_parties_stand_side_by_side(report: Path, opens: Opens) -> None:
    """On a wide screen; lines of text stay of a length to read."""
    page = opens(report, viewport={"width": 2560, "height": 1200})
    tops = [box["y"] for card in page.locator(".party").all() if (box := card.bounding_box()) is not None]
    assert len(tops) >= 4
    assert len(set(tops[:4])) == 1
    assert all(each.evaluate("(each) => each.clientWidth") < 800 for each in page.locator("section > p:visible").all())


def test_without_scripts_the_verdict_can_be_read(report: Path, opens: Opens) -> None:
    """And the causes, the tables and the charts; there is no button that would do nothing."""
    page = opens(report, java_script_enabled=False)
    assert "parties break MUSTs" in page.get_by_role("heading", level=1).inner_text()
    assert page.locator("#causes tr.cause").first.is_visible()
    assert page.locator("figure svg").count() == 3
    assert page.locator("button:visible, input:visible").count() == 0
    assert page.locator("noscript p").first.is_visible()


def test_without_scripts_there_is_an_example_of_each_finding(report: Path, opens: Opens) -> None:
    """What was seen and what would be right, the messages, rule and remedy; with scripts they are not there."""
    page = opens(report, java_script_enabled=False)
    page.locator(".example summary", has_text="Protocol-2010").first.click()
    example = page.locator(".example[open]")
    assert [example.locator(f"dd.{each} mark").first.inner_text() for each in ("seen", "right")] == ["0.3", "1.0"]
    assert example.locator(".message").count() == 2
    for part in (
        "MUST SOAPJMS_bindingVersion is present and 1.0.",
        "In general",
        "<s:Envelope",
        "12 messages since 20 Nov",
    ):
        assert part in example.inner_text()
    assert page.locator(".example").count() >= page.locator("tr.cause").count()
    assert "clients of queue:orders" in example.locator("summary").inner_text()
    assert opens(report).locator(".example").count() == 0


def test_examples_of_hostile_messages_are_texts(tmp_path: Path, opens: Opens) -> None:
    """Nothing of them is markup, nor ends what they stand in; a browser with scripts sees none of it."""
    replay(attacks(tmp_path), tmp_path / "out", engine="local")
    page = opens(tmp_path / "out" / "report.html", java_script_enabled=False)
    for summary in page.locator(".example summary").all():
        summary.click()
    assert page.locator("img, iframe, object").count() == 0
    assert "<img src=x onerror=alert(2)>" in page.locator(".example").first.inner_text()
    assert page.locator("#changes").is_visible()


def test_examples_have_a_limit(report: Path) -> None:
    """The gravest findings come first, as far as there is room."""
    summary = large(20_000, 20_000)
    causes = lines_of(summary, rows(summary)).shown
    data = page_data(causes, [], summary)
    shown = examples(causes, data, 50_000)
    assert 0 < len(shown) < len(causes)
    assert [each.line for each in shown] == causes[: len(shown)]
    whole = examples(causes, data, 10_000_000)
    parties = {(id(each.line), each.who, each.case.get("k")) for each in whole}
    assert len(parties) == len(whole) >= sum(bool(each["s"]) for each in data["causes"])
    assert len(json.dumps([each.case for each in shown])) < 60_000


def test_print_has_nothing_that_only_a_screen_needs(report: Path, opens: Opens) -> None:
    """No buttons and no links within the page, and no rows of what was never exercised, which are listed elsewhere."""
    page = opens(report)
    page.locator("#causes .open").first.click()
    never = page.locator("#rows tr[data-state='not judged']")
    shown = ".copies", ".about .links", ".what a"
    assert never.first.is_visible()
    assert all(page.locator(each).first.is_visible() for each in shown)
    page.emulate_media(media="print")
    assert page.locator(".sample").first.is_visible()
    assert not any(each.is_visible() for name in shown for each in page.locator(name).all())
    assert not any(each.is_visible() for each in never.all())
    assert page.locator("#rows tr[data-state='failed']").first.is_visible()
    assert page.locator("#time").evaluate("each => getComputedStyle(each.nextElementSibling).breakAfter") == "avoid"


def test_the_empty_search_does_not_look_like_a_search(report: Path, opens: Opens) -> None:
    """It says what it is."""
    query = opens(report).locator("#query")
    assert (query.get_attribute("placeholder") or "").startswith("Search, such as: ")
    assert query.evaluate("each => getComputedStyle(each, '::placeholder').fontStyle") == "italic"


def test_it_is_printed_in_black_on_white(report: Path, opens: Opens) -> None:
    """Also by a dark screen, without the search."""
    page = opens(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#query").is_visible()
    assert page.locator("h1").is_visible()


# Whatever it is given


def test_texts_of_a_log_stay_texts(tmp_path: Path, opens: Opens) -> None:
    """Attacks in every text are shown as they are, in the tables and in the messages; nothing of them runs."""
    replay(attacks(tmp_path), tmp_path / "out", engine="local")
    page = opens(tmp_path / "out" / "report.html")
    for button in page.locator("#causes .open:visible").all():
        button.click()
    assert page.locator("img, iframe, object").count() == 0
    assert page.locator("script").count() == 2
    assert "<img src=x onerror=alert(2)>" in page.locator(".sample").first.inner_text()
    for name, value in zip(page.locator(".message dt").all(), page.locator(".message dd").all(), strict=True):
        beside, box = name.bounding_box(), value.bounding_box()
        assert beside is not None
        assert box is not None
        assert beside["y"] == box["y"]
        assert beside["x"] + beside["width"] <= box["x"]
        assert box["width"] > 200
    search(page, "onerror")
    assert lines(page)
    search(page, '"</script>"')
    assert lines(page)


def test_a_fragment_that_makes_no_sense_does_no_harm(report: Path, opens: Opens) -> None:
    """An address is from outside too."""
    for fragment in ("#?q=%3Cscript%3E&sort=causes,99,up", "#?sort=%22%5D,1,x", "#?", "#?q=%ZZ", "#findings"):
        page = opens(report, fragment)
        assert page.locator("h1").is_visible()
        assert page.locator("#causes").count() == 1


def test_a_large_report_is_listed_bit_by_bit(tmp_path: Path, opens: Opens) -> None:
    """The first causes stand there at once, all of them when asked for."""
    path = tmp_path / "report.html"
    path.write_text(html(large(20_000, 20_000)), "utf-8")
    page = opens(path)
    assert page.locator("#causes tr.cause:visible").count() == 50
    page.get_by_role("button", name="Show all 500").click()
    assert page.locator("#causes tr.cause:visible").count() == 500
    search(page, "q:service.000")
    assert 0 < page.locator("#causes tr.cause:visible").count() <= 50


# A finding as a case


@pytest.fixture
def case(report: Path, opens: Opens) -> Page:
    """Open the finding of a request with a wrong version."""
    page = opens(report, "#?q=a:2010+s:failed")
    page.locator("#causes tr.cause:visible .open").click()
    return page


def test_several_messages_have_the_time_of_the_first(case: Page) -> None:
    """That of the last is said where it is known."""
    said = case.locator("tr.detail .since").inner_text()
    assert re.fullmatch(r"12 messages since 20 Nov 2026, 12:00:00 UTC(, last .* UTC)?\.", said)


def test_what_is_wrong_stands_beside_what_would_be_right(case: Page) -> None:
    """Place by place, with the part that differs marked."""
    difference = case.locator(".difference").first
    assert difference.inner_text().split("\n")[0] == "property SOAPJMS_bindingVersion"
    assert [difference.locator(f"dd.{each} mark").inner_text() for each in ("seen", "right")] == ["0.3", "1.0"]


def test_octets_of_a_body_are_marked(tmp_path: Path, opens: Opens) -> None:
    """Where a rule is broken there, also in the excerpt of the message."""
    document = '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body/></s:Envelope>'
    body = f"<?xml version='1.0' encoding='iso-8859-1'?>{document}"
    bad = capture(request(1, body=body.encode()), at(0), Direction.REQUEST)
    replay(write_log(tmp_path / "log.jsonl", bad), tmp_path / "out", engine="local")
    page = opens(tmp_path / "out" / "report.html", "#?q=a:2012+s:failed")
    page.locator("#causes tr.cause:visible .open").first.click()
    whole = page.locator(".message.judged pre")
    assert whole.inner_text() == body
    mark = whole.locator("mark")
    assert mark.count() == 1
    assert mark.inner_text() == "iso-8859-1"


def test_request_and_response_are_a_time_line(case: Page) -> None:
    """Side by side, the response with its time after the request; the judged one is marked."""
    asked, answered = case.locator(".sample").first.locator(".message").all()
    assert asked.inner_text().split("\n")[0] == "Request"
    assert answered.inner_text().split("\n")[0] == "Response"
    assert "20 Nov 2026, 12:00:00 UTC, 50 ms later" in answered.inner_text()
    assert "judged" in (asked.get_attribute("class") or "")
    assert "judged" not in (answered.get_attribute("class") or "")
    boxes = asked.bounding_box(), answered.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    case.set_viewport_size({"width": 390, "height": 800})
    boxes = asked.bounding_box(), answered.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


COPIES = {
    "Raw message": "SOAPJMS_bindingVersion: 0.3",
    "Capture record": '"message_id":"ID:client-0"',
    "soapjms call": "soapjms call --record - --profile rec-2012 <<'SOAPJMS_RECORD'\n{",
    "Markdown for a ticket": "## Protocol-2010: SOAPJMS_bindingVersion is present and 1.0.",
}


@pytest.mark.parametrize(("name", "part"), COPIES.items())
def test_a_finding_is_copied(case: Page, name: str, part: str) -> None:
    """Into the clipboard, or, where a page may not write to it, into a field in which it is selected."""
    first = case.locator(".sample").first
    case.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first.get_by_role("button", name=name).click()
    expect(first.locator(".told")).to_have_text(f"{name} copied")
    text = case.evaluate("navigator.clipboard.readText()")
    assert part in text
    case.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    first.get_by_role("button", name=name).click()
    expect(first.locator("textarea")).to_have_value(text)
    assert case.evaluate("getSelection().toString()") == text
    assert first.locator("textarea").count() == 1


def copied(page: Page, name: str) -> str:
    """Copy a form of the first case of a finding."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".sample").first.get_by_role("button", name=name).click()
    expect(page.locator(".told").first).to_have_text(f"{name} copied")
    return str(page.evaluate("navigator.clipboard.readText()"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replay what CXF sent."""
    folder = tmp_path_factory.mktemp("cxf")
    replay(CXF, folder, engine="local")
    return folder / "report.html"


@pytest.fixture
def answer(real: Path, opens: Opens) -> Page:
    """Open a finding about responses of CXF."""
    page = opens(real, "#?q=a:Local-2.6.2.3-expiration+s:warning+n:responding")
    page.locator("#causes tr.cause:visible .open").first.click()
    return page


def test_an_opened_finding_says_since_when_and_what_to_change(answer: Page) -> None:
    """How often and since when, the rule with its place and its words, and the remedy of the party's stack first."""
    about = answer.locator("tr.detail .about")
    since = about.locator(".since").inner_text()
    assert re.fullmatch(r"(1 message, captured|\d+ messages since) 20 Nov 2026, 19:31:\d\d UTC(, last .*)?\.", since)
    rule = about.locator(".rule")
    assert rule.inner_text().startswith("SHOULD ")
    assert "Section 2.6.2.3 of SOAP over JMS 1.0" in rule.locator("a").inner_text()
    assert rule.locator("q").inner_text().strip('“”"') == "this is derived from the request"
    names = about.locator("dt:visible").all_inner_texts()
    assert names == ["Apache CXF", "In general"]
    assert "CXF's responses never expire" in about.locator("dd").first.inner_text()
    about.locator("summary").click()
    assert "Spring-WS" in about.locator("dt:visible").all_inner_texts()


def test_a_finding_about_a_response_is_copied_with_its_request(answer: Page, tmp_path: Path) -> None:
    """Both records, which a replay judges to the same; the call sends the request."""
    text = copied(answer, "Capture record")
    assert len(text.splitlines()) == 2
    log = tmp_path / "copied.jsonl"
    log.write_text(text + "\n")
    done = replay(log, tmp_path / "out", engine="local")
    assert done.members["assertions"]["Local-2.6.2.3-expiration"]["warning"] == 1
    command = copied(answer, "soapjms call")
    assert command.split("\n")[1] == text.splitlines()[0]


def test_a_ticket_has_all_that_its_reader_needs(answer: Page) -> None:
    """The level, since when, what was sent and what was asked, what to change, and a way back to the finding."""
    text = copied(answer, "Markdown for a ticket")
    assert "* **SHOULD**, section 2.6.2.3 of SOAP over JMS 1.0, " in text
    assert re.search(r"\* since: ` 20 Nov 2026, \d\d:\d\d:\d\d UTC `", text)
    assert "\nApache CXF: Not known to be settable: CXF's responses never expire." in text
    request, response = (
        text.index("### Request\n\n```text\nJMS message type: "),
        text.index("### Response\n\n```text\n"),
    )
    assert request < response
    assert "SOAPJMS_requestURI: " in text[request:]
    link = re.search(r"\nFinding: <(file:.*)>\n\Z", text)
    assert link is not None
    answer.goto("about:blank")
    answer.goto(link[1])
    assert "Local-2.6.2.3-expiration" in answer.locator("tr.cause:has([aria-expanded=true])").inner_text()


def test_a_copied_record_is_replayed_to_the_same(case: Page, tmp_path: Path) -> None:
    """With the same finding."""
    log = tmp_path / "copied.jsonl"
    log.write_text(copied(case, "Capture record") + "\n")
    done = replay(log, tmp_path / "out", engine="local")
    assert done.members["assertions"]["Protocol-2010"]["failed"] == 1


def test_a_finding_has_an_address(report: Path, opens: Opens, case: Page) -> None:
    """Which opens it and goes there, in this report and in each later one that has the finding."""
    with case.expect_event("framenavigated"):
        case.get_by_role("link", name="Link to this finding").click()
    fragment = case.url.partition("#")[2]
    again = report.parent / "again.html"
    shutil.copyfile(report, again)
    page = opens(again, f"#{fragment}")
    assert page.locator("tr.detail").count() == 1
    assert page.locator(".sample").first.is_visible()
    focus = page.evaluate("document.activeElement.closest('tr.cause').innerText")
    assert "Protocol-2010" in focus
    page.locator("#causes tr.cause:visible .open[aria-expanded=true]").click()
    assert "open=" not in page.url
    assert opens(again, "#?open=0000000000,x").locator("tr.detail").count() == 0


def test_a_link_whose_finding_is_gone_says_so(report: Path, opens: Opens) -> None:
    """Until something else is searched for; what the link has besides is opened."""
    page = opens(report, "#?open=0000000000")
    said = page.locator("#tally .problem")
    assert said.inner_text().strip() == "The finding of this link is not in this report."
    expect(said).to_be_in_viewport()
    search(page, "s:failed")
    assert said.count() == 0
    known = page.evaluate("JSON.parse(document.querySelector('#data').textContent).causes[0].k")
    page = opens(report, f"#?open={known},0000000000")
    assert page.locator("tr.detail").count() == 1
    assert "1 of 2 are not in this report" in page.locator("#tally .problem").inner_text()


def test_keys_go_from_finding_to_finding(report: Path, opens: Opens) -> None:
    """j to the next, k to the one before, Enter opens it; in the search they are letters."""
    page = opens(report)
    rows = page.locator("#causes tr.cause:visible")

    def at_row(number: int) -> bool:
        return bool(rows.nth(number).evaluate("row => row.contains(document.activeElement)"))

    page.keyboard.press("j")
    assert at_row(0)
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert at_row(2)
    page.keyboard.press("k")
    assert at_row(1)
    page.keyboard.press("Enter")
    assert page.locator("tr.detail").count() == 1
    page.keyboard.press("?")
    assert page.locator(".help").get_attribute("open") is not None
    page.keyboard.press("/")
    page.keyboard.type("j?k")
    assert page.input_value("#query") == "j?k"
