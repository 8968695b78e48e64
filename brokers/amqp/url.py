"""The login for one AMQP broker, from its URL, the environment, and the program's arguments.

No secret appears in a repr, log or pickle. `brokers.adapter.failover` parses URLs of several brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from secrets import token_hex
from typing import Final, Literal, TypeAlias, TypedDict
from urllib.parse import SplitResult

from brokers.adapter.failover import OPTIONS
from brokers.adapter.login import Login, dialect_named
from brokers.amqp.dialect import NAMED, AmqpDialect, AmqpDialectName
from brokers.arguments import items, switch
from brokers.errors import UsageError
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
    """How a client authenticates. None of these mechanisms adds a security layer under AMQP."""

    AUTO = "auto"  # PLAIN if there is a user, otherwise ANONYMOUS
    ANONYMOUS = "ANONYMOUS"
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"  # by the certificate of TLS
    NONE = "none"  # no SASL


MechanismName: TypeAlias = Literal["auto", "ANONYMOUS", "PLAIN", "EXTERNAL", "none"]


class WebSocketBinding(StrEnum):
    """The editions of the WebSocket binding."""

    CSPRD01 = "csprd01"  # the draft of 2014: one AMQP frame is one message, from either side
    CS01 = "cs01"  # the specification of 2016: messages may hold any number or part of frames
    LENIENT = "lenient"  # CS01, with the draft's sub-protocol if a server does not know the other


WebSocketBindingName: TypeAlias = Literal["csprd01", "cs01", "lenient"]


class SubprotocolToken(StrEnum):
    """The names of the WebSocket sub-protocol in the editions."""

    CSPRD01 = "AMQPWSB10"
    CS01 = "amqp"


class TemporaryQueues(StrEnum):
    """What a temporary queue is at the broker."""

    DYNAMIC = "dynamic"  # a queue that the broker creates and names
    TOPICS = "topics"  # a topic that this side names, as over STOMP; Artemis only


TemporaryQueuesName: TypeAlias = Literal["dynamic", "topics"]

TOKENS: Final = {
    WebSocketBinding.CSPRD01: SubprotocolToken.CSPRD01,
    WebSocketBinding.CS01: SubprotocolToken.CS01,
    WebSocketBinding.LENIENT: SubprotocolToken.CS01,
}
"""The sub-protocol to request first for each edition."""


def is_plain(text: object) -> bool:
    """Return whether something is text for an HTTP header: only visible ASCII."""
    return isinstance(text, str) and all("!" <= each <= "~" for each in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLogin(Login):
    """One AMQP broker and the login there.

    Attributes:
        scheme: scheme of the URL.
        hostname: host name that is sent to the broker, if it is not `host`: after a redirect.
        virtual_host: name that AMQP's `open` gives as the host, if it is another one.
        path: the request target over WebSocket.
        binding: edition of the WebSocket binding; None for TCP.
        token: the sub-protocol to request.
        authorizes: whether to send user and password over HTTP too, because the server requires it.
        container: name of this client, its `client_id` if it has one; the broker admits only one connection with it.
        mechanism: SASL mechanism.
        dialect: dialect of the broker; None to choose it by the broker's product name.
        message_ids: whether to choose the JMSMessageID of sent messages; None to do so if the broker accepts it.
        relay: whether to send through the anonymous terminus if the broker offers it.
        idle: seconds without traffic after which either side counts as gone; 0 for never.
        temporary_queues: what temporary queues are at the broker.
        redirect_hosts: hosts that redirects may lead to; None for any.
        hops: number of redirects so far.
    """

    scheme: str
    hostname: str | None = None
    virtual_host: str | None = None
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
    def host_name(self) -> str:
        """The host name that is sent to the broker: by SASL, by TLS, by HTTP, and by AMQP's `open` too, unless there is
        a `virtual_host`."""
        return self.hostname or self.host

    def may_go_to(self, host: str) -> bool:
        """Return whether a redirect to a host may be followed."""
        return self.redirect_hosts is None or host.lower() in self.redirect_hosts


FORM: Final = UrlForm(
    title="an amqp URL",
    schemes=("amqp", "amqps", "amqp+ws", "amqp+wss"),
    with_path=frozenset({"amqp+ws", "amqp+wss"}),
    options=(
        "passwordFile",
        "clientId",
        "dialect",
        "idle",
        "mechanism",
        "binding",
        "maxMessage",
        "temporaryQueues",
        "virtualHost",
    ),
    list_options=tuple(OPTIONS),
)


DEFAULT_IDLE_SECONDS: Final = 30.0


class AmqpKeywords(TypedDict, total=False):
    """The keyword arguments of `brokers.amqp.connect` that are fields of `AmqpOptions`."""

    idle: float | None
    credentials: Credentials | Ask | None
    mechanism: Mechanism | MechanismName | None
    dialect: AmqpDialectName | None
    client_id: str | None
    message_ids: bool | None
    anonymous_relay: bool
    max_message: int | None
    temporary_queues: TemporaryQueues | TemporaryQueuesName | None
    virtual_host: str | None
    binding: WebSocketBinding | WebSocketBindingName | None
    path: str | None
    redirect_hosts: Collection[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpOptions:
    """The options that a program gives besides the URL; they override it.

    Attributes:
        idle: seconds without traffic after which the broker counts as gone, 30 by default; 0 for never.
        credentials: user and password, or a function that returns them at every attempt to connect. Without these, and
            without a login in the URL, they come from the environment: SOAPJMS_USER, and SOAPJMS_PASSWORD or
            SOAPJMS_PASSWORD_FILE.
        mechanism: SASL mechanism; by default PLAIN with a user, otherwise ANONYMOUS. EXTERNAL uses the TLS certificate.
        tls: TLS settings.
        dialect: `activemq`, `artemis`, `qpid`, `rabbitmq` or `plain`, for a broker that does not identify itself.
        client_id: owner of the durable subscriptions; only one connection at a time may have it.
        message_ids: whether to choose the JMSMessageID of sent messages; by default True except with ActiveMQ Classic,
            where consumers over STOMP could not accept such messages.
        anonymous_relay: whether to send to all destinations through one link if the broker offers that.
        max_message: maximum size of a received message, in octets: 100 MiB by default; a larger one is logged and
            rejected unread.
        temporary_queues: `dynamic` (the default): the broker creates and names them; or `topics`, on Artemis: they are
            topics there, as over STOMP, so that Java clients over OpenWire can answer to them.
        virtual_host: which of its parts a broker is to show, as it names them: at RabbitMQ `vhost:NAME`. By default the
            host of the URL.
        binding: edition of the WebSocket binding: `csprd01`, `cs01` or `lenient`.
        path: the request target over WebSocket if it has a query; otherwise put it in the URL.
        redirect_hosts: hosts that redirects may lead to, which get user and password; empty to follow no redirect,
            None to follow any.
    """

    idle: float | None = None
    credentials: Credentials | Ask | None = None
    mechanism: Mechanism | MechanismName | None = None
    tls: Tls | None = None
    dialect: AmqpDialectName | None = None
    client_id: str | None = None
    message_ids: bool | None = None
    anonymous_relay: bool = True
    max_message: int | None = None
    temporary_queues: TemporaryQueues | TemporaryQueuesName | None = None
    virtual_host: str | None = None
    binding: WebSocketBinding | WebSocketBindingName | None = None
    path: str | None = None
    redirect_hosts: Collection[str] | None = None


def login_of(url: str, environment: Mapping[str, str], given: AmqpOptions) -> AmqpLogin:
    """Return the login for the URL of one broker.

    Raises:
        UsageError: the URL has a path that is not allowed, a fragment, no host, an invalid port, or an unknown or
            invalid parameter; it has a user besides `credentials`; host or path are not visible ASCII; or an option is
            invalid, or not for this URL.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    client_id = given.client_id or options.get("clientId")
    binding = _binding_of(parts.scheme.lower(), given.binding or options.get("binding"))
    return AmqpLogin(
        scheme=parts.scheme.lower(),
        host=_plain("host", parts.hostname or "", "write other letters of a name as Punycode, xn--…"),
        port=port_of(parts, FORM),
        virtual_host=_virtual_host_of(given.virtual_host or options.get("virtualHost")),
        path=_path_of(parts, given.path),
        binding=binding,
        token=TOKENS[binding or WebSocketBinding.LENIENT],
        container=client_id or f"brokers-{token_hex(8)}",
        ask=ask_of(parts, options, environment, given.credentials),
        mechanism=_mechanism_of(given.mechanism or options.get("mechanism")),
        tls=tls_of(parts, options, environment, given.tls, FORM),
        client_id=client_id,
        dialect=dialect_named(given.dialect or options.get("dialect"), NAMED),
        message_ids=_flag_of("message_ids", given.message_ids),
        relay=bool(_flag_of("anonymous_relay", given.anonymous_relay)),
        idle=seconds_of(options, "idle", given.idle, DEFAULT_IDLE_SECONDS, FORM),
        max_message=octets_of(options, "maxMessage", given.max_message, MAX_MESSAGE_OCTETS, FORM),
        temporary_queues=_temporary_queues_of(given.temporary_queues or options.get("temporaryQueues")),
        redirect_hosts=_redirect_hosts_of(given.redirect_hosts),
    )


def _plain(what: str, text: str, advice: str) -> str:
    if not is_plain(text):
        raise UsageError(f"the {what} must be visible ASCII, as HTTP requires, got {text!r}; {advice}")
    return text


def _virtual_host_of(name: str | None) -> str | None:
    if name is not None and not is_plain(name):
        raise UsageError(f"virtualHost must be visible ASCII, such as vhost:bank, got {name!r}")
    return name


def _path_of(parts: SplitResult, given: str | None) -> str:
    if given is not None and parts.scheme.lower() not in FORM.with_path:
        raise UsageError(f"a URL with path= must begin with amqp+ws:// or amqp+wss://, got {parts.scheme.lower()}://")
    path = _plain("path", given or parts.path or "/", "write other characters as %XX")
    return path if path.startswith("/") else f"/{path}"


def _redirect_hosts_of(given: Collection[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(map(str.lower, items(given, "redirect_hosts", "a list of hosts")))


def _flag_of(name: str, given: bool | None) -> bool | None:
    return None if given is None else switch(given, name)


def _mechanism_of(name: str | None) -> Mechanism:
    known = {mechanism.lower(): mechanism for mechanism in Mechanism}
    found = Mechanism.AUTO if name is None else known.get(f"{name}".lower())
    if found is None:
        raise UsageError(f"mechanism must be one of {', '.join(Mechanism)}, got {name!r}")
    return found


def _binding_of(scheme: str, name: str | None) -> WebSocketBinding | None:
    if scheme not in FORM.with_path:
        if name is not None:
            raise UsageError(f"a URL with a binding must begin with amqp+ws:// or amqp+wss://, got {scheme}://")
        return None
    if name is not None and name not in WebSocketBinding.__members__.values():
        raise UsageError(f"binding must be one of {', '.join(WebSocketBinding)}, got {name!r}")
    return WebSocketBinding.LENIENT if name is None else WebSocketBinding(name)


def _temporary_queues_of(name: str | None) -> TemporaryQueues:
    if name is not None and name not in TemporaryQueues.__members__.values():
        raise UsageError(f"temporaryQueues must be one of {', '.join(TemporaryQueues)}, got {name!r}")
    return TemporaryQueues.DYNAMIC if name is None else TemporaryQueues(name)
