"""SMQP servers as brokers, at `smqp://ACCOUNT:PASSWORD@HOST:PORT`, or `smqps://` for TLS.

The server must be prepared for this, as `soapjms broker --smqp` does: see `docs/smqp.md`.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import replace
from time import monotonic
from typing import Final

from brokers.adapter.dial import shake_hands
from brokers.adapter.login import credentials_of
from brokers.connection import DEFAULT_TIMEOUT
from brokers.errors import UsageError
from brokers.smqp.adapter.connection import SmqpConnection
from brokers.smqp.client.connection import Address, Secure
from brokers.smqp.client.options import ClientOptions
from brokers.tls import Tls, TlsFileError
from brokers.url import Ask, Credentials, UrlForm, are_local, ask_of, options_of, port_of, split, tls_of

__all__ = ["SmqpConnection", "connect"]

FORM: Final = UrlForm(
    title="an SMQP URL",
    schemes=("smqp", "smqps"),
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
        url: `smqp://ACCOUNT:PASSWORD@HOST:PORT`, or `smqps://` for TLS; the default port is 720. Credentials and trust
            settings may come from the environment and from parameters, as in `brokers.url`.
        timeout: maximum time for connecting, and for each answer, in seconds.
        credentials: account and password, instead of those in the URL.
        tls: trust settings, or an SSL context.
        options: other options of the sessions; its `timeout` and `tls` are ignored.

    Raises:
        ConnectionFailedError: the server does not answer, or refused the login; or the password cannot be read. Its
            subclass TlsError: the TLS settings are unsuitable, or the certificate is not trusted.
        UsageError: the URL is invalid, or lacks an account or a password.
    """
    parts = split(url, FORM)
    found = options_of(parts, FORM)
    given = Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls
    safe = tls_of(parts, found, os.environ, given, FORM)
    host = parts.hostname or ""
    address = Address(host, port_of(parts, FORM), None)
    if safe is not None:
        address = address._replace(secure=_secure(safe, address))
    who = credentials_of(ask_of(parts, found, os.environ, credentials), address)
    if not who.user or who.password is None:
        raise UsageError(f"an SMQP URL must have an account and a password; {FORM.example}")
    settled = replace(options or ClientOptions(), timeout=timeout, tls=None)
    connection = SmqpConnection(address, who.user, who.password, settled)
    connection.is_local = are_local([url])
    return connection


def _secure(tls: Tls, address: Address) -> Secure:
    def secure(connection: socket.socket) -> socket.socket:
        safe = address._replace(secure=secure)
        try:
            return _secured(tls, safe, connection)
        except (ssl.SSLError, TlsFileError) as error:
            raise tls.explain(error, f"{safe}", safe.host) from error

    return secure


def _secured(tls: Tls, address: Address, connection: socket.socket) -> socket.socket:
    within = connection.gettimeout()
    assert within is not None, "who connects sets it, and so does the listener for notifications"
    secured = tls.prepare(address.host)(connection)
    try:
        shake_hands(secured, address, monotonic() + within)
    except BaseException:
        secured.close()
        raise
    secured.settimeout(within)
    return secured
