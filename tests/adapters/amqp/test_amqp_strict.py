"""What no client may do, octet by octet, and what our listener answers: the error of the text, in whole frames.

Spec: AMQP 1.0 part 1, 1.3; part 2, 2.3 to 2.7.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from amqp_broken import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER
from amqp_kit import text
from amqp_raw import frame
from amqp_wire import BEGUN, OPENED, STATE, Frame, Wire, flow, receiver, sender, source, target, transfer
from broker_contract_kit import Inbox
from calling_kit import eventually
from proton import Described, symbol, uint, ulong

import brokers
from brokers import queue, topic
from brokers.amqp.listener import Listener
from brokers.amqp.listener.receive import CREDIT_MESSAGES, CREDIT_RENEWAL_MESSAGES
from brokers.amqp.listener.send import OutgoingLink
from brokers.embedded import Broker


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(Broker(), port=0) as listening:
        yield listening


@pytest.fixture
def wire(listener: Listener) -> Iterator[Wire]:
    with Wire(listener.port) as connected:
        yield connected


DECODE, INVALID, NOT_ALLOWED = "amqp:decode-error", "amqp:invalid-field", "amqp:not-allowed"


def described(descriptor: bytes, fields: bytes = b"\x40\x43\x52\x64\x52\x64") -> bytes:
    """Write a frame with any descriptor; its fields are those of a begin, unless others are given."""
    body = b"\0" + descriptor + b"\xc0" + bytes([len(fields) + 1, 4]) + fields
    return (8 + len(body)).to_bytes(4, "big") + b"\2\0\0\0" + body


WRONG: dict[str, tuple[list[bytes], str, str]] = {
    "open without a container": ([frame(OPEN)], DECODE, "container-id of open is missing"),
    "open with a null container": ([frame(OPEN, None, "host")], DECODE, "container-id of open is missing"),
    "open with a container that is no string": (
        [frame(OPEN, uint(5))],
        DECODE,
        "container-id of open is of another type",
    ),
    "open with a container that is no UTF-8": (
        [b"\0\0\0\x11\2\0\0\0\0\x53\x10\xc0\x04\1\xa1\1\xff"],
        DECODE,
        "a value cannot be read: 'utf-8' codec can't decode",
    ),
    "open with a number for what is desired": (
        [frame(OPEN, "me", *[None] * 7, uint(5))],
        DECODE,
        "a value cannot be read: 'uint' object is not iterable",
    ),
    "small frames": ([frame(OPEN, "me", None, uint(511))], INVALID, "max-frame-size is at least 512, not 511"),
    "open elsewhere": ([frame(OPEN, "me", channel=1)], NOT_ALLOWED, "open is sent on channel 0, not on 1"),
    "open twice": ([OPENED, OPENED], "amqp:illegal-state", "the connection is open already"),
    "begin before open": ([BEGUN], "amqp:illegal-state", "a connection begins with open, not with begin"),
    "an empty begin": ([OPENED, frame(BEGIN)], DECODE, "next-outgoing-id of begin is missing"),
    "begin without a window": ([OPENED, frame(BEGIN, None, uint(0))], DECODE, "incoming-window of begin is missing"),
    "begin twice": ([OPENED, BEGUN, BEGUN], NOT_ALLOWED, "channel 0 has a session already"),
    "no session": ([OPENED, flow(channel=5)], NOT_ALLOWED, "channel 5 has no session"),
    "an end of no session": ([OPENED, frame(END)], NOT_ALLOWED, "channel 0 has no session"),
    "an empty attach": ([OPENED, BEGUN, frame(ATTACH)], DECODE, "name of attach is missing"),
    "attach without a handle": ([OPENED, BEGUN, frame(ATTACH, "l")], DECODE, "handle of attach is missing"),
    "attach without a role": ([OPENED, BEGUN, frame(ATTACH, "l", uint(0))], DECODE, "role of attach is missing"),
    "attach with a role of text": (
        [OPENED, BEGUN, frame(ATTACH, "l", uint(0), "sender")],
        DECODE,
        "role of attach is of another type",
    ),
    "an empty flow": ([OPENED, BEGUN, receiver(), frame(FLOW)], DECODE, "incoming-window of flow is missing"),
    "an empty transfer": ([OPENED, BEGUN, sender(), frame(TRANSFER)], DECODE, "handle of transfer is missing"),
    "transfer without a tag": (
        [OPENED, BEGUN, sender(), transfer(uint(0), uint(0))],
        INVALID,
        "delivery-tag of the first transfer of a message is missing",
    ),
    "an empty disposition": ([OPENED, BEGUN, frame(DISPOSITION)], DECODE, "role of disposition is missing"),
    "an empty detach": ([OPENED, BEGUN, sender(), frame(DETACH)], DECODE, "handle of detach is missing"),
    "no performative": ([OPENED, frame(0x55, "x")], DECODE, "a frame holds no performative"),
    "a list that ends within its fields": (
        [OPENED, BEGUN, b"\0\0\0\x13\2\0\0\0\0\x53\x12\xc0\x02\x03\xa1\x01l\x43\x42"],
        DECODE,
        "a frame holds no performative",
    ),
    "a list that ends behind its frame": (
        [OPENED, BEGUN, b"\0\0\0\x13\2\0\0\0\0\x53\x12\xc0\x09\x03\xa1\x01l\x43\x42"],
        DECODE,
        "a frame holds no performative",
    ),
    "a list that is cut off": (
        [OPENED, b"\0\0\0\x0e\2\0\0\0\0\x53\x11\xc0\xff\x04"],
        DECODE,
        "a frame holds no performative",
    ),
    "no list": ([OPENED, b"\0\0\0\x0c\2\0\0\0\0\x53\x11\x40"], DECODE, "a frame holds no performative"),
    "a descriptor without end": ([OPENED, b"\0\0\1\0\2\0\0\0" + b"\0" * 248], DECODE, "a frame holds no performative"),
    **{
        f"a descriptor that is {what}": ([OPENED, described(octets)], DECODE, "a frame holds no performative")
        for what, octets in {
            "infinite": b"\x72\x7f\x80\0\0",
            "not a number": b"\x72\x7f\xc0\0\0",
            "a float": b"\x72\x41\x88\0\0",
            "a character": b"\x73\0\0\0\x11",
            "no character": b"\x73\xff\xff\xff\xff",
            "a uint": b"\x52\x11",
            "a long": b"\x55\x11",
            "a timestamp": b"\x83\0\0\0\0\0\0\0\x11",
            "a UUID": b"\x98" + bytes(15) + b"\x11",
            "binary": b"\xa0\x0217",
            "a string": b"\xa1\x0famqp:begin:list",
            "another symbol": b"\xa3\x03x:y",
            "a symbol beyond ASCII": b"\xa3\x02\xff\xff",
            "null": b"\x40",
            "zero": b"\x44",
            "a list": b"\x45",
            "too large": b"\x80\0\0\0\0\0\0\1\x11",
            "described itself": b"\0\x53\x11\x53\x11",
        }.items()
    },
    "no descriptor": ([OPENED, b"\0\0\0\x0d\2\0\0\0\1\x80\0\0\0"], DECODE, "a frame holds no performative"),
    "a frame of 7 octets": (
        [OPENED, b"\0\0\0\7\2\0\0"],
        "amqp:connection:framing-error",
        "a frame has 8 to 65536 octets",
    ),
    "a large frame": ([OPENED, b"\0\2\0\0\2\0\0\0"], "amqp:connection:framing-error", "a frame has 8 to 65536 octets"),
    "a short header": ([OPENED, b"\0\0\0\x08\1\0\0\0"], "amqp:connection:framing-error", "its header 8 or more"),
    "a long header": ([OPENED, b"\0\0\0\x08\3\0\0\0"], "amqp:connection:framing-error", "its header 8 or more"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("way", ["at once", "one by one", "octet by octet"])
def test_what_ends_the_connection(what: str, way: str, wire: Wire) -> None:
    """The error comes in a close; before it our open, which has what an open must have, and nothing comes after it."""
    frames, condition, why = WRONG[what]
    pieces = [b"".join(frames)] if way == "at once" else frames
    for piece in [bytes([each]) for each in b"".join(frames)] if way == "octet by octet" else pieces:
        wire.write(piece)
    answer = wire.rest()
    assert answer[0].code == OPEN
    assert answer[0].fields[0]
    assert [each.code for each in answer].count(OPEN) == 1
    closed = answer[-1]
    assert closed.code == CLOSE
    assert closed.error[0] == condition
    assert why in closed.error[1]


@pytest.mark.parametrize(
    "descriptor",
    [
        b"\x53\x11",
        b"\x80\0\0\0\0\0\0\0\x11",
        b"\xa3\x0famqp:begin:list",
        b"\xb3\0\0\0\x0famqp:begin:list",
    ],
)
def test_a_performative_is_known_by_its_number_or_symbol(descriptor: bytes, wire: Wire) -> None:
    """In any of their encodings; proton ignored the symbols, so that the client waited in vain. Spec: 1.3, 2.7."""
    wire.write(OPENED, described(descriptor))
    assert wire.until(BEGIN).channel == 0
    wire.write(sender("s"))
    assert wire.until(ATTACH).fields[0] == "s"


UNATTACHED = {
    "flow": frame(FLOW, *STATE, uint(9)),
    "transfer": transfer(uint(9), uint(0), b"t"),
    "detach": frame(DETACH, uint(9), True),
}


@pytest.mark.parametrize("what", UNATTACHED)
def test_an_unknown_handle(what: str, wire: Wire) -> None:
    """It ends the session, of which nothing more is taken; the connection goes on, and its channel too. Spec: 2.5.6."""
    wire.write(OPENED, BEGUN, sender(), UNATTACHED[what])
    assert wire.until(END).error == ("amqp:session:unattached-handle", "handle 9 is not attached")
    wire.write(flow(None, None, None, None, None, True), receiver("later", 3), frame(END), BEGUN, sender("new"))
    seen = [wire.until(ATTACH)]
    assert [each.fields[0] for each in seen] == ["new"]


@pytest.mark.parametrize("more", [False, True])
def test_a_message_on_a_link_that_receives(wire: Wire, more: bool) -> None:
    """It would be kept for ever, as nobody reads it; so it ends its session."""
    wire.write(OPENED, BEGUN, receiver())
    wire.until(ATTACH)
    wire.write(transfer(uint(0), uint(0), b"t", uint(0), False, more))
    assert wire.until(END).error == (NOT_ALLOWED, "handle 0 is that of a link on which the client receives")


def test_a_handle_that_is_in_use(wire: Wire) -> None:
    """It ends the session likewise. Spec: 2.7.3."""
    wire.write(OPENED, BEGUN, sender("one"), sender("two"))
    assert wire.until(END).error == ("amqp:session:handle-in-use", "handle 0 is attached already")


def test_the_answer_to_a_sender_has_a_source(wire: Wire) -> None:
    """Whether the client says one or not, there is a source and a target."""
    wire.write(OPENED, BEGUN, sender("one", 0), sender("two", 1, from_=source()))
    for _ in range(2):
        fields = wire.until(ATTACH).fields
        assert [each.descriptor for each in fields[5:7]] == [0x28, 0x29]


def test_what_is_asked_for_with_echo(wire: Wire) -> None:
    """The state of a session, of a link that sends, and of one that receives, comes at once. Spec: 2.7.4."""
    wire.write(OPENED, BEGUN, sender("s", 0), receiver("r", 1))
    assert wire.until(FLOW).fields[4:7] == [0, 0, CREDIT_MESSAGES]
    wire.write(flow(None, None, None, None, None, True))
    assert wire.until(FLOW).fields == [0, 2**31 - 1, 0, 2**31 - 1]
    wire.write(transfer(uint(0), uint(0), b"t", uint(0), True))
    wire.write(flow(uint(1), uint(0), uint(1), None, None, True))
    sent, told = wire.until(TRANSFER), None
    while told is None or told.fields[5] == 0:  # the state before the message may be told, too
        wire.write(flow(uint(1), uint(0), uint(1), None, None, True))
        told = wire.until(FLOW)
    assert sent.fields[0] == told.fields[4] == 1
    assert told.fields[:7] == [1, 2**31 - 1, 1, 2**31 - 1, 1, 1, 0]
    assert told.fields[9:] in ([], [False])
    seen = set()
    for _ in range(2 * CREDIT_RENEWAL_MESSAGES):  # which does not make the credit grow for ever
        wire.write(flow(uint(0), uint(1), uint(0), None, None, True))
        answer = wire.until(FLOW)
        seen.add(int(answer.fields[6]))
        assert answer.fields[4:6] == [0, 1]
    assert max(seen) <= CREDIT_MESSAGES + CREDIT_RENEWAL_MESSAGES


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, 2**32 - 1])
def test_all_the_credit_that_there_is(wire: Wire, listener: Listener, credit: int) -> None:
    """A client that wants whatever comes gets it."""
    wire.write(OPENED, BEGUN, receiver(), flow(uint(0), uint(0), uint(credit)))
    with listener.broker.connect() as connection:
        connection.send(text(queue("q"), "hi")).result()
        assert wire.until(TRANSFER).fields[0] == 0


def test_a_link_that_ends_while_its_session_takes_no_more_messages(wire: Wire, listener: Listener) -> None:
    """What had not gone out on it holds up no other link of the session once that takes messages again."""
    with listener.broker.connect() as connection:
        for body in ["x" * 100_000] * 20:
            connection.send(text(queue("q"), body)).result()
        wire.write(OPENED, frame(BEGIN, None, uint(0), uint(3), uint(100)), receiver())
        wire.write(frame(FLOW, uint(0), uint(3), uint(0), uint(100), uint(0), uint(0), uint(100)))
        for _ in range(3):
            wire.until(TRANSFER)
        wire.write(frame(DETACH, uint(0), True))
        wire.until(DETACH)
        wire.write(
            receiver("another", 1), frame(FLOW, uint(3), uint(1000), uint(0), uint(100), uint(1), uint(0), uint(5))
        )
        assert wire.until(TRANSFER).fields[:2] == [0, 3]


@pytest.mark.parametrize("limit", ["CREDIT_MESSAGES", "MAX_LEFT_MESSAGES"])
def test_what_comes_after_a_detach(wire: Wire, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left unsettled, which says that it was not accepted, unless that would be too many. Spec: AT-14."""
    monkeypatch.setattr(f"brokers.amqp.listener.receive.{limit}", 1)
    wire.write(OPENED, BEGUN, frame(ATTACH, "s", uint(0), False, None, None, source(), target(), None, None, uint(0)))
    wire.until(FLOW)
    nowhere = transfer(uint(0), uint(0), b"a", uint(0), True)
    wire.write(nowhere, *[transfer(uint(0), uint(number), b"b", uint(0)) for number in (1, 2)])
    found = list[Frame]()
    while not {DETACH, DISPOSITION} <= {each.code for each in found}:
        read = wire.read()
        assert read is not None
        found.append(read)
    (detached,) = [each for each in found if each.code == DETACH]
    (settled,) = [each for each in found if each.code == DISPOSITION]
    assert detached.error[0] == "amqp:precondition-failed"
    assert settled.fields[:2] == [True, 2]
    assert settled.fields[3:5] in ([True], [True, None])


def test_a_link_is_stolen_in_its_session(wire: Wire) -> None:
    """The second attach of a name succeeds and the first link ends; its own detach is the last of it. Spec: 2.6.1."""
    wire.write(OPENED, BEGUN, sender("one", 0))
    first = wire.until(FLOW).fields[4]
    wire.write(sender("one", 5))
    detached = wire.until(DETACH)
    assert (detached.fields[0], detached.error[0]) == (first, "amqp:link:stolen")
    assert wire.until(ATTACH).fields[0] == "one"
    wire.write(frame(DETACH, uint(0), True), transfer(uint(5), uint(0), b"t"))
    assert wire.until(DISPOSITION).fields[4].descriptor == 0x24
    wire.write(frame(DETACH, uint(5), True))
    assert wire.until(DETACH).fields[1:] in ([True], [True, None])


def test_a_link_is_stolen_in_another_session(wire: Wire) -> None:
    """Likewise; a link of the same name in the other direction is another one."""
    wire.write(OPENED, BEGUN, sender("one", 0), receiver("one", 1))
    wire.until(FLOW)
    wire.write(frame(BEGIN, None, uint(0), uint(100), uint(100), channel=7), sender("one", 0, channel=7))
    detached = wire.until(DETACH)
    assert (detached.channel, detached.fields[0], detached.error[0]) == (0, 0, "amqp:link:stolen")
    wire.write(frame(DETACH, uint(0), True), transfer(uint(0), uint(0), b"t"))  # not attached any more
    assert wire.until(END).error[0] == "amqp:session:unattached-handle"


def test_a_durable_subscription_is_stolen_by_another_connection(listener: Listener) -> None:
    """A client whose connection is broken has its subscription as soon as it comes again. Spec: 2.6.1."""
    with Wire(listener.port) as first, Wire(listener.port) as second:
        first.write(OPENED, BEGUN, MINE, flow(uint(0), uint(0), uint(10)))
        first.until(ATTACH)
        second.write(OPENED, BEGUN, MINE, flow(uint(0), uint(0), uint(10)))
        second.until(ATTACH)
        assert first.until(DETACH).error == ("amqp:link:stolen", "another link of its name was attached")
        first.write(frame(DETACH, uint(0), True))  # which does not end the subscription
        with listener.broker.connect() as connection:
            connection.send(text(topic("t")))
        assert second.until(TRANSFER)
    assert listener.broker.destinations() == [topic("t")]


MINE = frame(ATTACH, "mine", uint(0), True, None, None, source("topic://t", uint(2), symbol("never")), target())


def test_a_durable_subscription_is_stolen_at_another_listener(listener: Listener) -> None:
    """It has one consumer at all listeners of the broker; before, the second was told that it is in use."""
    with Listener(listener.broker, port=0) as beside, Wire(listener.port) as first, Wire(beside.port) as second:
        first.write(OPENED, BEGUN, MINE, flow(uint(0), uint(0), uint(10)))
        first.until(ATTACH)
        second.write(OPENED, BEGUN, MINE, flow(uint(0), uint(0), uint(10)))
        assert second.until(ATTACH).fields[5] is not None
        assert first.until(DETACH).error[0] == "amqp:link:stolen"
        with listener.broker.connect() as connection:
            connection.send(text(topic("t")))
        assert second.until(TRANSFER)


def held(listener: Listener) -> int:
    """Count what the clients of a listener were handed over and have not settled."""
    links = [link for guest in list(listener._guests) for link in list(guest._links.values())]
    return sum(len(link._held) for link in links if isinstance(link, OutgoingLink))


def test_what_was_never_written_is_stolen_uncounted(listener: Listener) -> None:
    """What the window of the first client kept back counts as no delivery when a second one takes its subscription."""
    arrived = Inbox()
    with (
        Wire(listener.port) as first,
        brokers.connect(f"{listener.url}?clientId=me") as second,
        listener.broker.connect() as connection,
    ):
        first.write(OPENED, frame(BEGIN, None, uint(0), uint(1), uint(100)), MINE)
        first.until(ATTACH)
        first.write(frame(FLOW, uint(0), uint(1), uint(0), uint(100), uint(0), uint(0), uint(10)))
        for body in ("seen", "kept back"):
            connection.send(text(topic("t"), body)).result(10)
        first.until(TRANSFER)
        first.write(frame(FLOW, uint(1), uint(0), uint(0), uint(100), uint(0), uint(1), uint(9), uint(0), False, True))
        first.until(FLOW)  # it has noted what it wrote before
        eventually(lambda: held(listener) == 2, "the broker has handed over both")
        second.consume(topic("t"), arrived, durable_name="mine")
        found = {each.message.body: each.delivery_count for each in (arrived.next(), arrived.next())}
    assert found == {"seen": 2, "kept back": 1}


def dynamic(expiry: str | None, name: str = "dynamic") -> bytes:
    """Attach to a node that is made for the link."""
    policy = {symbol("lifetime-policy"): Described(ulong(0x2B), [])}
    wanted = source(None, uint(0), None if expiry is None else symbol(expiry), uint(0), True, policy)
    return frame(ATTACH, name, uint(0), True, None, None, wanted, target())


@pytest.mark.parametrize(
    ("expiry", "outlives"), [(None, True), ("session-end", True), ("link-detach", False), ("never", True)]
)
def test_a_dynamic_node_lives_as_long_as_its_link(expiry: str | None, outlives: bool, listener: Listener) -> None:
    """It is there until the link is closed, or what was detached has expired; the answer says which. Spec: 3.5.10."""
    with Wire(listener.port) as wire:
        wire.write(OPENED, BEGUN, dynamic(expiry))
        made = wire.until(ATTACH).fields[5].value
        assert made[5] == {"lifetime-policy": Described(ulong(0x2B), [])}
        told = made[2] if len(made) > 2 and made[2] is not None else "session-end"
        assert told == {None: "session-end", "never": "connection-close"}.get(expiry, expiry)
        wire.write(frame(DETACH, uint(0)))
        wire.until(DETACH)
        assert len(listener.broker.destinations()) == outlives
        wire.write(dynamic(expiry))
        again = wire.until(ATTACH).fields[5].value
        assert (again[0] == made[0]) is outlives
        wire.write(frame(DETACH, uint(0), True))
        wire.until(DETACH)
        assert listener.broker.destinations() == []
        wire.write(dynamic(expiry), frame(DETACH, uint(0)), frame(END))
        wire.until(END)
        assert len(listener.broker.destinations()) == (expiry == "never")
    eventually(lambda: not listener.broker.destinations(), "it is gone with the connection")


LIFETIMES = {"none": None, "on close": 0x2B, "no links": 0x2C, "no messages": 0x2D, "no links or messages": 0x2E}


@pytest.mark.parametrize("asked", LIFETIMES)
@pytest.mark.parametrize("name", ["", "a", "dynamic|1", "temp-queue://x", "é" * 200])
@pytest.mark.parametrize("is_sender", [False, True])
def test_dynamic_nodes_of_every_name(is_sender: bool, name: str, asked: str, listener: Listener) -> None:
    """Whatever link and policy are called, for sending or receiving: shown is what counts, the end of the link."""
    code = LIFETIMES[asked]
    policy = None if code is None else {symbol("lifetime-policy"): Described(ulong(code), [])}
    wanted = (None, uint(0), None, uint(0), True, policy)
    ends = (source(), target(*wanted)) if is_sender else (source(*wanted), target())
    initial = uint(0) if is_sender else None
    with Wire(listener.port) as wire:
        wire.write(OPENED, BEGUN, frame(ATTACH, name, uint(0), not is_sender, None, None, *ends, None, None, initial))
        made = wire.until(ATTACH).fields[6 if is_sender else 5].value
        assert made[5] == {"lifetime-policy": Described(ulong(0x2B), [])}
        assert [each.name for each in listener.broker.destinations()] == [made[0].removeprefix("temp-queue://")]
        wire.write(frame(DETACH, uint(0), True))
        wire.until(DETACH)
        assert listener.broker.destinations() == []
