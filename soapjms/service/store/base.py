"""The interface of a store, which remembers finished requests: one that is delivered again is answered, not run again.

This file has the interface, the keys of requests, and the claim without a store. The store to use is in `sqlite.py`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from brokers.message import Message
from soapjms.client.retry import LOCK_PROPERTY, identity_in, is_opened
from soapjms.protocol import names
from soapjms.protocol.errors import StoreError, UsageError

KEY_OCTETS: Final = 20
"""Octets of the first part of a key, the name of the message; the second part, the place, has as many or is absent."""

ASKING: Final = (names.SOAP_ACTION, names.TARGET_SERVICE, "JMSXUserID")
"""Properties that, with the body, identify caller, service and operation; they are the same at each delivery."""

OWN_PLACE: Final = bytes(KEY_OCTETS)
"""The place of a request from the dispatcher's own connection: its temporary queue is renamed on each connection."""

ENCODE_CHARACTERS: Final = 1 << 20
"""Characters of a text that are encoded at a time."""

UNCOUNTED_DELIVERIES: Final = -1
"""The number of deliveries returned for a request that may be delivered any number of times."""

NO_STORE: Final = "the dispatcher has no store; give it one, as in Dispatcher(..., store='requests.db')"
FINISHED: Final = "the request was finished before, and its transaction with it"
NO_KEY: Final = (
    "this request cannot be told from its redelivery: the broker keeps no JMSMessageID, and the request has no "
    "JMSCorrelationID; the sender must set a unique one"
)


def key_of(message: Message, *, stable_message_id: bool) -> bytes | None:
    """Return a key that all deliveries of a request share and no other request has; None if it cannot be identified.

    A key is the name of the message followed by the place: the destination and correlation id of its answer, and who
    asks for it. So a copy of a message with another reply destination is another request, with the same name.

    A soapjms client identifies its request itself, also in a retry with another reply destination: a retry has the
    name alone, which stands for the request of that name; see `soapjms.client.retry`. The name of another sender's
    request is made of the JMSMessageID, if the broker keeps it at redelivery, else of the reply destination, the
    JMSCorrelationID and the JMSTimestamp, as a sender may use one JMSCorrelationID again once its call is over. Every
    name includes the destination, as a broker may copy a message to several queues, and the body, so that a sender
    that guesses the id of another's request does not get its answer.

    The name of a temporary queue is the one that this connection sees. Only a client on the dispatcher's own connection
    would have another name on another connection, and that client is gone then. Its place is `OWN_PLACE`, which matches
    any other.

    Args:
        message: the request as it was delivered; its body is bytes or text.
        stable_message_id: the broker's capability of that name.
    """
    identity: list[object]
    told = identity_in(message)
    if told is not None:
        identity = [LOCK_PROPERTY, told, 0, 0]  # longer than the others, so never the same
    elif stable_message_id:
        if not message.message_id:
            return None
        identity = [message.message_id]
    else:
        if not message.correlation_id:
            return None
        identity = [message.correlation_id, str(message.reply_to), message.timestamp]
    digest = blake2b(json.dumps([str(message.destination), *identity]).encode(), digest_size=KEY_OCTETS)
    body = message.body
    if isinstance(body, str):
        for start in range(0, len(body), ENCODE_CHARACTERS):  # in parts: memory may not suffice for a whole copy
            digest.update(body[start : start + ENCODE_CHARACTERS].encode("utf-8", "surrogatepass"))
    else:
        digest.update(bytes_of(body))
    return digest.digest() if is_opened(message) else digest.digest() + _place_of(message)


def _place_of(message: Message) -> bytes:
    """Digest the reply destination and correlation id of a request, and who asks for what."""
    if message.reply_to is not None and not message.reply_to.name:
        return OWN_PLACE
    asking = [message.properties.text(each) for each in ASKING]
    place = [str(message.reply_to), message.correlation_id, *asking]
    return blake2b(json.dumps(place).encode(), digest_size=KEY_OCTETS).digest()


def bytes_of(body: object) -> bytes | memoryview:
    """Return the octets of a body; none for a body that is neither octets nor text, as such a request is refused."""
    return body if isinstance(body, bytes | memoryview) else b""


class Claim(ABC):
    """The right to run a request, until `finish`, `abandon` or `forget`. For one thread at a time.

    Attributes:
        copied: True if another request of the same name came before, with another place: one of them is a copy.
        deaths: how often a process died running the request, so that its effects are not known. A worker that abandons
            it without knowing its effects may add one.
        failures: how often the request was abandoned as failed.
        name: a display name for messages about the claim, such as the JMSMessageID; set by the worker.
    """

    copied: bool = False
    deaths: int = 0
    failures: int = 0
    name: str = ""

    @property
    @abstractmethod
    def transaction(self) -> Any:
        """A transaction of the store's own database, begun at the first access; `finish` commits its writes."""

    def problem(self) -> StoreError | UsageError | None:
        """Return why the writes in the transaction cannot be kept, once the function has ended; None if they can.

        The request is not finished then, even if the function caught the error: after a StoreError it waits for the
        store; a UsageError means that the function failed, as it held the transaction for too long.
        """
        return None

    @abstractmethod
    def roll_back(self) -> None:
        """Undo the writes in the transaction."""

    @abstractmethod
    def finish(self, response: Message | None) -> None:
        """Commit the writes in the transaction, together with the fact that the request is finished and its response.

        Raises:
            StoreError: nothing was committed; the claim is as after `roll_back`.
            UsageError: likewise, by a mistake of the function; see `problem`.
            OvertakenError: nothing was committed, as another process took the request over.
        """

    @abstractmethod
    def abandon(self, *, failed: bool = False) -> None:
        """Give up the unfinished request; its writes are undone, its `deaths` are kept. Never raises.

        Args:
            failed: count this among its `failures`.
        """

    @abstractmethod
    def forget(self) -> None:
        """Do the same as `abandon`, and forget that the request was ever begun. Never raises."""


@dataclass(frozen=True, slots=True)
class FinishedBefore:
    """The request was finished before.

    Attributes:
        response: the response as it was stored; None for a one-way message.
        claim: provides a transaction for middleware that wants one; it is always undone.
    """

    response: Message | None
    claim: Claim = field(default_factory=lambda: NoStoreClaim(FINISHED), repr=False, compare=False)


class Store(ABC):
    """Remembers requests by key. Thread-safe; finished requests survive the process."""

    @property
    def problem(self) -> str:
        """Why requests wait for the store; empty if none waits for long."""
        return ""

    @abstractmethod
    def begin(self, key: bytes) -> Claim | FinishedBefore | None:
        """Begin a request: return the claim on it, its earlier end, or None while another worker runs it.

        Args:
            key: from `key_of`. A name without a place stands for the request of that name, with any place.

        Raises:
            StoreError: the store cannot be read or written now; nothing is begun.
        """

    def arrive(self, key: bytes, deliveries: int) -> int:
        """Note that a request was delivered, before its body is read, as reading it may kill the process.

        Args:
            key: the key of the request.
            deliveries: the number of deliveries, including this one, as far as the broker reports it.

        Returns:
            The number of deliveries before this one since the last `depart`; `UNCOUNTED_DELIVERIES` for a request that
            is finished, and for a store that does not count.

        Raises:
            StoreError: the store cannot be written now; nothing was noted.
        """
        return UNCOUNTED_DELIVERIES

    def depart(self, key: bytes) -> None:  # noqa: B027 - a store that counts nothing forgets nothing
        """Forget the deliveries of a request, as the last one did not kill its process. Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close. Idempotent."""


class NoStoreClaim(Claim):
    """A claim on any request, any number of times. It has no state, so that all requests can share one."""

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def transaction(self) -> Any:
        """Refuse, as its writes would be repeated with each delivery.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"request.transaction is not available: {self._why}")

    def roll_back(self) -> None:
        """Do nothing."""

    def finish(self, response: Message | None) -> None:
        """Do nothing."""

    def abandon(self, *, failed: bool = False) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


ANY_CLAIM: Final = NoStoreClaim(NO_STORE)
"""The claim on every request where there is no store."""

UNNAMED_CLAIM: Final = NoStoreClaim(NO_KEY)
"""The claim on every request that has no key."""
