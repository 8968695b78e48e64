"""The checker of many calls finds each kind of thing that can go wrong, and nothing where nothing did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from call_checker import BAD, SLACK_SECONDS, Did, Journal, Line, Story, Verdict, check, lines_of

TIMEOUT = 60.0
NO_STRAYS = {"unknown": 0, "foreign": 0, "duplicate": 0}
END: Line = {"did": Did.ENDED, "number": -1, "at": 9.0, "strays": NO_STRAYS, "left": []}


def line(did: Did, number: int, **more: Any) -> Line:
    """Make a line of a journal; whatever it says happened at a second of its own."""
    return {"did": did, "number": number, "at": 1.0 if did is Did.ASKED else 2.0, **more}


def answered(number: int) -> list[Line]:
    """Make what a journal has of a call that went well."""
    return [line(Did.ASKED, number), line(Did.CONFIRMED, number), line(Did.ANSWERED, number, text=f"Hello {number}")]


def failed(number: int, *, outcome: str = "unknown", kind: str = "CallFailedError", **more: Any) -> list[Line]:
    """Make what it has of one that did not."""
    classes = list(dict.fromkeys((kind, "Exception")))
    if kind == "CallTimeoutError":
        classes.insert(1, "CallFailedError")
    end = line(Did.FAILED, number, classes=classes, text="the line is cut", outcome=outcome)
    return [line(Did.ASKED, number), {**end, **more}]


def journal(name: str, *parts: list[Line], end: Line | None = END, **more: Any) -> Journal:
    """Make the journal of a process."""
    return Journal(name, [each for part in parts for each in part] + ([end] if end else []), **more)


MESSAGE = [line(Did.ASKED, 4), line(Did.CONFIRMED, 4), line(Did.SENT, 4)]
GOOD = Story(
    calls=6,
    timeout=TIMEOUT,
    journals=[
        journal("a", *map(answered, (1, 3)), [line(Did.ASKED, 0), line(Did.SENT, 0)]),
        journal("b", *map(answered, (2, 5)), MESSAGE),
    ],
    ended=10.0,
    effects=range(6),
    other_effects=[*range(6), 1],
    kills=2,
)
"""Two processes, four calls and two messages, of which all went well."""


def told(story: Story) -> dict[str, Any]:
    """Return what the checker holds against it."""
    verdict = check(story)
    return {name: getattr(verdict, name) for name in BAD if getattr(verdict, name)}


def with_calls(*parts: list[Line], **more: Any) -> Story:
    """Put other calls in the place of 2, 4 and 5."""
    return replace(GOOD, journals=[GOOD.journals[0], journal("b", *parts, **more)])


def test_all_is_well() -> None:
    """Every call has its answer; what may come twice is counted."""
    assert check(GOOD) == Verdict(calls=6, kills=2, answered=6, repeats=1)
    assert check(GOOD).problems == []


@pytest.mark.parametrize(("number", "name"), [(2, "call 2"), (4, "message 4")])
def test_lost(number: int, name: str) -> None:
    """The caller was told of success, or only that the broker has it, and it was never carried out."""
    effects = [each for each in range(6) if each != number]
    assert told(replace(GOOD, effects=effects)) == {"lost": [name]}


def test_lost_though_confirmed() -> None:
    """A process that was killed before the answer leaves a request that the broker has."""
    calls = with_calls(answered(5), MESSAGE, [line(Did.ASKED, 2), line(Did.CONFIRMED, 2)], end=None, was_killed=True)
    assert told(replace(calls, effects=[0, 1, 3, 4, 5])) == {"lost": ["call 2"]}
    assert check(calls).unknown == [2]


def test_doubled() -> None:
    """An effect came twice inside of the transaction."""
    assert told(replace(GOOD, effects=[*range(6), 4])) == {"doubled": ["message 4, 2 times"]}


def test_swapped() -> None:
    """Two callers got each other's answer."""
    swapped = [
        [line(Did.ASKED, 2), line(Did.ANSWERED, 2, text="Hello 5")],
        [line(Did.ASKED, 5), line(Did.ANSWERED, 5, text="Hello 2")],
    ]
    assert told(with_calls(MESSAGE, *swapped)) == {
        "wrong": ["2 was answered 'Hello 5'", "5 was answered 'Hello 2'"],
    }


def test_answers_of_nobody() -> None:
    """A client counted an answer that was for none of its calls, and a reply queue has one that nobody there asked."""
    stray = {**END, "strays": {**NO_STRAYS, "unknown": 2}}
    assert told(with_calls(answered(2), answered(5), MESSAGE, end=stray)) == {
        "wrong": ["b got 2 answers for calls of nobody (unknown)"]
    }
    answers = {"a": [1], "b": [5, 3]}
    assert told(replace(GOOD, answers=answers)) == {"wrong": ["b would have got an answer to 3"]}


def test_duplicates() -> None:
    """An answer that came twice is kept from its caller, and so allowed."""
    verdict = check(with_calls(answered(2), answered(5), MESSAGE, end={**END, "strays": {**NO_STRAYS, "duplicate": 3}}))
    assert (verdict.duplicates, verdict.problems) == (3, [])


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (failed(2, kind="KeyError"), "call 2 ended with KeyError: the line is cut"),
        (
            [line(Did.ASKED, 2), line(Did.ANSWERED, 2, text="fault: no such account")],
            "2 was answered 'fault: no such account'",
        ),
    ],
    ids=["an error that is not promised", "a fault"],
)
def test_unexpected(call: list[Line], found: str) -> None:
    """A call ended as none may."""
    assert told(with_calls(call, answered(5), MESSAGE)) == {"unexpected": [found]}


def test_unexpected_effect() -> None:
    """An effect of what nobody asked, and one of which the ledger outside knows nothing."""
    story = replace(GOOD, effects=range(7), other_effects=[0, 1, 2, 3, 4, 6])
    assert told(story) == {"unexpected": ["an effect of 6, which nobody asked", "an effect of 5, which never ran"]}


def test_unexpected_process() -> None:
    """Processes of callers end by themselves, or are killed; what a run noted of others counts too."""
    calls = with_calls(answered(2), answered(5), MESSAGE, end=None)
    assert told(replace(calls, strange=["service 1 ended with 1"])) == {
        "unexpected": ["service 1 ended with 1", "b did not come to its end"]
    }


@pytest.mark.parametrize("kind", ["CallFailedError", "CallTimeoutError"])
@pytest.mark.parametrize("effects", [range(6), [0, 1, 3, 4, 5]], ids=["done", "not done"])
def test_unknown(kind: str, effects: Any) -> None:
    """An error that leaves the outcome open is no fault, whatever the outcome is."""
    verdict = check(replace(with_calls(failed(2, kind=kind), answered(5), MESSAGE), effects=effects))
    assert (verdict.unknown, verdict.problems) == ([2], [])


@pytest.mark.parametrize("outcome", ["not sent", "refused"])
@pytest.mark.parametrize("effects", [range(6), [0, 1, 2, 3, 5]], ids=["effect", "effect that was undone"])
def test_lie(outcome: str, effects: Any) -> None:
    """The error says that no service can have seen it, and one did."""
    story = with_calls(answered(2), answered(5), failed(4, outcome=outcome))
    lie = f"message 4, of which its caller was told CallFailedError, {outcome}: the line is cut"
    assert told(replace(story, effects=effects)) == {"not_sent_but_done": [lie]}


@pytest.mark.parametrize("outcome", ["not sent", "refused"])
def test_no_lie(outcome: str) -> None:
    """It says so, and none did: its caller knows the outcome."""
    story = with_calls(answered(2), answered(5), failed(4, outcome=outcome))
    verdict = check(replace(story, effects=[0, 1, 2, 3, 5], other_effects=[0, 1, 2, 3, 5]))
    assert (verdict.problems, verdict.unknown) == ([], [])


def test_hung() -> None:
    """A call ended long after its time-out, or not at all, or was never begun."""
    late = failed(2, kind="CallTimeoutError", at=1 + TIMEOUT + SLACK_SECONDS + 1)
    assert told(with_calls(late, answered(5), MESSAGE)) == {"hung": ["call 2 of b for 76 s"]}
    without_end = replace(with_calls([line(Did.ASKED, 2)], answered(5), MESSAGE), ended=1 + TIMEOUT + SLACK_SECONDS + 1)
    assert told(without_end) == {"hung": ["call 2 of b for 76 s"]}
    assert told(replace(GOOD, calls=7)) == {"hung": ["6 was never asked"]}


def test_stopped_meanwhile() -> None:
    """The time in which its process was stopped is not the call's; a call of a process that was killed has no end."""
    late = failed(2, kind="CallTimeoutError", at=1 + TIMEOUT + SLACK_SECONDS + 1)
    assert told(with_calls(late, answered(5), MESSAGE, pauses=[(0.0, 0.5), (30.0, 32.0)])) == {}
    killed = with_calls([line(Did.ASKED, 2)], answered(5), MESSAGE, end=None, was_killed=True)
    assert told(replace(killed, ended=1000.0)) == {}


def test_tried_again() -> None:
    """Each try has its own time, and what the last one came to counts; carried out twice is twice all the same."""
    tries = [{**line(Did.ASKED, 2), "at": at} for at in (1.0, 61.0, 121.0)]
    story = with_calls([*tries, {**line(Did.ANSWERED, 2, text="Hello 2"), "at": 180.0}], answered(5), MESSAGE)
    assert (told(story), check(story).answered) == ({}, 6)
    assert told(replace(story, effects=[*range(6), 2])) == {"doubled": ["call 2, 2 times"]}


def test_left_over() -> None:
    """Messages in a queue, temporary destinations, and objects in a process of callers."""
    left = {**END, "left": ["StompConnection"]}
    story = replace(with_calls(answered(2), answered(5), MESSAGE, end=left), left=["2 in DLQ"])
    assert told(story) == {"left_over": ["2 in DLQ", "StompConnection in b"]}


def test_abandoned() -> None:
    """An answer to a caller who had left may wait at the broker, as a broker may make anew what it had removed."""
    story = replace(with_calls(failed(2), answered(5), MESSAGE), abandoned=[2])
    assert (check(story).abandoned, told(story)) == (1, {})
    assert told(replace(story, abandoned=[5])) == {"left_over": ["an answer to 5, whose caller was there"]}
    again = replace(with_calls([line(Did.ASKED, 2), *answered(2)], answered(5), MESSAGE), abandoned=[2])
    assert told(again) == {}


def test_problems_say_what_they_are() -> None:
    """Each in a line."""
    assert check(replace(GOOD, left=["2 in DLQ"], effects=[*range(6), 1])).problems == [
        "doubled: call 1, 2 times",
        "left over: 2 in DLQ",
    ]


def test_cut_line(tmp_path: Path) -> None:
    """The last line of a process that was killed while it wrote says nothing."""
    path = tmp_path / "journal"
    path.write_text(f'{json.dumps(line(Did.ASKED, 2))}\n{{"did": "answ', "utf-8")
    assert lines_of(path) == [line(Did.ASKED, 2)]
    assert lines_of(tmp_path / "none") == []
