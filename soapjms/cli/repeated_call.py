"""`soapjms call --record FILE`: a captured request, sent again as it was captured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any, Final

import click
from click.core import ParameterSource

from brokers.naming import Names
from soapjms.cli.connection import check_reachable, opened, read_names
from soapjms.client.repetition import Repetition, repeat
from soapjms.destinations import destination_of
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, PROFILES, ProfileName
from soapjms.protocol.record import Direction, Record, from_json
from soapjms.protocol.repetition import obstacles
from soapjms.protocol.uri import parse

OWN_OPTIONS: Final = ("wsdl", "port", "allow", "operation", "action", "one_way", "attachments", "properties", "text")
"""The options by which a call is written; a record has been written already. Values of a configuration do not count."""


def repeated(
    stream: IO[bytes],
    *,
    connection: str | None,
    uri: str | None,
    names: str | None,
    timeout: float,
    profile: ProfileName | None,
    **others: Any,
) -> Repetition:
    """Send the request of a capture record again.

    Raises:
        click.UsageError: another option contradicts it.
        UsageError: there is no such request, or it cannot be sent as it was captured.
        CallFailedError: no answer came.
    """
    context = click.get_current_context()
    for name in OWN_OPTIONS:
        if others[name] and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = {"attachments": "attachment", "properties": "set"}.get(name, name.replace("_", "-"))
            raise click.UsageError(f"--record sends the request as it was captured: leave out --{option}")
    record = read_request(stream)
    known = read_names(names)
    destination = None if uri is None else destination_of(parse(uri), known or Names())
    if problem := next(obstacles(record, destination), None):
        raise UsageError(problem)
    check_reachable(connection)
    with opened(connection, uri or "", None if uri is None else known, {}, timeout) as open_connection:
        edition = DEFAULT_PROFILE if profile is None else PROFILES[profile]
        return repeat(open_connection, record, destination, profile=edition, timeout=timeout)


def read_request(stream: Iterable[bytes]) -> Record:
    """Read the only request, or one-way message, of a capture log; responses beside it are left aside.

    Raises:
        UsageError: a line is no record, or there is not exactly one request.
    """
    found: list[Record] = []
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                found.append(from_json(line.decode("utf-8")))
            except (UnicodeDecodeError, InvalidRecordError) as error:
                raise UsageError(f"line {number} of --record must be a capture record: {error}") from None
    asked = [each for each in found if each.direction is not Direction.RESPONSE]
    if len(asked) > 1:  # a tap does not know the direction
        asked = [each for each in asked if each.message.reply_to is not None]
    if len(asked) == 1:
        return asked[0]
    what = f"{len(asked)} requests" if len(asked) > 1 else f"{len(found)} records" if found else "nothing"
    raise UsageError(f"--record must hold one request or one-way message, got {what}: give its line of the log alone")
