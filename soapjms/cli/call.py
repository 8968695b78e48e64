"""`soapjms call`: send an envelope to a service, or call an operation of a WSDL, and print the answer.

`soapjms call WSDL OPERATION NAME=VALUE…` is a call through zeep with arguments and result as text, and
`soapjms call --record FILE` sends a captured request again.
"""

from __future__ import annotations

import json
import mimetypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

import click
from lxml import etree
from rich.syntax import Syntax

from brokers.message import Message, MessageType
from soapjms.cli.connection import (
    CONNECTION_OPTION,
    TIMEOUT_OPTION,
    check_reachable,
    opened,
    place_of,
    place_options,
    read_names,
)
from soapjms.cli.options import set_option
from soapjms.cli.paths import WSDL_FILE, InputFile, InputStream, OutputFolder, error_text, files
from soapjms.cli.repeated_call import repeated
from soapjms.cli.status import FINDINGS_STATUS
from soapjms.cli.terminal import console
from soapjms.client.call import UNPARSED_HINT, Response
from soapjms.client.client import Client
from soapjms.client.repetition import Repetition
from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.attachments import Attachment, Part
from soapjms.protocol.envelope import Fault, serialize
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.names import DEFAULT_PROFILE, PROFILES, ProfileName
from soapjms.protocol.record import EPOCH, Record, to_members
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port

UNKNOWN_TYPE: Final = "application/octet-stream"
MESSAGE_MEMBERS: Final = ("message_type", "destination", "jms", "properties", "types", "untyped")


ARGUMENTS: Final = InputStream("a file with a JSON object of arguments, or -")
ENVELOPE: Final = InputStream("a file with a SOAP envelope, or -")
RECORD: Final = InputStream("a file with a capture record, or -")
Answered: TypeAlias = Response | Repetition


def _attachments(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> list[Attachment]:
    """Make attachments whose Content-ID is the name of the file, and whose type follows from its suffix."""
    return [Attachment(path, mimetypes.guess_type(path)[0] or UNKNOWN_TYPE, path.name) for path in paths]


@click.command("call")
@click.argument("words", metavar="[WSDL OPERATION [NAME=VALUE]...|ENVELOPE-FILE|-]", nargs=-1, shell_complete=files)
@CONNECTION_OPTION
@partial(place_options, default_port="the only SOAP/JMS port; with WSDL OPERATION the first")
@click.option("--operation", metavar="NAME", help="Operation of the WSDL whose soapAction is sent.")
@click.option("--action", metavar="ACTION", help="The soapAction; overrides any other.")
@click.option("--one-way", is_flag=True, help="Send the envelope without waiting for an answer.")
@click.option(
    "--attachment", "attachments", multiple=True, callback=_attachments, metavar="FILE",
    type=InputFile("a file to attach", Path, is_regular=True),  # its size is sent ahead, which a pipe does not have
    help="File to attach; the envelope refers to it by cid: and its name; repeatable.",
)  # fmt: skip
@click.option(
    "--save", metavar="DIR", type=OutputFolder("a folder for attachments", Path),
    help="Folder for the attachments of the answer.",
)  # fmt: skip
@click.option("--input", "read_from", type=ARGUMENTS, metavar="FILE|-", help="JSON object of arguments by name.")
@click.option(
    "--record", type=RECORD, metavar="FILE|-",
    help="Send the request of a capture record again, as it was captured; --uri sends it elsewhere.",
)  # fmt: skip
@TIMEOUT_OPTION
@set_option()
@click.option(
    "--profile", type=click.Choice(sorted(PROFILES)),
    help=f"Edition of the specification.  [default: the WSDL's, else {DEFAULT_PROFILE.name}]",
)  # fmt: skip
@click.option("--text", is_flag=True, help="Send a TextMessage instead of a BytesMessage.")
@click.option("--json", "as_json", is_flag=True, help="Print headers, properties, body, fault and findings as JSON.")
def command(
    words: tuple[str, ...], read_from: Any, save: Path | None, record: IO[bytes] | None, **options: Any
) -> None:
    """Call an operation of a WSDL, or send the SOAP envelope in a file or on standard input.

    With a WSDL, the arguments are NAME=VALUE, NAME:=JSON, or NAME=@FILE for an attachment; a NAME may be a path such as
    order.item.0.article. The result is printed: text as it is, anything else as JSON. `soapjms call bank.wsdl` lists
    the operations.

    Otherwise the envelope of the answer is printed, indented on a terminal. Standard error shows a fault, and each rule
    of the specification that the request or the response breaks.

    With --record, the body, properties and headers of a captured request are sent as they were, with their mistakes.
    Only the ids and JMSReplyTo are new.

    Exit status: 0 an answer, 1 a fault, a rule was broken (MUST), or an attachment was not saved, 2 usage, or nothing
    was sent or the broker refused it, 3 no answer: it is not known whether the service processes the request.
    """
    if record is not None:
        if words or read_from is not None:
            raise click.UsageError("--record has all of the message: leave out the other arguments and --input")
        status = _repeated(record, save, **options)
    elif len(words) > 1 or (words and Path(words[0]).suffix.lower() == ".wsdl"):
        status = _typed(words, read_from, save, **options)
    elif read_from is not None:
        raise click.UsageError("--input is for the operation of a WSDL: soapjms call WSDL OPERATION --input FILE")
    else:
        envelope = ENVELOPE.checked(words[0] if words else "-", "ENVELOPE-FILE")
        status = _raw(envelope, save, **options)
    sys.exit(status)


def _typed(words: tuple[str, ...], read_from: Any, save: Path | None, **options: Any) -> int:
    """Call an operation and show its result, or list the operations; return the exit status."""
    for name in ("wsdl", "operation", "one_way"):
        if options.pop(name):
            raise click.UsageError(f"--{name.replace('_', '-')} is for an envelope; leave it out with WSDL OPERATION")
    try:
        import soapjms.zeep  # noqa: F401  # first, as its error names the missing extra
        from soapjms.cli import typed_call
    except ImportError as error:
        raise click.UsageError(f"{error}") from None
    action, as_json = options.pop("action"), options.pop("as_json")
    if action is not None:
        options["properties"] = {**options["properties"], "soapAction": action}
    words = (WSDL_FILE.checked(words[0], "WSDL"), *words[1:])
    place = {"port": options.pop("port"), "uri": options["uri"], "allow": options.pop("allow")}
    if len(words) == 1:
        listed = list(typed_call.list_operations(words[0], **place))
        click.echo(json.dumps({"operations": listed}) if as_json else "\n".join(listed))
        return 0
    planned = typed_call.plan(words, read_from, **place)
    outcome = typed_call.perform(planned, **options)
    response = outcome.response
    if response is None:
        if as_json:
            click.echo(json.dumps({"sent": True}))
        return 0

    def typed_members(response: Answered, saved: Sequence[SavedPart]) -> dict[str, Any]:
        return {"result": outcome.result, **members(response, saved)}

    def show_typed(response: Answered, saved: Sequence[SavedPart]) -> None:
        typed_call.show_result(outcome.result)
        show_lines(response, saved)

    return _finish(response, save, typed_members if as_json else None, show_typed)


def _raw(
    envelope: Any,
    save: Path | None,
    *,
    operation: str | None,
    action: str | None,
    one_way: bool,
    attachments: list[Attachment],
    as_json: bool,
    **options: Any,
) -> int:
    """Send an envelope and show the answer; return the exit status."""
    if envelope.isatty():
        raise click.UsageError("give a file with a SOAP envelope, or pipe one into standard input")
    octets = envelope.read()
    with _client(operation, **options) as client:
        said: dict[str, Any] = {"soap_action": action, "operation": operation, "attachments": attachments}
        if one_way:
            client.send(octets, **said)
            if as_json:
                click.echo(json.dumps({"sent": True}))
            return 0
        response = client.call(octets, **said)
    return _finish(response, save, members if as_json else None, show)


def _repeated(record: IO[bytes], save: Path | None, *, as_json: bool, **options: Any) -> int:
    """Send a captured request again, and show the answer; of a one-way message, only the rules that it breaks."""
    response = repeated(record, **options)
    to_members = _sent_members if response.message is None else members
    return _finish(response, save, to_members if as_json else None, show)


@contextmanager
def _client(
    operation: str | None,
    connection: str | None,
    names: str | None,
    properties: Mapping[str, str],
    timeout: float,
    profile: ProfileName | None,
    text: bool,
    **place: Any,
) -> Iterator[Client]:
    """Make a client; errors in the service's address are raised before connecting."""
    where, known = place_of(**place), read_names(names)
    if operation is not None and not isinstance(where, Port):
        raise click.UsageError("--operation is for a WSDL; for a URI give --action")
    check_reachable(connection)
    edition = profile or (where.profile if isinstance(where, Port) else None) or DEFAULT_PROFILE
    with (
        opened(connection, where, known, properties, timeout) as open_connection,
        Client(
            open_connection,
            where,
            properties=properties,
            profile=edition,
            message_type=MessageType.TEXT if text else MessageType.BYTES,
            timeout=timeout,
            names=known,
        ) as client,
    ):
        yield client


# The answer


class SavedPart(NamedTuple):
    """What became of an attachment: the file that it was written to, or why there is none."""

    path: Path | None = None
    problem: str | None = None


def _finish(
    response: Answered,
    save: Path | None,
    to_members: Callable[[Answered, Sequence[SavedPart]], dict[str, Any]] | None,
    show_text: Callable[[Answered, Sequence[SavedPart]], None],
) -> int:
    """Save the attachments of an answer, show it as JSON or text, and return the exit status.

    The status is never 2, which says that nothing was sent: a script would send the request once more.
    """
    saved = [] if save is None else save_parts(response, save)
    try:
        if to_members is not None:
            click.echo(json.dumps(to_members(response, saved)))
        else:
            show_text(response, saved)
    except BrokenPipeError:  # handled by click, with status 1
        raise
    except OSError as error:
        click.echo(f"Error: an answer came, and cannot be printed: {error_text(error)}", err=True)
        return FINDINGS_STATUS
    is_broken = any(each.outcome is VerdictOutcome.FAILED for each in response.findings())
    is_whole = all(each.problem is None for each in saved)
    return 0 if response.fault is None and is_whole and not is_broken else FINDINGS_STATUS


def show(response: Answered, saved: Sequence[SavedPart]) -> None:
    """Print the envelope and, on standard error, the fault, findings, notes and attachments."""
    out = console()
    root = None if response.envelope is None else response.envelope.root
    if root is None:
        pass
    elif out.is_terminal:
        etree.indent(root)
        lines = "\n".join(visible(line) for line in serialize(root).decode().splitlines())
        out.print(Syntax(lines, "xml", background_color="default", word_wrap=True))
    else:
        click.echo(serialize(root))
    show_lines(response, saved)


def show_lines(response: Answered, saved: Sequence[SavedPart]) -> None:
    """Print the fault, findings, notes and attachments on standard error."""
    beside = console(stderr=True)
    for line in _lines(response, saved):
        beside.print(visible(line), markup=False, soft_wrap=True)


def _lines(response: Answered, saved: Sequence[SavedPart]) -> Iterator[str]:
    if response.fault is not None:
        said = fault_members(response.fault)
        yield f"fault {said['subcode'] or said['code']}: {said['reason']}"
        for element in () if response.fault.detail is None else response.fault.detail:
            yield f"detail {serialize(element).decode()}"
        if response.unparsed:
            yield f"hint {UNPARSED_HINT}"
    if isinstance(response, Repetition) and response.problem:
        yield f"the answer is no SOAP envelope: {response.problem}"
    for each in response.findings():
        yield f"{each.assertion} {each.level}: {each.reason}"
    for code, text in response.notes():
        yield f"note {code}: {text}"
    for number, part in enumerate(response.attachments):
        size = _size(part)
        what = "octets that cannot be decoded" if size is None else f"{size} octets"
        where = "; --save DIR writes it to a file"
        if saved:
            path, problem = saved[number]
            where = f" in {path}" if problem is None else f", not saved: {problem}"
        yield f"attachment {part.content_id or number + 1}, {_type(part)}, {what}{where}"


def members(response: Answered, saved: Sequence[SavedPart]) -> dict[str, Any]:
    """Return the JSON form of a call."""
    return {
        "request": message_members(response.request),
        "response": None if response.message is None else message_members(response.message),
        "body": None if response.envelope is None else serialize(response.envelope.root).decode(),
        "attachments": [
            {"content_id": part.content_id, "content_type": _type(part), "octets": _size(part)}
            | (_saved_members(saved[number]) if saved else {})
            for number, part in enumerate(response.attachments)
        ],
        "fault": None if response.fault is None else fault_members(response.fault),
        "findings": _finding_members(response),
        "notes": [{"code": code, "text": text} for code, text in response.notes()],
    }


def _saved_members(saved: SavedPart) -> dict[str, str]:
    return {"file": str(saved.path)} if saved.problem is None else {"problem": saved.problem}


def _sent_members(response: Answered, saved: Sequence[SavedPart]) -> dict[str, Any]:
    """Return the JSON form of a one-way message."""
    return {"sent": True, "request": message_members(response.request), "findings": _finding_members(response)}


def _finding_members(response: Answered) -> list[dict[str, Any]]:
    return [
        {"assertion": each.assertion, "level": each.level, "outcome": each.outcome, "reason": each.reason}
        for each in response.findings()
    ]


def message_members(message: Message) -> dict[str, Any]:
    """Return headers and properties in the form of a capture record, without the body."""
    record = to_members(Record(message=message, time=EPOCH))
    return {name: record[name] for name in MESSAGE_MEMBERS if name in record}


def fault_members(fault: Fault) -> dict[str, str | None]:
    """Return the JSON form of a fault; `blame` is the side that the fault holds responsible."""
    detail = None if fault.detail is None else serialize(fault.detail).decode()
    blame = fault.as_error().blame
    return {"code": fault.code, "subcode": fault.subcode, "blame": blame, "reason": fault.reason, "detail": detail}


def _type(part: Part) -> str:
    return part.fields.get("content-type", UNKNOWN_TYPE)


def _size(part: Part) -> int | None:
    """Return the size of the content in octets, or None if it cannot be decoded."""
    try:
        return len(part.content)
    except InvalidAttachmentError:
        return None


def save_parts(response: Answered, folder: Path) -> list[SavedPart]:
    """Write the attachments to new files named by number and type, never by the peer's names.

    A file or link that exists is left alone, and the next number taken. An attachment that cannot be decoded or written
    has a problem, and leaves no file.
    """
    numbers = count(1)
    return [_saved(part, folder, numbers) for part in response.attachments]


def _saved(part: Part, folder: Path, numbers: Iterator[int]) -> SavedPart:
    kind = part.content_type
    suffix = mimetypes.guess_extension(kind.media_type) if kind is not None and kind.media_type else None
    try:
        content = part.content
        folder.mkdir(parents=True, exist_ok=True)
        return SavedPart(_written(content, folder, suffix or ".bin", numbers))
    except (InvalidAttachmentError, OSError) as error:
        return SavedPart(problem=error_text(error))


def _written(content: bytes | memoryview, folder: Path, suffix: str, numbers: Iterator[int]) -> Path:
    while True:
        path = folder / f"attachment-{next(numbers)}{suffix}"
        try:
            file = path.open("xb")  # follows no link
        except FileExistsError:
            continue
        try:
            with file:
                file.write(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path
