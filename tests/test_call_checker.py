"""The checker of many calls finds each kind of thing that can go wrong, and nothing where nothing did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from call_checker import Story, Verdict, check
from calling_kit import answer_to, envelope, request_message

from brokers import Message, queue
from soapjms.protocol.record import EPOCH, Direction, Node, Record, to_json


def request(number: int, **changes: object) -> Message:
    """Make the request of a number."""
    made = request_message("booker", queue("answers"), envelope(str(number)))
    return replace(made, correlation_id=f"c{number}", **changes)  # type: ignore[arg-type]


def written(path: Path, messages: Iterable[tuple[Message, Direction]]) -> Path:
    """Write a log."""
    records = [
        Record(message=message, time=EPOCH, direction=direction, node=Node.REQUESTING)
        for message, direction in messages
    ]
    path.write_text("".join(f"{to_json(each)}\n" for each in records), "utf-8")
    return path


def answered(number: int, text: str | None = None) -> tuple[Message, Direction]:
    """Make the answer to a number."""
    return answer_to(request(number), f"Hello {number}" if text is None else text), Direction.RESPONSE


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Two callers and four calls, of which all went well."""
    logs = {
        name: written(
            tmp_path / f"{name}.jsonl",
            [each for number in numbers for each in ((request(number), Direction.REQUEST), answered(number))],
        )
        for name, numbers in (("a", (0, 2)), ("b", (1, 3)))
    }
    service = written(tmp_path / "service.jsonl", [(request(number), Direction.REQUEST) for number in range(4)])
    return Story(
        callers=logs,
        services=[service],
        numbers=range(4),
        outcomes={number: f"Hello {number}" for number in range(4)},
        confirmed=frozenset(f"c{number}" for number in range(4)),
        unsent=frozenset(),
        effects=range(4),
        other_effects=[0, 1, 1, 2, 3],
        seed=7,
    )


def test_all_is_well(story: Story) -> None:
    """Every call has its answer; what may come twice is counted."""
    verdict = check(story)
    assert verdict == Verdict(seed=7, answered=4, other_effects_twice=1)
    assert verdict.is_good
    assert str(verdict).startswith("lost 0, doubled 0, unexpected 0, unknown 0, unanswered 0 (answered 4")


def test_lost(story: Story) -> None:
    """The broker said that it has a request, and it was never carried out."""
    assert check(replace(story, effects=[0, 1, 3])).lost == [2]


def test_doubled(story: Story) -> None:
    """An effect came twice."""
    assert check(replace(story, effects=[0, 1, 1, 2, 3])).doubled == [1]


def test_copies(story: Story) -> None:
    """An answer came twice, which its client keeps from its caller."""
    log = story.callers["a"]
    log.write_text(log.read_text("utf-8") + log.read_text("utf-8").splitlines()[1] + "\n", "utf-8")
    assert check(story).copies == [0]
    assert check(story).is_good


@pytest.mark.parametrize(
    "stray", [answered(1), answered(0, "Hello 2"), answered(0, "nothing")], ids=["another's", "mixed up", "wrong"]
)
def test_unexpected_answer(story: Story, stray: tuple[Message, Direction], tmp_path: Path) -> None:
    """An answer that is somebody else's, or not to what was asked."""
    log = written(tmp_path / "stray.jsonl", [(request(0), Direction.REQUEST), stray])
    callers = {**story.callers, "a": log}
    assert check(replace(story, callers=callers)).unexpected[0] == f"a got {stray[0].correlation_id}"


def test_unexpected_outcome(story: Story) -> None:
    """A caller was handed another answer."""
    outcomes = {**story.outcomes, 2: "Hello 3"}
    assert check(replace(story, outcomes=outcomes)).unexpected == ["2 was answered 'Hello 3'"]


def test_unexpected_effect(story: Story) -> None:
    """An effect of a request that was not sent, or of one that nobody asked."""
    outcomes = {**story.outcomes, 2: None}
    assert check(replace(story, outcomes=outcomes, unsent=frozenset({2}))).unexpected == [
        "an effect of 2, which was not sent"
    ]
    assert check(replace(story, effects=range(5))).unexpected == ["an effect of 4, which was not sent"]


def test_unexpected_request(story: Story, tmp_path: Path) -> None:
    """A service saw a request of nobody."""
    log = written(tmp_path / "strange.jsonl", [(request(9), Direction.REQUEST)])
    assert check(replace(story, services=[log])).unexpected == ["a service saw c9, which nobody sent"]


def test_unknown_and_unanswered(story: Story) -> None:
    """An error that leaves the outcome open is no fault; no outcome at all is."""
    verdict = check(replace(story, outcomes={0: "Hello 0", 1: None, 2: "Hello 2"}))
    assert (verdict.unknown, verdict.unanswered) == ([1], [3])
    assert not verdict.is_good


def test_cut_line(story: Story) -> None:
    """The last line of a service that was killed while it wrote says nothing."""
    (log,) = story.services
    with log.open("a", encoding="utf-8") as lines:
        lines.write('{"v":1,"time":"20')
    assert check(story).is_good
