"""Checks of a response against its request, and of the faults in responses."""

from __future__ import annotations

from soapjms.protocol import names
from soapjms.protocol.assertions.model import Case, Fact, reads
from soapjms.protocol.assertions.request_checks import CLOCK_TOLERANCE_MILLISECONDS
from soapjms.protocol.assertions.spots import MESSAGE_TYPE, Reason, Spot, header, in_body, in_property, span_of
from soapjms.protocol.envelope import Envelope, FaultShape
from soapjms.protocol.names import Soap11FaultShape, SoapVersion, Subcode
from soapjms.protocol.text import moment, named, shown

WSA_REPLY_TO = "{http://www.w3.org/2005/08/addressing}ReplyTo"
WSA_ANONYMOUS = "http://www.w3.org/2005/08/addressing/anonymous"


@reads(Fact.MESSAGE_TYPE)
def same_message_type(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.2.3; Protocol-2036."""
    request, response = case.pair
    if request.message.message_type is response.message.message_type:
        return None
    wanted = request.message.message_type
    return Reason(
        f"the request is {wanted}, the response {response.message.message_type}", header(MESSAGE_TYPE, wanted)
    )


@reads(Fact.BODY_KIND)
def request_is_payload(case: Case) -> bool:
    """Say whether the request has a type that a response can repeat."""
    request, _ = case.pair
    return Subcode.UNSUPPORTED_MESSAGE_FORMAT not in case.subcodes.values() and request.message.size > 0


@reads(Fact.REPLY_PLACE)
def sent_to_reply_destination(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.2.3; Protocol-2037."""
    request, response = case.pair
    wanted, seen = request.message.reply_to, response.message.destination
    assert wanted is not None
    assert seen is not None
    if wanted.name == seen.name and wanted.kind.is_topic is seen.kind.is_topic:
        return None
    return Reason(
        f"JMSReplyTo of the request is {named(wanted)}, the response went to {named(seen)}",
        header("JMSDestination", f"{wanted.kind}:{wanted.name}"),
    )


@reads(Fact.PROPERTIES, Fact.BODY)
def nothing_redirects(case: Case) -> bool:
    """Say whether no WS-Addressing ReplyTo redirects the response, as it may under the REC (WG-29)."""
    envelope = case.pair[0].envelope
    return not case.setting.profile.addressing_redirects or envelope is None or not redirects(envelope)


def redirects(envelope: Envelope) -> bool:
    """Say whether an envelope has a WS-Addressing ReplyTo with another address than the anonymous one."""
    address = None if envelope.header is None else envelope.header.findtext(f"{WSA_REPLY_TO}/*")
    return address not in (None, WSA_ANONYMOUS)


@reads(Fact.CORRELATION)
def right_correlation(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.2.3; Protocol-2038, with the rule of the profile (WG-39)."""
    request, response = case.pair
    wanted, seen = case.wanted_correlation_id, response.message.correlation_id
    if wanted == seen:
        return None
    rule = case.setting.profile.correlation
    other = request.message.message_id if wanted != request.message.message_id else request.message.correlation_id
    hint = " (the other id of the request)" if seen == other else ""
    told = "is not set" if seen is None else f"is {shown(seen)}{hint}"
    return Reason(
        f"JMSCorrelationID {told}; it has to be the request's {rule}: {shown(wanted)}",
        header("JMSCorrelationID", wanted),
    )


@reads(Fact.PRIORITY, Fact.REPEATED_URI)
def copied(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.2.3, the table; Protocol-2039."""
    request, response = case.pair
    wrong, spots = [], []
    for label, wanted, seen in (
        ("JMSPriority", request.message.priority, response.message.priority),
        (names.REQUEST_URI, request.text(names.REQUEST_URI), response.text(names.REQUEST_URI)),
    ):
        if wanted is not None and seen is not None and wanted != seen:
            wrong.append(f"{label} is {shown(seen)}, the request's is {shown(wanted)}")
            is_uri = label == names.REQUEST_URI
            spots.append(in_property(response, label, wanted) if is_uri else header(label, wanted))
    return Reason("; ".join(wrong), *spots) if wrong else None


@reads(Fact.DELIVERY_MODE)
def same_delivery_mode(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.2.3, the table."""
    request, response = case.pair
    wanted, seen = request.message.delivery_mode, response.message.delivery_mode
    if wanted is None or seen is None or wanted == seen:
        return None
    right = header("JMSDeliveryMode", int(wanted))
    return Reason(f"JMSDeliveryMode is {seen}, the request's is {wanted}", right)


@reads(Fact.EXPIRY)
def expires_with_request(case: Case) -> str | None:
    """Any expiration up to that of the request is accepted, and what its sending may add: providers count from then on.

    Spec: SOAP/JMS 2.6.2.3, the table.
    """
    request, response = case.pair
    wanted, seen = request.message.expiration, response.message.expiration
    if not wanted or seen is None or 0 < seen <= wanted + CLOCK_TOLERANCE_MILLISECONDS:
        return None
    when = f"expires on {moment(seen)}, its request" if seen else "never expires, its request does"
    return Reason(f"the response {when} on {moment(wanted)}", header("JMSExpiration", wanted))


# Faults


@reads(Fact.JNDI)
def is_jndi(case: Case) -> bool:
    """Say whether the request's lookup variant is jndi."""
    request, _ = case.pair
    return request.request_uri is not None and request.request_uri.variant == "jndi"


@reads(Fact.PROPERTIES, Fact.BODY)
def jndi_supported(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 lookupVariant; Protocol-2060. A message can only refute it."""
    fault = case.message.fault
    if fault is None or fault.subcode != Subcode.UNSUPPORTED_LOOKUP_VARIANT:
        return None
    return Reason(
        f"a request with the lookup variant jndi is answered with {fault.subcode}",
        _subcode_spot(case, "a response, or a fault for another reason"),
    )


def _subcode_spot(case: Case, accepted: str) -> Spot:
    """Return the spot of the body that has the subcode of a fault, or its code; of the whole body without a fault."""
    fault = case.message.fault
    told = None if fault is None else fault.subcode or fault.code
    return in_body(accepted, span_of(told, case.message.body))


SHAPES = {Soap11FaultShape.FAULTCODE: FaultShape.FAULTCODE, Soap11FaultShape.DETAIL: FaultShape.DETAIL}


@reads(Fact.PROPERTIES, Fact.BODY)
def is_binding_fault(case: Case) -> bool:
    """Say whether the response is a fault with a subcode of the binding."""
    return case.message.fault is not None and case.message.fault.subcode is not None


@reads(Fact.PROPERTIES, Fact.BODY)
def fault_shape(case: Case) -> str | None:
    """Say why namespace, subcode or its place are not the profile's, or None. Spec: SOAP/JMS 2.8; REC 2.8 (WG-34)."""
    fault, profile = case.message.fault, case.setting.profile
    assert fault is not None
    if fault.namespace != profile.namespace:
        return Reason(
            f"the subcode {named(fault.subcode)} is in the namespace {fault.namespace}, not in {profile.namespace}",
            in_body(f"the namespace {profile.namespace}", span_of(fault.namespace, case.message.body)),
        )
    if fault.subcode not in profile.subcodes:
        known = ", ".join(sorted(profile.subcodes))
        return Reason(f"{shown(fault.subcode)} is no subcode of {profile.name}", _subcode_spot(case, known))
    wanted = FaultShape.SUBCODE if fault.version is SoapVersion.SOAP_12 else SHAPES[profile.soap11_fault]
    if fault.shape is wanted:
        return None
    right = _subcode_spot(case, f"the subcode in the {wanted}")
    return Reason(f"the subcode stands in the {fault.shape}, not in the {wanted}", right)


@reads(Fact.PROPERTIES, Fact.BODY)
def right_reaction(case: Case) -> str | None:
    """Say why the response is not a fault that the request calls for, or None. Spec: SOAP/JMS 2.2, 2.4, 2.8."""
    fault = case.message.fault
    observed = None if fault is None else fault.subcode
    expected = list(dict.fromkeys(case.subcodes.values()))
    if observed in expected:
        return None
    seen = "no fault" if fault is None else f"the fault {named(observed or fault.code)}"
    wanted = " or ".join(expected)
    right = _subcode_spot(case, f"a fault with the subcode {wanted}")
    return Reason(f"the request calls for {wanted}; the answer is {seen}", right)


@reads(Fact.PROPERTIES, Fact.BODY)
def is_refusal_or_due(case: Case) -> bool:
    """Say whether the response is a fault or must be one, as an unsupported variant must be refused (WG-9)."""
    return case.setting.profile.refuses_variants or case.message.fault is not None


@reads(Fact.PROPERTIES, Fact.BODY)
def fault_has_cause(case: Case) -> str | None:
    """Say that the request does not call for this fault of the binding, or None. Spec: SOAP/JMS 2.8."""
    fault = case.message.fault
    assert fault is not None
    if case.subcodes or fault.subcode in case.spared:
        return None
    return Reason(
        f"nothing that was captured of the request calls for {named(fault.subcode)}",
        _subcode_spot(case, "the result of the operation, or a fault of the service"),
    )
