"""Capture logs for the tests of replay, and a look into what replay wrote."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import DATA

from brokers.message import Destination, DestinationKind, Message, MessageType, properties, queue
from soapjms.protocol.envelope import build_fault, serialize
from soapjms.protocol.names import Profile, SoapVersion, Subcode
from soapjms.protocol.record import Direction, Node, Record, capture, to_json
from soapjms.replay import replay
from soapjms.replay.parquet import RECORDS, to_row

CXF = DATA / "cxf-exchanges.jsonl"
BUCKETS = {"spark.sql.shuffle.partitions": "2"}
"""Settings of Spark: more tasks than such small logs would have."""
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ENVELOPE = (
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><greet xmlns="urn:greeter">{}</greet>'
    "</s:Body></s:Envelope>"
)
REPLIES = Destination(DestinationKind.TEMPORARY_QUEUE, "ID:client:1")
TO_SERVICE = {
    "SOAPJMS_requestURI": "jms:queue:greeter",
    "SOAPJMS_bindingVersion": "1.0",
    "SOAPJMS_contentType": "text/xml; charset=utf-8",
    "SOAPJMS_soapAction": '"urn:greet"',
}
TO_CLIENT = {
    "SOAPJMS_requestURI": "jms:queue:greeter",
    "SOAPJMS_bindingVersion": "1.0",
    "SOAPJMS_contentType": "text/xml; charset=utf-8",
    "SOAPJMS_isFault": False,
}


def at(seconds: float) -> datetime:
    """Return a time in the test's day."""
    return START + timedelta(seconds=seconds)


def request(number: int, **changes: Any) -> Message:
    """Make one request of a client; its ids are its number's."""
    values: dict[str, Any] = {
        "message_type": MessageType.BYTES,
        "body": ENVELOPE.format(number).encode(),
        "properties": properties(TO_SERVICE),
        "destination": queue("greeter"),
        "message_id": f"ID:client-{number}",
        "correlation_id": f"call-{number}",
        "reply_to": REPLIES,
        "delivery_mode": 2,
        "priority": 4,
        "expiration": 0,
        "timestamp": 1795176000000 + number,
    }
    return Message(**{**values, **changes})


def response(number: int, **changes: Any) -> Message:
    """Make the response to a request."""
    values: dict[str, Any] = {
        "body": ENVELOPE.format(f"answer {number}").encode(),
        "properties": properties(TO_CLIENT),
        "destination": REPLIES,
        "message_id": f"ID:service-{number}",
        "reply_to": None,
    }
    return request(number, **{**values, **changes})


def fault(number: int, profile: Profile, version: SoapVersion = SoapVersion.SOAP_11, **changes: Any) -> Record:
    """Capture the response to a request without contentType, in the shape of an edition."""
    body = serialize(build_fault(version, "no", profile=profile, subcode=Subcode.MISSING_CONTENT_TYPE))
    own = {"SOAPJMS_contentType": version.media_type, "SOAPJMS_isFault": True, **changes.pop("more", {})}
    values = {"body": body, "properties": properties({**TO_CLIENT, **own}), **changes}
    return capture(response(number, **values), at(number + 0.5))


def write_log(path: Path, *records: Record) -> Path:
    """Write records as a log."""
    path.write_text("".join(to_json(record) + "\n" for record in records), "utf-8")
    return path


def three_observers() -> list[Record]:
    """Return six calls as the client, the service and a tap saw them over STOMP, out of order.

    Call 1 was seen by all, 2 redelivered, 3 never answered, 4 by the service only and without direction, 5 answered by
    its message id, and of 6 there is the response only; with them goes a one-way message without direction.
    """
    sent = {"message_id": None, "untyped": True}  # what a STOMP sender does not know
    seen = {"untyped": True}
    tap, client, service = Node.TAP, Node.REQUESTING, Node.RESPONDING
    asks, answers = Direction.REQUEST, Direction.RESPONSE
    first = [
        capture(request(1, **sent), at(1.0), asks, client),
        capture(request(1, **seen), at(1.1), asks, service),
        capture(request(1), at(1.05), asks, tap),
        capture(response(1, **sent), at(1.2), answers, service),
        capture(response(1, **seen), at(1.3), answers, client),
        capture(response(1), at(1.25), answers, tap),
    ]
    second = [
        capture(request(2), at(2.0), asks, tap),
        capture(request(2, redelivered=True), at(2.5), asks, service),
        capture(response(2), at(2.6), answers, tap),
    ]
    others = [
        capture(request(3), at(3.0), asks, tap),
        capture(request(4), at(4.0), node=service),
        capture(response(4), at(4.1), node=service),
        capture(request(5), at(5.0), asks, tap),
        capture(response(5, correlation_id="ID:client-5"), at(5.1), answers, tap),
        capture(response(6), at(6.0), answers, tap),
        capture(request(7, correlation_id=None, reply_to=None), at(7.0), node=tap),
    ]
    return [*others, *reversed(first), *second]


def bad_logs(folder: Path) -> list[Path]:
    """Write logs with everything that can be wrong with one; return them as arguments, one of which is not there."""
    good = to_json(capture(request(1), at(1), Direction.REQUEST))
    members = json.loads(good)
    bad = folder / "bad.jsonl"
    lines = [
        good.encode(),
        b"this is not JSON",
        json.dumps({**members, "v": 2}).encode(),
        json.dumps({**members, "body": "%%%"}).encode(),
        b"",
        json.dumps({**members, "jms": {**members["jms"], "type": "\ud83d"}}).encode(),
        b'{"v":1,"note":"\xff\xfe"}',
        to_json(capture(response(1), at(1.1), Direction.RESPONSE)).encode(),
    ]
    bad.write_bytes(b"\n".join(lines) + b"\n")
    whole = "".join(to_json(capture(request(n), at(n), Direction.REQUEST)) + "\n" for n in range(10, 60)).encode()
    broken = folder / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(whole)[:-40])
    damaged = folder / "damaged.jsonl.gz"
    octets = bytearray(gzip.compress(whole, 1))
    octets[len(octets) // 2 :] = bytes(each ^ 0x5A for each in octets[len(octets) // 2 :])
    damaged.write_bytes(octets)
    return [bad, broken, damaged, folder / "missing.jsonl"]


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of verdicts/ or rejected/, sorted."""
    found: list[dict[str, Any]] = pq.read_table(out / name).to_pylist()
    return sorted(found, key=repr)


def summary(out: Path) -> dict[str, Any]:
    """Return what summary.json holds."""
    members: dict[str, Any] = json.loads((out / "summary.json").read_text("utf-8"))
    return members


OWN = ("late", "watermark")
"""What the summary of a run that follows has beside that of a replay."""


def assert_equal(one: Path, other: Path) -> None:
    """Assert that two runs had the same results."""
    for name in ("verdicts", "rejected"):
        assert rows(one, name) == rows(other, name)
    assert (one / "summary.json").read_bytes() == (other / "summary.json").read_bytes()


def assert_same_reports(one: Path, other: Path) -> None:
    """Assert that two runs had the same results, and show them alike."""
    assert_equal(one, other)
    for name in ("report.json", "junit.xml"):
        assert without_origin(one / name) == without_origin(other / name)


def without_origin(path: Path) -> str:
    """Read a file of results without the time at which it was made."""
    return re.sub(r'"origin":\{.*?\},|<p id="origin">.*?</p>', "", path.read_text("utf-8"))


def assert_same_results(folder: Path, logs: Path | list[Path], profile: str = "rec-2012", **options: Any) -> None:
    """Assert that all that a replay writes is the same if each exchange is judged by itself."""
    for engine in ("exact", "local"):
        replay(logs, folder / engine, profile, engine, **options)
    assert_same_reports(folder / "exact", folder / "local")


def assert_same(out: Path, batch: Path) -> None:
    """Assert that a run that followed ended as a replay did."""
    for name in ("verdicts", "rejected"):
        assert rows(out, name) == rows(batch, name)
        assert pq.read_table(out / name).schema.equals(pq.read_table(batch / name).schema)
    found = {name: value for name, value in summary(out).items() if name not in OWN}
    assert found == summary(batch)
    assert (out / "report.html").exists()
    assert (out / "junit.xml").read_bytes() == (batch / "junit.xml").read_bytes()


def torn_log(folder: Path) -> Path:
    """Write a log of members of 20 records each, of which each third is torn."""
    path = folder / "log.jsonl.gz"
    for number in range(9):
        lines = [to_json(capture(request(n), at(n), Direction.REQUEST)) for n in range(20 * number, 20 * number + 20)]
        member = gzip.compress("\n".join([*lines, ""]).encode(), 3)
        with path.open("ab") as file:
            file.write(member if number % 3 else member[: -len(member) // 3])
    return path


def write_parquet(path: Path, records: list[Record], group: int = 1000) -> Path:
    """Write records as Parquet."""
    pq.write_table(pa.Table.from_pylist([to_row(each) for each in records], RECORDS), path, row_group_size=group)
    return path


# A process of its own


@contextmanager
def child(*command: str, cwd: Path | None = None, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a session of its own; nothing of it is left after the block."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHONPATH"))}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=known | environment, cwd=cwd, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def disk_watched(patched: pytest.MonkeyPatch) -> Callable[[Path], bool]:
    """Note what this process has written to disk from now on; return what says whether a path is there as it is now."""
    written: dict[int, int] = {}

    def noted(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
        sync(descriptor)
        written[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_mtime_ns

    patched.setattr(os, "fsync", noted)
    return lambda path: written.get(path.stat().st_ino) == path.stat().st_mtime_ns
