"""Errors that keep a replay from running at all: wrong arguments, and packages that are not installed.

Errors in a log are not exceptions; they are in rejected/.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from soapjms.protocol.errors import SoapJmsError, UsageError

WITHOUT_SPARK: Final = 'The same without Spark or Java: --local (engine="local" in Python).'
SPARK_PACKAGES: Final = ("pyspark", "py4j", "pandas")
"""What Spark needs; the first that is missing is told."""
INSTALL_SPARK: Final = f"Type: pip install 'soapjms[spark]'\n{WITHOUT_SPARK}"


class NoInputError(UsageError):
    """None of the logs can be read; the text says why for each log."""


class ProcessLostError(SoapJmsError):
    """A process that reads or judges records ended in the middle of a run; only finished steps of `follow` are kept."""


class SparkFailedError(SoapJmsError):
    """Spark failed in the middle of a run; only finished steps of `follow` are kept."""


class StoreFailedError(SoapJmsError):
    """What a run keeps in between does not fit on the disk or into memory; only finished steps of `follow` are kept."""


class SparkMissingError(UsageError):
    """Spark cannot run here; the text says what to install, and how to do without it."""


@contextmanager
def memory_told(log: str) -> Iterator[None]:
    """Tell memory that runs out in a block from damage in a log, as Arrow's error for the one is a case of the other.

    Args:
        log: the name of the log, which the block reads.

    Raises:
        StoreFailedError: memory ran out.
    """
    try:
        yield
    except MemoryError as error:
        raise StoreFailedError(f"{log}: memory ran out while it was read: {error}") from error


def missing_spark_package() -> str | None:
    """Return the package of Spark that has to be installed; None if all are."""
    return next((name for name in SPARK_PACKAGES if find_spec(name) is None), None)


@contextmanager
def importing_spark() -> Iterator[None]:
    """Run imports that need Spark's packages, and report missing ones.

    Raises:
        SparkMissingError: one of Spark's packages is not installed. Other missing packages raise ImportError.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        if package not in SPARK_PACKAGES:
            raise
        raise SparkMissingError(f"{missing_spark_package() or package} is not installed. {INSTALL_SPARK}") from None
