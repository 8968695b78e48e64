"""Signed envelopes that somebody changed on the way: whatever is let pass, the function sees what was signed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from calling_kit import NS, SOAP_11, element, request_message
from lxml import etree
from security_kit import NOW
from signature_kit import ANN, ELLIPTIC, EVE, KNOWN, XPATH, Signer
from xmlsec import Transform
from zeep.wsse.utils import get_security_header

from brokers import Message, queue
from fuzz.row import Case, Row
from soapjms import Request, Service, SoapVersion
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.envelope import as_envelope
from soapjms.protocol.responding import RequestRefused, RespondingNode
from soapjms.security import WSSE, WSU
from soapjms.signatures import DS, EXCLUSIVE, IDS, Signatures

WSA: Final = "http://www.w3.org/2005/08/addressing"
XML: Final = "http://www.w3.org/XML/1998/namespace"
PHOTO: Final = b"\x89PNG " + bytes(range(64))
CID: Final = "photo@example"

Seen = tuple[bytes, tuple[bytes, ...]]
"""A Body and the header blocks of WS-Addressing, in canonical form."""


@dataclass(frozen=True)
class Base:
    """A message that somebody signed.

    Attributes:
        octets: of its envelope.
        parts: content by Content-ID.
        version: of SOAP.
        who: the name that the service knows the signer by; None if it does not.
        seen: what of it was signed.
    """

    octets: bytes
    parts: dict[str, bytes]
    version: SoapVersion
    who: str | None
    seen: Seen


def canonical(part: etree._Element) -> bytes:
    """Write an element as its signer does, and comments, which nothing signs."""
    octets: bytes = etree.tostring(part, method="c14n", exclusive=True, with_comments=True, with_tail=False)
    return octets


def seen_in(root: etree._Element) -> Seen:
    """Return what a function reads."""
    found = as_envelope(root)
    blocks = () if found.header is None else found.header.iterchildren(f"{{{WSA}}}*")
    return canonical(found.body), tuple(map(canonical, blocks))


def plain(text: str, version: SoapVersion) -> bytes:
    """Write an envelope with something of everything in its Body."""
    return (
        f'<e:Envelope xmlns:e="{version.namespace}" xmlns:x="urn:x"><e:Body><greetMe xmlns="{NS}">'
        f'<name>{text}</name><x:sum currency="EUR">1.00</x:sum><list><each>a</each><each>b</each></list>'
        f"<photo>{b64encode(PHOTO).decode()}</photo></greetMe></e:Body></e:Envelope>"
    ).encode()


def bases() -> Iterator[Base]:
    """Sign some messages, of each kind."""
    elliptic = (Transform.ECDSA_SHA256, Transform.SHA512)
    for version in SoapVersion:
        for who, signer, algorithms in (
            ("ann", ANN, (Transform.RSA_SHA256, Transform.SHA256)),
            ("bob", ELLIPTIC, elliptic),
            (None, EVE, (Transform.RSA_SHA256, Transform.SHA256)),
        ):
            for text in ("Ann", "Anna"):
                root = signer.sign(plain(text, version), algorithms)
                yield _base(root, version, who)
                yield _included(root, version, who)
        yield _addressed(version, ANN)


def _base(root: etree._Element, version: SoapVersion, who: str | None) -> Base:
    return Base(etree.tostring(root), {}, version, who, seen_in(root))


def _included(root: etree._Element, version: SoapVersion, who: str | None) -> Base:
    """Put the photo beside, as MTOM does with what was signed as base64."""
    seen, root = seen_in(root), deepcopy(root)
    photo = next(root.iter(f"{{{NS}}}photo"))
    photo.text = None
    etree.SubElement(photo, XOP_INCLUDE, href=f"cid:{CID}")
    return Base(etree.tostring(root), {CID: PHOTO}, version, who, seen)


def _addressed(version: SoapVersion, signer: Signer) -> Base:
    root = etree.fromstring(plain("Ann", version))
    get_security_header(root)
    blocks = [etree.SubElement(root[0], f"{{{WSA}}}{name}") for name in ("To", "Action")]
    for each in blocks:
        each.text = f"urn:{etree.QName(each).localname}"
    signer.sign_more(root, *blocks)
    return _base(root, version, "ann")


# Changes: each takes the envelope, chance, and another message that was signed

Change = Callable[[etree._Element, Random, etree._Element], None]


def _any(root: etree._Element, chance: Random, name: str = "*") -> etree._Element:
    """Choose an element: of all, or of those that matter."""
    found = list(root.iter(etree.Element if name == "*" else name))
    return chance.choice(found or [root])


def _part(root: etree._Element, chance: Random) -> etree._Element:
    """Choose an element that has a meaning: Body, Header, Security, Timestamp, Signature and its parts."""
    wanted = {"Body", "Header", "Security", "Timestamp", "Signature", "SignedInfo", "Reference", "greetMe", "To"}
    found = [each for each in root.iter(etree.Element) if etree.QName(each).localname in wanted]
    return chance.choice(found or [root]) if chance.random() < 0.8 else _any(root, chance)


def _put(into: etree._Element, part: etree._Element, chance: Random) -> None:
    """Put an element anywhere into another, unless that is within it."""
    if part is not into and part not in into.iterancestors():
        part.tail = None
        into.insert(chance.randrange(len(into) + 1), part)


def move(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part = _part(root, chance)
    if part is not root:
        _put(_part(root, chance), part, chance)


def copy(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part = deepcopy(_part(root, chance))
    if chance.random() < 0.5:
        for name in IDS:
            part.attrib.pop(name, None)
    if chance.random() < 0.5:
        _any(part, chance).text = "Eve"
    _put(_part(root, chance), part, chance)


def rename(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part, name = _any(root, chance), etree.QName(_any(root, chance))
    space = chance.choice([name.namespace, etree.QName(part).namespace, "urn:x", *(v.namespace for v in SoapVersion)])
    part.tag = etree.QName(space, name.localname).text


def wrap(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part = _part(root, chance)
    parent = part.getparent()
    if parent is not None:
        wrapper = etree.Element(chance.choice(["{urn:x}wrapper", part.tag, f"{{{DS}}}Object"]))
        parent.replace(part, wrapper)
        wrapper.append(part)


def forge(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Put another Body in the place of the signed one, which goes anywhere else."""
    signed = next((each for each in root.iter(etree.Element) if etree.QName(each).localname == "Body"), None)
    if signed is None or signed.getparent() is None:
        return
    forged = deepcopy(signed)
    if chance.random() < 0.7:
        for name in IDS:
            forged.attrib.pop(name, None)
    if chance.random() < 0.5:
        forged.set(chance.choice(IDS), chance.choice(_ids(root)))
    _any(forged, chance).text = "Eve"
    signed.getparent().replace(signed, forged)
    into = chance.choice([root, forged, _part(root, chance), etree.SubElement(root[0], "{urn:x}wrapper")])
    _put(into, signed, chance)


def second(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Have a second Body or Header, of either version."""
    version, name = chance.choice(list(SoapVersion)), chance.choice(["Body", "Header"])
    made = etree.Element(f"{{{version.namespace}}}{name}")
    made.append(element("greetMe", "Eve"))
    root.insert(chance.randrange(len(root) + 1), made)


def drop(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part = _part(root, chance)
    if (parent := part.getparent()) is not None:
        parent.remove(part)


def _ids(root: etree._Element) -> list[str]:
    return [each.get(name, "") for each in root.iter(etree.Element) for name in IDS if name in each.attrib] or ["x"]


def repeat_id(root: etree._Element, chance: Random, other: etree._Element) -> None:
    _part(root, chance).set(chance.choice(IDS), chance.choice(_ids(root)))


def rename_id(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Have another attribute say the id of an element."""
    part = _part(root, chance)
    for name in IDS:
        if name in part.attrib:
            value = part.attrib.pop(name)
            part.set(chance.choice(IDS), value)
            return


def annotate(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Put a comment or a processing instruction in: before, behind, or into a text that it splits."""
    part, said = _any(root, chance), chance.choice([etree.Comment("x"), etree.ProcessingInstruction("x", "y")])
    text = part.text or ""
    at = chance.randrange(len(text) + 1)
    if len(part) or chance.random() < 0.3:
        part.insert(chance.randrange(len(part) + 1), said)
    else:
        part.text, said.tail = text[:at], text[at:]
        part.insert(0, said)


def refer(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Change what a reference refers to."""
    uris = ["", "#", "#xpointer(/)", f"cid:{CID}", "file:///etc/passwd", "#x y", *(f"#{each}" for each in _ids(root))]
    reference = _any(root, chance, f"{{{DS}}}Reference")
    if chance.random() < 0.2:
        reference.attrib.pop("URI", None)
    else:
        reference.set("URI", chance.choice(uris))


TRANSFORMS: Final = (
    XPATH,
    f"{DS}enveloped-signature",
    f"{DS}base64",
    "http://www.w3.org/TR/1999/REC-xslt-19991116",
    "http://www.w3.org/2002/06/xmldsig-filter2",
    f"{EXCLUSIVE}WithComments",
    EXCLUSIVE,
    "http://www.w3.org/TR/2001/REC-xml-c14n-20010315",
)


def transform(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Add a transform, change one, or tell it of prefixes."""
    transforms = _any(root, chance, f"{{{DS}}}Transforms")
    made = etree.Element(f"{{{DS}}}Transform", Algorithm=chance.choice(TRANSFORMS))
    if chance.random() < 0.5:
        etree.SubElement(made, f"{{{EXCLUSIVE}}}InclusiveNamespaces", PrefixList=chance.choice(["", "#default", "e x"]))
    else:
        etree.SubElement(made, f"{{{DS}}}XPath").text = "not(ancestor-or-self::*[local-name()='name'])"
    if len(transforms) and chance.random() < 0.4:
        transforms.replace(transforms[chance.randrange(len(transforms))], made)
    else:
        _put(transforms, made, chance)


def algorithm(root: etree._Element, chance: Random, other: etree._Element) -> None:
    names = (*TRANSFORMS, f"{DS}hmac-sha1", f"{DS}sha1", "http://www.w3.org/2001/04/xmlenc#sha256", "")
    part = _any(root, chance, f"{{{DS}}}{chance.choice(['SignatureMethod', 'DigestMethod', 'CanonicalizationMethod'])}")
    part.set("Algorithm", chance.choice(names))


def swap(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Take a part of another message that was signed."""
    ours = _part(root, chance) if chance.random() < 0.5 else _any(root, chance)
    theirs = list(other.iter(ours.tag))
    parent = ours.getparent()
    if theirs and parent is not None:
        parent.replace(ours, deepcopy(chance.choice(theirs)))


def swap_value(root: etree._Element, chance: Random, other: etree._Element) -> None:
    name = f"{{{DS}}}{chance.choice(['DigestValue', 'SignatureValue', 'X509Certificate'])}"
    theirs = [*root.iter(name), *other.iter(name)]
    if theirs:
        _any(root, chance, name).text = chance.choice(theirs).text


def include(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Have an xop:Include stand for a text."""
    part = _any(root, chance)
    if not len(part) or chance.random() < 0.2:
        part.text = chance.choice([None, None, None, "x"])
        etree.SubElement(part, XOP_INCLUDE, href=chance.choice([f"cid:{CID}", "cid:text@example", "cid:none@example"]))


def attribute(root: etree._Element, chance: Random, other: etree._Element) -> None:
    name = chance.choice(["currency", f"{{{XML}}}lang", f"{{{XML}}}space", f"{{{XML}}}base", "{urn:x}more"])
    _any(root, chance).set(name, chance.choice(["", "EUR", "USD", "preserve"]))


def block(root: etree._Element, chance: Random, other: etree._Element) -> None:
    """Change who a header block is for, or add one that is nobody's, or of WS-Addressing."""
    if chance.random() < 0.5:
        namespace = chance.choice(list(SoapVersion)).namespace
        name = f"{{{namespace}}}{chance.choice(['actor', 'role', 'mustUnderstand'])}"
        _part(root, chance).set(name, chance.choice(["", "0", "1", "urn:x"]))
    elif len(root):
        space, name = chance.choice([(WSA, "To"), (WSA, "From"), ("urn:x", "more"), (WSSE, "Security"), (WSU, "x")])
        etree.SubElement(root[0], f"{{{space}}}{name}").text = "urn:To"


def text(root: etree._Element, chance: Random, other: etree._Element) -> None:
    part = _any(root, chance)
    said = part.text or ""
    at = chance.randrange(len(said) + 1)
    part.text = chance.choice([None, said + " ", "Eve", said[:at], said[:at] + "\n" + said[at:]])


CHANGES: Final[tuple[Change, ...]] = (
    *(move, copy, rename, wrap, forge, forge, second, drop, repeat_id, rename_id, annotate, refer, transform),
    *(algorithm, swap, swap, swap_value, include, attribute, block, text),
)


def _rebound(octets: bytes, chance: Random) -> bytes:
    """Bind a prefix to another namespace within an element, or have the whole say it by another."""
    prefix = chance.choice([b"e", b"x", b"ns0", b"ns1", b"ds", b"wsse", b"wsu", b"p"])
    namespace = chance.choice([b"urn:x", NS.encode(), DS.encode(), WSU.encode(), SOAP_11.namespace.encode()])
    starts = [at for at in range(len(octets) - 1) if octets[at : at + 1] == b"<" and octets[at + 1 : at + 2].isalpha()]
    if not starts:
        return octets
    at = chance.choice(starts)
    end = min(found for mark in (b">", b" ", b"/") if (found := octets.find(mark, at)) > 0)
    return octets[:end] + b" xmlns:" + prefix + b'="' + namespace + b'"' + octets[end:]


def _renamed(octets: bytes, chance: Random) -> bytes:
    old, new = chance.choice([(b"e", b"soap"), (b"x", b"e"), (b"ns0", b"q"), (b"x", b"y")])
    for before, after in ((b"<", b"<"), (b"</", b"</"), (b"xmlns:", b"xmlns:")):
        mark = b"=" if before == b"xmlns:" else b":"
        octets = octets.replace(before + old + mark, after + new + mark)
    return octets


def _spelled(octets: bytes, chance: Random) -> bytes:
    """Write the same in another way, or nearly."""
    return chance.choice(
        [
            lambda: octets.replace(b"Ann", b"A&#110;n"),
            lambda: octets.replace(b">Ann<", b"><![CDATA[Ann]]><"),
            lambda: b'<!DOCTYPE x [<!ENTITY x "Eve">]>' + octets.replace(b"Ann", b"&x;"),
            lambda: b"<?xml version='1.0' encoding='utf-16'?>" + octets,
            lambda: octets.decode().encode("utf-16"),
            lambda: octets.replace(b"><", b">\n<", chance.randrange(1, 4)),
            lambda: b"\n" + octets,
            lambda: octets + b"<!-- x -->",
            lambda: octets.replace(b'"EUR"', b"'EUR'"),
        ]
    )()


class Signed:
    """A service that takes what was signed by those that it knows."""

    def __init__(self) -> None:
        self._bases = list(bases())
        self._signed: dict[tuple[str | None, bool], set[Any]] = {}
        for each in self._bases:
            self._signed.setdefault((each.who, True), set()).add(each.seen)
            self._signed.setdefault((each.who, False), set()).add(each.seen[0])

    def make(self, chance: Random) -> Case:
        """Choose a message, and change it some times."""
        base, other = chance.choice(self._bases), chance.choice(self._bases)
        root, changes = (
            etree.fromstring(base.octets),
            chance.choices(CHANGES, k=chance.choice((0, 1, 1, 1, 2, 2, 3, 5))),
        )
        for each in changes:
            each(root, chance, etree.fromstring(other.octets))
        octets = etree.tostring(root)
        for each in (_rebound, _renamed, _spelled):
            if chance.random() < 0.1:
                octets = each(octets, chance)
        parts = dict(base.parts)
        if any(change is include for change in changes):
            content = chance.choice([PHOTO, b"Ann", b"", b"\x02{", bytes(40)])
            parts = {CID: content} | (parts if chance.random() < 0.5 else {"text@example": content})
        if parts and chance.random() < 0.2:
            parts = {name: chance.choice([content, b"forged"]) for name, content in parts.items()}
        options = {"timestamp": chance.random() < 0.8, "attachments": chance.random() < 0.2}
        needed = [f"{{{WSA}}}*"] if chance.random() < 0.5 else []
        message = _message(octets, parts, base.version)
        again = _message(_rebound(octets, chance), parts, base.version)
        return Case(
            len(message.body),
            lambda: self.take(message, again, Signatures(KNOWN, headers=needed, clock=lambda: NOW, **options), needed),
        )

    def look(self) -> None:
        """See that those who changed nothing are taken."""
        for base in self._bases:
            message, verify = _message(base.octets, base.parts, base.version), Signatures(KNOWN, clock=lambda: NOW)
            assert self.take(message, message, verify, []) == ("refused" if base.who is None else "taken")

    def take(self, message: Message, again: Message, verify: Signatures, needed: list[str]) -> str:
        """Have a service answer; see what its function saw, and that nothing of it counts twice."""
        saw: list[Any] = []

        def check(request: Request, security: etree._Element | None) -> str:
            who = verify(request, security)
            self._check(who, request, needed)
            return who

        service = Service(verify=check)

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            self._check(request.identity, request, needed)
            saw.append(request.identity)
            return element("said", f"{len(etree.tostring(request.envelope.body))}")

        event = RespondingNode(Setting()).receive(message)
        if isinstance(event, RequestRefused):
            return "refused by the node"
        outcome = service.perform(Request.of(event))
        assert outcome.failure is None, outcome.failure
        assert etree.tostring(outcome.prepared.envelope)
        if not saw:
            return "refused"
        if verify._needs_timestamp:
            for each in (message, again):
                event = RespondingNode(Setting()).receive(each)
                if not isinstance(event, RequestRefused):
                    service.perform(Request.of(event))
            assert len(saw) == 1, "a message counted twice"
        return "taken"

    def _check(self, who: str, request: Request, needed: list[str]) -> None:
        seen = seen_in(request.envelope.root)
        assert as_envelope(request.envelope.root).body is request.envelope.body
        assert request.element is next(request.envelope.body.iterchildren(etree.Element), request.envelope.body)
        said = seen if needed else seen[0]
        assert said in self._signed[who, bool(needed)], f"{who} did not sign {said!r}"


def _message(octets: bytes, parts: dict[str, bytes], version: SoapVersion) -> Message:
    """Make a request, of several parts if there are any."""
    kind = f"{version.media_type}; charset=utf-8"
    if parts:
        head = f'Content-Type: application/xop+xml; charset=utf-8; type="{version.media_type}"\r\nContent-ID: <a@b>'
        octets = b"--b\r\n" + head.encode() + b"\r\n\r\n" + octets
        for name, content in parts.items():
            octets += f"\r\n--b\r\nContent-Type: image/png\r\nContent-ID: <{name}>\r\n\r\n".encode() + content
        octets += b"\r\n--b--\r\n"
        kind = f'multipart/related; boundary=b; type="application/xop+xml"; start="<a@b>"; start-info="{kind}"'
    message = request_message("greeter", queue("answers"), octets, properties={names.CONTENT_TYPE: kind})
    return replace(message, correlation_id="1")


ROW: Final = Row(
    name="signatures",
    holds="a function sees no Body, and no block that has to be signed, but as one of those known signed it",
    opens=lambda: nullcontext(Signed()),
    cases=40_000,
    gate=800,
)
