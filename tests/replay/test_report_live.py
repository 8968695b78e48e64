"""The report as a live page, in a real browser: it takes what is new, and leaves the reader what is open."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from browser_kit import lines, problems, search
from calling_kit import eventually
from cli_kit import command, environment
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect
from replay_logs import assert_same, write_log
from report_kit import attacks, large, traffic

from soapjms.replay import replay
from soapjms.replay.report import html
from soapjms.serving.live_report import LiveReport

pytestmark = [pytest.mark.browser, pytest.mark.peer]

SOON = 15_000
"""Milliseconds in which a new report is shown, on a busy machine."""
SHOWN = 120, 240
"""The messages of the first and the second report."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Replay some traffic, first half of it, then all."""
    folder, found = tmp_path_factory.mktemp("reports"), []
    for number in SHOWN:
        log = write_log(folder / f"{number}.jsonl", *traffic()[:number])
        replay(log, folder / f"out-{number}", engine="local")
        found.append((folder / f"out-{number}" / "report.html").read_text("utf-8"))
    return found


@pytest.fixture
def live() -> Iterator[LiveReport]:
    """The server of a report."""
    with LiveReport("127.0.0.1:0") as made:
        yield made


Opens = Callable[..., Page]


@pytest.fixture
def opens(browser: Browser) -> Iterator[Opens]:
    """Give a way to open a live page; at the end assert that it said nothing, and asked for nothing but its server."""
    heard: list[str] = []
    contexts = []

    def open_page(url: str, **options: Any) -> Page:
        context = browser.new_context(**{"timezone_id": "UTC", **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: None if is_expected(message) else heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        ours = url.partition("?")[0]
        own = (ours, f"{ours}events")
        page.on("request", lambda asked: None if asked.url.partition("?")[0] in own else heard.append(asked.url))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


def is_expected(message: ConsoleMessage) -> bool:
    """Say whether it tells of the time before the first report, or of the icon, for which Chromium asks by itself."""
    return "status of 503" in message.text or message.location["url"].endswith("/favicon.ico")


def expect_messages(page: Page, number: int) -> None:
    """Wait until the page is that of a report of so many messages."""
    expect(page.locator(".figures dd").first).to_have_text(str(number), timeout=SOON)


def state(page: Page) -> dict[str, Any]:
    """Return what a reader sees and uses."""
    return dict(
        page.evaluate(
            """() => ({
              address: location.hash, query: document.querySelector('#query').value,
              open: [...document.querySelectorAll('[aria-expanded=true]')].map((each) => each.ariaLabel).sort(),
              details: [...document.querySelectorAll('details[open] > summary')].map((each) => each.textContent),
              sorted: [...document.querySelectorAll('[aria-sort]')].map((each) => each.textContent + each.ariaSort),
              focus: [document.activeElement.id, document.activeElement.ariaLabel],
              caret: [document.activeElement.selectionStart, document.activeElement.selectionEnd],
              place: Math.round(document.activeElement.getBoundingClientRect().top),
            })"""
        )
    )


# What a reader keeps


def test_what_is_open_stays(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """Findings, explanations, the search with the place in it, the order and the focus; the numbers are new."""
    live.show(reports[0])
    page = opens(live.url)
    expect_messages(page, SHOWN[0])
    search(page, "a:2010 s:failed")
    assert lines(page) == [["6", "failed", "Protocol-2010"]]
    page.locator(".open:visible").first.click()
    page.locator("#rows th button").first.click()
    page.locator(".help summary").click()
    page.locator(".change details summary").first.click()
    page.locator("#query").focus()
    page.evaluate("document.activeElement.setSelectionRange(2, 6)")
    before = state(page)
    assert (len(before["open"]), len(before["details"]), len(before["sorted"])) == (1, 2, 1)
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    assert lines(page) == [["12", "failed", "Protocol-2010"]]
    assert state(page) == before
    assert page.locator("article.sample").count() == 3
    page.keyboard.press("End")
    page.keyboard.type(" q:nowhere")
    expect(page.locator("#tally")).to_have_text("0 of 7 causes, 0 findings")
    page.keyboard.press("Escape")
    expect(page.locator("#tally")).to_have_text("")
    assert page.locator("aside.live").count() == 1


def test_the_address_may_name_another_part(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """After a link within the page the address no longer says what is searched for and open; it stays all the same."""
    live.show(reports[0])
    page = opens(live.url)
    search(page, "s:failed")
    for number in range(2):
        page.locator(".open:visible").nth(number).click()
    page.locator("#causes th button").first.click()
    page.locator("#rows th button").first.click()
    page.locator("#causes a", has_text="What to change").first.click()
    before, place = state(page), page.locator(".change").first.bounding_box()
    assert (before["address"][:8], len(before["open"]), len(before["sorted"])) == ("#change-", 2, 2)
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    assert {**state(page), "place": before["place"]} == before
    assert page.locator(".change").first.bounding_box() == place


@pytest.mark.parametrize("focus", [True, False])
def test_the_place_stays(reports: list[str], live: LiveReport, opens: Opens, focus: bool) -> None:
    """The focused button, or what is at the top, stays where it was although there is much more above it."""
    live.show(reports[0])
    page = opens(live.url)
    seen = page.locator("#places th button").first if focus else page.get_by_role("heading", name="Destinations")
    seen.evaluate("(element) => element.scrollIntoView()")
    if focus:
        seen.focus()
    place, before = top(seen), page.evaluate("scrollY")
    live.show(html(large(2000, 2000)))
    expect(page.locator(".figures dd").first).to_have_text("2,000", timeout=SOON)
    assert abs(top(seen) - place) <= 1  # browsers scroll by whole pixels
    assert page.evaluate("scrollY") > before + 1000
    assert seen.evaluate("(element) => element === document.activeElement") is focus


def top(element: Locator) -> int:
    """Return where an element is in the window, in pixels from above."""
    box = element.bounding_box()
    assert box is not None
    return round(box["y"])


def test_a_long_list_stays_long(live: LiveReport, opens: Opens) -> None:
    """Where all findings were asked for, all are listed again."""
    live.show(html(large(2000, 20_000)))
    page = opens(live.url)
    page.get_by_role("button", name="Show all 500").click()
    live.show(html(large(2001, 20_000)))
    expect(page.locator(".figures dd").first).to_have_text("2,001", timeout=SOON)
    assert page.locator("#causes tr.cause:visible").count() == 500


def test_nothing_is_replaced_under_the_reader(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """While text is selected a newer report waits, and the page says so."""
    live.show(reports[0])
    page = opens(live.url)
    page.locator("h1").select_text()
    live.show(reports[1])
    expect(page.locator(".live")).to_have_text("Live, a newer report waits while text is selected", timeout=SOON)
    expect_messages(page, SHOWN[0])
    page.evaluate("getSelection().removeAllRanges()")
    expect_messages(page, SHOWN[1])


@pytest.mark.parametrize(("zone", "offset"), [("UTC", "UTC"), ("Asia/Kolkata", "GMT+5:30")])
def test_the_chosen_time_stays(reports: list[str], live: LiveReport, opens: Opens, zone: str, offset: str) -> None:
    """It is the same time although the charts reach further, chosen, and shown alone; all in the reader's zone."""
    live.show(reports[0])
    page = opens(live.url, timezone_id=zone)
    page.locator("#to").focus()
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
    chosen = page.locator("#within").inner_text()
    assert f" {offset}: " in chosen
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    assert page.locator("#within").inner_text().partition(" messages")[0] == chosen.partition(" messages")[0]
    assert f"{offset}." in page.locator("#time + p").inner_text().replace(")", "")
    page.locator("#zoom").click()
    assert page.locator("#whole").is_visible()
    live.show(reports[0])
    expect_messages(page, SHOWN[0])
    assert page.locator("#whole").is_visible()
    page.locator("#whole").click()
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    assert page.locator("#within").inner_text() == ""
    assert not page.locator("#whole").is_visible()


def test_nothing_piles_up(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """Listeners of a report that was replaced are gone, and its data with them."""
    live.show(reports[0])
    page = opens(live.url)
    before = listeners(page)
    for number in (1, 0, 1):
        live.show(reports[number])
        expect_messages(page, SHOWN[number])
    assert listeners(page) == before


def listeners(page: Page) -> list[int]:
    """Count the listeners of the window and of the document."""
    session = page.context.new_cdp_session(page)
    found = []
    for name in ("window", "document"):
        target = session.send("Runtime.evaluate", {"expression": name})["result"]["objectId"]
        found.append(len(session.send("DOMDebugger.getEventListeners", {"objectId": target})["listeners"]))
    return found


# What the page says of itself


def test_the_page_says_how_old_it_is(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """In words; that it is live is read out, the seconds are not."""
    live.show(reports[0])
    page = opens(live.url)
    expect(page.locator(".live")).to_have_text(re.compile("^Live, updated [2-9] seconds ago$"), timeout=SOON)
    assert page.locator(".live [role=status]").inner_text() == "Live"
    live.show(reports[0])
    expect(page.locator(".live")).to_have_text(re.compile("^Live, updated (now|1 second ago)$"), timeout=SOON)


def test_a_lost_connection_is_said_and_tried_again(reports: list[str], browser: Browser) -> None:
    """The report stays; that of the next run is shown as soon as there is one."""
    with LiveReport("127.0.0.1:0") as first:
        first.show(reports[0])
        address = first.url.removeprefix("http://").strip("/")
        page = browser.new_page()
        page.goto(first.url)
        expect(page.locator(".live")).to_contain_text("Live")
    expect(page.locator(".live")).to_have_text(
        re.compile(r"^Not connected; trying again; the report is of \d\d:\d\d:\d\d$"), timeout=SOON
    )
    expect_messages(page, SHOWN[0])
    with LiveReport(address) as second:
        second.show(reports[1])
        expect_messages(page, SHOWN[1])
        expect(page.locator(".live")).to_contain_text("Live, updated")
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_keeps_people_from_reading_it(
    reports: list[str], live: LiveReport, opens: Opens, scheme: str, width: int
) -> None:
    """axe-core finds nothing after an update, with a finding open; the page is no wider than it was."""
    live.show(reports[0])
    page = opens(live.url, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page.locator("#causes .open").first.click()
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    page.add_style_tag(content="*, *::before { transition: none !important }")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_it_is_loaded_again(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """Now and then; with scripts it never is."""
    live.show(reports[0])
    page = opens(live.url, java_script_enabled=False)
    assert page.locator("head noscript meta").get_attribute("http-equiv") == "refresh"
    assert page.locator(".figures dd").first.inner_text() == str(SHOWN[0])
    with_scripts = opens(live.url)
    live.show(reports[1])
    expect_messages(with_scripts, SHOWN[1])
    assert with_scripts.locator("meta[http-equiv=refresh]").count() == 0
    assert not with_scripts.get_by_text("loads nothing").is_visible()


def test_a_page_that_nobody_sees_has_no_connection(reports: list[str], live: LiveReport, opens: Opens) -> None:
    """A browser has few for one server; seen again, the page shows the newest report."""
    live.show(reports[0])
    page = opens(live.url)
    expect(page.locator(".live")).to_contain_text("updated")
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)

    def is_let_go() -> bool:
        live.show(reports[1])  # who left is noticed when there is something to say
        return not live._server._server.held

    eventually(is_let_go, "the connection is closed")
    expect_messages(page, SHOWN[0])
    page.evaluate(hide, False)
    expect_messages(page, SHOWN[1])


# Whatever it is given


def test_texts_of_a_log_stay_texts(tmp_path: Path, reports: list[str], live: LiveReport, opens: Opens) -> None:
    """Also those of a report that comes later; a token in the address is used for all requests."""
    replay(attacks(tmp_path), tmp_path / "out", engine="local")
    live.show(reports[0])
    page = opens(live.url)
    live.show((tmp_path / "out" / "report.html").read_text("utf-8"))
    expect(page.locator(".parties").first).to_contain_text("alert(1)", timeout=SOON)
    for button in page.locator("#causes .open:visible").all():
        button.click()
    assert "<img src=x onerror=alert(2)>" in page.locator(".sample").first.inner_text()
    live.show(reports[1])
    expect_messages(page, SHOWN[1])
    assert page.locator("img, iframe, object, script").count() == 0


def test_a_page_with_a_token(reports: list[str], opens: Opens) -> None:
    """The address has it; the page goes on with it."""
    with LiveReport("0.0.0.0:0") as live:
        live.show(reports[0])
        page = opens(re.sub("//[^:/]+", "//127.0.0.1", live.url))
        live.show(reports[1])
        expect_messages(page, SHOWN[1])
        page.context.close()


# From the log to the page


def test_records_arrive_in_the_page(tmp_path: Path, opens: Opens) -> None:
    """From a log that grows, by the command; at Ctrl-C it ends, and leaves nothing that listens."""
    logs, said = tmp_path / "logs", tmp_path / "said.txt"
    logs.mkdir()
    write_log(logs / "1.jsonl", *traffic()[: SHOWN[0]])
    words = command("replay", "--follow", logs, "--out", tmp_path / "out", "--every", "0.2", "--serve", "0", "--json")
    with said.open("wb") as error, (tmp_path / "out.json").open("wb") as output:
        running = subprocess.Popen(
            words, cwd=tmp_path, env=environment(), stdout=output, stderr=error, start_new_session=True
        )
    try:
        url = address(running, said)
        page = opens(url)
        expect_all(page, SHOWN[0])
        search(page, "s:failed a:2010")
        page.locator(".open:visible").click()
        page.locator("#query").focus()
        before = state(page)
        assert lines(page) == [["6", "failed", "Protocol-2010"]]
        write_log(logs / "2.jsonl", *traffic()[SHOWN[0] :])
        expect_all(page, SHOWN[1])
        assert lines(page) == [["12", "failed", "Protocol-2010"]]
        assert state(page) == before
        page.context.close()
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(120) == 1  # something failed
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(30)
    assert said.read_text("utf-8").count(url) == 1
    assert (tmp_path / "out.json").read_text("utf-8") == (tmp_path / "out" / "summary.json").read_text("utf-8")
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(tmp_path / "out", tmp_path / "batch")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.split(":")[2].strip("/"))))


def address(running: subprocess.Popen[bytes], said: Path) -> str:
    """Wait until the command says where the page is."""
    deadline = monotonic() + 60
    while (found := re.search(r"^report at (\S+)$", said.read_text("utf-8"), re.MULTILINE)) is None:
        assert running.poll() is None, said.read_text("utf-8")
        assert monotonic() < deadline, said.read_text("utf-8")
        sleep(0.02)
    return found[1]


def expect_all(page: Page, number: int) -> None:
    """Wait for a report of so many messages, through the start of the command and its steps."""
    expect(page.locator(".figures dd").first).to_have_text(str(number), timeout=120_000)
