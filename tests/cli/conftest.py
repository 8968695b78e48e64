"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from calling_kit import fresh

import soapjms
from brokers import Connection
from brokers.amqp.listener import Listener
from brokers.embedded import Broker


@pytest.fixture
def url() -> str:
    """A broker in this process."""
    return f"embedded:{fresh('broker')}"


@pytest.fixture
def shared_url() -> Iterator[str]:
    """A broker in this process that other processes reach."""
    with Listener(Broker("shared"), port=0) as listener:
        yield f"amqp://127.0.0.1:{listener.port}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with soapjms.connect(url) as connection:
        yield connection
