"""Sending a request again so that a service with a store sees that it is the same one, and does not run it twice.

Each message carries a lock, the hash of a key that only its sender has. When it is sent again it carries the key, which
nobody else can make up: so an answer that the store has may go to wherever the retry asks for it, as the first reply
destination may have ended with its connection. Whoever only repeats the lock gets no answer at another place.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from secrets import token_hex
from typing import Final

from lxml import etree

from brokers.message import Message, Properties, Property, PropertyType
from soapjms.protocol import names
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.errors import CallFailedError, SendOutcome, UsageError
from soapjms.protocol.received_message import Reading
from soapjms.protocol.requesting import RequestingNode

LOCK_PROPERTY: Final = "soapjms_retry_lock"
KEY_PROPERTY: Final = "soapjms_retry_key"

KEY_OCTETS: Final = 16

OF_CONTENT: Final = (names.CONTENT_TYPE, names.CONTENT_ENCODING)


@dataclass(frozen=True, slots=True)
class Retry:
    """What a request is sent again by; an error that says how it failed has it.

    Attributes:
        key: opens the lock.
        request: as it was sent first.
        message_id: what WS-Addressing calls it; empty without.
    """

    key: str = field(repr=False)
    request: Message = field(repr=False)
    message_id: str = ""


class Identity:
    """What tells one request, over all its tries, from every other.

    Args:
        retry_of: how the last try failed; None for a first try.

    Attributes:
        first: what the first try was; None for a first try.
        properties: those by which a service knows it.

    Raises:
        UsageError: `retry_of` is no such error, or does not know what was sent.
    """

    __slots__ = ("_key", "first", "properties")

    def __init__(self, retry_of: CallFailedError | None = None) -> None:
        self.first = None if retry_of is None else _first_of(retry_of)
        self._key = token_hex(KEY_OCTETS) if self.first is None else self.first.key
        name, value = (LOCK_PROPERTY, lock_of(self._key)) if self.first is None else (KEY_PROPERTY, self._key)
        self.properties = Properties((Property(name, PropertyType.STRING, value),))

    def written(self, node: RequestingNode) -> Message:
        """Return what is sent: what a node has made, in a retry with the very octets that were sent first.

        What is not part of the content, such as a signature's time, may be another in the envelope that was given.

        Raises:
            UsageError: what was given is another request.
        """
        message = node.request
        assert message is not None, "it was started"
        if self.first is None:
            return message
        first = self.first.request
        if message.body != first.body and _said(message, node) != _said(first, node):
            raise UsageError("retry_of is the error of another request: the content of the SOAP body is not the same")
        of_first = [each for each in first.properties if each.name in OF_CONTENT]
        others = Properties(each for each in message.properties if each.name not in OF_CONTENT)
        node.request = replace(
            message, message_type=first.message_type, body=first.body, properties=others.merged(of_first)
        )
        return node.request

    def retry(self, node: RequestingNode, message_id: str = "") -> Retry | None:
        """Return what the request is sent again by; None where nothing of it was ever made."""
        if self.first is not None or node.request is None:
            return self.first
        return Retry(self._key, node.request, message_id)


def _first_of(error: CallFailedError) -> Retry | None:
    if not isinstance(error, CallFailedError):
        raise UsageError(f"retry_of must be the CallFailedError of the request that is sent again, got {error!r}")
    if isinstance(error.retry, Retry):
        return error.retry
    if error.outcome is SendOutcome.UNKNOWN:
        raise UsageError("retry_of is an error that does not know what was sent, so no service could tell it again")
    return None


def _said(message: Message, node: RequestingNode) -> list[bytes]:
    """Return the content of the SOAP body, but for references to attachments, whose names may be made up."""
    envelope = Reading(message, node.endpoint.profile, node.endpoint.limits).envelope
    if envelope is None:
        return []
    root = deepcopy(envelope.root)
    etree.strip_elements(root, XOP_INCLUDE, with_tail=False)
    return [etree.tostring(each, method="c14n", exclusive=True) for each in root.iterfind("{*}Body/*")]


def lock_of(key: str) -> str:
    """Return the lock that a key opens."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=KEY_OCTETS).hexdigest()


def identity_in(message: Message) -> str | None:
    """Return what a message says that tells its request from every other, over all tries; None if it says nothing."""
    key = message.properties.text(KEY_PROPERTY)
    return message.properties.text(LOCK_PROPERTY) if key is None else lock_of(key)


def is_opened(message: Message) -> bool:
    """Say whether a message is sent again, by who has the key."""
    return message.properties.text(KEY_PROPERTY) is not None


def is_locked(message: Message) -> bool:
    """Say whether a message is a first try of one of our clients, or a copy of one."""
    return message.properties.text(LOCK_PROPERTY) is not None and not is_opened(message)


def may_have(answer: Message, request: Message, first: Message) -> bool:
    """Say whether an answer that a store had may go where a request asks for it.

    Args:
        answer: as it would be sent now.
        request: what asks for it.
        first: the answer as it was stored, with where it went.
    """
    return is_opened(request) or first.destination is None or str(first.destination) == str(answer.destination)
