"""The code of README.md and docs/*.md, and a reader who tries it: in order, in a fresh interpreter and an empty folder.

A block whose fence names a file (```toml smqp.toml) is that file, so a later block of the page may use it. Any other
block of Python is run, in one namespace for the page; of a block of `console` each command is run, and what it prints
is compared with what the page shows, in which `…`, or a line `...`, stands for anything. Ports and brokers of a page
are exchanged for those of the test.

python tests/support/page_kit.py docs/PAGE.md '{"localhost:61613": "127.0.0.1:40001"}'    # in the folder of the reader
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any, Final

from lxml import etree
from places import ROOT

from brokers.naming.properties_file import read_properties

FENCE: Final = re.compile(r"^( *)```(\w*) ?(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
IMPORT: Final = re.compile(r"(?:import|from) ")
SECONDS: Final = 60
"""The longest that one command may take."""

NOT_RUN: Final[Mapping[str, str]] = {
    "mermaid": "a drawing, made from the tables by tools/docs/generate.py",
    "text": "what a program writes, or a drawing: there is nothing to run",
}
"""The languages of blocks that are not run, and why."""

NOT_TYPED: Final[Mapping[str, str]] = {
    "pip install": "downloads; `make journey` installs the wheel with each extra",
    'eval "$(_SOAPJMS_COMPLETE=zsh_source': "needs zsh; tests/cli/test_cli_configuration.py reads what it would",
    "_SOAPJMS_COMPLETE=fish_source": "needs fish, likewise",
    "spark-submit": "needs a cluster; tests/replay/test_replay_executors.py runs it in one process",
    "soapjms replay captures --out report --engine spark": "starts Spark for half a minute; tests/replay does",
    "soapjms replay captures --out report --master": "likewise",
    "soapjms replay --follow": "likewise",
    "PYTHONPATH=/tmp/zeep": "runs tests of a checkout; `make test-oldest-zeep` does",
}
"""How commands begin that are not run, and why."""

ENDLESS: Final[Mapping[str, str]] = {
    "soapjms serve ": "serving ",
    "soapjms broker ": "",
    "soapjms bridge ": "",
}
"""How commands begin that run until they are told to end; here they are, after a line that begins as said here."""

FINDINGS: Final = ("soapjms replay ", "soapjms report ", "soapjms doctor ", "soapjms wsdl lint ", "soapjms uri ")
"""How commands begin whose exit status may be 1, as they may find something."""


@dataclass(frozen=True)
class Block:
    """A block of code on a page.

    Attributes:
        page: the path of the page in the repository.
        line: the number of its first line in the page.
        language: as on its fence; empty if that names none.
        file: the name of the file that it is; empty if it is none.
    """

    page: str
    line: int
    language: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_program(self) -> bool:
        """Whether it is Python to run."""
        return self.language == "python" and not self.file

    @property
    def stands_alone(self) -> bool:
        """Whether it is a program that needs none of those above it: such a block begins with its imports."""
        return self.is_program and bool(IMPORT.match(self.text))


def pages() -> list[str]:
    """Return the paths of all pages in the repository."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order, those within lists too."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(
            page,
            text[: found.start()].count("\n") + 2,
            found[2],
            found[3],
            re.sub(rf"^{found[1]}", "", found[4], flags=re.MULTILINE),
        )
        for found in FENCE.finditer(text)
    ]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block of `console`, and what the page shows of its output."""
    for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:.*\\\n)*.*)\n?", each)
        assert found is not None
        yield found[1], each[found.end() :]


def why_not_typed(command: str) -> str | None:
    """Return how a command begins that is not run, or None."""
    return next((start for start in NOT_TYPED if command.startswith(start)), None)


def is_shown(shown: str, written: str) -> bool:
    """Tell whether a page shows what a program wrote: nothing, or all but what `…` or `...` stands for."""
    pattern = re.sub(r"(\\\.\\\.\\\.\\\n|…)", ".*?", re.escape(shown))
    return not shown or re.fullmatch(pattern, written, re.DOTALL) is not None


def wait_and_end(child: subprocess.Popen[str], awaited: str) -> str:
    """Read what a program writes until a line begins as awaited, or all; then tell it to end. Return what was read."""
    lines: list[str] = []
    assert child.stdout is not None
    too_late = Timer(SECONDS, child.kill)
    too_late.start()
    for line in child.stdout:
        lines.append(line)
        if line.startswith(awaited):
            child.send_signal(signal.SIGTERM)
            break
    too_late.cancel()
    return "".join(lines)


class Reader:
    """Somebody who tries a page in the current folder.

    Args:
        exchanged: texts of the page, and what to read in their place.
    """

    def __init__(self, exchanged: Mapping[str, str]) -> None:
        self._exchanged = exchanged
        self._scope: dict[str, Any] = {"__name__": "__main__"}
        self._variables = dict(os.environ)

    def attempt(self, block: Block) -> None:
        """Do what a block says.

        Raises:
            AssertionError: a command ended otherwise than it should, or printed what the page does not show.
            Exception: what the code of the block raises, or the reader of its language.
        """
        text = self._exchange(block.text)
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(text)
        if not (block.language in NOT_RUN or (block.file and block.language == "python")):
            READERS[block.language](self, text)

    def _exchange(self, text: str) -> str:
        for before, now in self._exchanged.items():
            text = text.replace(before, now)
        return text

    def run_python(self, text: str) -> None:
        """Run Python, in the namespace of the page."""
        exec(compile(text, "block", "exec", dont_inherit=True), self._scope)

    def type_commands(self, text: str) -> None:
        """Type the commands of a block, and compare what they write."""
        for command, shown in commands(text):
            if why_not_typed(command) is None:
                self._type(command, shown)

    def _type(self, command: str, shown: str) -> None:
        if command.startswith("export "):
            name, _, value = shlex.split(command, comments=True)[1].partition("=")
            self._variables[name] = value
            return
        awaited = next((line for start, line in ENDLESS.items() if command.startswith(start)), None)
        words = ["bash", "-c", command if awaited is None else f"exec {command}"]
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._variables,
        ) as child:
            try:
                written = "" if awaited is None else wait_and_end(child, awaited)
                rest, errors = child.communicate(timeout=SECONDS)
                written += rest
            finally:
                child.kill()
        allowed = (0, 1) if command.startswith(FINDINGS) else (0,)
        assert child.returncode in allowed, f"$ {command}\n{written}{errors}exit status {child.returncode}"
        assert is_shown(shown, written), f"$ {command}\nshown:\n{shown}\nwritten:\n{written}{errors}"


READERS: Final[Mapping[str, Callable[[Reader, str], object]]] = {
    "python": Reader.run_python,
    "console": Reader.type_commands,
    "toml": lambda _, text: tomllib.loads(text),
    "json": lambda _, text: json.loads(text),
    "xml": lambda _, text: etree.fromstring(text),
    "properties": lambda _, text: read_properties(text),
}
"""What reads a block of a language."""


def main(page: str, exchanged: str, line: str = "") -> None:
    """Try a page, or its block at one line without those above it but for the files that they are."""
    reader = Reader(json.loads(exchanged))
    for block in blocks(page):
        if not line or block.file or str(block.line) == line:
            try:
                reader.attempt(block)
            except BaseException as error:
                error.add_note(f"{block}: {block.text.splitlines()[0]}")
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
