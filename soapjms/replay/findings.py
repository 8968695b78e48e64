"""Findings grouped by cause: one count and a few samples for all messages that broke one assertion for one reason.

A reason quotes texts of the message, which may differ in each message. So reasons are compared word for word as long
as they are few, and ever more roughly as they become many. The roughness depends on the reasons alone, not on their
order: the parts of a run add up to the same causes however its log was cut.

A sample shows the destination of an exchange, the stack of its sender, and the message. All texts in it are limited
in length: a sample helps people to recognise a message, and the log has the whole of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple, TypeVar

from brokers.message import Destination, Element, Message, Properties
from soapjms.protocol.assertions import Outcome, Verdict, guess_dialect
from soapjms.protocol.assertions.spots import MESSAGE_TYPE
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record, format_time
from soapjms.replay.parties import NODES, PartyKey

MAX_SAMPLES: Final = 3
"""Number of findings of each cause that are kept as samples: the earliest ones."""
MAX_CAUSES: Final = 25
"""Maximum number of causes of an assertion with one verdict before reasons are compared more roughly."""
MAX_REASON_CHARACTERS: Final = 600
MAX_DESTINATIONS: Final = 200
"""Maximum number of destinations that are listed one by one: the first in alphabetical order."""
MAX_PARTIES: Final = 20 * MAX_DESTINATIONS
"""More than all nodes with all known stacks at as many destinations."""
MAX_SUBCODE_PAIRS: Final = 20
"""Maximum number of pairs of expected and observed subcodes listed for a cause: the first in alphabetical order."""


class Sample(NamedTuple):
    """One finding that the report shows. The order of its members makes the earliest sample the smallest.

    `headers` are the message's headers and properties, `body` is the beginning of its body, and `more` the length of
    the rest, in octets or characters; a sample without its message has none of them. `place`, `direction` and `stack`
    tell whose message it is.
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
    place: str = ""

    @classmethod
    def of(cls, members: list[Any]) -> Sample:
        """Read a sample from its JSON form."""
        found = cls(*members)
        return found._replace(headers=tuple((name, value) for name, value in found.headers))


class FindingKey(NamedTuple):
    """The key that a finding is counted by: reason, party that sent the message, and subcodes."""

    reason: str
    party: PartyKey
    expected: str
    observed: str


@dataclass(slots=True)
class Cause:
    """Findings that broke one assertion for one reason.

    Attributes:
        count: the number of findings.
        samples: the earliest findings.
        where: the number of findings by party.
        answers: the number of findings by pair of expected and observed subcodes.
    """

    count: int = 0
    samples: list[Sample] = field(default_factory=list)
    where: Counter[PartyKey] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]) -> None:
        """Count one finding; its sample is made only if it may be among the earliest."""
        self.count += 1
        self.where[found.party] += 1
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
        """Drop entries beyond the limits on lists; the rest is the same however the run was cut."""
        self.where = keep_first(self.where, MAX_PARTIES)
        self.answers = keep_first(self.answers, MAX_SUBCODE_PAIRS)

    def _keep_first(self) -> None:
        if len(self.where) > 2 * MAX_PARTIES or len(self.answers) > 2 * MAX_SUBCODE_PAIRS:
            self.settle()

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        return [self.count, self.samples, _items(self.where), _items(self.answers)]

    @classmethod
    def of(cls, members: list[Any]) -> Cause:
        """Read a cause from its JSON form."""
        count, samples, where, answers = members
        return cls(
            count,
            [Sample.of(each) for each in samples],
            Counter({PartyKey(*party): number for *party, number in where}),
            Counter({(expected, observed): number for expected, observed, number in answers}),
        )


KeyT = TypeVar("KeyT", bound=tuple[str, ...])


def keep_first(counted: Counter[KeyT], limit: int) -> Counter[KeyT]:
    """Keep the first keys, in alphabetical order, with their counts.

    A key that is dropped once has so many before it that it never returns: every key that is kept was counted in full.
    """
    return Counter({key: counted[key] for key in nsmallest(limit, counted)})


def _items(counted: Counter[KeyT]) -> list[list[Any]]:
    return [[*key, number] for key, number in sorted(counted.items())]


def _as_it_is(reason: str) -> str:
    return reason[:MAX_REASON_CHARACTERS]


def _without_values(reason: str) -> str:
    return VALUE.sub("…", reason[:MAX_REASON_CHARACTERS])


def _up_to_the_first_value(reason: str) -> str:
    return _without_values(reason).partition("…")[0].rstrip() + " …"


def _any(reason: str) -> str:
    return "…"


VALUE: Final = re.compile(r"""'[^']*'?|"[^"]*"?|\w*\d\w*""")
"""Parts of a reason that probably come from the message: quoted texts, and words with a digit."""
LEVELS: Final = (_as_it_is, _without_values, _up_to_the_first_value, _any)
"""Ways to compare reasons, the exact one first."""


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
        """List the causes of an assertion's findings with one verdict, most frequent first."""
        causes = self.groups.get((assertion, verdict), Causes()).all
        return sorted(causes.items(), key=lambda each: (-each[1].count, each[0]))

    def settled(self) -> Findings:
        """Drop entries beyond the limits on lists, at the end of a run; return these findings."""
        for causes in self.groups.values():
            for cause in causes.all.values():
                cause.settle()
        return self

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        return [
            [*place, causes.level, [[reason, *cause.to_members()] for reason, cause in sorted(causes.all.items())]]
            for place, causes in sorted(self.groups.items())
        ]

    @classmethod
    def from_members(cls, members: Iterable[list[Any]]) -> Findings:
        """Read findings from their JSON form."""
        groups: Mapping[tuple[str, str], Causes] = {
            (assertion, verdict): Causes(level, {reason: Cause.of(cause) for reason, *cause in causes})
            for assertion, verdict, level, causes in members
        }
        return cls(dict(groups))

    def _group(self, assertion: str, verdict: str) -> Causes:
        return self.groups.setdefault((assertion, verdict), Causes())


MAX_SAMPLE_HEADERS: Final = 40
"""Maximum number of headers and properties in a sample."""
MAX_VALUE_CHARACTERS: Final = 200
MAX_BODY_CHARACTERS: Final = 600
MAX_DESTINATION_CHARACTERS: Final = 1000
"""Maximum length of a destination's name, in characters; the rest is cut."""

KINDS: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "request",
    Carrier.ONE_WAY: "one-way message",
    Carrier.RESPONSE: "response",
}
KIND_OF_NODE: Final = {node: KINDS[carrier] for carrier, node in NODES.items()}


class Scene(NamedTuple):
    """An exchange as the report shows it.

    Attributes:
        exchange: the exchange.
        place: the destination of the service; without its name if it is temporary, empty if it is unknown.
        parties: whose message each is.
    """

    exchange: Exchange
    place: str
    parties: Mapping[Carrier, PartyKey]

    @classmethod
    def of(cls, exchange: Exchange, messages: Mapping[Carrier, Reading]) -> Scene:
        """Make the scene of an exchange that has messages."""
        place = service_place(next(iter(messages.values())).message.destination)
        return cls(
            exchange,
            place,
            {carrier: PartyKey(place, NODES[carrier], guess_dialect(each) or "") for carrier, each in messages.items()},
        )

    def found(self, verdict: Verdict) -> FindingKey:
        """Return the key that a verdict is counted by."""
        return FindingKey(
            reason=whole(verdict.reason or ""),
            party=self.parties[self.carrier(verdict)],
            expected=", ".join(verdict.expected_subcodes),
            observed=_cut(verdict.observed_subcode or ""),
        )

    def sample(self, verdict: Verdict) -> Sample:
        """Make the sample of a verdict; it has the message only if the verdict is failed or warning."""
        carrier, record = self.carrier(verdict), verdict.record
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
            stack=self.parties[carrier].stack,
            direction=KINDS[carrier],
            headers=tuple(headers(record)) if broken else (),
            body=body,
            more=more,
            place=self.place,
        )

    def carrier(self, verdict: Verdict) -> Carrier:
        """Return which message a verdict is on; of a pair, the response."""
        if verdict.record is self.exchange.response:
            return Carrier.RESPONSE
        return Carrier.ONE_WAY if Carrier.ONE_WAY in self.parties else Carrier.REQUEST


def service_place(destination: Destination | None) -> str:
    """Return the destination of a service as it is counted by: see `Scene.place`."""
    if destination is not None and destination.kind.is_temporary:
        destination = Destination(destination.kind, None)  # each client has its own, a new one each time it starts
    return (destination_text(destination) or "")[:MAX_DESTINATION_CHARACTERS]


def destination_text(destination: Destination | None) -> str | None:
    """Write a destination as `queue:orders`."""
    if destination is None:
        return None
    return str(destination.kind) if destination.name is None else f"{destination.kind}:{destination.name}"


def headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield a message's headers, then its properties, by their JMS names: the first ones, each limited in length."""
    message = record.message
    known = [(name, value) for name, value in jms_headers(message) if value is not None]
    named = [*known, *((each.name, each.value) for each in message.properties)]
    for name, value in named[:MAX_SAMPLE_HEADERS]:
        yield _cut(name), _cut(str(value).lower() if isinstance(value, bool) else str(value))
    if len(named) > MAX_SAMPLE_HEADERS:
        yield "…", f"{len(named) - MAX_SAMPLE_HEADERS} more"
    if record.truncated:
        yield "…", "the body was cut when it was captured"


def jms_headers(message: Message) -> Iterator[tuple[str, object]]:
    """Yield a message's headers by their JMS names, the message type first; None for those that it does not have."""
    yield MESSAGE_TYPE, message.message_type
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
    """Return the beginning of a body as text, and how many octets, characters or elements are left out.

    Octets that are not UTF-8 are shown as backslash escapes.
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
    """Escape lone surrogates, which a peer's text may hold, so that UTF-8 can carry the text."""
    return text.encode("utf-8", "backslashreplace").decode()
