"""Take the picture of a report that the README shows: docs/images/report.png.

python tools/docs/pictures.py [PNG]    # or: make pictures

The report is that of a replay of tests/data/cxf-exchanges.jsonl, opened in Chromium.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import sync_playwright

from soapjms.replay import replay

ROOT: Final = Path(__file__).resolve().parents[2]
CAPTURE: Final = ROOT / "tests/data/cxf-exchanges.jsonl"
PICTURE: Final = ROOT / "docs/images/report.png"
CHROMIUM: Final = os.environ.get("CHROMIUM", "chromium")
SIZE: Final = {"width": 1240, "height": 960}
"""Pixels: the top of the report and its findings."""


def take(page: Path, picture: Path) -> None:
    """Write a picture of the top of a page, as Chromium shows it in the light setting."""
    program = shutil.which(CHROMIUM)
    if program is None:
        sys.exit(f"there is no {CHROMIUM}: run scripts/need-browser.sh first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        shown = browser.new_page(viewport=SIZE, color_scheme="light")
        shown.goto(page.as_uri())
        shown.screenshot(path=picture)
        browser.close()


def main(picture: str = str(PICTURE)) -> None:
    """Replay the capture, and take the picture."""
    with TemporaryDirectory() as folder:
        replay(CAPTURE, Path(folder) / "report", engine="local")
        take(Path(folder) / "report/report.html", Path(picture))
    print(f"{picture}: {Path(picture).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
