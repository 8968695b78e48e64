"""What is known of a generated log: labels, call by call, and the totals that a replay has to find.

Spec: capture record, version 1, "Verdicts".
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from soapjms.generate.calls import Call
from soapjms.generate.shapes import Answer
from soapjms.protocol.assertions import ASSERTIONS, Level, Outcome
from soapjms.protocol.names import Profile, profile

MISSING: Final = "missingResponse"
"""The event that a request has no response, or none within the window."""


@dataclass(slots=True)
class Totals:
    """Counts, called as in the summary of a replay.

    Attributes:
        violations: how many exchanges each row of the table was used for.
        assertions: how many failed verdicts and warnings each assertion is to get.
    """

    records: int = 0
    messages: int = 0
    exchanges: int = 0
    one_way: int = 0
    missing: int = 0
    without_request: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    assertions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, call: Call) -> None:
        """Count the messages of a call."""
        answered = call.response is not None and call.shape.answer is not Answer.LATE
        self.messages += len(call.messages)
        self.exchanges += answered
        self.one_way += call.shape.answer is Answer.NONE
        self.missing += call.shape.answer in (Answer.MISSING, Answer.LATE)
        self.missing += call.earlier is not None
        self.without_request += call.shape.answer is Answer.LATE

    def members(self) -> dict[str, Any]:
        """Return what expected.json says of them."""
        assertions: dict[str, dict[str, int]] = {}
        for (name, verdict), number in sorted(self.assertions.items()):
            assertions.setdefault(name, {})[verdict] = number
        return {
            "records": self.records,
            "messages": self.messages,
            "copies": self.records - self.messages,
            "exchanges": self.exchanges,
            "one_way": self.one_way,
            "unpaired": {"missingResponses": self.missing, "responsesWithoutRequest": self.without_request},
            "violations": dict(sorted(self.violations.items())),
            "assertions": assertions,
        }


def labels(call: Call, totals: Totals) -> list[str]:
    """Return the labels of a call as lines, none of one that keeps all rules and is answered; count them."""
    found: list[dict[str, Any]] = []
    if call.violation is not None:
        broken = [_broken(call, *each, totals) for each in call.violation.broken(call.profile)]
        totals.violations[call.violation.name] += 1
        found.append({"exchange_id": call.id, "violation": call.violation.name, "broken": broken})
    if call.earlier is not None:
        found.append({"exchange_id": call.earlier["jms"]["message_id"], "event": MISSING})
    if call.shape.answer in (Answer.MISSING, Answer.LATE):
        found.append({"exchange_id": call.id, "event": MISSING})
    return [json.dumps(each, ensure_ascii=False) for each in found]


def _broken(call: Call, carrier: str, assertion: str, totals: Totals) -> dict[str, str]:
    verdict = verdict_of(call.profile.name, assertion)
    totals.assertions[assertion, verdict] += 1
    message_id = call.message(carrier)["jms"]["message_id"]
    return {"message_id": message_id, "assertion": assertion, "verdict": verdict}


@lru_cache
def verdict_of(profile_name: str, assertion: str) -> str:
    """Return the verdict on a breach, by the profile's own id of the assertion: a warning where it is a SHOULD."""
    return str(Outcome.WARNING if _level(profile(profile_name), assertion) is Level.SHOULD else Outcome.FAILED)


def _level(edition: Profile, assertion: str) -> Level:
    return next(row.level_in(edition) for row in ASSERTIONS if edition.assertion_id(row.id) == assertion)
