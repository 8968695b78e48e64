"""The vectors of `vectors/uri.json`: every example of the digest of RFC 6167 and more, each in all modes.

A vector says what a URI is in each mode: whether it is well-formed and valid, its parts, the requestURI that is derived
from it (null for one that is not well-formed), and the kinds of its findings in order of position.
from places import VECTORS as VECTORS_FOLDER
"""

from __future__ import annotations

import json
from typing import Any

import places
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from soapjms.protocol.properties import request_uri
from soapjms.protocol.uri import JmsUri, Mode, build, equivalent_destination, parse, rewrite
from soapjms.protocol.uri.redact import holds_secret, is_secret_name

VECTORS: list[dict[str, Any]] = json.loads((places.VECTORS / "uri.json").read_text("utf-8"))


def result(uri: JmsUri) -> dict[str, Any]:
    """Say of a URI what a vector says."""
    return {
        "well_formed": uri.well_formed,
        "valid": uri.valid,
        "variant": uri.variant,
        "destination": uri.destination,
        "parameters": [[each.name, each.value] for each in uri.parameters],
        "request_uri": request_uri(uri) if uri.well_formed else None,
        "findings": [each.code for each in uri.findings],
    }


CASES = [
    pytest.param(vector["uri"], mode, vector[mode], id=f"{vector['id']}-{mode}") for vector in VECTORS for mode in Mode
]


@pytest.mark.parametrize(("uri", "mode", "expected"), CASES)
def test_vector(uri: str, mode: Mode, expected: dict[str, Any]) -> None:
    """The URI is read as the vector says."""
    assert result(parse(uri, mode)) == expected


def test_there_are_enough() -> None:
    """Every example of the digest is here, at least 100 more, and none twice."""
    names = [vector["id"] for vector in VECTORS]
    assert [name for name in names if name.startswith("digest")] == [f"digest {number}" for number in range(1, 53)]
    assert len(names) >= 152
    assert len(set(names)) == len({vector["uri"] for vector in VECTORS}) == len(names)


def has_strict_form(vector: dict[str, Any]) -> bool:
    """Say whether a URI could be said strictly: no MUST on values broken, no parameter without `=`, no leading zero."""
    breaks_only_grammar = vector["strict"]["valid"] or not vector["strict"]["well_formed"]
    named = all(value is not None for _, value in vector["lenient"]["parameters"])
    written_as_is = named and "leadingZeros" not in vector["lenient"]["findings"]
    return bool(vector["lenient"]["valid"] and breaks_only_grammar and written_as_is)


@pytest.mark.parametrize("text", [vector["uri"] for vector in VECTORS if has_strict_form(vector)])
def test_strict_form(text: str) -> None:
    """What was read leniently is written strictly: the same destination and parameters, and stable."""
    uri = parse(text)
    strict = parse(rewrite(uri), Mode.STRICT)
    assert strict.valid
    assert equivalent_destination(uri, strict)
    assert [each[:2] for each in strict.parameters] == [each[:2] for each in uri.parameters]
    assert rewrite(strict) == strict.text


# Round trips

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
CUSTOM = UNICODE.map("x{}".format).filter(lambda name: not is_secret_name(name))
PARAMETERS = st.lists(st.tuples(CUSTOM, UNICODE.filter(lambda value: not holds_secret(value))))


@given(st.sampled_from(["jndi", "queue", "topic", "vnd.example.x", "other"]), UNICODE.filter(bool), PARAMETERS)
@example("jndi", "java:comp/env/a b?c&d#e%f+g", [("x", "\0\n"), ("x", ""), ("x&=", "/?#[]@!$'()*+,;=")])
@example("queue", "\U0010ffff\ufdd0\u202e\ud7ff", [])
def test_build_read_write_read(variant: str, destination: str, parameters: list[tuple[str, str]]) -> None:
    """Any Unicode destination and value survives being written and read, in every mode, twice over."""
    text = build(variant, destination, parameters)
    for mode in Mode:
        first = parse(text, mode)
        second = parse(rewrite(first), mode)
        for uri in (first, second):
            assert (uri.variant, uri.destination) == (variant, destination)
            assert [each[:2] for each in uri.parameters] == parameters
        assert second == first
