"""A process that is forked while it has a connection, as by a server that makes its workers so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from places import ROOT
from smqp_kit import prepared, running

from brokers.amqp.listener import Listener
from brokers.embedded import Broker

PROGRAM = """
import os, sys
from queue import SimpleQueue
from threading import Thread
import brokers
from brokers import Message, MessageType

message = Message(message_type=MessageType.BYTES, body=b"parent", destination=brokers.queue("fork"))
came = SimpleQueue()
connection = brokers.connect(sys.argv[1])
consumer = connection.consume(brokers.queue("fork"), came.put, auto_accept=True)
if not (child := os.fork()):
    uses = (lambda: connection.send(message).result(20), connection.temporary, lambda: connection.wait_connected(20))
    for use in uses:
        try:
            print("child", use())
        except brokers.ClosedError as error:
            print("child", error)
    closer = Thread(target=consumer.close, daemon=True)
    closer.start()
    closer.join(20)
    print("child waits", closer.is_alive())
    connection.close()
    print("child", connection.state, flush=True)
    os._exit(0)
os.waitpid(child, 0)
connection.send(message).result(20)
print(came.get(timeout=20).message.body, connection.state, connection.generation)
connection.close()
"""


@contextmanager
def stomp_broker() -> Iterator[str]:
    """Run a broker that greets, confirms, and sends messages back to its only subscription."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve_stomp, args=[listener], name="broker", daemon=True)
        thread.start()
        yield f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


def serve_stomp(listener: socket.socket) -> None:
    peer, _ = listener.accept()
    rest, subscription = b"", b""
    with peer, suppress(OSError):
        while data := peer.recv(65536):
            *frames, rest = (rest + data).split(b"\0")
            for frame in frames:
                head, _, body = frame.lstrip(b"\n").partition(b"\n\n")
                command, *lines = head.split(b"\n")
                headers = dict(line.split(b":", 1) for line in lines)
                if command == b"CONNECT":
                    peer.sendall(b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6\nheart-beat:0,0\n\n\0")
                elif command == b"SUBSCRIBE":
                    subscription = headers[b"id"]
                elif command == b"UNSUBSCRIBE":
                    subscription = b""
                elif command == b"SEND" and subscription:
                    shown = b"MESSAGE\nsubscription:%b\nmessage-id:ID:b-1-1-1:1:1:1:1\nack:1\ncontent-length:%d\n\n%b\0"
                    peer.sendall(shown % (subscription, len(body), body))
                if b"receipt" in headers:
                    peer.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % headers[b"receipt"])
                if command == b"DISCONNECT":
                    return


@contextmanager
def amqp_broker() -> Iterator[str]:
    """Run the listener of an embedded broker."""
    with Listener(Broker(), port=0) as listener:
        yield listener.url


@contextmanager
def smqp_broker() -> Iterator[str]:
    """Run an SMQP server."""
    with running() as server:
        yield prepared(server)


BROKERS = {"stomp": stomp_broker, "amqp": amqp_broker, "smqp": smqp_broker}


@pytest.mark.parametrize("protocol", BROKERS)
def test_a_connection_belongs_to_one_process(protocol: str) -> None:
    """In the child it is closed, as its errors say. Nothing there reaches the session of the parent, which goes on."""
    with BROKERS[protocol]() as url:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, url],
            cwd=ROOT,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    why = "child the connection belongs to the process that this one was forked from: connect after the fork"
    told = [why] * 3 + ["child waits False", "child closed", "b'parent' connected 1"]
    assert (done.stdout.splitlines(), done.stderr) == (told, "")
