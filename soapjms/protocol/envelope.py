"""The SOAP envelope: parsing hostile documents, detecting the SOAP version, reading and building faults.

Header blocks that must be understood are here too: which blocks a SOAP node is asked to process, and the fault if it
cannot.

Spec: SOAP/JMS 2.4, 2.8; SOAP 1.1 4.2.2, 4.2.3, 4.4, 4.4.1; SOAP 1.2 Part 1 2.2 to 2.6, 5.2.2, 5.2.3, 5.4, 5.4.8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from lxml import etree

from soapjms.protocol import names, xml
from soapjms.protocol.content import UNDECLARED, detect_encoding
from soapjms.protocol.errors import Blame, InvalidEnvelopeError, SoapFaultError, UsageError, is_name
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import Profile, Soap11FaultShape, SoapVersion, SoapVersionName, Subcode
from soapjms.protocol.text import named, shown
from soapjms.protocol.xml import WHITE_SPACE


class Envelope(NamedTuple):
    """A parsed SOAP envelope: its version, and its root, header and body elements."""

    version: SoapVersion
    root: etree._Element
    header: etree._Element | None
    body: etree._Element

    @property
    def content(self) -> etree._Element | None:
        """The first child element of the body: the request, the response or the fault."""
        body = self.body
        if len(body) == 1:  # nearly always
            only = body[0]
            tag: object = only.tag
            if type(tag) is str:  # that of a comment is a function
                return only
        return next(body.iterchildren(etree.Element), None)


_new_envelope: Final[Callable[[tuple[Any, ...]], Envelope]] = partial(tuple.__new__, Envelope)
"""Make an envelope of its parts, in half the time of `Envelope`."""


class UnknownVersionError(ValueError):
    """The envelope is of a SOAP version that is neither 1.1 nor 1.2."""


def as_envelope(root: etree._Element) -> Envelope:
    """Read an XML document as a SOAP envelope: an optional Header, then one Body, in the version of the envelope.

    A further Header or Body of either version is refused anywhere, as another node might read that one. Other elements
    before the Body are refused too; after it, where SOAP 1.1 allows them, they are ignored.

    Raises:
        UnknownVersionError: the root is an Envelope of another namespace.
        ValueError: the root is not an Envelope of SOAP 1.1 or 1.2, or its children are not as they must be.

    Spec: SOAP 1.1 4; SOAP 1.2 Part 1 5.1.
    """
    tags = _TAGS.get(root.tag)
    if tags is None:
        error = UnknownVersionError if etree.QName(root).localname == "Envelope" else ValueError
        raise error(f"the root element is {shown(root.tag)}, no SOAP envelope")
    version, header_tag, body_tag = tags
    if len(root) == 1 and root[0].tag == body_tag:  # nearly always
        return _new_envelope((version, root, None, root[0]))
    header = body = misplaced = None
    for child in root.iterchildren(etree.Element):
        if body is None and child.tag == body_tag:
            body = child
        elif body is None and header is None and child.tag == header_tag:
            header = child
        elif misplaced is None and (body is None or child.tag in _PARTS):
            misplaced = child
    if body is None:
        raise ValueError("the SOAP envelope has no Body")
    if misplaced is not None:
        raise ValueError(
            f"the SOAP envelope has {shown(misplaced.tag)} where it stands; it has one Header at most, then one Body"
        )
    return _new_envelope((version, root, header, body))


_TAGS: Final[Mapping[object, tuple[SoapVersion, str, str]]] = {
    f"{{{version.namespace}}}Envelope": (version, f"{{{version.namespace}}}Header", f"{{{version.namespace}}}Body")
    for version in SoapVersion
}
_PARTS: Final = frozenset(tag for _, *tags in _TAGS.values() for tag in tags)


def read_envelope(envelope: bytes | str | etree._Element, limits: Limits = DEFAULT_LIMITS) -> tuple[Envelope, bytes]:
    """Read the envelope that a caller wants to send; return it parsed, and as octets in UTF-8 or as declared.

    White space before the envelope is dropped: the first octet of a body starts the XML document (Protocol-2030). The
    limits apply to octets and text; an element is taken as it is.

    Raises:
        InvalidEnvelopeError: `envelope` is not a SOAP envelope.
    """
    try:
        if isinstance(envelope, bytes):
            if detect_encoding(envelope) is UNDECLARED:  # as nearly always
                return as_envelope(xml.parse_utf8(envelope, limits)), envelope
            return as_envelope(xml.parse(envelope, None, limits)), envelope.lstrip()
        if isinstance(envelope, str):
            root = xml.parse(envelope, None, limits)
            return as_envelope(root), serialize(root)
        if not isinstance(envelope, etree._Element):
            raise ValueError(f"it must be bytes, str or an lxml element, got {type(envelope).__name__}")
        return as_envelope(envelope), serialize(envelope)
    except ValueError as error:
        hint = "; an lxml element is given an envelope, text is not" if isinstance(envelope, bytes | str) else ""
        raise InvalidEnvelopeError(f"the content to send is not a SOAP envelope: {error}{hint}") from None


def serialize(root: etree._Element) -> bytes:
    """Write an element as UTF-8, without an XML declaration and without the text that follows it in its document."""
    return etree.tostring(root, encoding="unicode", with_tail=False).encode()  # a third of the time of encoding="utf-8"


def enclosed(content: etree._Element, version: SoapVersion) -> bytes:
    """Write an envelope with an element in its body, without copying the element.

    It is without the text that follows it in its document; prefixes that are declared above it there are declared
    again, as its text may refer to them.
    """
    opening, closing = _AROUND[version]
    return opening + etree.tostring(content, encoding="unicode", with_tail=False).encode() + closing


def wrap(content: etree._Element | None, version: SoapVersion) -> etree._Element:
    """Return a new envelope with an element in its body; None makes an empty body."""
    root = copy(_EMPTY[version])
    if content is not None:
        root[0].append(content)
    return root


def envelope(
    body: etree._Element | None,
    *,
    headers: Iterable[etree._Element] = (),
    version: SoapVersion | SoapVersionName = "1.1",
) -> etree._Element:
    """Make a SOAP envelope; the elements are copied.

    Args:
        body: the element in the SOAP body; None for an empty body.
        headers: the header blocks.
        version: the SOAP version, "1.1" or "1.2".

    Raises:
        UsageError: there is no such version, or an argument is not an element.
    """
    if version not in tuple(SoapVersion):
        raise UsageError(f"version must be {' or '.join(repr(str(each)) for each in SoapVersion)}, got {version!r}")
    blocks = list(headers)
    for each in blocks if body is None else [body, *blocks]:
        if not isinstance(each, etree._Element) or not isinstance(each.tag, str):  # a comment, for example
            raise UsageError(f"body and headers must be lxml elements, got {type(each).__name__}")
    root = wrap(deepcopy(body), SoapVersion(version))
    if blocks:
        header_of(root).extend(deepcopy(blocks))
    return root


def _empty(version: SoapVersion) -> etree._Element:
    space = version.namespace
    root = etree.Element(f"{{{space}}}Envelope", nsmap={"env": space})
    etree.SubElement(root, f"{{{space}}}Body")
    return root


_EMPTY: Final[Mapping[SoapVersion, etree._Element]] = {version: _empty(version) for version in SoapVersion}
"""Envelopes to copy, in half of the time of making them."""


def _around(version: SoapVersion) -> tuple[bytes, bytes]:
    root = wrap(None, version)
    root[0].text = "|"
    opening, _, closing = serialize(root).partition(b"|")
    return opening, closing


_AROUND: Final[Mapping[SoapVersion, tuple[bytes, bytes]]] = {version: _around(version) for version in SoapVersion}
"""The octets of an envelope before and after the element in its body."""


# Values


def body_value(envelope: Envelope) -> Any:
    """Return the content of the element in the Body as plain Python, without a schema; None if the Body is empty.

    An element with text alone is its text, and `xsi:nil` is None. An element with elements in it is a dict of them by
    local name, in their order; those of one name that follow each other are a list. White space between elements,
    comments, namespaces, and `xsi:type` are left out.

    Raises:
        UsageError: something would be lost: an attribute, text beside elements, elements of one local name that are
            apart or of two namespaces, content in spite of `xsi:nil`, or a second element in the Body.
    """
    contents = list(envelope.body.iterchildren(etree.Element))
    if not contents:
        return None
    if len(contents) > 1:
        raise UsageError(f"plain values show one element of a Body, got {len(contents)}: read them in `envelope.body`")
    values = dict[etree._Element, Any]()
    for element in reversed(list(contents[0].iter(etree.Element))):  # an element comes after those in it
        values[element] = _value(element, [(each, values.pop(each)) for each in element.iterchildren(etree.Element)])
    return values[contents[0]]


XSI: Final = "{http://www.w3.org/2001/XMLSchema-instance}"
_LEFT_OUT: Final = frozenset(XSI + each for each in ("nil", "type", "schemaLocation", "noNamespaceSchemaLocation"))


def is_nil(element: etree._Element) -> bool:
    """Say whether an element has `xsi:nil`."""
    return element.get(XSI + "nil", "").strip() in ("true", "1")


def _value(element: etree._Element, children: Sequence[tuple[etree._Element, Any]]) -> Any:
    if others := [str(each) for each in element.attrib if each not in _LEFT_OUT]:
        raise _not_plain(element, f"the attribute {shown(others[0])}")
    text = "".join([element.text or "", *(each.tail or "" for each in element)])
    if is_nil(element):
        if children or text:
            raise _not_plain(element, "content in spite of xsi:nil")
        return None
    if not children:
        return text
    if text.strip(WHITE_SPACE):
        raise _not_plain(element, "text beside elements")
    found = dict[str, Any]()
    for tag, group in groupby(children, lambda each: str(each[0].tag)):
        name, values = etree.QName(tag).localname, [value for _, value in group]
        if name in found:
            raise _not_plain(element, f"elements {shown(name)} that are apart, or of two namespaces")
        found[name] = values if len(values) > 1 else values[0]
    return found


def _not_plain(element: etree._Element, what: str) -> UsageError:
    path = [etree.QName(each).localname for each in (*reversed([*element.iterancestors()]), element)]
    return UsageError(f"plain values cannot show {shown('.'.join(path[2:]))}, which has {what}: read it in `element`")


# Faults


class FaultShape(StrEnum):
    """Where a fault carries its subcode."""

    FAULTCODE = "SOAP 1.1 faultcode"
    DETAIL = "SOAP 1.1 detail"
    SUBCODE = "SOAP 1.2 Subcode"


@dataclass(frozen=True, slots=True)
class Fault:
    """A SOAP fault that was read.

    Attributes:
        version: the version of the envelope.
        code: the fault code as a name in Clark notation (`{namespace}local`), or as it is if no prefix resolves.
        reason: the text for people.
        subcode: the local name of the subcode in one of the binding's namespaces; None for any other fault.
        namespace: the namespace of the subcode.
        shape: where the subcode was.
        element: the Fault element.
    """

    version: SoapVersion
    code: str
    reason: str
    element: etree._Element
    subcode: str | None = None
    namespace: str | None = None
    shape: FaultShape | None = None

    def as_error(self) -> SoapFaultError:
        """Make the exception for this fault."""
        local = self.code.rpartition("}")[2].rpartition(":")[2]
        sender = self.subcode is not None or local.startswith(("Sender", "Client"))
        return SoapFaultError(
            self.reason,
            blame=Blame.SENDER if sender else Blame.RECEIVER,
            detail=self.detail,
            subcode=self.subcode,
            code=self.code,
            subcodes=self.subcodes,
        )

    @property
    def subcodes(self) -> tuple[str, ...]:
        """The Subcodes of SOAP 1.2, or a SOAP 1.1 code that is not SOAP's, in Clark notation; without the binding's."""
        if self.subcode is not None:
            return ()
        if self.version is SoapVersion.SOAP_11:
            found = [self.code]
        else:
            env = f"{{{self.version.namespace}}}"
            found = [_qname(each.find(f"{env}Value")) for each in self.element.iter(f"{env}Subcode")]
        return tuple(each for each in found if is_name(each) and not each.startswith(f"{{{self.version.namespace}}}"))

    @property
    def detail(self) -> etree._Element | None:
        """The detail element (`detail` in SOAP 1.1, `Detail` in SOAP 1.2), or None."""
        name = "detail" if self.version is SoapVersion.SOAP_11 else f"{{{self.version.namespace}}}Detail"
        return self.element.find(name)


def read_fault(envelope: Envelope) -> Fault | None:
    """Read the fault of an envelope; None if it holds none. Both SOAP 1.1 shapes and both namespaces are read.

    Spec: SOAP/JMS 2.8.
    """
    wanted = _FAULTS[envelope.version]
    for element in envelope.body:
        if element.tag == wanted:
            return _read_soap12(element) if envelope.version is SoapVersion.SOAP_12 else _read_soap11(element)
    return None


_FAULTS: Final[Mapping[SoapVersion, str]] = {each: f"{{{each.namespace}}}Fault" for each in SoapVersion}


def _read_soap11(element: etree._Element) -> Fault:
    code = _qname(element.find("faultcode"))
    reason = (element.findtext("faultstring") or "").strip()
    detail = element.find("detail")
    children = [] if detail is None else list(detail.iterchildren(etree.Element))
    inside = str(children[0].tag) if len(children) == 1 else ""
    for name, shape in ((code, FaultShape.FAULTCODE), (inside, FaultShape.DETAIL)):
        space, local = _split(name)
        if space in names.EDITION_OF_NAMESPACE:
            return Fault(SoapVersion.SOAP_11, code, reason, element, local, space, shape)
    return Fault(SoapVersion.SOAP_11, code, reason, element)


def _read_soap12(element: etree._Element) -> Fault:
    env = f"{{{SoapVersion.SOAP_12.namespace}}}"
    code = _qname(element.find(f"{env}Code/{env}Value"))
    reason = (element.findtext(f"{env}Reason/{env}Text") or "").strip()
    space, local = _split(_qname(element.find(f"{env}Code/{env}Subcode/{env}Value")))
    if space in names.EDITION_OF_NAMESPACE:
        return Fault(SoapVersion.SOAP_12, code, reason, element, local, space, FaultShape.SUBCODE)
    return Fault(SoapVersion.SOAP_12, code, reason, element)


def _qname(element: etree._Element | None) -> str:
    """Resolve a QName in an element's text by the prefixes in scope."""
    if element is None or not element.text:
        return ""
    prefix, colon, local = element.text.strip().rpartition(":")
    space = element.nsmap.get(prefix if colon else None)
    return f"{{{space}}}{local}" if space else element.text.strip()


def _split(name: str) -> tuple[str, str]:
    space, brace, local = name[1:].partition("}")
    return (space, local) if name.startswith("{") and brace else ("", name)


_SOAP11_CODES: Final = {Blame.SENDER: "Client", Blame.RECEIVER: "Server"}


def build_fault(
    version: SoapVersion,
    reason: str,
    *,
    profile: Profile = names.DEFAULT_PROFILE,
    subcode: Subcode | None = None,
    blame: Blame = Blame.SENDER,
    detail: etree._Element | None = None,
    subcodes: Sequence[str] = (),
) -> etree._Element:
    """Build an envelope with a fault.

    Args:
        version: the version of the envelope.
        reason: the text for people; characters that XML cannot hold are replaced.
        profile: the profile whose namespace and SOAP 1.1 shape the subcode has.
        subcode: one of the binding's subcodes.
        blame: the fault code; every subcode goes with SENDER. With VERSION_MISMATCH, the header of a SOAP 1.2 envelope
            lists the versions that are understood.
        detail: application detail, put into the detail element.
        subcodes: names in Clark notation in place of `subcode`; see `SoapFaultError`.

    Spec: SOAP/JMS 2.8.
    """
    space = version.namespace
    env = f"{{{space}}}"
    in_code = version is SoapVersion.SOAP_12 or profile.soap11_fault is Soap11FaultShape.FAULTCODE
    if subcode is not None and in_code:
        subcodes = (f"{{{profile.namespace}}}{subcode}",)
    elif subcode is not None:
        detail = etree.Element(f"{{{profile.namespace}}}{subcode}", nsmap={"soapjms": profile.namespace})
    root = etree.Element(f"{env}Envelope", nsmap={"env": space})
    if blame is Blame.VERSION_MISMATCH and version is SoapVersion.SOAP_12:
        _add_upgrade(etree.SubElement(root, f"{env}Header"), env)
    fault = etree.SubElement(etree.SubElement(root, f"{env}Body"), f"{env}Fault")
    reason = "".join(character if _is_xml(character) else "\ufffd" for character in reason)
    if version is SoapVersion.SOAP_12:
        _fill_soap12(fault, env, reason, blame, detail)
        code = fault[0]
        for each in subcodes:
            code = etree.SubElement(code, f"{env}Subcode")
            code.append(_naming(f"{env}Value", each, profile))
    else:
        _fill_soap11(fault, reason, blame, detail)
        if subcodes:
            fault.replace(fault[0], _naming("faultcode", subcodes[-1], profile))
    return root


def _naming(tag: str, name: str, profile: Profile) -> etree._Element:
    """Make an element with a qualified name as its text.

    The element itself declares the prefix, as CXF reads a SOAP 1.2 fault apart from its envelope and does not know
    prefixes declared on outer elements.
    """
    space, local = _split(name)
    prefix = "soapjms" if space == profile.namespace else "sub"
    element = etree.Element(tag, nsmap={prefix: space})
    element.text = f"{prefix}:{local}"
    return element


def _add_upgrade(header: etree._Element, env: str) -> None:
    """List the envelopes that are understood. Spec: SOAP 1.2 Part 1 5.4.7."""
    upgrade = etree.SubElement(header, f"{env}Upgrade")
    for known in reversed(SoapVersion):
        supported = etree.SubElement(upgrade, f"{env}SupportedEnvelope", nsmap={"known": known.namespace})
        supported.set("qname", "known:Envelope")


def _is_xml(character: str) -> bool:
    code = ord(character)
    return code in (0x9, 0xA, 0xD) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code > 0xFFFF


def _fill_soap12(fault: etree._Element, env: str, reason: str, blame: Blame, detail: etree._Element | None) -> None:
    code = etree.SubElement(fault, f"{env}Code")
    etree.SubElement(code, f"{env}Value").text = f"env:{blame}"
    text = etree.SubElement(etree.SubElement(fault, f"{env}Reason"), f"{env}Text")
    text.set("{http://www.w3.org/XML/1998/namespace}lang", "en")
    text.text = reason
    if detail is not None:
        etree.SubElement(fault, f"{env}Detail").append(detail)


def _fill_soap11(fault: etree._Element, reason: str, blame: Blame, detail: etree._Element | None) -> None:
    etree.SubElement(fault, "faultcode").text = f"env:{_SOAP11_CODES.get(blame, blame)}"
    etree.SubElement(fault, "faultstring").text = reason
    if detail is not None:
        etree.SubElement(fault, "detail").append(detail)


def header_of(root: etree._Element) -> etree._Element:
    """Return the Header of an envelope; add one if there is none."""
    name = etree.QName(etree.QName(root).namespace, "Header").text
    header = root.find(name)
    if header is None:
        header = etree.Element(name)
        root.insert(0, header)
    return header


TRUE: Final = frozenset({"1", "true"})
"""The values of mustUnderstand that mean yes; SOAP 1.1 has only the first, but the other is accepted there too."""

MAX_NAMED_BLOCKS: Final = 20
"""Most blocks that a fault names, as a message may have a hundred thousand."""


class _Words(NamedTuple):
    """How one SOAP version states the node that a block is for.

    Attributes:
        role: the attribute that states it.
        ours: its values that mean the node that processes the body, with "" for an absent or empty attribute.
    """

    role: str
    ours: frozenset[str]


_NS_11, _NS_12 = SoapVersion.SOAP_11.namespace, SoapVersion.SOAP_12.namespace
_WORDS: Final[Mapping[SoapVersion, _Words]] = {
    SoapVersion.SOAP_11: _Words(f"{{{_NS_11}}}actor", frozenset({"", "http://schemas.xmlsoap.org/soap/actor/next"})),
    SoapVersion.SOAP_12: _Words(
        f"{{{_NS_12}}}role", frozenset({"", f"{_NS_12}/role/next", f"{_NS_12}/role/ultimateReceiver"})
    ),
}


def not_understood(
    envelope: Envelope, understands: Collection[str], roles: Collection[str] = ()
) -> list[etree._Element]:
    """List the header blocks that this node must understand and does not.

    Args:
        envelope: the envelope of the request.
        understands: names of blocks; see `is_among`.
        roles: URIs of the roles of this node beside the ultimate receiver; SOAP 1.1 calls them actors.

    Spec: SOAP 1.1 4.2.3; SOAP 1.2 Part 1 2.4, 2.6.
    """
    if envelope.header is None:
        return []
    must = f"{{{envelope.version.namespace}}}mustUnderstand"
    return [
        block
        for block in envelope.header.iterchildren(etree.Element)
        if block.get(must, "").strip() in TRUE
        and _is_ours(block, envelope.version, roles)
        and not is_among(block, understands)
    ]


def is_among(block: etree._Element, names: Collection[str]) -> bool:
    """Say whether a header block is among names in Clark notation; `{namespace}*` is any name of a namespace."""
    return block.tag in names or f"{{{etree.QName(block).namespace or ''}}}*" in names


def blocks_for(envelope: Envelope, name: str, roles: Collection[str] = ()) -> list[etree._Element]:
    """List the header blocks with a name that are for this node; see `not_understood`."""
    if envelope.header is None:
        return []
    return [each for each in envelope.header.iterchildren(name) if _is_ours(each, envelope.version, roles)]


def _is_ours(block: etree._Element, version: SoapVersion, roles: Collection[str]) -> bool:
    words = _WORDS[version]
    role = block.get(words.role, "").strip()
    return role in words.ours or role in roles


def must_understand_fault(version: SoapVersion, blocks: Sequence[etree._Element]) -> etree._Element:
    """Build the envelope with the fault for blocks that are not understood; SOAP 1.2 also names each in a header block.

    At most `MAX_NAMED_BLOCKS` are named.

    Spec: SOAP 1.1 4.4.1; SOAP 1.2 Part 1 5.4.8.
    """
    listed = blocks[:MAX_NAMED_BLOCKS]
    seen = ", ".join(named(block.tag) for block in listed) + (", …" if len(blocks) > MAX_NAMED_BLOCKS else "")
    root = build_fault(
        version, f"header blocks that are not understood, and must be: {seen}", blame=Blame.MUST_UNDERSTAND
    )
    if version is SoapVersion.SOAP_12:
        header = etree.Element(f"{{{version.namespace}}}Header")
        root.insert(0, header)
        for block in listed:
            name = etree.QName(block)
            nsmap = {"block": name.namespace} if name.namespace else None
            element = etree.SubElement(header, f"{{{version.namespace}}}NotUnderstood", nsmap=nsmap)
            element.set("qname", f"block:{name.localname}" if name.namespace else name.localname)
    return root
