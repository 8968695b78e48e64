"""The code in figures: files, lines, import cycles, and the stack frames of a call and of a request.

    python tools/house.py

The frames are those of a real call over the embedded broker; `test_frames` counts those of other adapters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from imports import PRODUCT, ROOT, circles, graph

import brokers
import soapjms
from brokers import Connection

URI = "jms:queue:frames"
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
ENVELOPE = f'<e:Envelope xmlns:e="{SOAP}"><e:Body><go xmlns="urn:x"/></e:Body></e:Envelope>'


def stack(frame: FrameType | None, first: str) -> list[str]:
    """Return the functions from the innermost call of `first` to a frame."""
    found = list[str]()
    while frame is not None:
        found.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}")
        if frame.f_code.co_name == first:
            return found[::-1]
        frame = frame.f_back
    raise AssertionError(f"nobody called {first}: {found}")


@contextmanager
def sends_seen(connection: Connection) -> Iterator[list[list[str]]]:
    """Note the stack of each `send` of a connection, or of each `begin_send` if the adapter has its own."""
    kind, seen = type(connection), list[list[str]]()
    name = "send" if kind.begin_send is Connection.begin_send else "begin_send"
    send = getattr(kind, name)

    def noting(self: Connection, *arguments: object, **options: object) -> object:
        if self is connection:
            seen.append([*stack(sys._getframe(1), "submit"), name])
        return send(self, *arguments, **options)

    setattr(kind, name, noting)
    try:
        yield seen
    finally:
        setattr(kind, name, send)


def frames(url: str) -> tuple[list[str], list[str]]:
    """Make a call, and return the functions on the stack of each side.

    Returns:
        The functions from `Client.submit` to the adapter's `send`, and from the one that the adapter gives a delivery
        to, to the user's function.
    """
    service, requests = soapjms.Service(), list[list[str]]()

    @service.operation("{urn:x}go")
    def go(request: soapjms.Request) -> object:
        requests.append(stack(sys._getframe(), "_on_delivery"))
        return request.element

    with (
        brokers.connect(url) as ours,
        brokers.connect(url) as theirs,
        soapjms.Dispatcher(theirs, URI, service),
        soapjms.Client(ours, URI) as client,
        sends_seen(ours) as sends,
    ):
        client.submit(ENVELOPE).result(30)
    return sends[0], requests[0]


def main() -> None:
    """Print the figures."""
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines()) for path in PRODUCT}
    largest = max(lines, key=lambda name: lines[name])
    print(f"{len(lines)} files, {sum(lines.values()):,} lines; median {median(lines.values()):.0f}")
    print(f"largest: {largest}, {lines[largest]} lines; {sum(each < 60 for each in lines.values())} below 60")
    print(f"modules in circles of imports: {len(circles(graph()))}")
    for name, found in zip(("submit to send", "delivery to function"), frames("embedded:house"), strict=True):
        print(f"frames from {name}: {len(found)}: {', '.join(found)}")


if __name__ == "__main__":
    main()
