"""brokers.stomp: URLs of several brokers, and how long it takes to try again."""

from __future__ import annotations

from typing import Any

import pytest

import brokers
from brokers.adapter.failover import read_failover
from brokers.errors import UsageError
from brokers.stomp import Reconnect

AT_ONCE = Reconnect(initial=0.02, maximum=0.1)


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("stomp://a", ("stomp://a",)),
        ("stomp://u:p@a:1,b:2/", ("stomp://u:p@a:1/", "stomp://u:p@b:2/")),
        ("stomp://a,[::1]:2?other=1&maxReconnectDelay=5", ("stomp://a?other=1", "stomp://[::1]:2?other=1")),
        ("failover:(stomp://a,stomp://u:p@b:2)", ("stomp://a", "stomp://u:p@b:2")),
        ("failover://(stomp://a?x=1,stomp://b)?randomize=false", ("stomp://a?x=1", "stomp://b")),
        ("failover:stomp://a,stomp://b", ("stomp://a", "stomp://b")),
        ("FAILOVER:(stomp://a)", ("stomp://a",)),
    ],
)
def test_urls_of_several_brokers(url: str, urls: tuple[str, ...]) -> None:
    """Both ways of writing give a URL for each broker, with what is that broker's."""
    assert read_failover(url, True).urls == urls


def test_options_of_the_url() -> None:
    """They are called as ActiveMQ's, in milliseconds there; what the program says wins, False over all."""
    url = "stomp://a,b?initialReconnectDelay=10&maxReconnectDelay=2000&maxReconnectAttempts=7&randomize=true"
    assert read_failover(url, True).reconnect == Reconnect(initial=0.01, maximum=2.0, attempts=7, randomize=True)
    assert read_failover(url, Reconnect(initial=5, attempts=3)).reconnect == Reconnect(
        initial=5, maximum=2.0, attempts=3, randomize=True
    )
    assert read_failover(url, False).reconnect is None
    assert read_failover("failover:(stomp://a)?maxReconnectAttempts=0", True).reconnect is None
    assert read_failover("stomp://a?maxReconnectAttempts=0", Reconnect(attempts=3)).reconnect == Reconnect(attempts=3)
    assert read_failover("stomp://a?maxReconnectAttempts=-1", AT_ONCE).reconnect == AT_ONCE


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("failover:()", "OPTION=VALUE; known options are: initialReconnectDelay"),
        ("failover:(stomp://u:tops3cret@a)?backup=true", "known options are: initialReconnectDelay"),
        ("stomp://u:tops3cret@a?maxReconnectDelay=soon", "maxReconnectDelay must be milliseconds, got 'soon'"),
        ("stomp://a?randomize=yes", "randomize must be true or false, got 'yes'"),
        ("stomp://a?maxReconnectAttempts=-2", "attempts must be a whole number, at least 1, got -2"),
        (f"stomp://a?initialReconnectDelay={'9' * 400}", "initialReconnectDelay must be milliseconds, got '999"),
        ("stomp://a?initialReconnectDelay=0", "initial must be a positive, finite number of seconds, got 0.0"),
        ("stomp://u:tops3cret@a,b?other=1", "has an unknown parameter; known are: .*heartbeat.*, maxReconnectDelay, "),
        ("stomp://u:?tops3cret@a", r"has an unknown parameter; .* A \? in user and password must be percent-encoded"),
        (
            "stomp://a?maxReconnectDelay=9&hartbeat=3",
            r"unknown parameter 'hartbeat' \(did you mean heartbeat\?\); known",
        ),
        ("stomp://a?maxReconectDelay=9", r"parameter 'maxReconectDelay' \(did you mean maxReconnectDelay\?\); known"),
        ("stomp://a?heartbeat", "has no value for heartbeat; known are"),
        (
            "failover:(stomp://a?randomize=true)",
            r"has the parameter randomize within a list, .*\(…\)\?randomize=…; known",
        ),
    ],
)
def test_urls_that_cannot_be(url: str, why: str) -> None:
    """Errors say what would be accepted, and repeat no password."""
    with pytest.raises(ValueError, match=why) as caught:
        brokers.connect(url)
    assert "tops3cret" not in str(caught.value)


@pytest.mark.parametrize("reconnect", [None, 0, "no"])
def test_a_reconnect_that_cannot_be(reconnect: Any) -> None:
    """It is told, and what it may be."""
    with pytest.raises(UsageError, match=r"^reconnect must be True, False or a brokers\.Reconnect, got "):
        read_failover("stomp://a?maxReconnectAttempts=0", reconnect)
