"""An HTTP page that shows a report that is still being written, and says when there is a newer one.

`GET /` gives the newest report, compressed for clients that accept gzip, `GET /events` the server-sent event `report`
for it and for each that follows. A report quotes messages: other machines need a token for it, and a page of another
site in a browser here gets nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Generator
from dataclasses import dataclass
from email.message import Message as HeaderFields
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from secrets import compare_digest, token_urlsafe
from threading import BoundedSemaphore, Condition
from time import monotonic
from typing import Final, Self
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

from brokers.listeners.reach import is_here_only
from soapjms.protocol.content import gzipped
from soapjms.protocol.errors import UsageError
from soapjms.replay.report import live
from soapjms.serving.status_page import Refusal, StatusPage, StatusResponse

HEARTBEAT_SECONDS: Final = 15.0
"""Seconds after which a reader is sent something, so that both sides notice a lost connection."""

RETRY_SECONDS: Final = 2
"""Seconds after which a reader tries again when the connection was lost."""

MAX_READERS: Final = 12
"""Maximum number of readers that wait for events; the other connections of the page are for reports."""

MIN_TOKEN_LENGTH: Final = 16
"""Minimum number of characters of a token."""

POLICY: Final = "frame-ancestors 'none'"
"""What a report's own policy cannot say."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NOT_YET: Final = b'<!DOCTYPE html><html lang="en"><title>Report</title><p>The first report is being made.</p></html>'


@dataclass(frozen=True, slots=True)
class _Report:
    """A report: its name, which no other has, its page, that in gzip, and when it was made, by the monotonic clock."""

    name: str
    page: bytes
    gzipped: bytes
    since: float


class LiveReport:
    """Serves a report that changes. Usable in a `with` statement.

    Args:
        address: HOST:PORT; port 0 for any free one, an IPv6 address in `[...]`.
        token: the token that requests need, as `?token=…`. Without it, one is made if other machines reach the address,
            and none is needed otherwise.

    Raises:
        UsageError: the address is not HOST:PORT, it is not possible to listen there, or the token is too short.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        if token is not None and len(token) < MIN_TOKEN_LENGTH:
            raise UsageError(f"a token must have at least {MIN_TOKEN_LENGTH} characters, got {len(token)}")
        self._changed = Condition()
        self._report: _Report | None = None
        self._is_over = False
        self._readers = BoundedSemaphore(MAX_READERS)
        self._token: str | None = token or token_urlsafe()
        self._server = StatusPage(address, {"/": self._tell, "/events": self._tell_events}, self._refusal)
        if token is None and is_here_only(self._server.host):
            self._token = None

    @property
    def url(self) -> str:
        """The address of the page, with the token if one is needed."""
        address = ip_address(self._server.host)
        host = socket.gethostname() if address.is_unspecified else str(address)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self._server.port}/" + ("" if self._token is None else f"?token={quote(self._token)}")

    def show(self, page: str) -> None:
        """Replace the report by another one, which readers are told of.

        Args:
            page: the content of report.html.
        """
        name = uuid4().hex
        made = live(page, name).encode()
        report = _Report(name, made, gzipped(made), monotonic())
        with self._changed:
            self._report = report
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.__exit__(*exception)

    def _refusal(self, query: str, headers: HeaderFields[str, str]) -> Refusal | None:
        if headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Mode") != "navigate":
            return Refusal(HTTPStatus.FORBIDDEN, "pages of other sites get nothing here")
        if self._token is None:
            is_named = _is_this_machine(headers.get("Host", ""))
            said = "the host must be localhost or a loopback address such as 127.0.0.1"
            return None if is_named else Refusal(HTTPStatus.MISDIRECTED_REQUEST, said)
        given = parse_qs(query).get("token", [""])[0]
        is_known = compare_digest(given.encode(), self._token.encode())
        said = "the address must end with the token that was shown at the start, ?token=..."
        return None if is_known else Refusal(HTTPStatus.FORBIDDEN, said)

    def _tell(self) -> StatusResponse:
        report = self._report
        if report is None:
            policy = f"default-src 'none'; {POLICY}"
            headers = {**HEADERS, "Content-Security-Policy": policy, "Refresh": str(RETRY_SECONDS)}
            return StatusResponse("text/html; charset=utf-8", NOT_YET, HTTPStatus.SERVICE_UNAVAILABLE, headers)
        return StatusResponse("text/html; charset=utf-8", report.page, headers=HEADERS, gzipped=report.gzipped)

    def _tell_events(self) -> StatusResponse:
        return StatusResponse("text/event-stream", self._events(), headers=HEADERS)

    def _events(self) -> Generator[bytes]:
        """Yield events and heartbeats; nothing if there are too many readers, who then try again."""
        if not self._readers.acquire(blocking=False):
            return
        try:
            yield f"retry: {RETRY_SECONDS * 1000}\n\n".encode()
            told: _Report | None = None
            while not self._is_over:
                with self._changed:
                    self._changed.wait_for(partial(self._is_news, told), HEARTBEAT_SECONDS)
                    report = self._report
                yield b":\n\n" if report is None or report is told else _event(report)
                told = report
        finally:
            self._readers.release()

    def _is_news(self, told: _Report | None) -> bool:
        return self._is_over or self._report is not told


def _event(report: _Report) -> bytes:
    """Write the event that says which report is the newest, and how old it is, in seconds."""
    return f"id: {report.name}\nevent: report\ndata: {monotonic() - report.since:.1f}\n\n".encode()


def _is_this_machine(host: str) -> bool:
    """Say whether a Host field names this machine: any other name may be one that its owner pointed here."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or is_here_only(name)
    except ValueError:
        return False
