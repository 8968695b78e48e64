"""HTTP/1.1 as h11 reads it, without anything that two readers of a connection may split into different requests.

There may be a proxy between the client and this server. If the proxy sees the end of a request elsewhere than the
server does, a client can hide a request behind one that the proxy lets pass. So what h11 reads leniently is refused.

Spec: RFC 9112 2.2, 5.2, 6.1, 6.3, 11.2.
"""

from __future__ import annotations

import re
from typing import Final

import h11

MAX_HEAD_OCTETS: Final = 16 * 1024
"""Maximum size, in octets, of a request's head, of the line before a chunk, and of the trailers."""

_BARE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED: Final = re.compile(rb"\n[ \t]")
_END: Final = b"\r\n\r\n"


class StrictConnection(h11.Connection):
    """The server's side of a connection.

    Attributes:
        problem: the first error in a request, or None; its `error_status_hint` is the status for the answer.
    """

    problem: h11.RemoteProtocolError | None = None
    _last: bytes = b""
    _is_chunked: bool = False

    def receive_data(self, data: bytes) -> None:
        """Take octets, and keep the last ones: they show how a chunked body ends.

        Octets after the last request, the one with `Connection: close`, are dropped: they do not make it invalid.

        Spec: RFC 9112 9.6.
        """
        if self.their_state is h11.MUST_CLOSE:
            return
        super().receive_data(data)
        self._last += data
        self._trim()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event.

        Raises:
            h11.RemoteProtocolError: a request is malformed, or can be read in two ways.
        """
        if self.their_state is h11.MUST_CLOSE:
            return h11.NEED_DATA
        before = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                names = {name for name, _ in event.headers}
                self._is_chunked = b"transfer-encoding" in names
                _check_head(before[: len(before) - self._unread()])
                _check_framing(names, event.http_version)
            elif isinstance(event, h11.EndOfMessage) and self._is_chunked:
                self._check_end()
        except h11.RemoteProtocolError as error:
            self.problem = error
            raise
        self._trim()
        return event

    def _unread(self) -> int:
        return len(self.trailing_data[0])

    def _trim(self) -> None:
        kept = self._unread() + len(_END)
        if len(self._last) > kept:
            self._last = self._last[-kept:]

    def _check_end(self) -> None:
        end = self._last[: len(self._last) - self._unread()][-len(_END) :]
        if end != _END:
            raise h11.RemoteProtocolError(f"a chunked body must end with {_END!r}, got {end!r}")


def _check_head(head: bytes) -> None:
    if len(head) > MAX_HEAD_OCTETS:
        raise h11.RemoteProtocolError(f"the head has more than {MAX_HEAD_OCTETS} octets", error_status_hint=431)
    if _BARE.search(head) is not None:
        raise h11.RemoteProtocolError("lines of the head must end with CR and LF, got CR or LF alone")
    if _FOLDED.search(head) is not None:
        raise h11.RemoteProtocolError("a header must be on one line, got one that continues on the next")


def _check_framing(names: set[bytes], version: bytes) -> None:
    if b"transfer-encoding" not in names:
        return
    if b"content-length" in names:
        raise h11.RemoteProtocolError("the head must have Content-Length or Transfer-Encoding, got both")
    if version < b"1.1":
        raise h11.RemoteProtocolError(f"Transfer-Encoding must come with HTTP/1.1, got HTTP/{version.decode()}")
