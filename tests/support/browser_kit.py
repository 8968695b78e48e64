"""Pages in a real browser, without a window.

`make packages` fetches axe-core, which finds what keeps people from reading a page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from playwright.sync_api import Browser, Page, sync_playwright

AXE = ROOT / "build/report-page/node_modules/axe-core/axe.min.js"
CHROMIUM = os.environ.get("CHROMIUM", "chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium; it runs what the test opens in a sandbox only where it is not started by root."""
    program = shutil.which(CHROMIUM)
    assert program is not None, f"there is no {CHROMIUM}: run scripts/need-browser.sh first"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        yield started
        started.close()


Opens = Callable[..., Page]


@pytest.fixture
def opens(browser: Browser) -> Iterator[Opens]:
    """Give a way to open a page, in UTC or as said; at the end assert that it logged and asked for nothing else."""
    heard: list[str] = []
    contexts = []

    def open_page(path: Path, fragment: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"timezone_id": "UTC", **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: None if request.url.startswith(path.as_uri()) else heard.append(request.url))
        page.goto(path.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


def lines(page: Page) -> list[list[str]]:
    """Return number, verdict and assertion of each cause that is listed."""
    rows = page.locator("#causes tr.cause:visible").all()
    return [[cell.split("\n")[0] for cell in row.locator("td").all_inner_texts()[1:4]] for row in rows]


def search(page: Page, text: str) -> None:
    """Type a search and wait until the page shows it."""
    page.fill("#query", text)
    page.wait_for_function("(text) => decodeURIComponent(location.hash.replaceAll('+', ' ')).includes(text)", arg=text)


def problems(page: Page) -> list[str]:
    """Let axe-core look at the page, with all its rules."""
    assert AXE.exists(), f"there is no {AXE.relative_to(ROOT)}: run `make packages` first"
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found["violations"]]
