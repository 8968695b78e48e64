"""Checks of this machine: Python, what is installed, Java, the folder for captures."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from soapjms.doctor.model import Outcome, Patient, Seen, ok
from soapjms.doctor.ways import WAYS, schemes_of

OLDEST, NEWEST = (3, 11), (3, 13)
OLDEST_JAVA: Final = 17
JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
ROOM: Final = 256 << 20
"""Octets that a disk has free at least, where captures are to be written."""

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "stomp": ("stomp",),
    "amqp": ("proton", "websockets"),
    "cli": ("click", "rich"),
    "replay": ("pyarrow", "jinja2"),
    "spark": ("pyspark", "pandas"),
    "zeep": ("zeep",),
    "wsse": ("xmlsec",),
    "bridge": ("starlette", "uvicorn"),
    "prometheus": ("prometheus_client",),
    "opentelemetry": ("opentelemetry",),
}
"""The extras, and the modules that each brings."""


def check_python(patient: Patient) -> Seen:
    """The release is one that this is made for."""
    version, found = sys.version_info[:2], sys.version.partition(" ")[0]
    if OLDEST <= version <= NEWEST:
        return ok(f"{found}, {sys.executable}")
    wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    return Seen(Outcome.FAILED, f"{found}; it has to be {wanted}", f"python{NEWEST[0]}.{NEWEST[1]} -m venv .venv")


def check_extras(patient: Patient) -> Seen:
    """What the URL of the broker needs is installed; other extras that are not are a note."""
    missing = [name for name, modules in EXTRAS.items() if not all(map(find_spec, modules))]
    needed = [name for name in missing if any(WAYS[each].extra == name for each in schemes_of(patient))]
    if needed:
        listed = ",".join(needed)
        return Seen(
            Outcome.FAILED, f"the URL of the broker needs the extra {listed}", f"pip install 'soapjms[{listed}]'"
        )
    if missing:
        text = f"not installed, and not needed so far: {', '.join(missing)}"
        return Seen(Outcome.NOTE, text, f"pip install 'soapjms[{','.join(missing)}]'")
    return ok(", ".join(EXTRAS))


def check_java(patient: Patient) -> Seen:
    """There is a Java for Spark; nothing else needs one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    install = "apt-get install openjdk-17-jre-headless"
    if java is None:
        where = f"JAVA_HOME is {home}, which holds no bin/java" if home else "there is no java on the PATH"
        return Seen(Outcome.NOTE, f"{where}: `soapjms replay` runs with --local only", install)
    try:
        command = [java, "-version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603  # theirs
    except (OSError, subprocess.TimeoutExpired) as error:
        return Seen(Outcome.NOTE, f"{java} does not run: {error}", install)
    version = JAVA_VERSION.search(said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        shown = said.partition("\n")[0]
        return Seen(Outcome.NOTE, f"{java} is too old for Spark, which needs {OLDEST_JAVA}: {shown}", install)
    return ok(f"{version[1]}, {java}")


def check_folder(patient: Patient) -> Seen:
    """Captures can be written there."""
    folder = patient.folder
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    quoted = shlex.quote(str(folder))
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"soapjms")
    except OSError as error:
        return Seen(
            Outcome.FAILED,
            f"{there} cannot be written to: {error.strerror}",
            f"mkdir -p {quoted} && chmod u+rwx {quoted}",
        )
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free >> 20} MiB free"
    return ok(text) if free >= ROOM else Seen(Outcome.NOTE, text, f"df -h {shlex.quote(str(there))}")
