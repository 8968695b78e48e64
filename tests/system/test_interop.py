"""docs/interop.md says of CXF what the tests run: how many cases there are of each kind, and with which releases."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pytest
from calling_kit import SOAP_11, SOAP_12
from cxf_kit import FAULT_CASES, REFUSALS, THEIR_CLIENT, THEIR_SERVICE, Case, Side
from places import ROOT

PAGE: Final = (ROOT / "docs/interop.md").read_text("utf-8")

ROWS: Final[list[tuple[str, Callable[[Case], bool]]]] = [
    ("all", lambda case: True),
    ("ActiveMQ Classic, we over STOMP", lambda case: case[:2] == ("activemq", "stomp")),
    ("ActiveMQ Classic, we over AMQP", lambda case: case[:2] == ("activemq", "amqp")),
    ("Artemis, we over STOMP", lambda case: case[:2] == ("artemis", "stomp")),
    ("Artemis, we over AMQP", lambda case: case[:2] == ("artemis", "amqp")),
    ("CXF over OpenWire", lambda case: case.over == "openwire"),
    ("CXF over Artemis' own protocol (core), on Artemis", lambda case: case.over == "core"),
    ("CXF over AMQP (Qpid JMS)", lambda case: case.over == "amqp"),
    ("SOAP 1.1", lambda case: case.version is SOAP_11),
    ("SOAP 1.2", lambda case: case.version is SOAP_12),
    ("BytesMessage", lambda case: case.kind == "bytes"),
    ("TextMessage", lambda case: case.kind == "text"),
    ("gzip (CXF's `GZIPFeature`; our `contentEncoding`), BytesMessage", lambda case: case.more == "gzip"),
    ("`deliveryMode=NON_PERSISTENT`, `priority`, `timeToLive`", lambda case: case.more == "non-persistent"),
    ("requests to a queue", lambda case: case.destination == "queue"),
    ("requests to a topic", lambda case: case.destination == "topic"),
    ("replies to a temporary queue", lambda case: case.replies == "temporary"),
    ('a temporary queue for each call (`replies="exclusive"`)', lambda case: case.replies == "exclusive"),
    ("replies to a named queue (`replyToName`)", lambda case: case.replies == "named"),
    ("replies to a topic (`topicReplyToName`)", lambda case: case.replies == "topic"),
    ("no JMSCorrelationID (`useConduitIdSelector=false`)", lambda case: case.replies == "no id"),
]
"""What the table calls some cases, and which they are."""


def numbers(side: Side, cases: list[Case], wants: Callable[[Case], bool]) -> str:
    """Say how many cases of a kind hold, and of how many if that is not all."""
    chosen = [case for case in cases if wants(case)]
    good = sum(side.foreign(case) is None for case in chosen)
    return "none" if not chosen else f"{good}" if good == len(chosen) else f"{good} of {len(chosen)}"


def rows() -> list[str]:
    """Write the rows of the table."""
    found = [
        (name, *(numbers(side, side.all(), wants) for side in (THEIR_CLIENT, THEIR_SERVICE))) for name, wants in ROWS
    ]
    few = [numbers(side, side.few(), lambda case: True) for side in (THEIR_CLIENT, THEIR_SERVICE)]
    faults, checked = len(FAULT_CASES), sum(case.version is SOAP_11 for case in FAULT_CASES)
    binding = f"faults of the binding, {len(REFUSALS)} of CXF's in each case"
    return [
        *(f"| {name} | {ours} | {theirs} |" for name, ours, theirs in found),
        f"| of all these, in `make test` | {few[0]} | {few[1]} |",
        f"| {binding} | in each of the above | {checked}, with SOAP 1.1; see below |",
        f"| faults of the service: declared, failed, no such operation | in each of the above | {faults} |",
    ]


def test_table() -> None:
    """Each row is there, in order, and no other."""
    table = PAGE.partition("| case |")[2].partition("\n\n")[0]
    assert table.splitlines()[2:] == rows(), "\n".join(rows())


def test_sum() -> None:
    """What the page says of all cases together is so."""
    found = [side.foreign(case) is None for side in (THEIR_CLIENT, THEIR_SERVICE) for case in side.all()]
    assert f"{sum(found)} of {len(found)} cases of [the table below]" in PAGE


@pytest.mark.parametrize(
    ("folder", "before", "said"),
    [
        ("activemq", "<activemq.version>", "ActiveMQ Classic {}"),
        ("artemis", "<artemis.version>", "Artemis {}"),
        ("cxf", "<artifactId>cxf-rt-transports-jms</artifactId>", "Apache CXF {}"),
        ("cxf", "<artifactId>activemq-client</artifactId>", "ActiveMQ's own client {}"),
        ("cxf", "<artifactId>artemis-jakarta-client</artifactId>", "that of Artemis {}"),
        ("cxf", "<artifactId>qpid-jms-client</artifactId>", "Qpid JMS {}"),
        ("joram", "<artifactId>qpid-jms-client</artifactId>", "Qpid JMS {}"),
    ],
)
def test_releases(folder: str, before: str, said: str) -> None:
    """What Maven fetches is what the page names."""
    pom = (ROOT / "tests/peers" / folder / "pom.xml").read_text("utf-8")
    (version,) = re.findall(re.escape(before) + r"(?:\s*<version>)?([\d.]+?)(?:\.0)?<", pom)
    assert said.format(version) in PAGE
