"""What a `soapjms.toml` may say that nobody named, but that lies in the working directory: it may be anybody's.

It is read if it is the user's own, as ssh and git have it. And it does not choose who gets the user's password, nor
what code is run: it may have come with a folder, as from an archive or a repository, which is the user's own then.
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

from brokers.adapter.failover import read_failover
from brokers.redaction import shown

UNNAMED: Final = "soapjms.unnamed"
"""Under which the context of click knows that its defaults are of a file that nobody named."""

CODE: Final = ("middleware", "verify", "conf", "master")
"""Options, by their parameters, that choose what code is run."""

OF_ENVIRONMENT: Final = ("BROKERS_PASSWORD_FILE", "BROKERS_PASSWORD")
IN_PROCESS: Final = "embedded"


def check_owner(file: int, name: str) -> None:
    """Refuse a file of the working directory that others wrote, or may write.

    Args:
        file: its descriptor.
        name: as it is called.

    Raises:
        click.UsageError: it, or the working directory, is not the user's own.
    """
    if not hasattr(os, "geteuid"):
        return
    folder = os.stat(".")
    for what, found in ((name, os.fstat(file)), ("the working directory", folder)):
        problem = _problem(found)
        if problem is not None:
            raise click.UsageError(
                f"{what} {problem}, so the {name} in it is not read: it could send your password anywhere. If you "
                f"trust it, say so with --config {name}; --config {os.devnull} goes on without it"
            )


def _problem(found: os.stat_result) -> str | None:
    """Say what is wrong with the owner and the rights of a file or folder, None if nothing is."""
    own = os.geteuid()
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # others replace nothing of ours there
    if found.st_uid not in (own, 0):
        return f"belongs to the user {found.st_uid} and not to you ({own})"
    if found.st_mode & stat.S_IWOTH and not is_sticky:
        return "may be written by anybody (chmod o-w)"
    if found.st_mode & stat.S_IWGRP and not is_sticky and not _is_own_group(found.st_gid):
        return f"may be written by the group {found.st_gid} (chmod g-w)"
    return None


def _is_own_group(number: int) -> bool:
    """Say whether a group is that of the user alone, as most systems make one for each."""
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
    """Make the function of a command refuse first what a file that nobody named must not say."""

    @wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        refuse_code(click.get_current_context())
        refuse_borrowed_password(click.get_current_context())
        return callback(*arguments, **options)

    return run


def refuse_code(ctx: click.Context) -> None:
    """Refuse to run code that a file chooses that nobody named: it may have come with a folder, with that code.

    Raises:
        click.UsageError: such a file says what to import, or where Spark is and what it loads.
    """
    for name in CODE if ctx.meta.get(UNNAMED) else ():
        if ctx.params.get(name) and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
            raise click.UsageError(
                f"{name} is said by a soapjms.toml that you did not name, and it chooses code that is run: name the "
                f"file with --config soapjms.toml, or say --{name} yourself"
            )


def refuse_borrowed_password(ctx: click.Context) -> None:
    """Refuse to send a password of the user's to an address out of a file that nobody named.

    Raises:
        click.UsageError: such a file names the broker, and something else the password.
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
            f"{name} is {shown(value)} by a soapjms.toml that you did not name, and the password is by {source}: a "
            f"folder of somebody else's could have it sent anywhere. Name the file with --config soapjms.toml, or the "
            f"broker with --connection or SOAPJMS_CONNECTION"
        )


def _passwords(url: str) -> Iterator[str]:
    """Yield where the passwords come from that are not in the URL itself."""
    try:
        parts = [urlsplit(each) for each in read_failover(url, reconnect=True).urls]
    except ValueError:  # which is told when it is to be connected to
        return
    for each in parts:
        if "passwordFile=" in each.query:
            yield "its passwordFile"
        elif each.scheme.lower() != IN_PROCESS and each.username is None and (found := _of_environment()):
            yield found


def _of_environment() -> str | None:
    return next((each for each in OF_ENVIRONMENT if each in os.environ), None)
