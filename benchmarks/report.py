"""How large the report of a large replay is, how soon it can be read, and how long a search in it takes.

python benchmarks/report.py [--messages 1000000] [--findings 100000] [--rounds 5] [--keep FILE]

The results of a run over that many messages are made up: findings of every assertion, each with a message of its own,
at 150 destinations. Printed are the time to write the page, its size, the first paint as Chromium tells it, and for
some searches, and for opening a finding, the time to the next frame, without the wait for further keys. Of several
rounds the middle one counts. Wanted: at most 3 MB, 0.5 s, and 0.1 s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT)]

from report_kit import large  # noqa: E402  # from tests/

from soapjms.replay.report import html  # noqa: E402

WANTED_OCTETS: Final = 3_000_000
WANTED_PAINT: Final = 0.5
WANTED_SEARCH: Final = 0.1
SEARCHES: Final = (
    "s:failed",
    "q:service.007",
    "a:Protocol-2012 s:failed q:service.1",
    "-p:cxf way",
    "wrong in way c",
    "nothing-of-the-kind",
    "",
)
PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SEARCH: Final = """async (text) => {
  const query = document.querySelector("#query");
  await new Promise(requestAnimationFrame);
  const began = performance.now();
  query.value = text;
  query.dispatchEvent(new Event("change"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}"""


def paint(browser: Browser, path: Path) -> float:
    """Open the page as for the first time; return the seconds until something of it is seen."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_function(f"{PAINT} !== undefined")
    found = page.evaluate(PAINT)
    context.close()
    return float(found) / 1000


def searches(browser: Browser, path: Path, rounds: int) -> dict[str, float]:
    """Search in the page; return the seconds for each search."""
    page = browser.new_page()
    page.goto(path.as_uri())
    found = {text: median(page.evaluate(SEARCH, text) for _ in range(rounds)) / 1000 for text in SEARCHES}
    page.close()
    return found


OPEN: Final = """async () => {
  const began = performance.now();
  document.querySelector("#causes tr.cause .open").click();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}"""


def opens(browser: Browser, path: Path, rounds: int) -> float:
    """Open the first finding of the page; return the seconds until it is seen."""
    taken = []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(path.as_uri())
        taken.append(page.evaluate(OPEN) / 1000)
        page.close()
    return median(taken)


def say(what: str, value: str, within: bool) -> bool:
    """Print one line, and return whether it is as wanted."""
    print(f"{what:<50} {value:>12}  {'' if within else '(too much)'}")
    return within


def measure(path: Path, rounds: int) -> bool:
    """Open the page and print what it takes; return whether all of it is as wanted."""
    program = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if program is None:
        sys.exit("there is no chromium: run scripts/need-browser.sh first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        paint(browser, path)  # the browser itself is warm after this
        first = median(paint(browser, path) for _ in range(rounds))
        good = [say("first paint", f"{first:.3f} s", first <= WANTED_PAINT)]
        taken = opens(browser, path, rounds)
        good.append(say("opening a finding", f"{taken:.3f} s", taken <= WANTED_SEARCH))
        for text, taken in searches(browser, path, rounds).items():
            good.append(say(f"search: {text or '(none)'}", f"{taken:.3f} s", taken <= WANTED_SEARCH))
        browser.close()
    return all(good)


def main() -> int:
    """Measure, and return 0 if all is as wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="where to leave the page")
    options = parser.parse_args()
    summary = large(options.messages, options.findings)
    began = time.perf_counter()
    page = html(summary)
    print(f"{options.messages} messages, {options.findings} findings: written in {time.perf_counter() - began:.2f} s")
    octets = len(page.encode())
    good = say("size", f"{octets / 1e6:.2f} MB", octets <= WANTED_OCTETS)
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep.resolve() if options.keep else Path(folder) / "report.html"
        path.write_text(page, "utf-8")
        good &= measure(path, options.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
