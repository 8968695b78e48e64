"""What goes wrong between this program and a broker, as one small tree.

Every adapter maps its own library's errors to these in one place; nobody above an adapter sees a foreign error.
"""

from __future__ import annotations

from brokers.redaction import visible


class BrokerError(Exception):
    """Anything that went wrong with a broker or with the way to it."""

    def __str__(self) -> str:
        """Return the text. What a peer said may be in it, so what a terminal would act on is escaped."""
        return "\n".join(map(visible, super().__str__().split("\n")))


class ConnectionFailedError(BrokerError):
    """The connection could not be made: nobody listens, the handshake failed, the credentials were refused."""


class UnreachableError(ConnectionFailedError):
    """Nothing at the address answered, not even that nobody listens there: the machine is off, or the way to it."""


class LoginRefusedError(ConnectionFailedError):
    """The broker does not let us in: a wrong user or password, a client id that is in use."""


class TlsError(ConnectionFailedError):
    """One side does not trust the other's certificate, or they cannot agree on TLS; the message says what to do."""


class ConnectionLostError(BrokerError):
    """The connection was lost while something was under way. Whether the broker got it is not known."""


class ClosedError(BrokerError):
    """The connection, consumer or transaction was closed before, by this side."""


class NotSentError(BrokerError):
    """Nothing of a message was written, in the time that its sender gave or at all: the broker will not get it."""


class UnsentError(NotSentError, ConnectionLostError):
    """The connection was lost before anything of a message was written."""


class SendFailedError(BrokerError):
    """The broker refused a message, or a commit that held it.

    Attributes:
        is_known: False where the broker let go of the message without saying whether it has taken it.
    """

    def __init__(self, text: str = "", *, is_known: bool = True) -> None:
        super().__init__(text)
        self.is_known = is_known


class DestinationGoneError(SendFailedError):
    """The destination does not exist any more, as with the temporary queue of a client that left."""


class NoAnswerError(BrokerError):
    """The broker did not answer in time; whether it did what it was asked for is not known."""


class NoDestinationError(BrokerError):
    """There is no such destination to consume from, and the broker makes none for who asks."""


class InvalidSelectorError(BrokerError, ValueError):
    """A message selector is none that JMS knows; the message says where."""


class StaleDestinationError(BrokerError):
    """A temporary destination of an earlier generation of the connection: it ended with that generation."""


class UnsupportedError(BrokerError):
    """This broker or adapter lacks the capability; the message names the capability and who has it."""


class NotInstalledError(BrokerError, ImportError):
    """The adapter for a URL needs a library that is not installed; the message says what to type."""


class UnknownSchemeError(BrokerError, ValueError):
    """`connect` was given a URL whose scheme no adapter serves."""
