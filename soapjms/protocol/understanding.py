"""Header blocks that must be understood: which of them a SOAP node is asked to process, and the fault where it cannot.

Spec: SOAP 1.1 4.2.2, 4.2.3, 4.4.1; SOAP 1.2 Part 1 2.2 to 2.6, 5.2.2, 5.2.3, 5.4.8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from lxml import etree

from soapjms.protocol.envelope import Blame, Envelope, build_fault
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.showing import named

TRUE: Final = frozenset({"1", "true"})
"""What mustUnderstand says yes with; SOAP 1.1 has only the first, and whoever writes the other there means it too."""

MOST_NAMED: Final = 20
"""Blocks that a fault names: a message may have a hundred thousand."""


class _Words(NamedTuple):
    """How one SOAP version says whom a block is for.

    Attributes:
        role: the attribute that says it.
        ours: its values that mean any node that processes the body, none or an empty one included.
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
    """List the header blocks that must be understood by this node, and are not.

    Args:
        envelope: the request's.
        understands: names of blocks; see `is_among`.
        roles: what this node acts as beside the ultimate receiver; URIs of roles, in SOAP 1.1 called actors.

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
    """Say whether a header block is among names in Clark notation, of which `{namespace}*` is any of a namespace."""
    return block.tag in names or f"{{{etree.QName(block).namespace or ''}}}*" in names


def blocks_for(envelope: Envelope, name: str, roles: Collection[str] = ()) -> list[etree._Element]:
    """List the header blocks of a name that are for this node; see `not_understood`."""
    if envelope.header is None:
        return []
    return [each for each in envelope.header.iterchildren(name) if _is_ours(each, envelope.version, roles)]


def _is_ours(block: etree._Element, version: SoapVersion, roles: Collection[str]) -> bool:
    words = _WORDS[version]
    role = block.get(words.role, "").strip()
    return role in words.ours or role in roles


def must_understand_fault(version: SoapVersion, blocks: Sequence[etree._Element]) -> etree._Element:
    """Build the envelope with the fault for blocks that are not understood; one of SOAP 1.2 names each in its header.

    At most 20 are named.

    Spec: SOAP 1.1 4.4.1; SOAP 1.2 Part 1 5.4.8.
    """
    listed = blocks[:MOST_NAMED]
    seen = ", ".join(named(block.tag) for block in listed) + (", …" if len(blocks) > MOST_NAMED else "")
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
