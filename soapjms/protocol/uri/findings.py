"""Every kind of finding about a URI, once: its text, and its severity in each mode.

Spec: RFC 6167 3 to 5, 8; draft-03 3 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple


class Mode(StrEnum):
    """The grammar that a URI is checked against."""

    STRICT = "strict"
    DRAFT_03 = "draft-03"
    LENIENT = "lenient"


class Severity(StrEnum):
    """The effect of a finding on its URI."""

    SYNTAX = "syntax"  # not well-formed
    VALUE = "value"  # well-formed, not valid
    NOTE = "note"  # valid, but worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a URI.

    Attributes:
        code: the key of its row in `FINDINGS`.
        text: what was found, and the rule.
        position: index of the first character concerned.
        severity: its effect in the mode of the parse.
    """

    code: str
    text: str
    position: int
    severity: Severity


class FindingRow(NamedTuple):
    """A kind of finding: its text, and its severity in each mode; None if the mode allows it."""

    text: str
    strict: Severity | None
    draft: Severity | None
    lenient: Severity | None


_S, _V, _N = Severity.SYNTAX, Severity.VALUE, Severity.NOTE

FINDINGS: Final[Mapping[str, FindingRow]] = MappingProxyType(
    {
        # characters
        "fragment": FindingRow("a fragment (#) is not part of a JMS URI; a # in a name is written %23", _S, _S, _S),
        "badEscape": FindingRow(
            "{seen} is no escape; % is followed by two hexadecimal digits, a plain % is %25", _S, _S, _S
        ),
        "badCharacter": FindingRow("{seen} may not stand in a URI; write its UTF-8 octets, each escaped", _S, _S, _S),
        # draft-03 requires UTF-8 only for IRIs
        "escapeNotUtf8": FindingRow("the octet {seen} is not UTF-8; the part is left undecoded", _S, _N, _S),
        # scheme and variant
        "wrongScheme": FindingRow("it begins with {seen}; a JMS URI begins with jms:", _S, _S, _S),
        "schemeCase": FindingRow("the scheme is written {seen}; write it jms", _N, _N, _N),
        "noVariant": FindingRow(
            "no second colon; a JMS URI is jms:variant:destination, such as jms:queue:orders", _S, _S, _S
        ),
        "emptyVariant": FindingRow("the variant is empty; it is jndi, queue, topic or another name", _S, _S, _S),
        "slashInVariant": FindingRow(
            "{seen} holds a slash and is no variant; a JMS URI is jms:variant:destination", _S, _S, _S
        ),
        "escapedVariant": FindingRow("the variant {seen} holds escapes that are not needed", _N, _N, _N),
        "unknownVariant": FindingRow("the variant {seen} is not jndi, queue or topic (case counts)", _N, _N, _N),
        "vendorVariant": FindingRow("the variant {seen} is a vendor's; only the vendor says what it means", _N, _N, _N),
        "vendorPattern": FindingRow(
            "the variant {seen} begins with vnd.; that is reserved for vnd.vendor.label", _N, _N, _N
        ),
        "longVariant": FindingRow(
            "the variant {seen} has more than the 40 characters that may be registered", _N, _N, _N
        ),
        # destination
        "emptyDestination": FindingRow("the destination is empty", _S, _S, _S),
        "leadingSlash": FindingRow("the destination begins with a slash; as part of the name it is %2F", _S, _S, _S),
        "slashInDestination": FindingRow("the destination holds a slash; RFC 6167 wants %2F", _S, None, _N),
        "rawAmpersand": FindingRow("the destination holds a plain &; it must be %26", _V, _V, _N),
        "rawColon": FindingRow("the destination holds a plain colon; it should be %3A", _N, _N, _N),
        "notAscii": FindingRow("the name {seen} holds characters beyond ASCII: mind look-alikes", _N, _N, _N),
        "mixedScripts": FindingRow("the name {seen} mixes scripts: mind look-alikes", _N, _N, _N),
        "controlCharacter": FindingRow("the name {seen} holds control or invisible characters", _N, _N, _N),
        # parameters
        "emptyQuery": FindingRow("nothing follows the ?", _S, _S, _N),
        "emptyParameter": FindingRow("an empty parameter beside an &", _S, _S, _N),
        "noValue": FindingRow("the parameter {seen} has no =; an empty value is written {seen}=", _S, _S, _N),
        "emptyName": FindingRow("a parameter has no name before its =", _S, _S, _S),
        "parameterCharacter": FindingRow("{seen} is not escaped in a parameter; it must be escaped there", _S, _S, _N),
        "repeated": FindingRow("the parameter {seen} is repeated; the last one counts", _N, _N, _N),
        "nameCase": FindingRow("the parameter {seen} is not the known one of that name: case counts", _N, _N, _N),
        "secret": FindingRow("the parameter {seen} looks like a secret; a URI must not carry one", _V, _V, _N),
        # values
        "deliveryMode": FindingRow("deliveryMode is {seen}; it is PERSISTENT or NON_PERSISTENT", _V, _V, _N),
        "timeToLive": FindingRow(
            "timeToLive is {seen}; it is milliseconds, digits only, below 2 to the 63", _V, _V, _N
        ),
        "priority": FindingRow("priority is {seen}; it is 0 to 9", _V, _V, _N),
        "leadingZeros": FindingRow("the number {seen} has leading zeros", _N, _N, _N),
        "emptyValue": FindingRow("the parameter {seen} is empty; leave it out, or name something", _N, _N, _N),
        "className": FindingRow("{seen} is no Java class name such as com.example.ContextFactory", _N, _N, _N),
        "jndiUrl": FindingRow("jndiURL has no scheme; it is a URL such as tcp://host:61616", _N, _N, _N),
        "bothReplyNames": FindingRow("replyToName and topicReplyToName exclude each other", _V, _V, _N),
        "topicReplyWithJndi": FindingRow(
            "topicReplyToName means nothing with the variant jndi and is ignored", _N, _N, _N
        ),
        "emptyJndiName": FindingRow("jndi- is followed by no name; the parameter is ignored", _N, _N, _N),
        "jndiTwice": FindingRow("{seen} has a parameter of its own, which is set too; that one counts", _N, _N, _N),
        # about other findings
        "moreFindings": FindingRow("only the first findings of each kind are kept; left out are {seen}", _N, _N, _N),
    }
)

_COLUMNS: Final = {
    Mode.STRICT: attrgetter("strict"),
    Mode.DRAFT_03: attrgetter("draft"),
    Mode.LENIENT: attrgetter("lenient"),
}
SEVERITIES: Final[Mapping[Mode, Mapping[str, Severity]]] = MappingProxyType(
    {
        mode: MappingProxyType({code: severity for code, row in FINDINGS.items() if (severity := pick(row))})
        for mode, pick in _COLUMNS.items()
    }
)
"""The severity of each kind of finding in each mode; kinds that the mode allows are left out."""
