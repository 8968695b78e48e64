"""A captured message in forms to copy: as text, as a capture record, as a `soapjms call`, as Markdown for a ticket.

All content of a log is untrusted. No copy has a character that a terminal would act on; in the command everything is
quoted for a shell, and in Markdown everything stands in code that its content cannot end.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from brokers.message import Message, MessageType, Property, as_text
from soapjms.protocol.content import ContentType, parse_content_type
from soapjms.protocol.errors import SoapJmsError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import CONTENT_TYPE, PROFILES, Mep, Profile
from soapjms.protocol.properties import EXCLUDED, resolve
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record, body_to_json
from soapjms.protocol.requesting import Endpoint, RequestingNode
from soapjms.protocol.text import named, shown
from soapjms.protocol.uri import build, parse, visible
from soapjms.replay.differences import Difference, Piece
from soapjms.replay.excerpts import jms_headers, value_text
from soapjms.replay.report.remedies import STACKS, Remedy, RuleText

MAX_BODY_OCTETS: Final = 1 << 16
"""Maximum number of octets or characters of a body in a copy."""


# As text


def raw_text(record: Record, most: int = MAX_BODY_OCTETS) -> str:
    """Return a message as lines of headers, lines of properties, and its body, as far as it has them.

    An empty line is between them.

    Control characters are shown as escapes, octets that are not UTF-8 too.

    Args:
        record: the captured message.
        most: maximum number of octets or characters of the body.
    """
    message = record.message
    headers = [f"{name}: {visible(value)}" for name, value in jms_headers(message) if value is not None]
    properties = [f"{visible(each.name)}: {visible(value_text(each.value))}" for each in message.properties]
    parts = ("\n".join(lines) for lines in (headers, properties, _body_lines(record, most)))
    return "\n\n".join(filter(None, parts))


def _body_lines(record: Record, most: int) -> Iterator[str]:
    body = record.message.body
    if isinstance(body, str | bytes | memoryview):
        text = body[:most] if isinstance(body, str) else bytes(body[:most]).decode("utf-8", "backslashreplace")
    else:
        text = "" if body is None else json.dumps(body_to_json(body))[:most]
    yield from map(visible, text.split("\n"))
    left = record.message.size - most
    if isinstance(body, str | bytes | memoryview) and left > 0:
        yield f"… ({left} more {'characters' if isinstance(body, str) else 'octets'})"
    if record.truncated:
        yield "… (the body was cut when it was captured)"


# As a command


class CallCommand(NamedTuple):
    """A command line that sends a request again.

    Attributes:
        line: the line for a POSIX shell; empty if there is none. It takes the broker from SOAPJMS_CONNECTION.
        lost: what it does otherwise than the request, or why there is none.
    """

    line: str
    lost: tuple[str, ...]


IDS: Final = "JMSMessageID, JMSCorrelationID and JMSTimestamp are new for each call, and so is a temporary reply queue"
PLAIN: Final = re.compile(r"[\x20-\x7e\n]*")
"""A text that can be typed into a shell: in quotes, with line breaks."""


def call_command(record: Record, profile: Profile, limits: Limits = DEFAULT_LIMITS) -> CallCommand:
    """Return the `soapjms call` that comes nearest to a captured request or one-way message.

    Args:
        record: the request, or the one-way message.
        profile: the edition or dialect of the specification; another one is chosen where it writes more of the same.
        limits: the limits for reading the body.
    """
    message = record.message
    if record.truncated:
        return CallCommand("", ("the body was cut when it was captured",))
    if message.message_type not in (MessageType.BYTES, MessageType.TEXT):
        return CallCommand("", (f"soapjms call sends no message of the type {message.message_type}",))
    if message.destination is None or not message.destination.name:
        return CallCommand("", ("the capture does not show the name of the destination",))
    reading = Reading.of(record, profile, limits)
    try:
        envelope, uri = _envelope_of(reading), _uri_of(reading)
        made = [(_made(reading, envelope, uri, each), each) for each in (profile, *PROFILES.values())]
    except (SoapJmsError, ValueError) as error:
        return CallCommand("", (f"soapjms call does not send this request: {named(error)}",))
    lost, chosen = min(((_lost(message, one, reading), each) for one, each in made), key=lambda each: len(each[0]))
    words = ["soapjms", "call", "-", "--uri", uri, "--profile", chosen.name, *_options(reading)]
    line = f"{_printed(envelope)} | {' '.join(map(shlex.quote, words))}"
    return CallCommand(line, (*lost, IDS))


def _envelope_of(reading: Reading) -> bytes:
    """Return the envelope as octets that a program can be given.

    Raises:
        ValueError: the body cannot be read, or is too long to be typed.
    """
    envelope = reading.body if reading.soap_part is None else reading.soap_part.document
    if envelope is None:
        raise ValueError(reading.body_problem)
    octets = envelope if isinstance(envelope, bytes) else envelope.encode("utf-8", "surrogatepass")
    if len(octets) > MAX_BODY_OCTETS:
        raise ValueError(f"an envelope of {len(octets)} octets is too long for a command line")
    return octets


def _uri_of(reading: Reading) -> str:
    """Write the URI of the destination, with the parameters of the request and what its headers come to."""
    message, stated = reading.message, reading.request_uri
    place = message.destination
    assert place is not None
    values: list[tuple[str, str]] = []
    if stated is not None and stated.destination == place.name:
        kept = (each for each in stated.parameters if each.name not in EXCLUDED and not each.is_secret)
        values = [(each.name, each.value or "") for each in kept if not each.name.startswith("jndi-")]
    return build("topic" if place.kind.is_topic else "queue", place.name or "", [*values, *_settings(reading)])


def _settings(reading: Reading) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a URI by which a sender sets the headers and the target service of a message."""
    message, reply = reading.message, reading.message.reply_to
    if message.delivery_mode is not None:
        yield "deliveryMode", "NON_PERSISTENT" if message.delivery_mode == 1 else "PERSISTENT"
    if message.priority is not None and 0 <= message.priority <= 9:
        yield "priority", str(message.priority)
    if message.expiration == 0:
        yield "timeToLive", "0"  # else the request of a call expires when the call stops waiting
    elif message.expiration and message.timestamp and message.expiration > message.timestamp:
        yield "timeToLive", str(message.expiration - message.timestamp)
    if reply is not None and reply.name and not reply.kind.is_temporary:
        yield "topicReplyToName" if reply.kind.is_topic else "replyToName", reply.name
    if service := reading.described.target_service:
        yield "targetService", service


def _made(reading: Reading, envelope: bytes, uri: str, profile: Profile) -> Message:
    """Return the message that the command sends."""
    message, parsed = reading.message, parse(uri)
    environment = {"contentEncoding": "gzip"} if _is_compressed(reading) and profile.content_encodings else {}
    endpoint = Endpoint.of(parsed, resolve(parsed, environment), profile, message.message_type)
    node = RequestingNode(endpoint, Mep.ONE_WAY if message.reply_to is None else Mep.REQUEST_RESPONSE)
    assert message.destination is not None
    return node.start(
        envelope,
        destination=message.destination,
        now=message.timestamp or 0,
        soap_action=_action(reading),
        correlation_id=None if message.reply_to is None else "-",
        reply_to=message.reply_to,
    )


def _action(reading: Reading) -> str | None:
    """Return the action, if it can be typed into a shell."""
    action = reading.described.soap_action
    return action if action is not None and PLAIN.fullmatch(action) and "\n" not in action else None


def _is_compressed(reading: Reading) -> bool:
    return reading.content_encoding == "gzip"


def _options(reading: Reading) -> Iterator[str]:
    action = _action(reading)
    if action is not None:
        yield f"--action={action}"
    if reading.message.message_type is MessageType.TEXT:
        yield "--text"
    if reading.message.reply_to is None:
        yield "--one-way"
    if _is_compressed(reading):
        yield "--set"
        yield "contentEncoding=gzip"


def _lost(message: Message, made: Message, reading: Reading) -> tuple[str, ...]:
    """Say what the command sends otherwise, property by property, then headers and body."""
    return (*_other_properties(message, made), *_other_headers(message, made), *_other_body(made, reading))


def _other_properties(message: Message, made: Message) -> Iterator[str]:
    theirs = {each.name: each for each in message.properties}
    ours = {each.name: each for each in made.properties}
    for name, each in theirs.items():
        if name not in ours:
            yield f"{named(name)} is not sent"
        elif ours[name].value != each.value and not _same_content_type(ours[name], each):
            yield f"{named(name)} is sent as {shown(ours[name].value)}, not as {shown(each.value)}"
        elif ours[name].type is not each.type and not message.untyped:
            yield f"{named(name)} is sent as a JMS {ours[name].type}, not as a {each.type}"
    for name in ours.keys() - theirs.keys():
        yield f"{named(name)} is sent too, as {shown(ours[name].value)}"


def _same_content_type(one: Property, other: Property) -> bool:
    """Say whether two properties are content types that differ in order, quotes or the case of the charset only."""
    if one.name != CONTENT_TYPE:
        return False
    ours, theirs = (parse_content_type(as_text(each.value) or "") for each in (one, other))
    return not theirs.problem and ours.media_type == theirs.media_type and _read(ours) == _read(theirs)


def _read(kind: ContentType) -> Mapping[str, str]:
    return {**kind.parameters, "charset": (kind.charset or "").lower()}


def _other_headers(message: Message, made: Message) -> Iterator[str]:
    for name, header in (("JMSPriority", "priority"), ("JMSDeliveryMode", "delivery_mode"), ("JMSType", "type")):
        wanted, seen = getattr(message, header), getattr(made, header)
        if wanted is not None and wanted != seen:
            yield f"{name} is not sent as {shown(wanted)}"
    if message.expiration and message.expiration != made.expiration:
        yield "JMSExpiration is not that of the request"


def _other_body(made: Message, reading: Reading) -> Iterator[str]:
    if reading.is_multipart:
        yield f"attachments are not sent: {len(reading.attachments)}; each needs --attachment FILE"
    elif not _is_compressed(reading) and made.body != reading.message.body:
        yield "the body is written anew, with the same content"


def _printed(envelope: bytes) -> str:
    """Return the command that prints an envelope: as it is if all of it can be typed, else from Base64."""
    text = envelope.decode("latin-1")
    if PLAIN.fullmatch(text):
        return f"printf %s {shlex.quote(text)}"
    return f"printf %s {b64encode(envelope).decode()} | base64 -d"


# As Markdown


def ticket(
    assertion: str,
    text: RuleText,
    reason: str,
    differences: Sequence[Difference] = (),
    *,
    messages: Iterable[tuple[str, Record]] = (),
    facts: Mapping[str, str] | None = None,
    stack: str = "",
) -> str:
    """Return Markdown about a finding, for the ticket of who has to change something.

    Args:
        assertion: the id of the assertion.
        text: the texts about the assertion.
        reason: the reason of the verdict.
        differences: what is wrong, place by place.
        messages: the messages to show, each with its heading.
        facts: further facts by label, such as the party, how often, and since when.
        stack: the stack of the party by `guess_dialect`, whose remedy is shown too.
    """
    quotation = f" {code_span(text.quotation)}" if text.quotation else ""
    lines = [
        f"## {assertion}: {text.rule}",
        "",
        f"* section {text.section} of SOAP over JMS{quotation}",
        f"* seen: {code_span(reason)}",
        *(f"* {label}: {code_span(value)}" for label, value in (facts or {}).items()),
        "",
    ]
    for each in differences:
        lines += [_diff(each), ""]
    lines += ["### What to change", "", _advice(text.general), ""]
    if stack in text.by_stack:
        lines += [f"{STACKS[stack]}: {_advice(text.by_stack[stack])}", ""]
    for heading, record in messages:
        lines += [f"### {heading}", "", code_block(raw_text(record, MAX_TICKET_OCTETS)), ""]
    return "\n".join(lines).rstrip() + "\n"


MAX_TICKET_OCTETS: Final = 2000
"""Maximum number of octets or characters of a body in a ticket."""


def _advice(remedy: Remedy) -> str:
    return f"{remedy.text} {code_span(remedy.code)}" if remedy.code else remedy.text


def _diff(difference: Difference) -> str:
    right = "right" if difference.is_value else "accepted"
    lines = [f"  {difference.place}", *_marked("-", "seen", difference.seen), *_marked("+", right, difference.right)]
    return code_block("\n".join(lines), "diff")


def _marked(sign: str, label: str, pieces: tuple[Piece, ...]) -> Iterator[str]:
    """Yield the lines of a value, each with a sign, and below it what is marked, as a diff has no other way."""
    text = "".join(each.text for each in pieces)
    if not text:
        yield f"{sign} {label}: nothing"
        return
    for number, line in enumerate(text.split("\n")):
        yield f"{sign} {f'{label}: ' if not number else ''}{line}"
    marked = [each.text.replace("\n", " ") for each in pieces if each.is_marked]
    if marked and "".join(marked) != text:
        yield f"{sign} in it: {' … '.join(marked)}"


def code_span(text: str) -> str:
    """Return a text as code in a line of Markdown; nothing in it can end the code."""
    line = visible(text) or " "
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence} {line} {fence}"


def code_block(text: str, language: str = "text") -> str:
    """Return lines as a block of code in Markdown; no line of theirs can end it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
