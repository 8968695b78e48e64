"""The input of an engine: the logs, what was rejected before they were read, and how to pair and judge.

Engines, and the reading of logs, do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from soapjms.protocol.assertions import Setting
from soapjms.protocol.assertions.markup import MAX_MARKUP_OCTETS
from soapjms.protocol.names import DEFAULT_PROFILE, EDITION_OF_NAMESPACE, EDITIONS
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Direction, Record
from soapjms.protocol.senders import Senders
from soapjms.replay.errors import NoInputError
from soapjms.replay.inputs import LogFile, RejectedRow
from soapjms.replay.uris import shown

SHOWN: Final = "edition"
"""First word in the path of counts of records that show an edition; the second is the edition's name."""


class ProfileChoice(StrEnum):
    """What chose the profile of a run with the profile "auto"."""

    OPEN = "nothing yet"
    WSDL = "WSDL"
    FAULTS = "faults"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTerms:
    """How to pair and judge.

    Attributes:
        setting: the setting that all messages are judged by.
        window: see `pair`.
        senders: what is known about the senders of the messages.
        choice: what chose the profile; None if the user did.
        exact: True to judge each exchange by itself; see `shapes.py`.
    """

    setting: Setting
    window: timedelta
    senders: Senders
    choice: ProfileChoice | None = None
    exact: bool = False

    @property
    def counts_shapes(self) -> bool:
        """Whether exchanges may be counted by their shapes: documents are compared up to a size that no limit is
        below."""
        limits = self.setting.limits
        return not self.exact and min(limits.size, limits.text) >= MAX_MARKUP_OCTETS

    @property
    def knows_senders(self) -> bool:
        """Whether something is known of senders, which messages are compared with."""
        return bool(self.senders.all) or self.setting.properties is not None

    @property
    def is_open(self) -> bool:
        """Whether the profile is to be chosen by the logs."""
        return self.choice is ProfileChoice.OPEN

    def edition_shown(self, record: Record) -> str | None:
        """Return the name of the edition that a record shows; None if it shows none, or the profile is known.

        Only a fault of the binding shows one, by the namespace of its subcode.

        Spec: SOAP/JMS 2.8.
        """
        if not self.is_open or record.direction in (Direction.REQUEST, Direction.ONE_WAY):
            return None
        fault = Reading.of(record, DEFAULT_PROFILE, self.setting.limits).fault
        return None if fault is None or fault.namespace is None else EDITION_OF_NAMESPACE[fault.namespace].name

    def decided(self, counts: Mapping[tuple[str, ...], int]) -> ReplayTerms:
        """Choose the profile, if it is open: the edition that most records show, or the default if there is no such.

        Args:
            counts: counts by path, among them how many records show each edition.
        """
        if not self.is_open:
            return self
        seen = {name: counts.get((SHOWN, name), 0) for name in EDITIONS}
        if len(set(seen.values())) == 1:
            return replace(self, choice=ProfileChoice.DEFAULT)
        edition = EDITIONS[max(seen, key=seen.__getitem__)]
        return replace(self, setting=replace(self.setting, profile=edition), choice=ProfileChoice.FAULTS)


Progress: TypeAlias = Callable[[str], None]
"""Called with a short text whenever there is progress; with a `Phase` if the total is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run over some logs.

    Attributes:
        out: the folder for the results, or its URI.
        is_hadoop: whether Hadoop writes to a URI, and opens those that it knows; otherwise fsspec.
        logs: the files that were found.
        elsewhere: URIs of others, which the engine must find.
        rejected: the files that could not be opened.
        others: the names of what is ignored in folders; see `ExpandedInputs`.
        terms: how to pair and judge.
    """

    out: str
    is_hadoop: bool
    logs: tuple[LogFile, ...]
    elsewhere: tuple[str, ...] = ()
    rejected: tuple[RejectedRow, ...]
    others: tuple[str, ...] = ()
    terms: ReplayTerms

    @property
    def names(self) -> list[str]:
        """The names of all logs."""
        return [*(log.name for log in self.logs), *map(shown, self.elsewhere)]

    def require_logs(self, others: int) -> None:
        """Require that there is something to read: a log that seems to be one, or others.

        Raises:
            NoInputError: there is nothing; the text says why for each argument.
        """
        no_logs = [RejectedRow(log.name, None, log.problem) for log in self.logs if log.problem is not None]
        if len(no_logs) == len(self.logs) and not others:
            refused = [*self.rejected, *no_logs]
            raise NoInputError("no input can be read: " + "; ".join(f"{each.file}: {each.reason}" for each in refused))


class LateRecord(NamedTuple):
    """A record that came too late: its position, and when it was captured."""

    file: str
    line: int
    time: str


def place(found: RejectedRow) -> tuple[str, int, str]:
    """Return a sort key for rejected rows: by file and line, whole files first."""
    return found.file, -1 if found.line is None else found.line, found.reason
