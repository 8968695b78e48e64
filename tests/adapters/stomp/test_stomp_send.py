"""SEND frames of messages that resemble each other carry what those carry that are encoded one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stomp_kit import message_to

from brokers import (
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    queue,
)
from brokers.stomp.codec import LARGE_OCTETS, Cutter, Frame, Frames, WholeFrame, joined, pack_apart, read
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, ARTEMIS, StompDialect
from brokers.stomp.frames import to_frame
from brokers.stomp.send import MAX_HEAD_CHARACTERS, MAX_HEADS, SendFrames

DIALECTS = [replace(ACTIVEMQ_CLASSIC, version="1.0"), ACTIVEMQ_CLASSIC, ARTEMIS]
PLACES = [queue("q"), queue("r:s"), Destination(DestinationKind.TEMPORARY_QUEUE, None, address="/temp-queue/q")]
SHARED = [
    Property("a", PropertyType.STRING, "1"),
    Property("a", PropertyType.INT, 1),
    Property("a", PropertyType.BOOLEAN, True),
    Property("b%s", PropertyType.STRING, "100%"),
    Property("c:d", PropertyType.STRING, "e\\:f"),
    Property("n", PropertyType.STRING, None),
]
TEXTS = st.text("ab%\\:é ", max_size=4)
PROPERTIES = st.sampled_from(SHARED) | st.builds(
    lambda name, text: Property(name, PropertyType.STRING, text), st.sampled_from(["a", "b%s", "x"]), st.none() | TEXTS
)
MESSAGES = st.builds(
    lambda content, **headers: Message(message_type=content[0], body=content[1], **headers),
    st.one_of(
        st.tuples(st.just(MessageType.BYTES), st.binary(max_size=4)),
        st.tuples(st.just(MessageType.BYTES), st.just(b"x" * LARGE_OCTETS)),
        st.tuples(st.just(MessageType.TEXT), TEXTS),
    ),
    properties=st.lists(PROPERTIES, max_size=3).map(Properties),
    destination=st.sampled_from(PLACES),
    reply_to=st.none() | st.sampled_from(PLACES),
    correlation_id=st.none() | TEXTS,
    type=st.none() | st.sampled_from(["t", "u"]),
    delivery_mode=st.none() | st.sampled_from(DeliveryMode),
    priority=st.none() | st.integers(0, 9),
    expiration=st.none() | st.integers(0, 2**63 - 1),
)


def read_back(frames: Frames) -> Frame | None:
    """Return what a receiver reads."""
    data = joined([frames]) if isinstance(frames, bytes) else b"".join(frames)
    assert isinstance(data, bytes)
    [frame] = Cutter().cut(data)
    assert isinstance(frame, WholeFrame)
    return read(frame)


def one_by_one(message: Message, dialect: StompDialect, more: dict[str, str]) -> Frames:
    """Encode a message as if it were the only one."""
    headers, body = to_frame(message, dialect)
    return pack_apart("SEND", headers | more, body, dialect.version)


def alike(seed: Message, number: int) -> Message:
    """Return a message that shares with another what messages of one program share."""
    own = Property("soapjms_retry_lock", PropertyType.STRING, f"lock:{number}")
    return replace(seed, properties=Properties((own, *seed.properties)), correlation_id=f"ID:{number}")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.version)
@given(data=st.data(), seeds=st.lists(MESSAGES, min_size=1, max_size=3), more=st.booleans())
def test_as_one_by_one(dialect: StompDialect, data: st.DataObject, seeds: list[Message], more: bool) -> None:
    """Whichever messages came before, a frame has the headers and the body that it would have alone."""
    frames = SendFrames(dialect)
    variants = [*seeds, *(alike(seed, number) for seed in seeds for number in range(3))]
    for message in data.draw(st.lists(st.sampled_from(variants), min_size=4, max_size=12)):
        names = {"transaction": "t-1", "receipt": "r-1"} if more else {}
        assert read_back(frames.encode(message, **names)) == read_back(one_by_one(message, dialect, names))


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=3, max_size=6))
@example(["\r\n", "a:b", "\\c"] * 2)
def test_values_that_differ_are_escaped(texts: list[str]) -> None:
    """Correlation ids and properties, from the third message on too."""
    frames = SendFrames(ACTIVEMQ_CLASSIC)
    for text in texts:
        made = message_to(
            queue("q"), correlation_id=text, properties=Properties((Property("p", PropertyType.STRING, text),))
        )
        assert read_back(frames.encode(made)) == read_back(one_by_one(made, ACTIVEMQ_CLASSIC, {}))


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
@pytest.mark.parametrize("before", range(4))
def test_what_no_frame_can_carry_is_refused(bad: str, before: int) -> None:
    """However many messages like it went before, and each time."""
    frames = SendFrames(ACTIVEMQ_CLASSIC)
    for number in range(before):
        frames.encode(alike(message_to(queue("q")), number))
    for wrong in (
        replace(alike(message_to(queue("q")), 9), correlation_id=bad),
        message_to(queue("q"), properties=Properties((Property(bad, PropertyType.STRING, f"{before}"),))),
        message_to(queue("q"), properties=Properties((Property("soapjms_retry_lock", PropertyType.STRING, bad),))),
    ):
        for _ in range(3):
            again = replace(wrong, properties=Properties(Property(*each) for each in wrong.properties))
            with pytest.raises(ValueError, match=r"NUL|surrogates"):
                frames.encode(again)
    with pytest.raises(ValueError, match="'priority'"):
        frames.encode(message_to(queue("q"), properties=Properties((Property("priority", PropertyType.INT, 5),))))
    with pytest.raises(ValueError, match="NoneType"):
        frames.encode(replace(alike(message_to(queue("q")), 9), body=None))


def test_what_is_shared_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third message of a destination on, nothing goes the whole way; what is large or new does."""
    frames, seed = SendFrames(ACTIVEMQ_CLASSIC), message_to(queue("q"), properties=Properties(SHARED[3:]))
    for number in range(2):
        frames.encode(alike(seed, number))
    whole = list[Message]()

    def note(message: Message, dialect: StompDialect) -> tuple[dict[str, str], bytes]:
        whole.append(message)
        return to_frame(message, dialect)

    monkeypatch.setattr("brokers.stomp.send.to_frame", note)
    for number in range(5):
        frames.encode(alike(seed, number), f"receipt-{number}")
    assert not whole
    large = Property("large", PropertyType.STRING, "x" * MAX_HEAD_CHARACTERS)
    for number in range(3):
        frames.encode(alike(replace(seed, properties=Properties((large,))), number))
    assert len(whole) == 3, "it is not kept"


def test_heads_are_bounded() -> None:
    """Peers choose the destinations of answers, of which there may be any number."""
    frames = SendFrames(ACTIVEMQ_CLASSIC)
    for number in range(3 * MAX_HEADS):
        frames.encode(message_to(queue(f"q{number}")))
        assert len(frames._heads) <= MAX_HEADS
