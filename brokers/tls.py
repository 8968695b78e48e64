"""TLS to a broker: whom to trust, what to show, and what its errors mean."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from brokers.errors import TlsError
from brokers.files import check_files

log = logging.getLogger(__name__)

WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's numbers for a certificate that is for another host name or address."""

UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})
"""For one that nobody vouches for whom we know."""

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
"""OpenSSL's names for what went wrong, in words."""

ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The peer has closed the connection; which of them it is depends on the versions of Python and OpenSSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the way to a broker is made safe. Files are read at every attempt to connect, so they may change meanwhile.

    Attributes:
        ca_file: PEM, the authorities to trust; None for those of the system.
        cert_file: PEM, the client's own certificate, and its key unless `key_file` has that; None for none.
        key_file: PEM, the key of `cert_file`.
        key_password_file: the password of the key, in the first line.
        server_name: whom the broker's certificate must be for; None for the host in the URL.
        verify: check the broker's certificate. Without, anybody on the way can read and change everything.
        context: used as it is, in place of all but `server_name`.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password_file: Path | None = None
    server_name: str | None = None
    verify: bool = True
    context: ssl.SSLContext | None = None

    def prepare(self, host: str) -> Callable[[socket.socket], ssl.SSLSocket]:
        """Read the files, and return what makes the socket to speak over of a connected one, before the handshake.

        Raises:
            OSError: a file that cannot be read, or holds something else.
        """
        wrap = (self.context or self._context(host)).wrap_socket
        return partial(wrap, server_hostname=self.server_name or host, do_handshake_on_connect=False)

    def explain(self, error: ssl.SSLError, broker: str, host: str) -> TlsError:
        """Say in words what an error means, and what to do about it."""
        return TlsError(f"no connection to {broker}: {self._meaning(error, host)}")

    def _meaning(self, error: ssl.SSLError, host: str) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in WRONG_NAME:
                return (
                    f"the broker's certificate is for another name than {self.server_name or host}; "
                    "write the name that it is for in the URL, or give it with serverName=NAME"
                )
            if error.verify_code in UNKNOWN_AUTHORITY:
                return (
                    "the broker's certificate is from an authority that is not trusted here "
                    f"({error.verify_message}); give that authority's certificate with caFile=FILE"
                )
            return f"the broker's certificate is not valid: {error.verify_message}"
        if isinstance(error, ENDED):
            return "the handshake was ended from there: is it the port for TLS?"
        return REASONS.get(error.reason or "", f"TLS failed: {error.reason or error}")

    def _context(self, host: str) -> ssl.SSLContext:
        check_files(self.ca_file, self.cert_file, self.key_file, self.key_password_file)
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file, self._key_password)
        if not self.verify:
            log.warning("the certificate of %s is not checked: anybody on the way can read and change everything", host)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _key_password(self) -> str:
        if self.key_password_file is None:
            return ""  # else OpenSSL would ask at the terminal
        return self.key_password_file.read_text("utf-8").partition("\n")[0].removesuffix("\r")
