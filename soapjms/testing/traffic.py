"""All traffic of a test, in a file that replay reads too, and the assertion that it keeps the rules.

The rules are those of the protocol. A failed test shows a message whole where it is short, and nothing that a
terminal acts on.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Final, TypeAlias

from brokers.message import Body, Message
from soapjms.capture.recorder import Recorder
from soapjms.observing import Begun, Ended, Observation, Observer
from soapjms.protocol.assertions import ASSERTIONS, Outcome, Setting, Verdict, judge, violations
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.exchange import Exchange, exchanges_of
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.record import Record, from_json
from soapjms.protocol.uri import visible
from soapjms.validation import edition

SETTLE_SECONDS: Final = 5.0
"""Seconds to wait for what has to happen soon."""

MAX_BLANK_LINES: Final = 100_000
"""Blank lines of a log; a small file may hold millions when it is unpacked."""


class SettlementObserver(Observer):
    """Knows whether dispatchers have settled all that they got: give it to each as its observer. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._number = 0

    def begun(self, begun: Begun) -> Observation:
        """Count a request until it is answered, and recorded."""
        self.add(1)
        return SettlementObservation(self, begun)

    def add(self, number: int) -> None:
        """Count more, or less."""
        with self._changed:
            self._number += number
            self._changed.notify_all()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count a request while somebody lets it wait on purpose."""
        self.add(-1)
        try:
            yield
        finally:
            self.add(1)

    def wait(self, timeout: float = SETTLE_SECONDS) -> bool:
        """Wait until nothing is under way; say whether that came within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._number == 0, timeout)


class SettlementObservation(Observation):
    """A request that is under way."""

    def __init__(self, under_way: SettlementObserver, begun: Begun) -> None:
        self._under_way = under_way
        self.begun = begun

    def ended(self, ended: Ended) -> None:
        """Count it no more."""
        self._under_way.add(-1)


class Traffic(Recorder):
    """A recorder that tells what it has recorded: `recorder=` of a `Client`, `Dispatcher` or `StubService`.

    Args:
        path: the capture log, a new `.jsonl` file.

    Attributes:
        under_way: makes those who read wait for dispatchers: `observer=traffic.under_way` of each that records here.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.under_way = SettlementObserver()

    def records(self) -> list[Record]:
        """Return what passed so far, once all requests are settled or after 5 seconds.

        A client may have its answer before the service has recorded it, so this waits.

        Raises:
            InvalidRecordError: somebody else wrote to the file.
        """
        self.under_way.wait()
        return read_logs(self.files)

    def exchanges(self) -> list[Exchange]:
        """Return what passed so far as exchanges, as replay pairs them."""
        return list(exchanges_of(self.records()))


def read_logs(paths: Iterable[Path]) -> list[Record]:
    """Read the files of a capture log, as `read_log` reads one."""
    return [record for path in paths for record in read_log(path)]


def read_log(path: Path) -> list[Record]:
    """Read a capture log, `.jsonl` or `.jsonl.gz`.

    Raises:
        InvalidRecordError: a line is no record, or far too many are blank; the message says which.
        OSError: it cannot be read.
    """
    found = []
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        try:
            for number, line in enumerate(map(bytes.strip, lines), 1):
                if line:
                    found.append(_record(line, path, number))
                elif number - len(found) > MAX_BLANK_LINES:
                    raise InvalidRecordError(f"{path}, line {number}: more than {MAX_BLANK_LINES} lines are blank")
        except (EOFError, zlib.error) as error:
            raise InvalidRecordError(f"{path}: {error}") from None
    return found


def _record(line: bytes, path: Path, number: int) -> Record:
    try:
        return from_json(line.decode("utf-8"))
    except (InvalidRecordError, UnicodeDecodeError) as error:
        raise InvalidRecordError(f"{path}, line {number}: {error}") from None


MAX_BODY_CHARACTERS: Final = 2000
MAX_VALUE_CHARACTERS: Final = 300
"""Characters that are shown."""

HEADERS: Final = {
    "JMSMessageID": "message_id",
    "JMSCorrelationID": "correlation_id",
    "JMSReplyTo": "reply_to",
    "JMSExpiration": "expiration",
}


def message_shown(message: Message, indent: str = "    ") -> str:
    """Show a message in several lines: type and destination, headers, properties, and its body as it came."""
    lines = [f"{message.message_type} message to {visible(str(message.destination))}"]
    for name, attribute in HEADERS.items():
        value = getattr(message, attribute)
        if value is not None:
            lines.append(f"{name} = {_value(value)}")
    lines += [f"{visible(each.name)} = {_value(each.value)}" for each in message.properties]
    return "\n".join(indent + line for line in [*lines, *_body_lines(message.body)])


def record_shown(record: Record) -> str:
    """Show a captured message in one line: when it passed, what it was, where to, what is in it."""
    message = record.message
    body = " ".join("".join(_body_lines(message.body)).split())
    words = [
        f"{record.time:%H:%M:%S.%f}",
        str(record.direction or "message"),
        f"to {visible(str(message.destination))}",
    ]
    return " ".join([*words, body if len(body) <= MAX_VALUE_CHARACTERS else f"{body[:MAX_VALUE_CHARACTERS]}…"])


def _value(value: object) -> str:
    text = visible(str(value))
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}… ({len(text)} characters)"


def _body_lines(body: Body) -> list[str]:
    if body is None:
        return ["(no body)"]
    if isinstance(body, bytes | memoryview):
        text = bytes(body[: 4 * MAX_BODY_CHARACTERS]).decode("utf-8", "backslashreplace")
    else:
        text = body if isinstance(body, str) else repr(body)
    size = len(body)
    shown = [visible(line) for line in text[:MAX_BODY_CHARACTERS].splitlines()] or ["(an empty body)"]
    return shown if len(text) <= MAX_BODY_CHARACTERS else [*shown, f"… (the body has {size} in all)"]


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
