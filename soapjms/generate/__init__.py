"""Generate capture logs: traffic as real stacks make it, of any size, with breaches at known rates.

For benchmarks, and to hold the judge against what is known: each breach has a label. The same arguments give the
same octets. `shapes.py` says what exchanges look like, `calls.py` makes their messages, `violations.py` says what
one way to break the rules is and `table.py` has them all, `traffic.py` says who captured what and what a replay has
to find, `files.py` writes.

Spec: capture record, version 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

from soapjms.capture.log import DEFAULT_ROTATION_OCTETS
from soapjms.generate.calls import Caller, GeneratedCall
from soapjms.generate.files import FORMS, LogWriter, writer
from soapjms.generate.table import VIOLATIONS
from soapjms.generate.traffic import (
    SECOND_MICROSECONDS,
    START,
    Chances,
    Totals,
    TrafficLine,
    TrafficQueue,
    calls,
    labels,
)
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, EDITIONS, Profile

__all__ = ["BROKEN", "DISORDER", "FORMS", "PACE", "VIOLATIONS", "Generated", "generate"]

BROKEN: Final = 0.02
"""The share of exchanges that break something."""
REPORT_EVERY: Final = 10_000
PACE: Final = 500.0
"""Messages in a second of the log's time."""
DISORDER: Final = 2.0
"""Seconds by which a line may stand later in the log than its time says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What was written.

    Attributes:
        files: the logs.
        members: what expected.json holds.
    """

    files: tuple[Path, ...]
    members: Mapping[str, Any]


def generate(
    out: str | os.PathLike[str],
    messages: int,
    *,
    seed: int = 1,
    profile: str = DEFAULT_PROFILE.name,
    form: str = "jsonl",
    broken: float = BROKEN,
    rates: Mapping[str, float] = MappingProxyType({}),
    queues: int = 20,
    skew: float = 0.0,
    pace: float = PACE,
    disorder: float = DISORDER,
    rotation: int = DEFAULT_ROTATION_OCTETS,
    progress: Callable[[int], None] = lambda done: None,
) -> Generated:
    """Write logs into `out`/logs, the labels into `out`/labels.jsonl and what a replay finds into `out`/expected.json.

    Args:
        out: a folder that is empty or not there yet.
        messages: how many; copies of a message, seen by several nodes, are further lines.
        seed: another one makes another log.
        profile: the edition of the specification by which labels are made, and that clean traffic keeps.
        form: jsonl, gzip or parquet.
        broken: share of exchanges that break something, spread evenly over the table of violations; only of those
            that `rates` does not name.
        rates: share of exchanges for violations by their names.
        queues: number of destinations.
        skew: share of exchanges that go to the first of them; 0 for an even spread.
        pace: messages in a second of the log's time.
        disorder: seconds by which a line may stand later in the log than its time says.
        rotation: octets of a file after which another is begun.
        progress: told now and then how many messages were made.

    Raises:
        UsageError: an argument that cannot be, or a folder that holds something.
    """
    edition, folder = _edition(profile), Path(out)
    chances = Chances(_rates(edition, broken, rates))
    _check(messages=messages, queues=queues, skew=skew, pace=pace, disorder=disorder, rotation=rotation)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name a new folder")
    log = writer(form, folder / "logs", rotation, START)
    totals, random = Totals(), Random(seed)  # noqa: S311  # nothing secret is drawn
    caller = Caller(random, edition, [f"orders.{n:03}" for n in range(queues)], skew)
    made = _reported(calls(caller, random, chances, messages, pace), progress)
    _write(_lines(made, totals, TrafficQueue(random, disorder), folder / "labels.jsonl"), log, totals)
    members = {"producer": "soapjms generate", "profile": edition.name, "seed": seed, **totals.members()}
    (folder / "expected.json").write_text(json.dumps(members, indent=2) + "\n", "utf-8")
    return Generated(files=tuple(log.files), members=members)


def _write(lines: Iterator[TrafficLine], log: LogWriter, totals: Totals) -> None:
    for line in lines:
        log.add(line)
        totals.records += 1
    log.close()


def _lines(
    made: Iterator[GeneratedCall], totals: Totals, traffic: TrafficQueue, labelled: Path
) -> Iterator[TrafficLine]:
    """Give out the lines of the log, and write the labels of each call."""
    with labelled.open("w", encoding="utf-8", newline="\n") as said:
        for call in made:
            totals.add(call)
            said.writelines(each + "\n" for each in labels(call, totals))
            yield from traffic.add(call)
    yield from traffic.rest()


def _reported(made: Iterator[GeneratedCall], progress: Callable[[int], None]) -> Iterator[GeneratedCall]:
    done = told = 0
    for call in made:
        done += len(call.messages)
        if done - told >= REPORT_EVERY:
            told = done
            progress(done)
        yield call


def _edition(name: str) -> Profile:
    if name not in EDITIONS:
        raise UsageError(f"{name!r} is no edition of the specification; there are {', '.join(EDITIONS)}")
    return EDITIONS[name]


def _check(*, messages: int, queues: int, skew: float, pace: float, disorder: float, rotation: int) -> None:
    if messages < 0 or queues < 1:
        raise UsageError(f"{messages} messages to {queues} queues; at least 0 to 1")
    if rotation < 1:
        raise UsageError(f"a rotation of {rotation} octets; at least 1")
    if not 0 <= skew <= 1 or (skew and queues == 1):
        raise UsageError(f"a skew of {skew}; it is a share, 0 to 1, and there have to be two queues")
    if not 0 < pace <= SECOND_MICROSECONDS or not 0 <= disorder <= 3600:
        raise UsageError(
            f"a pace of {pace} and a disorder of {disorder}; above 0 to {SECOND_MICROSECONDS}, and 0 to 3600 seconds"
        )


def _rates(edition: Profile, broken: float, rates: Mapping[str, float]) -> dict[str, float]:
    """Return the share of exchanges for each violation that the edition knows."""
    known = {name for name, row in VIOLATIONS.items() if edition.name in row.editions}
    wrong = sorted(set(rates) - known)
    if wrong:
        raise UsageError(f"{wrong[0]!r} is no violation under {edition.name}; see soapjms generate --list")
    rest = sorted(known - set(rates))
    shares = {**{name: broken / len(rest) for name in rest}, **rates}
    if any(not 0 <= share <= 1 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise UsageError(f"shares of {sum(shares.values()):g} in all; each is 0 to 1, and so is their sum")
    return {name: shares[name] for name in sorted(shares)}
