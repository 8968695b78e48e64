"""The report of a replay: what it says, that no text of a log becomes markup, that it stays small, reading it back."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from replay_logs import CXF, ENVELOPE, at, bad_logs, request, response, write_log
from report_kit import ATTACK, START, Page, attacks, large, traffic

from soapjms.protocol.assertions import ASSERTIONS
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, capture
from soapjms.replay import replay
from soapjms.replay.flat_records import microseconds
from soapjms.replay.report import html, load, visible, write
from soapjms.replay.report.charts import charts
from soapjms.replay.report.page import SAMPLE_OCTETS
from soapjms.replay.report.remedies import rule_texts
from soapjms.replay.report.tables import HEADINGS, MAX_SHOWN_CAUSES
from soapjms.replay.report.texts import duration, moment, width
from soapjms.replay.summary import Timeline
from soapjms.replay.terms import LateRecord


def run(logs: Any, out: Path, profile: str = "rec-2012") -> Page:
    """Replay without Spark, and take the page apart."""
    replay(logs, out, profile, "local")
    return page(out)


def page(out: Path) -> Page:
    """Take the page of a result folder apart."""
    return Page((out / "report.html").read_text("utf-8"))


def said(found: Page) -> str:
    """Return the words of a page with simple spaces."""
    return re.sub(r"\s+", " ", found.words)


# What it says


def test_the_verdict_is_there_without_scripts(tmp_path: Path) -> None:
    """So are the counts, the time that the log covers, and the causes; they stand in the page as text."""
    found = run(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out")
    words = said(found)
    assert "Failed" in words
    assert "240 messages, captured from 20 Nov 2026, 12:00:00 UTC to 20 Nov 2026, 12:59:" in words
    assert "SOAPJMS_bindingVersion is '0.3', not 1.0" in words
    assert "SOAPJMS_contentType is missing or empty" in words
    assert re.search(r"240 ?Messages|Messages ?240", words)


def test_one_reason_is_one_line_with_its_count_and_three_messages(tmp_path: Path) -> None:
    """With headers, the beginning of the body, and the fault that was expected and observed."""
    found = run(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out")
    (cause,) = [each for each in found.data["causes"] if (each["a"], each["v"]) == ("Protocol-2010", "failed")]
    assert cause["n"] == 12
    assert cause["c"] == ["unrecognizedBindingVersion"]
    places, parties = found.data["places"], found.data["parties"]
    assert {places[parties[number][0]] for number in cause["w"][::2]} == {"queue:orders"}
    assert [each["e"] for each in cause["s"]] == ["ID:client-0", "ID:client-10", "ID:client-20"]
    sample = cause["s"][0]
    asked, answered = sample["ms"]
    assert ["SOAPJMS_bindingVersion", "0.3"] in asked["h"]
    assert ["JMSReplyTo", "temporary-queue:ID:client:1"] in asked["h"]
    assert asked["b"][0][0].startswith("<s:Envelope")
    assert (asked["d"], answered["d"]) == ("request", "response")
    assert sample["df"] == [["property SOAPJMS_bindingVersion", [["0.3", 1]], [["1.0", 1]], True]]
    assert sample["x1"] == "unrecognizedBindingVersion"
    assert "expected unrecognizedBindingVersion, observed none: 12" in said(found)


def test_a_body_is_shown_around_what_is_wrong_in_it(tmp_path: Path) -> None:
    """However far from its beginning that is: here a tag that ends another element than the one that began."""
    body = ENVELOPE.format("y" * 2000).replace("</greet>", "</gret>").encode()
    log = write_log(tmp_path / "log.jsonl", capture(request(1, body=body), at(1), Direction.REQUEST))
    found = run(log, tmp_path / "out")
    (cause,) = [each for each in found.data["causes"] if each["a"] == "Protocol-2030"]
    (message,) = cause["s"][0]["ms"]
    assert [text for text, is_marked in message["b"] if is_marked] == ["</gret>"]
    assert message["b"][0][0] == "…"
    shown = "".join(text for text, _ in message["b"][1:])
    assert shown in body.decode()
    assert len(shown) + message["m"] == len(body)
    ((place, seen, _, _),) = cause["s"][0]["df"]
    begin = body.index(b"</gret>")
    assert place == f"body, octets {begin} to {begin + 6}"
    assert ["</gret>", 1] in seen


def test_each_assertion_leads_to_the_specification(tmp_path: Path) -> None:
    """To its words in the page of the edition, also for a dialect of it; a link tells nobody where it was followed."""
    for profile, edition in (
        ("rec-2012", "2012/REC-soapjms-20120216"),
        ("cxf", "REC-soapjms"),
        ("cr-2009", "2009/CR-soapjms-20090604"),
    ):
        found = run(CXF, tmp_path / "out", profile)
        links = [each for _, each in found.named("a") if each["href"].startswith("http")]
        assert len(links) > 40
        assert all(edition in each["href"] and "noreferrer" in each["rel"] for each in links)
    assert any(each["href"].endswith("#:~:text=Protocol%2D2010") for each in links)
    assert any("2.2.4%20Binding%20of%20Properties%20to%20URI" in each["href"] for each in links)


def test_each_section_of_a_local_assertion_has_its_heading() -> None:
    """So that a link to it finds its words."""
    sections = {row.section.removeprefix("REC ") for row in ASSERTIONS if row.id.startswith("Local-")}
    assert sections <= set(HEADINGS)


def test_what_the_log_did_not_show(tmp_path: Path) -> None:
    """Assertions that nothing put to the test are listed with the reason, as are those that no log can show."""
    found = run(CXF, tmp_path / "out")
    section = found.source.partition('id="unseen"')[2]
    assert "Never exercised" in section
    assert "no message of this log is subject to it" in section or "it does not apply to the messages" in section
    assert "Protocol-2031" in section


def test_each_broken_assertion_has_its_remedy(tmp_path: Path) -> None:
    """In general, and first for the stacks that seem to have broken it; each finding leads there without scripts."""
    found = run(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out")
    broken = {each["a"] for each in found.data["causes"] if each["v"] in ("failed", "warning")}
    assert set(re.findall(r'<article class="change" id="change-([^"]+)">', found.source)) == broken
    assert set(re.findall(r'href="#change-([^"]+)"', found.source)) == broken
    known = rule_texts("rec-2012")
    words = said(found)
    for assertion in broken:
        assert known[assertion].rule in words
        assert known[assertion].general.text in words
    assert (
        "change-"
        not in run(
            write_log(tmp_path / "sound.jsonl", capture(request(1), at(0), Direction.REQUEST)), tmp_path / "sound"
        ).source
    )


def test_destinations_and_peers(tmp_path: Path) -> None:
    """By destination how much failed and how long responses took, by stack what its messages failed."""
    found = run(CXF, tmp_path / "out")
    places = found.source.partition('id="places"')[2].partition("</table>")[0]
    first = Page(places.partition("<tbody>")[2].partition("</tr>")[0])
    assert said(first).split()[0] == "queue:CXF.CAPTURE.12" or "queue:CXF.CAPTURE" in said(first)
    assert re.search(r"\d ms|\d s", said(Page(places)))
    peers = found.source.partition('id="stacks"')[2].partition("</table>")[0]
    assert "<td>Apache CXF</td>" in peers
    assert "requesting node" in peers


def test_one_is_singular(tmp_path: Path) -> None:
    """In sentences, and in the titles of the charts."""
    messages = [capture(request(1), at(1), Direction.REQUEST), capture(response(1), at(60), Direction.RESPONSE)]
    found = run(write_log(tmp_path / "log.jsonl", *messages), tmp_path / "out")
    assert ": 1 message</title>" in found.source
    assert not re.search(r"\b1 (messages|warnings|requests|responses|records|exchanges)\b", found.source)


def test_a_stack_has_one_name_and_a_right_answer_says_so(tmp_path: Path) -> None:
    """The names of stacks are theirs, not those by which a search finds them."""
    found = run(CXF, tmp_path / "out")
    words = said(found)
    assert "answered with unrecognizedBindingVersion, as it should be" in words
    assert "Apache CXF" in words
    assert not re.search(r"\bcxf\b", words.replace("p:cxf", "").replace(CXF.name, ""))


def test_an_empty_log_has_a_report(tmp_path: Path) -> None:
    """It says that there was nothing to judge, and has no charts."""
    (tmp_path / "log.jsonl").write_bytes(b"\n")
    found = run(tmp_path / "log.jsonl", tmp_path / "out")
    assert "Nothing to judge" in said(found)
    assert "Nothing was found." in said(found)
    assert 'id="time"' not in found.source


def test_what_was_rejected_is_listed(tmp_path: Path) -> None:
    """With file, line and reason; the text itself is in rejected/ only."""
    found = run(bad_logs(tmp_path), tmp_path / "out")
    assert "8 records could not be read" in said(found)
    assert "this is not JSON" not in found.source
    assert "bad.jsonl" in said(found)


def test_junit_names_causes(tmp_path: Path) -> None:
    """A failure lists each reason with its count and its first messages."""
    run(write_log(tmp_path / "log.jsonl", *traffic()), tmp_path / "out")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    found = {}
    for suite in root:
        failure = suite.find("testcase[@name='Protocol-2010']/failure")
        if failure is not None:
            found[suite.attrib["name"].partition(": ")[2]] = (failure.text or "").splitlines()
    other = "other clients of queue:orders (no known stack)"
    assert set(found) == {other, "clients of queue:orders (Apache CXF)"}
    for lines in found.values():
        assert lines[0] == "6 × SOAPJMS_bindingVersion is '0.3', not 1.0"
    ids = [re.search(r"ID:client-\d+", line)[0] for lines in found.values() for line in lines[1:]]  # type: ignore[index]
    assert sorted(ids) == ["ID:client-0", "ID:client-10", "ID:client-20"]


# Charts


def test_charts_begin_at_round_times_and_say_how_wide_a_column_is() -> None:
    """An hour of traffic has columns of a minute; the last message is in the last one."""
    timeline = Timeline()
    for second in range(7, 3600, 3):
        timeline.message(microseconds(START + timedelta(seconds=second)))
    timeline.count(microseconds(START), "failed/A")
    drawn = charts(timeline)
    assert drawn is not None
    assert drawn.span == "1 minute"
    assert drawn.columns[0].start == START
    assert len(drawn.columns) == 60
    assert sum(each.messages for each in drawn.columns) == timeline_total(timeline)
    assert [each.failed for each in drawn.columns[:2]] == [1, 0]
    ElementTree.fromstring(drawn.messages)


def timeline_total(timeline: Timeline) -> int:
    """Return how many messages a timeline counted."""
    return sum(span["messages"] for span in timeline.spans.values())


def test_a_clock_that_was_wrong_by_years_does_not_hide_the_others() -> None:
    """A few messages of 1970 are left out of the charts, and it says so; where they are many they are shown."""
    timeline = Timeline()
    for second in range(5000):
        timeline.message(microseconds(START + timedelta(seconds=second)))
    timeline.message(microseconds(datetime(1970, 1, 1, tzinfo=UTC)))
    drawn = charts(timeline)
    assert drawn is not None
    assert (drawn.left_out, drawn.span) == (1, "1 minute")
    for _ in range(50):
        timeline.message(microseconds(datetime(1970, 1, 1, tzinfo=UTC)))
    drawn = charts(timeline)
    assert drawn is not None
    assert drawn.left_out == 0


@pytest.mark.parametrize("years", [(1, 9999), (1, 1), (9999, 9999)])
def test_charts_of_any_times(years: tuple[int, int]) -> None:
    """The ends of the calendar can be drawn."""
    timeline = Timeline()
    for year in years:
        timeline.message(microseconds(datetime(year, 1, 1, tzinfo=UTC)))
        timeline.message(microseconds(datetime(year, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)))
    drawn = charts(timeline)
    assert drawn is not None
    assert len(drawn.columns) <= 100
    assert sum(each.messages for each in drawn.columns) == 4


def test_numbers_are_written_for_people() -> None:
    """Durations to two digits, spans in the unit that measures them, times as exactly as needed."""
    assert [duration(timedelta(seconds=each)) for each in (0, 0.0000015, 0.0123, 0.9996, 1.26, 125)] == [
        "0 ms", "0.002 ms", "12 ms", "1 s", "1.3 s", "2 min 5 s",
    ]  # fmt: skip
    assert [width(timedelta(minutes=each)) for each in (1, 60, 90, 1440)] == [
        "1 minute",
        "1 hour",
        "90 minutes",
        "1 day",
    ]
    assert moment(START, timedelta(seconds=5), in_full=True) == "20 Nov 12:00:00"
    assert moment(START, timedelta(days=1), in_full=True) == "20 Nov 2026"


# What a log cannot do to it


def test_no_text_of_a_log_becomes_markup(tmp_path: Path) -> None:
    """What a message says is text in the page, in its data and in JUnit's file, whatever it tries; all of it is cut."""
    found = run(attacks(tmp_path), tmp_path / "out")
    assert [name for name, _ in found.elements if name in ("img", "iframe", "object", "link", "base", "form")] == []
    assert len(found.named("script")) == 2
    assert "<img src=x onerror=alert(2)>" in found.words
    assert "{{7*7}}" in found.words
    for character in "\x1b\u202e\u2066\0":
        assert character not in found.source
    assert "\\u202e" in found.words
    (place,) = (place for place, attributes in found.named("script") if attributes.get("id") == "data")
    assert "<" not in found.texts[place]
    assert ATTACK[:20] in json.dumps(found.data, ensure_ascii=False).replace("\\", "")
    assert len(found.source) < 500_000
    ElementTree.parse(tmp_path / "out" / "junit.xml")


def test_nothing_is_loaded_and_only_our_style_and_script_may_run(tmp_path: Path) -> None:
    """The policy names the hashes of both; no element loads an address."""
    found = run(attacks(tmp_path), tmp_path / "out")
    (policy,) = (each["content"] for _, each in found.named("meta") if "http-equiv" in each)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    ours = [place for place, attributes in found.named("script", "style") if attributes.get("id") != "data"]
    assert {b64encode(sha256(found.texts[place].encode()).digest()).decode() for place in ours} == allowed
    for _, attributes in found.elements:
        assert not {"src", "srcset", "style", "action", "background", "poster"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert re.match(r"#|https://www\.w3\.org/TR/", attributes.get("href", "#"))
    (place,) = (place for place, _ in found.named("style"))
    assert not re.search(r"url\(|@import", found.texts[place])


def test_a_long_text_is_cut_in_the_report() -> None:
    """A reason of a megabyte does not make a page of a megabyte."""
    assert visible("x" * 1000).endswith("… (400 more characters)")
    assert visible("a\tb") == "a\\tb"


def test_a_page_stays_small(tmp_path: Path) -> None:
    """Whatever is found, it is within 3 MB: the gravest causes are listed, and say of how many more there are."""
    summary = large(50_000, 30_000)
    source = html(summary)
    found = Page(source)
    assert len(source.encode()) <= 3_000_000
    assert len(found.data["causes"]) == MAX_SHOWN_CAUSES
    assert len(json.dumps([each["s"] for each in found.data["causes"]])) < 1.2 * SAMPLE_OCTETS
    assert "more causes with" in said(found)
    listed = sum(each["n"] for each in found.data["causes"])
    assert sum(sum(each["w"][1::2]) for each in found.data["causes"]) == listed


def test_late_records_are_listed_in_the_page(tmp_path: Path) -> None:
    """Those that following logs left out: how many, and the first of them by file, line and time; also read back."""
    out = tmp_path / "out"
    summary = replay(CXF, out, engine="local")
    assert "Late records" not in said(page(out))
    late = (
        LateRecord(ATTACK, 12345, "2026-11-20T12:00:00.000000Z"),
        LateRecord("b.jsonl", 1, "2026-11-19T12:00:00.000000Z"),
    )
    summary = replace(summary, members={**summary.members, "late": 25}, late=late)
    write(summary, out)
    found = page(out)
    words = said(found)
    assert ". 25 records came too late and were not judged." in words
    assert re.search(r"Late records ?25|25 ?Late records", words)
    assert "the first 2 below" in words
    assert re.search(r"b.jsonl ?1 ?2026-11-19T12:00:00.000000Z", words)
    assert "12,345" in words
    assert found.named("img") == []
    assert load(out) == summary


# Reading it back


def test_the_report_can_be_made_again(tmp_path: Path) -> None:
    """From what is beside it the same page is made, to the letter."""
    out = tmp_path / "out"
    for logs in (attacks(tmp_path), CXF, bad_logs(tmp_path)):
        summary = replay(logs, out, engine="local")
        assert load(out) == summary
        assert html(load(out)) == (out / "report.html").read_text("utf-8")


def test_a_folder_without_report_json_is_read_from_its_verdicts(tmp_path: Path) -> None:
    """As of another program that writes the format: the causes and their counts are there, their messages are not."""
    records = [capture(request(n, body=b""), at(n), Direction.REQUEST) for n in range(5)]
    records += [capture(response(n, correlation_id=f"ID:client-{n}"), at(n + 1), Direction.RESPONSE) for n in range(5)]
    out = tmp_path / "out"
    summary = replay([CXF, write_log(tmp_path / "log.jsonl", *records)], out, engine="local")
    (out / "report.json").unlink()
    members = json.loads((out / "summary.json").read_text("utf-8"))
    del members["time"], members["latency"]
    (out / "summary.json").write_text(json.dumps(members))
    again = load(out)
    for place in summary.findings.groups:
        causes = [
            (reason, cause.count, [each[:2] for each in cause.samples]) for reason, cause in summary.findings.of(*place)
        ]
        assert causes == [
            (reason, cause.count, [each[:2] for each in cause.samples]) for reason, cause in again.findings.of(*place)
        ]
    assert set(again.places) >= {"queue:CXF.CAPTURE", "temporary-queue"}
    found = Page(html(again))
    assert "queue:CXF.CAPTURE" in said(found)
    assert sum(each["n"] for each in found.data["causes"]) == sum(
        cause.count
        for (_, verdict), group in summary.findings.groups.items()
        for cause in group.all.values()
        if verdict != "prereqFailed"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("summary.json", None, "cannot be read: No such file"),
        ("summary.json", "{}", "was not written by soapjms replay"),
        ("summary.json", "[]", "is not a JSON object"),
        ("summary.json", "{", "is not JSON"),
        ("report.json", "{", "is not JSON"),
        ("report.json", '{"version": 4}', "must be of version 3 for this program, got 4"),
        ("report.json", '{"version": 3, "findings": 7}', "are damaged: "),
        ("report.json", "{}", "are damaged: "),
    ],
)
def test_results_that_are_not_whole_are_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    """The error says which file, and what to do."""
    out = tmp_path / "out"
    replay(CXF, out, engine="local")
    (out / name).unlink() if text is None else (out / name).write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        load(out)
