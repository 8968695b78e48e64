"""Multipart messages under attack: many references to many parts take no longer than their number."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from bridge_kit import ask, listening, multipart
from calling_kit import NS, PATIENCE, SOAP_11, element, envelope, eventually
from lxml import etree

import soapjms
from brokers.embedded import Broker
from soapjms import Dispatcher, Service
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.attachments.parts import MAX_BASE_CHARACTERS, XOP_INCLUDE, Part
from soapjms.protocol.content import ANY_RATIO
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.limits import DEFAULT_LIMITS

ROOT = Part({"content-location": "http://bank.example/a/envelope.xml"}, memoryview(b"<e/>"))


def message(parts: int, includes: int, root: Part = ROOT) -> tuple[Attachments, etree._Element]:
    """Make parts that are found by Content-Location, and an element with references to the last of them."""
    held = [Part({"content-location": f"{n}.png", "content-id": f"{n}@x"}, memoryview(b"")) for n in range(parts)]
    envelope = etree.Element("all")
    for _ in range(includes):
        etree.SubElement(etree.SubElement(envelope, "each"), XOP_INCLUDE, href=f"{parts - 1}.png")
    return Attachments(held, root), envelope


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time that something takes at best."""
    taken = []
    for _ in range(3):
        began = process_time()
        work()
        taken.append(process_time() - began)
    return min(taken)


def find_all(attachments: Attachments, root: etree._Element) -> None:
    """Look each reference up, as whoever reads the element does."""
    for each in root.iter(XOP_INCLUDE):
        assert attachments.find(each.get("href", "")) is not None


def test_time_does_not_grow_with_the_parts() -> None:
    """As many references take as long with fifty parts as with two."""
    few, many = (message(n, 5_000) for n in (2, DEFAULT_LIMITS.parts))
    assert seconds(lambda: find_all(*many)) < 5 * seconds(lambda: find_all(*few))


@pytest.mark.parametrize("length", [MAX_BASE_CHARACTERS, DEFAULT_LIMITS.header_octets])
def test_a_long_base(length: int) -> None:
    """A base that takes long to resolve a reference by is none."""
    base = ("http://x/" + "a/" * length)[:length]
    attachments, root = message(2, 5_000, Part({"content-location": base}, memoryview(b"<e/>")))
    assert seconds(lambda: find_all(attachments, root)) < 2


def test_first_of_several() -> None:
    """Of several parts of one name the first counts, by whichever form of its name it is found."""
    one, other = (Part({"content-id": each, "content-location": "a"}, memoryview(b"")) for each in ("a%41", "aA"))
    assert Attachments([one, other]).find("cid:a%41") is one
    assert Attachments([other, one]).find("cid:a%41") is other
    assert Attachments([one, other], ROOT).find("a") is one
    assert Attachments([one]).find("cid:b") is None
    assert Attachments([Part({}, memoryview(b""))]).find("b") is None
    assert Attachments([one], Part({}, memoryview(b""))).find("c") is None


def test_a_small_message_does_not_become_a_large_one() -> None:
    """Many references to one part bring in so many times the size of the message, however much any message may have."""
    part = Part({"content-id": "x"}, memoryview(bytes(20_000)))
    root = Part({"content-id": "root"}, memoryview(bytes(10_000)))
    allowed = DEFAULT_LIMITS.ratio * 30_000
    assert ANY_RATIO < allowed < DEFAULT_LIMITS.unpacked

    def expanded(times: int) -> etree._Element:
        found = etree.Element("all")
        for _ in range(times):
            etree.SubElement(etree.SubElement(found, "each"), XOP_INCLUDE, href="cid:x")
        return Attachments([part], root).expand(found)

    assert len(expanded(allowed // 20_000)) == allowed // 20_000
    with pytest.raises(InvalidAttachmentError, match=f"more than {allowed} octets"):
        expanded(allowed // 20_000 + 1)


def test_service_and_bridge_go_on() -> None:
    """References without end, to a service that looks at all of them: it is refused or answered in time, or the bridge
    answers 504; whatever it was, the work on it ends, and the next call is answered."""
    looked = list[int]()

    def verify(request: soapjms.Request, security: etree._Element | None) -> str:
        try:
            request.attachments.expand(request.envelope.root)
        finally:
            looked.append(1)
        return "ann"

    service = Service(verify=verify)

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: soapjms.Request) -> etree._Element:
        return element("said", f"Hello {request.identity}")

    include = b'<x:Include xmlns:x="http://www.w3.org/2004/08/xop/include" href="49.png"/>'
    asked = envelope("@").replace(b"@", b"".join(b"<a>" + include + b"</a>" for _ in range(30_000)))
    parts = [(f"Content-Location: http://x/{n}.png\r\nContent-ID: <{n}>", b"x" * 1000) for n in range(48)]
    kind = f'application/xop+xml; charset=UTF-8; type="{SOAP_11.media_type}"'
    body, media_type = multipart(asked, *parts, kind=kind)
    media_type += f'; type="application/xop+xml"; start-info="{SOAP_11.media_type}"'
    with (
        Broker().connect() as connection,
        Dispatcher(connection, "jms:queue:greeter", service, workers=1),
        listening(connection, "jms:queue:greeter", timeout=0.3) as (bridge, listener),
    ):
        for _ in range(5):
            assert ask(listener, body, media_type).status in (200, 400, 500, 504)
        eventually(lambda: bridge.under_way == 0, "nothing is under way")
        began = process_time()
        eventually(lambda: ask(listener, envelope()).status == 200, "the next call is answered")
        assert process_time() - began < PATIENCE / 2
    assert looked
