"""ActiveMQ Classic as a child process of the tests, from the folder of one that was unpacked: no Docker is needed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

from soapjms.testing.waiting import BrokerNotAvailableError, wait_for

BROKER: Final = "broker:({})?persistent=false&useJmx=false&schedulerSupport=false"
"""All in memory, and at an address of this machine only: for anybody on it, whatever user and password."""

MAIN: Final = "org.apache.activemq.console.Main"
PORTS: Final = range(10_000, 20_000)
"""Below what systems give to clients, and to whoever asks for any port: nobody has them before they are listened at."""

ATTEMPTS: Final = 20
START_TIMEOUT: Final = 90.0
END_TIMEOUT: Final = 10.0
"""Seconds that it has to end by itself."""


@contextmanager
def activemq(folder: str) -> Iterator[str]:
    """Run the ActiveMQ of a folder while a `with` statement lasts, on a free port, and return its URL.

    Raises:
        BrokerNotAvailableError: there is none in the folder, or no Java; or the broker does not start.
    """
    url = f"stomp://127.0.0.1:{_free_port()}"
    command = [_java(folder), "-cp", _class_path(Path(folder)), MAIN, "start", BROKER.format(url)]
    with tempfile.TemporaryDirectory(prefix="soapjms-activemq-", ignore_cleanup_errors=True) as own:
        log = Path(own) / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(command, cwd=own, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as child,  # noqa: S603  # the user's own
        ):
            try:
                wait_for(url, START_TIMEOUT, lambda: log.read_text("utf-8", "replace"), lambda: child.poll() is None)
                yield url
            finally:
                _end(child)


def _free_port() -> int:
    """Return a port that nobody has now; who takes it before the broker does makes that say so."""
    for each in SystemRandom().sample(PORTS, ATTEMPTS):
        with suppress(OSError), socket.create_server(("127.0.0.1", each)):  # somebody has it
            return each
    raise BrokerNotAvailableError(f"of {ATTEMPTS} ports from {PORTS.start} on none is free")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()


def _java(folder: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the path"
        raise BrokerNotAvailableError(f"the tests need the ActiveMQ in {folder}, and {where}")
    return found


def _class_path(folder: Path) -> str:
    places = [each for each in (folder, folder / "lib", folder / "lib" / "optional") if any(each.glob("*.jar"))]
    if not any(next(each.glob("activemq-broker-*.jar"), None) for each in places):
        raise BrokerNotAvailableError(
            f"the tests need the ActiveMQ in {folder}, and neither there nor in its lib/ is an activemq-broker-*.jar; "
            "name the folder of an ActiveMQ Classic that was unpacked"
        )
    return os.pathsep.join(f"{each.absolute()}{os.sep}*" for each in places)
