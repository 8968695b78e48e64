"""The pace of HTTP clients: what they send and what they take goes in pieces of 64 KiB, each of which has its time.

What is held for them meanwhile has a limit; where it is reached, whoever kept us waiting longest has to go. This is
for any ASGI server. Our own, told by `END`, gives up what it holds for the client too; others do when they see fit.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send

from brokers.listeners.room import ClientShare, Room
from soapjms.bridge.backend import too_long
from soapjms.bridge.faults import RETRY, HttpRefusalError
from soapjms.protocol.limits import MIB

log = logging.getLogger("soapjms.bridge")

MAX_HELD: Final = 256 * MIB

PIECE_OCTETS: Final = 64 * 1024
"""Octets of a request or of an answer for which a client has its time anew."""

PIECE_TIMEOUT: Final = 10.0
"""Seconds for the head of a request, for each piece of its body, and for each piece of an answer."""

END: Final = "soapjms.bridge.end"
"""The name in `scope["state"]` of a function without arguments that ends the connection at once."""

CLOSE: Final = {"Connection": "close"}


class Pace:
    """Reads requests and writes answers, so much at a time.

    Args:
        read_timeout: seconds for each piece of a request.
        write_timeout: seconds for each piece of an answer.
        max_held: octets of requests that are not whole, and of answers that were not taken.

    Attributes:
        requests: that are not whole.
        answers: that were not taken.
    """

    def __init__(self, read_timeout: float, write_timeout: float, max_held: int) -> None:
        self._read_timeout, self._write_timeout = read_timeout, write_timeout
        self.requests = Room(max_held, "octets of requests that are not whole")
        self.answers = Room(max_held, "octets of answers that nobody takes")

    async def read(self, request: Request, most: int) -> bytes:
        """Read the body of a request, of so many octets at most.

        Raises:
            RefusedError: it has more, did not come in time, or had to go.
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
            text = f"{self.requests.most} octets of requests that are not whole are here, which is all that may be"
            return HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again", RETRY | CLOSE)
        text = f"of the request nothing more, or less than {PIECE_OCTETS} octets, came within {self._read_timeout:g} s"
        return HttpRefusalError(HTTPStatus.REQUEST_TIMEOUT, text, CLOSE)

    async def write(self, response: Response, scope: Scope, send: Send) -> None:
        """Write an answer; give up if the client does not take it in time, or it had to go."""
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
            log.info("the client %s did not take its answer of %d octets: it ends", scope.get("client"), len(body))
            end = (scope.get("state") or {}).get(END)
            if end is not None:
                end()


class _Waiting:
    """Waiting for a client, as long as it has time and there is room.

    Raises:
        TimeoutError: it has no more, or there is none. On leaving the context, as with `asyncio.timeout`.
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
        """There was no room."""
        return self._held is not None and self._held.has_to_go

    def grow(self, size: int) -> None:
        """Hold so much more."""
        assert self._held is not None
        self._room.grow(self._held, size)

    def again(self) -> None:
        """Let the time of the client begin anew."""
        assert self._held is not None
        if not self._held.has_to_go:
            self._room.waits(self._held)
            self._time(self._seconds)

    def _time(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
