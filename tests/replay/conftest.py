"""What the tests of replay share: a browser for reports, and a Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser_kit import browser, opens

__all__ = ["browser", "one_spark", "opens"]


@pytest.fixture(scope="module")
def one_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start one Spark for a module, as replay does; each replay finds it and leaves it running."""
    from soapjms.replay.spark_session import session  # not without Spark

    with session(None, {}, tmp_path_factory.mktemp("spark")):
        yield
