"""TLS to a broker: authorities to trust, the client's certificate, and the meaning of errors."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from brokers import events
from brokers.errors import TlsError, UsageError
from brokers.files import check_files

WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate that is for another host name or address."""

UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a certificate that no trusted authority has signed."""

REASONS: Final = {
    "WRONG_VERSION_NUMBER": "what answers there does not speak TLS: is it the port for TLS?",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client certificate: give it with certFile=FILE",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not know the authority of our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept our certificate, or wants one: see certFile=FILE",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker and we have no cipher in common, or it wants a client certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker offers only versions of TLS that are no longer safe",
    "KEY_VALUES_MISMATCH": "certFile=FILE and keyFile=FILE do not belong together",
}
"""The meaning of OpenSSL's error names."""

ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors when the peer closes the connection; which one is raised depends on the versions of Python and OpenSSL."""


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
            OSError: a file cannot be read, or has the wrong content; or `host` cannot be a name in a certificate.
        """
        name = self.server_name or host
        if not _is_name(name):
            raise OSError(f"{name!r} cannot be the name in a certificate")
        wrap = (self.context or self._context(host)).wrap_socket
        return partial(wrap, server_hostname=name, do_handshake_on_connect=False)

    def explain(self, error: ssl.SSLError, broker: str, host: str) -> TlsError:
        """Return an error that explains what `error` means, and what to do about it."""
        return TlsError(f"no connection to {broker}: {self._meaning(error, host)}")

    def _meaning(self, error: ssl.SSLError, host: str) -> str:
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
            return f"the broker's certificate is not valid: {error.verify_message}"
        if isinstance(error, ENDED):
            return "the broker ended the handshake: is it the port for TLS?"
        return REASONS.get(error.reason or "", f"TLS failed: {error.reason or error}")

    def _context(self, host: str) -> ssl.SSLContext:
        for role, path in self._files().items():
            try:
                check_files(path)
            except OSError as error:
                raise OSError(error.errno, f"the {role} cannot be read: {error.strerror or error}", str(path)) from None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file, self._key_password)
        if not self.verify:
            events.TLS_UNCHECKED.log(host)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _files(self) -> dict[str, Path | None]:
        return {
            "file of the authority (caFile, SOAPJMS_CA_FILE)": self.ca_file,
            "file of the certificate (certFile, SOAPJMS_CERT_FILE)": self.cert_file,
            "file of the key (keyFile, SOAPJMS_KEY_FILE)": self.key_file,
            "file of the key's password (keyPasswordFile, SOAPJMS_KEY_PASSWORD_FILE)": self.key_password_file,
        }

    def _key_password(self) -> bytes:
        if self.key_password_file is None:
            return b""  # otherwise OpenSSL would ask at the terminal
        return self.key_password_file.read_bytes().partition(b"\n")[0].removesuffix(b"\r")


def _is_name(text: str) -> bool:
    """Return whether Python can encode a name for TLS."""
    try:
        return bool(text) and not text.startswith(".") and b"\0" not in text.encode("idna")
    except UnicodeError:
        return False
