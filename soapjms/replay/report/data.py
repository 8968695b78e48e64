"""What the page's script reads: the causes with their samples, as JSON in which no `<` stands.

The page has to stay small whatever a log holds, so samples have a budget: the gravest causes come first, and where it
is used up a sample says nothing of its message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from soapjms.replay.findings import Sample
from soapjms.replay.report.tables import BROKEN, NAMELESS, REST, UNKNOWN_STACK, Line
from soapjms.replay.report.texts import visible, visible_lines

SAMPLE_OCTETS: Final = 1_200_000
"""What all samples of a page may take."""
WHERE_SHOWN: Final = 40_000
"""How many pairs of a cause and a destination are in a page; all further ones count as other destinations."""


def embedded(lines: Iterable[Line], places: Iterable[str]) -> str:
    """Write the data for a script element: no text in it can end that element, whatever a log says."""
    return _safe(json.dumps(_data(list(lines), list(places)), ensure_ascii=False, separators=(",", ":")))


def _safe(text: str) -> str:
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _data(lines: list[Line], places: list[str]) -> dict[str, Any]:
    stacks = sorted({"", *(stack for line in lines for _, stack in line.cause.where)})  # no stack is the first
    causes, samples_left, where_left = [], SAMPLE_OCTETS, WHERE_SHOWN
    for line in lines:
        where = _where(line, {name: index for index, name in enumerate(places)}, stacks, where_left)
        where_left -= len(where)
        samples = _samples(line, samples_left)
        samples_left -= _size(samples)
        causes.append(
            {
                "a": line.row.id,
                "v": line.verdict,
                "l": line.row.level,
                "t": line.row.title,
                "r": visible(line.reason),
                "n": line.cause.count,
                "c": sorted({code for pair in line.cause.answers for code in pair if code}),
                "w": [number for each in where for number in each],
                "s": samples,
            }
        )
    return {
        "places": [*(visible(each) if each else NAMELESS for each in places), REST],
        "stacks": [each or UNKNOWN_STACK for each in stacks],
        "causes": causes,
    }


def _where(line: Line, places: Mapping[str, int], stacks: list[str], most: int) -> list[tuple[int, int, int]]:
    """Say where findings were, as place, stack and number; what is beyond the lists is at the place after the last."""
    ranked = sorted(line.cause.where.items(), key=lambda each: (-each[1], each[0]))
    listed = [each for each in ranked if each[0][0] in places][: max(0, most)]
    shown = [(places[place], stacks.index(stack), count) for (place, stack), count in listed]
    rest = line.cause.count - sum(count for _, _, count in shown)
    return [*shown, (len(places), 0, rest)] if rest else shown


def _samples(line: Line, most: int) -> list[dict[str, Any]]:
    shown = [_sample(each) for each in line.samples]
    if _size(shown) <= most:
        return shown
    bare = [{name: value for name, value in each.items() if name not in ("h", "b", "m")} for each in shown]
    bare = [{**each, "x": 1} for each in bare] if line.verdict in BROKEN else bare
    return bare if _size(bare) <= most else []


def _size(samples: list[dict[str, Any]]) -> int:
    return len(_safe(json.dumps(samples, ensure_ascii=False)).encode())


def _sample(sample: Sample) -> dict[str, Any]:
    members = {
        "t": sample.time,
        "e": visible(sample.exchange_id),
        "i": visible(sample.message_id),
        "q": visible(sample.destination),
        "r": visible(sample.reason),
        "x1": visible(sample.expected_subcodes),
        "x2": visible(sample.observed_subcode),
        "k": sample.stack,
        "d": sample.direction,
        "h": [[visible(name), visible(value)] for name, value in sample.headers],
        "b": visible_lines(sample.body),
        "m": sample.more,
    }
    return {name: value for name, value in members.items() if value}
