"""Remembering what became of each request, so that one that is delivered again is answered and not run again.

What a store has to offer, what names a request in it, and the store that remembers nothing. `soapjms.sqlitestore` has
the one to use.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from brokers.message import Message
from soapjms.protocol.errors import UsageError

KEY_OCTETS: Final = 20

NO_STORE: Final = "the dispatcher has no store; give it one, as in Dispatcher(..., store='requests.db')"
NO_KEY: Final = (
    "nothing tells this request from its redelivery: the broker keeps no JMSMessageID, and the request has no "
    "JMSCorrelationID; a sender that sets a unique one is accepted"
)


def key_of(message: Message, *, stable_message_id: bool) -> bytes | None:
    """Name a request so that each delivery of it has the same name, and no other request has it. None if nothing does.

    Where the broker keeps the JMSMessageID of a message that it delivers again, that is the name. Elsewhere it is
    the reply destination with the JMSCorrelationID. The destination belongs to both, as a broker may copy a message to
    several queues, and so does the body: whoever makes up an id of somebody else's gets nobody's answer. To the second
    belongs the JMSTimestamp, as a sender may use one JMSCorrelationID again once its call is over.

    A temporary queue is named as this connection sees it. Only a client on the dispatcher's own connection has another
    name on another connection, and that client is gone then. The first kind of name does not hold it.

    Args:
        message: the request as it was delivered; its body is bytes or text.
        stable_message_id: the capability of that name.
    """
    identity: list[object]
    if stable_message_id:
        if not message.message_id:
            return None
        identity = [message.message_id]
    else:
        if not message.correlation_id:
            return None
        identity = [message.correlation_id, str(message.reply_to), message.timestamp]
    digest = blake2b(json.dumps([str(message.destination), *identity]).encode(), digest_size=KEY_OCTETS)
    body = message.body
    digest.update(body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes_of(body))
    return digest.digest()


def bytes_of(body: object) -> bytes | memoryview:
    """Return the octets of a body; of one that is neither octets nor text none, as no such request is accepted."""
    return body if isinstance(body, bytes | memoryview) else b""


@dataclass(frozen=True, slots=True)
class Answered:
    """The request was finished before, with this response; None for a one-way message."""

    response: Message | None


class Claim(ABC):
    """The right to work on a request, until `finish`, `abandon` or `forget`. For one thread at a time.

    Attributes:
        deaths: how often whoever had begun it died at work: whether its effects happened is not known. Who lets go of
            it without knowing may count one more.
        failures: how often it was abandoned as failed.
    """

    deaths: int = 0
    failures: int = 0

    @property
    @abstractmethod
    def transaction(self) -> Any:
        """A transaction of the store's own database, begun when first asked for; `finish` commits what is written."""

    @abstractmethod
    def roll_back(self) -> None:
        """Undo what was written in the transaction."""

    @abstractmethod
    def finish(self, response: Message | None) -> None:
        """Commit what was written in the transaction, and that the request is finished, with its response.

        Raises:
            StoreError: nothing of it happened; as `abandon` then.
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


class Store(ABC):
    """What is known of requests, by key. Thread-safe; what is finished survives the process."""

    @abstractmethod
    def begin(self, key: bytes) -> Claim | Answered | None:
        """Begin a request: the right to work on it, what it was answered with, or None while somebody works on it.

        Raises:
            StoreError: the store cannot be read or written now; nothing is begun.
        """

    @abstractmethod
    def close(self) -> None:
        """Close. Idempotent."""


class Unstored(Store):
    """Remembers nothing: every delivery is worked on.

    Args:
        why: why, for who asks for a transaction.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def begin(self, key: bytes = b"") -> Claim:
        """Begin, always."""
        return UnstoredClaim(self._why)

    def close(self) -> None:
        """Nothing."""


class UnstoredClaim(Claim):
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
