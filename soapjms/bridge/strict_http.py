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

MAX_CHUNK_LINES_OCTETS: Final = 16 * 1024
"""Octets that the lines around the chunks of a body may have; beyond them, half as many as the chunks themselves."""

FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
"""Header fields that say where a request ends."""

_BARE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED: Final = re.compile(rb"\n[ \t]")


class StrictConnection(h11.Connection):
    """The server's side of a connection.

    Attributes:
        problem: the first error in a request, or None; its `error_status_hint` is the status for the answer.
    """

    problem: h11.RemoteProtocolError | None = None

    def __init__(self, our_role: type[h11.SERVER], max_incomplete_event_size: int) -> None:
        super().__init__(our_role, max_incomplete_event_size)
        self._kept = bytearray()  # all octets since the previous event
        self._in_lines = self._in_chunks = 0  # octets of the body

    def receive_data(self, data: bytes) -> None:
        """Take octets.

        Octets after the last request, the one with `Connection: close`, are dropped: they do not make it invalid.

        Spec: RFC 9112 9.6.
        """
        if self.their_state is h11.MUST_CLOSE:
            return
        super().receive_data(data)
        self._kept += data

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event.

        Raises:
            h11.RemoteProtocolError: a request is malformed, or can be read in two ways.
        """
        if self.their_state is h11.MUST_CLOSE:
            return h11.NEED_DATA
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                names = {name for name, _ in event.headers}
                self._in_lines = self._in_chunks = 0
                _check_lines(self._lines(), "head")
                _check_framing(names, event.http_version)
            elif isinstance(event, h11.Data):
                lines = self._lines(len(event.data))
                _check_lines(lines, "chunked body")
                self._check_chunks(len(lines), len(event.data))
            elif isinstance(event, h11.EndOfMessage):
                _check_lines(self._lines(), "chunked body")
                _check_trailers({name for name, _ in event.headers})
        except h11.RemoteProtocolError as error:
            self.problem = error
            raise
        return event

    def _check_chunks(self, in_lines: int, in_chunk: int) -> None:
        """Refuse a body of very small chunks: each one takes as long to read as many octets in one piece."""
        self._in_lines += in_lines
        self._in_chunks += in_chunk
        if self._in_lines > max(MAX_CHUNK_LINES_OCTETS, self._in_chunks // 2):
            raise h11.RemoteProtocolError(
                f"the chunks of a body must have twice as many octets as the lines around them, got {self._in_chunks} "
                f"octets in chunks, and {self._in_lines} in lines"
            )

    def _lines(self, size: int = 0) -> bytes:
        """Return the lines that h11 read for an event, ahead of its `size` octets of the body."""
        read = len(self._kept) - len(self._receive_buffer)  # the length of `trailing_data`, which is a copy
        lines = bytes(self._kept[: read - size])
        del self._kept[:read]
        return lines


def _check_lines(lines: bytes, what: str) -> None:
    if len(lines) > MAX_HEAD_OCTETS:
        text = f"the lines of the {what} have more than {MAX_HEAD_OCTETS} octets"
        raise h11.RemoteProtocolError(text, error_status_hint=431)
    if _BARE.search(lines) is not None:
        raise h11.RemoteProtocolError(f"lines of the {what} must end with CR and LF, got CR or LF alone")
    if _FOLDED.search(lines) is not None:
        raise h11.RemoteProtocolError("a header must be on one line, got one that continues on the next")


def _check_trailers(names: set[bytes]) -> None:
    """Spec: RFC 9110 6.5.1."""
    if found := names & FRAMING:
        raise h11.RemoteProtocolError(f"{found.pop().decode()} must be in the head, got it behind the body")


def _check_framing(names: set[bytes], version: bytes) -> None:
    if b"transfer-encoding" not in names:
        return
    if b"content-length" in names:
        raise h11.RemoteProtocolError("the head must have Content-Length or Transfer-Encoding, got both")
    if version < b"1.1":
        raise h11.RemoteProtocolError(f"Transfer-Encoding must come with HTTP/1.1, got HTTP/{version.decode()}")
