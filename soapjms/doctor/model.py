"""The words of the doctor: who is looked at, what a check sees, what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from brokers.connection import Connection
from brokers.message import Destination, Message
from brokers.naming import Names
from soapjms.protocol.wsdl import Port

DEFAULT_TIMEOUT: Final = 5.0


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: its name.
        outcome: how it ended.
        text: what was seen.
        page: the page of the docs that says more; None where all is well.
        command: what mends it; None likewise.
    """

    check: str
    outcome: Outcome
    text: str
    page: str | None = None
    command: str | None = None

    @property
    def hint(self) -> str | None:
        """Where to read on and what to type."""
        return None if self.command is None else f"see {self.page}; type: {self.command}"


class CheckResult(NamedTuple):
    """What a check saw: an outcome with its text, and what mends it."""

    outcome: Outcome
    text: str
    command: str | None = None
    page: str | None = None


def ok(text: str) -> CheckResult:
    """Say that all is well."""
    return CheckResult(Outcome.OK, text)


def skipped(text: str) -> CheckResult:
    """Say why something was not tried."""
    return CheckResult(Outcome.SKIPPED, text)


@dataclass(slots=True)
class Patient:
    """What is looked at, and what the checks found out on their way. Usable in a `with` statement, which disconnects.

    Attributes:
        url: of the broker; None where `names` and `place` lead to it, or nothing is known of it.
        place: URI or port of the service, None if none is asked about.
        names: JNDI names.
        properties: binding properties that win over those of the place.
        folder: where captures are to be written.
        timeout: seconds that anything at the broker may take.
    """

    url: str | None = None
    place: str | Port | None = None
    names: Names | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path("captures")
    timeout: float = DEFAULT_TIMEOUT
    destination: Destination | None = None
    replies: Destination | None = None
    connection: Connection | None = None
    echo: tuple[float, float, Message] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            self.connection.close(self.timeout)
