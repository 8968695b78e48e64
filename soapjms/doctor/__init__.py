"""The doctor: a table of checks for anything that may prevent a call, made in order, the cheap ones first.

A check returns its result; for a problem it names the command that repairs it and the page of the docs with more
information. Checks that depend on a failed one are skipped. `model.py` has the types, `checks.py` checks this machine,
the address and the broker, `consumers.py` counts the consumers of the destination, and `others.py` checks how clients
over other protocols see our messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from soapjms.doctor.checks import (
    check_address,
    check_clock,
    check_destination,
    check_extras,
    check_folder,
    check_java,
    check_login,
    check_port,
    check_python,
    check_replies,
    check_round_trip,
)
from soapjms.doctor.consumers import check_consumers
from soapjms.doctor.model import CheckFinding, CheckOutcome, CheckResult, Patient, skipped
from soapjms.doctor.others import check_others
from soapjms.protocol.uri import visible

__all__ = ["CHECKS", "Check", "CheckFinding", "CheckOutcome", "Patient", "examine"]


class Check(NamedTuple):
    """One check: its name, its function, the page with more information, and the checks that it depends on."""

    name: str
    run: Callable[[Patient], CheckResult]
    page: str
    needs: tuple[str, ...] = ()


CHECKS: Final = (
    Check("Python", check_python, "docs/install.md"),
    Check("extras", check_extras, "docs/install.md"),
    Check("Java", check_java, "docs/replay.md#where-it-runs"),
    Check("capture folder", check_folder, "docs/cli.md#soapjms-capture"),
    Check("address", check_address, "docs/wsdl.md#addresses"),
    Check("broker port", check_port, "docs/brokers.md", ("extras",)),
    Check("login", check_login, "docs/brokers.md", ("broker port",)),
    Check("destination", check_destination, "docs/brokers.md#what-differs-over-stomp", ("login", "address")),
    Check("consumers", check_consumers, "docs/cli.md#consumers-of-a-destination", ("destination",)),
    Check("reply queue", check_replies, "docs/connections.md#what-a-caller-sees", ("login", "address")),
    Check("round trip", check_round_trip, "docs/connections.md#a-silent-network", ("login",)),
    Check("clock", check_clock, "docs/serving.md#what-is-not-run", ("round trip",)),
    Check("other clients", check_others, "docs/amqp.md#what-differs", ("round trip",)),
)


def examine(patient: Patient) -> Iterator[CheckFinding]:
    """Make all checks, in order, and yield the finding of each."""
    failed: set[str] = set()
    for check in CHECKS:
        missing = [each for each in check.needs if each in failed]
        seen = skipped(f"needs: {', '.join(missing)}") if missing else check.run(patient)
        if seen.outcome is CheckOutcome.FAILED or missing:
            failed.add(check.name)
        page = (seen.page or check.page) if seen.command else None
        yield CheckFinding(check.name, seen.outcome, visible(seen.text), page, seen.command)
