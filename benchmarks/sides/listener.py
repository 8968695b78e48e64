"""Our AMQP listener, on a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker
from sides import Setting


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Listen at the port of the URL, for anybody."""
    with Listener(
        Broker(max_messages=10_000_000), "127.0.0.1", urlsplit(setting.url).port or 0, Options(anonymous=True)
    ):
        yield
