"""What keeps a replay from running at all: mistakes in how it was called, and parts that are not installed.

What is wrong with a log is no exception; it is in rejected/.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from soapjms.protocol.errors import SoapJmsError, UsageError

WITHOUT_SPARK: Final = 'The same replay without Spark or Java: --local (engine="local" in Python).'
SPARK_PACKAGES: Final = frozenset({"pyspark", "pandas", "py4j"})
INSTALL_SPARK: Final = f"Type: pip install 'soapjms[spark]'\n{WITHOUT_SPARK}"


class NoInputError(UsageError):
    """None of the logs can be read; the message says why, log by log."""


class SparkFailedError(SoapJmsError):
    """Spark gave up in the middle of a run; nothing was written."""


class SparkMissingError(UsageError):
    """Spark cannot run here; the message says what to install, and the way without it."""


@contextmanager
def importing_spark() -> Iterator[None]:
    """Have what is imported within the block need Spark's packages.

    Raises:
        SparkMissingError: one of them is not installed. What else is not there stays an ImportError.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        if package not in SPARK_PACKAGES:
            raise
        raise SparkMissingError(f"{package} is not installed. {INSTALL_SPARK}") from None
