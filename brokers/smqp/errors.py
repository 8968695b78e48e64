"""What goes wrong between the two sides of SMQP, as part of the tree of `brokers.errors`."""

from __future__ import annotations

from brokers.errors import BrokerError
from brokers.smqp.replies import MEANINGS, Code, Reply, plain


class RefusedError(BrokerError):
    """A line, a command or a message was refused.

    `code` is what the server says then, `why` what people read: its log, and if `is_told` the client.
    """

    def __init__(self, code: Code, why: str, *, is_told: bool = False) -> None:
        super().__init__(f"{int(code)} {MEANINGS[code]}: {why}")
        self.code = code
        self.why = why
        self.is_told = is_told

    @property
    def reply(self) -> Reply:
        """What the client is told."""
        return Reply(self.code, (f"{MEANINGS[self.code]}: {self.why}",)) if self.is_told else plain(self.code)


class ProtocolError(BrokerError):
    """The peer sent what is not SMQP; the connection cannot go on."""


class StoreError(BrokerError):
    """A file that a server or a client keeps things in cannot be used."""
