"""TLS to a broker and of listeners: authorities to trust, certificates with their keys, and the meaning of errors."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from brokers import events
from brokers.environment import CA_FILE, CERT_FILE, KEY_FILE, KEY_PASSWORD_FILE
from brokers.errors import TlsError, UsageError
from brokers.files import check_files, reason_of

WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate that is for another host name or address."""

UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a certificate that no trusted authority has signed."""

REASONS: Final = {
    "WRONG_VERSION_NUMBER": "what answers there does not speak TLS: is it the port for TLS?",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client certificate: give it with certFile=FILE",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not know the authority of our certificate: see certFile=FILE",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept our certificate, or wants one: see certFile=FILE",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate: see certFile=FILE",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "there is no common cipher, or the broker wants a certificate: see certFile=FILE",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker offers only versions of TLS that are no longer safe",
}
"""The meaning of OpenSSL's error names."""

ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors when the peer closes the connection; which one is raised depends on the versions of Python and OpenSSL."""


INVALID_CERTIFICATE: Final = "the broker's certificate is not valid"
"""Start of what is said about a certificate that only the broker can replace: it has expired, for example."""


class TlsFileError(OSError):
    """A file for TLS is missing or unsuitable. The text names it, and first the parameter that is to be changed."""


class TlsFile(NamedTuple):
    """A file for TLS: its path, or None, and what error texts call it."""

    title: str
    path: Path | None

    def check(self) -> None:
        """Raise TlsFileError if there is a path, and the file cannot be read."""
        if self.path is None:
            return
        try:
            check_files(self.path)
            self.path.open("rb").close()
        except OSError as error:
            raise self.error(f"cannot be read: {reason_of(error)}") from None

    def error(self, problem: str) -> TlsFileError:
        """Return an error that says what is wrong with the file."""
        return TlsFileError(f"the {self.title} {problem}")


class CertificateFiles(NamedTuple):
    """The files of a certificate, in PEM.

    Attributes:
        certificate: file of the certificate with its chain, and of its key unless `key` has a path.
        key: file of the key.
        password: file with the password of the key in its first line; None if OpenSSL is to ask at the terminal.
    """

    certificate: TlsFile
    key: TlsFile
    password: TlsFile | None

    def load(self, context: ssl.SSLContext) -> None:
        """Load the certificate with its key, if there is one.

        Raises:
            TlsFileError: a file is missing, cannot be read, or is unsuitable.
        """
        for each in filter(None, self):
            each.check()
            if each.path is not None and self.certificate.path is None:
                raise self.certificate.error(f"is missing; there is only the {each.title}: '{each.path}'")
        if self.certificate.path is None:
            return
        password = None if self.password is None else self._password
        try:
            context.load_cert_chain(self.certificate.path, self.key.path, password)
        except (OSError, ValueError) as error:  # no terminal to ask at; a password that is too long
            raise self._explained(self.certificate.path, getattr(error, "reason", None)) from error

    def _password(self) -> bytes:
        if self.password is None or self.password.path is None:
            return b""
        return self.password.path.read_bytes().partition(b"\n")[0].removesuffix(b"\r")

    def _explained(self, certificate: Path, reason: str | None) -> TlsFileError:
        """Find out which file is unsuitable: OpenSSL seldom says it."""
        key = self.key.path or certificate
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
        except ssl.SSLError:
            return self.certificate.error(f"has no certificate in PEM: '{certificate}'")
        if reason == "KEY_VALUES_MISMATCH":
            return self.key.error(f"has another key than that of the certificate: '{key}'")
        if has_password(certificate, key):
            if self.password is None:
                return self.key.error(f"has a password that was not given at the terminal: '{key}'")
            if self.password.path is None:
                return self.password.error(f"is missing; the key has a password: '{key}'")
            return self.password.error(f"has the wrong password for the key in '{key}': '{self.password.path}'")
        if self.key.path is None:
            return self.key.error(f"is missing; that of the certificate has no key: '{certificate}'")
        return self.key.error(f"has no private key in PEM: '{key}'")


def has_password(certificate: Path, key: Path) -> bool:
    """Return whether a key in PEM is encrypted; `certificate` must have a certificate."""
    asked: list[None] = []

    def password() -> bytes:
        asked.append(None)
        return b""

    with suppress(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password)
    return bool(asked)


def server_context(certificate: str | PathLike[str], key: str | PathLike[str] | None) -> ssl.SSLContext:
    """Return the context of a listener.

    Args:
        certificate: PEM file of the certificate with its chain, and of its key unless `key` is given.
        key: PEM file of the key.

    Raises:
        TlsFileError: a file cannot be read, or is unsuitable.
    """
    files = CertificateFiles(
        TlsFile("file of the certificate", Path(certificate)),
        TlsFile("file of the key", None if key is None else Path(key)),
        None,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    files.load(context)
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings for the connection to a broker. Files are read at every attempt to connect, so they may change.

    Attributes:
        ca_file: PEM file of the authorities to trust; None for those of the system.
        cert_file: PEM file of the client's certificate, and of its key unless `key_file` is given; None for no
            certificate.
        key_file: PEM file of the key of `cert_file`.
        key_password_file: file with the password of the key in its first line.
        server_name: name that the broker's certificate must have; None for the host in the URL.
        verify: whether to check the broker's certificate. If not, anyone on the network path can read and change the
            traffic.
        context: used unchanged, in place of all other attributes except `server_name`.

    Raises:
        UsageError: `server_name` cannot be a name in a certificate.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password_file: Path | None = None
    server_name: str | None = None
    verify: bool = True
    context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.server_name is not None and not _is_name(self.server_name):
            raise UsageError(f"server_name (serverName in a URL) must be a host's name, got {self.server_name!r}")

    def prepare(self, host: str) -> Callable[[socket.socket], ssl.SSLSocket]:
        """Read the files, and return a function that wraps a connected socket for TLS, before the handshake.

        Raises:
            TlsFileError: a file cannot be read, or is unsuitable.
            OSError: `host` cannot be a name in a certificate.
        """
        name = self.server_name or host
        if not _is_name(name):
            raise OSError(f"{name!r} cannot be the name in a certificate")
        wrap = (self.context or self._context(host)).wrap_socket
        return partial(wrap, server_hostname=name, do_handshake_on_connect=False)

    def explain(self, error: ssl.SSLError | TlsFileError, broker: str, host: str) -> TlsError:
        """Return an error that explains what `error` means, and what to do about it."""
        return TlsError(f"no connection to {broker}: {self._meaning(error, host)}")

    def _meaning(self, error: ssl.SSLError | TlsFileError, host: str) -> str:
        if isinstance(error, TlsFileError):
            return f"{error}"
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in WRONG_NAME:
                return (
                    f"the broker's certificate is for another name than {self.server_name or host}; "
                    "put the name of the certificate in the URL, or give it with serverName=NAME"
                )
            if error.verify_code in UNKNOWN_AUTHORITY:
                return (
                    "the broker's certificate is from an authority that is not trusted here "
                    f"({error.verify_message}); give that authority's certificate with caFile=FILE"
                )
            return f"{INVALID_CERTIFICATE}: {error.verify_message}"
        if isinstance(error, ENDED):
            return "the broker ended the handshake: is it the port for TLS?"
        return REASONS.get(error.reason or "", f"TLS failed: {error.reason or error}")

    def _context(self, host: str) -> ssl.SSLContext:
        authority, own = self._files()
        authority.check()
        try:
            context = ssl.create_default_context(cafile=authority.path)
        except ssl.SSLError as error:
            raise authority.error(f"has no certificate in PEM: '{authority.path}'") from error
        own.load(context)
        if not self.verify:
            events.TLS_UNCHECKED.log(host)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _files(self) -> tuple[TlsFile, CertificateFiles]:
        return TlsFile(f"file of the authority (caFile, {CA_FILE})", self.ca_file), CertificateFiles(
            TlsFile(f"file of the certificate (certFile, {CERT_FILE})", self.cert_file),
            TlsFile(f"file of the key (keyFile, {KEY_FILE})", self.key_file),
            TlsFile(f"file of the key's password (keyPasswordFile, {KEY_PASSWORD_FILE})", self.key_password_file),
        )


def _is_name(text: str) -> bool:
    """Return whether Python can encode a name for TLS."""
    try:
        return bool(text) and not text.startswith(".") and b"\0" not in text.encode("idna")
    except UnicodeError:
        return False
