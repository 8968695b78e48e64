"""Loops over stomp.py as its documentation shows it. They read no SOAP and judge nothing; on the wire they give the
same guarantees as ours.
"""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import stomp

from sides import GROUP, Caller, Setting, envelope

BINDING = {"SOAPJMS_bindingVersion": "1.0", "SOAPJMS_contentType": "text/xml; charset=utf-8"}


@contextmanager
def connected(setting: Setting, listener: Any) -> Iterator[Any]:
    """Connect, and leave at the end."""
    parts = urlsplit(setting.url)
    connection = stomp.StompConnection12(
        [(parts.hostname, parts.port)], auto_decode=False, auto_content_length=False, heartbeats=(10000, 10000)
    )
    connection.set_listener("bare", listener)
    connection.connect(parts.username, parts.password, wait=True)
    connection.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    yield connection
    connection.disconnect()


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Serve while the `with` statement lasts, with one subscription for each call in flight."""
    echo = Transactions() if setting.transactional else Plain()
    with connected(setting, echo) as connection:
        echo.connection = connection
        for number in range(setting.in_flight):
            connection.subscribe(
                f"/queue/{setting.queue}", str(number), ack="client", headers={"activemq.prefetchSize": "1"}
            )
        yield


def answer_to(frame: Any) -> dict[str, str]:
    """Return the headers of an answer."""
    return BINDING | {
        "correlation-id": frame.headers["correlation-id"],
        "persistent": frame.headers.get("persistent", "false"),
        "SOAPJMS_requestURI": frame.headers["SOAPJMS_requestURI"],
        "SOAPJMS_isFault": "false",
        "content-length": str(len(frame.body)),
    }


class Plain:
    """Answers on the thread that reads; acknowledges once a persistent answer was confirmed, any other at once."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._waiting: dict[str, str] = {}

    def on_message(self, frame: Any) -> None:
        headers = answer_to(frame)
        if headers["persistent"] == "true":
            headers["receipt"] = headers["correlation-id"]
            self._waiting[headers["receipt"]] = frame.headers["ack"]
        self.connection.send(frame.headers["reply-to"], frame.body, headers=headers)
        if headers["persistent"] != "true":
            self.connection.ack(frame.headers["ack"])

    def on_receipt(self, frame: Any) -> None:
        acknowledged = self._waiting.pop(frame.headers["receipt-id"], None)
        if acknowledged is not None:
            self.connection.ack(acknowledged)


class Transactions:
    """Answers in group commits: BEGIN, each SEND with its receipt, each ACK, COMMIT with a receipt."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._committed: queue.SimpleQueue[str] = queue.SimpleQueue()
        Thread(target=self._commit_all, daemon=True).start()

    def on_message(self, frame: Any) -> None:
        self._arrived.put(frame)

    def on_receipt(self, frame: Any) -> None:
        if frame.headers["receipt-id"].startswith("commit"):
            self._committed.put(frame.headers["receipt-id"])

    def _commit_all(self) -> None:
        number = 0
        while True:
            group = [self._arrived.get()]
            while len(group) < GROUP:
                try:
                    group.append(self._arrived.get_nowait())
                except queue.Empty:
                    break
            number += 1
            self._commit(f"t{number}", group)
            self._committed.get()

    def _commit(self, transaction: str, group: list[Any]) -> None:
        self.connection.begin(transaction)
        for position, frame in enumerate(group):
            headers = {"transaction": transaction, "receipt": f"{transaction}-{position}"}
            self.connection.send(frame.headers["reply-to"], frame.body, headers=answer_to(frame) | headers)
            self.connection.ack(frame.headers["ack"], transaction=transaction)
        self.connection.commit(transaction, headers={"receipt": f"commit-{transaction}"})


class Client(Caller):
    """Sends requests, persistent ones with a receipt, and reads the replies of a temporary queue."""

    def __init__(self, setting: Setting, connection: Any, replies: queue.SimpleQueue[Any]) -> None:
        self._connection, self._replies = connection, replies
        self._queue, self._body, self._persistent = (
            f"/queue/{setting.queue}",
            envelope(setting.octets),
            setting.persistent,
        )
        self._headers = BINDING | {
            "reply-to": "/temp-queue/r",
            "persistent": "true" if setting.persistent else "false",
            "SOAPJMS_requestURI": f"jms:queue:{setting.queue}",
            "content-length": str(len(self._body)),
        }

    def submit(self, number: int) -> None:
        headers = self._headers | {"correlation-id": f"c-{number}"}
        if self._persistent:
            headers["receipt"] = f"r-{number}"
        self._connection.send(self._queue, self._body, headers=headers)

    async def take(self) -> int:
        return int(self._replies.get(timeout=60).headers["correlation-id"][2:])


class Replies:
    """Hands replies over to the thread that waits for them."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)


@contextmanager
def client(setting: Setting) -> Iterator[Client]:
    """Connect a client."""
    replies = Replies()
    with connected(setting, replies) as connection:
        connection.subscribe("/temp-queue/r", "r", ack="auto", headers={"activemq.prefetchSize": "1000"})
        yield Client(setting, connection, replies.arrived)
