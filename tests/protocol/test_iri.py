"""IRIs to and from URIs: what is converted, what is refused, what stays an escape because it would deceive."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.uri import build, canonical, from_iri, parse, to_iri

PAIRS = [
    ("jms:queue:orders?a=%2F", "jms:queue:orders?a=%2F"),
    ("jms:queue:Réservé", "jms:queue:R%C3%A9serv%C3%A9"),
    ("jms:topic:注文?note=€", "jms:topic:%E6%B3%A8%E6%96%87?note=%E2%82%AC"),
    ("jms:queue:\U00020000", "jms:queue:%F0%A0%80%80"),
    ("jms:queue:הזמנות", "jms:queue:%D7%94%D7%96%D7%9E%D7%A0%D7%95%D7%AA"),
]


@pytest.mark.parametrize(("iri", "uri"), PAIRS)
def test_pairs(iri: str, uri: str) -> None:
    """Characters beyond ASCII are the escapes of their UTF-8 octets, in both directions."""
    assert from_iri(iri) == uri
    assert to_iri(uri) == iri
    assert from_iri(uri) == uri


@pytest.mark.parametrize(
    ("uri", "iri"),
    [
        ("jms:queue:%41%7E%2d", "jms:queue:A~-"),
        ("jms:queue:a%2Fb%3A%26%3F%23%25%20%22", "jms:queue:a%2Fb%3A%26%3F%23%25%20%22"),
        ("jms:queue:%25C3%25A9", "jms:queue:%25C3%25A9"),
        ("jms:queue:%C3%A9%E9%c3", "jms:queue:é%E9%C3"),
        ("jms:queue:%C0%AF%ED%A0%80%F4%90%80%80", "jms:queue:%C0%AF%ED%A0%80%F4%90%80%80"),
        ("jms:queue:%00%1B%7F%C2%85", "jms:queue:%00%1B%7F%C2%85"),
        ("jms:queue:a%E2%80%AEb%E2%80%8F%E2%81%A6", "jms:queue:a%E2%80%AEb%E2%80%8F%E2%81%A6"),
        ("jms:queue:%C2%A0%E2%80%8B%E2%80%A8%E3%80%80", "jms:queue:%C2%A0%E2%80%8B%E2%80%A8%E3%80%80"),
        ("jms:queue:q?a=%EE%80%80", "jms:queue:q?a=%EE%80%80"),
        ("jms:queue:%EF%BF%BE%EF%B7%90", "jms:queue:%EF%BF%BE%EF%B7%90"),
        ("jms:queue:in%zz%4", "jms:queue:in%zz%4"),
        ("jms:queue:%%4141%4%41%g%41", "jms:queue:%%4141%4%41%gA"),
        ("jms:queue:é", "jms:queue:é"),
    ],
)
def test_what_stays_an_escape(uri: str, iri: str) -> None:
    """Reserved characters, octets that are not UTF-8, and what is invisible or turns the direction of writing."""
    assert to_iri(uri) == iri


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("jms:queue:a\ud800", 11),
        ("jms:queue:q?a=\udfff", 14),
        ("jms:queue:\x85", 10),
        ("jms:queue:a\u202eb", 11),
        ("jms:queue:q?a=\u200f", 14),
        ("jms:queue:\ue000", 10),
        ("jms:queue:\ufdd0", 10),
        ("jms:queue:\U0001ffff?a=1", 10),
        ("jms:queue:\U000e0041", 10),
    ],
)
def test_what_no_iri_may_hold(text: str, position: int) -> None:
    """Half of a surrogate pair, controls, marks of direction, noncharacters: the message says which and where."""
    with pytest.raises(InvalidUriError, match=re.escape(f"{text[position]!r} at {position} may not")):
        from_iri(text)


def test_characters_of_private_use() -> None:
    """They may stand in the query of an IRI."""
    assert from_iri("jms:queue:q?a=\ue000\U00100000") == "jms:queue:q?a=%EE%80%80%F4%80%80%80"


def test_what_ascii_does_not_allow_is_left_to_the_parser() -> None:
    """A space is no IRI character either, but nothing is changed that could be said."""
    assert from_iri("jms:queue:in box\x1b") == "jms:queue:in box\x1b"
    assert not parse(from_iri("jms:queue:in box")).well_formed


UNICODE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(UNICODE, UNICODE)
def test_to_an_iri_and_back(destination: str, value: str) -> None:
    """The IRI of a URI is the same URI, says the same, and is fit to be shown."""
    uri = build("queue", destination, [("note", value)])
    iri = to_iri(uri)
    assert iri.isprintable()
    assert canonical(parse(from_iri(iri))) == canonical(parse(uri))
    assert parse(from_iri(iri)).destination == destination


@given(st.text())
def test_any_text(text: str) -> None:
    """To an IRI nothing is refused; from one what is not refused is ASCII, and converts no further."""
    assert isinstance(to_iri(text), str)
    try:
        uri = from_iri(text)
    except InvalidUriError:
        return
    assert uri.isascii()
    assert from_iri(uri) == uri


@given(st.lists(st.sampled_from(["%", "%4", "%41", "%C3", "%A9", "%E2%80%AE", "%25", "a", "?", "é"])).map("".join))
def test_converting_twice_changes_nothing(text: str) -> None:
    """An IRI made of a URI is an IRI already."""
    assert to_iri(to_iri(text)) == to_iri(text)
