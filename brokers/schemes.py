"""Connecting to a broker by its URL: the adapter for each URL scheme."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from brokers.arguments import finite
from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.errors import NotInstalledError, UnknownSchemeError, UsageError
from brokers.foreign_urls import KNOWN, understood

if TYPE_CHECKING:
    import ssl

    from brokers.tls import Tls
    from brokers.url import Ask, Credentials

SCHEMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("amqp", "amqp+ws", "amqp+wss", "amqps"), "brokers.amqp"),
    "embedded": "brokers.embedded",
    "failover": "brokers.adapter.failover",
    "smqp": "brokers.smqp.adapter",
    "smqps": "brokers.smqp.adapter",
    "stomp": "brokers.stomp",
    "stomp+ssl": "brokers.stomp",
}
"""The module that serves each URL scheme; it has `connect(url, timeout=…)`."""

EXTRAS: Final[Mapping[str, str]] = {"brokers.amqp": "amqp", "brokers.stomp": "stomp"}
"""The extra of `soapjms` that an adapter needs, if it needs one."""


DialectName: TypeAlias = Literal["activemq", "artemis", "qpid", "rabbitmq", "plain"]
"""The dialects of all adapters; each refuses those of others."""


class ConnectArguments(TypedDict, total=False):
    """The options of all adapters, for type checkers; see the `connect` of each, which refuses those of others.

    The types that are `Any` here are those of an adapter, which is imported only when it is used.
    """

    anonymous_relay: bool
    binding: Any
    client_id: str | None
    clock: Any
    credentials: Credentials | Ask | None
    dead_letters: str | None
    dialect: DialectName | None
    heartbeat: float | None
    idle: float | None
    max_deliveries: int
    max_destinations: int
    max_message: int | None
    max_messages: int
    max_octets: int
    max_total_octets: int
    mechanism: Any
    message_ids: bool | None
    virtual_host: str | None
    options: Any
    path: str | None
    reconnect: Any
    redirect_hosts: Collection[str] | None
    temporary_queues: Any
    tls: Tls | ssl.SSLContext | None


def connect(url: str, *, timeout: float = DEFAULT_TIMEOUT, **options: Unpack[ConnectArguments]) -> Connection:
    """Connect to the broker at `url` and return the connection once it is usable.

    `with connect("stomp://admin:admin@localhost:61613") as connection: …` closes it at the end of the block.

    Args:
        url: `embedded:` or `embedded:NAME` for a broker in this process, `stomp://USER:PASSWORD@HOST:PORT` or `amqp://…`
            for ActiveMQ and Artemis, `stomp+ssl://` and `amqps://` for the same over TLS, `failover:(URL,URL)` for the
            first of several that answers.
        timeout: seconds that connecting may take; positive and finite.
        options: options of the adapter, which override the parameters of `url`: docs/brokers.md lists both.

    Raises:
        UnknownSchemeError: no adapter serves the scheme of `url`, or it has none; the text says what to write.
        NotInstalledError: the adapter needs a library that is not installed.
        ConnectionFailedError: no broker answered, or the credentials were refused.
        UsageError: the adapter cannot use `url` or has no such option, or `timeout` is invalid; no text repeats a
            password.
    """
    finite(timeout)
    url = understood(url)
    scheme = _scheme_of(url)
    try:
        connection: Connection = adapter(SCHEMES[scheme]).connect(url, timeout=timeout, **options)
    except TypeError as error:
        wrong = next((each for each in options if f"unexpected keyword argument {each!r}" in str(error)), None)
        if wrong is None:
            raise
        near = get_close_matches(wrong, ["timeout", *ConnectArguments.__annotations__], n=1)
        meant = f"; perhaps {near[0]}= was meant" if near and near[0] != wrong else ""
        raise UsageError(f"connections to {scheme}: have no option {wrong}={meant}") from None
    return connection


def adapter(name: str) -> ModuleType:
    """Import a module of `SCHEMES`.

    Raises:
        NotInstalledError: a library that it needs is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if name not in EXTRAS or missing in ("", "brokers"):
            raise
        raise NotInstalledError(
            f"{name} needs {missing}: pip install 'soapjms[{EXTRAS[name]}]'", name=missing
        ) from None


def _scheme_of(url: str) -> str:
    with suppress(ValueError):
        return urlsplit(url).scheme
    # Raised outside the block, so that it has no context: the original error may repeat the part before the host.
    raise UnknownSchemeError(f"the URL of the broker cannot be parsed, check its host; {KNOWN}")
