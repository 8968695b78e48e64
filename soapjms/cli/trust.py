"""Limits on a `soapjms.toml` that is read only because it lies in the working directory: it may be anybody's.

It is read if it belongs to the user, as ssh and git do. It must not choose who gets the user's password, nor what code
is run: it may have come with a folder from an archive or a repository, and then belongs to the user, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from brokers.environment import PASSWORD, PASSWORD_FILE, name_in
from brokers.redaction import shown

UNNAMED: Final = "soapjms.unnamed"
"""Key in click's context for whether its defaults may come from a file that the user did not name."""

CODE: Final = ("middleware", "verify", "conf", "master")
"""Options, by parameter name, that choose what code is run."""

IN_PROCESS: Final = "embedded"


def check_owner(file: int, name: str) -> None:
    """Refuse a file of the working directory that others wrote, or may write to.

    Args:
        file: the file's descriptor.
        name: the file's name.

    Raises:
        click.UsageError: the file, or the working directory, is not the user's own.
    """
    if not hasattr(os, "geteuid"):
        return
    folder = os.stat(".")
    for what, found in ((name, os.fstat(file)), ("the working directory", folder)):
        problem = _problem(found)
        if problem is not None:
            raise click.UsageError(
                f"{what} {problem}, so {name} is not read: it could send your password anywhere. If you trust it, use "
                f"--config {name}; --config {os.devnull} goes on without it"
            )


def _problem(found: os.stat_result) -> str | None:
    """Say what is wrong with the owner and the permissions of a file or folder; None if nothing is."""
    own = os.geteuid()
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # others cannot replace our files there
    if found.st_uid not in (own, 0):
        return f"belongs to the user {found.st_uid} and not to you ({own})"
    if found.st_mode & stat.S_IWOTH and not is_sticky:
        return "is writable by anybody (chmod o-w)"
    if found.st_mode & stat.S_IWGRP and not is_sticky and not _is_own_group(found.st_gid):
        return f"is writable by the group {found.st_gid} (chmod g-w)"
    return None


def _is_own_group(number: int) -> bool:
    """Say whether a group has the user as its only member; most systems make such a group for each user."""
    import grp
    import pwd

    if number == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def guarded(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command first refuse values that a file which the user did not name must not set."""

    @wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        refuse_code(click.get_current_context())
        refuse_borrowed_password(click.get_current_context())
        return callback(*arguments, **options)

    return run


def refuse_code(ctx: click.Context) -> None:
    """Refuse to run code chosen by a file that the user did not name: both may have come with a folder.

    Raises:
        click.UsageError: such a file sets what to import, or where Spark is and what it loads.
    """
    for name in CODE if ctx.meta.get(UNNAMED) else ():
        if ctx.params.get(name) and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
            raise click.UsageError(
                f"{name} is set by a soapjms.toml that you did not name, and it chooses code that is run: name the "
                f"file with --config soapjms.toml, or give --{name} yourself"
            )


def refuse_borrowed_password(ctx: click.Context) -> None:
    """Refuse to send the user's password to an address from a file that the user did not name.

    Raises:
        click.UsageError: such a file names the broker, and the password comes from elsewhere.
    """
    if not ctx.meta.get(UNNAMED):
        return
    url, names = ctx.params.get("connection"), ctx.params.get("names")
    name, value = ("connection", url) if url is not None else ("names", names)
    if value is None or ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return
    source = next(_passwords(url), None) if url is not None else _of_environment()
    if source is not None:
        raise click.UsageError(
            f"{name} is set to {shown(value)} by a soapjms.toml that you did not name, and the password comes from "
            f"{source}: somebody else's folder could send it anywhere. Name the file with --config soapjms.toml, or "
            f"the broker with --connection or SOAPJMS_CONNECTION"
        )


def _passwords(url: str) -> Iterator[str]:
    """Yield the sources of passwords that are not in the URL itself."""
    from brokers.adapter.failover import read_failover

    try:
        parts = [urlsplit(each) for each in read_failover(url, reconnect=True).urls]
    except ValueError:  # reported when connecting to it
        return
    for each in parts:
        if "passwordFile=" in each.query:
            yield "its passwordFile"
        elif each.scheme.lower() != IN_PROCESS and each.username is None and (found := _of_environment()):
            yield found


def _of_environment() -> str | None:
    return name_in(os.environ, PASSWORD_FILE) or name_in(os.environ, PASSWORD)
