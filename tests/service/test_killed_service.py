"""A service that is killed at any point loses no request: whoever serves next answers it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from calling_kit import PATIENCE, OnRealBrokers, assert_one_answer_each, envelope, eventually, text_of
from places import ROOT
from real_brokers import RealBroker

from brokers import Connection
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

    @pytest.fixture
    def real(self, request: pytest.FixtureRequest, url: str) -> RealBroker:
        """The broker that `url` leads to."""
        name: str = request.node.callspec.params["url"]
        found: RealBroker = request.getfixturevalue(name)
        return found

    def test_nothing_is_lost(self, url: str, real: RealBroker, connection: Connection, name: str, uri: str) -> None:
        """Three services one after the other, two killed at work and one at the last answer: each call gets its own.

        The last answer may come before its request is accepted, where the broker does not do both at once (Artemis over
        STOMP). That request comes again, and the next service answers it again. Elsewhere nothing is left for it.
        """
        with Client(connection, uri, timeout=120) as client:
            futures = [client.submit(envelope(str(number))) for number in range(CALLS)]
            for answered in (CALLS // 4, CALLS // 2, CALLS):
                with serving(url, uri) as process:
                    eventually(lambda: sum(each.done() for each in futures) >= answered, "some were answered")  # noqa: B023 - called at once
                    process.kill()
                assert answered == CALLS or not all(each.done() for each in futures), "it was not killed at work"
            assert [text_of(each.result(0)) for each in futures] == [f"Hello {number}" for number in range(CALLS)]
            with nullcontext() if connection.capabilities.accepts_in_transactions else serving(url, uri):
                eventually(lambda: name not in real.counters().messages, "no request is left")
            assert_one_answer_each(client)
        assert f"DLQ.{name}" not in real.counters().messages
