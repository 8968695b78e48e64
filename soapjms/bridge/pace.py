"""The pace of HTTP clients: they send and take pieces of 64 KiB, and have limited time for each piece.

The octets held for them meanwhile are limited too; at the limit the client that kept the bridge waiting longest is
dropped. This works with any ASGI server. With `END` our own listener also drops what it holds for the client; other
servers do so when they see fit.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send

from brokers.listeners.room import ClientShare, Room
from soapjms import events
from soapjms.bridge.backend import too_long
from soapjms.bridge.faults import RETRY, HttpRefusalError

PIECE_OCTETS: Final = 64 * 1024
"""Size of a piece, in octets: after each piece of a request or an answer the client's time starts again."""

PIECE_TIMEOUT: Final = 10.0
"""Seconds for the head of a request, for each piece of its body, and for each piece of an answer."""

END: Final = "soapjms.bridge.end"
"""Key in `scope["state"]` of a function without arguments that ends the connection at once."""

CLOSE: Final = {"Connection": "close"}


class Pace:
    """Reads requests and writes answers, piece by piece.

    Args:
        read_timeout: seconds for each piece of a request.
        write_timeout: seconds for each piece of an answer.
        max_held: maximum total size of incomplete requests, in octets, and again of unread answers.

    Attributes:
        requests: the room for incomplete requests.
        answers: the room for unread answers.
    """

    def __init__(self, read_timeout: float, write_timeout: float, max_held: int) -> None:
        self._read_timeout, self._write_timeout = read_timeout, write_timeout
        self.requests = Room(max_held, "octets of incomplete requests")
        self.answers = Room(max_held, "octets of unread answers")

    async def read(self, request: Request, most: int) -> bytes:
        """Read the body of a request, of at most `most` octets.

        Raises:
            HttpRefusalError: the body is longer, did not arrive in time, or was dropped to make room.
            ClientDisconnect: the client left.
        """
        body, waiting = bytearray(), _Waiting(self.requests, request.scope, 0, self._read_timeout)
        try:
            async with waiting:
                async for chunk in request.stream():
                    before = len(body)
                    body += chunk
                    if len(body) > most:
                        raise too_long(most)
                    waiting.grow(len(chunk))
                    if len(body) // PIECE_OCTETS > before // PIECE_OCTETS:
                        waiting.again()
        except TimeoutError:
            raise self._refusal(waiting) from None
        return bytes(body)

    def _refusal(self, waiting: _Waiting) -> HttpRefusalError:
        if waiting.has_to_go:
            text = f"incomplete requests take up all {self.requests.most} octets of their room"
            return HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again", RETRY | CLOSE)
        text = f"neither {PIECE_OCTETS} octets of the request nor the rest of it came within {self._read_timeout:g} s"
        return HttpRefusalError(HTTPStatus.REQUEST_TIMEOUT, text, CLOSE)

    async def write(self, response: Response, scope: Scope, send: Send) -> None:
        """Write an answer; give up if the client does not take it in time, or if it is dropped to make room."""
        body, waiting = response.body, _Waiting(self.answers, scope, len(response.body), self._write_timeout)
        try:
            async with waiting:
                head = {"status": response.status_code, "headers": response.raw_headers}
                await send({"type": "http.response.start", **head})
                for start in range(0, max(len(body), 1), PIECE_OCTETS):
                    waiting.again()
                    piece, more = body[start : start + PIECE_OCTETS], start + PIECE_OCTETS < len(body)
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            events.BRIDGE_CLIENT_SLOW.log(scope.get("client"), len(body))
            end = (scope.get("state") or {}).get(END)
            if end is not None:
                end()


class _Waiting:
    """A context in which to wait for a client while it has time and there is room.

    Raises:
        TimeoutError: time or room ran out; raised on leaving the context, as by `asyncio.timeout`.
    """

    def __init__(self, room: Room, scope: Scope, size: int, seconds: float) -> None:
        self._room, self._size, self._seconds = room, size, seconds
        self._address = str((scope.get("client") or ("",))[0])
        self._limit = asyncio.timeout(None)
        self._held: ClientShare | None = None

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._time(self._seconds)
        self._held = self._room.enter(self._address, self._size, lambda: self._time(0.0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._held is not None
        self._room.leave(self._held)
        await self._limit.__aexit__(kind, error, trace)

    @property
    def has_to_go(self) -> bool:
        """Whether the client was dropped to make room."""
        return self._held is not None and self._held.has_to_go

    def grow(self, size: int) -> None:
        """Hold `size` more octets."""
        assert self._held is not None
        self._room.grow(self._held, size)

    def again(self) -> None:
        """Start the client's time again."""
        assert self._held is not None
        if not self._held.has_to_go:
            self._room.waits(self._held)
            self._time(self._seconds)

    def _time(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
