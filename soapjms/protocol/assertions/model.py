"""The types of an assertion, a verdict and the setting of a judgement. No rule of the specification is in here.

Spec: SOAP/JMS 1.5; capture record, "Verdicts".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import REC_2012, CorrelationRule, Level, Mep, Profile, Subcode
from soapjms.protocol.properties import Carrier, Effective
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record
from soapjms.protocol.uri import KNOWN_VARIANTS


class Binds(StrEnum):
    """Who must follow an assertion."""

    SENDER = "any sender"
    REQUESTING = "requesting node"
    ONE_WAY_SENDER = "sending node"
    CLIENT = "requesting or sending node"
    RESPONDING = "responding node"
    RECEIVER = "any receiver"
    IMPLEMENTATION = "the implementation"
    WSDL = "WSDL author or processor"


class Sees(StrEnum):
    """What an assertion is judged by."""

    ANY = "every message"
    SENT = "a request or one-way message"
    REQUEST = "a request"
    ONE_WAY = "a one-way message"
    RESPONSE = "a response"
    PAIR = "a request and its response"
    NOTHING = "nothing that a log holds"


CARRIERS: Final[Mapping[Sees, frozenset[Carrier]]] = {
    Sees.ANY: frozenset(Carrier),
    Sees.SENT: frozenset({Carrier.REQUEST, Carrier.ONE_WAY}),
    Sees.REQUEST: frozenset({Carrier.REQUEST}),
    Sees.ONE_WAY: frozenset({Carrier.ONE_WAY}),
    Sees.RESPONSE: frozenset({Carrier.RESPONSE}),
    Sees.PAIR: frozenset(),
    Sees.NOTHING: frozenset(),
}


class VerdictOutcome(StrEnum):
    """How the judgement of one assertion ends."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    NOT_APPLICABLE = "notApplicable"
    MISSING_INPUT = "missingInput"
    PREREQ_FAILED = "prereqFailed"


BROKEN: Final = frozenset({VerdictOutcome.FAILED, VerdictOutcome.WARNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The given facts of a judgement.

    Attributes:
        profile: the edition of the specification, or a dialect of it.
        mep: the message exchange pattern, if it is known from elsewhere.
        properties: the effective binding properties of the sender, if they are known.
        variants: the lookup variants that the responding node supports.
        strict: refuse deviations that a liberal reader tolerates, such as a request without bindingVersion.
        limits: the limits for reading a message; a body that exceeds one is not judged.
    """

    profile: Profile = REC_2012
    mep: Mep | None = None
    properties: Effective | None = None
    variants: frozenset[str] = KNOWN_VARIANTS
    strict: bool = False
    limits: Limits = DEFAULT_LIMITS


@dataclass(slots=True)
class Case:
    """The input of a check: the message under judgement, with its partner and the setting.

    Attributes:
        message: the message under judgement; for a pair the response.
        carrier: which message of the exchange it is.
        subcodes: the faults that the request calls for, preferred first, by the broken assertion.
        spared: the faults that a stricter reader would send, for breaches that are tolerated.
        is_pair: True if the request and its response are judged together.
    """

    setting: Setting
    message: Reading
    carrier: Carrier
    request: Reading | None = None
    response: Reading | None = None
    subcodes: dict[str, Subcode] = field(default_factory=dict)
    spared: set[Subcode] = field(default_factory=set)
    is_pair: bool = False

    @property
    def pair(self) -> tuple[Reading, Reading]:
        """Request and response, for an assertion that sees both."""
        assert self.request is not None
        assert self.response is not None
        return self.request, self.response

    @property
    def wanted_correlation_id(self) -> str | None:
        """The id that the response must repeat by the rule of the profile; None if the capture does not show it."""
        request, _ = self.pair
        if self.setting.profile.correlation is CorrelationRule.MESSAGE_ID:
            return request.message.message_id
        return request.message.correlation_id or request.message.message_id

    def stated(self, name: str) -> object | None:
        """Return the value of a binding property that the sender is known to have set, else None.

        It is known from the setting, or from a parameter that the sender left in the requestURI. An empty text counts
        as not set.
        """
        known, uri = self.setting.properties, self.message.request_uri
        value = known.stated(name) if known is not None else None if uri is None else uri.value(name)
        return None if value == "" else value


class Need(StrEnum):
    """Input that a check requires."""

    BODY = "the whole body, within the limits of the reader"
    MESSAGE_TYPE = "the JMS message type"
    TYPES = "the types of the properties"
    DELIVERY_MODE = "JMSDeliveryMode"
    PRIORITY = "JMSPriority"
    EXPIRATION = "JMSExpiration"
    TIMESTAMP = "JMSTimestamp"
    DESTINATION = "JMSDestination of the response and JMSReplyTo of the request, by name"
    REQUEST_ID = "the id of the request that the response has to repeat"
    REPLY_NAME = "JMSReplyTo, by name"


def _known(header: str) -> Callable[[Case], bool]:
    """Make a test for whether the capture shows a header of the message."""
    return lambda case: getattr(case.message.message, header) is not None


def _every(test: Callable[[Reading], bool]) -> Callable[[Case], bool]:
    """Make a test of every judged message: of the message, or of both the request and the response of a pair."""
    return lambda case: all(test(each) for each in case.pair) if case.is_pair else test(case.message)


def _reply_named(case: Case) -> bool:
    reply = case.message.message.reply_to
    return reply is None or reply.name is not None


def _both_destinations(case: Case) -> bool:
    request, response = case.pair
    wanted, seen = request.message.reply_to, response.message.destination
    return wanted is not None and seen is not None and wanted.name is not None and seen.name is not None


MET: Final[Mapping[Need, Callable[[Case], bool]]] = {
    Need.BODY: lambda case: case.message.is_whole and (not case.is_pair or case.pair[0].is_whole),
    Need.MESSAGE_TYPE: _every(lambda reading: reading.type_known),
    Need.TYPES: _every(lambda reading: not reading.message.untyped),
    Need.DELIVERY_MODE: _known("delivery_mode"),
    Need.PRIORITY: _known("priority"),
    Need.EXPIRATION: _known("expiration"),
    Need.TIMESTAMP: lambda case: bool(case.message.message.timestamp),
    Need.DESTINATION: _both_destinations,
    Need.REQUEST_ID: lambda case: case.wanted_correlation_id is not None,
    Need.REPLY_NAME: _reply_named,
}

Check = Callable[[Case], str | None]
"""Says why the assertion does not hold; returns None if it holds."""


class Fact(StrEnum):
    """What a rule may read of a message, or of a request and its response. Two that agree in it are alike to the rule.

    Whatever the program knows beforehand, the setting of a judgement, is no fact. Neither are the outcomes of the rules
    that a rule rests on: they follow from the facts that those read.
    """

    PROPERTIES = "the properties of the binding"
    MESSAGE_TYPE = "the JMS message type"
    BODY_KIND = "whether the body is octets, text or something else, and whether it is empty"
    TRUNCATED = "whether the body was cut"
    UNTYPED = "whether the types of the properties are known"
    DIRECTION = "the direction that the capture states"
    ASKS = "whether JMSReplyTo is set"
    BODY = "the body, but for texts and values of attributes where no rule reads them; see `markup`"
    DELIVERY_MODE = "JMSDeliveryMode: whether it is valid, its value if not or where one was set, and the response's"
    PRIORITY = "JMSPriority: the same"
    LIFETIME = "JMSExpiration as time from JMSTimestamp on, and whether the capture has both"
    REPLY_TO = "JMSReplyTo: its kind, whether its name is known, and its name where one was set"
    DESTINATION = "JMSDestination of the first message"
    JNDI = "whether the lookup variant of the request is jndi"
    CORRELATION = "which id of the request the response repeats, and which ids the request has"
    REPLY_PLACE = "whether JMSDestination of the response is JMSReplyTo of the request"
    REPEATED_URI = "whether the response has the requestURI of the request"
    EXPIRY = "whether the response expires after the request, clocks aside"


CheckT = TypeVar("CheckT", bound=Callable[[Case], object])
READS_MARK: Final = "reads"


def reads(*facts: Fact) -> Callable[[CheckT], CheckT]:
    """Mark a test or check with all that it reads of a message or a pair."""

    def mark(check: CheckT) -> CheckT:
        vars(check)[READS_MARK] = frozenset(facts)
        return check

    return mark


def reads_of(check: Callable[[Case], object] | None) -> frozenset[Fact]:
    """Return what a test or check reads: see `reads`. None reads nothing."""
    return frozenset() if check is None else vars(check)[READS_MARK]


NEED_READS: Final[Mapping[Need, frozenset[Fact]]] = {
    Need.BODY: frozenset({Fact.BODY, Fact.TRUNCATED, Fact.PROPERTIES, Fact.MESSAGE_TYPE}),
    Need.MESSAGE_TYPE: frozenset({Fact.MESSAGE_TYPE, Fact.BODY_KIND, Fact.TRUNCATED}),
    Need.TYPES: frozenset({Fact.UNTYPED}),
    Need.DELIVERY_MODE: frozenset({Fact.DELIVERY_MODE}),
    Need.PRIORITY: frozenset({Fact.PRIORITY}),
    Need.EXPIRATION: frozenset({Fact.LIFETIME}),
    Need.TIMESTAMP: frozenset({Fact.LIFETIME}),
    Need.DESTINATION: frozenset({Fact.REPLY_PLACE}),
    Need.REQUEST_ID: frozenset({Fact.CORRELATION}),
    Need.REPLY_NAME: frozenset({Fact.REPLY_TO}),
}
"""What finding out reads whether the input is there."""


PLAIN_MARK: Final = "depends_on_version"


def by_plain_document(check: CheckT) -> CheckT:
    """Mark a test or check that depends, for a plain document, only on its SOAP version and the message's properties.

    A *plain* document is an envelope in octets of US-ASCII without an XML declaration, in UTF-8 by its properties.
    """
    vars(check)[PLAIN_MARK] = True
    return check


def depends_on_version(check: Callable[[Case], object] | None) -> bool:
    """Return whether a test or check has the mark of `by_plain_document`."""
    return getattr(check, PLAIN_MARK, False)


@reads()
def always(case: Case) -> bool:
    """Apply to every message."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assertion:
    """One row of the table of assertions.

    Attributes:
        id: the id in the CR, or `Local-…` for a requirement without an id; a profile may have another id for it.
        section: its section in the CR, or in the REC if it says so.
        title: its content, in our words.
        level: its level in the CR; a profile may have another.
        binds: who must follow it.
        sees: what it is judged by.
        check: says why it does not hold; None if no log can show it, for the reason in `why_not`.
        applies: says whether it applies to the message.
        needs: input without which it cannot be judged.
        after: ids of assertions on the same message on which it depends.
        subcode: the fault for a request that breaks it.
        faults_when: says whether its breach calls for the fault.
        blocks: says whether assertions that depend on it cannot be judged after its breach.
        reaction_to: for an assertion on the responding node's answer, the ids of the assertions whose breach it
            answers.
        by_properties: True if it is judged only if the setting has the sender's properties.
        why_not: why no log can show it, at all or without the sender's properties.
    """

    id: str
    section: str
    title: str
    level: Level
    binds: Binds
    sees: Sees
    check: Check | None = None
    applies: Callable[[Case], bool] = always
    needs: tuple[Need, ...] = ()
    after: tuple[str, ...] = ()
    subcode: Subcode | None = None
    faults_when: Callable[[Case], bool] = always
    blocks: Callable[[Case], bool] = always
    reaction_to: tuple[str, ...] = ()
    by_properties: bool = False
    why_not: str | None = None

    @property
    def reads(self) -> frozenset[Fact]:
        """All that judging it reads of a message or a pair."""
        functions = (self.check, self.applies, self.faults_when, self.blocks)
        return frozenset().union(*map(reads_of, functions), *(NEED_READS[each] for each in self.needs))

    def level_in(self, profile: Profile) -> Level:
        """Return the level of the assertion in a profile."""
        return profile.levels.get(self.id, self.level)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one assertion for one message.

    Attributes:
        assertion: the id of the assertion in the profile.
        level: the level of the assertion in the profile.
        outcome: how the judgement ended.
        reason: why the assertion did not pass, or None.
        record: the judged message; for a pair the response.
        expected_subcodes: the faults that would be right as the answer, preferred first.
        observed_subcode: the subcode of the fault in the answer, or None.
        is_answer: True if it is on the answer to a breach, where the profile has one id for that and for the breach.
    """

    assertion: str
    level: Level
    outcome: VerdictOutcome
    reason: str | None
    record: Record
    expected_subcodes: tuple[Subcode, ...] = ()
    observed_subcode: str | None = None
    is_answer: bool = False

    @property
    def rule(self) -> str:
        """The name of the rule: see `rule_name`."""
        return rule_name(self.assertion, is_answer=self.is_answer)


ANSWER_SUFFIX: Final = "/answer"


def rule_name(assertion: str, *, is_answer: bool) -> str:
    """Return the name by which a rule is counted: the id of its assertion, with `/answer` for `Verdict.is_answer`."""
    return f"{assertion}{ANSWER_SUFFIX}" if is_answer else assertion


def assertion_of(rule: str) -> str:
    """Return the id of the assertion of a rule: see `rule_name`."""
    return rule.removesuffix(ANSWER_SUFFIX)
