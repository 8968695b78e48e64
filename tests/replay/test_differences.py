"""What a message has beside what would be right: marked, short, and plain text whatever a log holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from report_kit import ATTACK
from vector_kit import exchange_of, of_each_case, setting_of

from brokers.message import changed, properties
from soapjms.protocol.assertions import Judge, Setting, Verdict, VerdictOutcome, judge, readings
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.names import CR_2009
from soapjms.protocol.uri import visible
from soapjms.replay.differences import (
    MAX_SHOWN_CHARACTERS,
    SHOWN_BEFORE_CHARACTERS,
    Difference,
    Piece,
    differences,
)

BROKEN = (VerdictOutcome.FAILED, VerdictOutcome.WARNING)
REQUEST = {"base": "request"}
LONGEST = 4 * MAX_SHOWN_CHARACTERS + 2
"""Every octet may be an escape of four characters, and dots stand for what is left out on both sides."""


def shown(pieces: tuple[Piece, ...]) -> str:
    """Write pieces with brackets around those that are marked."""
    return "".join(f"[{each.text}]" if each.is_marked else each.text for each in pieces)


def exchange_with(**parts: Any) -> Exchange:
    """Make a request with other headers, body, or properties beside its own."""
    exchange = exchange_of({"records": [REQUEST]})
    assert exchange.request is not None
    message = exchange.request.message
    more = parts.pop("more", {})
    if more:
        parts["properties"] = message.properties.merged(properties(more))
    return replace(exchange, request=replace(exchange.request, message=changed(message, **parts)))


def of(assertion: str, exchange: Exchange, setting: Setting | None = None) -> list[Difference]:
    """Return the differences by the broken assertion."""
    used = setting or Setting()
    (verdict,) = (each for each in broken(exchange, used) if each.assertion == assertion)
    return differences(verdict, exchange, used)


def broken(exchange: Exchange, setting: Setting) -> list[Verdict]:
    """Return the verdicts of the broken assertions."""
    return [each for each in judge(exchange, setting) if each.outcome in BROKEN]


@of_each_case
def test_every_broken_assertion_has_differences(case: dict[str, Any], profile: str) -> None:
    """Of a bounded length, without control characters, and equal after a way through JSON."""
    exchange, setting = exchange_of(case), setting_of(case, profile)
    for verdict in broken(exchange, setting):
        found = differences(verdict, exchange, setting)
        assert found, verdict
        for each in found:
            assert Difference.of(json.loads(json.dumps(each))) == each
            assert each.right
            for pieces in (each.seen, each.right):
                assert len("".join(piece.text for piece in pieces)) <= LONGEST
                assert all(visible(line) == line for piece in pieces for line in piece.text.split("\n"))


@pytest.mark.parametrize(
    ("assertion", "parts", "place", "seen", "right"),
    [
        (
            "Protocol-2010",
            {"more": {"SOAPJMS_bindingVersion": "0.9"}},
            "property SOAPJMS_bindingVersion",
            "[0.9]",
            "[1.0]",
        ),
        (
            "Protocol-2024",
            {"more": {"SOAPJMS_requestURI": "jms:queue:q?targetService=s&x=1&replyToName=r&y=2"}},
            "property SOAPJMS_requestURI",
            "jms:queue:q?[targetService=s&]x=1[&replyToName=r]&y=2",
            "jms:queue:q?x=1&y=2",
        ),
        (
            "Local-2.2.4-syntax",
            {"more": {"SOAPJMS_requestURI": "jms:queue:q?a=%zz"}},
            "property SOAPJMS_requestURI",
            "jms:queue:q?a=[%]zz",
            "jms:VARIANT:NAME with the variant jndi, queue or topic, such as jms:queue:orders",
        ),
        ("Protocol-2007", {"priority": 12}, "header JMSPriority", "[12]", "0 to 9"),
        ("Protocol-2030", {"body": b""}, "body", "", "an XML document from the first octet on: <"),
        (
            "Protocol-2030",
            {"body": b"\x00\x01<a/>"},
            "body, octets 0 to 5",
            "[\\x00\\x01<a/>]",
            "an XML document from the first octet on: <",
        ),
    ],
)
def test_what_is_marked(assertion: str, parts: dict[str, Any], place: str, seen: str, right: str) -> None:
    """The words or octets that are wrong, and those that are right in their place."""
    (found,) = of(assertion, exchange_with(**parts))
    assert (found.place, shown(found.seen), shown(found.right)) == (place, seen, right)


def test_octet_of_a_body() -> None:
    """The octet that does not decode is marked, with its position in the body."""
    body = b"<?xml version='1.0' encoding='utf-8'?><x>" + b"." * 100 + b"\xe4</x>"
    (found,) = of("Protocol-2014", exchange_with(body=body, more={"SOAPJMS_contentType": "text/xml"}))
    assert found.place == f"body, octet {body.index(0xE4)}"
    assert found.spans == ((141, 142),)
    assert shown(found.seen) == f"…{'.' * SHOWN_BEFORE_CHARACTERS}[\\xe4]</x>"


ENVELOPE = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>{}</e:Body></e:Envelope>"
DECLARED = "<?xml version='1.0' encoding='{}'?><x/>"


def content_type(charset: str) -> dict[str, str]:
    """Return the property with a charset."""
    return {"SOAPJMS_contentType": f"text/xml; charset={charset}"}


@pytest.mark.parametrize(
    ("charset", "body", "expected"),
    [
        ("utf-16", b"<x/>", [("text/xml; charset=[utf-16]", "text/xml; charset=[utf-8]"), ("[<x/>]", "utf-16")]),
        ("utf-16", b"<xy/>", [("text/xml; charset=[utf-16]", "text/xml; charset=[utf-8]"), ("[<xy/]>", "utf-16")]),
        ("nonsense", b"<x/>", [("text/xml; charset=[nonsense]", "text/xml; charset=[utf-8]")]),
        ("nonsense", "<x/>", [("text/xml; charset=[nonsense]", "text/xml; charset=[utf-8]")]),
        (
            "utf-8",
            b"<x>caf\xe9</x>",
            [("text/xml; charset=[utf-8]", "the charset of the body"), ("<x>caf[\\xe9]</x>", "utf-8")],
        ),
        (
            "us-ascii",
            "<x>café</x>".encode(),
            [
                ("text/xml; charset=[us-ascii]", "text/xml; charset=[utf-8]"),
                ("<x>caf[\\xc3]\\xa9</x>", "a document in the charset us-ascii"),
            ],
        ),
        (
            "utf-8",
            "\ufeff<x/>".encode("utf-16-be"),
            [
                ("text/xml; charset=[utf-8]", "text/xml; charset=[utf-16]"),
                ("[\\xfe\\xff\\x00<]\\x00x\\x00/\\x00>", "a document in the charset utf-8"),
            ],
        ),
        (
            "utf-16",
            DECLARED.format("utf-8").encode("utf-16-be"),
            [
                (
                    "".join(f"\\x00{each}" for each in "<?xml version='1.0' encoding='")
                    + "".join(f"{'' if number else '['}\\x00{each}" for number, each in enumerate("utf-8"))
                    + "]"
                    + "".join(f"\\x00{each}" for each in "'?><x/>"),
                    "the encoding that the first octets tell, or none",
                )
            ],
        ),
    ],
)
def test_charset_and_octets(charset: str, body: bytes | str, expected: list[tuple[str, str]]) -> None:
    """What is wrong of the content type is its charset; of the body, the octets that are not of it, or that tell it."""
    found = of("Protocol-2012", exchange_with(body=body, more=content_type(charset)), Setting(profile=CR_2009))
    assert len(found) == len(expected)
    for each, (seen, right) in zip(found, expected, strict=True):
        assert right in shown(each.right)
        assert shown(each.seen).removeprefix("…").removesuffix("…") in seen


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        (ENVELOPE.format("<greet>x</gret>"), "</gret>"),
        (ENVELOPE.format(f"<greet>{'ä' * 900}</gret>"), "</gret>"),
        (ENVELOPE.format("\n\n<greet>ä&x</greet>"), "<"),
        (ENVELOPE.format("<greet>1 < 2</greet>"), " "),
        (ENVELOPE.format("")[:-1], "e"),
        ("\ufeff" + ENVELOPE.format("<a></b>"), "</b>"),
        (f"<!DOCTYPE x>{ENVELOPE.format('')}", "<!DOCTYPE"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", None])
def test_place_where_xml_is_not_well_formed(body: str, marked: str, encoding: str | None) -> None:
    """The tag or the character at which the parser stopped, with what is around it, however long the body is."""
    if encoding == "utf-16-le" and not body.startswith("\ufeff"):
        body = f"\ufeff{body}"
    given: bytes | str = body if encoding is None else body.encode(encoding)
    more = content_type("utf-16" if encoding == "utf-16-le" else "utf-8")
    (found,) = of("Protocol-2030", exchange_with(body=given, more=more))
    ((begin, end),) = found.spans
    part = given[begin:end]
    assert (part if isinstance(part, str) else part.decode(encoding or "")) == marked
    assert "".join(each.text for each in found.seen if each.is_marked)


def test_unknown_charset_of_a_text() -> None:
    """Under the recommendation the declaration has no meaning, so the charset alone is wrong."""
    (found,) = of("Local-2.4.1-textEncoding", exchange_with(body="<x/>", more=content_type("nonsense")))
    assert shown(found.seen) == "text/xml; charset=[nonsense]"


def test_a_time_has_its_words_beside_it() -> None:
    """Of a header that holds milliseconds, in what is there and in what would be right."""
    uri = {"SOAPJMS_requestURI": "jms:queue:q?timeToLive=5000"}
    parts = {"timestamp": 1_767_268_800_000, "expiration": 0, "more": uri}
    (found,) = of("Protocol-2006", exchange_with(**parts))
    assert shown(found.seen) == "[0] (never)"
    assert shown(found.right) == "[1767268805000] (1 Jan 2026, 12:00:05 UTC)"


def test_charset_and_declaration() -> None:
    """Both places are shown that contradict each other."""
    body = b"<?xml version='1.0' encoding='iso-8859-1'?><x/>"
    header, document = of(
        "Protocol-2012", exchange_with(body=body, more={"SOAPJMS_contentType": "text/xml; charset=utf-8"})
    )
    assert (shown(header.seen), shown(header.right)) == (
        "text/xml; charset=[utf-8]",
        "text/xml; charset=[iso-8859-1]",
    )
    assert shown(document.seen) == "<?xml version='1.0' encoding='[iso-8859-1]'?><x/>"
    assert document.place == "body, octets 30 to 39"


def test_a_missing_property_has_nothing() -> None:
    """Nothing is marked where there is nothing."""
    (found,) = of("Protocol-2016", exchange_with(properties=properties({})))
    assert (found.seen, found.spans, found.is_value) == ((), (), False)


def test_long_values_are_cut_around_the_mark() -> None:
    """A value of any length is compared quickly, and shown up to a limit."""
    long = "jms:queue:q?" + "&".join(f"p{number}={number}" for number in range(20_000))
    uri = long.replace("q?", "q?targetService=s&")
    (found,) = of("Protocol-2021", exchange_with(more={"SOAPJMS_requestURI": uri}))
    assert "[targetService=s&]" in shown(found.seen)
    assert found.seen[-1].text == "…"
    parameters = "&".join(["targetService=s"] * 20_000)
    (found,) = of("Protocol-2021", exchange_with(more={"SOAPJMS_requestURI": f"jms:queue:q?{parameters}"}))
    assert len(shown(found.seen)) <= LONGEST
    uri = f"jms:queue:q?targetService=s&far={'1' * 400}&targetService=s"
    (found,) = of("Protocol-2021", exchange_with(more={"SOAPJMS_requestURI": uri}))
    assert sum(len(each.text) for each in found.seen) == MAX_SHOWN_CHARACTERS + 1, "what is marked beyond is not shown"


@pytest.mark.parametrize(
    "parts",
    [
        {"body": ATTACK.encode()},
        {"body": ATTACK},
        {"more": {"SOAPJMS_contentType": f"{ATTACK}/x"}},
        {"more": {"SOAPJMS_contentType": f'text/xml; charset="{ATTACK}"'}},
        {"more": {"SOAPJMS_requestURI": f"jms:queue:{ATTACK}"}},
        {"more": {"SOAPJMS_bindingVersion": ATTACK, "SOAPJMS_soapAction": ATTACK}},
        {"body": "\ud800", "more": {"SOAPJMS_requestURI": "jms:\ud800:\ud800"}},
    ],
)
def test_hostile_content_is_plain_text(parts: dict[str, Any]) -> None:
    """Nothing that a terminal or a browser would act on is left, and all of it can be written as UTF-8."""
    exchange = exchange_with(**parts)
    found = [each for verdict in broken(exchange, Setting()) for each in differences(verdict, exchange, Setting())]
    assert found
    for piece in (piece for each in found for pieces in (each.seen, each.right) for piece in pieces):
        piece.text.encode()
        assert all(line.isprintable() for line in piece.text.split("\n"))


def test_nothing_for_what_is_not_broken() -> None:
    """A verdict that passed has no differences, nor has one on another exchange."""
    exchange = exchange_with()
    assert all(differences(each, exchange, Setting()) == [] for each in judge(exchange, Setting()))
    other = exchange_with(priority=12)
    (verdict,) = broken(other, Setting())
    assert differences(verdict, exchange, Setting()) == []


def test_verdicts_of_many_exchanges() -> None:
    """A judge of many exchanges may reuse a reason; the difference is that of the message at hand."""
    judging = Judge(Setting())
    for number in range(4):
        uri = f"jms:queue:q?targetService={number}"
        exchange = exchange_with(more={"SOAPJMS_requestURI": uri})
        found = [
            difference
            for verdict in judging.findings(readings(exchange, Setting()))
            if verdict.assertion == "Protocol-2021"
            for difference in differences(verdict, exchange, Setting())
        ]
        assert [shown(each.seen) for each in found] == [f"jms:queue:q[?targetService={number}]"]
