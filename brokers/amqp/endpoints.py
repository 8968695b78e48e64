"""Redirects of connections: a broker, or a server in front of it, asks the client to connect in another way."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Any, Final

from brokers.adapter.endpoints import BrokerEndpoints, LinkT
from brokers.amqp.url import AmqpLogin, is_plain
from brokers.errors import ConnectionFailedError
from brokers.network_schemes import NETWORK_SCHEMES, OTHER_NAMES, WEB_SCHEMES
from brokers.threads.timer import left

MAX_DETOURS: Final = 5
"""Maximum number of redirects in a row that a client follows."""

SECURE: Final = frozenset(
    name
    for name, ours in {**{each: each for each in NETWORK_SCHEMES}, **OTHER_NAMES, **WEB_SCHEMES}.items()
    if NETWORK_SCHEMES[ours].is_secure
)
"""Schemes with TLS, of any protocol: ours, and those of other clients and brokers, which redirects may name."""


class DetourError(ConnectionFailedError):
    """The broker asks for another way to connect. This ends an attempt, and leads to the next."""

    def __init__(self, message: str, login: AmqpLogin) -> None:
        super().__init__(message)
        self.login = login


def redirected(login: AmqpLogin, info: Any) -> AmqpLogin | None:
    """Return the login for the target of a redirect, by the same transport, or None if it cannot be followed.

    It is not followed if it names no host, a host that is not allowed, or a host or path with blanks, control or
    non-ASCII characters, which would end up in an HTTP header; nor if it leads from plain text to TLS.

    Spec: AMQP 1.0 part 2, 2.8.16, 2.8.18; WebSocket binding 3.1, 3.2 (WS-23 to WS-27).
    """
    if not isinstance(info, dict):
        return None
    host, name, port, path, scheme = (info.get(key) for key in ("network-host", "hostname", "port", "path", "scheme"))
    if login.tls is None and str(scheme).lower() in SECURE:
        return None  # the transport stays the same, so the password would be sent there in plain text
    if not all(each is None or is_plain(each) for each in (host, name, path)):
        return None
    named = [str(each) for each in (host, name) if each]  # where the login goes, and whom TLS believes
    if not named or not all(map(login.may_go_to, named)):
        return None
    if isinstance(path, str) and not path.startswith("/"):
        path = f"/{path}"
    return replace(
        login,
        host=str(host or name),
        hostname=None if name is None else str(name),
        virtual_host=None,
        port=int(port) if isinstance(port, int) and 0 < port < 1 << 16 else login.port,
        path=path if isinstance(path, str) else login.path,
        hops=login.hops + 1,
    )


class AmqpEndpoints(BrokerEndpoints[AmqpLogin, LinkT]):
    """The brokers of a connection, with their redirects."""

    def _enter(self, login: AmqpLogin, timeout: float) -> LinkT:
        """Open a session, following at most `MAX_DETOURS` redirects."""
        until = monotonic() + timeout
        trail = []
        for _ in range(MAX_DETOURS + 1):
            engine = self._next(login)
            try:
                engine.open(left(until))
            except DetourError as detour:
                trail.append(str(detour))
                login = detour.login
            except ConnectionFailedError as error:
                trail = [each for each in trail if each != str(error)]
                if not trail:
                    raise
                raise type(error)(f"{error}, after {'; '.join(trail)}") from error
            else:
                return engine
        raise ConnectionFailedError(f"redirected {len(trail)} times: {'; '.join(trail)}")
