"""Where the specification says what an assertion says: the address that the report links to, and never loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from soapjms.protocol.names import CR_2009, REC_2012

PAGES: Final[Mapping[str, str]] = {
    CR_2009.name: "https://www.w3.org/TR/2009/CR-soapjms-20090604/",
    REC_2012.name: "https://www.w3.org/TR/2012/REC-soapjms-20120216/",
}
HEADINGS: Final[Mapping[str, str]] = {
    "1.6": "Conformance",
    "2.2": "Properties Affecting Binding",
    "2.2.1": "Connection to a destination",
    "2.2.2": "JMS Message Header properties",
    "2.2.3": "JMS Message properties",
    "2.2.4": "Binding of Properties to URI",
    "2.4": "The JMS Message Body",
    "2.4.1": "Considerations For Using TextMessage",
    "2.5": "Supported Message Exchange Patterns",
    "2.6.1.1": "Init",
    "2.6.1.2": "Requesting",
    "2.6.2.3": "Receiving + Sending",
    "2.7.1": "Behaviour of Sending SOAP Node",
    "2.8": "Faults",
    "3.3": "WSDL 2.0 Extensions Overview",
    "3.4.2": "WSDL 1.1 Transport Identification",
    "3.4.3": "WSDL 1.1 SOAP Action",
}
LOCAL: Final = "Local-"
"""How the ids begin of requirements that have none in the specification."""


def specification(edition: str, assertion: str, section: str) -> str:
    """Return the address of an assertion in an edition, as text that a browser looks for in the page.

    The anchors of the two editions differ; the words do not. A browser that knows no text fragments, or does not find
    the words, shows the page from its top.
    """
    number = section.removeprefix("REC ")
    words = assertion if not assertion.startswith(LOCAL) else f"{number} {HEADINGS.get(number, '')}".rstrip()
    return f"{PAGES[edition]}#:~:text={quote(words, safe='').replace('-', '%2D')}"
