"""The root of all our errors, the caller's mistakes, and the errors between this program and a broker.

Every adapter maps its library's errors to these in one place; code above an adapter never sees a foreign error.
"""

from __future__ import annotations

from brokers.redaction import visible


class SoapJmsError(Exception):
    """Base class of all errors that soapjms raises, those of the broker included. Users have it from `soapjms`."""


class UsageError(SoapJmsError, ValueError):
    """The caller gave a value that the specification or the API does not allow; the message says what is allowed."""


class BrokerError(SoapJmsError):
    """Base class of the errors of a broker or of the connection to it."""

    def __str__(self) -> str:
        """Return the text. It may quote a peer, so characters that a terminal would act on are escaped."""
        return "\n".join(map(visible, super().__str__().split("\n")))


class ConnectionFailedError(BrokerError):
    """The connection could not be made: nothing listens, the handshake failed, or the credentials were refused."""


class UnreachableError(ConnectionFailedError):
    """Nothing at the address answered, not even with a refusal: the machine or the network to it is down."""


class LoginRefusedError(ConnectionFailedError):
    """The broker refused the login: user or password are wrong, or the client id is in use."""


class TlsError(ConnectionFailedError):
    """One side does not trust the other's certificate, or they cannot agree on TLS; the text says what to do."""


class ConnectionLostError(BrokerError):
    """The connection was lost during an operation. Whether the broker carried it out is not known."""


class ClosedError(BrokerError):
    """The connection, consumer or transaction was already closed by this side."""


class NotSentError(BrokerError):
    """No part of a message was written, within the sender's time limit or at all: the broker will not get it."""


class UnsentError(NotSentError, ConnectionLostError):
    """The connection was lost before any part of a message was written."""


class SendFailedError(BrokerError):
    """The broker refused a message, or a commit that held it.

    Attributes:
        is_known: False if the broker settled the message without saying whether it accepted it.
    """

    def __init__(self, text: str = "", *, is_known: bool = True) -> None:
        super().__init__(text)
        self.is_known = is_known


class DestinationGoneError(SendFailedError):
    """The destination no longer exists, like the temporary queue of a client that has left."""


class NoAnswerError(BrokerError):
    """The broker did not answer in time; whether it carried out the request is not known."""


class NoDestinationError(BrokerError):
    """The destination to consume from does not exist, and the broker does not create it on request."""


class InvalidSelectorError(BrokerError, ValueError):
    """A message selector is not valid JMS; the text says where."""


class StaleDestinationError(BrokerError):
    """The temporary destination belongs to an earlier generation of the connection, and ended with it."""


class UnsupportedError(BrokerError):
    """This broker or adapter lacks a capability; the text names the capability and the brokers that have it."""


class NotInstalledError(BrokerError, ImportError):
    """The adapter for a URL needs a library that is not installed; the text has the command to install it."""


class UnknownSchemeError(BrokerError, ValueError):
    """No adapter serves the scheme of the URL that was passed to `connect`."""
