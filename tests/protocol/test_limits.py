"""Limits: at the limit a document passes, one more is refused by the limit's name, and small ones cost nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol import xml
from soapjms.protocol.errors import UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, FEW_TAGS, LimitExceededError, Limits, check_markup


def refused(document: bytes | str, limits: Limits) -> str | None:
    """Parse a document; return the limit that it goes beyond, None if it passes."""
    try:
        xml.parse(document, limits=limits)
    except LimitExceededError as error:
        return named(error, limits)
    return None


def named(error: LimitExceededError, limits: Limits) -> str:
    """Return the limit that a refusal names, with its value."""
    limit, allowed = error.excess.limit, error.excess.allowed
    assert allowed == getattr(limits, limit)
    assert str(error) == error.excess.text
    assert f"the limit {limit} is {allowed}" in error.excess.text
    return limit


def nested(levels: int) -> bytes:
    """Write elements in each other."""
    return b"<a>" * (levels - 1) + b"<a/>" + b"</a>" * (levels - 1)


def numbered(text: bytes, count: int) -> bytes:
    """Write a text so many times, each with its number."""
    return b"".join(text % number for number in range(count))


WRITERS: dict[str, tuple[str, Callable[[int], bytes], int]] = {
    "depth": ("depth", nested, 100),
    "depth with content": ("depth", lambda n: nested(n).replace(b"<a/>", b'<a b="/>">x</a>'), 100),
    "elements": ("elements", lambda n: b"<r>" + b"<a></a>" * (n - 1) + b"</r>", 300),
    "comments": ("elements", lambda n: b"<r>" + b"<!-- <a> -->" * (n - 1) + b"</r>", 300),
    "instructions": ("elements", lambda n: b"<r>" + b"<?p <a> ?>" * (n - 1) + b"</r>", 300),
    "CDATA sections": ("elements", lambda n: b"<r>" + b"<![CDATA[<a>]]>" * (n - 1) + b"</r>", 300),
    "attributes": ("attributes", lambda n: b"<r><a" + numbered(b' a%d=""', n) + b"/></r>", 50),
    "spaced attributes": ("attributes", lambda n: b"<a" + numbered(b" a%d  =\n'>'", n) + b" >x</a>", 50),
    "namespaces": ("attributes", lambda n: b"<a" + numbered(b' xmlns:a%d="u"', n) + b">x</a>", 50),
    "element name": ("name", lambda n: b"<r><" + b"n" * n + b"/></r>", 200),
    "closed name": ("name", lambda n: b"<" + b"n" * n + b">x</" + b"n" * n + b">", 200),
    "attribute name": ("name", lambda n: b"<r>\n<a " + b"n" * n + b" = '1'>x</a></r>", 200),
    "text": ("text", lambda n: b"<r><a b='c'>" + b"x" * n + b"</a></r>", 500),
    "text after": ("text", lambda n: b"<r><a b='>'/>" + b"x" * n + b"</r>", 500),
    "attribute value": ("text", lambda n: b"<r><a b='1' c='" + b">" * n + b"'/></r>", 500),
    "CDATA": ("text", lambda n: b"<r><![CDATA[" + b"<" * (n // 2) + b">" * (n - n // 2) + b"]]></r>", 500),
}


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.parametrize("head", [b"", b"<?xml version='1.0'?>", b"\xef\xbb\xbf<?xml version='1.0'?>\n"])
def test_at_the_limit_and_one_more(case: str, head: bytes) -> None:
    """At the limit a document passes, one more is refused."""
    limit, write, allowed = WRITERS[case]
    settings: dict[str, Any] = {"elements": 10_000, limit: allowed}
    assert refused(head + write(allowed), Limits(**settings)) is None
    assert refused(head + write(allowed + 1), Limits(**settings)) == limit


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_in_another_encoding(case: str, encoding: str) -> None:
    """A limit holds in any encoding of the document."""
    limit, write, allowed = WRITERS[case]
    document = f"<?xml version='1.0' encoding='{encoding}'?>{write(allowed + 1).decode()}".encode(encoding)
    settings: dict[str, Any] = {"elements": 10_000, limit: allowed}
    assert refused(document, Limits(**settings)) == limit


@pytest.mark.parametrize("around", [b"<!--%s-->", b"<![CDATA[%s]]>", b"<?p %s?>"])
def test_what_is_no_markup(around: bytes) -> None:
    """What looks like markup in comments, CDATA sections and instructions is none."""
    limits = Limits(attributes=5, name=20, elements=20)
    inside = WRITERS["attributes"][1](6) + b"<" + b"n" * 50 + b"/>" + b"<a/>" * 30
    assert refused(b"<r>" + around % inside + b"</r>", limits) is None


@pytest.mark.parametrize("levels", [100, 101, 257, 2048, 2049, 100_000])
def test_depth_beyond_that_of_the_parser(levels: int) -> None:
    """A document that the parser itself gives up on is refused by our limit all the same."""
    assert refused(nested(levels), DEFAULT_LIMITS) == (None if levels == 100 else "depth")


def test_a_broken_document_is_not_refused_for_its_depth() -> None:
    """A document that is not well-formed is refused as that, though it has many tags."""
    with pytest.raises(ValueError, match="not well-formed") as caught:
        xml.parse(b"<r>" + b"<a b='/'><c/></a>" * 500)
    assert not isinstance(caught.value, LimitExceededError)


def test_a_text_of_ten_million_octets_and_more() -> None:
    """What libxml2 would refuse by itself passes where our limit lets it."""
    text = "x" * 12_000_000
    assert xml.parse(f"<a>{text}</a>").text == text
    assert refused(f"<a>{text}</a>", Limits(text=11_999_999)) == "text"


@pytest.mark.parametrize(
    "document",
    [
        b"<a/>" * 2_000_000,
        b"<!--" * 2_000_000,
        b"<![CDATA[" * 1_000_000,
        b"<?" * 4_000_000,
        b"<a " + b"a='" * 2_000_000,
        b"<a " + b"a=''" * 2_000_000,
        b"<" + b"a" * 8_000_000,
        b"<a>" + b">" * 8_000_000,
        b"<a " + b"=" * 8_000_000,
        b"<a " + b'"' * 8_000_000,
        b"<a>" * 2_000_000,
        b"<a" * 2_000_000 + b"/>",
        b"<!DOCTYPE a [" + b"<!ENTITY b 'c'>" * 500_000,
    ],
    ids=lambda document: repr(document[:12]),
)
def test_eight_megabytes_of_anything(document: bytes) -> None:
    """Hostile octets are refused, and cost no more than their length."""
    started = process_time()
    with pytest.raises(ValueError, match=r"limit|well-formed|DOCTYPE"):
        xml.parse(document)
    assert process_time() - started < 5


@pytest.mark.parametrize("name", ["depth", "parts", "ratio"])
@pytest.mark.parametrize("value", [0, -1, True, "1", 1.0, None])
def test_a_limit_is_a_positive_integer(name: str, value: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match=f"the limit {name} must be a positive integer, got {value!r}"):
        Limits(**{name: value})


def test_the_deepest() -> None:
    """No limit lets more levels pass than the parser can be trusted with."""
    limits = Limits(depth=2000)
    assert refused(nested(2000), limits) is None
    assert refused(nested(2001), limits) == "depth"
    with pytest.raises(UsageError, match="at most 2000"):
        Limits(depth=2001)


def test_limits_are_frozen_values() -> None:
    """They are compared by value, and can be sent to other processes, as can a refusal."""
    assert Limits(parts=3) == Limits(parts=3) != Limits()
    assert pickle.loads(pickle.dumps(Limits(parts=3))) == Limits(parts=3)
    error = pickle.loads(pickle.dumps(Limits().excess("parts", "too many")))
    assert error.excess == Limits().excess("parts", "too many").excess


PIECES = st.sampled_from(
    [b"<a>", b"</a>", b"<a/>", b"<abcd>", b'<a b="1" c="2">', b"<a b='1", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?p",
     b"?>", b">", b"<", b"'", b'"', b"=", b"text", b" b=''"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_nothing_below_the_harmless_size_breaks_a_limit(document: bytes) -> None:
    """A document that is too small to be looked at would pass every check."""
    limits = Limits(depth=8, elements=16, attributes=14, name=60, text=60)
    whole = b"<r>" + document + b"</r>"
    if len(whole) <= limits.harmless:
        object.__setattr__(limits, "harmless", 0)  # look all the same
        check_markup(whole, limits)


@given(
    st.lists(PIECES, max_size=12).map(b"".join),
    st.sampled_from([b"", b"<?xml version='1.0'?>", b"\n<?p a?>", b"<!--a-->"]),
)
def test_tags_are_checked_alike_one_by_one(document: bytes, start: bytes) -> None:
    """Of a document with few tags the same is refused, whether its tags are looked for one by one or not."""
    found = []
    for elements in (FEW_TAGS, FEW_TAGS - 1):
        limits = Limits(elements=elements, attributes=1, name=3, text=3)
        try:
            check_markup(start + b"<r>" + document + b"</r>", limits)
        except LimitExceededError as error:
            found.append(f"{error}")
        else:
            found.append("")
    assert found[0] == found[1]


@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_checks_agree_with_the_parser(document: bytes) -> None:
    """What is well-formed is refused exactly where counting its elements and attributes says so."""
    limits = Limits(depth=3, elements=6, attributes=1, name=3)
    whole = b"<r>" + document + b"</r>"
    try:
        root = xml.parse(whole)
    except ValueError:
        return
    elements = [each for each in root.iter() if isinstance(each.tag, str)]
    others = sum(1 for each in root.iter()) - len(elements) + whole.count(b"<![CDATA[")
    beyond = {
        "depth": max(len(list(each.iterancestors())) + 1 for each in elements) > 3,
        "attributes": any(len(each.attrib) > 1 for each in elements),
        "name": any(len(str(each.tag)) > 3 for each in elements),
    }
    if b"<!" not in whole and b"<?" not in whole:
        beyond["elements"] = len(elements) + others > 6
        assert (refused(whole, limits) is not None) == any(beyond.values())
    else:
        assert (refused(whole, Limits(depth=3, attributes=1, name=3)) is not None) == any(beyond.values())
