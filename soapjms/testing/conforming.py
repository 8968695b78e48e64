"""Asserting that what was captured keeps the rules of the specification. The rules are those of the protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from soapjms.arguments import edition
from soapjms.protocol.assertions import ASSERTIONS, Outcome, Setting, Verdict, judge, violations
from soapjms.protocol.errors import UsageError
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.record import Record
from soapjms.recorder import Recorder
from soapjms.testing.showing import message_shown
from soapjms.testing.traffic import Traffic, read_log, read_logs

MESSAGES_SHOWN: Final = 3
"""For each rule."""

Captured: TypeAlias = Recorder | str | Path | Iterable[Record]


class ConformanceError(AssertionError):
    """What was captured breaks rules; the text lists them, with the messages."""


def assert_conforms(
    captured: Captured,
    profile: Profile | str = DEFAULT_PROFILE,
    *,
    allow: str | Collection[str] = (),
    strict: bool = False,
) -> None:
    """Assert that what was captured breaks no rule, as replay judges it. That nothing was captured is a failure too.

    Args:
        captured: a capture (`soapjms_capture`, or another recorder), the path of a capture log, or records.
        profile: the edition of the specification or the dialect to judge by, or its name.
        allow: ids of assertions whose breach is let pass, such as `Protocol-2015`.
        strict: fail for warnings too: a SHOULD that is broken, or what a dialect is known to do.

    Raises:
        ConformanceError: rules are broken, nothing was captured, or the recorder could not write a message.
        UsageError: there is no such profile, or no such assertion in it.
        InvalidRecordError, OSError: the log cannot be read.
    """
    setting = Setting(profile=edition(profile, ""))
    allowed = _allowed(allow, setting.profile)
    records = _records(captured)
    if not records:
        raise ConformanceError(
            "nothing was captured, so there is nothing to judge; give the capture to who calls or serves: "
            "Client(…, recorder=soapjms_capture)"
        )
    refused = {Outcome.FAILED, Outcome.WARNING} if strict else {Outcome.FAILED}
    verdicts = [each for exchange in exchanges_of(records) for each in violations(judge(exchange, setting))]
    broken = [each for each in verdicts if each.outcome in refused and each.assertion not in allowed]
    if broken:
        raise ConformanceError(_told(broken, setting.profile))


def _records(captured: Captured) -> list[Record]:
    if isinstance(captured, str | Path):
        return read_log(Path(captured))
    if not isinstance(captured, Recorder):
        return list(captured)
    if captured.failed:
        raise ConformanceError(
            f"messages that could not be recorded in {captured.path}: {captured.failed}; see the log"
        )
    return captured.records() if isinstance(captured, Traffic) else read_logs(captured.files)


def _titles(profile: Profile) -> dict[str, str]:
    """Return what the assertions of a profile say, by their ids there; several may have become one."""
    found: dict[str, list[str]] = {}
    for row in ASSERTIONS:
        name = profile.assertion_id(row.id)
        if name is not None:
            found.setdefault(name, []).append(row.title)
    return {name: "; ".join(titles) for name, titles in found.items()}


def _allowed(allow: str | Collection[str], profile: Profile) -> frozenset[str]:
    given = frozenset([allow] if isinstance(allow, str) else allow)
    unknown = sorted(given - _titles(profile).keys())
    if unknown:
        raise UsageError(
            f"allow has {', '.join(unknown)}, and {profile.name} has no such assertion; "
            "docs/conformance.md lists those it has"
        )
    return given


def _told(broken: list[Verdict], profile: Profile) -> str:
    by_id: dict[str, list[Verdict]] = {}
    for each in broken:
        by_id.setdefault(each.assertion, []).append(each)
    titles = _titles(profile)
    rules = "1 rule is" if len(by_id) == 1 else f"{len(by_id)} rules are"
    parts = [f"{rules} broken, judged by {profile.name} (allow=[…] lets them pass):"]
    for name, verdicts in by_id.items():
        parts.append(f"{name} ({verdicts[0].level}): {titles[name]}")
        for verdict in verdicts[:MESSAGES_SHOWN]:
            what = verdict.record.direction or "message"
            parts.append(f"  {verdict.reason}, in this {what}:\n{message_shown(verdict.record.message)}")
        if len(verdicts) > MESSAGES_SHOWN:
            parts.append(f"  and in more messages: {len(verdicts) - MESSAGES_SHOWN}")
    return "\n".join(parts)
