"""Logs and results that are not on this machine, for Spark, on any file system that Hadoop supports, such as hdfs://.

Spark lists the files and fetches their octets; they are read like any other log. A task holds one whole file, so the
size of a file is limited: recorders begin another one every 64 MiB. Larger ones of JSON Lines are cut into blocks, each
of which one task holds. Results are built in a hidden folder beside the one that is named, and then renamed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it

from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri.redact import without_user_info
from soapjms.replay.inputs import (
    HEAD_OCTETS,
    ONLY_RESULTS,
    SUFFIXES,
    ExpandedInputs,
    LogFile,
    LogForm,
    RejectedRow,
    Split,
    form_of,
    is_hidden,
    opened,
    whole,
)
from soapjms.replay.marks import FOLDERS, SUMMARY, without_own
from soapjms.replay.output import check_names
from soapjms.replay.records import MAX_LINE_OCTETS
from soapjms.replay.uris import scheme_of, shown

MAX_FILE_OCTETS: Final = 512 << 20
"""Maximum size of a file that is fetched as a whole, in octets."""
MAX_LINES_OCTETS: Final = 128 << 20
"""Size of a file of JSON Lines, in octets, above which it is read in blocks."""
BLOCK_OCTETS: Final = 32 << 20
"""Size of a block, in octets; a line belongs to the block that it begins in, or at whose end it begins."""
LINE_OF_PARTITION: Final = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of a partition."""
PLAIN: Final = ".jsonl"
"""How names end that Hadoop's readers take for no compressed file."""
NONE_HIDDEN: Final = {"ignoredPathSegmentRegex": ""}
"""Options of a reader that has no hidden files. Older versions of Spark ignore them, but then the files are missed."""
GLOB: Final = re.compile(r"([\\*?\[\]{}])")


def find(spark: SparkSession, uris: Iterable[str], number: int, leave_out: str | None = None) -> ExpandedInputs:
    """Find the files that URIs refer to: files, folders (recursively) and globs.

    Args:
        spark: the session, which has the file systems and their logins.
        uris: the URIs of the user.
        number: number of the first file.
        leave_out: the URI of a folder whose files are not input: the output of this run; None if there is none.
    """
    output = "" if leave_out is None else f"{place_of(spark, leave_out)[1].toString()}/"
    found: dict[str, LogFile] = {}
    rejected: list[RejectedRow] = []
    others: dict[str, str] = {}
    results: dict[str, str] = {}
    for uri in uris:
        before = len(results)
        try:
            files = [
                each for each in _files(spark, uri, others, results) if not (output and each[0].startswith(output))
            ]
        except Py4JJavaError as error:
            rejected.append(RejectedRow(shown(uri), None, f"cannot be opened: {_why(error)}"))
            continue
        if not files:
            why = ONLY_RESULTS if len(results) > before else "no .jsonl, .jsonl.gz or .parquet file is there"
            rejected.append(RejectedRow(shown(uri), None, why))
        for path, size in files:
            name = shown(path)
            log = LogFile(number + len(found), name, path, size, form_of(b"", path))
            try:
                log = log._replace(form=_form_of(spark, path)) if has_blocks(log) else log
            except Py4JJavaError as error:
                rejected.append(RejectedRow(name, None, f"cannot be opened: {_why(error)}"))
                continue
            if size > MAX_FILE_OCTETS and not has_blocks(log):
                reason = (
                    f"{log.form}, of {size} octets; at most {MAX_FILE_OCTETS} are read from another machine by Hadoop: "
                    "cut it into several, or have fsspec open it, with --local or by another scheme, such as s3 for s3a"
                )
                rejected.append(RejectedRow(name, None, reason))
            elif path not in found:
                found[path] = log
    others.update((path, name) for path, name in results.items() if name)
    foreign = [
        name for path, name in others.items() if path not in found and not (output and f"{path}/".startswith(output))
    ]
    if found:  # as on this machine
        rejected = [each for each in rejected if each.reason != ONLY_RESULTS]
    return ExpandedInputs(list(found.values()), rejected, foreign)


def knows(spark: SparkSession, uri: str) -> bool:
    """Say whether Hadoop has a file system for the scheme of a URI."""
    if scheme_of(uri) in ("http", "https"):  # Hadoop takes a query for a part of the path
        return False
    try:
        _java(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme_of(uri), spark.sparkContext._jsc.hadoopConfiguration()
        )
    except Py4JJavaError:
        return False
    return True


def _form_of(spark: SparkSession, path: str) -> LogForm:
    """Return the form of a file by its first octets; those of a file that is fetched as a whole are seen then."""
    system, place = place_of(spark, path)
    stream = system.open(place)
    try:
        return form_of(bytes(stream.readNBytes(HEAD_OCTETS)), path)
    finally:
        stream.close()


def has_blocks(log: LogFile) -> bool:
    """Say whether a file on another machine is read in blocks: Hadoop decompresses files with some other names."""
    return log.form is LogForm.LINES and log.path.endswith(PLAIN) and log.size > MAX_LINES_OCTETS


def number_of_blocks(log: LogFile) -> int:
    """Return how many blocks a file has."""
    return -(-log.size // BLOCK_OCTETS)


def state_of(spark: SparkSession, path: str) -> tuple[int, int] | None:
    """Return the size of a file in octets, and when it was changed, in milliseconds; None if there is none now."""
    system, place = place_of(spark, path)
    try:
        status = system.getFileStatus(place)
    except Py4JJavaError:
        return None
    return status.getLen(), status.getModificationTime()


def uri_of(spark: SparkSession, path: str) -> str:
    """Return the path of a file as Spark writes it in metadata."""
    uri: str = place_of(spark, path)[1].toUri().toString()
    return uri


def _files(spark: SparkSession, uri: str, others: dict[str, str], results: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the files that a URI refers to, each with its size, but for what replays wrote in folders.

    Args:
        spark: the session.
        uri: the URI.
        others: gets the names of other files in folders, by their paths.
        results: gets the names of the folders that replays wrote into, by their paths; empty for hidden ones.
    """
    system, place = place_of(spark, uri)
    is_name = GLOB.search(place.toString()) and system.exists(place)  # as on this machine, a name is no pattern
    matches = [system.getFileStatus(place)] if is_name else system.globStatus(place) or ()
    for status in sorted(matches, key=lambda each: str(each.getPath().toString())):
        if status.getPath().getName().startswith(".") and not place.getName().startswith("."):
            continue  # a wildcard of this machine does not stand for the dot, either
        if status.isFile():
            yield status.getPath().toString(), status.getLen()
            continue
        folder = status.getPath().toString()
        inside, below = system.listFiles(status.getPath(), True), dict[str, int]()
        while inside.hasNext():
            each = inside.next()
            below[each.getPath().toString()] = each.getLen()
        listed = without_own(folder, below, partial(_content, spark))
        for path in listed.results:
            results[path] = "" if is_hidden(path.removeprefix(folder).split("/")) else path.rpartition("/")[2]
        for path in sorted(listed.paths):
            if path.endswith(SUFFIXES):
                yield path, below[path]
            elif not is_hidden(path.removeprefix(folder).split("/")):
                others[path] = path.rpartition("/")[2]


def _content(spark: SparkSession, path: str) -> bytes:
    """Return the octets of a small file.

    Raises:
        OSError: it cannot be read.
    """
    system, place = place_of(spark, path)
    try:
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise OSError(_why(error)) from None


def place_of(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    """Return the file system that a URI is in, and its path there."""
    place = _java(spark).org.apache.hadoop.fs.Path(uri)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return system, system.makeQualified(place)


def _java(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


@contextmanager
def staging(spark: SparkSession, out: str, files: Path) -> Iterator[str]:
    """Yield the URI of a folder to build results in; when the block ends without an error, it takes the place of `out`.

    Args:
        spark: the session, which has the file systems and their logins.
        out: the URI of the folder for the results.
        files: a folder of this machine; what it holds when the block ends is copied to the results.

    Raises:
        UsageError: `out` holds anything but an earlier run's results, or cannot be written.
    """
    try:
        system, place = place_of(spark, out)
        _check_replaceable(spark, out)
        scratch = _beside(spark, place)
        system.setWriteChecksum(False)  # which would lie beside the results in a folder of this machine
        if not system.mkdirs(scratch):
            raise UsageError(f"{shown(out)} cannot be written: no folder can be made beside it")
        # As in a folder of this machine, only their owner can read results, where the file system knows owners.
        system.setPermission(scratch, _java(spark).org.apache.hadoop.fs.permission.FsPermission("700"))
    except Py4JJavaError as error:
        raise UsageError(f"{shown(out)} cannot be written: {_why(error)}") from None
    left = scratch
    try:
        yield scratch.toString()
        for each in sorted(files.iterdir()):
            system.copyFromLocalFile(place_of(spark, each.as_uri())[1], scratch)
        try:
            _check_replaceable(spark, out)  # again, as others may have written there meanwhile
        except UsageError as error:
            left = None
            raise UsageError(f"{error}; all results are in {shown(scratch.toString())}") from None
        _replace(system, scratch, place, _beside(spark, place))
    finally:
        with suppress(Py4JError, OSError):  # Java may have ended, which is reported elsewhere
            system.setWriteChecksum(True)
            if left is not None:
                system.delete(left, True)  # nothing is there if all went well


def _beside(spark: SparkSession, place: Any) -> Any:
    """Return a new hidden path beside one."""
    return _java(spark).org.apache.hadoop.fs.Path(place.getParent(), f".{place.getName()}.{uuid4().hex}")


def _replace(system: Any, scratch: Any, place: Any, former: Any) -> None:
    is_there = system.exists(place)
    if is_there:
        _rename(system, place, former)
    try:
        _rename(system, scratch, place)
    except (UsageError, Py4JJavaError):
        if is_there:
            _rename(system, former, place)
        raise
    system.delete(former, True)


def _rename(system: Any, place: Any, other: Any) -> None:
    if not system.rename(place, other):
        raise UsageError(f"{shown(place.toString())} cannot be renamed to {other.getName()}")


def _check_replaceable(spark: SparkSession, out: str) -> None:
    """Refuse an output folder with files that this program did not make; see `output.check_replaceable`."""
    system, place = place_of(spark, out)
    name = shown(out)
    if place.getParent() is None:
        raise UsageError(f"{name} is no place for results; name a folder in it")
    if not system.exists(place):
        return
    if not system.getFileStatus(place).isDirectory():
        raise UsageError(f"{name} is not a folder; name one that does not exist yet, or an earlier run's")
    listed = [each.getPath() for each in system.listStatus(place)]
    names = [each.getName() for each in listed]
    for folder in (each for each in listed if each.getName() in FOLDERS):
        names += (f"{folder.getName()}/{each.getPath().getName()}" for each in system.listStatus(folder))
    check_names(name, names, lambda: _content(spark, f"{out.rstrip('/')}/{SUMMARY}"))


def _why(error: Py4JJavaError) -> str:
    return without_user_info(str(error.java_exception)[:1000])


def contents(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return the path and the octets of each file."""
    return _loaded(spark, "binaryFile", paths).select("path", "content")


def lines(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return the lines of files, with the URI of the file, and the numbers of the block there and of the line in it.

    Longer lines than `MAX_LINE_OCTETS` are passed over. A block is a partition, and its lines are in order.
    """
    for name in ("maxPartitionBytes", "openCostInBytes"):
        spark.conf.set(f"spark.sql.files.{name}", str(BLOCK_OCTETS))
    spark.conf.unset("spark.sql.files.maxPartitionNum")  # which puts several blocks into a partition
    # Hadoop's reader leaves a line out from this length on, its end included
    options = {"lineSep": "\n", "mapreduce.input.linerecordreader.line.maxlength": str(MAX_LINE_OCTETS + 2)}
    return _loaded(spark, "text", paths, options).select(
        F.col("_metadata.file_path").alias("uri"),
        F.expr(f"_metadata.file_block_start DIV {BLOCK_OCTETS}").alias("block"),
        (F.monotonically_increasing_id().bitwiseAND(LINE_OF_PARTITION) + 1).alias("line"),
        F.col("value").cast("binary").alias("octets"),
    )


def _loaded(
    spark: SparkSession, form: str, paths: Iterable[str], options: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Read these very files by one of Spark's readers, also those that it takes for hidden."""
    return spark.read.format(form).options(**options, **NONE_HIDDEN).load([*map(_escaped, paths)])


def _escaped(path: str) -> str:
    """Return a path that Hadoop does not take for a glob."""
    return GLOB.sub(r"\\\1", path)


def split_of(log: LogFile, octets: bytes) -> Split | RejectedRow:
    """Return a whole file, whose octets were fetched, as a part to be read."""
    seen = opened(io.BytesIO(octets), log.number, log.name, log.path)
    return seen if isinstance(seen, RejectedRow) else whole(seen)
