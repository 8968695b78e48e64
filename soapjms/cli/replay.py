"""`soapjms replay`: judge capture logs, once or with `--follow` until told to stop, and show the result.

Judging, pairing and counting are in `soapjms.replay`; this module has the options and the terminal output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from soapjms.cli.options import ALLOW_OPTION, named_values, ports_of, set_option
from soapjms.cli.paths import WSDL_FILE, InputFolder, OutputFolder, error_text, files
from soapjms.cli.progress import progress, say
from soapjms.cli.status import USAGE_STATUS
from soapjms.cli.terminal import console, visible_json
from soapjms.protocol.errors import InvalidPropertyError, UsageError
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.names import AUTO, DEFAULT_PROFILE, PROFILES, Auto, ProfileName
from soapjms.protocol.senders import senders_of
from soapjms.protocol.wsdl import Description, Port
from soapjms.replay.engines import ENGINES, LIMIT, LOCAL, SPARK, EngineChoice, EngineName
from soapjms.replay.errors import ProcessLostError, SparkFailedError, StoreFailedError
from soapjms.serving.runner import ending
from soapjms.wsdl import read_wsdl

if TYPE_CHECKING:  # what runs a replay needs packages that --help does not
    from soapjms.replay import Summary

F = TypeVar("F", bound=Callable[..., Any])

NAMES: Final = ("until_idle", "disorder", "remember", "every", "checkpoint")
LONGEST: Final = timedelta(days=3650).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """The folder to follow, the given options of following, and the address and token for the live page, or None."""

    folder: str
    options: dict[str, Any]
    serve: str | None
    token: str | None


def _seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> timedelta | None:
    if value is not None and not 0 <= value <= LONGEST:  # NaN is neither
        raise click.BadParameter(f"the time must be 0 to {LONGEST:g} seconds, got {value:g}")
    return None if value is None else timedelta(seconds=value)


def _seconds_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=float, callback=_seconds, metavar="SECONDS", help=text)


def _address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return f"127.0.0.1:{value}" if value is not None and value.isdigit() else value


OPTIONS: Final = (
    click.option(
        "--follow",
        metavar="DIR",
        type=InputFolder("a folder of capture logs"),
        help="Folder whose logs are judged as they are written.",
    ),
    _seconds_option("--until-idle", "Follow until nothing new came for this time.  [default: until told to stop]"),
    _seconds_option(
        "--disorder",
        "Follow: how much later than its time a record may come; later ones are kept under late/.  [default: 60]",
    ),
    _seconds_option(
        "--remember", "Follow: how long a call is held after its last record.  [default: the window or longer]"
    ),
    _seconds_option("--every", "Follow: how often to look for new records.  [default: 5]"),
    click.option(
        "--checkpoint",
        metavar="DIR",
        type=OutputFolder("a folder for the state"),
        help="Follow: folder with the state needed to resume.  [default: OUT.checkpoint]",
    ),
    click.option(
        "--serve",
        metavar="[HOST:]PORT",
        callback=_address,
        help="Follow: also show the report there, as a page that updates itself; port 0 for any.  [default: no page]",
    ),
    click.option(
        "--token",
        metavar="TOKEN",
        help="Serve: what its readers must know; better in SOAPJMS_REPLAY_TOKEN.  "
        "[default: a new one if other machines reach HOST, else none]",
    ),
)


def follow_options(command: F) -> F:
    """Add the options of following to a command."""
    return reduce(lambda made, option: option(made), reversed(OPTIONS), command)


def take_follow(options: dict[str, Any]) -> Follow | None:
    """Take the options of following out of a command's options; return None without --follow.

    Raises:
        click.UsageError: one of the others is given without --follow.
    """
    folder, serve, token = (options.pop(name) for name in ("follow", "serve", "token"))
    given = {name: value for name in NAMES if (value := options.pop(name)) is not None}
    named = {**given, "serve": serve} if serve is not None else given
    if folder is None and named:
        raise click.UsageError(f"--{next(iter(named)).replace('_', '-')} is for --follow")
    if token is not None and serve is None:
        raise click.UsageError("--token is for --serve")
    return None if folder is None else Follow(folder=folder, options=given, serve=serve, token=token)


def follow_logs(
    follow: Follow, out: str, profile: ProfileName | Auto, engine: EngineName | None, **terms: Any
) -> Summary:
    """Follow logs until told to stop, with a line on standard error for each step, and one for the live page's address.

    Raises:
        SparkMissingError: PySpark is not installed.
    """
    from soapjms.replay.follower import follow as run

    stop = Event()
    with ending(stop), _live_page(follow, Path(out) / "report.html") as show:
        options = {**follow.options, **terms}
        return run(follow.folder, out, profile, engine, stop=stop, progress=say, on_report=show, **options)


@contextmanager
def _live_page(follow: Follow, report: Path) -> Iterator[Callable[[Summary], None] | None]:
    """Serve the report while it is followed, if that is wanted; yield what shows a new one."""
    if follow.serve is None:
        yield None
        return
    from soapjms.serving.live_report import LiveReport

    with LiveReport(follow.serve, follow.token) as page:
        say(f"report at {page.url}")
        yield lambda summary: page.show(report.read_text("utf-8"))


MAX_WINDOW: Final = timedelta(days=3650).total_seconds()
GONE_ON: Final = "Finished verdicts are kept; start the command again to resume."


def _window(ctx: click.Context, param: click.Parameter, seconds: float) -> timedelta:
    if not 0 < seconds <= MAX_WINDOW:  # NaN is neither
        raise click.BadParameter(f"the window must be more than 0 and at most {MAX_WINDOW:g} seconds, got {seconds:g}")
    return timedelta(seconds=seconds)


@click.command("replay")
@click.argument("logs", metavar="[LOG...]", nargs=-1, shell_complete=files)
@click.option(
    "--out",
    "-o",
    required=True,
    metavar="DIR",
    type=OutputFolder("a folder for the results, or its URI", or_uri=True),
    help="Folder, or its URI, for the results; replaces an earlier run's.",
)
@click.option(
    "--profile",
    type=click.Choice([*sorted(PROFILES), AUTO]),
    default=DEFAULT_PROFILE.name,
    show_default=True,
    help="Edition of the specification to judge by; auto: that of the WSDL, else that of most faults in the logs.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="What runs the replay, with equal results; exact is local without short cuts.  "
    f"[default: local; spark for --master, --conf, URIs of Hadoop such as hdfs://, and more than {LIMIT} of logs]",
)
@click.option("--local", "engine", flag_value=LOCAL, help="Short for --engine local.")
@click.option(
    "--window",
    type=float,
    default=DEFAULT_WINDOW.total_seconds(),
    show_default=True,
    callback=_window,
    metavar="SECONDS",
    help="How far apart a request and its response, or copies of a message, may be.",
)
@click.option(
    "--wsdl",
    "wsdls",
    multiple=True,
    metavar="FILE",
    type=WSDL_FILE,
    help="WSDL whose SOAP/JMS ports the senders used; each is compared with the messages to its address; repeatable.",
)
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="NAME",
    help="Port of the WSDL, or SERVICE/PORT; repeatable.  [default: all SOAP/JMS ports]",
)
@click.option(
    "--uri",
    "uris",
    multiple=True,
    metavar="URI",
    help="URI (jms:) that senders used; compared with the messages to its destination; repeatable.",
)
@set_option("A property that the senders' programs set; overrides WSDL and URI; repeatable.")
@ALLOW_OPTION
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Lookup variant that the services support beside jndi, queue and topic; repeatable.",
)
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[2]]")
@click.option(
    "--conf", multiple=True, callback=named_values("a setting must be NAME=VALUE, such as spark.driver.memory=2g"),
    metavar="NAME=VALUE", help="A setting of Spark; repeatable.",
)  # fmt: skip
@click.option(
    "--against",
    metavar="OLD",
    type=InputFolder("the --out folder of an earlier replay, or its URI", or_uri=True),
    help="Results of an earlier replay, which the page compares these with.",
)
@follow_options
@click.option("--json", "as_json", is_flag=True, help="Print summary.json instead of a table.")
def command(
    logs: tuple[str, ...],
    out: str,
    profile: ProfileName | Auto,
    engine: EngineName | None,
    as_json: bool,
    wsdls: tuple[str, ...],
    ports: tuple[str, ...],
    uris: tuple[str, ...],
    allow: tuple[str, ...],
    **terms: Any,
) -> None:
    """Judge every exchange in capture logs for conformance.

    LOG is a file, a folder (its .jsonl, .jsonl.gz and .parquet files, recursively), a glob, or a URI of one of these:
    fsspec opens s3://bucket/folder, https://host/file and others, Hadoop hdfs://host/folder. DIR gets summary.json,
    verdicts/, rejected/, report.html and junit.xml.

    With --follow, the logs of a folder are judged as they are written, until Ctrl-C, SIGTERM or --until-idle; DIR is
    rewritten every minute and at the end; with --serve every few seconds. The same command resumes after a stop. Late
    records are counted and listed; they are not judged, and do not change the exit status.

    With --wsdl and --uri, the replay also judges whether the senders' settings reached their messages, and which source
    of a property counted. Each address is compared only with the messages that went to it: by the requestURI, else by
    JMSDestination; several services at one address are told apart by targetService.

    Exit status: 0 nothing failed, or there was nothing to judge, 1 failed verdicts or rejected records, 2 usage, or no
    readable input, 130 interrupted: nothing was written.
    """
    follow = take_follow(terms)
    if bool(logs) is (follow is not None):
        raise click.UsageError("give LOG..., or --follow DIR")
    _check_engine(engine, terms)
    try:
        terms["senders"] = _senders(wsdls, ports, uris, allow, terms["properties"])
        summary = (
            follow_logs(follow, out, profile, engine, **terms) if follow else _replay(logs, out, profile, engine, terms)
        )
    except UsageError as error:
        raise click.UsageError(visible_lines(str(error))) from None
    except (ProcessLostError, SparkFailedError, StoreFailedError, OSError) as error:
        click.echo(f"Error: {visible_lines(str(error))}\n{GONE_ON if follow else 'Nothing was written.'}", err=True)
        sys.exit(USAGE_STATUS)
    if as_json:
        click.echo(visible_json(summary.to_json()), nl=False)
    else:
        from soapjms.cli.summary import show

        show(summary, out, console())
    sys.exit(summary.exit_status)


def _check_engine(engine: EngineName | None, terms: Mapping[str, Any]) -> None:
    """Refuse options of Spark with another engine.

    Raises:
        click.UsageError: there are some.
    """
    if engine in (None, SPARK):
        return
    if terms["master"] or terms["conf"]:
        raise click.UsageError(f"--master and --conf are for Spark, not for the engine {engine}; leave out one of them")


def _replay(
    logs: tuple[str, ...], out: str, profile: ProfileName | Auto, engine: EngineName | None, terms: Mapping[str, Any]
) -> Summary:
    from soapjms.replay import replay

    with progress() as tell:

        def tell_with_engine(text: str) -> None:
            if isinstance(text, EngineChoice):
                say(f"{text} (--engine decides)")
            else:
                tell(text)

        return replay(logs, out, profile, engine, progress=tell_with_engine, **terms)


def _senders(
    wsdls: tuple[str, ...],
    ports: tuple[str, ...],
    uris: tuple[str, ...],
    allow: tuple[str, ...],
    properties: Mapping[str, str],
) -> list[Description | Port | str]:
    """Read the WSDLs; return the requested ports, or the WSDLs as a whole, followed by the URIs."""
    if ports and len(wsdls) != 1:
        raise UsageError(f"--port needs exactly one --wsdl, got {'several' if wsdls else 'none'}")
    found = [read_wsdl(each, allow=allow) for each in wsdls]
    if not ports:
        for each in found:
            _check_together(each, properties)
    return [*([found[0].port(each) for each in ports] if ports else found), *uris]


def _check_together(described: Description, properties: Mapping[str, str]) -> None:
    """Refuse a WSDL whose ports do not tell what senders used, and list the ports to choose from.

    Raises:
        UsageError: two ports have one address and different properties, or one of several cannot be used.
    """
    try:
        senders_of([described], properties)
    except InvalidPropertyError:
        raise
    except UsageError as error:
        if len(ports := ports_of(described)) < 2:
            raise
        raise UsageError(f"{error}; --port chooses: {', '.join(ports)}") from None


def visible_lines(text: str) -> str:
    """Return a text of several lines with control characters of terminals escaped."""
    return "\n".join(map(error_text, text.splitlines()))
