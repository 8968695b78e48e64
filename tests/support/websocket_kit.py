"""The server's end of a WebSocket for `amqp_kit.Peer`, which can also do what no server should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amqp_kit import Carrier
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"


def frames_of(octets: bytes) -> list[bytes]:
    """Cut what proton writes into headers and frames."""
    found = []
    while octets:
        size = 8 if octets[:4] == b"AMQP" else int.from_bytes(octets[:4], "big")
        found.append(octets[:size])
        octets = octets[size:]
    return found


@dataclass
class Script:
    """What the servers of a test do, and what they saw.

    Attributes:
        tokens: sub-protocols that they know.
        answer: makes the HTTP response instead of them, if it makes one.
        cut: makes messages of AMQP's octets; one for each header and frame unless given.
        fragment: octets of a WebSocket frame; None for whole messages.
        opcode: of the messages.
    """

    tokens: tuple[str, ...] = ("amqp",)
    answer: Callable[[Request], Response | None] = lambda request: None
    cut: Callable[[bytes], list[bytes]] = frames_of
    fragment: int | None = None
    ping: bool = False
    opcode: Opcode = Opcode.BINARY
    requests: list[Request] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    octets: list[bytes] = field(default_factory=list)
    carriers: list[ServerCarrier] = field(default_factory=list)

    def __call__(self) -> ServerCarrier:
        """Make one end, for `Peer(carrier=...)`."""
        self.carriers.append(ServerCarrier(self))
        return self.carriers[-1]

    @property
    def messages(self) -> list[bytes]:
        """What clients sent in whole binary messages."""
        found: list[bytes] = []
        begun = b""
        for frame in self.frames:
            if frame.opcode in (Opcode.BINARY, Opcode.CONT):
                begun += frame.data
                if frame.fin:
                    found.append(begun)
                    begun = b""
        return found


class ServerCarrier(Carrier):
    """One end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._socket = ServerProtocol(subprotocols=[Subprotocol(each) for each in script.tokens], max_size=1 << 20)
        self.is_open = False

    def receive(self, octets: bytes) -> bytes:
        """Take the request, and then messages."""
        self._script.octets.append(octets)
        self._socket.receive_data(octets)
        amqp = b""
        for event in self._socket.events_received():
            if isinstance(event, Request):
                self._script.requests.append(event)
                response = self._script.answer(event) or self._socket.accept(event)
                self._socket.send_response(response)
                self.is_open = self._socket.state is State.OPEN
                self.is_over = not self.is_open and response.status_code != 101
            elif isinstance(event, Frame):
                self._script.frames.append(event)
                amqp += event.data if event.opcode in (Opcode.BINARY, Opcode.CONT) else b""
        return amqp

    def send(self, octets: bytes, *, is_last: bool) -> bytes:
        """Write messages as the script has them."""
        for message in self._script.cut(octets) if octets else []:
            step = self._script.fragment or max(1, len(message))
            pieces = [message[begin : begin + step] for begin in range(0, len(message), step)] or [b""]
            for number, piece in enumerate(pieces):
                opcode = Opcode.CONT if number else self._script.opcode
                if self._script.ping and number:
                    self._socket.send_ping(b"between")
                self._socket.send_frame(Frame(opcode, piece, fin=number == len(pieces) - 1))
        if self._socket.state is State.CLOSED:
            self.is_over = True
        return b"".join(self._socket.data_to_send())


def response(status: int, **headers: str) -> Response:
    """Make an HTTP response."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, "Because", Headers({"Content-Length": "0", **fields}), b"")


def upgraded(request: Request, *tokens: str) -> Response:
    """Make a response that opens the WebSocket, with one header for each sub-protocol of the test's choice."""
    protocol: Any = ServerProtocol(subprotocols=request.headers.get("Sec-WebSocket-Protocol", "").split(", "))
    made: Response = protocol.accept(request)
    del made.headers["Sec-WebSocket-Protocol"]
    for token in tokens:
        made.headers["Sec-WebSocket-Protocol"] = token
    return made
