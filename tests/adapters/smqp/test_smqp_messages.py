"""Messages of SMQP: attributes, sections by Content-Length, and what is made of wrong ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.smqp.protocol.commands import CommandKind
from brokers.smqp.protocol.dialect import LENIENT, STRICT, SmqpDialect
from brokers.smqp.protocol.dialogue import CommandReader, ReceivedCommand
from brokers.smqp.protocol.messages import (
    DATA,
    HEADER,
    Attribute,
    Attributes,
    SmqpLimits,
    SmqpMessage,
    SmqpSection,
    attribute,
    checked,
    parse_line,
)
from brokers.smqp.protocol.replies import RefusedError, ReplyCode

PUB = b"PUB MESSAGE /a 1\r\n"
CREATED = b"Created: D09092001T10160000Z\r\n"
TEXT = b"Content-Type: text/plain\r\n"


def read(octets: bytes, dialect: SmqpDialect = STRICT, limits: SmqpLimits | None = None) -> list[ReceivedCommand]:
    """Read octets to their end."""
    reader = CommandReader(limits, dialect)
    reader.feed(octets)
    return list(iter(reader.next, None))


def published(octets: bytes, dialect: SmqpDialect = STRICT) -> SmqpMessage:
    """Read a message that is followed by NOOP."""
    first, second = read(PUB + octets + b"\r\nNOOP\r\n", dialect)
    assert second.command is not None
    assert second.command.kind is CommandKind.NOOP
    assert first.refusal is None, first.refusal
    assert first.content is not None
    return first.content


def refused(octets: bytes, dialect: SmqpDialect = STRICT, limits: SmqpLimits | None = None) -> ReplyCode:
    """Read a message that is refused; see that the command after it is understood."""
    first, second = read(PUB + octets + b"NOOP\r\n", dialect, limits)
    assert first.refusal is not None
    assert second.command is not None, second.refusal
    assert second.command.kind is CommandKind.NOOP
    return first.refusal.code


def test_SM_025_a_message_may_have_no_data() -> None:
    """Header, empty line, dot; the empty line may be missing."""
    assert published(CREATED + b"\r\n.\r\n").sections == ()
    assert published(CREATED + b".\r\n").sections == ()


def test_SM_026_SM_027_SM_032_sections_follow_empty_lines() -> None:
    """An empty line stands before and after each data header; sections keep their order."""
    content = published(
        CREATED + b"\r\n" + TEXT + b"Content-Length: 1\r\n\r\nx\r\n\r\n"
        b"Content-Type: text/html\r\nContent-Length: 2\r\nX-Of-Data: 1\r\n\r\nyz\r\n.\r\n"
    )
    assert content.attributes.value("created") == "D09092001T10160000Z"
    assert content.sections == (
        SmqpSection("text/plain", b"x"),
        SmqpSection("text/html", b"yz", Attributes([Attribute("X-Of-Data", "1")])),
    )


def test_data_may_follow_the_header_at_once() -> None:
    """Some examples have no empty line before Content-Type; MIME-Version may stand after it."""
    content = published(CREATED + TEXT + b"Content-Length: 1\r\nMIME-Version: 1.0\r\n\r\nx\r\n.\r\n")
    assert content.attributes.value("MIME-Version") == "1.0"
    assert content.sections == (SmqpSection("text/plain", b"x"),)


def test_SM_028_SM_202_SM_203_data_needs_type_and_length() -> None:
    """Without Content-Length 410, without Content-Type 400."""
    assert refused(CREATED + b"\r\n" + TEXT + b"\r\nx\r\n.\r\n") is ReplyCode.LENGTH_REQUIRED
    assert refused(CREATED + b"\r\nContent-Length: 1\r\n\r\nx\r\n.\r\n") is ReplyCode.BAD_REQUEST
    assert refused(CREATED + b"\r\nContent-Type: text\r\nContent-Length: 1\r\n\r\nx\r\n.\r\n") is ReplyCode.BAD_REQUEST
    assert published(CREATED + b"\r\n" + TEXT + b"Content-Length: 0\r\n\r\n\r\n.\r\n").sections[0].data == b""


def test_SM_024_SM_029_the_length_decides() -> None:
    """Data may hold the end mark; octets after it that the length does not count are refused."""
    data = b"line1\r\n.\r\nline2"
    assert published(CREATED + b"\r\n" + TEXT + b"Content-Length: 15\r\n\r\n" + data + b"\r\n.\r\n").sections == (
        SmqpSection("text/plain", data),
    )
    short = CREATED + b"\r\n" + TEXT + b"Content-Length: 5\r\n\r\n24.567\r\n.\r\n"
    assert refused(short) is ReplyCode.BAD_REQUEST
    assert published(short, LENIENT).sections[0].data == b"24.567"


def test_a_length_beyond_the_data() -> None:
    """It takes what follows for data; reading goes on after the next end of a message."""
    octets = PUB + CREATED + b"\r\n" + TEXT + b"Content-Length: 12\r\n\r\n34.456\r\n.\r\n"
    lost = b"NOOP\r\n\r\n"
    events = read(octets + lost + PUB + CREATED + b"\r\n.\r\nQUIT\r\n")
    assert [each.refusal and each.refusal.code for each in events] == [ReplyCode.BAD_REQUEST, None]
    assert events[1].command is not None
    assert events[1].command.kind is CommandKind.QUIT


def test_SM_030_there_are_no_streams() -> None:
    """A length is a number."""
    for length in (b"*", b"-1", b"1x", b"", b"9" * 19):
        octets = CREATED + b"\r\n" + TEXT + b"Content-Length: " + length + b"\r\n\r\nx\r\n.\r\n"
        assert refused(octets) is ReplyCode.BAD_REQUEST


def test_SM_018_names_of_attributes_are_read_in_any_case() -> None:
    """Abbreviations and case do not count; what is known is kept in one form."""
    assert parse_line("SMUID: h/1") == Attribute("SMUID", "h/1")
    both = [checked([parse_line(line)], HEADER) for line in ("SMUID: h/1", "Smuid:h/1")]
    assert both[0] == both[1] == (Attribute("Smuid", "h/1"),)
    assert checked([Attribute("pri", "007"), Attribute("SEQ", "1")], HEADER) == (
        Attribute("Priority", "7"),
        Attribute("Sequence", "1"),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Name", "x" * 129),  # SM-190
        ("Priority", "0"),  # SM-191
        ("Created", "yesterday"),  # SM-192
        ("Receipt", "maybe"),  # SM-193
        ("Reply", ""),  # SM-194
        ("Timeout", "60"),  # SM-195
        ("Depth", "-2"),  # SM-196
        ("Sequence", "-1"),  # SM-197
        ("MIME-Version", "one"),  # SM-198
        ("Smuid", "1"),  # SM-199
        ("Cmuid", "1"),  # SM-199
    ],
)
def test_SM_190_to_SM_199_what_attributes_may_not_be(name: str, value: str) -> None:
    """A value that is not of its attribute's form is refused with 400; so is an attribute that is there twice."""
    octets = (b"" if name == "Created" else CREATED) + f"{name}: {value}\r\n\r\n.\r\n".encode()
    assert refused(octets) is ReplyCode.BAD_REQUEST


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Name: Grüße an alle", "Grüße an alle"),
        ("Receipt: yes", "YES"),
        ("Reply: 0", "NO"),
        ("Timeout: 00:01:00", "0000:00:01:00:00"),
        ("Depth: -1", "-1"),
        ("MIME-Version: 1.0", "1.0"),
    ],
)
def test_attributes_are_kept_in_one_form(line: str, expected: str) -> None:
    """Whatever form they were sent in."""
    content = published(CREATED + line.encode() + b"\r\n\r\n.\r\n")
    assert content.attributes.value(line.split(":")[0]) == expected


def test_twice_is_once_too_often() -> None:
    """A known attribute that is there twice is refused, an extension is not."""
    assert refused(CREATED + CREATED + b"\r\n.\r\n") is ReplyCode.BAD_REQUEST
    assert len(published(CREATED + b"X-A: 1\r\nX-A: 2\r\n\r\n.\r\n").attributes) == 3
    assert refused(CREATED + b"no colon\r\n\r\n.\r\n") is ReplyCode.BAD_REQUEST


def test_SM_201_SM_204_SM_205_SM_206_what_smqp_does_not_define_passes() -> None:
    """Extensions, codings and encryption are kept as they are."""
    extra = "X-Desk: metals  and more", "Unknown: 1"
    content = published(
        CREATED
        + "".join(f"{line}\r\n" for line in extra).encode()
        + b"\r\n"
        + TEXT
        + b"Content-Encoding: zip, gzip\r\n"
        b"Encryption: PGP version=2.6.2,encoding=ascii\r\nX-K: v\r\nContent-Length: 0\r\n\r\n\r\n.\r\n"
    )
    assert content.attributes[1:] == (Attribute("X-Desk", "metals  and more"), Attribute("Unknown", "1"))
    assert content.sections[0].attributes == (
        Attribute("Content-Encoding", "zip, gzip"),
        Attribute("Encryption", "PGP version=2.6.2,encoding=ascii"),
        Attribute("X-K", "v"),
    )


def test_limits() -> None:
    """Too much data, too many sections, attributes and too long lines are refused at the end of the message."""
    section = TEXT + b"Content-Length: 4\r\n\r\nabcd\r\n"
    assert refused(CREATED + b"\r\n" + section + b".\r\n", limits=SmqpLimits(message=3)) is ReplyCode.ENTITY_TOO_LARGE
    two = b"\r\n".join([CREATED, section, section]) + b".\r\n"
    assert refused(two, limits=SmqpLimits(sections=1)) is ReplyCode.ENTITY_TOO_LARGE
    assert refused(two, limits=SmqpLimits(message=7)) is ReplyCode.ENTITY_TOO_LARGE
    assert published(two).size == 8
    assert refused(CREATED + b"X: 1\r\n" * 256 + b"\r\n.\r\n") is ReplyCode.RESOURCE_TOO_LARGE
    assert refused(CREATED + b"X: " + b"1" * 9000 + b"\r\n\r\n.\r\n") is ReplyCode.RESOURCE_TOO_LARGE
    assert refused(CREATED + b"X: \xff\r\n\r\n.\r\n") is ReplyCode.BAD_REQUEST
    many = CREATED + (b"X: " + b"1" * 90 + b"\r\n") * 20 + b"\r\n.\r\n"
    assert refused(many, limits=SmqpLimits(attributes=1000)) is ReplyCode.ENTITY_TOO_LARGE


def test_a_refused_command_takes_its_message_along() -> None:
    """The message after a PUB that cannot be carried out is no command."""
    first, second = read(b"PUB MESSAGE /1bad x\r\n" + CREATED + b"\r\n.\r\n\r\nNOOP\r\n")
    assert first.refusal is not None
    assert first.refusal.code is ReplyCode.BAD_REQUEST
    assert second.command is not None


names = st.from_regex(r"X-[A-Za-z0-9-]{1,8}", fullmatch=True)
values = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20).map(
    lambda text: text.strip(" \t")
)
extensions = st.lists(st.builds(Attribute, names, values), max_size=3).map(Attributes)
types = st.sampled_from(["text/plain", 'text/xml; charset="utf-8"', "application/octet-stream"])
sections = st.builds(SmqpSection, types, st.binary(max_size=50) | st.just(b"\r\n.\r\n"), extensions)
contents = st.builds(
    lambda extra, parts: SmqpMessage(Attributes((Attribute("Created", "D09092001T10160000Z"), *extra)), tuple(parts)),
    extensions,
    st.lists(sections, max_size=3),
)


@given(contents, st.lists(st.integers(1, 40), max_size=10))
def test_SM_031_messages_survive(content: SmqpMessage, cuts: list[int]) -> None:
    """A message is read as it was written, octet for octet, however it is cut on its way."""
    octets = PUB + content.written() + b"\r\n"
    reader = CommandReader()
    out = []
    at = 0
    for cut in [*cuts, len(octets)]:
        reader.feed(octets[at : at + cut])
        at += cut
        out += list(iter(reader.next, None))
    (heard,) = out
    assert heard.content == content


def test_any_octets_leave_the_reader_bounded() -> None:
    """Whatever octets a message is mutated to, the reader ends with events or waits, and keeps little."""
    random = Random(1)
    section = TEXT + b"Content-Length: 15\r\n\r\nline1\r\n.\r\nline2\r\n"
    whole = PUB + CREATED + b"X-A: 1\r\n\r\n" + section + b"\r\n" + section + b".\r\n\r\nNOOP\r\n"
    for _ in range(2000):
        octets = bytearray(whole)
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(octets))
            octets[at : at + random.randint(0, 3)] = random.choice([b"", b"\r\n", b".\r\n", b"9", b"\xff", b":"])
        reader = CommandReader(SmqpLimits(message=1000), random.choice([STRICT, LENIENT]))
        reader.feed(bytes(octets))
        for heard in iter(reader.next, None):
            assert heard.command is not None or heard.refusal is not None
        assert len(reader) <= len(octets)


def test_what_no_line_carries() -> None:
    """An attribute with a line break is the caller's mistake."""
    for name, value in (("X", "a\r\nb"), ("X y", "1"), ("X:", "1"), ("", "1")):
        with pytest.raises(ValueError, match="attribute"):
            attribute(name, value)
    with pytest.raises(RefusedError):
        checked([Attribute("Content-Length", "x")], DATA)
