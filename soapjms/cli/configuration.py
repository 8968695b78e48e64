"""The sources of options: flags, then the environment, then `soapjms.toml`. And `--debug`, which every command has.

`equip` adds these to the options of a command, so that no command has to do so itself. Unknown names are reported,
together with a similar name that was perhaps meant.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import click

from brokers.environment import OLD_NAMES
from brokers.files import check_files
from soapjms.cli.trust import check_owner, guarded

FILE: Final = "soapjms.toml"
MAX_FILE_OCTETS: Final = 1 << 20
PREFIX: Final = "SOAPJMS"
DEBUG: Final = "soapjms.debug"
"""Key in click's context for whether `--debug` was given."""

DEBUG_VARIABLE: Final = f"{PREFIX}_DEBUG"
CONFIG_VARIABLE: Final = f"{PREFIX}_CONFIG"
NOT_OURS: Final = f"{PREFIX}_TEST_"
"""Prefix of variables that only tests use."""

MAX_UNKNOWN_NAMES: Final = 20
"""Maximum number of unknown variables that are reported; each is compared with all known ones."""

OUR_LOGS: Final = ("soapjms", "brokers")
"""The loggers that `--debug` shows: other libraries may log passwords."""

SHARED: Final = frozenset({"connection", "names", "profile"})
"""Options with the same meaning in every command that has them, so that they can be set once for all commands."""


def _note_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.meta.get(DEBUG):
        ctx.meta[DEBUG] = True
        for end in show_debug():
            ctx.find_root().call_on_close(end)


def show_debug() -> list[Callable[[], None]]:
    """Write our whole log to standard error, tracebacks included; return functions that end that."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    ends: list[Callable[[], None]] = []
    for name in OUR_LOGS:
        ours = logging.getLogger(name)
        ends.append(partial(_end_debug, ours, ours.level, handler))
        ours.setLevel(logging.DEBUG)
        ours.addHandler(handler)
    return ends


def is_debug() -> bool:
    """Say whether `--debug` was given to the running command."""
    return DEBUG in click.get_current_context().meta


def _end_debug(ours: logging.Logger, level: int, handler: logging.Handler) -> None:
    """Restore the logger, for a program that runs a command in its own process."""
    ours.setLevel(level)
    ours.removeHandler(handler)


class DebugOption(click.Option):
    """`--debug`, on the group and on every command."""

    def __init__(self) -> None:
        super().__init__(
            ["--debug"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_note_debug,
            envvar=DEBUG_VARIABLE,
            help="Show the log, and where in the program an error occurred.",
        )


def equip(command: click.Command, path: tuple[str, ...]) -> click.Command:
    """Add `--debug` to a command and those below it, and environment variables to each option. Idempotent.

    The variables are `SOAPJMS_COMMAND_OPTION` and, for options of `SHARED` and with lower precedence, `SOAPJMS_OPTION`.

    Args:
        command: the command as its module defines it.
        path: the words by which it is called.
    """
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            equip(each, (*path, name))
        return command
    if not any(isinstance(each, DebugOption) for each in command.params):
        for option in _options(command).values():
            option.envvar = list(dict.fromkeys(_variables(option, path)))
        command.params.append(DebugOption())
        assert command.callback is not None
        command.callback = guarded(command.callback)
    return command


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by the names that users know."""
    return {_key(each): each for each in command.params if isinstance(each, click.Option)}


def _key(option: click.Option) -> str:
    return max(option.opts, key=len).removeprefix("--")


def _variables(option: click.Option, path: tuple[str, ...]) -> Iterator[str]:
    key = _key(option)
    yield "_".join((PREFIX, *path, key)).upper().replace("-", "_")
    said = option.envvar or []
    yield from [said] if isinstance(said, str) else said
    if key in SHARED:
        yield f"{PREFIX}_{key}".upper()


def variables_of(command: click.Command) -> Iterator[str]:
    """Yield the variables of an equipped command, and of those below it."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from variables_of(each)
    for option in _options(command).values():
        said = option.envvar or []
        yield from [said] if isinstance(said, str) else said


def unknown_variables(environment: Iterable[str], commands: Iterable[click.Command]) -> Iterator[str]:
    """Yield a line for each variable `SOAPJMS_…` that belongs to no option, with one that was perhaps meant.

    Args:
        environment: the names of all variables.
        commands: all commands, equipped; taken one by one until each variable has an option.
    """
    known = {DEBUG_VARIABLE, CONFIG_VARIABLE, *OLD_NAMES, *(f"{PREFIX}_{each}".upper() for each in SHARED)}
    given = {each for each in environment if each.startswith(f"{PREFIX}_") and not each.startswith(NOT_OURS)}
    for command in commands:
        known.update(variables_of(command))
        if given <= known:
            return
    begin = len(PREFIX) + 1
    for name in sorted(given - known)[:MAX_UNKNOWN_NAMES]:
        near = get_close_matches(name[begin:], sorted(each[begin:] for each in known), n=1)
        meant = f"perhaps {PREFIX}_{near[0]} was meant" if near else f"options are {PREFIX}_COMMAND_OPTION"
        yield f"the variable {name} belongs to no option and has no effect; {meant}"


# The file


def read_defaults(path: str | None, command: click.Command, name: str, known: list[str]) -> Mapping[str, Any]:
    """Read a configuration file's values for a command, in the form of click's `default_map`.

    Args:
        path: the file; None for `soapjms.toml` in the working directory, if it exists and is the user's own.
        command: the command that is to run.
        name: the word by which it is called.
        known: the names of all commands.

    Raises:
        click.UsageError: the file cannot be read, or has a name that is not an option's.
    """
    if path is None and not os.path.isfile(FILE):
        return {}
    place = path or FILE
    said = _read(place, is_named=path is not None)
    shared = {key: value for key, value in said.items() if not isinstance(value, dict)}
    _refuse_unknown(place, shared, SHARED, "option for all commands")
    _refuse_unknown(place, said.keys() - shared.keys(), known, "command")
    return {name: _defaults(command, said.get(name, {}), shared, f"{place}, [{name}]")}


def _read(path: str, *, is_named: bool) -> dict[str, Any]:
    import tomllib

    try:
        check_files(path)
        with open(path, "rb") as file:
            if not is_named:
                check_owner(file.fileno(), path)
            octets = file.read(MAX_FILE_OCTETS + 1)
        if len(octets) > MAX_FILE_OCTETS:
            raise ValueError(f"it has more than {MAX_FILE_OCTETS} octets")
        return tomllib.loads(octets.decode())
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise click.UsageError(f"{path} cannot be read as TOML: it is nested too deep") from None
    except ValueError as error:
        raise click.UsageError(f"{path} cannot be read as TOML: {error}") from None


def _defaults(command: click.Command, said: Any, shared: dict[str, Any], place: str) -> dict[str, Any]:
    """Translate the names that users know to those of the command's parameters."""
    if not isinstance(said, dict):
        raise click.UsageError(f"{place} must be a table, got {_seen(said)}")
    if isinstance(command, click.Group):
        _refuse_unknown(place, said, command.commands, "command")
        return {
            name: _defaults(each, said.get(name, {}), shared, f"{place[:-1]}.{name}]")
            for name, each in command.commands.items()
        }
    options = _options(command)
    _refuse_unknown(place, said, options.keys() - {"debug"}, "option")
    found = {key: value for key, value in shared.items() if key in options} | said
    return {str(options[key].name): _value(options[key], value, place) for key, value in found.items()}


def _value(option: click.Option, value: Any, place: str) -> Any:
    """Return a value as it would be on the command line: text, or a list of it for a repeatable option.

    A flag also takes true or false, which no other option does: to click they are the numbers 1 and 0.
    """
    values = value if isinstance(value, list) and option.multiple else [value]
    if not all(option.is_flag if isinstance(each, bool) else isinstance(each, str | int | float) for each in values):
        wanted = "text, a number, true or false" if option.is_flag else "text or a number"
        wanted += ", or a list of these" * option.multiple
        raise click.UsageError(f"{place}: {_key(option)} must be {wanted}, got {_seen(value)}")
    return [str(each) for each in values] if option.multiple else str(value)


def _seen(value: Any) -> str:
    """Describe a value, without the content of a text, which may be a URL with a password."""
    if isinstance(value, list):
        return f"[{', '.join(map(_seen, value))}]"
    return "text" if isinstance(value, str) else "a table" if isinstance(value, dict) else repr(value)


def _refuse_unknown(place: str, said: Any, known: Any, what: str) -> None:
    if unknown := sorted(set(said) - set(known)):
        listed = ", ".join(sorted(known))
        near = get_close_matches(unknown[0], list(known), n=1)
        meant = f"; perhaps {near[0]!r} was meant" if near else ""
        raise click.UsageError(f"{place}: {unknown[0]!r} is not a known {what}; known are: {listed}{meant}")
