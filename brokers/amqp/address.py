"""The URL of one AMQP broker, the environment, and what a program says beside them, as a `Login`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, TypedDict

from brokers.address import Form, ask_of, octets_of, options_of, port_of, seconds_of, split, tls_of
from brokers.amqp.dialect import NAMED, Dialect
from brokers.amqp.login import TOKENS, Binding, Login, Mechanism, is_plain
from brokers.credentials import Ask, Credentials
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.tls import Tls

FORM: Final = Form(
    title="an amqp URL",
    ports={"amqp": 5672, "amqps": 5671, "amqp+ws": 80, "amqp+wss": 443},
    secure={"amqps": "amqp", "amqp+wss": "amqp+ws"},
    with_path=frozenset({"amqp+ws", "amqp+wss"}),
    options=("passwordFile", "clientId", "dialect", "idle", "mechanism", "binding", "maxMessage"),
)


class Options(TypedDict, total=False):
    """The keyword arguments of `brokers.amqp.connect` that are `Given`'s."""

    idle: float
    credentials: Credentials | Ask | None
    mechanism: Mechanism | str | None
    dialect: str | None
    client_id: str | None
    message_ids: bool | None
    anonymous_relay: bool
    max_message: int
    binding: Binding | str | None
    path: str | None
    redirect_hosts: Collection[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
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
    binding: Binding | str | None = None
    path: str | None = None
    redirect_hosts: Collection[str] | None = None


def login_of(url: str, environment: Mapping[str, str], given: Given) -> Login:
    """Read the URL of one broker.

    Raises:
        ValueError: a path, a fragment, no host, a port that is no number, a parameter that is not known or makes no
            sense; a user in the URL beside `credentials`; a host or path with more than visible ASCII.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    client_id = given.client_id or options.get("clientId")
    binding = _binding_of(parts.scheme.lower(), given.binding or options.get("binding"))
    return Login(
        scheme=parts.scheme.lower(),
        host=_plain("host", parts.hostname or "", "write other letters of a name as Punycode, xn--…"),
        port=port_of(parts, FORM),
        path=_plain("path", given.path or parts.path or "/", "write other characters as %XX"),
        binding=binding,
        token=TOKENS[binding or Binding.LENIENT],
        container=client_id or f"brokers-{token_hex(8)}",
        ask=ask_of(parts, options, environment, given.credentials),
        mechanism=_mechanism_of(given.mechanism or options.get("mechanism")),
        tls=tls_of(parts, options, environment, given.tls, FORM),
        client_id=client_id,
        dialect=_dialect_of(given.dialect or options.get("dialect")),
        message_ids=given.message_ids,
        relay=given.anonymous_relay,
        idle=seconds_of(options, "idle", given.idle, FORM),
        max_message=octets_of(options, "maxMessage", given.max_message, FORM),
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


def _binding_of(scheme: str, name: str | None) -> Binding | None:
    if scheme not in FORM.with_path:
        if name is not None:
            raise ValueError(f"a binding is for WebSocket, and the URL begins with {scheme}://; write amqp+ws://")
        return None
    if name is not None and name not in Binding.__members__.values():
        raise ValueError(f"no WebSocket binding is called {name!r}; known are: {', '.join(Binding)}")
    return Binding.LENIENT if name is None else Binding(name)


def _dialect_of(name: str | None) -> Dialect | None:
    if name is None:
        return None
    if name not in NAMED:
        raise ValueError(f"no AMQP dialect is called {name!r}; known are: {', '.join(sorted(NAMED))}")
    return NAMED[name]
