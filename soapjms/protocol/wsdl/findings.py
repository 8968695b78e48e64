"""Findings about a WSDL: ONE table of all kinds of finding, each with its rule and the remedy.

Spec: SOAP/JMS 3.4 to 3.6; WSDLUsage-3001 to 3004.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Place(NamedTuple):
    """A place in a WSDL: the file as it was named, and the line, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Severity(StrEnum):
    """The meaning of a finding for users of the WSDL."""

    ERROR = "error"  # the part concerned cannot be used, or has no effect
    WARNING = "warning"  # the part can be used, but is perhaps not what the author meant


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake or a contradiction in a WSDL.

    Attributes:
        place: the file and line concerned.
        code: the key of its row in `RULES`.
        text: what was found.
        write: what to write instead.
        rule: the rule that is broken.
    """

    place: Place
    code: str
    text: str
    write: str
    rule: str

    @property
    def severity(self) -> Severity:
        """The severity of its kind."""
        return RULES[self.code].severity

    def __str__(self) -> str:
        return f"{self.place}: {self.text} ({self.rule}); {self.write}"


class Rule(NamedTuple):
    """One row of the table; rule, text and remedy are format strings."""

    severity: Severity
    rule: str
    text: str
    write: str


_E, _W = Severity.ERROR, Severity.WARNING

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        # addresses and transports
        "missingAddress": Rule(_E, "SOAP/JMS 3.4.5", "port {port!r} has no address",
                               "write {write}"),
        "notJmsAddress": Rule(_E, "SOAP/JMS 3.4.5", "port {port!r} has a SOAP/JMS transport and the address {seen!r}",
                              "write a jms: URI, such as jms:queue:NAME, or another transport in the binding"),
        "badUri": Rule(_E, "{rule}", "the address of port {port!r} at {at}: {seen} ({code})", "write {write}"),
        "looseUri": Rule(_W, "RFC 6167 3", "the address of port {port!r} at {at}: {seen} ({code})",
                         "write a URI that is also right in the strict grammar"),
        "uriNote": Rule(_W, "RFC 6167 4", "the address of port {port!r} at {at}: {seen} ({code})",
                        "check whether that is intended"),
        "jmsAddressElsewhere": Rule(_E, "SOAP/JMS 3.4.2", "port {port!r} has the jms: address {seen!r}, and the "
                                    "transport of its binding is {transport!r}",
                                    "write {attribute}=\"{namespace}\" in the binding"),
        "foreignTransport": Rule(_E, "SOAP/JMS 3.4.2", "the transport {transport!r} is {what}, not that of SOAP over "
                                 "JMS 1.0", "write {attribute}=\"{namespace}\""),
        "addressVersion": Rule(_W, "WSDL 1.1 3", "port {port!r} has an address element for SOAP {seen}, and its "
                               "binding is for SOAP {wanted}", "write the address element of the binding's namespace"),
        "missingBinding": Rule(_E, "WSDL 1.1 2.6", "port {port!r} names the binding {seen!r}, which is not there",
                               "name a binding by its prefix and name, and import the file that has it"),
        "missingFactory": Rule(_W, "SOAP/JMS 2.2.1", "port {port!r} uses the variant jndi, and nothing says "
                               "jndiConnectionFactoryName", "write it as an element or as a parameter of the address, "
                               "or see that every environment sets it"),
        "otherPattern": Rule(_W, "SOAP/JMS 2.5", "the operation {seen!r} of port {port!r} is neither request-response "
                             "nor one-way", "give it an input and then an output, or an input only"),
        "overloaded": Rule(_W, "WS-I Basic Profile 1.1 R2304", "port {port!r} has {count} operations {seen!r}, which "
                           "typed clients and services refuse", "give each a name of its own"),
        # WSDL 2.0
        "bindingType": Rule(_W, "WSDL 2.0 Adjuncts 5", "the type of the binding is {seen!r}",
                            "write type=\"http://www.w3.org/ns/wsdl/soap\""),
        "soapVersion": Rule(_E, "WSDL 2.0 Adjuncts 5.10", "wsoap:version is {seen!r}", "write 1.1 or 1.2"),
        # schemas
        "remoteSchema": Rule(_W, "XML Schema 1.0 4.3.2", "{what} from {seen!r} is passed over: nothing is fetched over "
                             "a network", "save the schema beside this file and write its name as the schemaLocation"),
        # references
        **{
            code: Rule(_E, "{rule}", f"{{attribute}} of {{what}} is {{seen!r}}, and no {what} is there", "{write}")
            for code, what in (
                ("missingInterface", "such port type or interface"),
                ("missingOperation", "such operation"),
                ("missingMessage", "such message"),
                ("missingFault", "such fault"),
                ("missingElement", "such element of a schema"),
                ("missingType", "such type of a schema"),
            )
        },
        # elements
        "badValue": Rule(_E, "SOAP/JMS 2.2.2", "{name} of the {inside} is {seen!r}", "write {accepted}"),
        "badContextParameter": Rule(_E, "SOAP/JMS 2.2.1", "a jndiContextParameter {seen}",
                                    "write <jndiContextParameter name=\"NAME\" value=\"VALUE\"/>"),
        "nestedElements": Rule(_E, "WSDLUsage-3004", "the element {name} holds elements", "write its value as text"),
        "notDeclarable": Rule(_E, "WSDLUsage-3004", "{name} is an element of the {inside}, and is no property that a "
                              "WSDL declares by an element", "{write}"),
        "unknownElement": Rule(_E, "WSDLUsage-3004", "{name} is no element of SOAP over JMS", "write one of: {known}"),
        "wrongPlace": Rule(_E, "WSDLUsage-3001", "{name} stands in {inside}, where it counts for nothing",
                           "move it into a binding (beside the SOAP binding element), a service or a {port}"),
        "repeatedElement": Rule(_W, "WSDLUsage-3002", "{name} is given {count} times in the {inside}; the last counts",
                                "write it once"),
        "mixedNamespaces": Rule(_W, "SOAP/JMS 3.4.2", "{name} is in the namespace {seen!r}, and the transport is "
                                "{transport!r}: two editions of the specification", "write both in one namespace"),
        "unusedElement": Rule(_W, "WSDLUsage-3001", "{name} in the {inside} counts for no port: {why}",
                              "take it out, or give {what} a port with a SOAP/JMS transport"),
        "secret": Rule(_W, "RFC 6167 8.4", "{name} in the {inside} looks like a secret, and everybody who uses the "
                       "service reads the WSDL", "leave it to the environment"),
        # contradictions
        "overriddenByUri": Rule(_W, "WSDLUsage-3003", "{name} {seen!r} of the {inside} is overridden for port {port!r} "
                                "by {wins!r} in its address", "take one of them out"),
        "overridden": Rule(_W, "WSDLUsage-3002", "{name} {seen!r} of the {inside} is overridden for port {port!r} by "
                           "{wins!r} of the {by}", "take one of them out"),
        "bothReplyNames": Rule(_W, "SOAP/JMS 2.2.2", "port {port!r} has both replyToName and topicReplyToName, which "
                               "is ignored then", "write one of them"),
        "replyNamesTogether": Rule(_E, "SOAP/JMS 2.2.2, RFC 6167 4.3.1", "replyToName is {name!r} and topicReplyToName "
                                   "is {topic!r} in one {inside}", "write one of them"),
        "topicReplyWithJndi": Rule(_W, "SOAP/JMS 2.2.2", "topicReplyToName of port {port!r} is ignored with the "
                                   "variant jndi", "write replyToName, with the JNDI name of the topic"),
    }
)  # fmt: skip


def finding(code: str, place: Place, /, **seen: object) -> Finding:
    """Make a finding of a kind; `seen` fills in its texts."""
    row = RULES[code]
    return Finding(place, code, row.text.format(**seen), row.write.format(**seen), row.rule.format(**seen))
