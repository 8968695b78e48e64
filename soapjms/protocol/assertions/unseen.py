"""The assertions that no log can show, each with the reason.

Spec: SOAP/JMS 1.6, 2.5, 3.4, 3.6.
"""

from __future__ import annotations

from typing import Final

from soapjms.protocol.assertions.model import Assertion, Binds, Sees
from soapjms.protocol.names import Level

MUST, SHOULD, NONE = Level.MUST, Level.SHOULD, Level.NONE


def _unseen(name: str, section: str, level: Level, binds: Binds, title: str, why_not: str) -> Assertion:
    return Assertion(
        id=name, section=section, level=level, binds=binds, sees=Sees.NOTHING, title=title, why_not=why_not
    )


_CAPABILITY: Final = "a capability of an implementation: messages can refute it, none can show it"
_BY_WSDL: Final = "decidable from the WSDL alone: `soapjms wsdl lint` does"
_BUT: Final = "; not that of JMSDestination, as mirrors and virtual topics show a message under another name"
_INSIDE: Final = "internal to a node: no message shows it"

UNSEEN: Final = (
    _unseen("Conformance-1000", "1.6", MUST, Binds.IMPLEMENTATION, "works with JMS 1.1", _CAPABILITY),
    _unseen("Conformance-1001", "1.6", MUST, Binds.IMPLEMENTATION, "implements all of section 2", _CAPABILITY),
    _unseen("Conformance-1002", "1.6", MUST, Binds.IMPLEMENTATION, "implements all of the URI scheme", _CAPABILITY),
    _unseen("Conformance-1003", "1.6", MUST, Binds.IMPLEMENTATION, "WSDL 1.1: all of it or none", _CAPABILITY),
    _unseen("Conformance-1004", "1.6", MUST, Binds.IMPLEMENTATION, "WSDL 2.0: all of it or none", _CAPABILITY),
    _unseen("Protocol-2031", "2.5", MUST, Binds.IMPLEMENTATION, "both exchange patterns", _CAPABILITY),
    _unseen("Protocol-2032", "2.5", MUST, Binds.IMPLEMENTATION, "the patterns of SOAP 1.2", _CAPABILITY),
    _unseen("Protocol-2033", "2.5", MUST, Binds.IMPLEMENTATION, "both patterns with SOAP 1.1", _CAPABILITY),
    _unseen(
        "Protocol-2035", "2.6.1.1", NONE, Binds.REQUESTING, "the table of a request's values",
        f"its rows are judged one by one: Protocol-2005 to 2010, 2016, 2018, 2022, 2050{_BUT}",
    ),
    _unseen(
        "Protocol-2041", "2.7.1", NONE, Binds.ONE_WAY_SENDER, "the table of a one-way message's values",
        f"its rows are judged one by one: Protocol-2005 to 2010, 2016, 2018, 2022, 2051{_BUT}",
    ),
    _unseen("WSDLUsage-3004", "3.6", NONE, Binds.WSDL, "which properties may stand where", _BY_WSDL),
    _unseen(
        "Local-2.2-processed", "2.2", MUST, Binds.CLIENT, "a property that is present is processed as specified",
        "property by property: Protocol-2005 to 2010, 2016, 2018, 2022, 2070",
    ),
    _unseen(
        "Local-2.2.1-contextParameter", "2.2.1", MUST, Binds.CLIENT,
        "a jndi- parameter is stored as a String, by its name",
        "between the sender and its naming service: no message shows it",
    ),
    _unseen(
        "Local-2.2.2-replyDestination", "2.2.2", SHOULD, Binds.RESPONDING, "the response goes where replyToName says",
        "Protocol-2008, 2070 and 2037 judge the two halves of it",
    ),
    _unseen(
        "Local-2.2.3-isFaultRead", "2.2.3", NONE, Binds.RECEIVER, "isFault is false unless the property says 1 or true",
        _INSIDE,
    ),
    _unseen(
        "Local-2.4-writeBytes", "REC 2.4", MUST, Binds.SENDER, "a BytesMessage is written with writeBytes",
        "the octets are the same whichever method wrote them",
    ),
    _unseen(
        "Local-2.4-bothTypes", "REC 2.4", MUST, Binds.RESPONDING, "supports BytesMessage and TextMessage", _CAPABILITY
    ),
    _unseen(
        "Local-2.6.1.2-correlated", "2.6.1.2", NONE, Binds.REQUESTING, "which response is the correlated one",
        "Protocol-2038 judges the sender of the response; what its receiver makes of it shows in no message",
    ),
    _unseen(
        "Local-3.4.2-transport", "3.4.2", NONE, Binds.WSDL, "the transport attribute names the binding", _BY_WSDL
    ),
    _unseen(
        "Local-3.4.2-location", "REC 3.3", MUST, Binds.WSDL, "the location is a URI of a JMS destination", _BY_WSDL
    ),
    _unseen(
        "Local-3.4.3-soapAction", "3.4.3", NONE, Binds.WSDL, "soapAction may stand on a SOAP operation",
        "a permission: nothing can break it",
    ),
)  # fmt: skip
