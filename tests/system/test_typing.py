"""A program that uses the installed soapjms, for mypy and for pyright: both refuse the same lines, and no others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from distribution_kit import build
from places import DATA, ROOT

PROGRAM = DATA / "typing" / "program.py"
PYRIGHT = ROOT / "build" / "pyright" / "node_modules" / "pyright" / "index.js"


class Judgement(NamedTuple):
    """What a type checker said.

    Attributes:
        errors: by line, the first error.
        types: by line, the type that a `reveal_type` revealed, without the names of modules.
    """

    errors: dict[int, str]
    types: dict[int, str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; what the wheel needs is that of this environment."""
    folder = tmp_path_factory.mktemp("typing")
    wheel, _ = build(folder / "built")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True, timeout=60)
    python = folder / "env" / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), "utf-8")  # whose own .pth files do not count
    return python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program, where no soapjms is near."""
    return Path(shutil.copy(PROGRAM, tmp_path))


def judgement(found: list[tuple[int, bool, str]], revealed: str) -> Judgement:
    """Sort what was said of each line."""
    errors, types = dict[int, str](), dict[int, str]()
    for line, is_error, text in found:
        if reveal := re.fullmatch(revealed, text):
            named = re.sub(r"\b(?:\w+\.)+(?=\w)", "", reveal[1])
            types[line] = re.sub(r"tuple\[[^\[\]]*, fallback=(\w+)\]", r"\1", named)  # mypy's named tuples
        elif is_error:
            errors.setdefault(line, text)
    return Judgement(errors, types)


def run(words: list[str], program: Path) -> str:
    """Run a type checker beside the program, and return what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MYPY", "PYTHON"))}
    done = subprocess.run(
        words, cwd=program.parent, env=clean, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def mypy(python: Path, program: Path) -> Judgement:
    """Ask `mypy --strict`."""
    words = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--output", "json"]
    found = [json.loads(line) for line in run([*words, program.name], program).splitlines()]
    assert {each["file"] for each in found} == {program.name}, "only the program has errors"
    return judgement(
        [(each["line"], each["severity"] == "error", each["message"]) for each in found], r'Revealed type is "(.*)"'
    )


def pyright(python: Path, program: Path) -> Judgement:
    """Ask pyright in its strict mode."""
    assert PYRIGHT.is_file(), "type: make packages"
    setting = {
        "include": [program.name],
        "typeCheckingMode": "strict",
        "reportPrivateUsage": False,
    }  # lxml.etree._Element
    (program.parent / "pyrightconfig.json").write_text(json.dumps(setting), "utf-8")
    words = ["node", str(PYRIGHT), "--outputjson", "--pythonpath", str(python)]
    found = json.loads(run(words, program))["generalDiagnostics"]
    assert {Path(each["file"]).name for each in found} == {program.name}
    return judgement(
        [
            (each["range"]["start"]["line"] + 1, each["severity"] == "error", each["message"].partition("\n")[0])
            for each in found
        ],
        r'Type of ".*" is "(.*)"',
    )


@pytest.mark.peer
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_program(checker: Callable[[Path, Path], Judgement], python: Path, program: Path) -> None:
    """Wrong lines are refused and right ones are not; the main calls return what they say."""
    lines = enumerate(PROGRAM.read_text("utf-8").splitlines(), 1)
    marked = {number: text.partition("  # ") for number, text in lines if "  # " in text}
    wrong = {number for number, (_, _, said) in marked.items() if said.startswith("error: ")}
    types = {
        number: said for number, (code, _, said) in marked.items() if "reveal_type" in code and number not in wrong
    }
    found = checker(python, program)
    assert {number: text for number, text in found.errors.items() if number not in wrong} == {}
    assert wrong <= found.errors.keys()
    assert {number: text for number, text in found.types.items() if number in types} == types
