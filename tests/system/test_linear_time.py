"""Whatever reads what a peer wrote takes time in proportion to its length, however the octets are chosen.

Fifty thousand octets of the same few take milliseconds; a pattern that looks at them again from each place takes
minutes. The limit is between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from protocol_kit import changed, started

from brokers.smqp.protocol.commands import parse_command
from brokers.smqp.protocol.replies import RefusedError
from soapjms.protocol import xml
from soapjms.protocol.assertions import Setting
from soapjms.protocol.content import charset_disagreement, document_encoding, parse_content_type
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import from_json
from soapjms.protocol.responding import RespondingNode
from soapjms.protocol.uri import Mode, parse

LENGTH = 50_000
MOST_SECONDS = 1.0
"""Processor time, also of a slow machine."""
TRIES = 3
"""So often is looked, as now and then what Python collects of other tests counts too."""

UNITS = (
    *("x", " ", "\t", "\r\n", "=", ":", ";", ",", "/", "\\", "'", '"', "(", ")", "&", "%", "%41", "-", "--", "]", "?"),
    *("<", ">", "x=", "x= ", "a='", 'a="b', "x ", "a:", "<!--", "<?", "<a/>", "<a>", "<![CDATA[", "&amp;", ";a=b"),
    *('"x"', "\\(", "()", "\r\n ", "a:b\r\n", "\r\n--b", "--b\r\n", "--b--", "\n\n", "{", "[", '{"a":', "é"),
)


def answer(body: bytes | str, content_type: str = "text/xml", uri: str = "jms:queue:q", **values: str) -> None:
    """Send a request with all that to a responding node."""
    _, message = started()
    message = changed(message, contentType=content_type, requestURI=uri, **values)
    RespondingNode(Setting()).receive(replace(message, body=body))


def read_record(text: str) -> None:
    """Read a line of a capture log."""
    with pytest.raises(InvalidRecordError):
        from_json(text)


def read_document(text: str) -> None:
    """Parse a document."""
    try:
        xml.parse(text.encode())
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either outcome is right


def read_command(text: str) -> None:
    """Read a line of an SMQP client."""
    with suppress(RefusedError):
        parse_command(text)


def tell_encoding(text: str) -> None:
    """Tell the encoding of a document, and compare it with a charset."""
    try:
        document_encoding(text.encode())
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either outcome is right
    charset_disagreement(text, b"<e/>")
    charset_disagreement("utf-8", text.encode())


MULTIPART = 'multipart/related; boundary=b; type="text/xml"'
READERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "a document": (
        read_document,
        (
            *("{}", "<{}", "<e {}/>", '<e a="{}"/>', "<e>{}</e>", "<e><![CDATA[{}]]></e>", "<!--{}--><e/>"),
            "<e><!DOCTYPE{}</e>",
        ),
    ),
    "an encoding": (tell_encoding, ("{}", "<?xml {}?><e/>", "<?xml version='1.0' encoding='{}'?><e/>")),
    "a content type": (
        parse_content_type,
        ("{}", "text/xml{}", "text/xml; {}", "text/xml; a={}", 'text/xml; a="{}', "({}"),
    ),
    "a URI": (
        lambda text: [parse(text, mode) for mode in Mode],
        ("{}", "jms:{}", "jms:queue:{}", "jms:queue:q?{}", "jms:queue:q?a={}", "jms:jndi:q?jndi-a={}&b"),
    ),
    "a record": (read_record, ("{}", '{{"v":1,"x":"{}"}}', '{{"v":1,"x":{}')),
    "a multipart body": (
        lambda text: [answer(body, MULTIPART) for body in (text, text.encode())],
        (
            *("{}", "--b\r\n{}", "--b\r\n\r\n{}\r\n--b--", "--b\r\n{}\r\n\r\n<e/>\r\n--b--"),
            "--b\r\nContent-Type: {}\r\n\r\n<e/>\r\n--b--",
        ),
    ),
    "an SMQP command": (
        read_command,
        (
            *("{}", "GET MESSAGE /t 1{}1", "CREATE TOPIC /t ({})", "CREATE TOPIC /t{} > /u", "SUB MESSAGE /t {}"),
            *("LOGIN {} CLEAR/1.0", "PASS a {}", "SET LOGIN NAME {}", "PUB MESSAGE /t {}"),
        ),
    ),
    "properties": (
        lambda text: answer(b"<e/>", text, text, soapAction=text, isFault=text, contentEncoding=text),
        ("{}", 'multipart/related; boundary="{}"', "application/soap+xml; action={}"),
    ),
}


def seconds(read: Callable[[str], object], text: str) -> float:
    """Read, and tell the processor time that it took."""
    began = time.process_time()
    read(text)
    return time.process_time() - began


@pytest.mark.parametrize(
    ("read", "shape"),
    [pytest.param(read, shape, id=f"{name} {shape!r}") for name, (read, shapes) in READERS.items() for shape in shapes],
)
def test_time_is_in_proportion(read: Callable[[str], object], shape: str) -> None:
    """No choice of octets makes a reader look at them again and again."""
    for unit in UNITS:
        text = shape.format(unit * (LENGTH // len(unit)))
        assert any(seconds(read, text) < MOST_SECONDS for _ in range(TRIES)), unit
