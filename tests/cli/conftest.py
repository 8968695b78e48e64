"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from calling_kit import fresh

import soapjms
from brokers import Connection


@pytest.fixture
def url() -> str:
    """A broker in this process."""
    return f"embedded:{fresh('broker')}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with soapjms.connect(url) as connection:
        yield connection
