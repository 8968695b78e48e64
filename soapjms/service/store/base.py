"""Remembering what became of each request, so that one that is delivered again is answered and not run again.

Here is what a store has to offer, what names a request in it, and the store that remembers nothing. The store to use
is in `sqlite.py`.
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
"""Those of the first part of a key, the name of the message; the second, the place, has as many or is not there."""

ASKING: Final = (names.SOAP_ACTION, names.TARGET_SERVICE, "JMSXUserID")
"""Properties that say who asks whom for what, as far as the body does not: the same at each delivery."""

OWN_PLACE: Final = bytes(KEY_OCTETS)
"""The place of a request from the service's own connection, whose temporary queue has another name on the next one."""

ENCODE_CHARACTERS: Final = 1 << 20
"""Characters of a text that are encoded at a time."""

UNCOUNTED_DELIVERIES: Final = -1
"""What is told of the deliveries of a request that may be delivered any number of times."""

NO_STORE: Final = "the dispatcher has no store; give it one, as in Dispatcher(..., store='requests.db')"
FINISHED: Final = "the request was finished before, and its transaction with it"
NO_KEY: Final = (
    "nothing tells this request from its redelivery: the broker keeps no JMSMessageID, and the request has no "
    "JMSCorrelationID; a sender that sets a unique one is accepted"
)


def key_of(message: Message, *, stable_message_id: bool) -> bytes | None:
    """Name a request so that each delivery of it has the same key, and no other request has it. None if nothing does.

    A key is the name of the message and, behind it, the place: where and as what its answer goes, and who asks for it.
    So somebody who sends a copy of a message, to be answered elsewhere, has made another request, with the same name.

    Our own clients say what tells it from every other, also when they send it again, from another place: a retry has
    the name alone, which stands for the request of that name; see `soapjms.client.retry`. Of another
    sender's, the name is the JMSMessageID where the broker keeps that when it delivers again, elsewhere the reply
    destination with the JMSCorrelationID. The destination belongs to all of them, as a broker may copy a message to
    several queues, and so does the body: whoever makes up an id of somebody else's gets nobody's answer. To the last
    belongs the JMSTimestamp, as a sender may use one JMSCorrelationID again once its call is over.

    A temporary queue is named as this connection sees it. Only a client on the dispatcher's own connection has another
    name on another connection, and that client is gone then. Its place is `OWN_PLACE`, which fits any other.

    Args:
        message: the request as it was delivered; its body is bytes or text.
        stable_message_id: the capability of that name.
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
        for start in range(0, len(body), ENCODE_CHARACTERS):  # a copy of all of it may be what there is no memory for
            digest.update(body[start : start + ENCODE_CHARACTERS].encode("utf-8", "surrogatepass"))
    else:
        digest.update(bytes_of(body))
    return digest.digest() if is_opened(message) else digest.digest() + _place_of(message)


def _place_of(message: Message) -> bytes:
    """Digest where the answer to a request goes, as what, and who asks for it."""
    if message.reply_to is not None and not message.reply_to.name:
        return OWN_PLACE
    asking = [message.properties.text(each) for each in ASKING]
    place = [str(message.reply_to), message.correlation_id, *asking]
    return blake2b(json.dumps(place).encode(), digest_size=KEY_OCTETS).digest()


def bytes_of(body: object) -> bytes | memoryview:
    """Return the octets of a body; of one that is neither octets nor text none, as no such request is accepted."""
    return body if isinstance(body, bytes | memoryview) else b""


class Claim(ABC):
    """The right to work on a request, until `finish`, `abandon` or `forget`. For one thread at a time.

    Attributes:
        copied: there was another request of the same name, to be answered elsewhere: one of them is a copy.
        deaths: how often whoever had begun it died at work: whether its effects happened is not known. Who lets go of
            it without knowing may count one more.
        failures: how often it was abandoned as failed.
        name: what the request is called where its claim is told of, such as its JMSMessageID; set by who works on it.
    """

    copied: bool = False
    deaths: int = 0
    failures: int = 0
    name: str = ""

    @property
    @abstractmethod
    def transaction(self) -> Any:
        """A transaction of the store's own database, begun when first asked for; `finish` commits what is written."""

    def problem(self) -> StoreError | UsageError | None:
        """Say, as the function has ended, why what it wrote in the transaction cannot be kept; None if it can.

        Whatever the function made of that, the request is not finished: with a StoreError it waits for the store, with
        a UsageError the function failed, as it had the transaction for too long.
        """
        return None

    @abstractmethod
    def roll_back(self) -> None:
        """Undo what was written in the transaction."""

    @abstractmethod
    def finish(self, response: Message | None) -> None:
        """Commit what was written in the transaction, and that the request is finished, with its response.

        Raises:
            StoreError: nothing of it happened; as `abandon` then.
            UsageError: likewise, by a mistake of the function; see `problem`.
            OvertakenError: nothing of it happened, as somebody else took the request over.
        """

    @abstractmethod
    def abandon(self, *, failed: bool = False) -> None:
        """Let go of the request, which was not finished; what was written is undone, `deaths` are kept. Never raises.

        Args:
            failed: count this among its `failures`.
        """

    @abstractmethod
    def forget(self) -> None:
        """Do as `abandon`, and forget that the request was ever begun. Never raises."""


@dataclass(frozen=True, slots=True)
class FinishedBefore:
    """The request was finished before, with this response; None for a one-way message.

    Attributes:
        response: as it was stored.
        claim: has a transaction for middleware that wants one, which is only ever undone.
    """

    response: Message | None
    claim: Claim = field(default_factory=lambda: NoStoreClaim(FINISHED), repr=False, compare=False)


class Store(ABC):
    """What is known of requests, by key. Thread-safe; what is finished survives the process."""

    @property
    def problem(self) -> str:
        """Why requests wait for one another in the store; empty if none does for long."""
        return ""

    @abstractmethod
    def begin(self, key: bytes) -> Claim | FinishedBefore | None:
        """Begin a request: the right to work on it, what it was answered with, or None while somebody works on it.

        Args:
            key: see `key_of`. A name without a place stands for the request of that name, wherever its answer goes.

        Raises:
            StoreError: the store cannot be read or written now; nothing is begun.
        """

    def arrive(self, key: bytes, deliveries: int) -> int:
        """Note that a request was delivered, before its body is read: reading it may be what kills the process.

        Args:
            key: names the request.
            deliveries: how many there were, this one included, as far as the broker tells.

        Returns:
            How many there were before this one since the last `depart`; `UNCOUNTED_DELIVERIES` for a request that is
            finished, and where nobody counts.

        Raises:
            StoreError: the store cannot be written now; nothing was noted.
        """
        return UNCOUNTED_DELIVERIES

    def depart(self, key: bytes) -> None:  # noqa: B027 - a store that counts nothing forgets nothing
        """Forget the deliveries of a request, as nobody died of the last. Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close. Idempotent."""


class NoStore(Store):
    """Remembers nothing: every delivery is worked on.

    Args:
        why: why, for who asks for a transaction.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def begin(self, key: bytes = b"") -> Claim:
        """Begin, always."""
        return NoStoreClaim(self._why)

    def close(self) -> None:
        """Nothing."""


class NoStoreClaim(Claim):
    """Any request, any number of times."""

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def transaction(self) -> Any:
        """Refuse: writes would happen again with each delivery.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"request.transaction is not there: {self._why}")

    def roll_back(self) -> None:
        """Nothing."""

    def finish(self, response: Message | None) -> None:
        """Nothing."""

    def abandon(self, *, failed: bool = False) -> None:
        """Nothing."""

    def forget(self) -> None:
        """Nothing."""
