"""The types of the doctor: the patient, the result of a check, and the finding that is reported."""

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


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The finding of a check.

    Attributes:
        check: the name of the check.
        outcome: the outcome of the check.
        text: a description of what was found.
        page: the page of the docs with more information, or None if there is nothing to repair.
        command: the command that repairs the problem, or None.
    """

    check: str
    outcome: CheckOutcome
    text: str
    page: str | None = None
    command: str | None = None

    @property
    def hint(self) -> str | None:
        """The page to read and the command to type, or None."""
        return None if self.command is None else f"see {self.page}; type: {self.command}"


class CheckResult(NamedTuple):
    """The result of a check: an outcome with its text, and the command and page that help to repair a problem."""

    outcome: CheckOutcome
    text: str
    command: str | None = None
    page: str | None = None


def ok(text: str) -> CheckResult:
    """Return the result of a check that passed."""
    return CheckResult(CheckOutcome.OK, text)


def skipped(text: str) -> CheckResult:
    """Return the result of a check that was skipped; `text` is the reason."""
    return CheckResult(CheckOutcome.SKIPPED, text)


@dataclass(slots=True)
class Patient:
    """The subject of the checks, and what they have found out so far. A `with` statement closes the connection.

    Attributes:
        url: the URL of the broker; None if `names` and `place` lead to it, or if it is unknown.
        place: the URI or port of the service, or None.
        names: JNDI names.
        properties: binding properties that override those of the place.
        folder: the folder for captures.
        timeout: maximum duration of each step at the broker, in seconds.
        jolokia: URL of the broker's Jolokia, with user and password; None for none.
        destination: the destination of requests, once known.
        replies: the fixed destination of replies, once known, or None.
        connection: the connection to the broker, once open.
        echo: when the message of the round trip was sent and received, in epoch seconds, and the message.
    """

    url: str | None = None
    place: str | Port | None = None
    names: Names | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path("captures")
    timeout: float = DEFAULT_TIMEOUT
    jolokia: str | None = field(default=None, repr=False)
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
