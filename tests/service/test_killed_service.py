"""A service that is killed at any point loses no request: whoever serves next answers it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from calling_kit import (
    PATIENCE,
    OnRealBrokers,
    arrivals,
    assert_one_answer_each,
    envelope,
    eventually,
    request_message,
    text_of,
)
from places import ROOT

from brokers import Connection, queue
from soapjms import Client

SERVICE = ROOT / "tests" / "data" / "services" / "slow_greeter.py"
CALLS = 400


@contextmanager
def serving(url: str, uri: str) -> Iterator[subprocess.Popen[str]]:
    """Run the service in a process of its own, which is killed at the end if not before: it never ends by itself."""
    process = subprocess.Popen(
        [sys.executable, str(SERVICE), url, uri],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


class TestKilled(OnRealBrokers):
    """On both real brokers, over STOMP; the embedded one would die with its service."""

    def test_nothing_is_lost(self, url: str, connection: Connection, name: str, uri: str) -> None:
        """Three services one after the other, two of them killed at work: every call gets its own answer, once."""
        with Client(connection, uri, timeout=120) as client:
            futures = [client.submit(envelope(str(number))) for number in range(CALLS)]
            for answered in (CALLS // 4, CALLS // 2, CALLS):
                with serving(url, uri) as process:
                    eventually(lambda: sum(each.done() for each in futures) >= answered, "some were answered")  # noqa: B023 - called at once
                    process.kill()
                assert answered == CALLS or not all(each.done() for each in futures), "it was not killed at work"
            assert [text_of(each.result(0)) for each in futures] == [f"Hello {number}" for number in range(CALLS)]
            assert_one_answer_each(client)
        with arrivals(connection, queue(name)) as left, arrivals(connection, queue(f"DLQ.{name}")) as dead:
            for found, destination in ((left, name), (dead, f"DLQ.{name}")):
                marker = request_message(destination, None)
                connection.send(marker).result(PATIENCE)
                assert found.next().correlation_id == marker.correlation_id, "nothing else is there"
