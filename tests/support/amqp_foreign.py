"""What other brokers are known to do otherwise: the rows of tools/docs/amqp.toml, as expected failures."""

from __future__ import annotations

import tomllib

import pytest
from places import ROOT

THREE = ("activemq", "artemis", "qpid")
"""Fixtures that run a broker."""

TITLES = {"activemq": "ActiveMQ Classic", "artemis": "Artemis", "qpid": "Qpid Broker-J"}
"""What the page calls them."""

ROWS: list[list[str]] = tomllib.loads((ROOT / "tools/docs/amqp.toml").read_text("utf-8"))["deviations"]["rows"]
"""Broker, requirement, what was seen; and the one test that fails, where not each of the requirement does."""


def expect_deviation(request: pytest.FixtureRequest, broker: str) -> None:
    """Expect a test to fail, if the page says that the broker does otherwise; `test_at09_…` is about AT-09.

    A broker that mends it fails the test, so that the row goes.
    """
    test: str = request.node.originalname
    about = test.split("_")[1]
    for title, name, seen, *only in ROWS:
        if title == TITLES[broker] and (only == [test] or (not only and name.replace("-", "").lower() == about)):
            request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"{title}: {seen}"))
