"""Each rule reads what it declares, and nothing else: whatever else is changed, it ends as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from itertools import cycle, islice, product
from typing import Any, Final, NamedTuple

import pytest
from fuzz_kit import messages
from hypothesis import assume, given
from hypothesis import strategies as st
from protocol_kit import envelope
from vector_kit import CASES, exchange_of, given_properties, members_of, paired, setting_of

from brokers.message import (
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    changed,
    properties,
    queue,
    topic,
    typed,
)
from soapjms.protocol import names
from soapjms.protocol.assertions import (
    ASSERTIONS,
    REQUEST_FAULTS,
    Assertion,
    Case,
    Fact,
    Need,
    Setting,
    VerdictOutcome,
    readings,
)
from soapjms.protocol.assertions.judge import (
    Ended,
    broken_verdict,
    note_end,
    outcome_of,
    rows_for,
)
from soapjms.protocol.assertions.model import BROKEN, MET, NEED_READS, READS_MARK, always, reads_of
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import EDITIONS, PROFILES, SoapVersion, Subcode
from soapjms.protocol.properties import PROPERTY_NAMES, Carrier
from soapjms.protocol.record import EPOCH, Direction, Node, Record
from soapjms.replay import facts, plan

JUDGED: Final = [row for row in ASSERTIONS if row.check is not None]


# The marks


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.id)
def test_rows_declare_what_they_read(row: Assertion) -> None:
    """Each function of a row has a mark, and the row reads what they and its needs read together."""
    functions = [row.check, row.applies, row.faults_when, row.blocks]
    assert all(READS_MARK in vars(each) for each in functions)
    assert row.reads == frozenset().union(*map(reads_of, functions), *(NEED_READS[each] for each in row.needs))
    assert row.reads <= set(Fact)


def test_rows_without_a_check_read_nothing() -> None:
    """What no log can show is not looked for."""
    assert {row.reads for row in ASSERTIONS if row.check is None} == {frozenset()}


def test_each_need_says_what_it_reads() -> None:
    """That a need is met is found by facts."""
    assert NEED_READS.keys() == MET.keys() == set(Need)


OTHERWISE_READ = {Fact.PROPERTIES, Fact.BODY, Fact.UNTYPED, Fact.DIRECTION, Fact.DESTINATION}
"""What habits, the guess of a sender's stack, and counts by destination read."""


def test_each_fact_is_read() -> None:
    """There is no fact that nobody reads, and each is found for the shape of an exchange."""
    assert frozenset[Fact]().union(*(row.reads for row in JUDGED)) | OTHERWISE_READ == set(Fact)
    assert {*facts.MESSAGE_PARTS, *plan.PAIR_PARTS, Fact.DESTINATION} == set(Fact)


# Judging in pieces


class Blame(NamedTuple):
    """The faults that a request calls for, and those that are spared; see `Case`."""

    subcodes: dict[str, Subcode]
    spared: set[Subcode]


class Step(NamedTuple):
    """A step of judging a row: a call of one of its functions, or of all in their order.

    Attributes:
        view: which message it is about, or which view of the pair.
        what: the name of the row and of the step.
        take: takes the step for another exchange.
        reads: what it may read.
        found: how it ended.
    """

    view: str
    what: str
    take: Callable[[Case], object]
    reads: frozenset[Fact]
    found: Any


class Judged(NamedTuple):
    """An exchange, with all steps of its judgement."""

    exchange: Exchange
    setting: Setting
    blames: Mapping[str, Blame]
    steps: tuple[Step, ...]


def judged(exchange: Exchange, setting: Setting) -> Judged:
    """Judge an exchange, the pair also as if the request called for every fault; return each step."""
    every = {row.id: row.subcode for row in REQUEST_FAULTS if row.subcode in setting.profile.subcodes}
    blames = {
        "pair": Blame({}, set()),
        "accused pair": Blame({row: each for row, each in every.items() if each}, set()),
    }
    steps: list[Step] = []
    for view, case in cases_of(exchange, setting, blames).items():
        carrier = None if case.is_pair else case.carrier
        ended: Ended = {}
        for row in rows_for(ASSERTIONS, carrier, setting.profile.name, setting.properties is not None):
            first, *more = steps_of(row, case, view, ended)
            steps += (first, *more)
            outcome, reason = first.found
            if outcome not in (VerdictOutcome.PASSED, VerdictOutcome.NOT_APPLICABLE):
                note_end(row, case, outcome, ended)
            if outcome in BROKEN:
                broken_verdict(row, case, outcome, reason)  # notes the fault that the request calls for
    return Judged(exchange, setting, blames, tuple(steps))


def steps_of(row: Assertion, case: Case, view: str, ended: Ended) -> Iterator[Step]:
    """Yield the steps of judging a row, as far as it goes after the rows that it rests on."""

    def step(name: str, take: Callable[[Case], object], reads: frozenset[Fact]) -> Step:
        return Step(view, f"{row.id}, {name}", take, reads, take(case))

    yield step("outcome", partial(outcome_of, row, ended=ended), row.reads)
    if row.reaction_to and case.subcodes.keys().isdisjoint(row.reaction_to):
        return
    if row.applies is not always:
        applies = step("applies", row.applies, reads_of(row.applies))
        yield applies
        if not applies.found:
            return
    if not ended.keys().isdisjoint(row.after):
        return
    for need in row.needs:
        met = step(need.name, MET[need], NEED_READS[need])
        yield met
        if not met.found:
            return
    assert row.check is not None
    check = step("check", row.check, reads_of(row.check))
    yield check
    if check.found is not None:
        for name, function in (("faults_when", row.faults_when), ("blocks", row.blocks)):
            if function is not always:
                yield step(name, function, reads_of(function))


def cases_of(exchange: Exchange, setting: Setting, blames: Mapping[str, Blame]) -> dict[str, Case]:
    """Return the input of the checks for each message of an exchange, and for the pair by each blame."""
    found = readings(exchange, setting)
    request, response = found.get(Carrier.REQUEST) or found.get(Carrier.ONE_WAY), found.get(Carrier.RESPONSE)
    cases = {
        str(carrier): Case(setting, message, carrier, request, response, *blames["pair"])
        for carrier, message in found.items()
    }
    if request is not None and response is not None:
        for view, blame in blames.items():
            cases[view] = Case(setting, response, Carrier.RESPONSE, request, response, *blame, is_pair=True)
    return cases


HALVES: Final = ("request", "response")


def wrong_steps(before: Judged, exchange: Exchange, touched: frozenset[Fact]) -> Iterator[tuple[Step, object]]:
    """Yield each step that ends otherwise for a changed exchange, though it reads nothing that was touched.

    A step of a message reads nothing of the other message, except whether the request has a requestURI.
    """
    cases = cases_of(exchange, before.setting, before.blames)
    kept = {half for half in HALVES if getattr(exchange, half) is getattr(before.exchange, half)}
    if "request" not in kept and has_uri(exchange, before.setting) != has_uri(before.exchange, before.setting):
        kept.discard("response")
    for step in before.steps:
        case = cases[step.view]
        half = "response" if case.carrier is Carrier.RESPONSE else "request"
        if step.reads.isdisjoint(touched) or (half in kept and not case.is_pair):
            found = step.take(case)
            if found != step.found:
                yield step, found


def has_uri(exchange: Exchange, setting: Setting) -> bool:
    """Say whether the request has a requestURI."""
    found = readings(exchange, setting)
    request = found.get(Carrier.REQUEST) or found.get(Carrier.ONE_WAY)
    return request is not None and request.request_uri is not None


# Changes: each yields exchanges that differ from one in a single fact, and what follows from it

Change = Callable[[Exchange], Iterator[Exchange]]


class Mutation(NamedTuple):
    """A change of a fact.

    Attributes:
        change: makes the changes, one by one.
        also: the facts that change with it, as it cannot be otherwise.
    """

    change: Change
    also: frozenset[Fact] = frozenset()


def with_record(exchange: Exchange, half: str, **values: Any) -> Exchange:
    """Change the record of a message."""
    return replace(exchange, **{half: replace(getattr(exchange, half), **values)})


def with_message(exchange: Exchange, half: str, **values: Any) -> Exchange:
    """Change a message."""
    return with_record(exchange, half, message=changed(getattr(exchange, half).message, **values))


def of_record(name: str, *values: object) -> Change:
    """Set an attribute of either record to other values."""

    def change(exchange: Exchange) -> Iterator[Exchange]:
        for half in HALVES:
            record = getattr(exchange, half)
            if record is not None:
                yield from (
                    with_record(exchange, half, **{name: each}) for each in values if each != getattr(record, name)
                )

    return change


def of_message(name: str, *values: object, halves: tuple[str, ...] = HALVES) -> Change:
    """Set a header of either message to other values."""

    def change(exchange: Exchange) -> Iterator[Exchange]:
        for half in halves:
            record = getattr(exchange, half)
            if record is not None:
                seen = getattr(record.message, name)
                yield from (with_message(exchange, half, **{name: each}) for each in values if each != seen)

    return change


def without(old: Properties, name: str) -> Properties:
    """Take a property away."""
    return Properties(each for each in old if each.name != name)


def with_property(old: Properties, new: Property) -> Properties:
    """Set a property; `Properties.merged` would drop others too that are there twice."""
    return Properties([*without(old, new.name), new])


def of_properties(values: Mapping[str, list[Any]], *halves: str) -> Change:
    """Take away each of these properties of a message, and give it these values."""

    def change(exchange: Exchange) -> Iterator[Exchange]:
        for half in halves:
            record: Record | None = getattr(exchange, half)
            for name, each in values.items() if record is not None else ():
                assert record is not None
                old = record.message.properties
                for new in (without(old, name), *(with_property(old, typed(name, *value)) for value in each)):
                    if new != old:
                        yield with_message(exchange, half, properties=new)

    return change


STRING, BYTE = PropertyType.STRING, PropertyType.BYTE
VALUES: Final[Mapping[str, list[Any]]] = {
    "SOAPJMS_bindingVersion": [("1.0",), ("2.0",), ("",)],
    "SOAPJMS_contentType": [
        *(("text/xml",), ("text/xml; charset=utf-16",), ("text/xml; charset=IBM037",), ("text/xml; charset=us-ascii",)),
        *(
            ('application/soap+xml; action="urn:b"',),
            ("multipart/related; boundary=b; type=text/xml",),
            ("text/plain",),
        ),
        ("x",),
    ],
    "SOAPJMS_contentEncoding": [("gzip",), ("x",)],
    "SOAPJMS_soapAction": [("urn:a",), ('"urn:b"',)],
    "SOAPJMS_isFault": [(True,), ("1", STRING), (0, BYTE), ("x",)],
    "SOAPJMS_targetService": [("t",)],
    "Content_Type": [("application/soap+xml",)],
    "SoapAction": [("urn:a",)],
}
URIS: Final[Mapping[str, list[Any]]] = {
    "SOAPJMS_requestURI": [
        *(("jms:queue:a",), ("jms:jndi:a?replyToName=r",), ("jms:topic:t?targetService=t&topicReplyToName=r",)),
        *(("jms:x:y",), ("jms:queue:",), ("http://x",), ("jms:queue:q?timeToLive=5&priority=1",)),
        ("jms:queue:q?timeToLive=1&timeToLive=5&priority=1&priority=9&deliveryMode=PERSISTENT",),
        ("jms:queue:q?deliveryMode=PERSISTENT&deliveryMode=NON_PERSISTENT",),
        ("jms:queue:q?replyToName=a&replyToName=b",),
    ],
    "SOAPJMS_requestIRI": [("jms:jndi:b",)],
}
BODIES: Final = [
    *(
        b"x",
        b"--b\r\n\r\nx\r\n--b--",
        envelope(),
        envelope(SoapVersion.SOAP_12),
        b"<?xml version='1.0' encoding='x'?><a/>",
    ),
    envelope(text="&b;"),
    envelope(text="<a>" * 200),  # deeper than the limit
    b"\xff\xfe" + envelope().decode().encode("utf-16-le"),
    b"<e:Envelope xmlns:e='http://www.w3.org/2003/05/soap-envelope'><e:Body><e:Fault><e:Code><e:Subcode>"
    b"<e:Value xmlns:b='http://www.w3.org/2010/soapjms/'>b:missingContentType</e:Value></e:Subcode></e:Code>"
    b"</e:Fault></e:Body></e:Envelope>",
    b"<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Header>"
    b"<w:ReplyTo xmlns:w='http://www.w3.org/2005/08/addressing'><w:Address>urn:x</w:Address></w:ReplyTo></e:Header>"
    b"<e:Body><x/></e:Body></e:Envelope>",
]
PLACES: Final = [
    *(
        queue("elsewhere"),
        topic("elsewhere"),
        queue("r"),
        topic("r"),
        Destination(DestinationKind.TEMPORARY_TOPIC, "r"),
    ),
    *(
        Destination(DestinationKind.TEMPORARY_QUEUE, None, "/a"),
        Destination(DestinationKind.TEMPORARY_QUEUE, None, "/b"),
    ),
]
TIMES: Final = (None, -1, 0, 1, 5, 1_767_268_800_000, 1_767_268_800_005, 1_767_268_803_000)
IDS: Final = (None, "", "other")


def other_bodies(exchange: Exchange) -> Iterator[Exchange]:
    """Put in bodies of the same kind."""
    for half in HALVES:
        record: Record | None = getattr(exchange, half)
        old = None if record is None else record.message.body
        for each in BODIES if isinstance(old, bytes | str) and old else ():
            new = each if isinstance(old, bytes) else each.decode("utf-8", "replace")
            if new != old:
                yield with_message(exchange, half, body=new)


def other_kinds_of_body(exchange: Exchange) -> Iterator[Exchange]:
    """Put in bodies of other kinds, and empty ones."""
    for half in HALVES:
        record: Record | None = getattr(exchange, half)
        old = None if record is None else record.message.body
        for new in (None, b"", "", envelope(), envelope().decode(), Properties(), Properties([typed("a", "b")]), ()):
            if record is not None and (type(new), not new) != (type(old), not old):
                yield with_message(exchange, half, body=new)


def presence_of_reply_to(exchange: Exchange) -> Iterator[Exchange]:
    """Set JMSReplyTo where there is none, and take it away where there is one."""
    for half in HALVES:
        record: Record | None = getattr(exchange, half)
        if record is not None and record.message.reply_to is not None:
            yield with_message(exchange, half, reply_to=None)
        elif record is not None:
            yield from (with_message(exchange, half, reply_to=each) for each in PLACES)


def other_reply_to(*patterns: Pattern) -> Change:
    """Set JMSReplyTo of the first message otherwise where there is one, in exchanges of these patterns."""

    def change(exchange: Exchange) -> Iterator[Exchange]:
        half = "response" if exchange.request is None else "request"
        old = getattr(exchange, half).message.reply_to
        if old is not None and exchange.pattern in patterns:
            yield from (with_message(exchange, half, reply_to=each) for each in PLACES if each != old)

    return change


def first_destination(exchange: Exchange) -> Iterator[Exchange]:
    """Set JMSDestination of the first message otherwise."""
    half = "response" if exchange.request is None else "request"
    yield from (with_message(exchange, half, destination=each) for each in (None, *PLACES))


def correlations(exchange: Exchange) -> Iterator[Exchange]:
    """Let the response repeat another id, and give the request other ids."""
    request, response = exchange.request, exchange.response
    ids = () if request is None else (request.message.message_id, request.message.correlation_id)
    if response is not None:
        for each in {*IDS, *ids} - {response.message.correlation_id}:
            yield with_message(exchange, "response", correlation_id=each)
    yield from of_message("message_id", *IDS, halves=("request",))(exchange)
    yield from of_message("correlation_id", *IDS, halves=("request",))(exchange)


def times_of_one(exchange: Exchange) -> Iterator[Exchange]:
    """Move both times of one message of a pair."""
    for half in HALVES if len(exchange.messages) == 2 else ():
        message: Message = getattr(exchange, half).message
        for by in (-1, 1, 10_000_000):
            if message.expiration and message.timestamp and message.expiration + by and message.timestamp + by:
                times = {"expiration": message.expiration + by, "timestamp": message.timestamp + by}
                yield with_message(exchange, half, **times)


PAIRED: Final = Pattern.REQUEST_RESPONSE
ALONE: Final = tuple(each for each in Pattern if each is not PAIRED)
URI_FACTS: Final = frozenset({Fact.PROPERTIES, Fact.JNDI, Fact.REPEATED_URI})
PLACE_FACTS: Final = frozenset({Fact.REPLY_TO, Fact.REPLY_PLACE})

MUTATIONS: Final[Mapping[Fact, tuple[Mutation, ...]]] = {
    Fact.PROPERTIES: (Mutation(of_properties(VALUES, "request", "response")),),
    Fact.JNDI: (Mutation(of_properties(URIS, "request"), URI_FACTS),),
    Fact.REPEATED_URI: (Mutation(of_properties(URIS, "response"), URI_FACTS - {Fact.JNDI}),),
    Fact.MESSAGE_TYPE: (Mutation(of_message("message_type", *MessageType)),),
    Fact.BODY: (Mutation(other_bodies),),
    Fact.BODY_KIND: (Mutation(other_kinds_of_body, frozenset({Fact.BODY})),),
    Fact.TRUNCATED: (Mutation(of_record("truncated", True, False)),),
    Fact.UNTYPED: (Mutation(of_message("untyped", True, False)),),
    Fact.DIRECTION: (Mutation(of_record("direction", None, *Direction)),),
    Fact.ASKS: (Mutation(presence_of_reply_to, PLACE_FACTS),),
    Fact.REPLY_TO: (Mutation(other_reply_to(*ALONE)), Mutation(other_reply_to(PAIRED), PLACE_FACTS)),
    Fact.DELIVERY_MODE: (Mutation(of_message("delivery_mode", None, 1, 2, 3)),),
    Fact.PRIORITY: (Mutation(of_message("priority", None, 4, 9, 10)),),
    Fact.LIFETIME: (
        Mutation(of_message("timestamp", *TIMES)),
        Mutation(of_message("expiration", *TIMES), frozenset({Fact.EXPIRY})),
    ),
    Fact.EXPIRY: (Mutation(times_of_one),),
    Fact.DESTINATION: (Mutation(first_destination),),
    Fact.CORRELATION: (Mutation(correlations),),
    Fact.REPLY_PLACE: (Mutation(of_message("destination", None, *PLACES, halves=("response",))),),
}
"""For each fact, changes of it alone."""


NOTHING: Final = frozenset[Fact]()


def without_meaning(exchange: Exchange) -> Iterator[Exchange]:
    """Change what is no fact: of a record, of a message, and the properties that are not of the binding."""
    for half in HALVES if len(exchange.messages) == 2 else ():
        record: Record = getattr(exchange, half)
        yield with_record(exchange, half, time=record.time + timedelta(days=1), node=Node.TAP, sha256="0" * 64)
        yield with_record(exchange, half, meta={"a": "b"}, extra={"jms": {"c": "d"}})
        yield with_message(exchange, half, type="x", redelivered=not record.message.redelivered)
        yield with_message(exchange, half, properties=with_property(record.message.properties, typed("trace", "x")))
    if exchange.response is not None:
        yield from of_message("message_id", *IDS, halves=("response",))(exchange)
        yield replace(exchange, id="x", records=7, misdirected=not exchange.misdirected)


def test_the_table_of_changes_is_whole() -> None:
    """It has each fact, and each property of the binding, under any name."""
    assert MUTATIONS.keys() == set(Fact)
    assert VALUES.keys() | URIS.keys() == PROPERTY_NAMES


# What is changed alone


GIVEN: Final = [
    given_properties(given)
    for name, (one, other) in {
        "deliveryMode": ("PERSISTENT", "NON_PERSISTENT"),
        "timeToLive": (5000, 0),
        "priority": (4, 9),
        "replyToName": ("r", "q"),
        "targetService": ("t", "s"),
    }.items()
    for given in (
        {"properties": {name: one}, "uri": f"jms:queue:q?{name}={other}"},
        {"wsdl": {"port": {name: one}, "binding": {name: other}}},
        {"uri": f"jms:queue:q?{name}={one}", "wsdl": {"service": {name: other}}},
        {"uri": f"jms:queue:q?{name}={one}"},
    )
    if "wsdl" not in given or name != "targetService"  # which no WSDL sets
]
"""What senders of other exchanges are known to have set."""


@cache
def vectors() -> tuple[Judged, ...]:
    """Judge all vectors, each once, and some of them as those of a stack."""
    found: dict[str, tuple[Exchange, Setting]] = {}
    dialects = cycle(each for name, each in PROFILES.items() if name not in EDITIONS)
    for number, (case, profile) in enumerate(CASES):
        exchange, setting = exchange_of(case), setting_of(case, profile)
        settings = [setting] if number % 5 else [setting, replace(setting, profile=next(dialects))]
        found.update((repr((exchange, each)), (exchange, each)) for each in settings)
    return tuple(judged(*each) for each in found.values())


@cache
def others() -> tuple[Judged, ...]:
    """Judge exchanges with other bodies, of other types, and of senders of whom more is known."""
    found: list[tuple[Exchange, Setting]] = []
    texts = paired([members_of({"base": "request"}), members_of({"base": "response"})])
    octets = with_both(texts, *[{"body": envelope(), "message_type": MessageType.BYTES}] * 2)
    for edition in EDITIONS.values():
        setting = Setting(profile=edition)
        found += [(texts, replace(setting, properties=known)) for known in GIVEN]
        found += [(each, setting) for one in (texts, octets) for each in other_bodies(one)]
        for each, kind in product(other_kinds_of_body(texts), (MessageType.TEXT, MessageType.MAP, MessageType.UNKNOWN)):
            found.append((with_both(each, *[{"message_type": kind}] * 2), setting))
    return tuple(judged(*each) for each in found)


def changes_of(
    fact: Fact, exchange: Exchange, start: int = 0, step: int = 1
) -> Iterator[tuple[Exchange, frozenset[Fact]]]:
    """Yield every `step`th of the changes of a fact, with all facts that each touches."""
    for mutation in MUTATIONS[fact]:
        for each in islice(mutation.change(exchange), start % step, None, step):
            yield each, mutation.also | {fact}


def assert_same(before: Judged, exchange: Exchange, touched: frozenset[Fact]) -> None:
    """Assert that nothing ends otherwise that reads nothing of what was touched."""
    for step, found in wrong_steps(before, exchange, touched):
        pytest.fail(f"{step.what} of the {step.view} reads one of {sorted(touched)}: {step.found!r}, then {found!r}")


@pytest.mark.parametrize("some", [32, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fact", Fact, ids=lambda fact: fact.name)
def test_a_fact_that_is_not_read_changes_nothing_in_vectors(fact: Fact, some: int) -> None:
    """A row that does not read it applies as before, and ends as before, for the same reason.

    Of `some` changes one is made in each vector; it is another one in the next vector.
    """
    for known, step in ((vectors(), some), (others(), 3)):
        for number, before in enumerate(known):
            for exchange, touched in changes_of(fact, before.exchange, number, step):
                assert_same(before, exchange, touched)


READ_BY_ROWS: Final = [fact for fact in Fact if any(fact in row.reads for row in JUDGED)]


@pytest.mark.parametrize("fact", READ_BY_ROWS, ids=lambda fact: fact.name)
def test_a_fact_that_is_read_may_change_something(fact: Fact) -> None:
    """The changes of each fact show in a row that reads it; so the other tests change what they say."""
    for before in vectors():
        steps = [each for each in before.steps if fact in each.reads]
        for exchange, _ in changes_of(fact, before.exchange) if steps else ():
            cases = cases_of(exchange, before.setting, before.blames)
            if any(step.take(cases[step.view]) != step.found for step in steps if step.what.endswith("outcome")):
                return
    pytest.fail(f"no change of {fact.name} shows")


@st.composite
def exchanges(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Exchange:
    """Draw an exchange of messages that nobody would send; the response may fit the request."""
    asked, answered = draw(messages()), draw(messages())
    if draw(st.booleans()):
        fitting = asked.properties.lookup(names.REQUEST_URI)
        answered = replace(
            answered,
            correlation_id=draw(st.sampled_from([asked.correlation_id, asked.message_id])),
            destination=asked.reply_to,
            properties=answered.properties.merged([fitting] if fitting is not None else []),
        )
    one, other = (
        Record(
            message=each, time=EPOCH, direction=draw(st.sampled_from([None, *Direction])), truncated=draw(st.booleans())
        )
        for each in (asked, answered)
    )
    pattern = draw(st.sampled_from([PAIRED, PAIRED, PAIRED, Pattern.ONE_WAY, Pattern.RESPONSE_ONLY]))
    if pattern is PAIRED:
        return Exchange(id="", pattern=pattern, request=one, response=other)
    is_sent = pattern is Pattern.ONE_WAY
    return Exchange(id="", pattern=pattern, request=one if is_sent else None, response=None if is_sent else one)


KNOWN: Final = [each for each in (setting_of(*each) for each in CASES) if each.properties is not None]
NAMES: Final = sorted(PROFILES)
SETTINGS: Final = st.builds(
    lambda number, profile, strict: replace([Setting(), *KNOWN][number], profile=PROFILES[profile], strict=strict),
    st.just(0) | st.integers(0, len(KNOWN)),
    st.sampled_from(NAMES),
    st.booleans(),
)


@given(exchanges() | st.sampled_from(CASES).map(lambda each: exchange_of(each[0])), SETTINGS, st.sampled_from(Fact))
def test_a_fact_that_is_not_read_changes_nothing(exchange: Exchange, setting: Setting, fact: Fact) -> None:
    """Neither in messages that nobody would send, nor under the profile of any stack."""
    before = judged(exchange, setting)
    for each, touched in changes_of(fact, exchange):
        assert_same(before, each, touched)


@given(exchanges(), SETTINGS)
def test_what_is_no_fact_changes_nothing(exchange: Exchange, setting: Setting) -> None:
    """The time of capture, the node, the ids of a response and the properties of others mean nothing to rules."""
    before = judged(exchange, setting)
    for each in without_meaning(exchange):
        assert_same(before, each, NOTHING)


# What is changed without a change of the fact


def ending(found: object) -> object:
    """Return how a step ended, without the reason."""
    if isinstance(found, tuple):
        return found[0]
    return found if isinstance(found, bool) else found is None


def assert_alike(before: Judged, exchange: Exchange, touched: frozenset[Fact]) -> None:
    """Assert that nothing ends otherwise that reads nothing of what was touched; it may do so for another reason."""
    for step, found in wrong_steps(before, exchange, touched):
        if ending(found) != ending(step.found):
            pytest.fail(f"{step.what} of the {step.view} tells apart what is alike: {step.found!r}, then {found!r}")


def with_both(exchange: Exchange, request: dict[str, Any], response: dict[str, Any]) -> Exchange:
    """Change both messages, as far as they are there."""
    for half, values in zip(HALVES, (request, response), strict=True):
        if getattr(exchange, half) is not None:
            exchange = with_message(exchange, half, **values)
    return exchange


def values_of(exchange: Exchange, name: str) -> tuple[Any, Any]:
    """Return a header of the request and of the response."""
    request, response = (None if each is None else each.message for each in (exchange.request, exchange.response))
    return getattr(request, name, None), getattr(response, name, None)


def other_ids(exchange: Exchange) -> Exchange:
    """Call all ids otherwise, so that the response still repeats the same one."""
    ids = [*values_of(exchange, "correlation_id"), values_of(exchange, "message_id")[0]]
    asked, answered, own = (f"x{each}" if each else each for each in ids)
    return with_both(exchange, {"correlation_id": asked, "message_id": own}, {"correlation_id": answered})


def other_places(exchange: Exchange) -> Exchange:
    """Give JMSReplyTo and JMSDestination of the response other names, so that they still are equal or not."""
    wanted, seen = (
        each if each is None else replace(each, name=None if each.name is None else f"x{each.name}", address="/x")
        for each in (values_of(exchange, "reply_to")[0], values_of(exchange, "destination")[1])
    )
    return with_both(exchange, {"reply_to": wanted}, {"destination": seen})


def later(exchange: Exchange) -> Exchange:
    """Let all happen three hours later; a time that is not set, or never, stays so."""
    moved: list[dict[str, Any]] = [{}, {}]
    for name in ("expiration", "timestamp"):
        for values, time in zip(moved, values_of(exchange, name), strict=True):
            values[name] = time + 10_800_000 if time else time
    return with_both(exchange, *moved)


def other_uris(exchange: Exchange) -> Exchange:
    """Set another requestURI in both messages, so that they still are equal or not."""
    found = []
    for each in exchange.request, exchange.response:
        old = Properties() if each is None else each.message.properties
        text = old.text(names.REQUEST_URI)
        found.append({"properties": with_property(old, typed(names.REQUEST_URI, f"{text}x")) if text else old})
    return with_both(exchange, *found)


ALIKE: Final[Mapping[str, tuple[Callable[[Exchange], Exchange], frozenset[Fact]]]] = {
    "other ids": (other_ids, NOTHING),
    "other places": (other_places, frozenset({Fact.REPLY_TO})),
    "later": (later, NOTHING),
    "other URIs": (other_uris, frozenset({Fact.PROPERTIES, Fact.JNDI})),
}
"""Changes of what facts are made of, by which the facts stay as they are, but for those that are named."""


@pytest.mark.parametrize("name", ALIKE)
def test_vectors_that_are_alike_end_alike(name: str) -> None:
    """Ids, places, times and URIs count only as far as the facts say."""
    change, touched = ALIKE[name]
    for before in (*vectors(), *others()):
        assert_alike(before, change(before.exchange), touched)


@given(exchanges(), SETTINGS, st.sampled_from(sorted(ALIKE)))
def test_exchanges_that_are_alike_end_alike(exchange: Exchange, setting: Setting, name: str) -> None:
    """Also those of messages that nobody would send."""
    change, touched = ALIKE[name]
    times = [each for header in ("expiration", "timestamp") for each in values_of(exchange, header)]
    assume(all(each is None or each >= 0 for each in times))  # none before 1970
    assert_alike(judged(exchange, setting), change(exchange), touched)


LIFE_TIMES: Final = (None, 0, 1, 5, 1999, 5000, 1_767_268_800_000, 1_767_268_805_000)


@pytest.mark.parametrize("given", [{}, {"properties": {"timeToLive": 5}}, {"uri": "jms:queue:q?timeToLive=5000"}])
@pytest.mark.parametrize("parameters", ["", "?timeToLive=0", "?timeToLive=1&timeToLive=5", "?timeToLive=5000"])
def test_a_lifetime_is_a_difference(parameters: str, given: dict[str, Any]) -> None:
    """Messages that are sent at different times end alike if they live equally long."""
    setting = Setting(properties=given_properties(given) if given else None)
    uri = properties({names.REQUEST_URI: f"jms:queue:q{parameters}"})
    text = envelope().decode()
    for expiration, timestamp in product(LIFE_TIMES, LIFE_TIMES):
        message = Message(
            message_type=MessageType.TEXT, body=text, properties=uri, expiration=expiration, timestamp=timestamp
        )
        sent = Exchange(id="", pattern=Pattern.ONE_WAY, request=Record(message=message, time=EPOCH))
        assert_alike(judged(sent, setting), later(sent), NOTHING)


@given(exchanges(), st.sampled_from(NAMES), st.integers(1, 1 << 40))
def test_what_no_sender_stated_is_not_compared(exchange: Exchange, profile: str, time: int) -> None:
    """Times and the name of JMSReplyTo count only where they may be compared with what the sender is known to have set.

    That is from the setting, or from parameters of the requestURI.
    """
    before = judged(exchange, Setting(profile=PROFILES[profile]))
    for carrier, reading in readings(exchange, before.setting).items():
        half = "response" if carrier is Carrier.RESPONSE else "request"
        message, uri = reading.message, reading.request_uri
        if uri is not None and uri.parameters:
            continue
        times = {name: time for name in ("expiration", "timestamp") if getattr(message, name)}
        assert_alike(before, with_message(exchange, half, **times), frozenset({Fact.EXPIRY}))
        if message.reply_to is not None and message.reply_to.name is not None:
            other = replace(message.reply_to, name="other")
            assert_alike(before, with_message(exchange, half, reply_to=other), frozenset({Fact.REPLY_PLACE}))
