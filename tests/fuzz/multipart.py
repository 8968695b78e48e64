"""Multipart messages that are not as they must be: each is answered, in time and memory that grow with its size."""

from __future__ import annotations

from base64 import b64encode
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import Final

from calling_kit import NS, element, request_message
from lxml import etree
from protocol_kit import started

from brokers import Message, queue
from fuzz.row import KIB, Case, Row
from soapjms import Attachment, Reply, Request, Service, SoapVersion
from soapjms.bridge.message import read_http, taken
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.attachments.parts import XOP_NAMESPACE
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS
from soapjms.protocol.requesting import ExchangeFailed, ResponseReceived
from soapjms.protocol.responding import RequestRefused, RespondingNode


class Dice(Random):
    """Chance, with a rate at which mistakes are made: few messages with many get as far as those with one.

    Attributes:
        rate: 0 for none, 1 for all.
    """

    rate: float = 1.0

    def errs(self, probability: float) -> bool:
        """Say whether a mistake is made."""
        return self.random() < probability * self.rate


Headers = list[tuple[str, str]]
"""Of a part, in order: names may repeat."""

LIMITS: Final = replace(DEFAULT_LIMITS, unpacked=KIB << 10)
"""As they are, but for what may be brought in again and again: its limit does not go by the size of a message."""

IDS: Final = ("<a@b>", "<c@d>", "<e%20f@g>", "a@b", "<>", "", "<c@d> (x)", "<" + "x" * 2000 + ">", '<"c"@d>', "<Ä@d>")
LOCATIONS: Final = (
    "a.png",
    "http://x/a.xml",
    "../a.png",
    "cid:c@d",
    "//[",
    "%zz",
    "x" * 5000,
    "http://x/" + "a/" * 900,
)
ENCODINGS: Final = (
    "7bit",
    "8bit",
    "binary",
    "base64",
    "quoted-printable",
    "BASE64",
    "x-uuencode",
    "gzip",
    "",
    "base64,",
)
KINDS: Final = (
    "text/xml; charset=utf-8",
    "application/xop+xml; charset=utf-8; type=\"text/xml\"",
    "application/xop+xml; charset=utf-16; type=\"application/soap+xml\"",
    "application/soap+xml",
    "application/octet-stream",
    "text/plain; charset=utf-7",
    "multipart/related; boundary=b",
    "multipart/mixed; boundary=i; type=text/xml",
    "message/rfc822",
    'text/xml; charset="' + "x" * 3000,
    "x",
)  # fmt: skip
BOUNDARIES: Final = ("b", "b", "b", "b--", "b b", "=_b:'()+_,-./=?", "B", "", "x" * 70, "x" * 71, '"', "b\\", "ä")
ENDS: Final = ("\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n\r\n", "")


def envelope(version: SoapVersion, references: list[str], chance: Dice) -> bytes:
    """Write a request with elements that refer to parts, alone or not."""
    inside = [
        chance.choice(
            ["<p> {} </p>", "<p>x{}</p>", "{}", "<p>{}{}</p>", "<p><q>{}</q></p>"]
            if chance.errs(0.3)
            else ["<p>{}</p>"]
        ).format(*[f'<i:Include href="{each}"/>'] * 2)
        for each in references
    ]
    return (
        f'<e:Envelope xmlns:e="{version.namespace}" xmlns:i="{XOP_NAMESPACE}"><e:Body>'
        f'<greetMe xmlns="{NS}">{"".join(inside)}</greetMe></e:Body></e:Envelope>'
    ).encode()


def headers(chance: Dice, kind: str, content_id: str) -> Headers:
    """Make the header of a part, with something odd about it now and then."""
    made: Headers = [("Content-Type", kind), ("Content-ID", content_id)]
    if chance.random() < 0.4:
        made.append(("Content-Transfer-Encoding", chance.choice(ENCODINGS if chance.errs(0.5) else ENCODINGS[:5])))
    if chance.errs(0.2):
        made.append(("Content-Location", chance.choice(LOCATIONS)))
    if chance.errs(0.2):
        made.append(("Content-Length", chance.choice(["0", "1", "-1", "9" * 30, "x"])))
    for _ in range(chance.choice((0, 1, 2, 3, 70)) if chance.errs(0.6) else 0):
        name = chance.choice(
            ["Content-ID", "Content-Type", "X", "X-" + "y" * 300, "x y", "", "Ä", "MIME-Version", "\0"]
        )
        made.append(
            (name, chance.choice([*IDS, *KINDS, "a\r\n b", "x" * chance.choice((10, 20_000)), "\t", "=?utf-8?Q?=41?="]))
        )
    if chance.errs(0.2):
        chance.shuffle(made)
    return made[chance.randrange(len(made)) :] if chance.errs(0.05) else made


def written(fields: Headers, chance: Dice) -> bytes:
    """Write the header of a part: folded, with odd ends of lines, without colons."""
    end = chance.choice(ENDS) if chance.errs(0.2) else "\r\n"
    lines = []
    for name, value in fields:
        if chance.errs(0.1) and len(value) > 2:
            at = chance.randrange(1, len(value))
            value = (
                value[:at] + chance.choice(["\r\n ", "\r\n\t", "\n ", "\r\n" + " " * 500, "\r\n \r\n "]) + value[at:]
            )
        lines.append(name + (chance.choice([":", " : ", "", ":\r\n "]) if chance.errs(0.2) else ": ") + value)
    return (end.join(lines) + end + end).encode("utf-8", "surrogateescape")


def content(chance: Dice) -> bytes:
    """Make what is in a part, sometimes much, sometimes like delimiters."""
    said = chance.choice(
        [b"", b"x", b"\0\xff", b"--b", b"\r\n--b", b"\r\n--bx\r\n", b"=", b"=4", b"====", b"AA=A", b"\n"]
    )
    if chance.random() < 0.003:
        return said * (400 * KIB // (len(said) or 1))
    return chance.choice([said, said * chance.choice((2, 100, 5000)), chance.randbytes(chance.choice((3, 300, 9000)))])


def encoded(octets: bytes, fields: Headers, chance: Dice) -> bytes:
    """Write content as the header says, mostly."""
    encoding = dict(fields).get("Content-Transfer-Encoding", "").lower()
    if encoding == "base64" and not chance.errs(0.2):
        octets = b64encode(octets)
        return octets[: chance.randrange(len(octets) + 1)] if chance.errs(0.2) else octets
    return octets.replace(b"=", b"=3D") if encoding == "quoted-printable" else octets


def body(chance: Dice, version: SoapVersion) -> tuple[bytes, str]:
    """Make a multipart body and its content type, with mistakes."""
    boundary = chance.choice(BOUNDARIES) if chance.errs(0.3) else "b"
    references = [
        chance.choice(
            ["cid:a@b", "cid:e%20f@g", "cid:e f@g", "cid:", "a.png", "http://x/a.png", "//[", "x"]
            if chance.errs(0.3)
            else ["cid:c@d"]
        )
        for _ in range(20_000 if chance.random() < 0.005 else chance.choice((0, 1, 1, 2, 5, 300)))
    ]
    root = envelope(version, references, chance)
    pieces = []
    for number in range(chance.choice((1, 2, 2, 3, 5, 50 + chance.errs(0.5)))):
        known = f'application/xop+xml; charset=utf-8; type="{version.media_type}"' if number == 0 else "image/png"
        kind = chance.choice(KINDS) if chance.errs(0.2) else known
        fields = headers(chance, kind, chance.choice(IDS) if chance.errs(0.2) else IDS[min(number, 1)])
        inside = root if number == 0 else content(chance)
        if number and chance.errs(0.1):
            inside = nested(chance, boundary)
        pieces.append(written(fields, chance) + encoded(inside, fields, chance))
    if chance.errs(0.1):
        chance.shuffle(pieces)
    octets = joined(pieces, boundary.encode(), chance)
    for _ in range(chance.choice((1, 3)) if chance.errs(0.4) else 0):
        at = chance.randrange(len(octets) + 1)
        octets = (
            octets[:at] + chance.choice([b"", b"\0", b"\r\n", b"--b", b"<"]) + octets[at + chance.choice((0, 1, 40)) :]
        )
    kind = f'multipart/related; boundary="{boundary}"; type="application/xop+xml"; start="<a@b>"; '
    kind += f'start-info="{version.media_type}"'
    for old, new in (
        (boundary, "c"),
        ("<a@b>", "<c@d>"),
        ("; type=", "; x="),
        ("related", "mixed"),
        (" start=", " s="),
        ('"', ""),
    ):
        if chance.errs(0.03):
            kind = kind.replace(old, new)
    return octets, kind


def nested(chance: Dice, boundary: str) -> bytes:
    """Make parts within a part, some levels deep, sometimes by the same boundary."""
    octets = content(chance)
    for level in range(chance.choice((1, 2, 30))):
        inner = chance.choice([boundary, f"i{level}"])
        head = f"--{inner}\r\nContent-Type: multipart/related; boundary={inner}\r\nContent-ID: <c@d>\r\n\r\n".encode()
        octets = head + octets + f"\r\n--{inner}--\r\n".encode()
    return octets


def joined(pieces: list[bytes], boundary: bytes, chance: Dice) -> bytes:
    """Put delimiters between parts, with mistakes."""

    def delimiter(end: bytes = b"") -> bytes:
        odd = chance.errs(0.05)
        return (
            chance.choice([b"--", b"-", b""]) + boundary + end + b" \t\r\n" if odd else b"--" + boundary + end + b"\r\n"
        )

    octets = b"" if not chance.errs(0.05) else b"preamble\r\n"
    for piece in pieces:
        octets += delimiter() + piece + (chance.choice([b"", b"\n", b"\r"]) if chance.errs(0.03) else b"\r\n")
    octets += b"" if chance.errs(0.05) else delimiter(b"--")
    return octets + b"epilogue\r\n--" + boundary + b"\r\n\r\n" if chance.errs(0.1) else octets


class Unpacking:
    """Whoever reads multipart: a service, a client, the bridge."""

    def __init__(self) -> None:
        self._service = Service()
        self._service.operation(f"{{{NS}}}greetMe")(self._read)

    @staticmethod
    def _read(request: Request) -> Reply:
        """Look at all that is there, by each way; what cannot be read is a fault, or told to who looks."""
        sizes = []
        for part in request.attachments:
            assert str(part)
            assert part.content_id is None or isinstance(part.content_id, str)
            with suppress(InvalidAttachmentError):
                sizes.append(len(part.content))
        for include in request.element.iter(XOP_INCLUDE):
            with suppress(InvalidAttachmentError):
                sizes.append(len(request.attachments.octets_of(include)))
        request.attachments.expand(request.element)
        assert next(request.element.iter(XOP_INCLUDE), None) is None
        return Reply(element("said", f"{sum(sizes)}"), [Attachment(b"x", "image/png", "x@y")])

    def make(self, chance: Random) -> Case:
        """Make a message: of octets or characters, a request, a response or one over HTTP."""
        version, dice = chance.choice(list(SoapVersion)), Dice(chance.random())
        dice.rate = chance.choice((0.0, 0.05, 0.2, 1.0))
        octets, kind = body(dice, version)
        text = octets.decode("utf-8", "replace") if chance.random() < 0.2 else octets
        message = request_message("greeter", queue("answers"), text, properties={names.CONTENT_TYPE: kind})
        way = chance.choice([self.answer, self.answer, self.hear, self.bridge])
        return Case(len(octets), lambda: way(message, kind))

    def answer(self, message: Message, kind: str) -> str:
        """Hand it to a service: it answers."""
        event = RespondingNode(Setting(limits=LIMITS)).receive(message)
        if isinstance(event, RequestRefused):
            assert event.reason
            return "refused by the node"
        outcome = self._service.perform(Request.of(event))
        assert outcome.failure is None, outcome.failure
        return "answered" if read_fault_in(outcome.prepared.envelope) is None else "a fault"

    def hear(self, message: Message, kind: str) -> str:
        """Hand it to a client as its response: it comes to an end."""
        node, request = started()
        event = node.receive(replace(message, correlation_id=request.correlation_id))
        if isinstance(event, ExchangeFailed):
            return "no response"
        assert isinstance(event, ResponseReceived)
        for part in event.attachments:
            with suppress(InvalidAttachmentError):
                assert part.content is not None
        return "a response"

    def bridge(self, message: Message, kind: str) -> str:
        """Have it come over HTTP, to be sent on: it is read and written again, or refused."""
        octets = message.body.encode() if isinstance(message.body, str) else message.body
        assert isinstance(octets, bytes)
        reading = read_http(octets, kind, LIMITS)
        if reading.envelope is not None:
            with suppress(InvalidAttachmentError, UsageError):
                taken(reading.envelope.root, reading.attachments)
                return "sent on"
        return "refused by the bridge"

    def look(self) -> None:
        """See that a message without mistakes is answered."""
        octets = b"--b\r\nContent-Type: text/xml\r\nContent-ID: <a@b>\r\n\r\n" + envelope(
            SoapVersion.SOAP_11, [], Dice(1)
        )
        kind = 'multipart/related; boundary=b; type="text/xml"; start="<a@b>"'
        message = request_message(
            "greeter", queue("answers"), octets + b"\r\n--b--\r\n", properties={names.CONTENT_TYPE: kind}
        )
        assert self.answer(message, kind) == "answered"


def read_fault_in(root: etree._Element) -> object:
    """Return the fault in an envelope, None if it has none."""
    return read_fault(as_envelope(root))


ROW: Final = Row(
    name="multipart",
    holds="whatever parts a message has, it is answered or refused",
    opens=lambda: nullcontext(Unpacking()),
    cases=40_000,
    gate=800,
)
