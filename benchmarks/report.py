"""How large the report of a large replay is, how soon it can be read, how long a search takes, and all of it live.

python benchmarks/report.py [--messages 1000000] [--findings 100000] [--rounds 5] [--keep FILE] [--rows file live]

The results of a run over that many messages are made up: findings of every assertion, each with a message of its own,
at 150 destinations. Printed are the time to write the page, its size, the first paint as Chromium tells it, and for
some searches, and for opening a finding, the time to the next frame, without the wait for further keys. Of several
rounds the middle one counts. Wanted: at most 3 MB, 0.5 s, and 0.1 s.

The row `live` serves the report as `soapjms replay --follow ... --serve PORT` does, from a process of its own, which
writes a new result for each round, with one more message. Printed are the octets of the page and of an update on the
wire, the first paint, the time from a new result on disk until the browser has drawn it, whether the finding that was
opened stays open, and the memory of the process, also beyond what the results take. Wanted: at most 1 MB, 1 s, 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT)]

from report_kit import large  # noqa: E402  # from tests/

from soapjms.replay.report import html, write  # noqa: E402
from soapjms.serving.live_report import LiveReport  # noqa: E402

WANTED_OCTETS: Final = 3_000_000
WANTED_PAINT: Final = 0.5
WANTED_SEARCH: Final = 0.1
WANTED_UPDATE: Final = 1.0
WANTED_UPDATE_OCTETS: Final = 1_000_000
WANTED_LIVE_MEMORY: Final = 64 << 20
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


def paint(browser: Browser, url: str) -> float:
    """Open the page as for the first time; return the seconds until something of it is seen."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
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


# The live page


def serve(messages: int, findings: int, folder: Path) -> None:
    """Serve a result that gets one more message with each line of standard input; say what is done in JSON."""
    summary = large(messages, findings)
    write(summary, folder)
    tell({"resident": resident(os.getpid())})
    with LiveReport("127.0.0.1:0") as page:
        page.show((folder / "report.html").read_text("utf-8"))
        tell({"url": page.url})
        for number, _ in enumerate(sys.stdin, 1):
            began = time.time()
            write(replace(summary, members={**summary.members, "messages": messages + number}), folder)
            written = time.time()
            page.show((folder / "report.html").read_text("utf-8"))
            tell({"took": written - began, "written": written})


def tell(members: dict[str, Any]) -> None:
    """Tell the process that measures."""
    print(json.dumps(members), flush=True)


def resident(process: int) -> int:
    """Return the resident memory of a process, in octets."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


class Server:
    """The process that serves a result."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.results_octets = int(self.heard()["resident"])
        self.url = str(self.heard()["url"])

    def heard(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def renew(self) -> dict[str, Any]:
        """Let it write a new result, and show that."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.heard()

    @property
    def memory(self) -> int:
        """Its resident memory, in octets."""
        return resident(self._process.pid)


@contextmanager
def serving(messages: int, findings: int, folder: str) -> Iterator[Server]:
    """Start the process, and end it."""
    sizes = ["--messages", str(messages), "--findings", str(findings)]
    command = [sys.executable, __file__, *sizes, "--serve", folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.communicate()  # the end of its input is its end


WATCH: Final = """() => {
  const number = () => document.querySelector(".figures dd")?.textContent, before = number();
  window.shown = new Promise((done) => {
    const observer = new MutationObserver(() => {
      if ([undefined, before].includes(number())) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(performance.timeOrigin + performance.now())));
    });
    observer.observe(document.body, { childList: true, subtree: true });
  });
}"""
"""Waits until another number of messages is drawn."""


class Wire:
    """Counts the octets that a page receives, as they are on the wire."""

    def __init__(self, page: Page) -> None:
        self._octets: dict[str, int] = {}
        session = page.context.new_cdp_session(page)
        session.on("Network.dataReceived", self._take)
        session.on("Network.loadingFinished", self._take_whole)
        session.send("Network.enable")

    @property
    def octets(self) -> int:
        """The octets of all answers so far."""
        return sum(self._octets.values())

    def _take(self, event: dict[str, Any]) -> None:
        self._octets[event["requestId"]] = self._octets.get(event["requestId"], 0) + int(event["encodedDataLength"])

    def _take_whole(self, event: dict[str, Any]) -> None:
        self._octets[event["requestId"]] = int(event["encodedDataLength"])


class Update(NamedTuple):
    """What one update took: seconds until it was drawn, and octets; and whether what was open stayed open."""

    seconds: float
    octets: int
    is_open: bool


def update(page: Page, wire: Wire, server: Server) -> Update:
    """Let there be a new result, and wait for it."""
    before, opened = wire.octets, page.locator("[aria-expanded=true]").first.get_attribute("aria-label")
    page.evaluate(WATCH)
    said = server.renew()
    seconds = page.evaluate("() => window.shown") / 1000 - said["written"]
    open_now = [each.get_attribute("aria-label") for each in page.locator("[aria-expanded=true]").all()]
    is_open = open_now == [opened] and page.locator("tr.detail article").count() > 0
    return Update(seconds, wire.octets - before, is_open)


def measure_live(browser: Browser, messages: int, findings: int, rounds: int) -> bool:
    """Serve a result, renew it, and print what that takes; return whether all of it is as wanted."""
    with tempfile.TemporaryDirectory() as folder, serving(messages, findings, folder) as server:
        first = median(paint(browser, server.url) for _ in range(rounds))
        page = browser.new_page()
        wire = Wire(page)
        page.goto(server.url)
        octets = wire.octets
        page.locator("#causes tr.cause .open").first.click()
        updates = [update(page, wire, server) for _ in range(rounds)]
        page.close()
        memory, beyond = server.memory, server.memory - server.results_octets
    seconds, sent = median(each.seconds for each in updates), max(each.octets for each in updates)
    stays = all(each.is_open for each in updates)
    return all(
        [
            say("live: octets of the page on the wire", f"{octets / 1e6:.2f} MB", octets <= WANTED_UPDATE_OCTETS),
            say("live: first paint", f"{first:.3f} s", first <= WANTED_PAINT),
            say("live: from a new result to its update", f"{seconds:.3f} s", seconds <= WANTED_UPDATE),
            say("live: octets of an update on the wire", f"{sent / 1e6:.2f} MB", sent <= WANTED_UPDATE_OCTETS),
            say("live: an open finding stays open", "yes" if stays else "no", stays),
            say("live: memory of the server", f"{memory / (1 << 20):.0f} MiB", True),
            say("live: of that for the page", f"{beyond / (1 << 20):.0f} MiB", beyond <= WANTED_LIVE_MEMORY),
        ]
    )


def say(what: str, value: str, within: bool) -> bool:
    """Print one line, and return whether it is as wanted."""
    print(f"{what:<50} {value:>12}  {'' if within else '(too much)'}")
    return within


def measure(browser: Browser, path: Path, rounds: int) -> bool:
    """Open the page and print what it takes; return whether all of it is as wanted."""
    paint(browser, path.as_uri())  # the browser itself is warm after this
    first = median(paint(browser, path.as_uri()) for _ in range(rounds))
    good = [say("first paint", f"{first:.3f} s", first <= WANTED_PAINT)]
    taken = opens(browser, path, rounds)
    good.append(say("opening a finding", f"{taken:.3f} s", taken <= WANTED_SEARCH))
    for text, taken in searches(browser, path, rounds).items():
        good.append(say(f"search: {text or '(none)'}", f"{taken:.3f} s", taken <= WANTED_SEARCH))
    return all(good)


def measure_file(browser: Browser, options: argparse.Namespace) -> bool:
    """Write the page, and print what that and reading it take; return whether all of it is as wanted."""
    summary = large(options.messages, options.findings)
    began = time.perf_counter()
    page = html(summary)
    print(f"{options.messages} messages, {options.findings} findings: written in {time.perf_counter() - began:.2f} s")
    octets = len(page.encode())
    good = say("size", f"{octets / 1e6:.2f} MB", octets <= WANTED_OCTETS)
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep.resolve() if options.keep else Path(folder) / "report.html"
        path.write_text(page, "utf-8")
        return measure(browser, path, options.rounds) and good


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser."""
    program = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if program is None:
        sys.exit("there is no chromium: run scripts/need-browser.sh first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        yield browser
        browser.close()


def main() -> int:
    """Measure, and return 0 if all is as wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="where to leave the page")
    parser.add_argument("--rows", nargs="+", choices=["file", "live"], default=["file", "live"])
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)  # the process of the row `live`
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.messages, options.findings, options.serve)
        return 0
    with chromium() as browser:
        good = [measure_file(browser, options)] if "file" in options.rows else []
        if "live" in options.rows:
            good.append(measure_live(browser, options.messages, options.findings, options.rounds))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
