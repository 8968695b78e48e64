"""Generates capture logs: traffic like that of real stacks, of any size, with violations at known rates.

They serve benchmarks, and tests of the judge against known results: each violation has a label. The same arguments
give the same octets. `shapes.py` defines what exchanges look like, `calls.py` makes their messages, `violations.py`
defines a violation and `table.py` lists them all, `traffic.py` decides who captured what and what a replay must find,
`files.py` writes.

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
from soapjms.generate.files import FORMS, FormName, LogWriter, writer
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
from soapjms.protocol.names import DEFAULT_PROFILE, EDITIONS, EditionName, Profile

__all__ = ["BROKEN", "DISORDER", "FORMS", "PACE", "VIOLATIONS", "Generated", "generate"]

BROKEN: Final = 0.02
"""The share of exchanges with a violation."""
REPORT_EVERY: Final = 10_000
PACE: Final = 500.0
"""Messages per second of the log's time."""
DISORDER: Final = 2.0
"""Maximum delay, in seconds, of a line in the log relative to its time."""
MAX_LOG_SECONDS: Final = 100 * 365 * 86_400
"""Maximum time, in seconds, that a log is about; the years of its times have four digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The result of `generate`.

    Attributes:
        files: the log files.
        members: the content of expected.json.
    """

    files: tuple[Path, ...]
    members: Mapping[str, Any]


def generate(
    out: str | os.PathLike[str],
    messages: int,
    *,
    seed: int = 1,
    profile: Profile | EditionName = DEFAULT_PROFILE,
    form: FormName = "jsonl",
    broken: float = BROKEN,
    rates: Mapping[str, float] = MappingProxyType({}),
    queues: int = 20,
    skew: float = 0.0,
    pace: float = PACE,
    disorder: float = DISORDER,
    rotation: int = DEFAULT_ROTATION_OCTETS,
    progress: Callable[[int], None] = lambda done: None,
) -> Generated:
    """Write logs into `out`/logs, labels into `out`/labels.jsonl and the results of a replay into `out`/expected.json.

    Args:
        out: a folder that is empty or does not exist.
        messages: number of messages; copies of a message, captured by several nodes, are further lines.
        seed: seed of the random numbers; each seed makes another log.
        profile: the edition of the specification that labels refer to, and that clean traffic conforms to.
        form: jsonl, gzip or parquet.
        broken: share of exchanges with a violation, spread evenly over all violations that `rates` does not name.
        rates: share of exchanges for each violation by its name.
        queues: number of destinations.
        skew: share of exchanges that go to the first destination; 0 for an even spread.
        pace: messages per second of the log's time.
        disorder: maximum delay, in seconds, of a line in the log relative to its time.
        rotation: size in octets from which a file is followed by another.
        progress: called now and then with the number of messages made.

    Raises:
        UsageError: an argument is invalid, or the folder is not empty.
    """
    edition, folder = _edition(profile), Path(out)
    chances = Chances(_rates(edition, broken, rates))
    _check(messages=messages, queues=queues, skew=skew, pace=pace, disorder=disorder, rotation=rotation)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"out must be a new or empty folder, got {folder}, which is not empty")
    log = writer(form, folder / "logs", rotation, START)
    totals, random = Totals(), Random(seed)  # noqa: S311  # not for secrets
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
    """Yield the lines of the log, and write the labels of each call."""
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


def _edition(profile: Profile | EditionName) -> Profile:
    name = profile.name if isinstance(profile, Profile) else profile
    if name not in EDITIONS:
        raise UsageError(f"profile must be one of {', '.join(EDITIONS)}, got {name!r}")
    return EDITIONS[name]


def _check(*, messages: int, queues: int, skew: float, pace: float, disorder: float, rotation: int) -> None:
    if messages < 0 or queues < 1:
        raise UsageError(f"messages must be at least 0 and queues at least 1, got {messages} and {queues}")
    if rotation < 1:
        raise UsageError(f"rotation must be at least 1 octet, got {rotation}")
    if not 0 <= skew <= 1 or (skew and queues == 1):
        raise UsageError(f"skew must be from 0 to 1, and needs at least two queues unless it is 0, got {skew}")
    if not 0 < pace <= SECOND_MICROSECONDS or not 0 <= disorder <= 3600:
        raise UsageError(
            f"pace must be above 0 and at most {SECOND_MICROSECONDS}, and disorder from 0 to 3600 seconds, "
            f"got {pace} and {disorder}"
        )
    if messages > pace * MAX_LOG_SECONDS:
        raise UsageError(
            f"pace must be such that the log spans at most a hundred years, got {pace} for {messages} messages"
        )


def _rates(edition: Profile, broken: float, rates: Mapping[str, float]) -> dict[str, float]:
    """Return the share of exchanges for each violation of the edition."""
    known = {name for name, row in VIOLATIONS.items() if edition.name in row.editions}
    wrong = sorted(set(rates) - known)
    if wrong:
        raise UsageError(f"rates has {wrong[0]!r}, which {edition.name} does not have; see soapjms generate --list")
    rest = sorted(known - set(rates))
    shares = {**{name: broken / len(rest) for name in rest}, **rates}
    if any(not 0 <= share <= 1 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise UsageError(f"shares must be from 0 to 1, and so must their sum, got a sum of {sum(shares.values()):g}")
    return {name: shares[name] for name in sorted(shares)}
