"""Qpid Broker-J as a child process: AMQP 1.0 at free ports, over TCP and WebSocket, files in a temporary directory."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from places import ROOT
from ports import free_ports
from real_brokers import BRIEF, BrokerStartError, end, java, tail

JARS = ROOT / "build" / "qpid" / "lib"
FILES = ROOT / "tests/peers/qpid"
STARTED = "BRK-1004"
PATIENCE = 60.0


class Qpid(NamedTuple):
    """Where one listens."""

    amqp: int
    ws: int

    @property
    def amqp_url(self) -> str:
        """For `connect`."""
        return f"amqp://admin:admin@127.0.0.1:{self.amqp}"

    @property
    def ws_url(self) -> str:
        """For `connect`, over WebSocket."""
        return f"amqp+ws://admin:admin@127.0.0.1:{self.ws}"


@contextmanager
def start_qpid() -> Iterator[Qpid]:
    """Run one, and say where; `tests/peers/qpid/virtualhost.json` says what it makes when that is used.

    Raises:
        BrokerStartError: what it consists of was not fetched, or it did not start.
    """
    if not JARS.exists():
        raise BrokerStartError(f"no {JARS.relative_to(ROOT)}: run `make brokers` first")
    ports = Qpid(*free_ports(len(Qpid._fields)))
    with tempfile.TemporaryDirectory(prefix="qpid-") as directory:
        command = [java(), *BRIEF, "-Xmx256m", f"-Dderby.stream.error.file={directory}/derby.log", "-cp", f"{JARS}/*"]
        command += [str(FILES / "StartQpid.java"), str(FILES), *map(str, ports), directory]
        log = Path(directory) / "broker.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(process, log)
            yield ports
        finally:
            assert process.stdin is not None
            process.stdin.close()  # which it takes for the end
            end(process)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while STARTED not in (said := log.read_text("utf-8", "replace")):
        if process.poll() is not None or time.monotonic() > until:
            raise BrokerStartError(f"Qpid did not start:\n{tail(said)}")
        time.sleep(0.1)
