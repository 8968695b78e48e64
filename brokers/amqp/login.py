"""One AMQP broker, and how to log in there. Secrets are in no repr, log or pickle."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NoReturn

from brokers.address import bracketed
from brokers.amqp.dialect import Dialect
from brokers.credentials import NOBODY, Ask, Credentials
from brokers.endpoints import no_connection
from brokers.errors import ConnectionFailedError
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.tls import Tls


class Mechanism(StrEnum):
    """How a client says who it is. None of these puts a layer of its own under AMQP."""

    AUTO = "auto"  # PLAIN for who has a user, else ANONYMOUS
    ANONYMOUS = "ANONYMOUS"
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"  # by the certificate of TLS
    NONE = "none"  # no SASL


class Binding(StrEnum):
    """The editions of the WebSocket binding."""

    CSPRD01 = "csprd01"  # the draft of 2014: one AMQP frame is one message, of whoever sends it
    CS01 = "cs01"  # the specification of 2016: messages may hold frames as they like
    LENIENT = "lenient"  # as CS01, and the draft's sub-protocol where a server does not know the other


class Token(StrEnum):
    """What the editions call the WebSocket sub-protocol."""

    CSPRD01 = "AMQPWSB10"
    CS01 = "amqp"


TOKENS: Final = {Binding.CSPRD01: Token.CSPRD01, Binding.CS01: Token.CS01, Binding.LENIENT: Token.CS01}
"""What to ask for first."""


def is_plain(text: object) -> bool:
    """Say whether something is text that may stand in the header of HTTP: visible ASCII and no more."""
    return isinstance(text, str) and all("!" <= each <= "~" for each in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One broker, and how to log in there.

    Attributes:
        scheme: of the URL.
        host, port: where it listens.
        hostname: what the broker is told that it is called, where that is not `host`: after a redirect.
        path: the request target over WebSocket.
        binding: how WebSocket is spoken; None for TCP.
        token: the sub-protocol to ask for.
        authorizes: say user and password to HTTP as well, which asked for them.
        container: what this client calls itself; the broker lets nobody else be.
        ask: gives user and password.
        mechanism: of SASL.
        tls: how to make the way safe; None for plain text.
        client_id: what durable subscriptions belong to, and then the `container`.
        dialect: how to speak with the broker whatever it calls itself; None to go by what it calls itself.
        message_ids: choose the JMSMessageID of what is sent; None to do so where the broker takes it.
        relay: send through the anonymous terminus where the broker offers it.
        idle: seconds without a sign of life after which either side counts as gone; 0 for never.
        max_message: octets that a message may have which is received.
        redirect_hosts: where redirects may lead; None for anywhere.
        hops: how often we were sent on to get here.
    """

    scheme: str
    host: str
    port: int
    hostname: str | None = None
    path: str = "/"
    binding: Binding | None = None
    token: Token = Token.CS01
    authorizes: bool = False
    container: str
    ask: Ask = field(default=lambda: NOBODY, repr=False)
    mechanism: Mechanism = Mechanism.AUTO
    tls: Tls | None = None
    client_id: str | None = None
    dialect: Dialect | None = field(default=None, repr=False)
    message_ids: bool | None = None
    relay: bool = True
    idle: float = 0.0
    max_message: int = MAX_MESSAGE_OCTETS
    redirect_hosts: frozenset[str] | None = None
    hops: int = 0

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"

    @property
    def virtual_host(self) -> str:
        """What the broker is told that it is called: by AMQP's `open`, by SASL, by TLS and by HTTP alike."""
        return self.hostname or self.host

    def __reduce__(self) -> NoReturn:
        raise TypeError("a login is not pickled: it may hold a password")

    def may_go_to(self, host: str) -> bool:
        """Say whether a redirect to a host may be followed."""
        return self.redirect_hosts is None or host.lower() in self.redirect_hosts

    def prepare(self) -> Callable[[socket.socket], socket.socket]:
        """Return what makes the socket to speak over of a connected one; with TLS before the handshake.

        Raises:
            OSError: a certificate or key that cannot be read.
        """
        return (lambda plain: plain) if self.tls is None else self.tls.prepare(self.virtual_host)

    def explain(self, error: OSError) -> ConnectionFailedError:
        """Say what an error on the way to the broker means, and what to do about it."""
        if self.tls is not None and isinstance(error, ssl.SSLError):
            return self.tls.explain(error, f"{self}", self.virtual_host)
        return no_connection(self, error)

    def credentials(self) -> Credentials:
        """Ask for user and password.

        Raises:
            ConnectionFailedError: they cannot be had.
        """
        try:
            return self.ask()
        except OSError as error:
            raise ConnectionFailedError(f"no connection to {self}: no password, {error}") from error
