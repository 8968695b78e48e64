"""Changes that break a message which keeps the rules: what the rows of `table.py` are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from soapjms.generate.violations import Change, Members
from soapjms.protocol import names
from soapjms.protocol.names import CR_NAMESPACE, REC_NAMESPACE, SoapVersion


def with_properties(**properties: Any) -> Change:
    """Set message properties, or remove those that are None."""

    def change(message: Members) -> None:
        for name, value in properties.items():
            if value is None:
                message["properties"].pop(f"SOAPJMS_{name}", None)
            else:
                message["properties"][f"SOAPJMS_{name}"] = value

    return change


def with_headers(**headers: Any) -> Change:
    """Set JMS headers, or remove those that are None."""

    def change(message: Members) -> None:
        for name, value in headers.items():
            if value is None:
                message["jms"].pop(name, None)
            else:
                message["jms"][name] = value

    return change


def with_uri(text: str) -> Change:
    """Put something in the place of the requestURI; `{}` is what it was."""

    def change(message: Members) -> None:
        message["properties"][names.REQUEST_URI] = text.format(message["properties"][names.REQUEST_URI])

    return change


def in_turn(*changes: Change) -> Change:
    """Make several changes."""

    def change(message: Members) -> None:
        for each in changes:
            each(message)

    return change


def of_response(change: Change) -> Callable[[Members, Members], None]:
    """Make a change of the response, whatever the request is."""
    return lambda response, request: change(response)


def with_body(replace: Callable[[Any], Any]) -> Change:
    """Change the body."""

    def change(message: Members) -> None:
        message["body"] = replace(message["body"])

    return change


def with_text(replace: Callable[[str], str]) -> Change:
    """Change the characters of a body, octets or text."""
    return with_body(lambda body: replace(body) if isinstance(body, str) else replace(body.decode()).encode())


def with_reply_to(kind: str, name: str) -> Change:
    """Set JMSReplyTo."""
    return with_headers(reply_to={"kind": kind, "name": name})


def to_map(message: Members) -> None:
    """Make a MapMessage of it."""
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
    """Write a letter as ISO 8859-1 has it, which is no UTF-8."""
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
    """Send it to a topic with the name of the reply destination."""
    response["destination"] = {"kind": "topic", "name": request["jms"]["reply_to"]["name"]}


def in_other_type(response: Members, request: Members) -> None:
    """Make a TextMessage of a BytesMessage, and the other way round."""
    body = response["body"]
    is_text = isinstance(body, str)
    response["message_type"] = "bytes" if is_text else "text"
    response["body"] = body.encode() if is_text else body.decode()


def with_message_id(response: Members, request: Members) -> None:
    """Correlate by the JMSMessageID."""
    response["jms"]["correlation_id"] = request["jms"]["message_id"]


def with_correlation_id(response: Members, request: Members) -> None:
    """Correlate by the JMSCorrelationID."""
    response["jms"]["correlation_id"] = request["jms"]["correlation_id"]


def expires_later(response: Members, request: Members) -> None:
    """Let it live a minute longer than the request."""
    response["jms"]["expiration"] = request["jms"]["expiration"] + 60_000
