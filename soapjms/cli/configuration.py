"""Where options come from: flags, then the environment, then `soapjms.toml`. And `--debug`, which every command has.

`equip` goes once through the options of a command, so that no command says any of it itself. Names that no option
has are told, with the one that was perhaps meant.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from brokers.files import check_files
from soapjms.cli.trust import check_owner, guarded

FILE: Final = "soapjms.toml"
MAX_FILE_OCTETS: Final = 1 << 20
PREFIX: Final = "SOAPJMS"
DEBUG: Final = "soapjms.debug"
"""Under which the context of click knows whether `--debug` was given."""

DEBUG_VARIABLE: Final = f"{PREFIX}_DEBUG"
CONFIG_VARIABLE: Final = f"{PREFIX}_CONFIG"
NOT_OURS: Final = f"{PREFIX}_TEST_"
"""How variables begin that tests have for themselves."""

MAX_UNKNOWN_NAMES: Final = 20
"""Unknown variables that are told; each is compared with all that there are."""

OUR_LOGS: Final = ("soapjms", "brokers")
"""What other libraries log may hold a password."""

SHARED: Final = frozenset({"connection", "names", "profile"})
"""Options that mean the same to every command that has them, so that they may be said once for all of them."""


def _note_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.meta.get(DEBUG):
        ctx.meta[DEBUG] = True
        for end in show_debug():
            ctx.find_root().call_on_close(end)


def show_debug() -> list[Callable[[], None]]:
    """Write all that our log has to standard error, tracebacks too; return what ends that."""
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
    """Say whether `--debug` was given to the command that runs."""
    return DEBUG in click.get_current_context().meta


def _end_debug(ours: logging.Logger, level: int, handler: logging.Handler) -> None:
    """Leave the log as it was, for a program that runs a command within itself."""
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
            help="Show the log, and where in the program an error is from.",
        )


def equip(command: click.Command, path: tuple[str, ...]) -> click.Command:
    """Give a command, and those below it, `--debug`, and each option its environment variables. Idempotent.

    They are `SOAPJMS_COMMAND_OPTION`, and for options of `SHARED` also `SOAPJMS_OPTION`, which loses.

    Args:
        command: a command as its module has it.
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
    """Yield the variables of a command that is equipped, and of those below it."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from variables_of(each)
    for option in _options(command).values():
        said = option.envvar or []
        yield from [said] if isinstance(said, str) else said


def unknown_variables(environment: Iterable[str], commands: Iterable[click.Command]) -> Iterator[str]:
    """Say of each variable `SOAPJMS_…` that no option has it, and which one was perhaps meant; a line for each.

    Args:
        environment: the names of all variables.
        commands: all, equipped; asked for one by one until each variable has an option.
    """
    known = {DEBUG_VARIABLE, CONFIG_VARIABLE, *(f"{PREFIX}_{each}".upper() for each in SHARED)}
    given = {each for each in environment if each.startswith(f"{PREFIX}_") and not each.startswith(NOT_OURS)}
    for command in commands:
        known.update(variables_of(command))
        if given <= known:
            return
    begin = len(PREFIX) + 1
    for name in sorted(given - known)[:MAX_UNKNOWN_NAMES]:
        near = get_close_matches(name[begin:], sorted(each[begin:] for each in known), n=1)
        meant = f"perhaps {PREFIX}_{near[0]} was meant" if near else f"options are {PREFIX}_COMMAND_OPTION"
        yield f"the variable {name} is of no option and counts for nothing; {meant}"


# The file


def read_defaults(path: str | None, command: click.Command, name: str, known: list[str]) -> Mapping[str, Any]:
    """Read what a configuration file says for a command, as click's `default_map` has it.

    Args:
        path: of the file; None for `soapjms.toml` of the working directory, if there is one, and it is the user's own.
        command: the command that is to run.
        name: the word by which it is called.
        known: the names of all commands.

    Raises:
        click.UsageError: the file cannot be read, or says something that no option is called.
    """
    if path is None and not Path(FILE).is_file():
        return {}
    place = path or FILE
    said = _read(place, is_named=path is not None)
    shared = {key: value for key, value in said.items() if not isinstance(value, dict)}
    _refuse_unknown(place, shared, SHARED, "option for all commands")
    _refuse_unknown(place, said.keys() - shared.keys(), known, "command")
    return {name: _defaults(command, said.get(name, {}), shared, f"{place}, [{name}]")}


def _read(path: str, *, is_named: bool) -> dict[str, Any]:
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
        raise click.UsageError(f"{path} is no TOML that can be read: it is nested too deep") from None
    except ValueError as error:
        raise click.UsageError(f"{path} is no TOML: {error}") from None


def _defaults(command: click.Command, said: Any, shared: dict[str, Any], place: str) -> dict[str, Any]:
    """Translate the names that users know to those of the command's parameters."""
    if not isinstance(said, dict):
        raise click.UsageError(f"{place} is {_seen(said)}; it is a table")
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
    """Return a value as click takes it: a list for an option that may be repeated, else one of TOML's scalars."""
    values = value if isinstance(value, list) and option.multiple else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        wanted = "text, a number, true or false" + ", or a list of these" * option.multiple
        raise click.UsageError(f"{place}: {_key(option)} is {_seen(value)}; it is {wanted}")
    return values if option.multiple else value


def _seen(value: Any) -> str:
    """Show a value; of a text only that it is one, as it may be a URL with a password."""
    if isinstance(value, list):
        return f"[{', '.join(map(_seen, value))}]"
    return "text" if isinstance(value, str) else "a table" if isinstance(value, dict) else repr(value)


def _refuse_unknown(place: str, said: Any, known: Any, what: str) -> None:
    if unknown := sorted(set(said) - set(known)):
        listed = ", ".join(sorted(known))
        near = get_close_matches(unknown[0], list(known), n=1)
        meant = f"; perhaps {near[0]!r} was meant" if near else ""
        raise click.UsageError(f"{place}: {unknown[0]!r} is no {what}; there are: {listed}{meant}")
