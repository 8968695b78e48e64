"""Logs that are not on this machine, on any file system that Hadoop supports, such as hdfs:// and s3a://.

Spark lists the files and fetches their octets; they are read like any other log. A task holds one whole file, so the
size of a file is limited: recorders begin another one every 64 MiB.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame, SparkSession

from soapjms.protocol.uri.redact import without_user_info
from soapjms.replay.inputs import (
    SUFFIXES,
    ExpandedInputs,
    LogFile,
    RejectedRow,
    Split,
    form_of,
    is_hidden,
    opened,
    whole,
)

MAX_FILE_OCTETS: Final = 512 << 20
"""Maximum size of a file, in octets."""
GLOB: Final = re.compile(r"([\\*?\[\]{}])")


def find(spark: SparkSession, uris: Iterable[str], number: int) -> ExpandedInputs:
    """Find the files that URIs refer to: files, folders (recursively) and globs.

    Args:
        spark: the session, which has the file systems and their logins.
        uris: the URIs of the user.
        number: number of the first file.
    """
    found: dict[str, LogFile] = {}
    rejected: list[RejectedRow] = []
    others: dict[str, str] = {}
    for uri in uris:
        try:
            files = list(_files(spark, uri, others))
        except Py4JJavaError as error:
            why = without_user_info(str(error.java_exception)[:1000])
            rejected.append(RejectedRow(without_user_info(uri), None, f"cannot be opened: {why}"))
            continue
        if not files:
            rejected.append(RejectedRow(without_user_info(uri), None, "no .jsonl, .jsonl.gz or .parquet file is there"))
        for path, size in files:
            if size > MAX_FILE_OCTETS:
                reason = (
                    f"a file of {size} octets; at most {MAX_FILE_OCTETS} are read from another machine: "
                    "cut it into several"
                )
                rejected.append(RejectedRow(without_user_info(path), None, reason))
            elif path not in found:
                name = without_user_info(path)
                found[path] = LogFile(number + len(found), name, path, size, form_of(b"", path))
    return ExpandedInputs(list(found.values()), rejected, [name for path, name in others.items() if path not in found])


def _files(spark: SparkSession, uri: str, others: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the files that a URI refers to, each with its size; add other files in folders to `others`."""
    java: Any = spark.sparkContext._jvm
    place = java.org.apache.hadoop.fs.Path(uri)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    for status in sorted(system.globStatus(place) or (), key=lambda each: str(each.getPath().toString())):
        if status.isFile():
            yield status.getPath().toString(), status.getLen()
            continue
        folder = status.getPath().toString()
        inside, below = system.listFiles(status.getPath(), True), []
        while inside.hasNext():
            each = inside.next()
            path = each.getPath().toString()
            if path.endswith(SUFFIXES):
                below.append((path, each.getLen()))
            elif not is_hidden(path.removeprefix(folder).split("/")):
                others[path] = each.getPath().getName()
        yield from sorted(below)


def contents(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return the path and the octets of each file."""
    names = [GLOB.sub(r"\\\1", path) for path in paths]
    return spark.read.format("binaryFile").load(names).select("path", "content")


def split_of(log: LogFile, octets: bytes) -> Split | RejectedRow:
    """Return a whole file, whose octets were fetched, as a part to be read."""
    seen = opened(io.BytesIO(octets), log.number, log.name, log.path)
    return seen if isinstance(seen, RejectedRow) else whole(seen)
