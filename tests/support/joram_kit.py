"""Joram's tests of a JMS provider, run through Qpid JMS: what `make brokers` fetched, and how each test ended."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from places import ROOT
from real_brokers import BRIEF, java, tail

JARS = ROOT / "build/joram/lib"
FILES = ROOT / "tests/peers/joram"
PACKAGE = "org/objectweb/jtests/jms/conform/"
PATIENCE = 150.0

COUNT = 196
"""Joram's tests."""

OURS = "SubscriptionsTest"
"""The class of our own."""

OF_OURS = 10
"""Tests in it."""


class Ended(NamedTuple):
    """How one test ended: its class and method, and why it failed, empty if it passed."""

    name: str
    why: str


def run_joram(url: str, folder: Path, suites: list[str]) -> list[Ended]:
    """Run classes of tests on the broker of a URL, as Qpid JMS takes it; `folder` is for what is compiled."""
    executable = java()
    compiler = str(Path(executable).with_name("javac")) if "/" in executable else "javac"
    command = [compiler, *(f"-J{option}" for option in BRIEF), "-d", str(folder), "-cp", f"{JARS}/*"]
    command += map(str, FILES.glob("*.java"))
    subprocess.run(command, check=True, timeout=PATIENCE)
    command = [executable, *BRIEF, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{folder}:{FILES}:{JARS}/*", "RunJoram", url, *suites]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, tail(done.stdout + done.stderr)
    return [each for each in map(read, done.stdout.splitlines()) if each is not None]


def joram_suites() -> list[str]:
    """List Joram's classes of tests.

    Fails if they were not fetched.
    """
    if not JARS.exists():
        pytest.fail(f"no {JARS.relative_to(ROOT)}: run `make brokers` first")
    with ZipFile(next(JARS.glob("joram-jms-tests-*.jar"))) as jar:
        names = [each for each in jar.namelist() if each.startswith(PACKAGE) and each.endswith("Test.class")]
    return [each.removesuffix(".class").replace("/", ".") for each in names]


def read(line: str) -> Ended | None:
    """Read a line of the program; None for one that tells of no test."""
    head, _, why = line.partition("\t")
    match head.split(" "):
        case ["passed" | "failed", took, name] if took.isdecimal():
            return Ended(name, why)
    return None
