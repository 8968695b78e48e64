"""The traffic of a test, in a file that replay can read too, and the assertion that it conforms to the rules.

The rules are those of the protocol. A failed test shows short messages completely, and no control characters.
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
from soapjms.protocol.assertions import ASSERTIONS, Setting, Verdict, VerdictOutcome, judge, violations
from soapjms.protocol.errors import InvalidRecordError, SoapJmsError, UsageError
from soapjms.protocol.exchange import Exchange, exchanges_of
from soapjms.protocol.names import DEFAULT_PROFILE, Profile, ProfileName
from soapjms.protocol.record import Record, from_json
from soapjms.protocol.uri import visible
from soapjms.validation import edition

SETTLE_SECONDS: Final = 5.0
"""Maximum time to wait for requests to be settled, in seconds."""

MAX_BLANK_LINES: Final = 100_000
"""Maximum number of blank lines in a log; a small compressed file may have millions."""


class SettlementObserver(Observer):
    """Knows whether dispatchers have settled all their requests; pass it to each as its observer. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._number = 0

    def begun(self, begun: Begun) -> Observation:
        """Count a request until it is answered and recorded."""
        self.add(1)
        return SettlementObservation(self, begun)

    def add(self, number: int) -> None:
        """Add a number, which may be negative, to the count."""
        with self._changed:
            self._number += number
            self._changed.notify_all()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count a request inside the `with` statement, in which it is delayed on purpose."""
        self.add(-1)
        try:
            yield
        finally:
            self.add(1)

    def wait(self, timeout: float = SETTLE_SECONDS) -> bool:
        """Wait until no request is under way; return False if that takes more than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._number == 0, timeout)


class SettlementObservation(Observation):
    """A request that is under way."""

    def __init__(self, under_way: SettlementObserver, begun: Begun) -> None:
        self._under_way = under_way
        self.begun = begun

    def ended(self, ended: Ended) -> None:
        """Stop counting the request."""
        self._under_way.add(-1)


class Traffic(Recorder):
    """A recorder whose records can be read: `recorder=` of a `Client`, `Dispatcher` or `StubService`.

    Args:
        path: the capture log, a new `.jsonl` file.

    Attributes:
        under_way: the observer for each dispatcher that records here, so that readers wait for its requests:
            `observer=traffic.under_way`.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.under_way = SettlementObserver()

    def records(self) -> list[Record]:
        """Return the records so far, once all requests are settled or after 5 seconds.

        It waits because a client may have its answer before the service has recorded it.

        Raises:
            InvalidRecordError: a line of the file is not a record; something else wrote to it.
        """
        self.under_way.wait()
        return read_logs(self.files)

    def exchanges(self) -> list[Exchange]:
        """Return the records so far as exchanges, paired as in a replay."""
        return list(exchanges_of(self.records()))


def read_logs(paths: Iterable[Path]) -> list[Record]:
    """Read the files of a capture log, as `read_log` reads one."""
    return [record for path in paths for record in read_log(path)]


def read_log(path: Path) -> list[Record]:
    """Read a capture log, `.jsonl` or `.jsonl.gz`.

    Raises:
        InvalidRecordError: a line is not a record, or too many lines are blank; the message has the line number.
        OSError: the file cannot be read.
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
"""Maximum number of characters shown."""

HEADERS: Final = {
    "JMSMessageID": "message_id",
    "JMSCorrelationID": "correlation_id",
    "JMSReplyTo": "reply_to",
    "JMSExpiration": "expiration",
}


def message_shown(message: Message) -> str:
    """Show a message in several indented lines: type and destination, headers, properties and body."""
    lines = [f"{message.message_type} message to {visible(str(message.destination))}"]
    for name, attribute in HEADERS.items():
        value = getattr(message, attribute)
        if value is not None:
            lines.append(f"{name} = {_value(value)}")
    lines += [f"{visible(each.name)} = {_value(each.value)}" for each in message.properties]
    return "\n".join(f"    {line}" for line in [*lines, *_body_lines(message.body)])


def record_shown(record: Record) -> str:
    """Show a captured message in one line: time, direction, destination and body."""
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
"""Maximum number of messages shown for each rule."""

Captured: TypeAlias = Recorder | str | Path | Iterable[Record]


class ConformanceError(SoapJmsError, AssertionError):
    """Captured messages break rules; the text lists the rules with the messages."""


def assert_conforms(
    captured: Captured,
    profile: Profile | ProfileName = DEFAULT_PROFILE,
    *,
    allow: str | Collection[str] = (),
    strict: bool = False,
) -> None:
    """Assert that captured messages break no rule, judged as in a replay. An empty capture is a failure too.

    Args:
        captured: a capture (`soapjms_capture`, or another recorder), the path of a capture log or of a folder with
            such logs, or records.
        profile: the edition of the specification or the dialect to judge by, or its name.
        allow: ids of assertions that may be violated, such as `Protocol-2015`.
        strict: whether to fail for warnings too: for a violated SHOULD, or a known deviation of a dialect.

    Raises:
        ConformanceError: rules are broken, nothing was captured, or the recorder failed to write a message.
        UsageError: the profile is unknown, or does not have an assertion of `allow`.
        InvalidRecordError, OSError: the log cannot be read.
    """
    setting = Setting(profile=edition(profile, ""))
    allowed = _allowed(allow, setting.profile)
    records = _records(captured)
    if not records:
        raise ConformanceError(
            "nothing was captured, so there is nothing to judge; pass the capture to the client or service: "
            "Client(…, recorder=soapjms_capture)"
        )
    refused = {VerdictOutcome.FAILED, VerdictOutcome.WARNING} if strict else {VerdictOutcome.FAILED}
    verdicts = [each for exchange in exchanges_of(records) for each in violations(judge(exchange, setting))]
    broken = [each for each in verdicts if each.outcome in refused and each.assertion not in allowed]
    if broken:
        raise ConformanceError(_told(broken, setting.profile))


def _records(captured: Captured) -> list[Record]:
    if isinstance(captured, str | Path):
        path = Path(captured)
        return read_logs(_logs_in(path)) if path.is_dir() else read_log(path)
    if not isinstance(captured, Recorder):
        return list(captured)
    if captured.failed:
        raise ConformanceError(
            f"messages that could not be recorded in {captured.path}: {captured.failed}; see the log"
        )
    return captured.records() if isinstance(captured, Traffic) else read_logs(captured.files)


def _logs_in(folder: Path) -> list[Path]:
    """Return the logs of a folder that `soapjms capture` wrote, in the order of their names."""
    return sorted(each for each in folder.iterdir() if each.name.endswith((".jsonl", ".jsonl.gz")))


def _titles(profile: Profile) -> dict[str, str]:
    """Return the titles of the assertions of a profile by their ids there; several may share one id."""
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
            f"allow must be ids of assertions of {profile.name}, got {', '.join(unknown)}; "
            "docs/conformance.md lists them"
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
