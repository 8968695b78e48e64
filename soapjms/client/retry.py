"""Sending a request again so that a service with a store recognizes it and does not run it twice.

The first message of a request carries a lock: the hash of a key that only its sender has. A retry carries the key
itself, which nobody else can guess. The stored answer may therefore go to the reply destination of the retry, as the
first one may have ended with its connection. A message that only repeats the lock gets no answer at another place.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from os import urandom
from typing import Final

from lxml import etree

from brokers.message import Message, Properties, PropertyType, new_property
from soapjms.protocol import names
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.attachments.parts import Octets
from soapjms.protocol.errors import CallFailedError, SendOutcome, UsageError
from soapjms.protocol.received_message import Reading
from soapjms.protocol.requesting import RequestingNode

LOCK_PROPERTY: Final = "soapjms_retry_lock"
KEY_PROPERTY: Final = "soapjms_retry_key"

KEY_OCTETS: Final = 16
KEYS_IN_ADVANCE: Final = 64

OF_CONTENT: Final = (names.CONTENT_TYPE, names.CONTENT_ENCODING)


@dataclass(frozen=True, slots=True)
class Retry:
    """What sending a request again needs; held by the error of the failed try.

    Attributes:
        key: opens the lock.
        request: the request as it was first sent.
        message_id: the WS-Addressing MessageID of the request; empty without WS-Addressing.
    """

    key: str = field(repr=False)
    request: Message = field(repr=False)
    message_id: str = ""


class RequestKeys:
    """The keys of a client's requests, made in advance. Thread-safe.

    To ask the system for the octets of each would let other threads run in the middle of a call.
    """

    def __init__(self) -> None:
        self._keys: Iterator[str] = iter(())

    def new(self) -> str:
        """Return a key that nobody else can guess, and that no other request has."""
        for key in self._keys:
            return key
        octets = urandom(KEYS_IN_ADVANCE * KEY_OCTETS)
        self._keys = iter([octets[at : at + KEY_OCTETS].hex() for at in range(0, len(octets), KEY_OCTETS)])
        return self.new()


class Identity:
    """Identifies one request over all its tries.

    Args:
        retry_of: the error of the last try; None for a first try.
        key: the key of a first try, which nobody else can guess and no other request has; empty to make one.

    Attributes:
        first: the first try; None if this is the first.
        properties: the message properties by which a service recognizes the request.

    Raises:
        UsageError: `retry_of` is not a CallFailedError, or does not hold what was sent.
    """

    __slots__ = ("_key", "first", "properties")

    def __init__(self, retry_of: CallFailedError | None = None, key: str = "") -> None:
        self.first = None if retry_of is None else _first_of(retry_of)
        if self.first is None:
            self._key = key or urandom(KEY_OCTETS).hex()
            own = new_property((LOCK_PROPERTY, PropertyType.STRING, lock_of(self._key)))
        else:
            self._key = self.first.key
            own = new_property((KEY_PROPERTY, PropertyType.STRING, self._key))
        self.properties = Properties((own,))

    def written(self, node: RequestingNode) -> Message:
        """Return the message to send: the one the node made; in a retry, with the octets that were first sent.

        The content of the SOAP body and of the attachments is compared: headers, such as the time of a signature, may
        differ.

        Raises:
            UsageError: the node's message is another request than the first try.
        """
        message = node.request
        assert message is not None, "it was started"
        if self.first is None:
            return message
        first = self.first.request
        if message.body != first.body and _said(message, node) != _said(first, node):
            raise UsageError(
                "retry_of is the error of another request: the content of the SOAP body, or of an attachment, "
                "is not the same"
            )
        of_first = [each for each in first.properties if each.name in OF_CONTENT]
        others = Properties(each for each in message.properties if each.name not in OF_CONTENT)
        node.request = replace(
            message, message_type=first.message_type, body=first.body, properties=others.merged(of_first)
        )
        return node.request

    def retry(self, node: RequestingNode, message_id: str = "") -> Retry | None:
        """Return what sending the request again needs; None if its message was never made."""
        if self.first is not None or node.request is None:
            return self.first
        return Retry(self._key, node.request, message_id)


def _first_of(error: CallFailedError) -> Retry | None:
    if not isinstance(error, CallFailedError):
        raise UsageError(f"retry_of must be the CallFailedError of the request to send again, got {error!r}")
    if isinstance(error.retry, Retry):
        return error.retry
    if error.outcome is SendOutcome.UNKNOWN:
        raise UsageError("retry_of must hold the request that was sent, so that the service can recognize it")
    return None


def _said(message: Message, node: RequestingNode) -> list[Octets]:
    """Return the content of the SOAP body, without references to attachments, whose ids may be made anew, and these."""
    reading = Reading(message, node.endpoint.profile, node.endpoint.limits)
    if reading.envelope is None:
        return []
    root = deepcopy(reading.envelope.root)
    etree.strip_elements(root, XOP_INCLUDE, with_tail=False)
    said: list[Octets] = [etree.tostring(each, method="c14n", exclusive=True) for each in root.iterfind("{*}Body/*")]
    return said + [part.content for part in reading.attachments]


def lock_of(key: str) -> str:
    """Return the lock that a key opens."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=KEY_OCTETS).hexdigest()


def identity_in(message: Message) -> str | None:
    """Return the lock that identifies a message's request over all its tries; None if the message has none."""
    key = message.properties.text(KEY_PROPERTY)
    return message.properties.text(LOCK_PROPERTY) if key is None else lock_of(key)


def is_opened(message: Message) -> bool:
    """Say whether a message is a retry: it carries the key."""
    return message.properties.text(KEY_PROPERTY) is not None


def is_locked(message: Message) -> bool:
    """Say whether a message is a first try of a soapjms client, or a copy of one."""
    return message.properties.text(LOCK_PROPERTY) is not None and not is_opened(message)


def may_have(answer: Message, request: Message, first: Message) -> bool:
    """Say whether a stored answer may be sent to the reply destination of a request.

    Args:
        answer: the answer as it would be sent now.
        request: the request that asks for it.
        first: the answer as it was stored, with its first destination.
    """
    return is_opened(request) or first.destination is None or str(first.destination) == str(answer.destination)
