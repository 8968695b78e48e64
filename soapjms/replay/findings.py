"""Findings grouped by their cause: one count and a few samples for all that broke one assertion for one reason.

A reason quotes what was seen, and that may be another text in each message. So reasons are compared word for word as
long as they are few, and ever more roughly as they become many. How roughly depends on the reasons alone, not on
their order: parts of a run add up to the same causes however its log was cut.

A sample shows where an exchange belongs, who speaks in it, and its messages. Everything in it is cut to a length: it
is for a person to recognise a message by, and the log has the whole of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from brokers.message import Destination, Element, Message, Properties
from soapjms.protocol.assertions import Outcome, Verdict, guess_dialect
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record, format_time

MAX_SAMPLES: Final = 3
"""How many findings of each cause are kept as samples: the earliest."""
MAX_CAUSES: Final = 25
"""How many causes an assertion may have with one verdict before they are told apart more roughly."""
MAX_REASON_CHARACTERS: Final = 600
MAX_DESTINATIONS: Final = 200
"""How many destinations are listed one by one: the first in order of the alphabet."""
MAX_STACKS: Final = 8
"""More than there are stacks that a message may look of."""
MAX_SUBCODE_PAIRS: Final = 20
"""How many pairs of expected and observed subcodes are listed for a cause: the first in order of the alphabet."""


class Sample(NamedTuple):
    """One finding that the report shows. The order of its members makes the earliest sample the smallest.

    `headers` are the message's headers and properties, `body` is the beginning of its body, and `more` how much of that
    follows, in octets or characters; a sample that says nothing of its message has none of them.
    """

    time: str
    exchange_id: str
    message_id: str
    destination: str
    reason: str
    expected_subcodes: str
    observed_subcode: str
    stack: str = ""
    direction: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    more: int = 0

    @classmethod
    def of(cls, members: list[Any]) -> Sample:
        """Read a sample from what JSON made of it."""
        found = cls(*members)
        return found._replace(headers=tuple((name, value) for name, value in found.headers))


class FindingKey(NamedTuple):
    """What a finding counts under: the reason, the service's destination, the sender's stack, and the subcodes."""

    reason: str
    place: str
    stack: str
    expected: str
    observed: str


@dataclass(slots=True)
class Cause:
    """Findings that broke one assertion for one reason.

    Attributes:
        count: how many.
        samples: the earliest.
        where: how many at each destination, by the stack of the sender.
        answers: how many for each pair of expected and observed subcodes.
    """

    count: int = 0
    samples: list[Sample] = field(default_factory=list)
    where: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]) -> None:
        """Count one finding; its sample is made only if it may be among the earliest."""
        self.count += 1
        self.where[found.place, found.stack] += 1
        if found.expected or found.observed:
            self.answers[found.expected, found.observed] += 1
        if len(self.samples) < MAX_SAMPLES or (time, exchange_id) <= self.samples[-1][:2]:
            self.samples = nsmallest(MAX_SAMPLES, [*self.samples, sample()])
        self._keep_first()

    def add(self, other: Cause) -> None:
        """Add the findings of another part of the run."""
        self.count += other.count
        self.samples = nsmallest(MAX_SAMPLES, [*self.samples, *other.samples])
        self.where.update(other.where)
        self.answers.update(other.answers)
        self._keep_first()

    def settle(self) -> None:
        """Drop what is beyond the limits on lists; what is left is the same however the run was cut."""
        self.where = keep_first(self.where, MAX_DESTINATIONS * MAX_STACKS)
        self.answers = keep_first(self.answers, MAX_SUBCODE_PAIRS)

    def _keep_first(self) -> None:
        if len(self.where) > 2 * MAX_DESTINATIONS * MAX_STACKS or len(self.answers) > 2 * MAX_SUBCODE_PAIRS:
            self.settle()

    def to_members(self) -> list[Any]:
        """Return what JSON can write."""
        return [self.count, self.samples, _items(self.where), _items(self.answers)]

    @classmethod
    def of(cls, members: list[Any]) -> Cause:
        """Read what `to_members` returned, after JSON."""
        count, samples, where, answers = members
        return cls(count, [Sample.of(each) for each in samples], _counter(where), _counter(answers))


def keep_first(counted: Counter[tuple[str, str]], limit: int) -> Counter[tuple[str, str]]:
    """Keep the first of what was counted, in order of the alphabet.

    What is dropped once has so many before it that it never comes back: all that is kept was counted in full.
    """
    return Counter({key: counted[key] for key in nsmallest(limit, counted)})


def _items(counted: Counter[tuple[str, str]]) -> list[list[Any]]:
    return [[*key, number] for key, number in sorted(counted.items())]


def _counter(items: Iterable[list[Any]]) -> Counter[tuple[str, str]]:
    return Counter({(one, two): number for one, two, number in items})


def _as_it_is(reason: str) -> str:
    return reason[:MAX_REASON_CHARACTERS]


def _without_values(reason: str) -> str:
    return VALUE.sub("…", reason[:MAX_REASON_CHARACTERS])


def _up_to_the_first_value(reason: str) -> str:
    return _without_values(reason).partition("…")[0].rstrip() + " …"


def _any(reason: str) -> str:
    return "…"


VALUE: Final = re.compile(r"""'[^']*'?|"[^"]*"?|\w*\d\w*""")
"""What in a reason was likely seen in the message: what is quoted, and words with a digit in them."""
LEVELS: Final = (_as_it_is, _without_values, _up_to_the_first_value, _any)
"""How reasons are compared, the exact way first."""


@dataclass(slots=True)
class Causes:
    """The causes of one assertion with one verdict, told apart at one of `LEVELS`."""

    level: int = 0
    all: dict[str, Cause] = field(default_factory=dict)

    def take(self, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]) -> None:
        """Count one finding."""
        self._cause(LEVELS[self.level](found.reason)).take(found, time, exchange_id, sample)
        self._settle()

    def add(self, other: Causes) -> None:
        """Add the findings of another part of the run."""
        self._compare_at(max(self.level, other.level))
        for reason, cause in other.all.items():
            self._cause(LEVELS[self.level](reason)).add(cause)
        self._settle()

    def _cause(self, reason: str) -> Cause:
        cause = self.all.get(reason)
        if cause is None:
            cause = self.all[reason] = Cause()
        return cause

    def _settle(self) -> None:
        while len(self.all) > MAX_CAUSES:
            self._compare_at(self.level + 1)

    def _compare_at(self, level: int) -> None:
        if level == self.level:
            return
        self.level, before, self.all = level, self.all, {}
        for reason, cause in before.items():
            self._cause(LEVELS[level](reason)).add(cause)


@dataclass(slots=True)
class Findings:
    """All findings of a run, or of a part of it, by assertion and verdict."""

    groups: dict[tuple[str, str], Causes] = field(default_factory=dict)

    def take(
        self, assertion: str, verdict: str, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]
    ) -> None:
        """Count one finding; see `Cause.take`."""
        self._group(assertion, verdict).take(found, time, exchange_id, sample)

    def add(self, other: Findings) -> None:
        """Add another part's findings."""
        for (assertion, verdict), causes in other.groups.items():
            self._group(assertion, verdict).add(causes)

    def of(self, assertion: str, verdict: str) -> list[tuple[str, Cause]]:
        """List the causes of an assertion's findings with one verdict, the most frequent first."""
        causes = self.groups.get((assertion, verdict), Causes()).all
        return sorted(causes.items(), key=lambda each: (-each[1].count, each[0]))

    def settled(self) -> Findings:
        """Drop what is beyond the limits on lists, at the end of a run."""
        for causes in self.groups.values():
            for cause in causes.all.values():
                cause.settle()
        return self

    def to_members(self) -> list[Any]:
        """Return what JSON can write."""
        return [
            [*place, causes.level, [[reason, *cause.to_members()] for reason, cause in sorted(causes.all.items())]]
            for place, causes in sorted(self.groups.items())
        ]

    @classmethod
    def from_members(cls, members: Iterable[list[Any]]) -> Findings:
        """Read what `to_members` returned, after JSON."""
        groups: Mapping[tuple[str, str], Causes] = {
            (assertion, verdict): Causes(level, {reason: Cause.of(cause) for reason, *cause in causes})
            for assertion, verdict, level, causes in members
        }
        return cls(dict(groups))

    def _group(self, assertion: str, verdict: str) -> Causes:
        return self.groups.setdefault((assertion, verdict), Causes())


MAX_SAMPLE_HEADERS: Final = 40
"""How many headers and properties of a message a sample has."""
MAX_VALUE_CHARACTERS: Final = 200
MAX_BODY_CHARACTERS: Final = 600
MAX_DESTINATION_CHARACTERS: Final = 1000
"""Characters of a destination's name that are kept."""

NODES: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "requesting",
    Carrier.ONE_WAY: "sending",
    Carrier.RESPONSE: "responding",
}
"""The nodes that send the messages of an exchange."""
KINDS: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "request",
    Carrier.ONE_WAY: "one-way message",
    Carrier.RESPONSE: "response",
}


class Scene(NamedTuple):
    """An exchange as the report sees it.

    Attributes:
        exchange: the exchange.
        place: the destination of the service; temporary ones without their name, empty where it is not known.
        stacks: the stack that the sender of each message looks of, empty for none.
    """

    exchange: Exchange
    place: str
    stacks: Mapping[Carrier, str]

    @classmethod
    def of(cls, exchange: Exchange, messages: Mapping[Carrier, Reading]) -> Scene:
        """Look at an exchange that has messages."""
        first = next(iter(messages.values())).message.destination
        if first is not None and first.kind.is_temporary:
            first = Destination(first.kind, None)  # a client has its own, and another each time that it starts
        place = (destination_text(first) or "")[:MAX_DESTINATION_CHARACTERS]
        return cls(exchange, place, {carrier: guess_dialect(each) or "" for carrier, each in messages.items()})

    def found(self, verdict: Verdict) -> FindingKey:
        """Say what a verdict counts under."""
        return FindingKey(
            reason=whole(verdict.reason or ""),
            place=self.place,
            stack=self.stacks[self._carrier(verdict)],
            expected=", ".join(verdict.expected_subcodes),
            observed=_cut(verdict.observed_subcode or ""),
        )

    def sample(self, verdict: Verdict) -> Sample:
        """Make the sample of a verdict; the message is in it only where the verdict says that something is wrong."""
        carrier, record = self._carrier(verdict), verdict.record
        broken = verdict.outcome in (Outcome.FAILED, Outcome.WARNING)
        body, more = body_excerpt(record.message) if broken else ("", 0)
        return Sample(
            time=format_time(record.time),
            exchange_id=_cut(self.exchange.id),
            message_id=_cut(record.message.message_id or ""),
            destination=_cut(destination_text(record.message.destination) or ""),
            reason=whole(verdict.reason or "")[:MAX_REASON_CHARACTERS],
            expected_subcodes=", ".join(verdict.expected_subcodes),
            observed_subcode=_cut(verdict.observed_subcode or ""),
            stack=self.stacks[carrier],
            direction=KINDS[carrier],
            headers=tuple(headers(record)) if broken else (),
            body=body,
            more=more,
        )

    def _carrier(self, verdict: Verdict) -> Carrier:
        if verdict.record is self.exchange.response:
            return Carrier.RESPONSE
        return Carrier.ONE_WAY if Carrier.ONE_WAY in self.stacks else Carrier.REQUEST


def destination_text(destination: Destination | None) -> str | None:
    """Write a destination as `queue:orders`."""
    if destination is None:
        return None
    return str(destination.kind) if destination.name is None else f"{destination.kind}:{destination.name}"


def headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield a message's headers, then its properties, by the names that JMS gives them: the first ones, each cut."""
    message = record.message
    known = [(name, value) for name, value in _jms_headers(message) if value is not None]
    named = [*known, *((each.name, each.value) for each in message.properties)]
    for name, value in named[:MAX_SAMPLE_HEADERS]:
        yield _cut(name), _cut(str(value).lower() if isinstance(value, bool) else str(value))
    if len(named) > MAX_SAMPLE_HEADERS:
        yield "…", f"{len(named) - MAX_SAMPLE_HEADERS} more"
    if record.truncated:
        yield "…", "the body was cut when it was captured"


def _jms_headers(message: Message) -> Iterator[tuple[str, object]]:
    yield "JMS message type", message.message_type
    yield "JMSDestination", destination_text(message.destination)
    yield "JMSMessageID", message.message_id
    yield "JMSCorrelationID", message.correlation_id
    yield "JMSReplyTo", destination_text(message.reply_to)
    yield "JMSDeliveryMode", message.delivery_mode
    yield "JMSPriority", message.priority
    yield "JMSExpiration", message.expiration
    yield "JMSTimestamp", message.timestamp
    yield "JMSType", message.type
    yield "JMSRedelivered", message.redelivered


def body_excerpt(message: Message) -> tuple[str, int]:
    """Return the beginning of a body as text, and how many octets, characters or elements of it are left out.

    Octets that are no UTF-8 show as backslash escapes.
    """
    body = message.body
    if isinstance(body, str):
        return whole(body[:MAX_BODY_CHARACTERS]), max(0, len(body) - MAX_BODY_CHARACTERS)
    if isinstance(body, bytes | memoryview):
        return bytes(body[:MAX_BODY_CHARACTERS]).decode("utf-8", "backslashreplace"), max(
            0, len(body) - MAX_BODY_CHARACTERS
        )
    if body is None:
        return "", 0
    named = [(each.name, each.value) for each in body] if isinstance(body, Properties) else _elements(body)
    shown = [f"{name}: {str(value)[:MAX_VALUE_CHARACTERS]}" for name, value in named]
    return whole("\n".join(shown[:MAX_SAMPLE_HEADERS])), max(0, len(shown) - MAX_SAMPLE_HEADERS)


def _elements(body: tuple[Element, ...]) -> list[tuple[str, object]]:
    return [(str(number), each.value) for number, each in enumerate(body)]


def _cut(text: str) -> str:
    return whole(text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…")


def whole(text: str) -> str:
    """Make a text one that UTF-8 can carry: what a peer wrote may hold half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()
