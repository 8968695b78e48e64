"""Two replays in one page: what each party breaks now, and what it broke before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_kit import run
from replay_logs import CXF, at, request, response, summary, write_log
from report_kit import Page

from brokers import properties
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, Record, capture
from soapjms.replay import replay
from soapjms.replay.report import load, rewrite
from soapjms.replay.report.comparison import Course, compare_parties
from soapjms.replay.report.sentences import comings, courses, party_name

GOOD = {"SOAPJMS_contentType": "text/xml; charset=utf-8", "SOAPJMS_bindingVersion": "1.0"}


def calls(*bad: str, total: int, first: float = 0) -> list[Record]:
    """Return some calls; the first ones lack a property each or have a wrong version."""
    records = []
    for number in range(total):
        asked = request(number)
        changes = {each.name: each.value for each in asked.properties}
        if number < len(bad):
            if bad[number] == "version":
                changes["SOAPJMS_bindingVersion"] = "0.3"
            else:
                del changes["SOAPJMS_contentType"]
        asked = request(number, properties=properties(changes))
        records.append(capture(asked, at(first + number), Direction.REQUEST))
        records.append(capture(response(number), at(first + number + 0.1), Direction.RESPONSE))
    return records


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Replay what was captured first: 20 of 200 with a wrong version, 20 without a content type."""
    replay(
        write_log(tmp_path / "before.jsonl", *calls(*["version", "type"] * 20, total=200)),
        tmp_path / "before",
        engine="local",
    )
    return tmp_path / "before"


def now(tmp_path: Path, before: Path, *bad: str, total: int = 10, **options: Any) -> Path:
    """Replay what was captured later, against the first."""
    log = write_log(tmp_path / "now.jsonl", *calls(*bad, total=total, first=7 * 86400))
    replay(log, tmp_path / "now", engine="local", against=before, **options)
    return tmp_path / "now"


@pytest.mark.parametrize(
    ("bad", "total", "course", "sentence"),
    [
        (["version", "type"] * 20, 200, {"same"}, ""),
        (["version", "type"] * 21, 200, {"same"}, ""),
        (["version"] * 60 + ["type"] * 20, 200, {"more", "same"}, "worse: 1 broken more often"),
        (["version", "type"] * 20, 800, {"fewer"}, "better: 2 broken less often"),
        (["version"] * 20, 200, {"gone", "same"}, "better: 1 no longer broken"),
        (["version"] * 60, 200, {"gone", "more"}, "partly worse: 1 broken more often, 1 no longer broken"),
        ([], 10, {"gone"}, "better: 2 no longer broken"),
    ],
)
def test_how_a_rule_changed(
    tmp_path: Path, before: Path, bad: list[str], total: int, course: set[str], sentence: str
) -> None:
    """By the share of the messages that it applies to, unless chance explains it; what was not broken before is new."""
    found = load(now(tmp_path, before, *bad, total=total))
    changes = compare_parties(load(before), found)
    clients = next(each for each in changes if (each.now or {})["node"] == "requesting")
    broken = {"Protocol-2010", "Protocol-2016"}
    assert {str(each.course) for each in clients.rules if each.rule in broken} == course
    said = courses([clients])
    assert sentence in said if course != {"same"} else said == "the same rules are broken"


def test_new_and_gone_parties(tmp_path: Path, before: Path) -> None:
    """A party that only one of the runs has is listed, with what it breaks or broke."""
    replay(CXF, tmp_path / "now", engine="local", against=before)
    changes = compare_parties(load(before), load(tmp_path / "now"))
    gone = [each for each in changes if each.now is None]
    assert {party_name(each.before or {}) for each in gone} == {
        "clients of queue:greeter",
        "the service at queue:greeter",
    }
    new = [rule for each in changes if each.before is None for rule in each.rules]
    assert new[0] == ("Protocol-2010", Course.FIRST, (0, 0), (1, 9))
    assert all(not each.rules for each in gone)
    words = " ".join(Page((tmp_path / "now" / "report.html").read_text("utf-8")).words.split())
    top = words[: words.index("How to search")]
    assert "no party of one replay is in the other. New: clients of queue:CXF.CAPTURE (Apache CXF), " in top
    assert "Not seen now: " in top
    assert "New: not seen before." in top
    assert "The service at queue:greeter breaks 2 MUSTs in 40 of 200 responses" in words


def test_a_party_that_went_away_is_no_better(tmp_path: Path, before: Path) -> None:
    """Neither is one that is there, but is not judged by the rule any more: a service to which nobody breaks a rule."""
    log = tmp_path / "clients.jsonl"
    asked = [each for each in calls(*["version", "type"] * 20, total=200) if each.direction is Direction.REQUEST]
    replay(write_log(log, *asked), tmp_path / "clients", engine="local", against=before)
    changes = compare_parties(load(before), load(tmp_path / "clients"))
    assert courses(changes) == "the same rules are broken"
    assert list(comings(changes)) == ["Not seen now: the service at queue:greeter."]
    found = load(now(tmp_path, before, total=50))
    changes = compare_parties(load(before), found)
    service = next(each for each in changes if each.now is not None and each.now["node"] == "responding")
    assert {each.rule: (each.course, *each.before, *each.now) for each in service.rules} == {
        "Protocol-2011": (Course.UNSEEN, 20, 20, 0, 0),
        "Protocol-2016/answer": (Course.UNSEEN, 20, 20, 0, 0),
    }
    assert courses(changes) == "better: 2 no longer broken, 2 not judged now"


def test_the_command_and_the_page_have_one_rule(tmp_path: Path, before: Path) -> None:
    """What chance explains is no change on the terminal either, and each party is named there."""
    out = now(tmp_path, before, *["version"] * 60, total=200)
    done = run("report", str(before), str(out))
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert "clients of queue:greeter: broken more often, 20 of 200 → 60 of 200" in text
    said = courses(compare_parties(load(before), load(out)))
    assert f"parties: {said}" in text
    again = now(tmp_path, before, *["version", "type"] * 21, total=200)
    done = run("report", str(before), str(again))
    assert done.exit_code == 0
    assert "assertions: 0 worse, 0 better" in " ".join(done.output.split())


def test_an_earlier_version_counted_a_rule_and_its_answer_as_one(tmp_path: Path, before: Path) -> None:
    """What it counted of both cannot be told apart, and is no change; all else is compared."""
    members = summary(before)
    for party in members["parties"]:
        del party["times"]
        for outcome in ("passed", "failed"):
            for rule in [each for each in party[outcome] if each.endswith("/answer")]:
                number = party[outcome].pop(rule)
                party[outcome][rule.partition("/")[0]] = number + party[outcome].get(rule.partition("/")[0], 0)
    (before / "summary.json").write_text(json.dumps(members))
    changes = compare_parties(load(before), load(now(tmp_path, before, total=50)))
    service = next(each for each in changes if each.now is not None and each.now["node"] == "responding")
    assert [each.rule for each in service.rules] == ["Protocol-2011"]
    again = load(now(tmp_path, before, *["version", "type"] * 20, total=200))
    assert courses(compare_parties(load(before), again)) == "the same rules are broken"
    assert courses(changes).startswith("better: 2 no longer broken")


def test_a_replay_without_parties_is_not_compared(tmp_path: Path, before: Path) -> None:
    """One of a version that did not tell parties apart; the page says so."""
    members = summary(before)
    del members["parties"]
    (before / "summary.json").write_text(json.dumps(members))
    out = now(tmp_path, before, total=50)
    assert "The earlier replay was written by an earlier version, which did not tell parties apart" in (
        out / "report.html"
    ).read_text("utf-8")
    done = run("report", str(before), str(out), "--json")
    assert json.loads(done.output)["parties"] == []
    assert json.loads(done.output)["assertions"]["Protocol-2010"]["turn"] == "better"


def test_the_page_tells_what_changed(tmp_path: Path, before: Path) -> None:
    """At the top, with each party, and in a table."""
    out = now(tmp_path, before, *["version"] * 60, total=200)
    words = " ".join(Page((out / "report.html").read_text("utf-8")).words.split())
    top = words[: words.index("How to search")]
    assert "Compared with the replay captured from 20 Nov 2026, 12:00:00 UTC to 20 Nov 2026, 12:03:19 UTC: " in top
    assert "partly worse: 1 broken more often, " in top
    assert "not judged now." in top
    assert "Before: 2 MUSTs in 40 of 200 requests." in top
    assert "1 rule broken more often." in top
    assert "No longer broken: Protocol-2016" in top
    assert "Not judged now: Protocol-2016" in top
    assert "Before: 2 MUSTs in 40 of 200 responses." in top
    table = words[words.index("Compared with the earlier replay What each") :]
    assert "broken more oftenclients of queue:greeterProtocol-2010" in table
    assert "20 of 20060 of 200" in table
    assert "The earlier replay was judged" not in words


def test_results_may_be_compared_with_those_that_they_replace(tmp_path: Path, before: Path) -> None:
    """The earlier ones are read before they are replaced."""
    log = write_log(tmp_path / "now.jsonl", *calls(total=10))
    replay(log, before, engine="local", against=before)
    assert "better: 2 no longer broken, 2 not judged now" in (before / "report.html").read_text("utf-8")
    assert summary(before)["assertions"]["Protocol-2010"]["failed"] == 0


def test_a_page_is_made_again_with_a_comparison(tmp_path: Path, before: Path) -> None:
    """Also by the command; without it, the comparison is gone."""
    out = now(tmp_path, before, "version")
    whole = (out / "report.html").read_text("utf-8")
    rewrite(out)
    assert "Compared with" not in (out / "report.html").read_text("utf-8")
    done = run("report", str(out), "--against", str(before))
    assert done.exit_code == 0
    assert (out / "report.html").read_text("utf-8") == whole
    done = run("report", str(out), str(before), "--against", str(before))
    assert done.exit_code == 2
    assert "--against is for the page of DIR" in done.output


def test_other_profiles_are_refused_at_once(tmp_path: Path, before: Path) -> None:
    """Before anything is read; where the logs choose the profile, the page says that it does not compare."""
    with pytest.raises(UsageError, match="the first run was judged by profile rec-2012, the second by cr-2009"):
        now(tmp_path, before, profile="cr-2009")
    assert not (tmp_path / "now").exists()
    with pytest.raises(UsageError, match="name the folder that a replay wrote"):
        now(tmp_path, tmp_path / "nowhere")
    members = json.loads((before / "summary.json").read_text("utf-8"))
    (before / "summary.json").write_text(json.dumps({**members, "profile": "cr-2009"}))
    out = now(tmp_path, before, profile="auto")
    assert "The earlier replay was judged by profile cr-2009, and cannot be compared." in (
        out / "report.html"
    ).read_text("utf-8")


def test_where_results_come_from(tmp_path: Path) -> None:
    """The page says which version made it, when, and from which logs; a page that is made again says the same."""
    logs = [write_log(tmp_path / f"{number:02}.jsonl", *calls(total=1, first=number * 100)) for number in range(12)]
    replay(logs, tmp_path / "out", engine="local")
    first = (tmp_path / "out" / "report.html").read_text("utf-8")
    words = " ".join(Page(first).words.split())
    assert "Made by soapjms 0.1.0 on " in words
    assert "09.jsonl and 2 more logs." in words
    assert "10.jsonl" not in words[words.index("Made by") :]
    rewrite(tmp_path / "out")
    assert (tmp_path / "out" / "report.html").read_text("utf-8") == first
