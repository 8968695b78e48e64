"""What WS-Addressing calls the answers of a WSDL's operations."""

from __future__ import annotations

from typing import Any, Final

from lxml import etree

from soapjms.typed.description import Described

ACTIONS: Final = (
    "{http://www.w3.org/2007/05/addressing/metadata}Action",
    "{http://www.w3.org/2006/05/addressing/wsdl}Action",
    "{http://www.w3.org/2005/08/addressing}Action",
    "{http://schemas.xmlsoap.org/ws/2004/08/addressing}Action",
)
"""The attributes of an output that say it."""


def reply_action_of(described: Described, operation: Any) -> str | None:
    """Return the action of the answer: what the output says, else namespace, port type and output. None without one.

    What a port type in another document says is not looked at.

    Spec: WS-Addressing 1.0 Metadata 4.4.1, 4.4.4.
    """
    if operation.abstract.output_message is None:
        return None
    name = etree.QName(described.binding.port_type.name.text)
    output = _output(described, name.localname, operation.name)
    if output is not None:
        stated = next((output.get(each) for each in ACTIONS if output.get(each)), None)
        if stated:
            return stated
    called = None if output is None else output.get("name")
    space = name.namespace or ""
    mark = ":" if space.lower().startswith("urn:") else "/"
    return mark.join((space.rstrip(mark), name.localname, called or f"{operation.name}Response"))


def _output(described: Described, port_type: str, operation: str) -> etree._Element | None:
    root = described.binding.standing.element.getroottree().getroot()
    for each in root.iterchildren("{*}portType"):
        if each.get("name") == port_type:
            found = [one for one in each.iterchildren("{*}operation") if one.get("name") == operation]
            return found[0].find("{*}output") if found else None
    return None
