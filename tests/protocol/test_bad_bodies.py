"""Bad input, each kind through both nodes: refused with the reason, in bounded time and memory, and nothing escapes."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from protocol_kit import changed, delivered, envelope, started

from brokers.message import Message, MessageType, properties, queue, topic
from soapjms.protocol.assertions import Setting, VerdictOutcome, judge
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.limits import MIB, Limits
from soapjms.protocol.names import CR_2009, EDITIONS, REC_2012, Mep, Profile
from soapjms.protocol.record import EPOCH, Direction, Record
from soapjms.protocol.requesting import ExchangeFailed, ResponseReceived, findings
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

SECONDS = 5.0
"""Of processor time, on a machine that does other things too."""

MULTIPART = 'multipart/related; boundary=b; type="text/xml"; start="<root>"'
ROOT = b"Content-Type: text/xml\r\nContent-ID: <root>\r\n\r\n"


def around(content: str | bytes, head: bytes = b"") -> bytes:
    """Write an envelope with some content of its body, after something else."""
    octets = content.encode() if isinstance(content, str) else content
    before, after = envelope(text="!").split(b"!")
    return head + before + octets + after


def parts(*others: bytes, root: bytes = envelope()) -> bytes:
    """Write a multipart body."""
    return b"".join(b"--b\r\n" + each + b"\r\n" for each in (ROOT + root, *others)) + b"--b--"


def bomb(size: int) -> bytes:
    """Write a gzip body that grows to so many mebibytes, a thousandfold, without growing it here."""
    machine = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = machine.compress(b"") + machine.flush(zlib.Z_FULL_FLUSH)
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    return head + (block.compress(bytes(MIB)) + block.flush(zlib.Z_FULL_FLUSH)) * size


ENTITIES = "".join(f"<!ENTITY a{at} '{f'&a{at - 1};' * 10}'>" for at in range(1, 12))
ENTITY_BOMB = f"<!DOCTYPE e [<!ENTITY a0 'lol'>{ENTITIES}]>".encode()
GZIP = {"contentEncoding": "gzip"}
PARTS = {"contentType": MULTIPART}

BAD: dict[str, tuple[Callable[[], Any], dict[str, Any], str, str | None]] = {
    "truncated XML": (lambda: envelope()[:-5], {}, "not well-formed", None),
    "no XML": (lambda: b"nothing", {}, "no XML|not well-formed", None),
    "empty": (lambda: b"", {}, "not well-formed|begins with", None),
    "DTD": (lambda: around("", b"<!DOCTYPE e>"), {}, "DOCTYPE", None),
    "entity bomb": (lambda: around("&a11;", ENTITY_BOMB), {}, "DOCTYPE", None),
    "entity bomb in an attribute": (lambda: around("<x a='&a11;'/>", ENTITY_BOMB), {}, "DOCTYPE", None),
    "external entity": (
        lambda: around("&x;", f"<!DOCTYPE e [<!ENTITY x SYSTEM '{Path(__file__).as_uri()}'>]>".encode()),
        {},
        "DOCTYPE",
        None,
    ),
    "external subset": (lambda: around("", b"<!DOCTYPE e SYSTEM 'http://127.0.0.1:9/'>"), {}, "DOCTYPE", None),
    "100,000 nested elements": (lambda: around("<x>" * 100_000 + "</x>" * 100_000), {}, "limit depth", "depth"),
    "10,000 attributes": (
        lambda: around("<x" + "".join(f" a{each}=''" for each in range(10_000)) + "/>"),
        {},
        "limit attributes",
        "attributes",
    ),
    "10,000 namespaces": (
        lambda: around("<x" + "".join(f" xmlns:a{each}='u'" for each in range(10_000)) + "/>"),
        {},
        "limit attributes",
        "attributes",
    ),
    "a million elements": (lambda: around("<x/>" * 1_000_000), {}, "limit elements", "elements"),
    "a name of a megabyte": (lambda: around("<" + "x" * MIB + "/>"), {}, "limit name", "name"),
    "a text of 33 megabytes": (lambda: around("x" * (33 * MIB)), {}, "limit text", "text"),
    "101 megabytes": (lambda: around("<x>" + " " * (101 * MIB) + "</x>"), {}, "limit size", "size"),
    "gzip bomb of 1 GiB": (lambda: bomb(1024), GZIP, "limit unpacked", "unpacked"),
    "gzip bomb of 50 MiB": (lambda: bomb(50), GZIP, "limit ratio", "ratio"),
    "gzip of a million members": (lambda: gzip.compress(b"") * 1_000_000, GZIP, "limit members", "members"),
    "gzip that is none": (lambda: envelope(), GZIP, "no gzip", None),
    "gzip that is cut": (lambda: gzip.compress(envelope())[:-1], GZIP, "cut short", None),
    "gzip of something else": (lambda: gzip.compress(b"nothing"), GZIP, "no XML|not well-formed|begins", None),
    "no boundary": (parts, {"contentType": "multipart/related; type='text/xml'"}, "without a boundary", None),
    "another boundary": (parts, {"contentType": MULTIPART.replace("=b", "=c")}, "not with the delimiter", None),
    "the closing boundary missing": (lambda: parts()[:-2], PARTS, "closing delimiter", None),
    "a boundary in the data": (lambda: parts(root=around("\r\n--b\r\n")), PARTS, "not well-formed", None),
    "10,000 parts": (lambda: parts(*[b"\r\nx"] * 10_000), PARTS, "limit parts", "parts"),
    "10,000 header fields": (
        lambda: parts(b"A: b\r\n" * 10_000 + b"\r\n"),
        PARTS,
        "limit header_octets",
        "header_octets",
    ),
    "100 header fields": (lambda: parts(b"A: b\r\n" * 100 + b"\r\n"), PARTS, "limit part_headers", "part_headers"),
    "a part without an envelope": (lambda: parts(root=b"<x/>"), PARTS, "no SOAP envelope", None),
    "a part in an unknown transfer encoding": (
        lambda: b"--b\r\nContent-Type: text/xml\r\nContent-Transfer-Encoding: x\r\n\r\n<x/>\r\n--b--",
        PARTS,
        "Content-Transfer-Encoding is 'x'",
        None,
    ),
    "an unknown charset": (envelope, {"contentType": "text/xml; charset=x-klingon"}, "x-klingon", None),
    "an unknown declared encoding": (
        lambda: around("", b"<?xml version='1.0' encoding='x-klingon'?>"),
        {"contentType": "text/xml"},
        "x-klingon",
        None,
    ),
    "UTF-7": (
        lambda: b"<?xml version='1.0' encoding='UTF-7'?>" + envelope(),
        {"contentType": "text/xml"},
        "UTF-7|utf-7",
        None,
    ),
    "no body": (lambda: None, {}, "is null", None),
}
PROPERTIES: list[dict[str, Any]] = [
    {"bindingVersion": 1},
    {"bindingVersion": 1.0},
    {"bindingVersion": True},
    {"contentType": 7},
    {"contentType": True},
    {"requestURI": -1},
    {"contentEncoding": 3},
    {"soapAction": 2.5},
    {"targetService": False},
    {"isFault": "perhaps"},
]


def bounded(action: Callable[[], Any]) -> Any:
    """Do something, and see that it takes neither time nor memory beyond its limits."""
    tracemalloc.start()
    started_at = process_time()
    try:
        result = action()
        assert process_time() - started_at < SECONDS
        assert tracemalloc.get_traced_memory()[1] < 300 * MIB
    finally:
        tracemalloc.stop()
    return result


def bad(name: str, message: Message) -> Message:
    """Put bad input into a message."""
    make, values, _, _ = BAD[name]
    return changed(replace(message, body=make()), **values)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("profile", [REC_2012, CR_2009], ids=lambda each: each.name)
def test_requests(name: str, profile: Profile) -> None:
    """A responding node refuses it with the reason, a limit by its name, and can answer with the fault."""
    _, request = started()
    message, setting = bad(name, request), Setting(profile=profile)
    _, values, why, limit = BAD[name]
    node = RespondingNode(setting)
    event = bounded(lambda: node.receive(message))
    if values == GZIP and profile is CR_2009:  # which does not know the property, and takes what is there
        assert isinstance(event, RequestAccepted if message.body == envelope() else RequestRefused)
    else:
        assert isinstance(event, RequestRefused)
        assert (event.excess.limit if event.excess else None) == limit
        assert any(each in event.reason for each in why.split("|"))
    if isinstance(event, RequestRefused):
        assert isinstance(node.respond(event.fault).body, bytes)
        fault = read_fault(as_envelope(event.fault))
        assert fault is not None
        assert fault.reason
        assert fault.subcode == event.subcode


@pytest.mark.parametrize("name", BAD)
def test_responses(name: str) -> None:
    """A requesting node ends its exchange with the reason."""
    client, request = started()
    service = RespondingNode(Setting())
    service.receive(request)
    message = bad(name, delivered(service.respond(envelope())))
    event = bounded(lambda: client.receive(message))
    if isinstance(event, ResponseReceived):  # what the charset says does not matter where the octets tell
        assert name == "an unknown charset"
        return
    assert isinstance(event, ExchangeFailed)
    assert event.reason == "receptionFailure"
    assert event.text


@pytest.mark.parametrize("name", [name for name, (_, _, _, limit) in BAD.items() if limit])
def test_what_was_not_read_is_not_judged(name: str) -> None:
    """A body beyond a limit of ours breaks no rule of the specification: what rests on it could not be judged."""
    _, request = started()
    record = Record(message=bad(name, request), time=EPOCH, direction=Direction.REQUEST)
    exchange = Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=record)
    verdicts = list(judge(exchange, Setting()))
    assert VerdictOutcome.FAILED not in {each.outcome for each in verdicts}
    missing = [each.reason for each in verdicts if each.outcome is VerdictOutcome.MISSING_INPUT]
    assert "the capture lacks the whole body, within the limits of the reader" in missing


@pytest.mark.parametrize("values", PROPERTIES, ids=str)
@pytest.mark.parametrize("strict", [False, True])
def test_properties_of_the_wrong_type(values: dict[str, Any], strict: bool) -> None:
    """A property of another type is read as text, and refused or taken as that text would be."""
    _, request = started()
    as_text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    events = [RespondingNode(Setting(strict=strict)).receive(changed(request, **each)) for each in (values, as_text)]
    assert len({type(each) for each in events}) == 1
    assert len({each.subcode for each in events if isinstance(each, RequestRefused)}) <= 1


LONG = "k" * 100_000
LONG_PROPERTIES: list[dict[str, Any]] = [
    {"bindingVersion": LONG},
    {"contentType": LONG},
    {"contentType": f"a/{LONG}"},
    {"contentType": f"text/xml; charset={LONG}"},
    {"contentType": f'application/soap+xml; action="{LONG}"', "soapAction": LONG + LONG},
    {"contentEncoding": LONG},
    {"requestURI": f"jms:queue:%zz{LONG}"},
    {"requestURI": f"jms:{LONG}:in"},
    {"requestURI": f"jms:queue:in?targetService={LONG}"},
    {"requestURI": "jms:queue:in?" + "&".join(["targetService=s"] * 10_000)},
]


@pytest.mark.parametrize("values", LONG_PROPERTIES, ids=lambda each: str(each)[:60])
def test_a_reason_is_short(values: dict[str, Any]) -> None:
    """What a peer wrote is cut where a reason shows it: neither the log nor the fault grows with it."""
    event = RespondingNode(Setting()).receive(changed(started()[1], **values))
    assert isinstance(event, RequestRefused)
    assert len(event.reason) < 1000


FORGED = 'x\r\nERROR all is lost \x1b[2J\u202e\u2028"'
"""What a reason must not show as it stands: a line of its own in a log, what a terminal acts on."""
QUOTED = FORGED.replace('"', '\\"')
FORGED_PROPERTIES: list[dict[str, Any]] = [
    {"bindingVersion": FORGED},
    {"contentType": FORGED},
    {"contentType": f'text/xml; charset="{QUOTED}"'},
    {"contentType": f'multipart/related; boundary="{QUOTED}"; type="text/xml"'},
    {"contentType": f'application/soap+xml; action="{QUOTED}"', "soapAction": "a"},
    {"contentEncoding": FORGED},
    {"requestURI": f"jms:queue:{FORGED}"},
    {"requestURI": f"jms:{FORGED}:in"},
    {"requestURI": f"jms:queue:in?targetService=a&jndi-{FORGED}=b"},
]


@pytest.mark.parametrize("profile", EDITIONS.values(), ids=list(EDITIONS))
@pytest.mark.parametrize("values", FORGED_PROPERTIES, ids=lambda each: str(each)[:60])
def test_a_reason_is_one_line(values: dict[str, Any], profile: Profile) -> None:
    """What a peer wrote is no line of its own in a log, and nothing that a terminal acts on, whatever the rule."""
    message = changed(started()[1], **values)
    text = replace(message, message_type=MessageType.TEXT, body=str(message.body, "utf-8"))
    response = changed(delivered(replace(started()[1], reply_to=None)), isFault=FORGED, **values)
    for each in (message, text):
        event = RespondingNode(Setting(profile=profile, strict=True)).receive(each)
        assert not isinstance(event, RequestRefused) or event.reason.isprintable()
        reasons = [verdict.reason or "" for verdict in findings(each, response, Setting(profile=profile))]
        assert reasons
        assert [reason for reason in reasons if not reason.isprintable()] == []


FORGED_DOCUMENTS: dict[str, str] = {
    "what libxml2 repeats": "<e xmlns:b='x&#10;ERROR y'><f></e>",
    "the root element": "<e xmlns='urn:&#10;ERROR'/>",
    "an entity without end": "<e>&" + "x" * 100_000 + ";</e>",
}


@pytest.mark.parametrize("name", FORGED_DOCUMENTS)
def test_a_reason_out_of_a_body_is_one_line(name: str) -> None:
    """So it is for what the body says, and short."""
    event = RespondingNode(Setting()).receive(replace(started()[1], body=FORGED_DOCUMENTS[name].encode()))
    assert isinstance(event, RequestRefused)
    assert event.reason.isprintable()
    assert len(event.reason) < 1000


def test_where_to_reply_and_what_to_repeat_are_one_line() -> None:
    """Destinations, ids and the subcode of a fault are what a peer wrote too."""
    _, request = started(correlation_id="a")
    request = replace(request, reply_to=queue("r\nERROR"), correlation_id="c\nERROR")
    body = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><e:Fault>'
        f'<faultcode xmlns:s="{REC_2012.namespace}">s:no&#10;ERROR</faultcode></e:Fault></e:Body></e:Envelope>'
    )
    response = replace(request, body=body.encode(), destination=topic("t\nERROR"), correlation_id="d\nERROR")
    reasons = {each.assertion: each.reason or "" for each in findings(request, response, Setting())}
    assert {"Protocol-2037", "Protocol-2038", "Local-2.8-shape", "Local-2.8-cause"} <= set(reasons)
    assert [each for each in reasons.values() if not each.isprintable()] == []
    one_way = Setting(mep=Mep.ONE_WAY)
    (broken,) = (each for each in findings(request, response, one_way) if each.assertion == "Protocol-2051")
    assert (broken.reason or "").isprintable()


@pytest.mark.parametrize("kind", [MessageType.MAP, MessageType.STREAM, MessageType.OBJECT, MessageType.MESSAGE])
@pytest.mark.parametrize("body", [None, properties({"a": 1}), b"\xac\xed", ()])
def test_other_messages(kind: MessageType, body: Any) -> None:
    """Other messages are unsupportedJMSMessageFormat, whatever is in them."""
    event = RespondingNode(Setting()).receive(replace(started()[1], message_type=kind, body=body))
    assert isinstance(event, RequestRefused)
    assert event.subcode == "unsupportedJMSMessageFormat"


def test_a_loop_of_references() -> None:
    """References to the SOAP part itself are found by who follows them, and end there."""
    include = '<x:Include xmlns:x="http://www.w3.org/2004/08/xop/include" href="cid:root"/>'
    message = changed(replace(started()[1], body=parts(root=around(include))), **PARTS)
    event = RespondingNode(Setting()).receive(message)
    assert isinstance(event, RequestAccepted)
    with pytest.raises(InvalidAttachmentError, match="a loop"):
        event.attachments.expand(event.envelope.root)


MULTIPART_WITH_FIELDS = parts(b"A: b\r\nC: d\r\nE: f\r\n\r\nx")
AT_LIMITS: dict[str, tuple[str, int, bytes | str, dict[str, Any]]] = {
    "octets": ("size", len(envelope()), envelope(), {}),
    "characters": ("size", len(envelope().decode()), envelope().decode(), {}),
    "unpacked octets": ("unpacked", len(envelope()), gzip.compress(envelope()), GZIP),
    "members": ("members", 2, gzip.compress(envelope()[:9]) + gzip.compress(envelope()[9:]), GZIP),
    "parts": ("parts", 3, parts(b"\r\nx", b"\r\ny"), PARTS),
    "header fields": ("part_headers", 3, MULTIPART_WITH_FIELDS, PARTS),
    "octets of header fields": ("header_octets", len(ROOT.rstrip()), MULTIPART_WITH_FIELDS, PARTS),
}


@pytest.mark.parametrize("name", AT_LIMITS)
def test_at_the_limit_and_one_more(name: str) -> None:
    """At a limit a message is accepted, one more of it is refused by the limit's name; of markup see test_limits."""
    limit, allowed, body, values = AT_LIMITS[name]
    message = changed(replace(started()[1], body=body), **values)
    if isinstance(body, str):
        message = replace(message, message_type=MessageType.TEXT)
    event = RespondingNode(Setting(limits=Limits(**{limit: allowed}))).receive(message)
    assert isinstance(event, RequestAccepted), event
    refused = RespondingNode(Setting(limits=Limits(**{limit: allowed - 1}))).receive(message)
    assert isinstance(refused, RequestRefused)
    assert refused.excess is not None
    assert refused.excess.limit == limit


def test_a_setting_has_limits_of_its_own() -> None:
    """What a user allows is allowed."""
    message = bad("100,000 nested elements", started()[1])
    assert isinstance(message.body, bytes)
    message = replace(message, body=around("<x>" * 500 + "</x>" * 500))
    event = RespondingNode(Setting(limits=Limits(depth=503))).receive(message)
    assert isinstance(event, RequestAccepted)
    refused = RespondingNode(Setting(limits=Limits(depth=502))).receive(message)
    assert isinstance(refused, RequestRefused)
    assert refused.excess is not None
    assert (refused.excess.limit, refused.excess.allowed) == ("depth", 502)
