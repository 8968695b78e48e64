"""The URL of one AMQP broker, the environment, and what a program says beside them, read as one login.

Secrets are in no repr, log or pickle. URLs that name several brokers are read in `brokers.adapter.failover`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from secrets import token_hex
from typing import Final, TypedDict

from brokers.adapter.login import Login, dialect_named
from brokers.amqp.dialect import NAMED, AmqpDialect
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.tls import Tls
from brokers.url import (
    Ask,
    Credentials,
    UrlForm,
    ask_of,
    bracketed,
    octets_of,
    options_of,
    port_of,
    seconds_of,
    split,
    tls_of,
)


class Mechanism(StrEnum):
    """How a client says who it is. None of these puts a layer of its own under AMQP."""

    AUTO = "auto"  # PLAIN for who has a user, else ANONYMOUS
    ANONYMOUS = "ANONYMOUS"
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"  # by the certificate of TLS
    NONE = "none"  # no SASL


class WebSocketBinding(StrEnum):
    """The editions of the WebSocket binding."""

    CSPRD01 = "csprd01"  # the draft of 2014: one AMQP frame is one message, of whoever sends it
    CS01 = "cs01"  # the specification of 2016: messages may hold frames as they like
    LENIENT = "lenient"  # as CS01, and the draft's sub-protocol where a server does not know the other


class SubprotocolToken(StrEnum):
    """What the editions call the WebSocket sub-protocol."""

    CSPRD01 = "AMQPWSB10"
    CS01 = "amqp"


class TemporaryQueues(StrEnum):
    """What a temporary queue is to the broker."""

    DYNAMIC = "dynamic"  # a node that it makes and names, a queue
    TOPICS = "topics"  # a topic that this side names, as over STOMP; Artemis only


TOKENS: Final = {
    WebSocketBinding.CSPRD01: SubprotocolToken.CSPRD01,
    WebSocketBinding.CS01: SubprotocolToken.CS01,
    WebSocketBinding.LENIENT: SubprotocolToken.CS01,
}
"""What to ask for first."""


def is_plain(text: object) -> bool:
    """Say whether something is text that may stand in the header of HTTP: visible ASCII and no more."""
    return isinstance(text, str) and all("!" <= each <= "~" for each in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLogin(Login):
    """One broker, and how to log in there.

    Attributes:
        scheme: of the URL.
        hostname: what the broker is told that it is called, where that is not `host`: after a redirect.
        path: the request target over WebSocket.
        binding: how WebSocket is spoken; None for TCP.
        token: the sub-protocol to ask for.
        authorizes: say user and password to HTTP as well, which asked for them.
        container: what this client calls itself, its `client_id` if it has one; the broker lets nobody else be.
        mechanism: of SASL.
        dialect: how to speak with the broker whatever it calls itself; None to go by what it calls itself.
        message_ids: choose the JMSMessageID of what is sent; None to do so where the broker takes it.
        relay: send through the anonymous terminus where the broker offers it.
        idle: seconds without a sign of life after which either side counts as gone; 0 for never.
        temporary_queues: what they are to the broker.
        redirect_hosts: where redirects may lead; None for anywhere.
        hops: how often we were sent on to get here.
    """

    scheme: str
    hostname: str | None = None
    path: str = "/"
    binding: WebSocketBinding | None = None
    token: SubprotocolToken = SubprotocolToken.CS01
    authorizes: bool = False
    container: str
    mechanism: Mechanism = Mechanism.AUTO
    dialect: AmqpDialect | None = field(default=None, repr=False)
    message_ids: bool | None = None
    relay: bool = True
    idle: float = 0.0
    temporary_queues: TemporaryQueues = TemporaryQueues.DYNAMIC
    redirect_hosts: frozenset[str] | None = None
    hops: int = 0

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"

    @property
    def virtual_host(self) -> str:
        """What the broker is told that it is called: by AMQP's `open`, by SASL, by TLS and by HTTP alike."""
        return self.hostname or self.host

    def may_go_to(self, host: str) -> bool:
        """Say whether a redirect to a host may be followed."""
        return self.redirect_hosts is None or host.lower() in self.redirect_hosts


FORM: Final = UrlForm(
    title="an amqp URL",
    ports={"amqp": 5672, "amqps": 5671, "amqp+ws": 80, "amqp+wss": 443},
    secure={"amqps": "amqp", "amqp+wss": "amqp+ws"},
    with_path=frozenset({"amqp+ws", "amqp+wss"}),
    options=("passwordFile", "clientId", "dialect", "idle", "mechanism", "binding", "maxMessage", "temporaryQueues"),
)


class AmqpKeywords(TypedDict, total=False):
    """The keyword arguments of `brokers.amqp.connect` that are `AmqpOptions`'s."""

    idle: float
    credentials: Credentials | Ask | None
    mechanism: Mechanism | str | None
    dialect: str | None
    client_id: str | None
    message_ids: bool | None
    anonymous_relay: bool
    max_message: int
    temporary_queues: TemporaryQueues | str | None
    binding: WebSocketBinding | str | None
    path: str | None
    redirect_hosts: Collection[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpOptions:
    """What a program says beside the URL.

    Attributes:
        idle: seconds without a sign of life after which the broker counts as gone; 0 for never.
        credentials: user and password, or what is called for them at every attempt to connect. Without, and without
            any in the URL, the environment is asked: BROKERS_USER, and BROKERS_PASSWORD or BROKERS_PASSWORD_FILE.
        mechanism: of SASL. Unless given PLAIN with a user, else ANONYMOUS. EXTERNAL is by the certificate of TLS.
        tls: how to make the way safe.
        dialect: `activemq`, `artemis`, `qpid` or `plain`, for a broker that does not say which it is.
        client_id: what durable subscriptions belong to; only one connection at a time may have it.
        message_ids: choose the JMSMessageID of what is sent. Unless given, not with ActiveMQ Classic, where consumers
            over STOMP could not accept such messages.
        anonymous_relay: send to all destinations through one link where the broker offers that.
        max_message: octets that a message may have which is received; a larger one is rejected unread, as the log says.
        temporary_queues: `dynamic`, which is the default: the broker makes and names them; or `topics`, on Artemis:
            they are topics to it, as over STOMP, so that Java clients over OpenWire answer to them.
        binding: how WebSocket is spoken: `csprd01`, `cs01` or `lenient`.
        path: the request target over WebSocket, where it has a query; else it stands in the URL.
        redirect_hosts: hosts that redirects may lead to, as user and password go there; none to follow no redirect,
            None to follow any.
    """

    idle: float = 30.0
    credentials: Credentials | Ask | None = None
    mechanism: Mechanism | str | None = None
    tls: Tls | None = None
    dialect: str | None = None
    client_id: str | None = None
    message_ids: bool | None = None
    anonymous_relay: bool = True
    max_message: int = MAX_MESSAGE_OCTETS
    temporary_queues: TemporaryQueues | str | None = None
    binding: WebSocketBinding | str | None = None
    path: str | None = None
    redirect_hosts: Collection[str] | None = None


def login_of(url: str, environment: Mapping[str, str], given: AmqpOptions) -> AmqpLogin:
    """Read the URL of one broker.

    Raises:
        ValueError: a path, a fragment, no host, a port that is no number, a parameter that is not known or makes no
            sense; a user in the URL beside `credentials`; a host or path with more than visible ASCII.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    client_id = given.client_id or options.get("clientId")
    binding = _binding_of(parts.scheme.lower(), given.binding or options.get("binding"))
    return AmqpLogin(
        scheme=parts.scheme.lower(),
        host=_plain("host", parts.hostname or "", "write other letters of a name as Punycode, xn--…"),
        port=port_of(parts, FORM),
        path=_plain("path", given.path or parts.path or "/", "write other characters as %XX"),
        binding=binding,
        token=TOKENS[binding or WebSocketBinding.LENIENT],
        container=client_id or f"brokers-{token_hex(8)}",
        ask=ask_of(parts, options, environment, given.credentials),
        mechanism=_mechanism_of(given.mechanism or options.get("mechanism")),
        tls=tls_of(parts, options, environment, given.tls, FORM),
        client_id=client_id,
        dialect=dialect_named(given.dialect or options.get("dialect"), NAMED, "AMQP"),
        message_ids=given.message_ids,
        relay=given.anonymous_relay,
        idle=seconds_of(options, "idle", given.idle, FORM),
        max_message=octets_of(options, "maxMessage", given.max_message, FORM),
        temporary_queues=_temporary_queues_of(given.temporary_queues or options.get("temporaryQueues")),
        redirect_hosts=None if given.redirect_hosts is None else frozenset(map(str.lower, given.redirect_hosts)),
    )


def _plain(what: str, text: str, advice: str) -> str:
    if not is_plain(text):
        raise ValueError(f"the {what} {text!r} has more than visible ASCII, and HTTP takes no more; {advice}")
    return text


def _mechanism_of(name: str | None) -> Mechanism:
    known = {mechanism.lower(): mechanism for mechanism in Mechanism}
    found = Mechanism.AUTO if name is None else known.get(name.lower())
    if found is None:
        raise ValueError(f"no SASL mechanism {name!r} here; known are: {', '.join(Mechanism)}")
    return found


def _binding_of(scheme: str, name: str | None) -> WebSocketBinding | None:
    if scheme not in FORM.with_path:
        if name is not None:
            raise ValueError(f"a binding is for WebSocket, and the URL begins with {scheme}://; write amqp+ws://")
        return None
    if name is not None and name not in WebSocketBinding.__members__.values():
        raise ValueError(f"no WebSocket binding is called {name!r}; known are: {', '.join(WebSocketBinding)}")
    return WebSocketBinding.LENIENT if name is None else WebSocketBinding(name)


def _temporary_queues_of(name: str | None) -> TemporaryQueues:
    if name is not None and name not in TemporaryQueues.__members__.values():
        raise ValueError(f"temporaryQueues is {name!r}; known are: {', '.join(TemporaryQueues)}")
    return TemporaryQueues.DYNAMIC if name is None else TemporaryQueues(name)
