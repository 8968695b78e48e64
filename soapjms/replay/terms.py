"""What a run judges by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import DEFAULT_PROFILE, EDITION_OF_NAMESPACE, EDITIONS
from soapjms.protocol.reading import Reading
from soapjms.protocol.record import Direction, Record
from soapjms.protocol.senders import Senders

SHOWN: Final = "edition"
"""The first word of the counts of records that show an edition; its name is the second."""


class Choice(StrEnum):
    """What chose the profile of a run that was to find out itself."""

    OPEN = "nothing yet"
    WSDL = "WSDL"
    FAULTS = "faults"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How to pair and judge.

    Attributes:
        setting: what is taken for granted of every message.
        window: see `pair`.
        senders: what is known of those who sent the messages.
        choice: what chose the profile; None if the user did.
    """

    setting: Setting
    window: timedelta
    senders: Senders
    choice: Choice | None = None

    @property
    def is_open(self) -> bool:
        """The logs are to show the profile."""
        return self.choice is Choice.OPEN

    def edition_shown(self, record: Record) -> str | None:
        """Name the edition that a record shows, None if it shows none or the profile is known.

        Only a fault of the binding shows one, by the namespace of its subcode.

        Spec: SOAP/JMS 2.8.
        """
        if not self.is_open or record.direction in (Direction.REQUEST, Direction.ONE_WAY):
            return None
        fault = Reading.of(record, DEFAULT_PROFILE, self.setting.limits).fault
        return None if fault is None or fault.namespace is None else EDITION_OF_NAMESPACE[fault.namespace].name

    def decided(self, counts: Mapping[tuple[str, ...], int]) -> Terms:
        """Choose the profile, if that is open: the edition that more records show; the default if there is none.

        Args:
            counts: how many records show each edition, under its path.
        """
        if not self.is_open:
            return self
        seen = {name: counts.get((SHOWN, name), 0) for name in EDITIONS}
        if len(set(seen.values())) == 1:
            return replace(self, choice=Choice.DEFAULT)
        edition = EDITIONS[max(seen, key=seen.__getitem__)]
        return replace(self, setting=replace(self.setting, profile=edition), choice=Choice.FAULTS)
