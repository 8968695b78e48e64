"""Messages, destinations and typed properties as values."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from brokers.errors import UsageError
from brokers.message import (
    Body,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    PropertyValue,
    as_text,
    body_problem,
    changed,
    field_problem,
    infer_type,
    is_finite,
    properties,
    queue,
    topic,
    typed,
)

RANGES = {
    PropertyType.BYTE: (-128, 127),
    PropertyType.SHORT: (-32768, 32767),
    PropertyType.INT: (-(2**31), 2**31 - 1),
    PropertyType.LONG: (-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, PropertyType.BOOLEAN),
        ("", PropertyType.STRING),
        (None, PropertyType.STRING),
        (1.0, PropertyType.DOUBLE),
        (0, PropertyType.INT),
        (2**31 - 1, PropertyType.INT),
        (-(2**31), PropertyType.INT),
        (2**31, PropertyType.LONG),
        (-(2**63), PropertyType.LONG),
    ],
)
def test_inferred_types(value: PropertyValue, kind: PropertyType) -> None:
    """A Python value gets the narrowest of JMS's everyday types that holds it; a bool is no integer."""
    assert infer_type(value) is kind
    assert typed("p", value) == Property("p", kind, value)


def test_values_without_a_type() -> None:
    """An integer beyond 64 bits and a value of another type have no JMS type."""
    with pytest.raises(UsageError, match="64 bits"):
        infer_type(2**63)
    with pytest.raises(UsageError, match="bytes"):
        infer_type(b"x")  # type: ignore[arg-type] # the wrong type is the point


@pytest.mark.parametrize("kind", list(RANGES))
def test_integer_ranges(kind: PropertyType) -> None:
    """Each integer type takes its whole range and nothing beyond."""
    low, high = RANGES[kind]
    assert (typed("p", low, kind).value, typed("p", high, kind).value) == (low, high)
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"does not fit JMS {kind}"):
            typed("p", value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, PropertyType.INT),
        ("1", PropertyType.LONG),
        (1.0, PropertyType.BYTE),
        (1, PropertyType.BOOLEAN),
        (1, PropertyType.STRING),
        (True, PropertyType.DOUBLE),
        ("1", PropertyType.FLOAT),
        (1, PropertyType.BYTES),
        (None, PropertyType.INT),
        (None, PropertyType.DOUBLE),
        (None, PropertyType.BOOLEAN),
    ],
)
def test_values_of_another_type(value: PropertyValue, kind: PropertyType) -> None:
    """A value is not bent to the type asked for; the error names the property."""
    with pytest.raises(UsageError, match="property p"):
        typed("p", value, kind)


@pytest.mark.parametrize("kind", [PropertyType.FLOAT, PropertyType.DOUBLE])
def test_a_whole_number_as_float(kind: PropertyType) -> None:
    """An integer given for a floating-point type becomes a float."""
    found = typed("p", 3, kind)
    assert (found.type, found.value) == (kind, 3.0)
    assert isinstance(found.value, float)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**53 + 1, PropertyType.DOUBLE),
        (2**24 + 1, PropertyType.FLOAT),
        (10**400, PropertyType.DOUBLE),
        (2**128, PropertyType.FLOAT),
        (1e300, PropertyType.FLOAT),
    ],
)
def test_numbers_that_a_float_does_not_have(value: float, kind: PropertyType) -> None:
    """An integer is not rounded, and a float too large for 32 bits does not become infinite."""
    with pytest.raises(UsageError, match=f"property p: .* does not fit JMS {kind}"):
        typed("p", value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**53, PropertyType.DOUBLE),
        (-(2**62), PropertyType.DOUBLE),
        (2**24, PropertyType.FLOAT),
        (0.1, PropertyType.FLOAT),
        (math.inf, PropertyType.FLOAT),
    ],
)
def test_numbers_that_a_float_has(value: float, kind: PropertyType) -> None:
    """Integers that the type has, and all other floats, keep their value."""
    assert typed("p", value, kind).value == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, PropertyType.BOOLEAN),
        ("a", PropertyType.STRING),
        (None, PropertyType.STRING),
        ("YQ==", PropertyType.BYTES),
    ],
)
def test_values_that_fit(value: PropertyValue, kind: PropertyType) -> None:
    """A value of the type asked for is kept as it is."""
    assert typed("p", value, kind) == Property("p", kind, value)


def test_lookup() -> None:
    """Properties are looked up by name, which is case-sensitive; what is absent is None."""
    values: dict[str, PropertyValue] = {"a": 1, "b": True, "c": False, "d": "x", "e": 1.5, "f": None}
    found = properties(values)
    assert found.lookup("a") == Property("a", PropertyType.INT, 1)
    assert found.lookup("A") is None
    assert (found.value("b"), found.value("z")) == (True, None)
    assert [found.text(name) for name in "abcdefz"] == ["1", "true", "false", "x", "1.5", None, None]
    assert found.lookup("f") == Property("f", PropertyType.STRING, None)
    assert as_text("true") == "true"


def test_merged() -> None:
    """Merging replaces what has the same name, in its place, and appends what is new; both sides stay as they were."""
    base = properties({"a": 1, "b": 2})
    merged = base.merged([typed("c", 3), typed("a", "one")])
    assert [(entry.name, entry.value) for entry in merged] == [("a", "one"), ("b", 2), ("c", 3)]
    assert isinstance(merged, Properties)
    assert base == properties({"a": 1, "b": 2})
    assert base.merged([]) == base


def test_properties_from_entries() -> None:
    """`properties` takes entries that are typed already as they are."""
    entries = [typed("a", 1, PropertyType.BYTE)]
    assert properties(entries) == Properties(entries)
    assert properties() == ()


def test_is_finite() -> None:
    """NaN and the infinities are what JSON cannot carry."""
    assert [is_finite(value) for value in (1.0, 1, "nan", True)] == [True] * 4
    assert [is_finite(value) for value in (math.nan, math.inf, -math.inf)] == [False] * 3


@pytest.mark.parametrize(
    ("kind", "is_temporary", "is_topic"),
    [
        (DestinationKind.QUEUE, False, False),
        (DestinationKind.TOPIC, False, True),
        (DestinationKind.TEMPORARY_QUEUE, True, False),
        (DestinationKind.TEMPORARY_TOPIC, True, True),
    ],
)
def test_kinds(kind: DestinationKind, is_temporary: bool, is_topic: bool) -> None:
    """A kind says whether it is temporary and whether it is a topic."""
    assert (kind.is_temporary, kind.is_topic) == (is_temporary, is_topic)


def test_destinations() -> None:
    """A destination prints as kind and name, or its address on the wire where it has no name."""
    assert str(queue("a")) == "queue:a"
    assert str(topic("b")) == "topic:b"
    assert str(Destination(DestinationKind.TEMPORARY_QUEUE, None, "/temp-queue/c")) == "temporary-queue:/temp-queue/c"
    assert queue("a") == queue("a") != topic("a")
    assert len({queue("a"), queue("a"), queue("b")}) == 2


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b"abc", 3),
        (memoryview(b"abcd"), 4),
        ("Grüße", 5),
        (properties({"a": 1, "b": 2}), 2),
        ((Element(PropertyType.INT, 1),), 1),
        (None, 0),
    ],
)
def test_size(body: object, size: int) -> None:
    """The size of a body counts octets, characters, or elements."""
    assert Message(message_type=MessageType.UNKNOWN, body=body).size == size  # type: ignore[arg-type] # any of them


@pytest.mark.parametrize(
    ("body", "octets"),
    [
        (b"abc", 3),
        (memoryview(b"abcd"), 4),
        ("Grüße", 7),
        ("\ud800", 3),
        (properties({"ä": 1, "b": "cd"}), 64 + 2 + 64 + 3),
        ((Element(PropertyType.INT, 1), Element(PropertyType.STRING, "é")), 64 + 64 + 2),
        (None, 0),
    ],
)
def test_octets(body: object, octets: int) -> None:
    """What limits count: text as UTF-8, 64 for a property or element besides its text, ids and type as they are."""
    message = Message(message_type=MessageType.UNKNOWN, body=body)  # type: ignore[arg-type] # any of them
    assert message.octets == octets
    headers = replace(message, message_id="ID:1", correlation_id="ä", type="t", properties=properties({"p": "qr"}))
    assert headers.octets == octets + 4 + 2 + 1 + 64 + 3


@pytest.mark.parametrize(
    "body", [b"\x00\xff", "Grüße", properties({"a": 1}), (Element(PropertyType.LONG, 2**40),), None]
)
def test_pickle(body: bytes | str | Properties | tuple[Element, ...] | None) -> None:
    """A message survives pickling, with the types of all that is in it."""
    message = Message(
        message_type=MessageType.UNKNOWN,
        body=body,
        properties=properties({"a": True, "b": 2**40}),
        destination=queue("a"),
        reply_to=Destination(DestinationKind.TEMPORARY_QUEUE, None, "/temp-queue/c"),
        priority=4,
    )
    copy = pickle.loads(pickle.dumps(message))
    assert copy == message
    assert hash(copy) == hash(message)
    assert isinstance(copy.properties, Properties)
    assert type(copy.body) is type(body)


def test_frozen() -> None:
    """A message cannot be changed, only replaced."""
    message = Message(message_type=MessageType.TEXT, body="a")
    with pytest.raises(FrozenInstanceError):
        message.body = "b"  # type: ignore[misc] # that it cannot be assigned is the point
    assert message.properties == Properties()


KINDS: dict[str, Body] = {
    "bytes": b"a",
    "memoryview": memoryview(b"a"),
    "str": "a",
    "Properties": properties({"a": 1}),
    "tuple": (Element(PropertyType.INT, 1),),
}


@pytest.mark.parametrize("kind", MessageType)
def test_bodies_that_go_with_a_type(kind: MessageType) -> None:
    """Each type of message has its kinds of body; a null one is of every type."""
    accepted = {
        MessageType.BYTES: ["bytes", "memoryview"],
        MessageType.TEXT: ["str"],
        MessageType.MAP: ["Properties"],
        MessageType.OBJECT: ["bytes", "memoryview"],
        MessageType.STREAM: ["tuple"],
        MessageType.MESSAGE: [],
        MessageType.UNKNOWN: list(KINDS),
    }[kind]
    problems = {name: body_problem(Message(message_type=kind, body=body)) for name, body in KINDS.items()}
    assert [name for name, problem in problems.items() if problem is None] == accepted
    assert body_problem(Message(message_type=kind)) is None
    for name in set(KINDS) - set(accepted):
        known = " or ".join(accepted) or "none"
        said = f"a {kind} message cannot carry a body of type {name}; accepted is {known}"
        assert problems[name] == said


def test_changed() -> None:
    """As the standard library replaces; the message that it is made of stays as it was."""
    message = Message(message_type=MessageType.TEXT, body="a", destination=queue("q"), priority=4, untyped=True)
    before = replace(message)
    assert changed(message, body="b", priority=None) == replace(message, body="b", priority=None)
    assert message == before
    with pytest.raises(TypeError, match="a message has no bodies, sort"):
        changed(message, sort=1, bodies=2)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("priority", "high", "priority of a message must be int or None, got 'high'"),
        ("type", 7, "type of a message must be str or None, got 7"),
        ("properties", None, "properties of a message must be Properties, got None"),
        ("properties", {"a": 1}, "properties of a message must be Properties, got {'a': 1}; brokers.properties("),
        ("destination", "q", "destination of a message must be Destination or None, got 'q'; brokers.queue("),
        ("reply_to", queue(7), "name of a destination must be str or None, got 7"),  # type: ignore[arg-type]
        ("properties", Properties([typed("a", 1)._replace(name=1)]), "a property must have a str name"),
        (
            "properties",
            Properties([typed("a", "")._replace(value=b"x")]),
            "a property must have a str name, and a bool, int",
        ),
    ],
)
def test_fields_of_another_type(field: str, value: Any, problem: str) -> None:
    """What a field has that it cannot have, and what it can; a message as it should be has no problem."""
    plain = Message(message_type=MessageType.BYTES, destination=queue("q"), properties=properties({"a": 1, "b": None}))
    assert field_problem(plain) is None
    assert str(field_problem(replace(plain, **{field: value}))).startswith(problem)
