"""Replay without Spark: which files are read, what is rejected, how it is judged, and what is written."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
from collections import Counter, deque
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA
from replay_logs import CXF, TO_SERVICE, at, bad_logs, request, response, rows, summary, three_observers, write_log

from brokers.message import (
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Property,
    PropertyType,
    properties,
    queue,
)
from soapjms.protocol.assertions import Setting, VerdictOutcome
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.record import Direction, Record, capture, from_json, to_json
from soapjms.protocol.senders import Senders
from soapjms.replay import NoInputError, Summary, replay
from soapjms.replay.follower import follow
from soapjms.replay.inputs import RejectedRow, count_lines, expand, splits, whole
from soapjms.replay.parquet import RECORDS, REJECTED, VERDICTS, from_row, to_row
from soapjms.replay.parties import PartyKey
from soapjms.replay.records import MAX_LINE_OCTETS, CapturedRecord, LineEnds, read, read_columns
from soapjms.replay.report.sentences import party_name
from soapjms.replay.summary import RunTally, summarise
from soapjms.replay.terms import ReplayTerms
from soapjms.wsdl import read_wsdl

WSDLS = DATA / "wsdl"


def run(logs: Any, out: Path, profile: str = "rec-2012", **options: Any) -> Summary:
    """Replay without Spark."""
    return replay(logs, out, profile, "local", **options)


# The traffic of another stack


def findings(out: Path, *verdicts: str) -> dict[str, list[int]]:
    """Return the record numbers of the CXF log by assertion, of the given verdicts."""
    numbers = {
        json.loads(line)["jms"]["message_id"]: number
        for number, line in enumerate(CXF.read_text("utf-8").splitlines(), 1)
    }
    found: dict[str, list[int]] = {}
    for row in rows(out, "verdicts"):
        if row["verdict"] in verdicts:
            found.setdefault(row["assertion"], []).append(numbers[row["message_id"]])
    return {name: sorted(each) for name, each in found.items()}


def test_cxf_breaks_one_must_of_the_recommendation(tmp_path: Path) -> None:
    """Under rec-2012 only record 18 (bindingVersion 0.3) fails, and record 19 answers it with the right fault."""
    result = run(CXF, tmp_path / "out")
    assert findings(tmp_path / "out", "failed") == {"Protocol-2010": [18]}
    assert result.exit_status == 1
    row = next(each for each in rows(tmp_path / "out", "verdicts") if each["assertion"] == "Protocol-2010")
    assert row["expected_subcodes"] == ["unrecognizedBindingVersion"]
    assert row["destination"] == "queue:CXF.CAPTURE"
    members = summary(tmp_path / "out")
    assert members["subcodes"]["unrecognizedBindingVersion"] == {"expected": 1, "observed": 1}
    assert members["reactions"] == {"agree": 12, "disagree": 0, "unanswered": 0}


def test_cxf_breaks_more_of_the_candidate_recommendation(tmp_path: Path) -> None:
    """Under cr-2009 the correlation ids, the gzip body and the shape of the fault are wrong too."""
    run(CXF, tmp_path / "out", "cr-2009")
    failed = findings(tmp_path / "out", "failed")
    assert failed.pop("Protocol-2038") == [2, 4, 6, 8, 10, 14, 17, 19, 21, 23, 26]
    assert failed.pop("Protocol-2030") == [9]
    assert failed.pop("Protocol-2010") == [18]
    assert list(failed.values()) == [[19]]  # the shape of the fault


@pytest.mark.parametrize("profile", ["rec-2012", "cr-2009"])
def test_quotes_around_soap_action_are_a_note(tmp_path: Path, profile: str) -> None:
    """A habit that breaks nothing fails nothing; it is counted under notes."""
    run(CXF, tmp_path / "out", profile)
    notes = summary(tmp_path / "out")["notes"]
    quoted = [note for note in notes.values() if "quote" in note["text"]]
    assert [note["count"] for note in quoted] == [19]


def test_the_stack_that_peers_look_of_is_named(tmp_path: Path) -> None:
    """By destination of the service and node that sent, in the summary and in the report; a guess, and none is none."""
    ours = [capture(request(1), at(1), Direction.REQUEST), capture(response(1), at(2), Direction.RESPONSE)]
    run([CXF, write_log(tmp_path / "log.jsonl", *ours)], tmp_path / "out")
    assert {(each["destination"], each["node"]): (each["messages"], each["stacks"]) for each in stacks(tmp_path)} == {
        ("queue:CXF.CAPTURE", "requesting"): (9, {"cxf": 9}),
        ("queue:CXF.CAPTURE", "responding"): (9, {"cxf": 9}),
        ("queue:CXF.CAPTURE", "sending"): (1, {"cxf": 1}),
        ("queue:CXF.CAPTURE.12", "requesting"): (3, {"cxf": 3}),
        ("queue:CXF.CAPTURE.12", "responding"): (3, {"cxf": 3}),
        ("queue:CXF.CAPTURE.12", "sending"): (1, {"cxf": 1}),
        ("queue:greeter", "requesting"): (1, {}),
        ("queue:greeter", "responding"): (1, {}),
    }
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    section = report.partition('id="places"')[2].partition("</section>")[0]
    assert '<div>Apache CXF <span class="soft">requesting 9, responding 9, sending 1</span></div>' in section
    assert "queue:greeter" in section
    assert re.search(r'<tr data-stack="cxf"><td>Apache CXF</td>\s*<td class="n " data-v="26">26</td>', report)


def test_replies_alone_are_counted_by_kind_of_destination(tmp_path: Path) -> None:
    """Temporary destinations are as many as clients; where the request is not known they make one row."""
    answers = [
        response(n, destination=Destination(DestinationKind.TEMPORARY_QUEUE, f"ID:client-{n}:1")) for n in range(3)
    ]
    nowhere = request(9, destination=None, reply_to=None)
    records = [capture(each, at(1), Direction.RESPONSE) for each in answers] + [
        capture(nowhere, at(1), Direction.ONE_WAY)
    ]
    run(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out")
    assert [(each["destination"], each["node"], each["messages"]) for each in stacks(tmp_path)] == [
        ("", "sending", 1),
        ("temporary-queue", "responding", 3),
    ]


def stacks(folder: Path) -> list[dict[str, Any]]:
    """Return what the summary says of stacks."""
    found: list[dict[str, Any]] = summary(folder / "out")["stacks"]
    return found


def test_counts_of_a_log(tmp_path: Path) -> None:
    """Every message is in an exchange, one-way, or unpaired."""
    run(CXF, tmp_path / "out")
    members = summary(tmp_path / "out")
    assert members["profile"] == "rec-2012"
    assert "reconstructed" in members["profileNote"]
    assert [members[name] for name in ("records", "messages", "copies", "exchanges", "one_way", "rejected")] == [
        26,
        26,
        0,
        12,
        2,
        0,
    ]
    assert members["unpaired"] == {"missingResponses": 0, "responsesWithoutRequest": 0}
    assert members["notObservable"]
    assert members["assertions"]["Protocol-2010"]["passed"] == 25


# Pairing


def test_copies_of_three_observers_make_the_right_exchanges(tmp_path: Path) -> None:
    """Client, service and tap saw the same calls: each message counts once, whatever each of them did not know."""
    log = write_log(tmp_path / "log.jsonl", *three_observers())
    run(log, tmp_path / "out")
    members = summary(tmp_path / "out")
    assert members["records"] == 16
    assert members["messages"] == 11
    assert members["copies"] == 5
    assert members["exchanges"] == 4  # calls 1, 2, 4 and 5
    assert members["unpaired"] == {"missingResponses": 1, "responsesWithoutRequest": 1}
    assert members["one_way"] == 1


def test_a_response_by_message_id_meets_its_request_in_another_file(tmp_path: Path) -> None:
    """The alias of a request is known wherever and whenever it comes; which id matched is for Protocol-2038."""
    write_log(tmp_path / "a.jsonl", capture(response(1, correlation_id="ID:client-1"), at(2), Direction.RESPONSE))
    write_log(tmp_path / "b.jsonl", capture(request(1), at(1), Direction.REQUEST))
    run(tmp_path, tmp_path / "out")
    assert summary(tmp_path / "out")["exchanges"] == 1
    assert summary(tmp_path / "out")["assertions"]["Protocol-2038"]["failed"] == 1
    run(tmp_path, tmp_path / "out", "cr-2009")
    assert summary(tmp_path / "out")["assertions"]["Protocol-2038"]["passed"] == 1


def test_beyond_the_window_a_response_is_not_the_answer(tmp_path: Path) -> None:
    """A response that comes later than the window leaves both sides unpaired."""
    records = capture(request(1), at(0), Direction.REQUEST), capture(response(1), at(60), Direction.RESPONSE)
    log = write_log(tmp_path / "log.jsonl", *records)
    run(log, tmp_path / "out", window=timedelta(seconds=59))
    assert summary(tmp_path / "out")["unpaired"] == {"missingResponses": 1, "responsesWithoutRequest": 1}
    run(log, tmp_path / "out", window=timedelta(seconds=60))
    assert summary(tmp_path / "out")["exchanges"] == 1


def test_late_copies_are_no_messages(tmp_path: Path) -> None:
    """A message captured again after its exchange was given out is a copy: records, messages and copies add up."""
    asked, answered = request(1), response(1)
    records = [
        capture(asked, at(0), Direction.REQUEST),
        capture(answered, at(1), Direction.RESPONSE),
        capture(asked, at(900), Direction.REQUEST),
        capture(answered, at(901), Direction.RESPONSE),
        capture(request(2), at(0), Direction.REQUEST),
        capture(request(2, redelivered=True), at(900), Direction.REQUEST),
        capture(response(2), at(901), Direction.RESPONSE),
    ]
    run(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out")
    found = summary(tmp_path / "out")
    counted = {name: found[name] for name in ("records", "messages", "copies", "lateCopies", "exchanges", "one_way")}
    assert counted == {"records": 7, "messages": 4, "copies": 3, "lateCopies": 2, "exchanges": 2, "one_way": 0}
    assert found["unpaired"] == {"missingResponses": 0, "responsesWithoutRequest": 0}


def test_a_response_that_went_astray_is_noted(tmp_path: Path) -> None:
    """It is not paired, and the summary says why."""
    records = capture(request(1), at(0)), capture(response(1, destination=queue("elsewhere")), at(1))
    run(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out")
    found = summary(tmp_path / "out")
    assert found["unpaired"] == {"missingResponses": 1, "responsesWithoutRequest": 1}
    assert found["notes"]["misdirectedResponse"]["count"] == 1
    assert "another destination than its JMSReplyTo" in (tmp_path / "out" / "report.html").read_text("utf-8")


# What the senders were given


def test_what_senders_were_given_is_held_against_what_went_to_their_address(tmp_path: Path) -> None:
    """Precedence is judged of the messages to a known address; each address has its own properties."""
    sent = {
        1: request(1, priority=7),
        2: request(2, priority=4),  # not what it was given
        3: request(3, destination=queue("orders"), priority=2, properties=properties({**TO_SERVICE, **ORDERS})),
        4: request(4, destination=queue("other"), properties=properties({**TO_SERVICE, **OTHER})),
    }
    log = write_log(tmp_path / "log.jsonl", *(capture(each, at(n), Direction.REQUEST) for n, each in sent.items()))
    run(log, tmp_path / "plain")
    assert "no WSDL was given" in summary(tmp_path / "plain")["notObservable"]["WSDLUsage-3001"]
    assert summary(tmp_path / "plain")["senders"] == []
    senders = ["jms:queue:greeter?priority=7", "jms:queue:orders?priority=2&timeToLive=5", "jms:jndi:Nobody"]
    run(log, tmp_path / "out", senders=senders)
    members = summary(tmp_path / "out")
    assert [(each["address"], each["source"], each["messages"]) for each in members["senders"]] == [
        ("jms:queue:greeter", "URI", 2),
        ("jms:queue:orders", "URI", 1),
        ("jms:jndi:Nobody", "URI", 0),
    ]
    assert not [why for why in members["notObservable"].values() if "no WSDL" in why or "are not known" in why]
    failed = {
        row["message_id"]: row["reason"] for row in rows(tmp_path / "out", "verdicts") if row["verdict"] == "failed"
    }
    assert set(failed) == {"ID:client-2", "ID:client-3"}
    assert "priority" in failed["ID:client-2"]
    assert members["assertions"]["Protocol-2007"]["failed"] == 1
    assert members["assertions"]["Protocol-2006"]["failed"] == 1  # no expiration although timeToLive is 5
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "jms:queue:orders" in report.partition('id="senders"')[2].partition("</section>")[0]


ORDERS = {"SOAPJMS_requestURI": "jms:queue:orders"}
OTHER = {"SOAPJMS_requestURI": "jms:queue:other"}


def test_a_wsdl_and_what_the_program_sets_decide_precedence(tmp_path: Path) -> None:
    """All four rules on which source counts are judged: environment, URI, port over binding, and that markup counts."""
    port = read_wsdl(WSDLS / "echo-soap11-properties.wsdl").port("PortOverBinding")
    uri = {"SOAPJMS_requestURI": "jms:queue:CXF.PROPS"}
    values: dict[str, Any] = {
        "destination": queue("CXF.PROPS"),
        "properties": properties({**TO_SERVICE, **uri}),
        "delivery_mode": 2,
    }
    values["reply_to"] = queue("CXF.PROPS.REPLY.BINDING")
    good = request(1, **values, priority=9, expiration=1795176000000 + 1 + 7200000)
    bad = request(2, **{**values, "delivery_mode": 1}, priority=3, expiration=0)
    log = write_log(tmp_path / "log.jsonl", *(capture(each, at(1), Direction.REQUEST) for each in (good, bad)))
    run(log, tmp_path / "out", senders=port, properties={"priority": 9})
    counts = summary(tmp_path / "out")["assertions"]
    for name in ("Protocol-2001", "WSDLUsage-3001", "WSDLUsage-3002"):
        assert (counts[name]["passed"], counts[name]["failed"]) == (1, 1), name
    other = read_wsdl(WSDLS / "echo-soap11-properties.wsdl").port("UriOverBinding")
    run(log, tmp_path / "out", "cr-2009", senders=other)
    assert summary(tmp_path / "out")["assertions"]["WSDLUsage-3003"]["failed"] == 2


# Bad input


def test_what_cannot_be_read_is_kept_with_file_and_line(tmp_path: Path) -> None:
    """Each bad line, the missing file and the breaks in gzip are rejected with place and reason; the rest is judged."""
    bad, broken, damaged, missing = bad_logs(tmp_path)
    result = run([bad, broken, damaged, missing], tmp_path / "out")
    rejected = rows(tmp_path / "out", "rejected")
    said = {(Path(row["file"]).name, row["line"]): row for row in rejected}
    assert [line for name, line in sorted(said, key=repr) if name == "bad.jsonl"] == [2, 3, 4, 6, 7]
    assert "not JSON" in said["bad.jsonl", 2]["reason"]
    assert said["bad.jsonl", 2]["raw"] == "this is not JSON"
    assert "version 2" in said["bad.jsonl", 3]["reason"]
    assert "base64" in said["bad.jsonl", 4]["reason"]
    assert "jms.type holds a lone surrogate" in said["bad.jsonl", 6]["reason"]
    assert "not UTF-8" in said["bad.jsonl", 7]["reason"]
    assert said["bad.jsonl", 7]["raw"] == '{"v":1,"note":"\\xff\\xfe"}'
    assert "cannot be opened" in said["missing.jsonl", None]["reason"]
    assert summary(tmp_path / "out")["rejected"] == len(rejected) == 8
    assert summary(tmp_path / "out")["exchanges"] == 1
    assert result.exit_status == 1
    assert {each.file for each in result.rejects} == {row["file"] for row in rejected}


def test_lines_before_a_break_in_gzip_are_judged(tmp_path: Path) -> None:
    """Nothing that can be inflated is lost, and the line that the stream broke in is the rejected one."""
    _, broken, damaged, _ = bad_logs(tmp_path)
    for log in (broken, damaged):
        logs, *_ = expand([log])
        found = list(read(whole(logs[0])))
        assert isinstance(found[-1], RejectedRow)
        assert found[-1].line == len(found)
        assert len(found) > 5
        assert all(isinstance(each, CapturedRecord) for each in found[:-1])
        assert "gzip" in found[-1].reason
        assert found[-1].raw


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_gzip_tail_of_any_length_is_missed(tmp_path: Path, cut: int) -> None:
    """Also a stream whose lines are all there but whose check sum is not is reported."""
    text = to_json(capture(request(1), at(1))).encode() + b"\n"
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(text)[:-cut])
    run(tmp_path, tmp_path / "out")
    (row,) = rows(tmp_path / "out", "rejected")
    assert "breaks off" in row["reason"]
    assert summary(tmp_path / "out")["records"] == (1 if row["line"] == 2 else 0)


def test_gzip_members_and_padding_are_one_log(tmp_path: Path) -> None:
    """Members follow each other, zeros after the last are padding, anything else there is rejected."""
    parts = [gzip.compress(to_json(capture(request(n), at(n))).encode() + b"\n") for n in (1, 2)]
    (tmp_path / "good.jsonl.gz").write_bytes(b"".join(parts) + bytes(300_000))
    (tmp_path / "tail.jsonl.gz").write_bytes(b"".join(parts) + b"and more")
    run(tmp_path / "good.jsonl.gz", tmp_path / "out")
    assert summary(tmp_path / "out")["records"] == 2
    assert summary(tmp_path / "out")["rejected"] == 0
    run(tmp_path / "tail.jsonl.gz", tmp_path / "out")
    (row,) = rows(tmp_path / "out", "rejected")
    assert (row["line"], "damaged" in row["reason"]) == (3, True)
    assert "the 7 octets that follow are not read" in row["reason"]


def test_a_log_may_have_no_record_but_an_empty_gzip_file_is_broken(tmp_path: Path) -> None:
    """Such a log holds nothing that fails, and nothing that passes; of nothing no gzip stream is made."""
    (tmp_path / "log.jsonl").write_bytes(b"\n")
    assert run(tmp_path, tmp_path / "out").exit_status == 0
    assert summary(tmp_path / "out")["verdict"] == "nothingToJudge"
    assert "<h1><bdi>Nothing to judge</bdi></h1>" in (tmp_path / "out" / "report.html").read_text("utf-8")
    (tmp_path / "log.jsonl.gz").touch()
    assert run(tmp_path, tmp_path / "out").exit_status == 1


def test_a_byte_order_mark_at_the_start_of_a_log_is_read_over_and_named(tmp_path: Path) -> None:
    """In plain and in gzipped files; within a file it is no part of JSON."""
    line = to_json(capture(request(1), at(1))).encode() + b"\n"
    (tmp_path / "plain.jsonl").write_bytes(b"\xef\xbb\xbf" + line)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + line * 500, 1))
    (tmp_path / "only.jsonl").write_bytes(b"\xef\xbb\xbf")
    run(tmp_path, tmp_path / "out")
    members = summary(tmp_path / "out")
    assert (members["records"], members["rejected"], members["notes"]["byteOrderMark"]["count"]) == (501, 0, 3)
    (tmp_path / "plain.jsonl").write_bytes(line + b"\xef\xbb\xbf" + line)
    run(tmp_path / "plain.jsonl", tmp_path / "out")
    members = summary(tmp_path / "out")
    assert (members["records"], members["rejected"], "byteOrderMark" in members["notes"]) == (1, 1, False)


def test_a_body_that_is_not_what_was_captured_is_rejected(tmp_path: Path) -> None:
    """The digest of its record says so; the reason names both."""
    members = json.loads(to_json(capture(request(1), at(1))))
    (tmp_path / "log.jsonl").write_text(json.dumps({**members, "sha256": "0" * 64}) + "\n")
    assert run(tmp_path / "log.jsonl", tmp_path / "out").exit_status == 1
    (row,) = rows(tmp_path / "out", "rejected")
    assert row["reason"].startswith(f"member sha256 is '{'0' * 64}', and the body has the SHA-256 {members['sha256']}")


def test_a_line_beyond_the_limit_is_rejected_and_the_next_is_read(tmp_path: Path) -> None:
    """A line too long for a record is not held in memory as a whole; its beginning is kept."""
    log = tmp_path / "log.jsonl"
    with log.open("wb") as stream:
        stream.write(b'"')
        stream.seek(MAX_LINE_OCTETS + 5)
        stream.write(b'"\n' + to_json(capture(request(1), at(1))).encode())
    run(log, tmp_path / "out")
    (row,) = rows(tmp_path / "out", "rejected")
    assert row["line"] == 1
    assert f"{MAX_LINE_OCTETS + 7} octets" in row["reason"]
    assert len(row["raw"]) < 100_000
    assert summary(tmp_path / "out")["records"] == 1


def test_without_any_input_nothing_is_written(tmp_path: Path) -> None:
    """Where no log can be opened that is an error that says why, log by log."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoInputError, match=r"missing\.jsonl.*No such file.*holds no \.jsonl.*no file matches"):
        run([tmp_path / "missing.jsonl", tmp_path / "empty", tmp_path / "*.jsonl"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Which files


def test_folders_and_globs_are_expanded_once(tmp_path: Path) -> None:
    """A folder gives its logs, recursively; foreign files in it are left alone; a file meant twice is read once."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("b.jsonl", "deep/a.jsonl.gz", "notes.txt", "[x].jsonl"):
        (tmp_path / "in" / name).write_bytes(b"")
    logs, rejected, _ = expand([tmp_path / "in" / "b.jsonl", tmp_path / "in", tmp_path / "in" / "*.jsonl"])
    assert [Path(log.name).name for log in logs] == ["b.jsonl", "[x].jsonl", "a.jsonl.gz"]
    assert [log.gzipped for log in logs] == [False, False, True]
    assert rejected == []
    logs, *_ = expand([tmp_path / "in" / "[x].jsonl"])
    assert len(logs) == 1


def test_a_folder_that_cannot_be_listed_is_rejected(too_deep: Path, tmp_path: Path) -> None:
    """Nobody knows which logs are in it; those beside it are judged."""
    write_log(too_deep / "a.jsonl", capture(request(1), at(1)))
    done = run(too_deep, tmp_path / "out")
    assert (done.members["messages"], done.members["rejected"]) == (1, 1)
    (refused,) = done.rejects
    assert refused.file.startswith(str(too_deep / "ddd"))
    assert refused.reason == "the folder cannot be listed: File name too long"


def test_a_file_that_can_only_be_waited_for_is_rejected(tmp_path: Path) -> None:
    """A pipe is not opened."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    logs, rejected, _ = expand([tmp_path / "pipe.jsonl"])
    assert logs == []
    assert "no regular file" in rejected[0].reason


def test_a_name_that_is_not_utf8_is_shown_with_escapes(tmp_path: Path) -> None:
    """Such a log is read, and its rejected lines name it."""
    (tmp_path / os.fsdecode(b"log\xff.jsonl")).write_bytes(b'{"v" nonsense\n')
    run(tmp_path, tmp_path / "out")
    assert rows(tmp_path / "out", "rejected")[0]["file"].endswith("log\\xff.jsonl")


def test_results_in_the_folder_of_the_logs_are_no_input(tmp_path: Path) -> None:
    """The output folder is left out of its parent's logs."""
    write_log(tmp_path / "log.jsonl", capture(request(1), at(1)))
    (tmp_path / "out").mkdir()
    logs, *_ = expand([tmp_path], leave_out=tmp_path / "out")
    write_log(tmp_path / "out" / "old.jsonl", capture(request(2), at(1)))
    assert expand([tmp_path], leave_out=tmp_path / "out")[0] == logs


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 50, 1000])
def test_parts_of_a_log_give_each_line_once_with_its_number(tmp_path: Path, size: int) -> None:
    """However a file is cut, the parts together give its lines, and count them from the file's first."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"v" one\n\n\nfour is a longer line\nfive\r\nsix\n\nlast')
    logs, *_ = expand([log])
    at_once = list(read(whole(logs[0])))
    found, number = [], 1
    for part in splits(logs, size):
        found += list(read(part._replace(first_line=number)))
        ends = LineEnds()
        deque(read_columns(part, ends=ends), 0)
        if part.end is not None:
            assert ends.number == count_lines(part, was_read=True)
            number += ends.number
    assert found == at_once
    assert [each.line for each in at_once] == [1, 4, 5, 6, 8]


def test_lines_after_a_part_that_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a part with too many lines that are no records is not read, but counted."""
    (log := tmp_path / "log.jsonl").write_bytes(b"x\n" * 50 + CXF.read_bytes() + b"last\n")
    monkeypatch.setattr("soapjms.replay.records.SPARE_LINES", 3)
    monkeypatch.setattr("soapjms.replay.records.OCTETS_OF_LINE", 1 << 20)
    monkeypatch.setattr("soapjms.replay.local.split_size", lambda logs, cores: 100)
    replay(log, tmp_path / "out", engine="local")
    number = 51 + CXF.read_bytes().count(b"\n")
    refused = [(each["line"], each["raw"]) for each in rows(tmp_path / "out", "rejected")]
    assert sorted(refused) == [(1, "x"), (2, "x"), (3, "x"), (4, None), (number, "last")]


# Rows


def records() -> list[Record]:
    """Return records with everything a record may have."""
    values = {"text": "ü€😀", "flag": True, "number": 7, "big": 1 << 40, "fraction": 0.1, "none": None}
    typed = (
        Property("byte", PropertyType.BYTE, 1),
        Property("single", PropertyType.FLOAT, float("inf")),
        Property("double", PropertyType.DOUBLE, float("-inf")),
        Property("word", PropertyType.STRING, "Infinity"),
    )
    several = [
        capture(request(1, properties=properties(values).merged(typed), redelivered=True, type="t"), at(1)),
        capture(Message(message_type=MessageType.TEXT, body="ü\0"), at(2), Direction.ONE_WAY),
        capture(Message(message_type=MessageType.TEXT), at(3)),
        capture(Message(message_type=MessageType.MAP, body=properties(values)), at(4)),
        capture(Message(message_type=MessageType.STREAM, body=(Element(PropertyType.LONG, 3),)), at(5)),
        capture(Message(message_type=MessageType.UNKNOWN, body=b"\xff", untyped=True), at(6)),
    ]
    line = {
        "v": 1, "time": "2026-11-20T19:22:01.123456Z", "message_type": "bytes", "truncated": True, "sha256": "ab",
        "destination": {"kind": "topic", "name": None, "x": 1}, "more": {"a": None},
        "jms": {"future": [1], "reply_to": {"kind": "queue", "name": "q", "y": 2}},
        "meta": {"host": "h", "deep": {"a": [1, "two"]}},
    }  # fmt: skip
    return [*several, from_json(json.dumps(line))]


def test_a_record_survives_its_row() -> None:
    """The row and the JSON line say the same, also after Parquet."""
    table = pa.Table.from_pylist([to_row(each) for each in records()], RECORDS)
    stored = io.BytesIO()
    pq.write_table(table, stored)
    assert [from_row(row) for row in pq.read_table(stored).to_pylist()] == records()
    assert [from_row(to_row(each)) for each in records()] == records()


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.none()
        | st.booleans()
        | st.integers(-(1 << 63), (1 << 63) - 1)
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_any_property_survives_its_row(values: dict[str, Any]) -> None:
    """Names, types and values of properties come back as they were."""
    record = capture(request(1, properties=properties(values)), at(1))
    (row,) = pa.Table.from_pylist([to_row(record)], RECORDS).to_pylist()
    assert from_row(row) == record


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"correlation_id": "\udcff"}, "jms.correlation_id"),
        ({"properties": properties({"a\ud800": 1})}, "a name in properties"),
        ({"message_type": MessageType.TEXT, "body": "\udfff"}, "body"),
        ({"message_type": MessageType.STREAM, "body": (Element(PropertyType.STRING, "\ud800"),)}, "body[0].value"),
    ],
)
def test_a_lone_surrogate_has_no_row(changes: dict[str, Any], place: str) -> None:
    """UTF-8 cannot carry it; the reason says where it is."""
    with pytest.raises(InvalidRecordError, match=re.escape(f"{place} holds a lone surrogate")):
        to_row(capture(request(1, **changes), at(1)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 2}, "version 2"),
        ({"time": None}, "time is missing"),
        ({"message_type": "text", "body": b"\xff"}, "column body is not UTF-8"),
        ({"message_type": "map", "body": b"{"}, "column body is not JSON"),
        ({"extra": "nonsense"}, "column extra is not JSON"),
        ({"extra": "[1]"}, "column extra is not a JSON object"),
        ({"meta": [("host", "h")]}, "column meta.host is not JSON"),
        ({"properties": [("a", {"type": "int", "value": "x"})]}, "column properties.a is not JSON"),
    ],
)
def test_a_row_that_is_no_record_is_refused(change: dict[str, Any], reason: str) -> None:
    """A row of another tool may hold anything."""
    with pytest.raises(InvalidRecordError, match=reason):
        from_row({**to_row(records()[0]), **change})


# What is written


def test_the_rows_have_their_columns_also_when_there_are_none(tmp_path: Path) -> None:
    """Empty verdicts/ and rejected/ are Parquet with the columns of the format."""
    (tmp_path / "log.jsonl").write_bytes(b"\n")
    run(tmp_path, tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "verdicts").schema.equals(VERDICTS)
    assert pq.read_table(tmp_path / "out" / "rejected").schema.equals(REJECTED)


def test_an_earlier_result_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    """A folder with foreign files is refused before anything is read, and stays as it was."""
    log = write_log(tmp_path / "log.jsonl", capture(request(1), at(1)))
    run(log, tmp_path / "out")
    run(CXF, tmp_path / "out")
    assert summary(tmp_path / "out")["records"] == 26
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(UsageError, match=r"mine\.txt, which replay did not write"):
        run(log, tmp_path / "out")
    assert summary(tmp_path / "out")["records"] == 26
    (tmp_path / "foreign").mkdir()
    for text in ("{}", "[" * 1000 + "]" * 1000, "[" * 100_000, "\x00"):
        (tmp_path / "foreign" / "summary.json").write_text(text)
        with pytest.raises(UsageError, match="does not look like"):
            run(log, tmp_path / "foreign")
        assert (tmp_path / "foreign" / "summary.json").read_text() == text
    with pytest.raises(UsageError, match="is not a folder"):
        run(log, log)


@pytest.mark.parametrize("name", ["notes.txt", "verdicts/mine.xlsx", "summary.json"])
def test_files_that_come_during_a_run_stay(tmp_path: Path, name: str) -> None:
    """They are not deleted, nor are the results: the error names the folder where these are."""
    log, out = write_log(tmp_path / "log.jsonl", capture(request(1), at(1))), tmp_path / "out"
    run(log, out)

    def write(text: str) -> None:
        if text == "writing the report":
            (out / name).write_text("of a day")

    with pytest.raises(UsageError, match="; all results are in ") as refused:
        run(CXF, out, progress=write)
    assert (out / name).read_text() == "of a day"
    kept = Path(str(refused.value).rpartition(" ")[2])
    assert (summary(kept)["records"], kept.parent) == (26, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([log, out, kept])


def test_two_runs_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of one of them are there, and those of the other beside them, which its error says."""
    out, rename = tmp_path / "out", Path.rename
    run(CXF, out)

    def meanwhile(self: Path, target: Path) -> Path:
        if Path(target).name == "former":
            monkeypatch.setattr(Path, "rename", rename)
            renamed = rename(self, target)
            run(CXF, out, profile="cr-2009")
            return renamed
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    with pytest.raises(UsageError, match="was written by another run meanwhile; all results are in ") as refused:
        run(CXF, out)
    kept = Path(str(refused.value).rpartition(" ")[2])
    assert [summary(each)["profile"] for each in (out, kept)] == ["cr-2009", "rec-2012"]
    assert sorted(tmp_path.iterdir()) == sorted([out, kept])


def test_a_folder_that_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are beside it, and the earlier ones in their place."""
    out, rename = tmp_path / "out", Path.rename
    run(CXF, out, profile="cr-2009")

    def failing(self: Path, target: Path) -> Path:
        if target == out and self.name == "result":
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(UsageError, match="cannot be replaced: Device or resource busy; all results are in ") as refused:
        run(CXF, out)
    kept = Path(str(refused.value).rpartition(" ")[2])
    assert [summary(each)["profile"] for each in (out, kept)] == ["cr-2009", "rec-2012"]


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("/dev", "/dev is a mount point, which results cannot replace; name a folder in it: /dev/report"),
        (os.fsdecode(b"r\xff"), r"r\\xff is not UTF-8; name another folder"),
        (
            "/".join("r" * 200 for _ in range(4)),
            "octets, and at most 480 are possible; name a folder with a shorter path",
        ),
    ],
)
def test_folders_that_cannot_be_used(tmp_path: Path, out: str, reason: str) -> None:
    """They are refused before a log is read, for results and for a checkpoint, and nothing is left."""
    with pytest.raises(UsageError, match=reason):
        run(CXF, tmp_path / out)
    if out != "/dev":
        with pytest.raises(UsageError, match=reason):
            follow(CXF.parent, tmp_path / "out", checkpoint=tmp_path / out)
    assert [*tmp_path.iterdir()] == []


def test_what_looks_like_a_folder_of_a_killed_run_is_left(tmp_path: Path) -> None:
    """It is that of another result, or has another database; one that a killed run left is completed and removed."""
    for name, text in ((".out.old.abcd_123", ""), (".out.abcd_123", "x" * 200), (".out.efgh1234", "")):
        (tmp_path / name / "former").mkdir(parents=True)
        (tmp_path / name / "result").mkdir()
        (tmp_path / name / "lock.sqlite").write_text(text)
    run(CXF, tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".out.abcd_123", ".out.old.abcd_123", "out"]


def test_a_run_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    """The folder is whole or not there, and no scratch stays behind."""

    def interrupt(text: str) -> None:
        if text == "writing the report":
            raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(CXF, tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"profile": "cr-2010"}, "unknown profile 'cr-2010'; known are: cr-2009, rec-2012"),
        ({"engine": "hadoop"}, "engine must be one of spark, local, exact, got 'hadoop'"),
        ({"engine": "local", "window": timedelta(0)}, "must be longer than 0"),
    ],
)
def test_mistakes_in_the_call_are_said(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    """A mistake of the caller is an error that says what would be right."""
    with pytest.raises(UsageError, match=reason):
        replay(CXF, tmp_path / "out", **options)


def test_junit_has_a_case_for_each_assertion(tmp_path: Path) -> None:
    """Failed ones fail, those that were never judged are skipped with the reason, the rest passes."""
    run(CXF, tmp_path / "out")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    cases = {each.attrib["name"]: each for each in root.iter("testcase")}
    members = summary(tmp_path / "out")
    assert set(cases) == {*members["assertions"], "records can be read"}
    suites = {each.attrib["name"]: each for each in root}
    assert set(suites) == {
        "soapjms replay rec-2012",
        *(f"soapjms replay rec-2012: {party_name(each)}" for each in members["parties"]),
    }
    wrong = suites.pop("soapjms replay rec-2012: clients of queue:CXF.CAPTURE (Apache CXF)")
    cases |= {each.attrib["name"]: each for each in wrong}
    assert [suite for suite, each in suites.items() if each.find("testcase/failure") is not None] == []
    assert [name for name, each in cases.items() if each.find("failure") is not None] == ["Protocol-2010"]
    failure = cases["Protocol-2010"].find("failure")
    assert failure is not None
    assert "0.3" in (failure.text or "")
    unseen = members["notObservable"]
    for name, reason in unseen.items():
        skipped = cases[name].find("skipped")
        assert skipped is not None
        assert skipped.attrib["message"] == reason
    assert wrong.attrib["failures"] == root.attrib["failures"] == "1"
    assert suites["soapjms replay rec-2012"].attrib["skipped"] == str(len(list(root.iter("skipped"))))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.sampled_from(["cxf", ""]), st.booleans()),
        max_size=300,
    )
)
def test_destinations_are_listed_up_to_a_limit(seen: list[tuple[int, int, str, bool]]) -> None:
    """However a log is cut, the same destinations are listed, each with all its messages: of those that are counted,
    where most is broken. The rest is one row, and the last of the parties; how many parties are in it is told."""
    total, parts = RunTally(), [RunTally() for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("soapjms.replay.summary.MAX_COUNTED_DESTINATIONS", 25)
        patch.setattr("soapjms.replay.summary.MAX_DESTINATIONS", 10)
        for part, place, stack, is_broken in seen:
            key = PartyKey(f"queue:{place:04}", "sending", stack)
            parts[part].see(key, 0)
            if is_broken:
                parts[part].broke(key, VerdictOutcome.FAILED)
        for tally in parts:
            assert len(tally.places) <= 50
            total.add(RunTally.from_json(tally.to_json()))
        members = summarise(total, [], TERMS).members
    sent = Counter(f"queue:{place:04}" for _, place, _, _ in seen)
    broke = Counter(f"queue:{place:04}" for _, place, _, is_broken in seen if is_broken)
    counted = sorted(sent)[:25]
    wanted = sorted(sorted(counted, key=lambda name: (-broke[name], -sent[name], name))[:10])
    listed = members["stacks"]
    assert [(each["destination"], each["messages"]) for each in listed if each["destination"]] == [
        (name, sent[name]) for name in wanted
    ]
    rest = sum(number for name, number in sent.items() if name not in wanted)
    assert [each["messages"] for each in listed if each["destination"] is None] == ([rest] if rest else [])
    assert sum(each["stacks"].get("cxf", 0) for each in listed) == sum(stack == "cxf" for _, _, stack, _ in seen)
    others = members["otherParties"]
    left = {(f"queue:{place:04}", stack) for _, place, stack, _ in seen if f"queue:{place:04}" in counted}
    assert others["parties"] == sum(name not in wanted for name, _ in left)
    assert others["isAll"] is (len(sent) <= 25)
    assert [each["destination"] for each in members["parties"]][: len(members["parties"]) - 2].count(None) == 0


TERMS = ReplayTerms(setting=Setting(), window=timedelta(1), senders=Senders())
