"""Who asks a broker: a user and a password, and where they come from. Secrets are in no repr, log or pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeAlias


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; None for none. Neither is shown, and no copy is pickled."""

    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not pickled: they would be in a file or on a network in the clear")


Ask: TypeAlias = Callable[[], Credentials]
"""Called at every attempt to connect, so that secrets may change meanwhile; on the connecting thread."""

NOBODY: Final = Credentials()


def from_file(user: str | None, file: Path) -> Ask:
    """Take the password from a file, read at every attempt; one line end at its end is not part of it."""

    def ask() -> Credentials:
        text = file.read_text("utf-8")
        return Credentials(user, text.removesuffix("\n").removesuffix("\r"))

    return ask
