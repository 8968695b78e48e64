"""Makes the messages of an exchange, as members of their capture records; bodies are still octets or text.

These messages keep every rule of the edition; `violations.py` breaks one.

Spec: SOAP/JMS 2.2, 2.4, 2.6; capture record, version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

from soapjms.generate.shapes import AnswerKind, ExchangeShape, Packaging
from soapjms.generate.violations import Members, Violation
from soapjms.protocol import names
from soapjms.protocol.envelope import build_fault, serialize
from soapjms.protocol.names import CorrelationRule, Profile, SoapVersion, Subcode

OPERATIONS: Final = ("placeOrder", "cancelOrder", "getBalance", "transferFunds", "registerPatient", "reportMeter")
NAMES: Final = (
    "Müller & Söhne",
    "Åsa Lindqvist",
    "O'Brien",
    "Nguyễn Văn An",
    "Smith",
    "Hospital de la Paz",
    "東京電力",
)
NOTES: Final = (
    "as agreed on the telephone",
    "deliver to the back door, ring twice; the dog is friendly",
    "meter was read by the customer; photograph attached to the account",
)
BOUNDARY: Final = "=_part_of_a_multipart"
HOSTS: Final = ("app1", "app2", "batch", "gateway-7.example.com")
ACTION: Final = "urn:example:{}"


@dataclass(slots=True)
class GeneratedCall:
    """The messages of one exchange.

    Attributes:
        number: the number of the exchange in its log, from 1.
        sent: when the request was sent, in microseconds since 1970.
        response: the response, or None.
        violation: the violation, or None.
        earlier: an earlier copy of the request that was never answered, or None.
    """

    number: int
    shape: ExchangeShape
    profile: Profile
    sent: int
    request: Members
    response: Members | None = None
    violation: Violation | None = None
    earlier: Members | None = None

    @property
    def id(self) -> str:
        """The id of the exchange in verdicts."""
        found: str = self.request["jms"]["message_id"]
        return found

    @property
    def messages(self) -> list[Members]:
        """All captured messages."""
        return [each for each in (self.earlier, self.request, self.response) if each is not None]

    def message(self, carrier: str) -> Members:
        """Return the request or the response.

        Raises:
            KeyError: there is no such message.
        """
        found = {"request": self.request, "response": self.response}[carrier]
        if found is None:
            raise KeyError(carrier)
        return found


class Caller:
    """Makes calls to given destinations. The same random numbers make the same calls."""

    def __init__(self, random: Random, profile: Profile, queues: Sequence[str], skew: float) -> None:
        self._random = random
        self._profile = profile
        self._queues = queues
        self._skew = skew
        self._count = 0

    def call(self, shape: ExchangeShape, sent: int, violation: Violation | None = None) -> GeneratedCall:
        """Make the messages of one exchange; a violation changes the request before it is answered."""
        self._count += 1
        request = self._request(shape, sent)
        if violation is not None:
            violation.request(request)
        call = GeneratedCall(self._count, shape, self._profile, sent, request, violation=violation)
        if shape.answer not in (AnswerKind.MISSING, AnswerKind.NONE):
            call.response = self._response(call)
            if violation is not None:
                violation.response(call.response, request)
            if shape.retried:
                call.earlier = _sent_before(request)
        return call

    def _request(self, shape: ExchangeShape, sent: int) -> Members:
        random, number = self._random, self._count
        queue = self._queue()
        operation = OPERATIONS[number % len(OPERATIONS)]
        host = HOSTS[number % len(HOSTS)]
        message_id = f"ID:{host}-{35000 + number % 7}-{sent // 10**9}-1:{number}"
        timestamp = sent // 1000
        jms: Members = {"message_id": message_id}
        if shape.answer is not AnswerKind.NONE:
            if shape.stack.correlates or shape.retried:
                jms["correlation_id"] = f"{random.getrandbits(128):032x}"
            jms["reply_to"] = _reply_to(shape, host, number)
        jms.update(
            delivery_mode=shape.delivery_mode,
            priority=shape.priority,
            expiration=timestamp + shape.lifetime if shape.lifetime else 0,
            timestamp=timestamp,
            redelivered=False,
        )
        action = ACTION.format(operation)
        properties: Members = {
            names.REQUEST_URI: uri_of(shape.variant, queue),
            names.BINDING_VERSION: names.BINDING_VERSION_VALUE,
            names.CONTENT_TYPE: content_type(shape, action),
            names.SOAP_ACTION: f'"{action}"' if shape.quotes_action else action,
        }
        if shape.stack.flags_request:
            properties[names.IS_FAULT] = False
        if number % 5 == 0:
            properties[names.TARGET_SERVICE] = "OrderService"
        return {
            "destination": {"kind": "topic" if shape.variant == "topic" else "queue", "name": queue},
            "jms": jms,
            "properties": properties,
            "message_type": shape.message_type,
            "body": self._body(shape, operation, action),
            "meta": {"stack": shape.stack.name},
        }

    def _queue(self) -> str:
        chance = self._random.random()
        if chance < self._skew:
            return self._queues[0]
        rest = self._queues[1:] if self._skew else self._queues
        return rest[int(self._random.random() * len(rest))]

    def _response(self, call: GeneratedCall) -> Members:
        request, shape = call.request, call.shape
        asked, host = request["jms"], HOSTS[(call.number + 1) % len(HOSTS)]
        operation = OPERATIONS[call.number % len(OPERATIONS)]
        is_served = shape.answer in (AnswerKind.SERVED, AnswerKind.LATE)
        properties: Members = {}
        if names.REQUEST_URI in request["properties"]:
            properties[names.REQUEST_URI] = request["properties"][names.REQUEST_URI]
        properties[names.BINDING_VERSION] = names.BINDING_VERSION_VALUE
        packaging = shape.packaging if shape.answer is AnswerKind.SERVED else Packaging.PLAIN
        action = ACTION.format(operation)
        properties[names.CONTENT_TYPE] = content_type(shape, None, packaging)
        properties[names.IS_FAULT] = not is_served
        if shape.stack.returns_action:
            properties[names.SOAP_ACTION] = request["properties"].get(names.SOAP_ACTION, f'"{action}"')
        body = (
            self._body(shape, operation + "Response", action, packaging)
            if is_served
            else fault_body(call.profile, shape)
        )
        return {
            "destination": asked["reply_to"],
            "jms": {
                "message_id": f"ID:{host}-41000-{call.sent // 10**9}-9:{call.number}",
                "correlation_id": self._correlation(asked),
                "delivery_mode": asked["delivery_mode"],
                "priority": asked["priority"],
                "expiration": asked["expiration"],
                "timestamp": asked["timestamp"] + 20,
                "redelivered": False,
            },
            "properties": properties,
            "message_type": shape.message_type,
            "body": body,
            "meta": {"stack": shape.stack.name},
        }

    def _correlation(self, asked: Members) -> str:
        rule = self._profile.correlation
        found: str = asked["message_id"]
        if rule is not CorrelationRule.MESSAGE_ID:
            found = asked.get("correlation_id") or found
        return found

    def _body(
        self, shape: ExchangeShape, operation: str, action: str, packaging: Packaging | None = None
    ) -> bytes | str:
        random = self._random
        chance = random.random()
        items = int(chance * 6) if chance < 0.99 else 80
        parts = [
            f'<m:item n="{n}"><m:article>A-{random.getrandbits(20)}</m:article><m:price>{n * 7}.95</m:price></m:item>'
            for n in range(items)
        ]
        inner = (
            f'<m:{operation} xmlns:m="urn:example:orders"><m:customer>{_escaped(NAMES[int(chance * 1e6) % len(NAMES)])}'
            f"</m:customer><m:number>{self._count}</m:number>{''.join(parts)}"
            f"<m:note>{NOTES[int(chance * 1e4) % len(NOTES)]}</m:note></m:{operation}>"
        )
        text = envelope(shape.version, inner)
        if shape.stack.declares and shape.message_type == "bytes":
            text = '<?xml version="1.0" encoding="UTF-8"?>' + text
        if (packaging or shape.packaging) is Packaging.ATTACHMENTS:
            text = multipart(part_type(shape.version, action), text)
        return text if shape.message_type == "text" else text.encode()


def _sent_before(request: Members) -> Members:
    """Return the request as the client sent it earlier, as another message."""
    return {**request, "jms": {**request["jms"], "message_id": request["jms"]["message_id"] + "-0"}}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;")


def _reply_to(shape: ExchangeShape, host: str, number: int) -> Members:
    if shape.variant == "topic" and number % 3 == 0:
        return {"kind": "topic", "name": f"answers.{host}"}
    if number % 4 == 0:
        return {"kind": "queue", "name": f"replies.{host}"}
    return {"kind": "temporary-queue", "name": f"ID:{host}-35000-1:{number % 50}:1"}


def uri_of(variant: str, queue: str) -> str:
    """Return the JMS URI of a destination."""
    return f"jms:jndi:dynamicQueues/{queue}" if variant == "jndi" else f"jms:{variant}:{queue}"


def content_type(shape: ExchangeShape, action: str | None, packaging: Packaging | None = None) -> str:
    """Return the content type of a message; with SOAP 1.2 that of a request has the action."""
    kind = shape.version.media_type
    if (packaging or shape.packaging) is Packaging.ATTACHMENTS:
        return f'multipart/related; boundary="{BOUNDARY}"; type="{kind}"; start="<root@example.com>"'
    charset = "; charset=utf-8" if shape.message_type == "bytes" else ""
    stated = f'; action="{action}"' if shape.version is SoapVersion.SOAP_12 and action else ""
    return f"{kind}{charset}{stated}"


def part_type(version: SoapVersion, action: str) -> str:
    """Return the content type of the SOAP part of a multipart body."""
    stated = f'; action="{action}"' if version is SoapVersion.SOAP_12 else ""
    return f"{version.media_type}; charset=utf-8{stated}"


def envelope(version: SoapVersion, inner: str) -> str:
    """Put an element, as text, into an envelope."""
    return f'<env:Envelope xmlns:env="{version.namespace}"><env:Body>{inner}</env:Body></env:Envelope>'


def multipart(kind: str, document: str) -> str:
    """Put a document and an attachment into a multipart body."""
    return (
        f"--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-ID: <root@example.com>\r\n\r\n{document}\r\n"
        f"--{BOUNDARY}\r\nContent-Type: text/plain\r\nContent-ID: <scan@example.com>\r\n\r\n"
        f"read by the meter\r\n--{BOUNDARY}--\r\n"
    )


def fault_body(profile: Profile, shape: ExchangeShape) -> bytes | str:
    """Return the body of a fault: of the application, or with a subcode of the binding."""
    subcode = shape.answer if isinstance(shape.answer, Subcode) else None
    octets = _fault(profile.name, shape.version, subcode)
    return octets if shape.message_type == "bytes" else octets.decode()


@lru_cache
def _fault(profile: str, version: SoapVersion, subcode: Subcode | None) -> bytes:
    reason = f"the request is refused: {subcode}" if subcode else "there is no such account"
    return serialize(build_fault(version, reason, profile=names.profile(profile), subcode=subcode))
