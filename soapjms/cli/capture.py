"""`soapjms capture`: record a broker's messages until told to stop, and print the command that judges them."""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

import click

from brokers.connection import Connection, ConnectionState
from brokers.errors import BrokerError
from brokers.message import Destination, topic
from soapjms.capture.log import DEFAULT_ROTATION_OCTETS, CaptureLog
from soapjms.capture.mask import Mask
from soapjms.capture.sources import TAPS, TapPoint, tap_point, typed_view
from soapjms.capture.tap import Capture
from soapjms.cli.commands import FILE_MEBIBYTES, QUEUE_NAME, SECONDS, TOPIC_NAME
from soapjms.cli.connection import CONNECTION_OPTION
from soapjms.cli.paths import OutputFolder
from soapjms.cli.progress import progress, say
from soapjms.cli.status import FINDINGS_STATUS, USAGE_STATUS
from soapjms.cli.terminal import announce
from soapjms.client.client import DEFAULT_TIMEOUT
from soapjms.destinations import connect_url
from soapjms.progress import Phase
from soapjms.protocol.limits import MIB
from soapjms.protocol.record import format_time
from soapjms.protocol.uri import visible
from soapjms.replay.engines import install_line
from soapjms.serving.runner import ending

PROGRESS_POLL_SECONDS: Final = 0.5
"""Poll interval, in seconds, for the progress."""

REPORT_SECONDS: Final = 60.0
"""Seconds between two lines of progress without a terminal."""

COLLECT_AFTER: Final = 50_000
"""Number of new objects after which Python collects garbage; a few thousand waiting messages have as many."""

MAX_NAMED_FILES: Final = 3
"""Maximum number of files that are listed one by one."""

WITHOUT_TYPES: Final = ", where all properties are strings (--amqp-port PORT for their types),"
PROBE_TIMEOUT: Final = 3.0
LEAVE_TIMEOUT: Final = 3.0
BEHIND: Final = f"copies may be missing at the end: for {LEAVE_TIMEOUT:g} s none came, not even that of a final probe"
SETTINGS: Final = {each.name: each for each in TAPS.values()}


@click.command("capture")
@CONNECTION_OPTION
@click.option(
    "--out", "-o", "folder", default="captures", show_default=True, metavar="DIR",
    type=OutputFolder("a folder for the logs", Path), help="Folder for the logs.",
)  # fmt: skip
@click.option(
    "--queue", "queues", multiple=True, type=QUEUE_NAME, metavar="NAME",
    help="Only requests to this queue or topic, and their answers; repeatable.  [default: all SOAP/JMS messages]",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Record all messages, not only those of SOAP/JMS.")
@click.option(
    "--source", type=TOPIC_NAME, metavar="TOPIC", help="Topic with the broker's copies.  [default: that of --setting]"
)
@click.option(
    "--topic", "topics", multiple=True, type=TOPIC_NAME, metavar="NAME",
    help="A topic to record too, as ActiveMQ copies queues only; repeatable.",
)  # fmt: skip
@click.option("--mask-property", multiple=True, metavar="NAME", help="Message property to hide; repeatable.")
@click.option("--mask-element", multiple=True, metavar="NAME", help="Element to hide, by local name; repeatable.")
@click.option("--mask-pattern", multiple=True, metavar="REGEX", help="Text to hide in bodies; repeatable.")
@click.option(
    "--rotate", type=FILE_MEBIBYTES, default=DEFAULT_ROTATION_OCTETS / MIB, show_default=True,
    metavar="MIB", help="Size of a file after which another is begun.",
)  # fmt: skip
@click.option("--plain", is_flag=True, help="Do not compress.")
@click.option("--for", "seconds", type=SECONDS, metavar="SECONDS", help="End after this time.")
@click.option("--no-check", is_flag=True, help="Do not check first whether the broker makes copies.")
@click.option(
    "--amqp-port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Port where a broker at a stomp: URL speaks AMQP, which keeps the types of properties; 0 to stay with STOMP.  "
    "[default: try the usual port]",
)  # fmt: skip
@click.option(
    "--setting", type=click.Choice(sorted(SETTINGS)), help="Only print the setting that this broker needs."
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="At the end print one JSON object instead of text.")
def command(
    connection: str | None,
    folder: Path,
    queues: tuple[str, ...],
    everything: bool,
    source: str | None,
    topics: tuple[str, ...],
    rotate: float,
    plain: bool,
    seconds: float | None,
    no_check: bool,
    amqp_port: int | None,
    setting: str | None,
    as_json: bool,
    **masks: tuple[str, ...],
) -> None:
    """Record the messages that pass a broker, from outside: senders and receivers do not notice, and never wait.

    The broker must copy them to a topic; if it does not, the setting that it needs is printed, as by --setting. With a
    stomp: URL the copies are read over AMQP if the broker speaks it too. Ends at Ctrl-C, SIGTERM or after --for.

    Exit status: 0 ended as told, 1 messages were dropped, not written or missed, 2 usage, or no tap at this broker.
    """
    if setting is not None:
        point = SETTINGS[setting]
        announce(setting_of(point), {"file": point.file, "setting": point.setting}, as_json=as_json)
        return
    if connection is None:
        raise click.UsageError("give --connection, or set SOAPJMS_CONNECTION")
    mask = Mask(masks["mask_property"], masks["mask_element"], masks["mask_pattern"])
    stop = Event()
    with ExitStack() as stack:
        opened = stack.enter_context(connect_url(connection, DEFAULT_TIMEOUT))
        log = stack.enter_context(CaptureLog(folder, rotation=max(1, int(rotate * MIB)), compress=not plain))
        point = tap_point(opened.capabilities.broker)
        sources = [topic(source) if source else point.source, *map(topic, topics)]
        if not (no_check or amqp_port == 0):
            opened = stack.enter_context(_best_view(opened, connection, sources[0], point, amqp_port))
        with Capture(
            opened, log, sources, translate=point.translate, mask=mask, queues=queues, everything=everything
        ) as capture:
            if not no_check and not capture.is_fed(PROBE_TIMEOUT):
                _refuse(opened, point)
            with ending(stop), _collecting_seldom():
                _watch(capture, log, opened, stop, seconds)
            is_drained = True
            if opened.state is ConnectionState.CONNECTED and not no_check:
                with suppress(BrokerError):  # the connection was lost just now, which is noted as a gap
                    is_drained = capture.is_drained(LEAVE_TIMEOUT)
    _report(capture, log, as_json, is_drained)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Let Python collect garbage less often, and only among new objects: messages have no reference cycles."""
    before = gc.get_threshold()
    gc.collect()  # else present garbage would stay, too
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def _best_view(
    opened: Connection, url: str, source: Destination, point: TapPoint, port: int | None
) -> Iterator[Connection]:
    """Yield a connection over the broker's AMQP, if it has any, and close that over STOMP; else the open connection."""
    if opened.capabilities.typed_properties and port is None:
        yield opened
        return
    typed = typed_view(opened, url, source, port, shares_ports=point.shares_ports)
    if typed is None:
        yield opened
        return
    opened.close()
    with typed:
        yield typed


def _refuse(opened: Connection, point: TapPoint) -> None:
    broker = visible(opened.capabilities.broker)
    click.echo(
        f"Error: {broker} makes no copies: within {PROBE_TIMEOUT:g} s no copy of a test message came. "
        f"It needs a setting in {setting_of(point)}",
        err=True,
    )
    sys.exit(USAGE_STATUS)


def setting_of(point: TapPoint) -> str:
    """Return the setting that a broker needs, with the file that it belongs in."""
    return f"{point.file}:\n\n{point.setting}"


def _watch(capture: Capture, log: CaptureLog, opened: Connection, stop: Event, seconds: float | None) -> None:
    """Wait for the end, and show the progress."""
    begun = monotonic()
    capabilities = opened.capabilities
    how = "" if capabilities.typed_properties else WITHOUT_TYPES
    say(f"capturing from {capabilities.broker}{how} to {log.folder}; Ctrl-C ends it")
    with progress(every=REPORT_SECONDS) as tell:
        while not (stop.is_set() or capture.ended.is_set()):
            left = (
                PROGRESS_POLL_SECONDS if seconds is None else min(PROGRESS_POLL_SECONDS, begun + seconds - monotonic())
            )
            if left <= 0:
                break
            stop.wait(left)
            stuck = f"; cannot write: {capture.problem}" if capture.problem else ""
            words = f"{_counts(capture)}; {opened.state}; {log.files[-1].name}{stuck}"
            tell(Phase(words, monotonic() - begun, seconds))


def _counts(capture: Capture) -> str:
    counts = capture.counts
    shown = [f"{counts['recorded']} recorded", *(f"{counts[each]} {each}" for each in SHOWN if counts[each])]
    return ", ".join(shown)


SHOWN: Final = ("masked", "left out", "other", "dropped", "failed")


def _report(capture: Capture, log: CaptureLog, as_json: bool, is_drained: bool) -> None:
    """Print the result, and exit with its status."""
    gaps = [[format_time(each.begun), each.ended and format_time(each.ended)] for each in capture.gaps]
    if as_json:
        files = [str(each) for each in log.files]
        members = {name: capture.counts[name] for name in ("seen", "recorded", *SHOWN)}
        click.echo(json.dumps({**members, "gaps": gaps, "drained": is_drained, "files": files, **_judging(log.files)}))
    else:
        click.echo(_counts(capture))
        for begun, ended in gaps:
            click.echo(f"not connected from {begun} to {ended or 'the end'}: messages of that time are missing")
        if not is_drained:
            click.echo(BEHIND)
        for line in filter(None, _judging(log.files).values()):
            click.echo(line)
    is_whole = is_drained and not (capture.counts["dropped"] or capture.counts["failed"] or gaps)
    sys.exit(0 if is_whole else FINDINGS_STATUS)


def _judging(files: Sequence[Path]) -> dict[str, str | None]:
    """Return what to type to judge the messages: to install what is missing for it, and to replay them."""
    command = replay_command(files)
    return {"install": command and install_line(), "replay": command}


def replay_command(files: Sequence[Path]) -> str | None:
    """Return the command that judges the captured messages; None if there are no files."""
    if len(files) > MAX_NAMED_FILES:
        files = [Path(f"{str(files[0]).rpartition('-')[0]}-*")]
    return shlex.join(["soapjms", "replay", *map(str, files), "--out", "report"]) if files else None
