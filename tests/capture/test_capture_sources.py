"""soapjms.capture.sources: where the AMQP of a broker may be, and knocking there."""

from __future__ import annotations

import socket
import threading

import pytest
from ports import nobody

from brokers.amqp.listener import Listener, Options
from brokers.amqp.probe import speaks_amqp
from brokers.embedded import Broker
from soapjms.capture.sources import amqp_urls


@pytest.mark.parametrize(
    ("url", "port", "shares_ports", "found"),
    [
        ("stomp://ann:s%40@broker:61613", None, False, ["amqp://ann:s%40@broker:5672"]),
        ("stomp://broker:1", None, True, ["amqp://broker:1", "amqp://broker:5672"]),
        ("stomp://broker:5672", None, True, ["amqp://broker:5672"]),
        ("stomp://broker:1", 9, True, ["amqp://broker:9"]),
        ("stomp://[::1]:1", 9, False, ["amqp://[::1]:9"]),
        ("stomp+ssl://b:1?caFile=ca.pem&heartbeat=9", None, False, ["amqps://b:5671?caFile=ca.pem"]),
        ("stomp://b:1?maxReconnectAttempts=3", None, False, ["amqp://b:5672?maxReconnectAttempts=3"]),
        ("failover:(stomp://b:1?passwordFile=x)?randomize=true", None, False, ["amqp://b:5672?passwordFile=x"]),
        ("failover:(stomp://a:1,stomp://b:1)", 9, False, []),
        ("stomp://a:1,b:1", 9, False, []),
        ("amqp://b:1", 9, False, []),
        ("embedded:", None, False, []),
    ],
)
def test_where_amqp_may_be(url: str, port: int | None, shares_ports: bool, found: list[str]) -> None:
    """At the port of STOMP where a broker does so, and at AMQP's own; never without TLS where there was TLS."""
    assert amqp_urls(url, port, shares_ports=shares_ports) == found


def test_knocking_tells_nobody_who_asks() -> None:
    """A listener with passwords is recognised without one."""
    asked: list[tuple[str, str]] = []

    def check(user: str, password: str) -> bool:
        asked.append((user, password))
        return False

    with Listener(Broker(), port=0, options=Options(users=check)) as listener:
        assert speaks_amqp(listener.url.replace("://", "://ann:secret@"), 20.0)
    assert asked == []


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400\r\n", b"AMQP\0\0\x09\x01", b"AMQP"])
def test_others_are_not_taken_for_it(answer: bytes) -> None:
    """Whoever hangs up, says something else, or nothing: within the time."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def speak() -> None:
            connected, _ = server.accept()
            with connected:
                heard.append(connected.recv(100))
                connected.sendall(answer)
                if answer == b"AMQP":
                    ended.wait(20.0)

        speaker = threading.Thread(target=speak)
        speaker.start()
        assert not speaks_amqp(f"amqp://ann:secret@127.0.0.1:{server.getsockname()[1]}", 0.3)
        ended.set()
        speaker.join()
    assert heard == [b"AMQP\x03\x01\x00\x00"]


def test_nobody_is_there() -> None:
    """A port where nobody listens is no error."""
    with nobody() as port:
        assert not speaks_amqp(f"amqp://127.0.0.1:{port}", 1.0)
