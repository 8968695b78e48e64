"""SMQP servers as brokers, at `smqp://ACCOUNT:PASSWORD@HOST:PORT`, or `smqps://` for TLS.

The server has to be prepared for it, as `soapjms broker --smqp` does: see `docs/smqp.md`.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import replace
from typing import Final

from brokers.connection import DEFAULT_TIMEOUT
from brokers.smqp.adapter.connection import SmqpConnection
from brokers.smqp.client.connection import Address, Secure
from brokers.smqp.client.options import ClientOptions
from brokers.tls import Tls
from brokers.url import Ask, Credentials, UrlForm, are_local, ask_of, options_of, port_of, split, tls_of

__all__ = ["SmqpConnection", "connect"]

FORM: Final = UrlForm(
    title="an SMQP URL",
    ports={"smqp": 720, "smqps": 720},
    secure={"smqps": "smqp"},
    options=("passwordFile",),
)


def connect(
    url: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    credentials: Credentials | Ask | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    options: ClientOptions | None = None,
) -> SmqpConnection:
    """Connect to an SMQP server.

    Args:
        url: `smqp://ACCOUNT:PASSWORD@HOST:PORT`, or `smqps://` for TLS; the port is 720 unless given. Credentials, and
            what is trusted, may come from the environment and from parameters, as in `brokers.url`.
        timeout: seconds that connecting, and each answer, may take.
        credentials: account and password, in place of those in the URL.
        tls: whom to trust, or a context of one's own.
        options: how the sessions are set up otherwise; its `timeout` and `tls` do not count.

    Raises:
        ConnectionFailedError: nobody answers there, or the login was refused.
        ValueError: a URL that cannot be.
    """
    parts = split(url, FORM)
    found = options_of(parts, FORM)
    who = ask_of(parts, found, os.environ, credentials)()
    given = Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls
    safe = tls_of(parts, found, os.environ, given, FORM)
    host = parts.hostname or ""
    address = Address(host, port_of(parts, FORM), None if safe is None else _secure(safe, host))
    if not who.user or who.password is None:
        raise ValueError(f"an SMQP server wants an account and a password; {FORM.example}")
    settled = replace(options or ClientOptions(), timeout=timeout, tls=None)
    connection = SmqpConnection(address, who.user, who.password, settled)
    connection.is_local = are_local([url])
    return connection


def _secure(tls: Tls, host: str) -> Secure:
    def secure(connection: socket.socket) -> socket.socket:
        secured = tls.prepare(host)(connection)
        secured.do_handshake()
        return secured

    return secure
