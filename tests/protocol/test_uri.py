"""`jms:` URIs in the three modes: what is well-formed, what it says, what is worth a finding, and writing them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.properties import request_uri
from soapjms.protocol.uri import (
    FINDINGS,
    JmsUri,
    Mode,
    Severity,
    build,
    canonical,
    checked,
    equivalent_destination,
    escape,
    parse,
    rewrite,
)

Parts = tuple[str, str, list[tuple[str, str | None]]] | None

# The examples of the digest of RFC 6167: number, URI, the modes that call it well-formed (S strict, D draft-03,
# L lenient), its decoded parts, and the findings of a lenient reader in order of position.
ROWS: list[tuple[int, str, str, Parts, str]] = [
    (1, "jms:jndi:OrderQueue", "SDL", ("jndi", "OrderQueue", []), ""),
    (2, "jms:queue:orders.in", "SDL", ("queue", "orders.in", []), ""),
    (3, "jms:topic:prices.eu", "SDL", ("topic", "prices.eu", []), ""),
    (4, "JMS:jndi:OrderQueue", "SDL", ("jndi", "OrderQueue", []), "schemeCase"),
    (5, "jms:JNDI:OrderQueue", "SDL", ("JNDI", "OrderQueue", []), "unknownVariant"),
    (6, "jms:jndi:jms%2FOrderQueue", "SDL", ("jndi", "jms/OrderQueue", []), ""),
    (7, "jms:jndi:jms/OrderQueue", "-DL", ("jndi", "jms/OrderQueue", []), "slashInDestination"),
    (8, "jms:jndi:/OrderQueue", "---", None, "leadingSlash slashInDestination"),
    (9, "jms:jndi:java:comp/env/jms/q", "-DL", ("jndi", "java:comp/env/jms/q", []), "rawColon slashInDestination"),
    (10, "jms:jndi:java%3Acomp%2Fenv%2Fjms%2Fq", "SDL", ("jndi", "java:comp/env/jms/q", []), ""),
    (11, "jms:queue:a:b", "SDL", ("queue", "a:b", []), "rawColon"),
    (12, "jms:queue:a&b", "SDL", ("queue", "a&b", []), "rawAmpersand"),
    (13, "jms:queue:a%26b%3Fc", "SDL", ("queue", "a&b?c", []), ""),
    (14, "jms:queue:R%C3%A9serv%C3%A9", "SDL", ("queue", "Réservé", []), "notAscii"),
    (15, "jms:queue:R%E9serv%E9", "-D-", None, "escapeNotUtf8"),
    (16, "jms:queue:Réservé", "---", None, "notAscii badCharacter badCharacter"),
    (17, "jms:queue:in%", "---", None, "badEscape"),
    (18, "jms:queue:in box", "---", None, "badCharacter"),
    (19, "jms:queue:in+box", "SDL", ("queue", "in+box", []), ""),
    (20, "jms:queue:", "---", None, "emptyDestination"),
    (21, "jms::orders", "---", None, "emptyVariant"),
    (22, "jms:orders", "---", None, "noVariant"),
    (23, "jms://host/queue/orders", "---", None, "noVariant"),
    (24, "queue:orders", "---", None, "wrongScheme"),
    (25, "jms:vnd.example.ex:dest1?vnd.example.exParameter=7", "SDL",
     ("vnd.example.ex", "dest1", [("vnd.example.exParameter", "7")]), "vendorVariant"),
    (26, "jms:queue:orders?deliveryMode=NON_PERSISTENT&timeToLive=5000&priority=7", "SDL",
     ("queue", "orders", [("deliveryMode", "NON_PERSISTENT"), ("timeToLive", "5000"), ("priority", "7")]), ""),
    (27, "jms:queue:orders?priority=3&priority=8", "SDL",
     ("queue", "orders", [("priority", "3"), ("priority", "8")]), "repeated"),
    (28, "jms:queue:orders?priority=10", "SDL", ("queue", "orders", [("priority", "10")]), "priority"),
    (29, "jms:queue:orders?deliveryMode=persistent", "SDL",
     ("queue", "orders", [("deliveryMode", "persistent")]), "deliveryMode"),
    (30, "jms:queue:orders?timeToLive=-1", "SDL", ("queue", "orders", [("timeToLive", "-1")]), "timeToLive"),
    (31, "jms:queue:orders?Priority=3", "SDL", ("queue", "orders", [("Priority", "3")]), "nameCase"),
    (32, "jms:queue:orders?replyToName=replies", "SDL", ("queue", "orders", [("replyToName", "replies")]), ""),
    (33, "jms:topic:prices?topicReplyToName=acks", "SDL", ("topic", "prices", [("topicReplyToName", "acks")]), ""),
    (34, "jms:queue:orders?replyToName=r1&topicReplyToName=t1", "SDL",
     ("queue", "orders", [("replyToName", "r1"), ("topicReplyToName", "t1")]), "bothReplyNames"),
    (35, "jms:jndi:q1?topicReplyToName=t1", "SDL",
     ("jndi", "q1", [("topicReplyToName", "t1")]), "topicReplyWithJndi"),
    (36, "jms:jndi:q1?jndiURL=tcp%3A%2F%2Fbroker%3A61616&jndiConnectionFactoryName=CF", "SDL",
     ("jndi", "q1", [("jndiURL", "tcp://broker:61616"), ("jndiConnectionFactoryName", "CF")]), ""),
    (37, "jms:jndi:q1?jndiURL=tcp://broker:61616", "--L",
     ("jndi", "q1", [("jndiURL", "tcp://broker:61616")]), "parameterCharacter"),
    (38, "jms:jndi:q1?jndi-com.example.jndi.trace=on", "SDL",
     ("jndi", "q1", [("jndi-com.example.jndi.trace", "on")]), ""),
    (39, "jms:jndi:q1?jndi-=x", "SDL", ("jndi", "q1", [("jndi-", "x")]), "emptyJndiName"),
    (40, "jms:jndi:q1?targetService=stockquote", "SDL", ("jndi", "q1", [("targetService", "stockquote")]), ""),
    (41, "jms:jndi:q1?note=", "SDL", ("jndi", "q1", [("note", "")]), ""),
    (42, "jms:jndi:q1?note", "--L", ("jndi", "q1", [("note", None)]), "noValue"),
    (43, "jms:jndi:q1?=x", "---", None, "emptyName"),
    (44, "jms:jndi:q1?", "--L", ("jndi", "q1", []), "emptyQuery"),
    (45, "jms:jndi:q1?a=1&&b=2", "--L", ("jndi", "q1", [("a", "1"), ("b", "2")]), "emptyParameter"),
    (46, "jms:jndi:q1?a=1;b=2", "--L", ("jndi", "q1", [("a", "1;b=2")]), "parameterCharacter"),
    (47, "jms:jndi:q1?expr=a=b", "--L", ("jndi", "q1", [("expr", "a=b")]), "parameterCharacter"),
    (48, "jms:jndi:q1?expr=a%3Db", "SDL", ("jndi", "q1", [("expr", "a=b")]), ""),
    (49, "jms:jndi:q1?q=what?", "--L", ("jndi", "q1", [("q", "what?")]), "parameterCharacter"),
    (50, "jms:jndi:q1#frag", "---", None, "fragment"),
    (51, "jms:%6Andi:q1", "SDL", ("jndi", "q1", []), "escapedVariant"),
    (52, "jms:jndi:a/../b", "-DL", ("jndi", "a/../b", []), "slashInDestination"),
]  # fmt: skip
LETTERS = {"S": Mode.STRICT, "D": Mode.DRAFT_03, "L": Mode.LENIENT}


def parts(uri: JmsUri) -> tuple[str | None, str | None, list[tuple[str, str | None]]]:
    """Return what a URI says, decoded."""
    return uri.variant, uri.destination, [(each.name, each.value) for each in uri.parameters]


def codes(uri: JmsUri) -> list[str]:
    """Return the kinds of its findings."""
    return [finding.code for finding in uri.findings]


@pytest.mark.parametrize(("number", "text", "modes", "said", "findings"), ROWS)
def test_examples_in_every_mode(number: int, text: str, modes: str, said: Parts, findings: str) -> None:
    """Each example is well-formed in the modes that say so, means the same in all of them, and has its findings."""
    for letter, mode in LETTERS.items():
        uri = parse(text, mode)
        assert uri.well_formed is (letter in modes), (number, mode, uri.findings)
        if said is not None and letter in modes:
            assert parts(uri) == said
    assert codes(parse(text)) == findings.split()


def test_all_examples_are_here() -> None:
    """The table has the 52 rows of the digest."""
    assert [row[0] for row in ROWS] == list(range(1, 53))


# Findings


PLACES = [
    ("http:x", "wrongScheme", 0),
    ("jms", "wrongScheme", 0),
    ("JMS:queue:q", "schemeCase", 0),
    ("jms:q", "noVariant", 4),
    ("jms::q", "emptyVariant", 4),
    ("jms:a/b:q", "slashInVariant", 4),
    ("jms:%71ueue:q", "escapedVariant", 4),
    ("jms:" + "v" * 41 + ":q", "longVariant", 4),
    ("jms:queue:", "emptyDestination", 10),
    ("jms:queue:/q", "leadingSlash", 10),
    ("jms:queue:a/q", "slashInDestination", 11),
    ("jms:queue:a&q", "rawAmpersand", 11),
    ("jms:queue:aa:q", "rawColon", 12),
    ("jms:queue:a%C3%A9", "notAscii", 10),
    ("jms:queue:q%zz", "badEscape", 11),
    ("jms:queue:q%", "badEscape", 11),
    ("jms:queue:q q", "badCharacter", 11),
    ("jms:queue:%E9", "escapeNotUtf8", 10),
    ("jms:queue:q#f", "fragment", 11),
    ("jms:queue:q?", "emptyQuery", 11),
    ("jms:queue:q?a=1&", "emptyParameter", 16),
    ("jms:queue:q?a=1&b", "noValue", 16),
    ("jms:queue:q?a=1&=b", "emptyName", 16),
    ("jms:queue:q?a=1&b=/c", "parameterCharacter", 18),
    ("jms:queue:q?a=1&b=c&a=2", "repeated", 20),
    ("jms:queue:q?a=1&deliveryMode=1", "deliveryMode", 16),
    ("jms:queue:q?a=1&timeToLive=-1", "timeToLive", 16),
    ("jms:queue:q?a=1&timeToLive=9223372036854775808", "timeToLive", 16),
    ("jms:queue:q?a=1&priority=10", "priority", 16),
    ("jms:queue:q?a=1&priority=07", "leadingZeros", 16),
    ("jms:queue:q?topicReplyToName=t&replyToName=r", "bothReplyNames", 31),
    ("jms:jndi:q?a=1&topicReplyToName=t", "topicReplyWithJndi", 15),
    ("jms:jndi:q?a=1&jndi-=t", "emptyJndiName", 15),
    ("jms:jndi:q?a=1&password=t", "secret", 15),
    ("jms:jndi:q?jndi-java.naming.security.credentials=t", "secret", 11),
    ("jms:xmpp:q", "unknownVariant", 4),
    ("jms:vnd.example.x:q", "vendorVariant", 4),
    ("jms:vnd.example:q", "vendorPattern", 4),
    ("jms:queue:p%D0%B0y", "mixedScripts", 10),
    ("jms:queue:q%1B", "controlCharacter", 10),
    ("jms:queue:q?a=1&replyToName=%E2%80%AE", "controlCharacter", 16),
    ("jms:queue:q?a=1&PRIORITY=1", "nameCase", 16),
    ("jms:queue:q?a=1&replyToName=", "emptyValue", 16),
    ("jms:jndi:q?a=1&jndiInitialContextFactory=com.example.", "className", 15),
    ("jms:jndi:q?a=1&jndiURL=broker", "jndiUrl", 15),
    ("jms:jndi:q?jndi-java.naming.provider.url=a&jndiURL=b%3A", "jndiTwice", 11),
    ("jms:queue:q?a=1&jndiURL=tcp%3A%2F%2Fu%3Ap%40h", "secret", 16),
    ("jms:queue:q?a=%C3%A9%E9", "escapeNotUtf8", 20),
    ("jms:queue:q?" + "a=&" * 25 + "a=", "moreFindings", 89),
]


@pytest.mark.parametrize(("text", "code", "position"), PLACES)
def test_findings_say_where(text: str, code: str, position: int) -> None:
    """A finding stands at the first character that it is about, and its text names what was seen."""
    found = [finding for finding in parse(text).findings if finding.code == code]
    assert [finding.position for finding in found] == [position]
    assert "{" not in found[0].text


def test_every_kind_of_finding_can_be_found() -> None:
    """The table of findings has no row that nothing leads to."""
    assert {code for _, code, _ in PLACES} == set(FINDINGS)


@pytest.mark.parametrize(
    "query",
    ["priority=10", "deliveryMode=persistent", "timeToLive=1e3", "replyToName=r&topicReplyToName=t", "token=1"],
)
def test_well_formed_and_not_valid(query: str) -> None:
    """A value or combination that breaks a MUST leaves a URI well-formed, but not valid; lenient reading lets it be."""
    strict = parse(f"jms:queue:q?{query}", Mode.STRICT)
    assert strict.well_formed
    assert not strict.valid
    assert parse(f"jms:queue:q?{query}").valid


def test_escapes_of_a_variant() -> None:
    """Escapes that a variant needs are no finding; an unknown variant is one, whatever its spelling."""
    assert codes(parse("jms:a%3Ab:q")) == ["unknownVariant"]
    assert codes(parse("jms:a%3ab:q")) == ["unknownVariant"]


# What counts


def test_the_last_of_a_repeated_parameter_counts() -> None:
    """Protocol-2002: of a repeated parameter the last occurrence counts, even one without a value."""
    uri = parse("jms:queue:q?priority=1&a=x&priority=2&a")
    assert uri.value("priority") == "2"
    assert uri.value("a") is None
    assert uri.value("b") is None
    assert uri.effective() == {"priority": "2"}


def test_a_value_that_does_not_count_is_not_judged() -> None:
    """A bad value before the last of its name is ignored with it."""
    assert codes(parse("jms:queue:q?priority=77&priority=7")) == ["repeated"]


@pytest.mark.parametrize(
    ("supplied", "derived"),
    [
        ("jms:queue:q?targetService=a", "jms:queue:q"),
        ("jms:jndi:q?a=1&priority=2&b=3", "jms:jndi:q?a=1&b=3"),
        ("jms:jndi:q?priority=1&priority=2", "jms:jndi:q"),
        ("jms:jndi:news?targetService=current-affairs&priority=8&replyToName=interested&userprop=mystuff",
         "jms:jndi:news?userprop=mystuff"),
        ("jms:jndi:q?jndiURL=u&jndiInitialContextFactory=f&jndiConnectionFactoryName=c&jndi-x.y=z", "jms:jndi:q"),
        ("jms:topic:t?topicReplyToName=r&deliveryMode=PERSISTENT&timeToLive=5&jndix=1", "jms:topic:t?jndix=1"),
        ("jms:jndi:a/b?u=%41/%2f&v", "jms:jndi:a/b?u=%41/%2f&v"),
        ("jms:queue:q?target%53ervice=a&TargetService=b", "jms:queue:q?TargetService=b"),
        ("jms:queue:q?", "jms:queue:q"),
        ("jms:queue:q", "jms:queue:q"),
    ],
)  # fmt: skip
def test_derivation_of_the_request_uri(supplied: str, derived: str) -> None:
    """Protocol-2021, 2024: what is to be excluded goes, in every occurrence; the rest stays in order and undecoded."""
    assert request_uri(parse(supplied)) == derived


def test_single_names_can_be_left_out() -> None:
    """Without the family name only the parameters named are left out."""
    assert parse("jms:jndi:q?jndi-a=1&jndi-b=2&c=3").without(["jndi-a"]) == "jms:jndi:q?jndi-b=2&c=3"


# Writing


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("jms:jndi:java:comp/env/q?jndiURL=tcp://h:1", "jms:jndi:java%3Acomp%2Fenv%2Fq?jndiURL=tcp%3A%2F%2Fh%3A1"),
        ("JMS:%6Andi:q+1?a=1&&a=2&note&", "jms:jndi:q%2B1?a=1&a=2&note="),
        ("jms:queue:q?", "jms:queue:q"),
        ("jms:queue:q?priority=007&timeToLive=05", "jms:queue:q?priority=7&timeToLive=05"),
        ("jms:queue:%c3%a9%2f", "jms:queue:%C3%A9%2F"),
    ],
)
def test_what_was_read_leniently_is_written_strictly(text: str, strict: str) -> None:
    """Writing is strict, keeps repeats and their order, and says the same."""
    assert rewrite(parse(text)) == strict
    assert parse(strict, Mode.STRICT).valid
    assert rewrite(parse(strict)) == strict


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("jms:queue:q%", Mode.LENIENT, "badEscape"),
        ("jms:queue:q?priority=1&priority", Mode.LENIENT, "priority"),
        ("jms:queue:q?a=1&priority=99", Mode.LENIENT, "priority"),
        ("jms:queue:q%E9", Mode.DRAFT_03, "escapeNotUtf8"),
        ("jms:queue:q?password=hunter2", Mode.LENIENT, r"\*\*\*.*secret"),
    ],
)
def test_what_cannot_be_rewritten(text: str, mode: Mode, why: str) -> None:
    """What is malformed, is not UTF-8 or breaks a MUST has no strict form."""
    with pytest.raises(InvalidUriError, match=why):
        rewrite(parse(text, mode))


def test_lone_surrogates_are_refused_by_name() -> None:
    """The message says which part, which character and where."""
    with pytest.raises(InvalidUriError, match=r"the destination must be Unicode .* surrogate pair, '\\ud800', at 2"):
        build("queue", "ab\ud800")
    with pytest.raises(InvalidUriError, match="the parameter 'note' must be Unicode text"):
        build("queue", "q", [("note", "\udfff")])
    with pytest.raises(InvalidUriError, match="the name of a parameter must be Unicode text"):
        build("queue", "q", [("\udfff", "")])
    with pytest.raises(InvalidUriError, match="a part of a JMS URI must be Unicode text"):
        escape("\udfff")


def test_built_uris_escape_everything() -> None:
    """What is written fits both grammars; an empty list of parameters leaves no question mark."""
    assert build("jndi", "java:comp/env/q") == "jms:jndi:java%3Acomp%2Fenv%2Fq"
    assert build("queue", "a&b?c é", [("note", "x=1 & y"), ("empty", "")]) == (
        "jms:queue:a%26b%3Fc%20%C3%A9?note=x%3D1%20%26%20y&empty="
    )
    assert escape("A-z_0.9~/+") == "A-z_0.9~%2F%2B"


@pytest.mark.parametrize(
    ("variant", "destination", "parameters", "why"),
    [
        ("", "q", [], "emptyVariant"),
        ("queue", "", [], "emptyDestination"),
        ("queue", "q", [("", "x")], "emptyName"),
        ("queue", "q", [("priority", "10")], "priority"),
        ("queue", "q", [("password", "x")], "secret"),
        ("queue", "\ud800", [], "surrogate"),
        ("queue", "q", [("a", "\udfff")], "surrogate"),
    ],
)
def test_what_cannot_be_built(variant: str, destination: str, parameters: list[tuple[str, str]], why: str) -> None:
    """An empty part, half of a surrogate pair and a value that breaks a MUST are the caller's mistake."""
    with pytest.raises(InvalidUriError, match=why):
        build(variant, destination, parameters)


def test_checked_uris() -> None:
    """A caller's URI is refused with the place and the rule, by the grammar that was asked for."""
    assert checked("jms:jndi:a/b").destination == "a/b"
    with pytest.raises(InvalidUriError, match=r"'jms:jndi:a/b' at 10: the destination holds a slash.*\(slashIn"):
        checked("jms:jndi:a/b", Mode.STRICT)


def is_custom(name: str) -> bool:
    """Say whether a parameter's name has no rules of its own."""
    return not parse(f"jms:queue:q?{escape(name)}=").findings


PARAMETERS = st.lists(st.tuples(st.text(min_size=1, max_size=12).filter(is_custom), st.text()))


@given(st.sampled_from(["jndi", "queue", "topic", "vnd.example.x"]), st.text(min_size=1), PARAMETERS)
@example("queue", "%2F/?&=#", [("a%", "&=+;")])
def test_round_trip(variant: str, destination: str, parameters: list[tuple[str, str]]) -> None:
    """What was built reads back as the same parts in both grammars."""
    text = build(variant, destination, parameters)
    for mode in (Mode.STRICT, Mode.DRAFT_03):
        uri = parse(text, mode)
        assert uri.valid
        assert parts(uri) == (variant, destination, parameters)
    assert canonical(parse(text, Mode.STRICT)) == canonical(parse(text))


PIECES = st.sampled_from(
    [*"jms:?&=#%/+;é \ud800\udfff\0", "jms:queue:", "jms:jndi:q?", "jndi-", "%C3", "%A9", "%zz", "priority="]
)


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_nothing_makes_the_reader_raise(text: str) -> None:
    """Whatever arrives as a URI is read in every mode; a well-formed one in strict mode is so in the others."""
    strict, draft, lenient = (parse(text, mode) for mode in Mode)
    for uri in (strict, draft, lenient):
        assert uri.text == text
        assert all(0 <= finding.position <= len(text) for finding in uri.findings)
        assert [each.position for each in uri.findings] == sorted(each.position for each in uri.findings)
        assert isinstance(canonical(uri), str)
        assert isinstance(request_uri(uri), str)
    if strict.well_formed:
        assert draft.well_formed
        assert lenient.well_formed
        assert parts(strict) == parts(draft) == parts(lenient)


# Comparison


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("jms:jndi:a%2Fb", "JMS:%6Andi:a/b?priority=1", True),
        ("jms:queue:R%C3%A9", "jms:queue:R%c3%a9", True),
        ("jms:queue:a:b", "jms:queue:a%3Ab", True),
        ("jms:queue:a", "jms:topic:a", False),
        ("jms:queue:a", "jms:queue:A", False),
        ("jms:a%3Ab:c", "jms:a:b%3Ac", False),
        ("jms:queue:a%", "jms:queue:a%", False),
        ("jms:queue:", "jms:queue:", False),
    ],
)
def test_equivalent_destinations(one: str, other: str, same: bool) -> None:
    """The weaker test: variant and decoded name; what is not well-formed names nothing."""
    assert equivalent_destination(parse(one), parse(other)) is same
    assert equivalent_destination(parse(other), parse(one)) is same


def test_octets_that_are_not_utf_8_compare_as_octets() -> None:
    """A name that draft-03 cannot decode is not taken for one that is spelt like its escapes."""
    one, other = (parse(text, Mode.DRAFT_03) for text in ("jms:queue:%E9", "jms:queue:%25E9"))
    assert one.destination == other.destination
    assert not equivalent_destination(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("JMS:queue:q", "jms:queue:q"),
        ("jms:queue:%71", "jms:queue:q"),
        ("jms:%71ueue:q", "jms:queue:q"),
        ("jms:queue:a%2fb", "jms:queue:a%2Fb"),
        ("jms:queue:q?b=2&a=1", "jms:queue:q?a=1&b=2"),
        ("jms:queue:q?a=1&a=2", "jms:queue:q?a=2"),
        ("jms:queue:q?%61=%62", "jms:queue:q?a=b"),
        ("jms:queue:q?", "jms:queue:q"),
        ("jms:queue:%C3%A9", "jms:queue:%c3%a9"),
    ],
)
def test_same_uri(one: str, other: str) -> None:
    """Case of scheme and of hexadecimal digits, needless escapes, order, and repeats that do not count make no odds."""
    assert canonical(parse(one)) == canonical(parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("jms:jndi:a%2Fb", "jms:jndi:a/b"),
        ("jms:JNDI:q", "jms:jndi:q"),
        ("jms:queue:Q", "jms:queue:q"),
        ("jms:queue:q?priority=4", "jms:queue:q"),
        ("jms:queue:q?a=", "jms:queue:q"),
        ("jms:queue:q?a=1", "jms:queue:q?A=1"),
        ("jms:queue:a/../q", "jms:queue:q"),
        ("queue:q", "jms:q"),
    ],
)
def test_different_uris(one: str, other: str) -> None:
    """Case, an explicit default, an empty value, %2F beside a slash, and dot segments make another URI."""
    assert canonical(parse(one)) != canonical(parse(other))


def test_draft_lets_other_octets_pass() -> None:
    """The draft has no rule that escapes are UTF-8: it is a note there, and the part stays as it is written."""
    uri = parse("jms:queue:R%E9", Mode.DRAFT_03)
    assert uri.well_formed
    assert uri.destination == "R%E9"
    assert [each.severity for each in uri.findings] == [Severity.NOTE]
