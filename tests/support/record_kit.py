"""Records of any kind, drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from replay_logs import at

from brokers.message import Destination, DestinationKind, Element, Message, MessageType, PropertyType, properties
from soapjms.protocol.record import Direction, Record, capture

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DESTINATIONS = st.none() | st.builds(Destination, st.sampled_from(list(DestinationKind)), st.none() | TEXTS)
LONGS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
BODIES = {
    MessageType.BYTES: st.none() | st.binary(max_size=9),
    MessageType.TEXT: st.none() | TEXTS,
    MessageType.OBJECT: st.binary(max_size=9),
    MessageType.MAP: st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.booleans(), max_size=3).map(properties),
    MessageType.STREAM: st.lists(TEXTS.map(lambda text: Element(PropertyType.STRING, text)), max_size=3).map(tuple),
    MessageType.MESSAGE: st.none(),
}


def draw_headers(
    draw: st.DrawFn, texts: st.SearchStrategy[str], destinations: st.SearchStrategy[Destination | None]
) -> dict[str, Any]:
    """Draw all of a message but its type, body and properties."""
    return {
        **{name: draw(destinations) for name in ("destination", "reply_to")},
        **{name: draw(st.none() | texts) for name in ("message_id", "correlation_id", "type")},
        **{name: draw(LONGS) for name in ("delivery_mode", "priority", "expiration", "timestamp")},
        "redelivered": draw(st.none() | st.booleans()),
        "untyped": draw(st.booleans()),
    }


@st.composite
def captured(draw: st.DrawFn) -> Record:
    """Draw a record."""
    kind = draw(st.sampled_from(list(BODIES)))
    values = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | TEXTS
    message = Message(
        message_type=kind,
        body=draw(BODIES[kind]),
        properties=properties(draw(st.dictionaries(TEXTS, values, max_size=4))),
        **draw_headers(draw, TEXTS, DESTINATIONS),
    )
    made = capture(message, at(draw(st.integers(0, 9))), draw(st.sampled_from([None, *Direction])))
    meta = draw(st.dictionaries(TEXTS, TEXTS | st.lists(st.integers(0, 9)), max_size=2))
    extra = draw(st.just({}) | st.just({"more": [1]}))
    return Record(**{**{name: getattr(made, name) for name in made.__slots__}, "meta": meta, "extra": extra})
