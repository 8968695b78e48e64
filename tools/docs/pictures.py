"""Take the pictures of reports that the README and docs/report.md show: docs/images/*.png.

python tools/docs/pictures.py [FOLDER]    # or: make pictures

Most are of the replay of tests/data/cxf-exchanges.jsonl, compared with one of its first half. Two more show how the
reports begin of the demo, and of 100,000 generated messages compared with those of the week before. Chromium opens
them with UTC as the reader's time zone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
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


OF_CAPTURE: Final[dict[str, tuple[int, Callable[[Page], None]]]] = {
    "report.png": (960, _top),
    "report-finding.png": (1000, _finding),
    "report-changes.png": (620, _changes),
    "report-time.png": (900, _time),
}
"""The pictures: their height, and what is done before each is taken."""


GENERATED: Final = ("-n", "100000", "--queues", "2", "--pace", "2", "--broken", "0")
WEEKS: Final = {
    "last-week": ("--seed", "1", "--rate", "charset=0.01", "--rate", "no-request-uri-served=0.02"),
    "this-week": ("--seed", "2", "--rate", "charset=0.01", "--rate", "binding-version=0.05"),
}
"""How the messages of two weeks are generated."""


def take(report: Path, folder: Path, pictures: Mapping[str, tuple[int, Callable[[Page], None]]]) -> None:
    """Write pictures of a page, as Chromium shows it in the light setting."""
    program = shutil.which(CHROMIUM)
    if program is None:
        sys.exit(f"there is no {CHROMIUM}: run scripts/need-browser.sh first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        for name, (height, act) in pictures.items():
            size = {"width": WIDTH, "height": height}
            page = browser.new_page(viewport=size, color_scheme="light", timezone_id="UTC")  # type: ignore[arg-type]
            page.emulate_media(reduced_motion="reduce")
            page.goto(report.as_uri())
            act(page)
            page.screenshot(path=folder / name)
            page.close()
            print(f"{folder / name}: {(folder / name).stat().st_size / 1024:.0f} KiB")
        browser.close()


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, timeout=300)  # noqa: S603 - our own


def main(folder: str = str(IMAGES)) -> None:
    """Replay the captures, and take the pictures."""
    with TemporaryDirectory() as scratch:
        half = Path(scratch, "half.jsonl")
        half.write_text("".join(CAPTURE.read_text("utf-8").splitlines(keepends=True)[:EARLIER_RECORDS]), "utf-8")
        replay(half, Path(scratch, "earlier"), engine="local")
        replay(CAPTURE, Path(scratch, "report"), engine="local", against=Path(scratch, "earlier"))
        take(Path(scratch, "report/report.html"), Path(folder), OF_CAPTURE)
        _run(str(ROOT / "examples/demo.py"), "--out", f"{scratch}/demo")
        take(Path(scratch, "demo/replay/report.html"), Path(folder), {"report-of-the-demo.png": (960, _top)})
        for week, options in WEEKS.items():
            _run("-m", "soapjms", "generate", f"{scratch}/{week}", *GENERATED, *options)
            against = Path(scratch, "last-week-report") if week == "this-week" else None
            replay(f"{scratch}/{week}/logs", Path(scratch, f"{week}-report"), engine="local", against=against)
        page = Path(scratch, "this-week-report/report.html")
        take(page, Path(folder), {"report-of-100000-messages.png": (960, _top)})


if __name__ == "__main__":
    main(*sys.argv[1:])
