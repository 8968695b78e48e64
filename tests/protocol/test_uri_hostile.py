"""`jms:` URIs that somebody else wrote: what is kept of them is bounded, and what is shown of them is harmless."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.uri import (
    KEPT,
    JmsUri,
    Mode,
    Severity,
    build,
    checked,
    equivalent_destination,
    parse,
    read,
    visible,
)
from soapjms.protocol.uri.model import PARAMETERS


def codes(uri: JmsUri) -> list[str]:
    """Return the kinds of its findings."""
    return [finding.code for finding in uri.findings]


def test_many_parameters() -> None:
    """A URI with tens of thousands of parameters is read at once, and all of them are there."""
    uri = parse("jms:queue:q?" + "&".join(f"p{number}=1" for number in range(50_000)))
    assert len(uri.parameters) == 50_000
    assert uri.valid


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("jms:queue:" + "%zz" * 1000, "980 of badEscape"),
        ("jms:queue:" + "%" * 1000, "980 of badEscape"),
        ("jms:queue:" + "\u00e9" * 1000, "980 of badCharacter"),
        ("jms:queue:q#" + "#" * 1000, "981 of fragment"),
        ("jms:queue:q?" + "a=1&" * 1000 + "a=2", "980 of repeated"),
        ("jms:queue:q?" + "&" * 1000, "981 of emptyParameter"),
        ("jms:queue:q?" + "%E9=%E9&" * 500 + "a=", "980 of escapeNotUtf8, 479 of repeated"),
        ("jms:queue:q?a=1&" + "token=1&" * 1000 + "b=1", "980 of secret, 979 of repeated"),
    ],
)
def test_findings_of_a_kind_are_bounded(text: str, left_out: str) -> None:
    """Of each kind the first twenty are kept, and the last finding says how many there were beyond that."""
    uri = parse(text)
    assert max(codes(uri).count(code) for code in codes(uri)) == KEPT
    assert uri.findings[-1].code == "moreFindings"
    assert uri.findings[-1].text.endswith(f"left out are {left_out}")
    assert uri.findings[-1].severity is Severity.NOTE


def test_what_was_seen_is_cut() -> None:
    """A finding about something endless shows the beginning."""
    uri = parse(f"jms:{'v' * 100_000}:{'d' * 100_000}%C3%A9?replyToName={'%00' * 1000}")
    assert all(len(finding.text) < 500 for finding in uri.findings)


@pytest.mark.parametrize("before", range(3))
def test_long_values_are_decoded_whole(before: int) -> None:
    """Wherever a long value is cut for decoding, no escape and no character in UTF-8 is cut with it."""
    value = "a" * before + "\u00e9b\u20ac" * 60_000 + "a" * 100_000
    uri = parse(build("queue", value, [("replyToName", value)]))
    assert (uri.destination, uri.value("replyToName")) == (value, value)
    assert equivalent_destination(uri, parse(uri.text.replace("b", "%62")))


def test_only_short_uris_are_remembered() -> None:
    """What is remembered for the next time has a bound, so nobody fills the memory with it."""
    short, long = "jms:queue:q", "jms:queue:" + "q" * 2000
    assert parse(short) is parse(short)
    assert parse(long) is not parse(long)
    assert parse(long) == parse(long) == read(long)


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("Factory", True), ("com.example.Factory$Inner", True), ("_a.$b", False), ("caf\u00e9.\u00e9_1", True),
        ("com.example.", False), (".com", False), ("com..example", False), ("com.1a", False), ("1a", False),
        ("a b", False),
    ],
)  # fmt: skip
def test_class_names(name: str, accepted: bool) -> None:
    """A class name is words with dots between them; each begins with a letter or an underline."""
    uri = parse(build("jndi", "q", [("jndiInitialContextFactory", name)]))
    assert ("className" not in codes(uri)) is accepted


@pytest.mark.parametrize("end", ["", "abc"])
def test_a_long_class_name_takes_no_memory(end: str) -> None:
    """To judge a value of 400,000 characters, nothing is remembered of its words."""
    name = "abc." * 100_000 + end
    accepted = PARAMETERS["jndiInitialContextFactory"].accepted
    tracemalloc.start()
    try:
        assert (accepted.fullmatch(name) is None) is (not end)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(name) // 10


# Secrets and what a terminal acts on


@pytest.mark.parametrize(
    "name",
    ["password", "Passwd", "username", "userName", "accessToken", "TOKEN", "token.1", "clientSecret", "api_key",
     "jndi-java.naming.security.principal", "jndi-java.naming.security.credentials", "broker.user", "pass%77ord"],
)  # fmt: skip
def test_secrets_are_never_shown(name: str) -> None:
    """The value of what looks like a secret is in no text of a finding, no error, no repr, in no mode."""
    for value in ("hunter2", "hunt%E9er2", "hunt er2%zz#hunter2", "hunt/er2", "hunt=er2"):
        for mode in Mode:
            uri = parse(f"jms:queue:q?a=1&{name}={value}&b=2", mode)
            assert "secret" in codes(uri)
            shown = [repr(uri), repr(uri.parameters), uri.redacted, *(each.text for each in uri.findings)]
            assert not [each for each in shown if "hunt" in each or "er2" in each or "%E9" in each]
            assert uri.redacted == f"jms:queue:q?a=1&{name}=***&b=2"
            assert uri.value(uri.parameters[1].name) is not None
    with pytest.raises(InvalidUriError) as caught:
        checked(f"jms:queue:q?{name}=hunter2", Mode.STRICT)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer", "secretary", "userprop", "principalAmount", "user_", "note"])
def test_other_names_are_no_secrets(name: str) -> None:
    """A name that only begins like a secret is none."""
    uri = parse(f"jms:queue:q?{name}=1", Mode.STRICT)
    assert uri.valid
    assert uri.redacted == uri.text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("jms:queue:q?jndiURL=tcp://u:hunter2@h:1&a=1", "jms:queue:q?jndiURL=***&a=1"),
        ("jms:queue:q?jndiURL=tcp%3A%2F%2Fu%3Ahunter2%40h", "jms:queue:q?jndiURL=***"),
        ("jms:queue:q?a=1;password=hunter2", "jms:queue:q?a=***"),
        ("jms:jndi:ldap://u:hunter2@h/cn=q?a=1", "jms:jndi:ldap://***@h/cn=q?a=1"),
        ("jms://u:hunter2@h/q", "jms://***@h/q"),
        ("jms:jndi:ldap://u:hunter2@\u00e9", "jms:jndi:ldap://***@\u00e9"),
        ("jms:jndi:ldap%3A%2F%2Fu%3Ahunter2%40h%2Fcn=%C3%A9?a=1", "jms:jndi:ldap://***@h/cn=%C3%A9?a=1"),
        ("jms:ldap%3A%2F%2Fu%3Ahunter2%40h:q", "jms:ldap://***@h:q"),
        ("jms://u%3Ahunter2@h:1/q", "jms://***@h:1/q"),
        ("jms:queue:q?a=1&password%3Dhunter2&b=1", "jms:queue:q?a=1&***&b=1"),
        ("jms:queue:q?tcp://u:hunter2@h=1", "jms:queue:q?***"),
        ("jms:jndi:q?jndiInitialContextFactory=tcp://u:hunter2@h", "jms:jndi:q?jndiInitialContextFactory=***"),
        ("jms:queue:q?priority=password=hunter2", "jms:queue:q?priority=***"),
    ],
)
def test_secrets_inside_of_values_and_names(text: str, redacted: str) -> None:
    """User names and passwords in a URL, and assignments behind other separators, are not shown either."""
    uri = parse(text)
    assert uri.redacted == redacted
    assert "hunter2" not in " ".join([repr(uri), repr(uri.parameters), *(each.text for each in uri.findings)])


@given(st.text(), st.text())
def test_texts_hold_nothing_that_a_terminal_acts_on(name: str, value: str) -> None:
    """Control characters, those that turn the direction of writing, and invisible ones are escapes in every text."""
    for text in (
        f"jms:queue:{name}?{name}={value}",
        f"jms:{name}:q",
        build("queue", f"{name}q", [("replyToName", value)]),
    ):
        uri = parse(text)
        assert all(finding.text.isprintable() for finding in uri.findings)
        assert visible(text).isprintable()


def test_visible() -> None:
    """What is shown as it is, and what as an escape."""
    assert visible("Réservé €") == "Réservé €"
    assert visible("a\x1b[0m\u202eb\n") == r"a\x1b[0m\u202eb\n"


@pytest.mark.parametrize(
    ("name", "mixed"),
    [
        ("orders", False),
        ("\u0437\u0430\u043a\u0430\u0437", False),
        ("\u043erders", True),
        ("\u03b1orders", True),
        ("\uff4frders", True),
        ("\u6ce8\u6587\u306e\u30ad\u30e5\u30fcQueue", False),
        ("\uc8fc\ubb38\u6ce8 Q", False),
        ("\u6ce8\u043e", True),
        ("R\u00e9serv\u00e9 n\u00ba 1", False),
    ],
)
def test_look_alikes(name: str, mixed: bool) -> None:
    """Letters of scripts that no writing system mixes are a finding, in destinations and reply destinations."""
    assert ("mixedScripts" in codes(parse(build("queue", name)))) is mixed
    assert ("mixedScripts" in codes(parse(build("queue", "q", [("replyToName", name)])))) is mixed
