"""What is hidden before a message is written, and that nothing else is changed."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from typing import Any

import pytest

from brokers import Message, MessageType, Properties, PropertyType, typed
from soapjms.capture.mask import Mask
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import CONTENT_ENCODING


def message(body: bytes | str | memoryview | None, **properties: object) -> Message:
    """Make a message."""
    kind = MessageType.TEXT if isinstance(body, str) else MessageType.BYTES
    found = Properties(typed(name, value) for name, value in properties.items())
    return Message(message_type=kind, body=body, properties=found)


XML = b'<e:Envelope xmlns:e="urn:e"><c:Card kind="a" xmlns:c="urn:c"> 4711 </c:Card><Name>Ann</Name></e:Envelope>'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"<Card>4711</Card>", b"<Card>***</Card>"),
        (b"<x:Card\n a='1'>4711</x:Card >", b"<x:Card\n a='1'>***</x:Card >"),
        (b"<Card><a>1</a><b/></Card><Card>2</Card>", b"<Card>***</Card><Card>***</Card>"),
        (b"<Card><![CDATA[4711]]></Card>", b"<Card>***</Card>"),
        (b"<Card>4711 and the end is missing", b"<Card>***"),
        (b"<Card/><Cards>1</Cards><MyCard>2</MyCard>", b"<Card/><Cards>1</Cards><MyCard>2</MyCard>"),
        (b"--b\r\n\r\n<Card>1</Card>\r\n--b\r\n\r\n\xff\x00", b"--b\r\n\r\n<Card>***</Card>\r\n--b\r\n\r\n\xff\x00"),
        (b"", b""),
    ],
)  # fmt: skip
def test_elements(before: bytes, after: bytes) -> None:
    """The content of elements of that local name, in any namespace; the rest stays octet by octet."""
    masked = Mask(elements=["Card"]).apply(message(before))
    assert masked.message.body == after
    assert masked.what == (("element Card",) if before != after else ())
    assert not masked.is_cut


def test_passwords_are_hidden_anyway() -> None:
    """That of WS-Security, and properties that look like a secret's."""
    body = b"<w:UsernameToken><w:Password Type='t'>s3cr3t</w:Password></w:UsernameToken>"
    masked = Mask().apply(message(body, dbPassword="x", other="y"))
    assert b"s3cr3t" not in bytes(masked.message.body)  # type: ignore[arg-type]
    assert masked.what == ("property dbPassword", "element Password")
    assert [each.value for each in masked.message.properties] == ["***", "y"]


def test_properties() -> None:
    """By name; what is hidden is a string, whatever it was."""
    masked = Mask(properties=["customer"]).apply(message(XML, customer=4711, other=1))
    assert masked.message.properties[0] == ("customer", PropertyType.STRING, "***")
    assert (masked.message.properties[1].value, masked.message.body) == (1, XML)
    assert masked.what == ("property customer",)


def test_patterns() -> None:
    """Whatever they match, in bytes and in text; a record says which by their number."""
    mask = Mask(patterns=["none", r"\b\d{4}\b", "Jürgen"])
    masked = mask.apply(message("<a>Jürgen 4711</a>"))
    assert (masked.message.body, masked.what) == ("<a>*** ***</a>", ("pattern 2", "pattern 3"))


@pytest.mark.parametrize(
    ("pattern", "hidden"),
    [
        (r"Kunde: \w+ \w+", "<a>*** bezahlt 5 €</a>"),
        ("M.ller", "<a>Kunde: Jörg *** bezahlt 5 €</a>"),
        ("(?i)MÜLLER", "<a>Kunde: Jörg *** bezahlt 5 €</a>"),
        ("Mü{1,2}ller", "<a>Kunde: Jörg *** bezahlt 5 €</a>"),
        ("[€]", "<a>Kunde: Jörg Müller bezahlt 5 ***</a>"),
        (r"\d+\W€", "<a>Kunde: Jörg Müller bezahlt ***</a>"),
    ],
)
@pytest.mark.parametrize("kind", [str, bytes])
def test_patterns_match_characters(pattern: str, hidden: str, kind: type[str | bytes]) -> None:
    """Whatever their number of octets, so that a letter with an accent is a letter."""
    text = "<a>Kunde: Jörg Müller bezahlt 5 €</a>"
    masked = Mask(patterns=[pattern]).apply(message(text if kind is str else text.encode()))
    body = masked.message.body
    assert (body if isinstance(body, str) else bytes(body).decode(), masked.what) == (hidden, ("pattern 1",))


def test_patterns_leave_other_octets() -> None:
    """Octets that are no UTF-8, such as those of a picture, stay as they are."""
    body = b"--b\r\n\r\n<a>M\xc3\xbcller</a>\r\n--b\r\n\r\n\x89PNG\xff\xfe\xed\xa0\x80\r\n--b--"
    masked = Mask(patterns=[r"M\wller"]).apply(message(body))
    assert masked.message.body == body.replace(b"M\xc3\xbcller", b"***")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("shift", ["", "x"])
def test_patterns_in_a_part_in_another_encoding(encoding: str, shift: str) -> None:
    """At any place in the body, and beside parts that are no text."""
    before, after = f"--b\r\n\r\n{shift}".encode(), b"\r\n--b\r\n\r\n\x89PNG\xff\x00\xd8\x00\r\n--b--"
    masked = Mask(patterns=[r"\d{4}-\d{4}", "grün"]).apply(
        message(before + "<a>1234-5678 é grün</a>".encode(encoding) + after)
    )
    assert masked.message.body == before + "<a>*** é ***</a>".encode(encoding) + after
    assert masked.what == ("pattern 1", "pattern 2")


@pytest.mark.parametrize("charset", ["cp037", '"IBM500"'])
def test_a_part_in_an_encoding_that_is_not_searched(charset: str) -> None:
    """The body is left out, as one that is in such an encoding as a whole."""
    octets = "<Password>1234</Password>".encode(charset.strip('"'))
    head = f"--b\r\nContent-Type: text/xml;\r\n charset={charset}\r\n\r\n".encode()
    masked = Mask().apply(message(head + octets + b"\r\n--b--"))
    assert (masked.message.body, masked.is_cut) == (None, True)
    assert masked.what[-1].startswith("body: a part of it is in ")
    assert Mask().apply(message(b"x", note=f"\nContent-Type: a; charset={charset}")).what == ()


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8", "shift_jis", "windows-1252", "unknown", "base64", "UTF-16"])
def test_a_part_in_an_encoding_that_is_searched(charset: str) -> None:
    """In those of ASCII with more characters the names of elements are found."""
    head = f"--b\r\nContent-Type: text/xml; charset={charset}\r\n\r\n".encode()
    masked = Mask().apply(message(head + b"<Password>1234</Password>\r\n--b--"))
    assert masked.message.body == head + b"<Password>***</Password>\r\n--b--"


def test_nothing_to_hide_is_the_same_message() -> None:
    """Not a copy of it, and a view stays one."""
    plain = message(memoryview(XML))
    masked = Mask(elements=["Other"]).apply(plain)
    assert masked.message is plain
    assert (masked.what, masked.is_cut) == ((), False)


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-16-le", "\ufeff"), ("utf-16-be", "\ufeff"), ("utf-16-le", ""), ("utf-32-be", ""), ("utf-8", "\ufeff")],
)
def test_wide_encodings(encoding: str, mark: str) -> None:
    """They are looked into, and stay what they are."""
    text = mark + XML.decode()
    masked = Mask(elements=["Card"]).apply(message(text.encode(encoding)))
    assert masked.message.body == text.replace(" 4711 ", "***").encode(encoding)


def test_gzip_is_looked_into() -> None:
    """As the receiver would; without a hit it stays as it was."""
    packed = gzip.compress(XML)
    asked = message(packed, **{CONTENT_ENCODING: "gzip"})
    masked = Mask(elements=["Card"]).apply(asked)
    assert gzip.decompress(masked.message.body) == XML.replace(b" 4711 ", b"***")  # type: ignore[arg-type]
    assert Mask().apply(asked).message is asked


@pytest.mark.parametrize(
    ("body", "encoding", "why"),
    [
        (b"no gzip", "gzip", "body: "),
        (gzip.compress(bytes(1 << 28)), "gzip", "body: the gzip body of "),
        (XML, "zstd", "body: the encoding 'zstd' is not known"),
        (XML.decode().encode("cp037").replace(b"\x4c\x85", b"\x4c\x6f\xa7\x94", 1), None, "body: it is in ebcdic"),
        (b"\xff\xfe<", None, "body: 'utf-16"),
    ],
)
def test_what_cannot_be_looked_into_is_left_out(body: bytes, encoding: str | None, why: str) -> None:
    """Rather than let something pass."""
    asked = message(body, **({CONTENT_ENCODING: encoding} if encoding else {}))
    masked = Mask(elements=["Card"]).apply(asked)
    assert masked.is_cut
    assert masked.message.body is None
    assert masked.what[0].startswith(why)


def test_other_messages_stay() -> None:
    """A message without body, and bodies of entries."""
    for each in (message(None), replace(message(None), message_type=MessageType.MAP, body=Properties())):
        assert Mask().apply(each).message is each


@pytest.mark.parametrize(
    "given", [{"elements": ["a:b"]}, {"elements": [""]}, {"elements": ["a/b"]}, {"patterns": ["("]}]
)
def test_what_cannot_be_asked_for(given: dict[str, list[str] | str]) -> None:
    """It is refused at once."""
    with pytest.raises(UsageError, match="must be a"):
        Mask(**given)


@pytest.mark.parametrize("argument", ["properties", "elements", "patterns"])
@pytest.mark.parametrize("given", ["CardNumber", b"CardNumber", 5, None, [5]])
def test_rules_are_lists(argument: str, given: Any) -> None:
    """A single string would count as its characters, and the card number would be in the log."""
    with pytest.raises(UsageError, match=f"{argument} must be a list of strings, got "):
        Mask(**{argument: given})


@pytest.mark.parametrize(
    "piece",
    [
        b"&lt;Card",
        b"&lt;Card ",
        b"&lt;Card&gt;",
        b"&lt;/Card&gt;",
        b"&amp;",
        b"amp;",
        b"<Card",
        b"<Card ",
        b"<Card>",
        b"<a:Card",
        b"</Card>",
        b"<Card/>",
        b"<aaaaaaaa",
        b"<",
    ],
)
def test_hostile_bodies_take_linear_time(piece: bytes) -> None:
    """Beginnings without an end are looked at once."""
    mask, seconds = Mask(elements=["Card"]), []
    for size in (1 << 17, 1 << 20):
        body = message(piece * (size // len(piece)))
        begun = time.process_time()
        mask.apply(body)
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 5, seconds
