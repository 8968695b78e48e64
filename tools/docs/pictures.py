"""Take the pictures of a report that the README and docs/report.md show: docs/images/*.png.

python tools/docs/pictures.py [FOLDER]    # or: make pictures

The report is that of a replay of tests/data/cxf-exchanges.jsonl, compared with one of its first half, opened in
Chromium with UTC as the reader's time zone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Page, sync_playwright

from soapjms.replay import replay

ROOT: Final = Path(__file__).resolve().parents[2]
CAPTURE: Final = ROOT / "tests/data/cxf-exchanges.jsonl"
IMAGES: Final = ROOT / "docs/images"
CHROMIUM: Final = os.environ.get("CHROMIUM", "chromium")
EARLIER_RECORDS: Final = 13
"""How many records the replay has that the report compares with: half of the capture."""
WIDTH: Final = 1240


def _top(page: Page) -> None:
    """Leave the page as it opens."""


def _finding(page: Page) -> None:
    page.locator("#causes .open").first.click()
    _go_to(page, "#findings")


def _time(page: Page) -> None:
    _go_to(page, "#time")
    box = page.locator("figure svg").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()


def _changes(page: Page) -> None:
    _go_to(page, "#changes")


def _go_to(page: Page, heading: str) -> None:
    page.locator(heading).evaluate("(heading) => heading.scrollIntoView()")


PICTURES: Final[dict[str, tuple[int, Callable[[Page], None]]]] = {
    "report.png": (960, _top),
    "report-finding.png": (1000, _finding),
    "report-changes.png": (620, _changes),
    "report-time.png": (900, _time),
}
"""The pictures: their height, and what is done before each is taken."""


def take(report: Path, folder: Path) -> None:
    """Write the pictures of a page, as Chromium shows it in the light setting."""
    program = shutil.which(CHROMIUM)
    if program is None:
        sys.exit(f"there is no {CHROMIUM}: run scripts/need-browser.sh first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        for name, (height, act) in PICTURES.items():
            size = {"width": WIDTH, "height": height}
            page = browser.new_page(viewport=size, color_scheme="light", timezone_id="UTC")  # type: ignore[arg-type]
            page.emulate_media(reduced_motion="reduce")
            page.goto(report.as_uri())
            act(page)
            page.screenshot(path=folder / name)
            page.close()
            print(f"{folder / name}: {(folder / name).stat().st_size / 1024:.0f} KiB")
        browser.close()


def main(folder: str = str(IMAGES)) -> None:
    """Replay the capture, and take the pictures."""
    with TemporaryDirectory() as scratch:
        half = Path(scratch, "half.jsonl")
        half.write_text("".join(CAPTURE.read_text("utf-8").splitlines(keepends=True)[:EARLIER_RECORDS]), "utf-8")
        replay(half, Path(scratch, "earlier"), engine="local")
        replay(CAPTURE, Path(scratch, "report"), engine="local", against=Path(scratch, "earlier"))
        take(Path(scratch, "report/report.html"), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
