"""VIOLATIONS: the violations that the generator knows, and the changes that cause them.

There is at least one row for every assertion whose violation a log alone can show. A change breaks a message that
keeps the rules. The assertions of a row are derived from the specification, not from our judge, so that each can be
checked against the other.

Spec: SOAP/JMS appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from soapjms.generate.calls import ACTION, BOUNDARY
from soapjms.generate.shapes import PLAIN_STACK, AnswerKind, CaptureSides, Packaging
from soapjms.generate.violations import CR, PLAIN, REC, Change, Members, Violation, refusable, served, soap
from soapjms.protocol import names
from soapjms.protocol.names import CR_NAMESPACE, REC_NAMESPACE, SoapVersion, Subcode


def with_properties(**properties: Any) -> Change:
    """Set message properties, or remove those that are None."""

    return _with("properties", {f"SOAPJMS_{name}": value for name, value in properties.items()})


def with_headers(**headers: Any) -> Change:
    """Set JMS headers, or remove those that are None."""

    return _with("jms", headers)


def _with(member: str, values: Mapping[str, Any]) -> Change:
    def change(message: Members) -> None:
        merged = {**message[member], **values}
        message[member] = {name: value for name, value in merged.items() if value is not None}

    return change


def with_uri(text: str) -> Change:
    """Replace the requestURI; `{}` in `text` stands for the old value."""

    def change(message: Members) -> None:
        message["properties"][names.REQUEST_URI] = text.format(message["properties"][names.REQUEST_URI])

    return change


def in_turn(*changes: Change) -> Change:
    """Make several changes in order."""

    def change(message: Members) -> None:
        for each in changes:
            each(message)

    return change


def of_response(change: Change) -> Callable[[Members, Members], None]:
    """Turn a change into one of the response that ignores the request."""
    return lambda response, request: change(response)


def with_body(replace: Callable[[Any], Any]) -> Change:
    """Change the body."""

    def change(message: Members) -> None:
        message["body"] = replace(message["body"])

    return change


def with_text(replace: Callable[[str], str]) -> Change:
    """Change the text of a body of octets or characters."""
    return with_body(lambda body: replace(body) if isinstance(body, str) else replace(body.decode()).encode())


def with_reply_to(kind: str, name: str) -> Change:
    """Set JMSReplyTo."""
    return with_headers(reply_to={"kind": kind, "name": name})


def to_map(message: Members) -> None:
    """Turn the message into a MapMessage."""
    message["message_type"], message["body"] = "map", {"order": {"type": "string", "value": "4711"}}


# Bodies

DECLARATION: Final = '<?xml version="1.0" encoding="{}"?>'


def declares_utf8(body: str) -> str:
    """Begin with a declaration of UTF-8."""
    return body if body.startswith("<?xml") else DECLARATION.format("UTF-8") + body


def declares_utf16(body: str) -> str:
    """Begin with a declaration of UTF-16."""
    return DECLARATION.format("UTF-16") + body


def in_latin1(body: bytes) -> bytes:
    """Insert a letter in ISO 8859-1, which is invalid in UTF-8."""
    return body.replace(b"<m:note>", b"<m:note>\xe9")


def another_part_action(body: str) -> str:
    """State another action in the SOAP part."""
    return body.replace('action="', 'action="urn:example:other', 1)


def in_soap12(body: str) -> str:
    """Put the envelope into the namespace of SOAP 1.2."""
    return body.replace(SoapVersion.SOAP_11.namespace, SoapVersion.SOAP_12.namespace)


def in_other_edition(body: str) -> str:
    """Put the subcode of a fault into the namespace of the other edition."""
    here, there = (REC_NAMESPACE, CR_NAMESPACE) if REC_NAMESPACE in body else (CR_NAMESPACE, REC_NAMESPACE)
    return body.replace(here, there)


# Responses


def to_topic(response: Members, request: Members) -> None:
    """Send the response to a topic with the name of the reply destination."""
    response["destination"] = {"kind": "topic", "name": request["jms"]["reply_to"]["name"]}


def in_other_type(response: Members, request: Members) -> None:
    """Turn a BytesMessage into a TextMessage, and vice versa."""
    body = response["body"]
    is_text = isinstance(body, str)
    response["message_type"] = "bytes" if is_text else "text"
    response["body"] = body.encode() if is_text else body.decode()


def with_message_id(response: Members, request: Members) -> None:
    """Correlate the response by the JMSMessageID."""
    response["jms"]["correlation_id"] = request["jms"]["message_id"]


def with_correlation_id(response: Members, request: Members) -> None:
    """Correlate the response by the JMSCorrelationID."""
    response["jms"]["correlation_id"] = request["jms"]["correlation_id"]


def expires_later(response: Members, request: Members) -> None:
    """Let the response live a minute longer than the request."""
    response["jms"]["expiration"] = request["jms"]["expiration"] + 60_000


OTHER_VARIANT = "jms:vnd.example.pool:orders"
UTF_16 = "text/xml; charset=utf-16"


S = Subcode
SWA = {"packaging": Packaging.ATTACHMENTS}
ALONE = {"packaging": Packaging.PLAIN, "seen": CaptureSides.NODES, "answer": AnswerKind.NONE}

PROPERTY_ROWS: Final = (
    *refusable(
        "binding-version",
        ("Protocol-2010",),
        S.UNRECOGNIZED_BINDING_VERSION,
        "Protocol-2011",
        with_properties(bindingVersion="2.0"),
    ),
    Violation(
        name="no-binding-version",
        on_request=("Protocol-2010",),
        wants=served(),
        request=with_properties(bindingVersion=None),
    ),
    Violation(
        name="no-binding-version-on-response",
        on_response=("Protocol-2010",),
        wants=served(),
        response=of_response(with_properties(bindingVersion=None)),
    ),
    *refusable(
        "map-message", ("Protocol-2027", "Protocol-2034"), S.UNSUPPORTED_MESSAGE_FORMAT, "Protocol-2028", to_map
    ),
    Violation(name="map-message-one-way", on_request=("Protocol-2027", "Protocol-2040"), wants=ALONE, request=to_map),
    *refusable(
        "no-content-type",
        ("Protocol-2016",),
        S.MISSING_CONTENT_TYPE,
        "Protocol-2017",
        with_properties(contentType=None),
    ),
    *refusable(
        "media-type",
        ("Local-2.4-mediaType",),
        S.CONTENT_TYPE_MISMATCH,
        "Local-2.8-otherReaction",
        with_properties(contentType="text/plain"),
    ),
    *refusable(
        "content-encoding",
        ("Local-2.2.3-contentEncoding",),
        S.CONTENT_ENCODING_NOT_SUPPORTED,
        "Local-2.8-otherReaction",
        with_properties(contentEncoding="deflate"),
        {"message_type": "bytes"},
        REC,
    ),
    *refusable(
        "no-request-uri", ("Protocol-2022",), S.MISSING_REQUEST_URI, "Protocol-2023", with_properties(requestURI=None)
    ),
    Violation(
        name="no-request-uri-on-response",
        on_response=("Protocol-2022",),
        wants=served(),
        response=of_response(with_properties(requestURI=None)),
    ),
    *refusable("uri-syntax", ("Local-2.2.4-syntax",), S.MALFORMED_REQUEST_URI, "Protocol-2025", with_uri("{}?a=%zz")),
    *refusable(
        "uri-without-variant",
        ("Protocol-2003", "Local-2.2.4-syntax"),
        S.MALFORMED_REQUEST_URI,
        "Protocol-2025",
        with_uri("jms::orders"),
    ),
    *refusable(
        "uri-without-destination",
        ("Protocol-2004", "Local-2.2.4-syntax"),
        S.MALFORMED_REQUEST_URI,
        "Protocol-2025",
        with_uri("jms:queue:"),
    ),
    *refusable(
        "target-service-in-uri",
        ("Protocol-2021", "Protocol-2024"),
        S.TARGET_SERVICE_NOT_ALLOWED,
        "Protocol-2026",
        in_turn(with_uri("{}?targetService=OrderService"), with_properties(targetService="OrderService")),
    ),
    Violation(
        name="unknown-variant",
        on_request=("Local-2.2.1-supported",),
        wants={**PLAIN, "answer": S.UNSUPPORTED_LOOKUP_VARIANT},
        request=with_uri(OTHER_VARIANT),
    ),
    Violation(
        name="unknown-variant-served",
        on_request=("Local-2.2.1-supported",),
        on_response=("Protocol-2071",),
        wants=served(),
        request=with_uri(OTHER_VARIANT),
        editions=REC,
    ),
    Violation(
        name="unknown-variant-another-fault",
        on_request=("Local-2.2.1-supported",),
        on_response=("Protocol-2071",),
        wants={**PLAIN, "answer": S.MALFORMED_REQUEST_URI},
        request=with_uri(OTHER_VARIANT),
    ),
    *refusable(
        "no-soap-action",
        ("Local-2.2.3-missingSoapAction",),
        S.MISSING_SOAP_ACTION,
        "Local-2.8-otherReaction",
        with_properties(soapAction=None),
        soap("1.2"),
        REC,
    ),
    *refusable(
        "no-soap-action-2009",
        ("Protocol-2019",),
        S.MISMATCHED_SOAP_ACTION,
        "Protocol-2020",
        with_properties(soapAction=None),
        soap("1.2"),
        CR,
    ),
    *refusable(
        "soap-action",
        ("Protocol-2019",),
        S.MISMATCHED_SOAP_ACTION,
        "Protocol-2020",
        with_properties(soapAction=ACTION.format("another")),
        soap("1.2"),
    ),
)

BODY_ROWS: Final = (
    *refusable(
        "charset",
        ("Protocol-2012",),
        S.CONTENT_TYPE_MISMATCH,
        "Protocol-2013",
        in_turn(with_properties(contentType=UTF_16), with_text(declares_utf8)),
        soap("1.1"),
    ),
    Violation(
        name="unreadable-octets",
        on_request=("Protocol-2014",),
        wants={**soap("1.1"), "answer": AnswerKind.FAULT},
        request=in_turn(with_properties(contentType="text/xml"), with_body(in_latin1)),
    ),
    Violation(
        name="multipart-start",
        on_request=("Protocol-2029",),
        wants={**soap("1.1", "text", **SWA), "answer": AnswerKind.FAULT},
        request=with_text(lambda body: "\r\n" + body),
    ),
    *refusable(
        "multipart-type",
        ("Protocol-2015",),
        S.CONTENT_TYPE_MISMATCH,
        "Local-2.8-otherReaction",
        with_properties(contentType=f'multipart/related; boundary="{BOUNDARY}"; type="text/html"'),
        soap("1.1", **SWA),
    ),
    *refusable(
        "soap-part",
        ("Local-2.4-soapPart",),
        S.CONTENT_TYPE_MISMATCH,
        "Local-2.8-otherReaction",
        with_text(in_soap12),
        soap("1.1", **SWA),
    ),
    Violation(
        name="part-no-xml",
        on_request=("Local-2.4-partEnvelope",),
        wants={**soap("1.1", **SWA), "answer": AnswerKind.FAULT},
        request=with_text(lambda body: body.replace("</env:Envelope>", "")),
    ),
    *refusable(
        "part-action",
        ("Local-2.2.3-partAction",),
        S.MISMATCHED_SOAP_ACTION,
        "Protocol-2020",
        with_text(another_part_action),
        soap("1.2", **SWA),
    ),
    Violation(
        name="no-xml",
        on_request=("Protocol-2030",),
        wants={**served(), "answer": AnswerKind.FAULT},
        request=with_text(lambda body: "%PDF-1.7"),
    ),
    *refusable(
        "soap-version",
        ("Local-2.4-version",),
        S.CONTENT_TYPE_MISMATCH,
        "Local-2.8-otherReaction",
        with_properties(contentType="text/xml"),
        soap("1.2", "text"),
    ),
    Violation(
        name="text-encoding",
        on_request=("Local-2.4.1-textEncoding",),
        wants=soap("1.1", "text"),
        request=in_turn(with_properties(contentType="text/xml; charset=utf-8"), with_text(declares_utf16)),
        editions=REC,
    ),
)

HEADER_ROWS: Final = (
    Violation(
        name="delivery-mode", on_request=("Protocol-2005",), wants=served(), request=with_headers(delivery_mode=3)
    ),
    Violation(
        name="expiration",
        on_request=("Protocol-2006", "Local-2.2.4-shouldExclude"),
        wants=served(lifetime=0),
        request=with_uri("{}?timeToLive=60000"),
    ),
    Violation(name="priority", on_request=("Protocol-2007",), wants=served(), request=with_headers(priority=12)),
    Violation(
        name="reply-to-name",
        on_request=("Protocol-2008", "Protocol-2024"),
        wants=served(variant="queue"),
        request=with_uri("{}?replyToName=answers.elsewhere"),
    ),
    Violation(
        name="reply-to-name-in-uri",
        on_request=("Protocol-2024",),
        wants=served(variant="queue"),
        request=in_turn(with_uri("{}?replyToName=answers"), with_reply_to("queue", "answers")),
    ),
    Violation(
        name="topic-reply-to-name",
        on_request=("Protocol-2070", "Local-2.2.4-shouldExclude"),
        wants=served(variant="queue"),
        request=with_uri("{}?topicReplyToName=answers.elsewhere"),
    ),
    Violation(
        name="target-service",
        on_request=("Protocol-2009", "Protocol-2021", "Protocol-2024"),
        wants={**PLAIN, "answer": S.TARGET_SERVICE_NOT_ALLOWED},
        request=in_turn(with_uri("{}?targetService=OrderService"), with_properties(targetService="AnotherService")),
    ),
    Violation(
        name="no-reply-to",
        on_request=("Protocol-2050",),
        wants={**PLAIN, "answer": AnswerKind.MISSING},
        request=with_headers(reply_to=None),
    ),
    Violation(
        name="reply-to-on-one-way",
        on_request=("Protocol-2051",),
        wants=ALONE,
        request=with_reply_to("queue", "replies.app1"),
    ),
    Violation(
        name="parameters-in-uri",
        on_request=("Local-2.2.4-shouldExclude",),
        wants=served(priority=4),
        request=with_uri("{}?priority=4"),
    ),
    Violation(
        name="topic-reply-to-name-followed",
        on_request=("Local-2.2.2-topicReplyToName", "Local-2.2.4-shouldExclude"),
        wants=served(variant="jndi"),
        request=in_turn(with_uri("{}?topicReplyToName=answers"), with_reply_to("topic", "answers")),
    ),
    Violation(
        name="fault-flag-type",
        on_response=("Local-2.2.3-isFaultType",),
        wants=served(),
        response=of_response(with_properties(isFault=0)),
        editions=REC,
    ),
    Violation(
        name="repeated-parameter",
        on_request=("Protocol-2002", "Protocol-2007", "Local-2.2.4-shouldExclude"),
        wants=served(priority=4),
        request=with_uri("{}?priority=4&priority=7"),
    ),
)

ANSWER_ROWS: Final = (
    Violation(name="answer-type", on_response=("Protocol-2036",), wants=soap("1.2"), response=in_other_type),
    Violation(
        name="answer-destination", on_response=("Protocol-2037",), wants=served(variant="queue"), response=to_topic
    ),
    Violation(
        name="answer-correlation",
        on_response=("Protocol-2038",),
        wants=served(stack=PLAIN_STACK),
        response=with_message_id,
        editions=REC,
    ),
    Violation(
        name="answer-correlation-2009",
        on_response=("Protocol-2038",),
        wants=served(stack=PLAIN_STACK),
        response=with_correlation_id,
        editions=CR,
    ),
    Violation(
        name="answer-priority",
        on_response=("Protocol-2039", "Local-2.6.2.3-copied"),
        wants=served(priority=7),
        response=of_response(with_headers(priority=4)),
    ),
    Violation(
        name="answer-delivery-mode",
        on_response=("Local-2.6.2.3-deliveryMode",),
        wants=served(delivery_mode=2),
        response=of_response(with_headers(delivery_mode=1)),
    ),
    Violation(
        name="answer-expiration",
        on_response=("Local-2.6.2.3-expiration",),
        wants=served(lifetime=30_000),
        response=expires_later,
    ),
    Violation(
        name="jndi-refused",
        on_response=("Protocol-2060", "Local-2.8-cause"),
        wants={**PLAIN, "variant": "jndi", "answer": S.UNSUPPORTED_LOOKUP_VARIANT},
    ),
    Violation(
        name="fault-not-flagged",
        on_response=("Local-2.2.3-isFault", "Local-2.2.3-isFaultStated"),
        wants={**PLAIN, "answer": AnswerKind.FAULT},
        response=of_response(with_properties(isFault=None)),
    ),
    Violation(
        name="flagged-without-fault",
        on_response=("Local-2.2.3-isFault", "Local-2.2.3-isFaultStated"),
        wants=served(),
        response=of_response(with_properties(isFault=True)),
    ),
    Violation(
        name="fault-shape",
        on_request=("Protocol-2010",),
        on_response=("Local-2.8-shape",),
        wants={**PLAIN, "answer": S.UNRECOGNIZED_BINDING_VERSION},
        request=with_properties(bindingVersion="2.0"),
        response=of_response(with_text(in_other_edition)),
    ),
    Violation(
        name="fault-without-cause", on_response=("Local-2.8-cause",), wants={**PLAIN, "answer": S.MISSING_REQUEST_URI}
    ),
)

VIOLATIONS: Final = {row.name: row for row in (*PROPERTY_ROWS, *BODY_ROWS, *HEADER_ROWS, *ANSWER_ROWS)}
