"""What a run judges by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from soapjms.protocol.assertions import Setting
from soapjms.protocol.senders import Senders


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How to pair and judge.

    Attributes:
        setting: what is taken for granted of every message.
        window: see `pair`.
        senders: what is known of those who sent the messages.
    """

    setting: Setting
    window: timedelta
    senders: Senders
