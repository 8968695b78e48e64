"""A service that dies of a request, or has not the memory for it, before any function is called.

FRAIL_MIB is the memory that a process may have beside what it has when it begins, in mebibytes; without it there is no
limit. A request with the property `fatal` kills who reads its body.
"""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from bank import service

import brokers
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

__all__ = ["service"]

received = RespondingNode.receive


def receive(node: RespondingNode, message: brokers.Message) -> RequestAccepted | RequestRefused:
    """Die of a request that says so and has a body."""
    if message.properties.value("fatal") is not None and message.size:
        os.kill(os.getpid(), signal.SIGKILL)
    return received(node, message)


RespondingNode.receive = receive  # type: ignore[method-assign]

if "FRAIL_MIB" in os.environ:
    status = Path("/proc/self/status").read_text("utf-8")
    (used,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize:"))
    most = used + (int(os.environ["FRAIL_MIB"]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
