"""Metrics of what `soapjms serve` serves, in one process or several, for Prometheus at `/metrics`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final, Protocol

from soapjms.cli.page import Told
from soapjms.protocol.errors import UsageError

DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that tells prometheus-client, when it is imported, to keep its numbers in files for all processes."""


class Measuring(Protocol):
    """What is measured, in all processes."""

    def tell(self) -> Told:
        """Return what Prometheus reads."""

    def forget(self, pid: int) -> None:
        """Take note that a process has ended."""


@contextmanager
def measuring(processes: int) -> Iterator[Measuring]:
    """Have processes measure that are started meanwhile, or this one if there is but one.

    Raises:
        UsageError: the library is not installed.
    """
    if processes == 1:
        yield _OfThisProcess()
        return
    with TemporaryDirectory(prefix="soapjms-metrics-") as directory:
        before = os.environ.get(DIRECTORY)
        os.environ[DIRECTORY] = directory
        try:
            yield _OfProcesses(directory)
        finally:
            if before is None:
                del os.environ[DIRECTORY]
            else:
                os.environ[DIRECTORY] = before


def library(module: str = "soapjms.prometheus") -> ModuleType:
    """Import a module of ours that needs an extra. The library of this one looks at the variable then.

    Raises:
        UsageError: the extra is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(str(error)) from None


class _OfThisProcess:
    def __init__(self) -> None:
        self._library = library()

    def tell(self) -> Told:
        return Told(*self._library.exposition())

    def forget(self, pid: int) -> None:
        """Nothing: this process ends with what it measured."""


class _OfProcesses:
    def __init__(self, directory: str) -> None:
        self._library = library()
        self._directory = directory

    def tell(self) -> Told:
        return Told(*self._library.exposition_of(self._directory))

    def forget(self, pid: int) -> None:
        self._library.forget(pid, self._directory)
