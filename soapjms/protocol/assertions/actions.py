"""Checks of the SOAP action of SOAP 1.2: what content types state of it, beside SOAPJMS_soapAction.

Spec: SOAP/JMS 2.2.3 soapAction; RFC 3902 2; XOP 5.
"""

from __future__ import annotations

from soapjms.protocol import names
from soapjms.protocol.assertions.messages import missing
from soapjms.protocol.assertions.model import Case
from soapjms.protocol.content import ContentType, parse_content_type
from soapjms.protocol.names import SoapVersion, Subcode
from soapjms.protocol.showing import shown

SOAP_11, SOAP_12 = SoapVersion.SOAP_11.media_type, SoapVersion.SOAP_12.media_type
STATING = (SOAP_12, names.MULTIPART, names.XOP)
"""The media types that may state an action; all but the first name that of the envelope inside in a parameter."""


def stated_actions(kind: ContentType | None) -> list[str]:
    """Return the actions that a content type states for SOAP 1.2; several if it contradicts itself.

    That of a multipart body or of MTOM has one of its own, or within `start-info` or `type`, where the media type of
    the envelope is; none where that is of SOAP 1.1, which knows no such parameter.
    """
    if kind is None or kind.media_type not in STATING:
        return []
    stating = [kind]
    if kind.media_type != SOAP_12:
        inner = [parse_content_type(kind.parameters.get(name, "")) for name in ("start-info", "type")]
        if any(each.media_type == SOAP_11 for each in inner):
            return []
        stating += [each for each in inner if each.media_type == SOAP_12]
    return list(dict.fromkeys(each.parameters["action"] for each in stating if "action" in each.parameters))


def is_soap12_with_action(case: Case) -> bool:
    """A content type of SOAP 1.2 with an action; an empty one asks for no property, as an empty property is none."""
    return any(stated_actions(case.message.content_type))


def has_both_actions(case: Case) -> bool:
    """Both actions are there; under the CR the property that is missing is a mismatch too."""
    if case.message.soap_action is not None:
        return bool(stated_actions(case.message.content_type))
    return is_soap12_with_action(case) and Subcode.MISSING_SOAP_ACTION not in case.setting.profile.subcodes


def actions_match(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2019. Quotes around the property are read as a habit."""
    return _differing(case, case.message.content_type, "the action parameter")


def _differing(case: Case, kind: ContentType | None, what: str) -> str | None:
    seen = case.message.soap_action
    wrong = [action for action in stated_actions(kind) if action != seen]
    return f"{what} is {shown(wrong[0])}, {names.SOAP_ACTION} is {shown(seen)}" if wrong else None


def soap_action_present(case: Case) -> str | None:
    """Spec: REC 2.2.3 soapAction (WG-63)."""
    return missing(case, names.SOAP_ACTION)


def soap_action_is_refused(case: Case) -> bool:
    """A name of another stack is refused only by a strict reader."""
    return case.setting.strict or case.message.soap_action is None


def is_multipart_with_action(case: Case) -> bool:
    """A payload with attachments and SOAPJMS_soapAction; whether its SOAP part states an action shows in the body."""
    return case.message.is_multipart and case.message.soap_action is not None


def part_action_matches(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction, for the content type where SOAP over HTTP has the action of MTOM too."""
    part = case.message.soap_part
    assert part is not None
    return _differing(case, part.content_type, "the action parameter of the SOAP part")
