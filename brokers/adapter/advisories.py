"""The advisory topics of ActiveMQ Classic, which say what consumers come and go at a destination."""

from __future__ import annotations

import re
from typing import Final

from brokers.message import Destination, DestinationKind

ADVISORIES: Final = {
    DestinationKind.QUEUE: "ActiveMQ.Advisory.Consumer.Queue.",
    DestinationKind.TOPIC: "ActiveMQ.Advisory.Consumer.Topic.",
}
"""Prefix of a destination's name in the name of the advisory topic for its consumers."""

PATTERN: Final = re.compile(r"[*>,?]")
"""Characters of names that mean several destinations, or have options: their advisories have another form."""


def advisory_topic(destination: Destination) -> str | None:
    """Return the name of the topic that reports the consumers of a destination, or None if there is none."""
    name, prefix = destination.name or "", ADVISORIES.get(destination.kind)
    return None if prefix is None or PATTERN.search(name) else prefix + name
