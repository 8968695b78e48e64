"""Results of a replay for the tests of its report: hostile ones, large ones, and a look into the page."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

from replay_logs import TO_SERVICE, at, request, response, write_log

from brokers.message import Message, MessageType, properties, queue
from soapjms.protocol.assertions import ASSERTIONS, Setting, VerdictOutcome
from soapjms.protocol.names import REC_2012
from soapjms.protocol.record import Direction, Record, capture, to_json
from soapjms.protocol.senders import Senders
from soapjms.replay.differences import Difference, Piece
from soapjms.replay.excerpts import Excerpt
from soapjms.replay.findings import MAX_CAUSES, FindingKey, Sample
from soapjms.replay.flat_records import microseconds
from soapjms.replay.parties import BROKEN, Ends, PartyKey
from soapjms.replay.summary import RunTally, Summary, summarise
from soapjms.replay.terms import ReplayTerms

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ATTACK = (
    "</script><script>alert(1)</script><!--<script>\"><img src=x onerror=alert(2)>&'`"
    "\x1b[31m\u202e\u2066\u2028\u2029\0]]>{{7*7}}"
)
"""What would like to be markup, script, a template, a command to the terminal, or text from right to left."""


def attacks(folder: Path) -> Path:
    """Write a log whose messages attack the report in every text of theirs that it shows."""
    long = ATTACK + "x" * (1 << 20)
    bad = properties(
        {**TO_SERVICE, "SOAPJMS_bindingVersion": ATTACK, "SOAPJMS_contentType": ATTACK, ATTACK: ATTACK, "long": long}
    )
    records = [
        capture(
            request(
                1,
                properties=bad,
                message_id=ATTACK,
                correlation_id=ATTACK,
                destination=queue(ATTACK),
                body=ATTACK.encode(),
            ),
            at(1),
        ),
        capture(
            request(
                2,
                properties=bad,
                message_id=long,
                correlation_id=long,
                destination=queue(long),
                body=long.encode(),
                type=long,
            ),
            at(2),
        ),
        capture(response(3, properties=bad, body=b"\xff\xfe" + long.encode("utf-16-le")), at(3), Direction.RESPONSE),
    ]
    log = write_log(folder / "log.jsonl", *records)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"{long}\n")
    return log


def traffic() -> list[Record]:
    """Return some hundred messages of two services over an hour: most keep the rules, some break them."""
    records = []
    for n in range(120):
        name, changes = ("orders", "billing")[n % 2], dict(TO_SERVICE)
        if n % 10 == 0:
            changes["SOAPJMS_bindingVersion"] = "0.3"
        if n % 10 == 3:
            del changes["SOAPJMS_contentType"]
        changes["SOAPJMS_requestURI"] = f"jms:queue:{name}"
        if n % 4 == 0:
            changes["SOAPJMS_isFault"] = "false"  # as CXF has it
        asked = request(n, properties=properties(changes), destination=queue(name))
        records.append(capture(asked, at(30 * n), Direction.REQUEST))
        records.append(capture(response(n), at(30 * n + 0.05 + n % 7), Direction.RESPONSE))
    return records


def large(messages: int, findings: int, *, destinations: int = 150, body: int = 600) -> Summary:
    """Return the result of a run over many messages: findings of every assertion, for some reasons each, everywhere."""
    tally, step = RunTally(), timedelta(seconds=1)
    named = [REC_2012.assertion_id(row.id) for row in ASSERTIONS if row.check is not None]
    names = [name for name in dict.fromkeys(named) if name is not None]
    tally.count("messages", by=messages)
    tally.count("records", by=messages)
    for n in range(0, messages, max(1, messages // 20_000)):
        party = PartyKey(f"queue:service.{n % destinations:03}", "requesting", ("cxf", "")[n % 2])
        tally.see(party, microseconds(START + n * step))
        for name in names:
            tally.judged(party, name, VerdictOutcome.PASSED, 1)
        tally.answered(
            f"queue:service.{n % destinations:03}",
            microseconds(START + n * step),
            microseconds(START + n * step + timedelta(milliseconds=n % 900)),
        )
    for n in range(findings):
        name, verdict = names[n % len(names)], list(VerdictOutcome)[1:][n % 5]
        if verdict is VerdictOutcome.NOT_APPLICABLE:
            verdict = VerdictOutcome.FAILED
        time = START + (n * messages // findings) * step
        reason = f"it is wrong in way {chr(97 + n // len(names) % (MAX_CAUSES - 1))}"
        party = PartyKey(f"queue:service.{n * 7 % destinations:03}", "requesting", ("cxf", "")[n % 3 % 2])
        found = FindingKey(reason, party, "missingContentType", "")
        sample = partial(_sample, n, time, found, body)
        tally.findings.take(name, str(verdict), found, time.isoformat(), f"ID:{n}", sample)
        tally.judged(party, name, verdict, 1)
        if verdict in BROKEN:
            at = microseconds(time)
            tally.broke(party, verdict)
            tally.party(party).broke(name, verdict, Ends(at, at))
            tally.timeline.count(at, f"{verdict}/{name}")
    return summarise(tally, [], ReplayTerms(setting=Setting(), window=timedelta(minutes=10), senders=Senders()))


def _sample(number: int, time: datetime, found: FindingKey, octets: int) -> Sample:
    """Return a finding with a message of its own, half of which is like no other, as ids and amounts are."""
    random, place = Random(number), found.party.place
    own = [random.randbytes(15).hex() for _ in range(octets // 60)]
    message = Message(
        message_type=MessageType.BYTES,
        destination=queue(place.removeprefix("queue:")),
        body="".join(f"<line><id>{each}</id><kind>as others have it</kind></line>" for each in own).encode()[:octets],
        properties=properties(
            {f"SOAPJMS_header{i}": (own[i] if i % 2 else "v" * 30) * 2 for i in range(min(12, len(own)))}
        ),
        message_id=f"ID:{own[0]}",
    )
    line = to_json(capture(message, time, Direction.REQUEST))
    return Sample(
        time.isoformat(), f"ID:{number}", f"ID:{number}", place, found.reason, found.expected, "",
        place, "request", "cxf",
        (Difference("property SOAPJMS_x", (Piece("seen", True),), (Piece("right", True),), True),),
        (Excerpt("request", "cxf", line, 1 << 20, True),),
    )  # fmt: skip


@dataclass
class Page(HTMLParser):
    """A report taken apart as a browser would.

    Attributes:
        elements: name and attributes of each element.
        texts: the text within each script and style element, by its place in `elements`.
        words: all text that is shown.
        within: the element that began last, empty after an end.
    """

    source: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    words: str = ""
    within: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.within = tag

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element."""
        self.within = ""

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if self.within in ("script", "style"):
            self.texts[len(self.elements) - 1] = self.texts.get(len(self.elements) - 1, "") + data
        else:
            self.words += data

    def named(self, *names: str) -> list[tuple[int, dict[str, str]]]:
        """Return the places and attributes of all elements of some names."""
        return [(place, attributes) for place, (tag, attributes) in enumerate(self.elements) if tag in names]

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script reads."""
        (place,) = (place for place, attributes in self.named("script") if attributes.get("id") == "data")
        found: dict[str, Any] = json.loads(self.texts[place])
        return found
