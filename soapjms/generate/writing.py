"""Writing generated logs: JSON Lines, gzip or Parquet, in files of a limited size."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from soapjms.capturelog import CaptureLog
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import from_json

FORMS: Final = ("jsonl", "gzip", "parquet")
ROWS: Final = 5000
"""In a row group."""


class LogWriter(Protocol):
    """Takes lines, and makes files of them."""

    files: list[Path]

    def add(self, line: str) -> None:
        """Take a line, without its end."""

    def close(self) -> None:
        """Write what is left."""


class JsonLines:
    """Lines as they are, or compressed."""

    def __init__(self, folder: Path, rotation: int, begun: datetime, *, compress: bool) -> None:
        self._log = CaptureLog(folder, rotation=rotation, compress=compress, clock=lambda: begun)
        self.files = self._log.files

    def add(self, line: str) -> None:
        """Take a line, without its end."""
        if self._log.add(line.encode() + b"\n"):
            self._log.flush()

    def close(self) -> None:
        """Write what is left."""
        self._log.flush()
        self._log.close()


class ParquetRows:
    """Rows in the Parquet form of the capture record."""

    def __init__(self, folder: Path, rotation: int, begun: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rotation, self._begun = folder, rotation, begun
        self.files: list[Path] = []
        self._rows: list[str] = []
        self._part: _Part | None = None

    def add(self, line: str) -> None:
        """Take a line, without its end."""
        self._rows.append(line)
        if len(self._rows) >= ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        if self._part is not None:
            self._part.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        if self._part is None or self._part.size >= self._rotation:
            if self._part is not None:
                self._part.close()
            self.files.append(self._folder / f"capture-{self._begun:%Y%m%dT%H%M%SZ}-{len(self.files) + 1:04}.parquet")
            self._part = _Part(self.files[-1])
        self._part.write(rows)


class _Part:
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # only those who write Parquet need it

        from soapjms.replay.schema import RECORDS

        self._file = path.open("wb")
        self._schema = RECORDS
        self._writer = pq.ParquetWriter(self._file, RECORDS)

    @property
    def size(self) -> int:
        """Octets so far."""
        return self._file.tell()

    def write(self, lines: list[str]) -> None:
        """Write lines as one row group."""
        import pyarrow as pa

        from soapjms.replay.schema import to_row

        self._writer.write_table(pa.Table.from_pylist([to_row(from_json(each)) for each in lines], self._schema))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()
        self._file.close()


def writer(form: str, folder: Path, rotation: int, begun: datetime) -> LogWriter:
    """Open a log to be written.

    Raises:
        UsageError: an unknown form.
    """
    if form == "parquet":
        return ParquetRows(folder, rotation, begun)
    if form in FORMS:
        return JsonLines(folder, rotation, begun, compress=form == "gzip")
    raise UsageError(f"{form!r} is no form of a log; there are {', '.join(FORMS)}")
