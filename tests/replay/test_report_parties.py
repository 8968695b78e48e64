"""The parties of a replay: counted the same however it was run, told in sentences, and what the page opens with."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser_kit import Opens
from click.testing import CliRunner
from lxml import html
from playwright.sync_api import expect
from replay_logs import CXF, TO_SERVICE, at, request, response, summary, write_log
from report_kit import Page, traffic

from brokers import properties
from brokers.message import queue
from soapjms.cli.commands import soapjms
from soapjms.protocol.assertions import Judge, Setting, judge, readings
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import REC_2012
from soapjms.protocol.record import Direction, Record, capture, format_time
from soapjms.replay import replay, verdicts
from soapjms.replay.parties import PartyKey
from soapjms.replay.report import rewrite
from soapjms.replay.report.remedies import rule_texts
from soapjms.replay.report.sentences import headline, party_lines, party_sentence
from soapjms.replay.report.texts import length
from soapjms.replay.summary import NOTHING

MUST, MUST_NOT, SHOULD, NO_LEVEL = "Protocol-2012", "Protocol-2014", "Local-a", "Local-b"
LEVELS = {MUST: "MUST", MUST_NOT: "MUST NOT", SHOULD: "SHOULD", NO_LEVEL: "none"}


def party(node: str = "requesting", **changes: Any) -> dict[str, Any]:
    """Return a party as summary.json has it."""
    nothing = {"destination": "queue:orders", "node": node, "stack": None, "messages": 13}
    counts = {"failedMessages": 0, "warningMessages": 0, "passed": {}, "failed": {}, "warning": {}}
    return {**nothing, **counts, **changes}


def members(*parties: dict[str, Any], verdict: str = "failed") -> dict[str, Any]:
    """Return what sentences need of a summary."""
    assertions = {name: {"level": level, "title": f"what {name} says"} for name, level in LEVELS.items()}
    return {"verdict": verdict, "messages": 13, "parties": list(parties), "assertions": assertions}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            party(failed={MUST: 3, NO_LEVEL: 1, MUST_NOT: 2}, failedMessages=3, warning={SHOULD: 1}, warningMessages=1),
            "clients of queue:orders break 2 MUSTs and 1 MUST NOT in 3 of 13 requests and miss 1 SHOULD in 1 of 13 "
            "requests",
        ),
        (
            party("responding", stack="cxf", failed={MUST: 13}, failedMessages=13, passed={MUST_NOT: 13}),
            "the service at queue:orders (Apache CXF) breaks 1 MUST in all 13 responses",
        ),
        (
            party("sending", messages=1, failed={MUST: 1}, failedMessages=1),
            "senders to queue:orders break 1 MUST in the only one-way message",
        ),
        (
            party("responding", destination="temporary-queue", passed={MUST: 9, MUST_NOT: 9}),
            "the service at temporary queues keeps both rules that could be seen",
        ),
        (party(passed={MUST: 9}), "clients of queue:orders keep the one rule that could be seen"),
        (party(messages=1), "clients of queue:orders send 1 request; no rule could be judged"),
        (
            party(destination=None, messages=2000),
            "clients of all other destinations send 2,000 requests; no rule could be judged",
        ),
        (
            party(destination=""),
            "clients of a destination that the log does not show send 13 requests; no rule could be judged",
        ),
        (party(stack="acme"), "clients of queue:orders (acme) send 13 requests; no rule could be judged"),
        (
            party(otherStacks=["cxf"]),
            "other clients of queue:orders (no known stack) send 13 requests; no rule could be judged",
        ),
        (
            party("responding", otherStacks=["cxf"]),
            "the service at queue:orders (no known stack) sends 13 responses; no rule could be judged",
        ),
        (
            party(destination="queue:"),
            "clients of queue: (empty name) send 13 requests; no rule could be judged",
        ),
    ],
)  # fmt: skip
def test_a_party_in_a_sentence(found: dict[str, Any], sentence: str) -> None:
    """Who, which rules by level, and in how many of its messages."""
    assert party_sentence(found, members(found)) == sentence


def beyond(parties: int, *, failed: int, isAll: bool = True) -> dict[str, Any]:
    """Return what summary.json has of the parties that are not listed."""
    return {
        "otherParties": {"destinations": parties, "parties": parties, "failed": failed, "warning": 0, "isAll": isAll}
    }


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (members(verdict=NOTHING), "Nothing to judge"),
        (members(), "Failed"),
        (members(verdict="passed"), "Passed"),
        (members(verdict="warning"), "Passed, with warnings"),
        (
            members(
                party(failed={MUST: 1}, failedMessages=1, warning={SHOULD: 1}, warningMessages=1), party("responding")
            ),
            "Clients of queue:orders break 1 MUST in 1 of 13 requests",
        ),
        (
            members(party(failed={MUST: 2, MUST_NOT: 1}), party("responding", failed={MUST: 1}), party("sending")),
            "2 of 3 parties break MUSTs; worst: clients of queue:orders",
        ),
        (
            members(party(failed={MUST: 1}), party("responding", failed={MUST_NOT: 1}), party("sending")),
            "2 of 3 parties break MUSTs",
        ),
        (
            members(party(failed={MUST: 3}, failedMessages=3), party("responding", failed={MUST: 1}, failedMessages=1)),
            "Both parties break one MUST: what Protocol-2012 says",
        ),
        (
            members(party(failed={MUST: 1}), party(failed={MUST_NOT: 9}, destination=None)) | beyond(300, failed=20),
            "21 of 301 parties break MUSTs; worst: clients of queue:orders",
        ),
        (
            members(party(failed={MUST: 1}), party(failed={MUST_NOT: 9}, destination=None))
            | beyond(300, failed=20, isAll=False),
            "21 of more than 301 parties break MUSTs; worst: clients of queue:orders",
        ),
        (
            members(party(), party(failed={MUST: 9}, destination=None)) | beyond(300, failed=1),
            "1 of 301 parties breaks one MUST: what Protocol-2012 says",
        ),
        (members(party(), party("responding"), verdict="passed"), "Both parties keep the rules"),
        (members(party("sending"), verdict="passed"), "The only party keeps the rules"),
        (
            members(party(warning={SHOULD: 1}), party(warning={SHOULD: 1}), party(), verdict="warning"),
            "All 3 parties keep every MUST; 2 miss a SHOULD",
        ),
        (members(party(), verdict="failed"), "The only party keeps the rules, but records could not be read"),
        (members() | {"messages": 0}, "None of 3 records could be read"),
        (members() | {"messages": 0, "rejected": 1}, "The only record could not be read"),
    ],
)  # fmt: skip
def test_the_headline(found: dict[str, Any], sentence: str) -> None:
    """It is about parties; a folder of an earlier version, which names none, has its verdict there."""
    assert headline({"rejected": 3 if found["verdict"] == "failed" else 0, **found}) == sentence


def test_only_so_many_parties_are_told() -> None:
    """The others are counted."""
    parties = [party(destination=f"queue:{n}", passed={MUST: 1}) for n in range(15)]
    lines = list(party_lines(members(*parties)))
    assert lines[0] == "Clients of queue:0 keep the one rule that could be seen."
    assert lines[12:] == ["3 more parties are in summary.json."]


def mixed() -> list[Record]:
    """Return calls of two services, of which some clients and a service break rules, and one-way messages."""
    records = [*traffic()]
    for number in range(1000, 1010):
        one_way = request(number, reply_to=None)
        records.append(capture(one_way, at(number), Direction.ONE_WAY))
        body = b"<no-envelope/>" if number % 2 else response(number).body
        records.append(capture(request(number + 100), at(number), Direction.REQUEST))
        records.append(capture(response(number + 100, body=body), at(number + 1), Direction.RESPONSE))
    return records


@pytest.mark.parametrize("engine", ["local", "exact"])
def test_parties_are_counted_as_they_are_judged(tmp_path: Path, engine: Any) -> None:
    """Their verdicts add up to those of the run, and to those of each exchange judged by itself."""
    replay([CXF, write_log(tmp_path / "log.jsonl", *mixed())], tmp_path / "out", engine=engine)
    found = summary(tmp_path / "out")
    assert sum(each["messages"] for each in found["parties"]) == found["messages"]
    for outcome in ("passed", "failed", "warning"):
        total: Counter[str] = Counter()
        for each in found["parties"]:
            for rule, number in each[outcome].items():
                total[assertion_of(rule)] += number
        assert total == Counter({name: said[outcome] for name, said in found["assertions"].items() if said[outcome]})
    for each in found["parties"]:
        assert (each["failedMessages"] > 0) is bool(each["failed"])
        assert each["failedMessages"] <= min(each["messages"], sum(each["failed"].values()))
        assert (each["firstFailed"] is None) is (each["lastFailed"] is None) is (not each["failed"])
        assert each["first"] <= each["last"]
        assert each["times"].keys() == each["failed"].keys() | each["warning"].keys()
        failed = [each["times"][rule] for rule in each["failed"]]
        assert min((one["first"] for one in failed), default=None) == each["firstFailed"]
        assert max((one["last"] for one in failed), default=None) == each["lastFailed"]
    assert [len(each["failed"]) for each in found["parties"]] == sorted(
        (len(each["failed"]) for each in found["parties"]), reverse=True
    )


def test_whose_verdict_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of the sender of the judged message; of a pair, that of the service. Equal ones of many exchanges, too."""
    seen: dict[PartyKey, Counter[tuple[str, str]]] = defaultdict(Counter)
    original = verdicts._judged

    def judged(scene: verdicts.Scene, messages: Any, one: Judge, tally: Any) -> Any:
        for each in judge(scene.exchange, Setting(profile=REC_2012)):
            seen[scene.parties[scene.carrier(each)]][each.rule, str(each.outcome)] += 1
        return original(scene, messages, one, tally)

    monkeypatch.setattr(verdicts, "_judged", judged)
    replay([CXF, write_log(tmp_path / "log.jsonl", *mixed())], tmp_path / "out", engine="exact")
    for each in summary(tmp_path / "out")["parties"]:
        counted = seen.pop(PartyKey(each["destination"], each["node"], each["stack"] or ""))
        for outcome in ("passed", "failed", "warning"):
            assert each[outcome] == {name: n for (name, ended), n in sorted(counted.items()) if ended == outcome}
    assert not seen


def of_node(members: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the one party of a run that is such a node."""
    (found,) = (each for each in members["parties"] if each["node"] == node)
    return found


@pytest.mark.parametrize("engine", ["local", "exact"])
def test_each_rule_has_times_of_its_own(tmp_path: Path, engine: Any) -> None:
    """One that was broken all day does not make another, which broke at noon, begin in the morning."""
    bare = properties({name: value for name, value in TO_SERVICE.items() if name != "SOAPJMS_contentType"})
    records = []
    for number in range(0, 1000, 10):
        changes = {"SOAPJMS_bindingVersion": "0.3"} if number >= 500 and number % 30 else {}
        given = bare if number % 100 == 40 else properties({**TO_SERVICE, **changes})
        records += [
            capture(request(number, properties=given), at(number), Direction.REQUEST),
            capture(response(number), at(number + 1), Direction.RESPONSE),
        ]
    replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine=engine)
    clients = of_node(summary(tmp_path / "out"), "requesting")
    assert clients["times"] == {
        "Protocol-2010": {"first": format_time(at(500)), "last": format_time(at(980))},
        "Protocol-2016": {"first": format_time(at(40)), "last": format_time(at(940))},
    }
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    card = words[words.index("clients of queue:greeter") :]
    assert "First 20 Nov 2026, 12:00:40 UTC, last 20 Nov 2026, 12:16:20 UTC (16 minutes). " in card
    assert (
        "SOAPJMS_bindingVersion is present and 1.0. 30 messages, first 20 Nov 2026, 12:08:20 UTC, last 20 Nov 2026, "
        "12:16:20 UTC (8 minutes)"
    ) in card
    assert "12:08:20 UTC: clients of queue:greeter begin to break Protocol-2010" in words


def answered_as_if_right() -> list[Record]:
    """Return 20 calls, of which 3 lack the content type; the service answers all of them."""
    bare = properties({name: value for name, value in TO_SERVICE.items() if name != "SOAPJMS_contentType"})
    records = []
    for number in range(20):
        asked = request(number, **({"properties": bare} if number < 3 else {}))
        records += [
            capture(asked, at(number), Direction.REQUEST),
            capture(response(number), at(number + 0.5), Direction.RESPONSE),
        ]
    return records


def test_an_answer_is_judged_apart_from_the_rule_that_was_broken(tmp_path: Path) -> None:
    """One id of 2012 is a rule for all messages, and the service's duty to answer its breach: two counts, two names."""
    replay(write_log(tmp_path / "log.jsonl", *answered_as_if_right()), tmp_path / "out", engine="local")
    found = summary(tmp_path / "out")
    service = of_node(found, "responding")
    assert service["failed"] == {"Protocol-2016/answer": 3}
    assert service["passed"]["Protocol-2016"] == 20
    assert found["assertions"]["Protocol-2016"]["failed"] == 6
    title = "a missing contentType is answered with missingContentType"
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    assert title in words
    suites = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    failures = [case for suite in suites if "the service" in suite.attrib["name"] for case in suite if len(case)]
    assert [(case.attrib["name"], case[0].attrib["message"]) for case in failures] == [
        ("Protocol-2016/answer", f"{title}: 3 failed")
    ]
    text = CliRunner().invoke(soapjms, ["replay", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "out")]).output
    assert "Protocol-2016/answer" in text


def test_counts_are_taken_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A log with very many destinations gives the same numbers."""
    log = write_log(tmp_path / "log.jsonl", *mixed())
    replay(log, tmp_path / "out", engine="exact")
    monkeypatch.setattr("soapjms.protocol.assertions.batch.MAX_COUNTS", 3)
    replay(log, tmp_path / "again", engine="exact")
    assert summary(tmp_path / "again") == summary(tmp_path / "out")


def test_a_judge_counts_without_parties() -> None:
    """A caller who does not tell whose messages they are has the counts of all."""
    one = Judge(Setting())
    exchange = Exchange(id="", pattern=Pattern.ONE_WAY, request=capture(request(1, reply_to=None), at(0)))
    assert not list(one.findings(readings(exchange, Setting())))
    assert {key[0] for key in one.take_counts()} == {None}
    assert not one.take_counts()


# The page


def test_the_page_opens_with_the_parties(tmp_path: Path) -> None:
    """Who is wrong, how much, since when, and what to change; then those who keep the rules."""
    replay(CXF, tmp_path / "out", engine="local")
    found = Page((tmp_path / "out" / "report.html").read_text("utf-8"))
    words = " ".join(found.words.split())
    top = words[: words.index("What to change")]
    for said in (
        "Failed SOAP over JMS: conformance of captured traffic Clients of queue:CXF.CAPTURE (Apache CXF) break 1 MUST "
        "in 1 of 9 requests 26 messages, captured from 20 Nov 2026",
        "clients of queue:CXF.CAPTURE Apache CXF break 1 MUST in 1 of 9 requests "
        "On 20 Nov 2026, 19:31:22 UTC. 20 other rules kept. "
        "SOAPJMS_bindingVersion is present and 1.0.",
        'headers.setSOAPJMSBindingVersion("1.0")',
        "the service at queue:CXF.CAPTURE Apache CXF misses 1 SHOULD in 1 of 9 responses On 20 Nov 2026, 19:31:",
        "clients of queue:CXF.CAPTURE.12 Apache CXF keep all 22 rules that could be seen 3 requests.",
    ):  # fmt: skip
        assert said in top, said


def test_rules_are_compared_party_by_party(tmp_path: Path) -> None:
    """Those that break rules: in how many of their messages, or that they kept it; what most broke comes first."""
    out = tmp_path / "out"
    members = replay(write_log(tmp_path / "log.jsonl", *mixed()), out, engine="local").members
    table = html.fromstring((out / "report.html").read_text("utf-8")).get_element_by_id("matrix")
    breaking = [each for each in members["parties"] if each["failed"] or each["warning"]]
    assert len(breaking) > 2
    assert len(table.xpath("thead//th")) == len(breaking) + 1
    shown = {
        row.find("th").get("data-v"): [next(cell.itertext()).strip() for cell in row.xpath("td")]
        for row in table.xpath("tbody/tr")
    }
    assert set(shown) == {
        name for each in breaking for name in {*each["failed"], *each["warning"]} - {*each["sameMistakes"]}
    }
    for name, cells in shown.items():
        for cell, each in zip(cells, breaking, strict=True):
            broken = each["failed"].get(name) or each["warning"].get(name)
            assert cell == (str(broken) if broken else "kept" if name in each["passed"] else "–")
    failed = [
        sum(cell.isdigit() for cell in cells)
        for name, cells in shown.items()
        if members["assertions"][assertion_of(name)]["failed"]
    ]
    assert failed == sorted(failed, reverse=True)


def test_one_party_is_not_compared(tmp_path: Path) -> None:
    """Where only one breaks rules, its card says it all."""
    bad = capture(request(1, properties={}), at(0), Direction.REQUEST)
    replay(write_log(tmp_path / "log.jsonl", bad), tmp_path / "out", engine="local")
    assert "Rules by party" not in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_what_most_messages_broke_is_to_be_changed_first(tmp_path: Path) -> None:
    """Failures before warnings; each with its number, which leads to the findings."""
    out = tmp_path / "out"
    counts = replay([CXF, write_log(tmp_path / "log.jsonl", *mixed())], out, engine="local").members["assertions"]
    page = html.fromstring((out / "report.html").read_text("utf-8"))
    names = [each.get("id").removeprefix("change-") for each in page.find_class("change")]
    gravity = [(counts[each]["failed"] > 0, counts[each]["failed"] or counts[each]["warning"]) for each in names]
    assert gravity == sorted(gravity, reverse=True)
    assert {each for each, _ in gravity} == {True, False}
    link = page.find_class("change")[0].xpath("p/a")[0]
    assert link.get("href") == f"#?q=a:{names[0]}+s:failed"
    assert link.text == f"{counts[names[0]]['failed']} messages"


def test_times_of_the_same_second_are_said_once(tmp_path: Path) -> None:
    """A log of a moment has no span."""
    bad = [capture(request(n, properties={}), at(n / 10), Direction.REQUEST) for n in range(3)]
    replay(write_log(tmp_path / "log.jsonl", *bad), tmp_path / "out", engine="local")
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    assert "3 messages, captured on 20 Nov 2026, 12:00:00 UTC (within 200 milliseconds): " in words
    assert "On 20 Nov 2026, 12:00:00 UTC (within 200 milliseconds). " in words


def test_what_rests_on_a_finding_is_folded_into_it(tmp_path: Path) -> None:
    """What could not be judged is told with the assertion that was broken, and is no finding of its own."""
    bad = capture(request(1, properties={}), at(0), Direction.REQUEST)
    replay(write_log(tmp_path / "log.jsonl", bad), tmp_path / "out", engine="local")
    causes = Page((tmp_path / "out" / "report.html").read_text("utf-8")).data["causes"]
    resting = {name for name, each in summary(tmp_path / "out")["assertions"].items() if each["prereqFailed"]}
    assert resting
    assert {each["v"] for each in causes} <= {"failed", "warning", "missingInput"}
    assert {name for each in causes if each["v"] == "failed" for name in each["f"]} == resting


def with_uris(*uris: str) -> list[Record]:
    """Return one-way messages with some requestURIs."""
    sent = [properties({**TO_SERVICE, "SOAPJMS_requestURI": uri}) for uri in uris]
    messages = (request(number, properties=each, reply_to=None) for number, each in enumerate(sent))
    return [capture(each, at(number), Direction.ONE_WAY) for number, each in enumerate(messages)]


@pytest.mark.parametrize("engine", ["local", "exact"])
def test_one_mistake_is_one_finding(tmp_path: Path, engine: Any) -> None:
    """Where targetService is left in the URI, three rules say so; they are counted, and told as one."""
    log = write_log(tmp_path / "log.jsonl", *with_uris("jms:queue:greeter", *["jms:queue:greeter?targetService=x"] * 3))
    replay(log, tmp_path / "out", engine=engine)
    found = summary(tmp_path / "out")
    (senders,) = found["parties"]
    assert senders["failed"] == {"Protocol-2009": 3, "Protocol-2021": 3, "Protocol-2024": 3}
    assert senders["sameMistakes"] == {"Protocol-2009": 3, "Protocol-2024": 3}
    assert headline(found) == "Senders to queue:greeter break 1 MUST in 3 of 4 one-way messages"
    page = Page((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert [(each["a"], each["b"]) for each in page.data["causes"]] == [
        ("Protocol-2021", {"Protocol-2009": 3, "Protocol-2024": 3})
    ]
    words = " ".join(page.words.split())
    assert "the same mistake breaks Protocol-2009, Protocol-2024" in words
    changes = words[words.index("For each broken assertion, ") : words.index("Every assertion")]
    assert changes.count("§ ") == 1
    junit = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert len([*junit.iter("failure")]) == 3


@pytest.mark.browser
@pytest.mark.peer
def test_a_search_finds_what_is_told_with_another_finding(tmp_path: Path, opens: Opens) -> None:
    """The assertions that the same mistake breaks, and those that lack the same input."""
    log = write_log(
        tmp_path / "log.jsonl",
        *with_uris("jms:queue:greeter?targetService=x"),
        capture(request(9), at(9), Direction.REQUEST),
    )
    replay(log, tmp_path / "out", engine="local")
    page = opens(tmp_path / "out" / "report.html")
    for search, names in (("q:greeter s:failed", {"2009", "2021", "2024"}), ("q:greeter s:missing", {"2037", "2038"})):
        page.locator("#query").fill(search)
        for name in names:
            expect(page.locator(f"#rows tr[data-id='Protocol-{name}']")).to_be_visible()
        expect(page.locator("#causes tr.cause:visible")).to_have_count(1)


def test_another_mistake_is_another_finding(tmp_path: Path) -> None:
    """One that is there without the first, beside it, or known from elsewhere."""
    both = "jms:queue:greeter?targetService=x&replyToName=y"
    log = write_log(tmp_path / "log.jsonl", *with_uris(both, "jms:queue:greeter?replyToName=y"))
    replay(log, tmp_path / "out", engine="local")
    causes = Page((tmp_path / "out" / "report.html").read_text("utf-8")).data["causes"]
    assert {each["a"]: [*each["b"]] for each in causes} == {"Protocol-2021": ["Protocol-2009"], "Protocol-2024": []}
    log = write_log(tmp_path / "log.jsonl", *with_uris("jms:queue:greeter?targetService=x"))
    replay(log, tmp_path / "out", engine="local", senders="jms:queue:greeter?targetService=x")
    causes = Page((tmp_path / "out" / "report.html").read_text("utf-8")).data["causes"]
    assert {each["a"]: [*each["b"]] for each in causes if each["v"] == "failed"} == {
        "Protocol-2021": ["Protocol-2024"],
        "Protocol-2009": [],
    }


def test_what_lacks_the_same_is_one_finding(tmp_path: Path) -> None:
    """Requests without a response: one line for all rules on pairs, by the service, and found by each of their ids."""
    records = [capture(request(number), at(number), Direction.REQUEST) for number in range(8)]
    records.append(capture(response(9), at(9), Direction.RESPONSE))
    replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine="local")
    page = Page((tmp_path / "out" / "report.html").read_text("utf-8"))
    causes = [each for each in page.data["causes"] if each["v"] == "missingInput"]
    parties = [who for *_, who in page.data["parties"]]
    said = {each["r"]: (each["n"], [parties[by] for by in each["w"][::2]]) for each in causes}
    assert said == {
        "the response was not captured": (8, ["the service at queue:greeter"]),
        "the request was not captured": (1, ["clients of temporary queues"]),
    }
    rules = {name for name, each in summary(tmp_path / "out")["assertions"].items() if each["missingInput"]}
    assert len(rules) > 5
    for each in causes:
        assert {each["a"], *each["f"]} == rules
        assert each["t"] == f"{len(rules)} rules could not be judged"


def test_what_rests_on_a_rule_without_input_lacks_the_same(tmp_path: Path) -> None:
    """A body that was cut is one finding, with what rests on the rules that read it."""
    whole = [capture(request(number, reply_to=None), at(number), Direction.ONE_WAY) for number in range(3)]
    cut = [replace(each, truncated=True) for each in whole]
    replay(write_log(tmp_path / "log.jsonl", *cut), tmp_path / "out", engine="local")
    causes = Page((tmp_path / "out" / "report.html").read_text("utf-8")).data["causes"]
    assert [each["v"] for each in causes] == ["missingInput"]
    rules = {name for name, each in summary(tmp_path / "out")["assertions"].items() if each["missingInput"]}
    assert {causes[0]["a"], *causes[0]["f"]} == rules, causes


@pytest.mark.parametrize("text", [None, '{"version": 1}'])
def test_a_folder_of_an_earlier_version_has_no_parties(tmp_path: Path, text: str | None) -> None:
    """Its page has the verdict at the top, and its junit.xml one suite; findings are read from its verdicts."""
    replay(CXF, tmp_path / "out", engine="local")
    (tmp_path / "out" / "report.json").unlink()
    if text is not None:
        (tmp_path / "out" / "report.json").write_text(text)
    members = summary(tmp_path / "out")
    del members["parties"]
    (tmp_path / "out" / "summary.json").write_text(json.dumps(members))
    rewrite(tmp_path / "out")
    assert "<h1><bdi>Failed</bdi></h1>" in (tmp_path / "out" / "report.html").read_text("utf-8")
    junit = (tmp_path / "out" / "junit.xml").read_text("utf-8")
    assert junit.count("<testsuite ") == 1
    assert junit.count("<failure ") == 1


def test_a_service_is_told_what_it_should_have_answered(tmp_path: Path) -> None:
    """The edition of 2012 has one id for a rule and for the answer to its breach; each party reads of its own."""
    asked = request(1)
    bare = properties({each.name: each.value for each in asked.properties if each.name != "SOAPJMS_contentType"})
    records = [
        capture(request(1, properties=bare), at(0), Direction.REQUEST),
        capture(response(1), at(1), Direction.RESPONSE),
    ]
    replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine="local")
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    service = words[words.index("the service at queue:greeter") :].partition("Messages")[0]
    clients = words[words.index("clients of queue:greeter break") :].partition("the service")[0]
    assert rule_texts("rec-2012")["Protocol-2016/answer"].rule in service
    assert rule_texts("rec-2012")["Protocol-2016"].rule in clients
    assert "The service: " in words


def to_earlier_version(out: Path) -> None:
    """Write results as the version before did: without times of rules, and with one count for a rule and its answer."""
    members, more = summary(out), json.loads((out / "report.json").read_text("utf-8"))
    for party in members["parties"]:
        del party["times"], party["otherStacks"], party["sameMistakes"]
        for outcome in ("passed", "failed", "warning"):
            mixed: Counter[str] = Counter()
            for rule, number in party[outcome].items():
                mixed[assertion_of(rule)] += number
            party[outcome] = dict(mixed)
    groups: dict[tuple[str, str], list[Any]] = {}
    for rule, outcome, level, causes in more["findings"]:
        groups.setdefault((assertion_of(rule), outcome), [level, []])[1].extend(causes)
    more["findings"] = [[*key, *rest] for key, rest in groups.items()]
    for _, parties, *_ in more["places"]:
        for party in parties:
            party[5] = [None, None]
    more["version"] = 2
    (out / "summary.json").write_text(json.dumps(members))
    (out / "report.json").write_text(json.dumps(more))


def many(count: int, broken: set[int]) -> list[Record]:
    """Return a one-way message to each of many destinations, some with a wrong version."""
    records = []
    for number in range(count):
        changes = {"SOAPJMS_bindingVersion": "0.3"} if number in broken else {}
        changes["SOAPJMS_requestURI"] = f"jms:queue:svc.{number:03}"
        given = properties({**TO_SERVICE, **changes})
        sent = request(number, properties=given, destination=queue(f"svc.{number:03}"), reply_to=None)
        records.append(capture(sent, at(number), Direction.ONE_WAY))
    return records


def test_destinations_where_rules_are_broken_are_listed_first(tmp_path: Path) -> None:
    """More destinations than are listed: the headline counts each party, and nobody is told of a sum of parties."""
    replay(write_log(tmp_path / "log.jsonl", *many(260, {230, 240, 250})), tmp_path / "out", engine="local")
    found = summary(tmp_path / "out")
    assert [each["destination"] for each in found["parties"]][:3] == [f"queue:svc.{n}" for n in (230, 240, 250)]
    assert found["parties"][-1]["destination"] is None
    assert not found["parties"][-1]["failed"]
    assert headline(found) == "3 of 260 parties break one MUST: SOAPJMS_bindingVersion is present and 1.0"
    replay(write_log(tmp_path / "log.jsonl", *many(260, {*range(220)})), tmp_path / "out", engine="local")
    found = summary(tmp_path / "out")
    assert headline(found) == "220 of 260 parties break one MUST: SOAPJMS_bindingVersion is present and 1.0"
    assert found["otherParties"] == {"destinations": 60, "parties": 60, "failed": 20, "warning": 0, "isAll": True}
    *_, last = party_lines(found, most=1000)
    assert last.startswith("Senders to all other destinations break 1 MUST in 20 of 60 one-way messages")


def test_a_log_without_any_record(tmp_path: Path) -> None:
    """The page says that nothing could be read, and no more."""
    log = write_log(tmp_path / "log.jsonl")
    log.write_text('{"v": 2}\n{"v": 3}\n')
    replay(log, tmp_path / "out", engine="local")
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    assert "None of 2 records could be read No message could be judged. Judged by profile" in words
    assert "0 messages" not in words
    assert "--against" not in words[: words.index("How to search")]


def test_times_are_told_with_how_long_they_are_apart(tmp_path: Path) -> None:
    """One time for what came at once; and whether there was anything to compare with."""
    records = [
        capture(request(1, properties=properties({**TO_SERVICE, "SOAPJMS_bindingVersion": "0.3"})), at(0)),
        capture(response(1), at(0.02), Direction.RESPONSE),
    ]
    replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine="local")
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    top = words[: words.index("How to search")]
    assert "captured on 20 Nov 2026, 12:00:00 UTC (within 20 milliseconds): " in top
    assert "in the only request On 20 Nov 2026, 12:00:00 UTC. " in top
    assert "Not compared with an earlier replay: --against DIR does." in top


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0004, "less than 1 millisecond"),
        (0.02, "20 milliseconds"),
        (1, "1 second"),
        (1.4, "1400 milliseconds"),
        (35, "35 seconds"),
        (3600, "1 hour"),
        (86398, "24 hours"),
        (86400 * 3.2, "3 days"),
    ],
)
def test_how_long_something_lasted(seconds: float, said: str) -> None:
    """In the unit that a person would take."""
    assert length(timedelta(seconds=seconds)) == said.replace("1400", "1,400")


def test_clients_of_no_known_stack_are_not_all_clients(tmp_path: Path) -> None:
    """Beside those with a known stack they are the others, in each place that names them."""
    records = []
    for number in range(20):
        changes = {"SOAPJMS_isFault": "false"} if number % 2 else {}  # as CXF has it
        bad = {**TO_SERVICE, **changes, "SOAPJMS_bindingVersion": "0.3"}
        records.append(capture(request(number, properties=properties(bad)), at(number), Direction.REQUEST))
    replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine="local")
    found = summary(tmp_path / "out")
    assert {(each["stack"], *each["otherStacks"]) for each in found["parties"]} == {(None, "cxf"), ("cxf",)}
    page = Page((tmp_path / "out" / "report.html").read_text("utf-8"))
    words = " ".join(page.words.split())
    assert "other clients of queue:greeter no known stack break " in words
    assert "clients of queue:greeter Apache CXF break " in words
    assert "other clients of queue:greeter" in {who for *_, who in page.data["parties"]}
    assert "other clients of queue:greeter (no known stack)" in (tmp_path / "out" / "junit.xml").read_text("utf-8")


def test_results_of_the_version_before_are_read(tmp_path: Path) -> None:
    """Their page has the times of parties, and names answers as such."""
    replay(write_log(tmp_path / "log.jsonl", *answered_as_if_right()), tmp_path / "out", engine="local")
    to_earlier_version(tmp_path / "out")
    assert "Protocol-2016" in of_node(summary(tmp_path / "out"), "responding")["failed"]
    rewrite(tmp_path / "out")
    words = " ".join(Page((tmp_path / "out" / "report.html").read_text("utf-8")).words.split())
    assert rule_texts("rec-2012")["Protocol-2016/answer"].rule in words[: words.index("How to search")]
    assert " first 20 Nov" not in words[: words.index("How to search")]
    assert "First 20 Nov 2026, 12:0" in words
