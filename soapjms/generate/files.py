"""Writes generated logs as JSON Lines, gzip or Parquet, in files of a limited size.

Spec: capture record, version 1, "Parquet".
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, get_args

from soapjms.capture.log import LogFiles, file_name
from soapjms.generate.traffic import TrafficLine
from soapjms.protocol.errors import UsageError

FormName: TypeAlias = Literal["jsonl", "gzip", "parquet"]
FORMS: Final[tuple[FormName, ...]] = get_args(FormName)


class LogWriter(Protocol):
    """Writes lines to files: to an empty one if there are none."""

    files: list[Path]

    def add(self, line: TrafficLine) -> None:
        """Take a line."""

    def close(self) -> None:
        """Write what is left."""


class JsonLines:
    """Writes JSON Lines, plain or compressed with gzip."""

    def __init__(self, folder: Path, rotation: int, begun: datetime, *, compress: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        suffix = ".jsonl.gz" if compress else ".jsonl"
        self._log = LogFiles(
            lambda number: folder / file_name(begun, number, suffix), rotation=rotation, compress=compress
        )
        self.files = self._log.files

    def add(self, line: TrafficLine) -> None:
        """Take a line."""
        if self._log.add(line.to_json().encode() + b"\n"):
            self._log.flush()

    def close(self) -> None:
        """Write what is left."""
        self._log.flush()
        self._log.close()


def writer(form: str, folder: Path, rotation: int, begun: datetime) -> LogWriter:
    """Open a log for writing.

    Raises:
        UsageError: the form is unknown.
    """
    if form == "parquet":
        from soapjms.generate.parquet import ParquetRows  # so that only Parquet needs its library

        return ParquetRows(folder, rotation, begun)
    if form in FORMS:
        return JsonLines(folder, rotation, begun, compress=form == "gzip")
    raise UsageError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
