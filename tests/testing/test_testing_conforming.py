"""`assert_conforms`: what it judges, what it lets pass, and what it says."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling_kit import PATIENCE, URI, Peers, envelope, request_message
from places import DATA as DATA_FOLDER

import soapjms
from brokers import Connection, Message, queue
from soapjms import Client, Dispatcher, Recorder
from soapjms.protocol.record import Direction
from soapjms.testing import ConformanceError, Traffic, assert_conforms

DATA = DATA_FOLDER


def bad() -> Message:
    """Make a request that breaks a rule, another one each time."""
    return request_message("greeter", queue("replies"), properties={"SOAPJMS_bindingVersion": "7"})


class TestConforms(Peers):
    """On the embedded broker."""

    @pytest.fixture
    def traffic(self, tmp_path: Path) -> Iterator[Traffic]:
        with Traffic(tmp_path / "log.jsonl") as traffic:
            yield traffic

    @pytest.mark.parametrize("profile", ["cr-2009", "rec-2012"])
    def test_ours(self, connection: Connection, served: Dispatcher, traffic: Traffic, profile: str) -> None:
        """What a client of ours sends and gets breaks nothing, also no SHOULD."""
        edition = soapjms.CR_2009 if profile == "cr-2009" else soapjms.REC_2012
        with Client(connection, URI, recorder=traffic, profile=profile) as client:
            if profile == "rec-2012":
                client.call(envelope(), timeout=PATIENCE)
            client.send(envelope(operation="pingMe"))
        assert_conforms(traffic, profile, strict=True)
        assert_conforms(traffic.path, edition)
        assert_conforms(str(traffic.path), profile=edition)
        assert_conforms(traffic.records(), profile)

    def test_broken(self, traffic: Traffic) -> None:
        """A rule that is broken is named, with what it says, why, and the message; not all of many messages."""
        for _ in range(5):
            traffic.record(bad(), Direction.REQUEST)
        with pytest.raises(ConformanceError) as caught:
            assert_conforms(traffic)
        told = str(caught.value)
        assert told.startswith("1 rule is broken, judged by rec-2012 (allow=[…] lets them pass):\nProtocol-2010 (")
        assert told.count(", in this request:\n    bytes message to queue:greeter\n") == 3
        assert "    SOAPJMS_bindingVersion = 7\n" in told
        assert "World</greetMe>" in told
        assert told.endswith("\n  and in more messages: 2")

    def test_allow(self, traffic: Traffic) -> None:
        """What is allowed is let pass, also if it is the only one; the rest is not."""
        traffic.record(bad(), Direction.REQUEST)
        assert_conforms(traffic, allow="Protocol-2010")
        assert_conforms(traffic, allow=["Protocol-2010", "Protocol-2015"])
        with pytest.raises(ConformanceError):
            assert_conforms(traffic, allow=["Protocol-2015"])

    def test_allow_what_there_is_not(self, traffic: Traffic) -> None:
        """An id that the profile does not have is a mistake of the test's."""
        with pytest.raises(soapjms.UsageError, match=r"allow must be ids of assertions of rec-2012, got Protocol-9999"):
            assert_conforms(traffic, allow=["Protocol-2010", "Protocol-9999"])

    def test_nothing(self, traffic: Traffic) -> None:
        """A capture without a message shows nothing, which is a failure."""
        with pytest.raises(ConformanceError, match="nothing was captured"):
            assert_conforms(traffic)

    def test_not_recorded(self, traffic: Traffic, client: Client, served: Dispatcher) -> None:
        """What could not be recorded cannot be judged."""
        traffic.record(bad(), Direction.REQUEST)
        traffic.close()
        traffic.record(bad(), Direction.REQUEST)
        with pytest.raises(ConformanceError, match=r"messages that could not be recorded in .*: 1;"):
            assert_conforms(traffic)

    def test_another_recorder(self, tmp_path: Path) -> None:
        """Any recorder will do."""
        with Recorder(tmp_path / "log.jsonl") as recorder:
            recorder.record(bad(), Direction.REQUEST)
            with pytest.raises(ConformanceError):
                assert_conforms(recorder)
            assert_conforms(recorder, allow="Protocol-2010")


def test_a_peer_with_its_dialect(tmp_path: Path) -> None:
    """Real traffic of CXF keeps the rules but for one that its sender broke on purpose; a log may be compressed."""
    packed = tmp_path / "cxf.jsonl.gz"
    with (DATA / "cxf-exchanges.jsonl").open("rb") as plain, gzip.open(packed, "wb") as file:
        shutil.copyfileobj(plain, file)
    assert_conforms(packed, "cxf", allow=["Protocol-2010"])
    with pytest.raises(ConformanceError, match=r"SOAPJMS_bindingVersion is '0\.3', not 1\.0"):
        assert_conforms(DATA / "cxf-exchanges.jsonl", "cxf")


def test_a_folder_of_a_capture(tmp_path: Path) -> None:
    """All its logs are judged together: a response in one file meets its request in another. Other files are left."""
    lines = (DATA / "cxf-exchanges.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "capture-0001.jsonl").write_bytes(b"".join(lines[:1]))
    (tmp_path / "capture-0002.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[1:])))
    (tmp_path / "notes.txt").write_text("no log")
    told = set()
    for captured in (tmp_path, str(tmp_path), DATA / "cxf-exchanges.jsonl"):
        with pytest.raises(ConformanceError) as caught:
            assert_conforms(captured, "cxf", strict=True)
        told.add(str(caught.value))
    assert len(told) == 1
    assert_conforms(tmp_path, "cxf", allow="Protocol-2010")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConformanceError, match="nothing was captured"):
        assert_conforms(tmp_path / "empty")


def test_a_dialect_is_no_failure_but_a_warning() -> None:
    """What a dialect is known to do fails the test only where it is strict."""
    bad = request_message(
        "greeter",
        queue("replies"),
        properties={"SOAPJMS_requestURI": "jms:queue:greeter?targetService=x", "SOAPJMS_targetService": "x"},
    )
    record = soapjms.protocol.record.Record(message=bad, time=soapjms.protocol.record.EPOCH)
    assert_conforms([record], "websphere")
    with pytest.raises(ConformanceError, match="Protocol-2021"):
        assert_conforms([record], "websphere", strict=True)


def test_what_is_no_log(tmp_path: Path) -> None:
    """A line that is no record is named; so are a stream that breaks off, and a profile that is not."""
    log = tmp_path / "log.jsonl"
    log.write_text("\n7\n")
    with pytest.raises(soapjms.InvalidRecordError, match=r"log\.jsonl, line 2: "):
        assert_conforms(log)
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}")[:-9])
    with pytest.raises(soapjms.InvalidRecordError, match=r"log\.jsonl\.gz: "):
        assert_conforms(packed)
    with pytest.raises(FileNotFoundError):
        assert_conforms(tmp_path / "none.jsonl")
    with pytest.raises(soapjms.UsageError, match="got 'rec-2013'"):
        assert_conforms([], "rec-2013")
