"""The paths that users give: each is checked when the command line is read, so that its error names the option.

What a file holds is for the command to check.
"""

from __future__ import annotations

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

import click
from click.shell_completion import CompletionItem

from brokers.files import check_files
from brokers.redaction import shown as shown_url
from soapjms.protocol.text import shown
from soapjms.protocol.uri import visible
from soapjms.replay.uris import is_elsewhere

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic in older releases


class BadPathError(click.BadParameter):
    """A path cannot be used. Its error is one line: how a command is called has nothing to do with it."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error."""
        click.echo(f"Error: {self.format_message()}", file, err=True)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete the name of a file; for options and arguments that are no `PathType`."""
    return [CompletionItem(incomplete, type="file")]


class PathType(ParamType, ABC):
    """A path, which the shell completes; the subclasses say what must be there.

    Args:
        what: what is expected, as in "a certificate in PEM".
        path_type: `str` or `Path`: the type of the command's argument.
        or_uri: whether a URI may be in its place, which the command itself opens or refuses.
    """

    name = "path"
    completed_as: ClassVar = "file"

    def __init__(self, what: str, path_type: type[str] | type[Path] = str, *, or_uri: bool = False) -> None:
        self.what = what
        self._path_type = path_type
        self._or_uri = or_uri

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        path = os.fspath(value)
        try:
            problem = None if self._or_uri and is_elsewhere(path) else next(self._problems(path), None)
        except OSError as error:
            problem = f"cannot be used: {error.strerror or error}"
        except ValueError as error:  # a null character
            problem = f"cannot be used: {error}"
        if problem is not None:
            named = shown_url(path) if "://" in path else shown(path)  # a URL in the wrong place may have a password
            raise BadPathError(f"it must be {self.what}, got {named}, which {problem}", ctx, param)
        return self._path_type(path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Have the shell complete the path."""
        return [CompletionItem(incomplete, type=self.completed_as)]

    def checked(self, path: str, option: str) -> Any:
        """Return a path that is part of an option or argument, whose name is in the error.

        Raises:
            click.BadParameter: the path cannot be used.
        """
        try:
            return self.convert(path, None, click.get_current_context())
        except click.BadParameter as error:
            raise BadPathError(error.message, error.ctx, param_hint=f"'{option}'") from None

    def _problems(self, path: str) -> Iterator[str]:
        if not path:  # else it would be the current folder
            yield "is empty"
        yield from self.problems(path)

    @abstractmethod
    def problems(self, path: str) -> Iterator[str]:
        """Yield what is wrong with a path, as the end of a sentence.

        Raises:
            OSError: the path cannot be used.
        """


class InputFile(PathType):
    """A file that is read.

    Args:
        what, path_type, or_uri: see `PathType`.
        is_regular: whether `<(command)` of a shell cannot be in its place.
    """

    def __init__(
        self, what: str, path_type: type[str] | type[Path] = str, *, is_regular: bool = False, or_uri: bool = False
    ) -> None:
        super().__init__(what, path_type, or_uri=or_uri)
        self._is_regular = is_regular

    def problems(self, path: str) -> Iterator[str]:
        """Yield what is wrong with a path."""
        try:
            check_files(path)
        except FileNotFoundError:
            yield "does not exist"
        except IsADirectoryError:
            yield "is a folder"
        except OSError as error:
            if error.errno is not None:
                raise
            yield str(error).partition(" ")[2]  # it begins with the name
        if self._is_regular and not stat.S_ISREG(os.stat(path).st_mode):
            yield "is not a regular file"
        if not os.access(path, os.R_OK):
            yield "you may not read"


class InputStream(InputFile):
    """A file that is read once, or `-` for standard input; the value is the open file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file."""
        path = value if value == "-" else super().convert(value, param, ctx)
        return click.File("rb").convert(path, param, ctx)


class InputFolder(PathType):
    """A folder whose files are read."""

    completed_as = "dir"

    def problems(self, path: str) -> Iterator[str]:
        """Yield what is wrong with a path."""
        yield from _not_a_folder(path)
        if not os.access(path, os.R_OK | os.X_OK):
            yield "you may not read"


class OutputFolder(PathType):
    """A folder for results, which is made if it does not exist."""

    completed_as = "dir"

    def problems(self, path: str) -> Iterator[str]:
        """Yield what is wrong with a path."""
        if _is_there(path):
            yield from _not_a_folder(path)
            if not os.access(path, os.W_OK | os.X_OK):
                yield "you may not write to"
            return
        yield from _not_made_in(next(each for each in Path(path).absolute().parents if _is_there(each)))


class OutputFile(PathType):
    """A file that is written, in a folder that exists."""

    def problems(self, path: str) -> Iterator[str]:
        """Yield what is wrong with a path."""
        if os.path.isdir(path):
            yield "is a folder"
        elif os.path.exists(path) and not os.path.isfile(path):  # to replace a device would break the system
            yield "is not a regular file"
        if not _is_there(path):
            yield from _not_made_in(Path(path).absolute().parent)
        elif not os.access(path, os.W_OK):
            yield "you may not write to"


def _is_there(path: str | Path) -> bool:
    """Say whether there is a file, folder or link.

    Raises:
        OSError: no file can have this name.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _not_a_folder(path: str) -> Iterator[str]:
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            yield "is not a folder"
    except FileNotFoundError:
        yield "does not exist"


def _not_made_in(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        yield f"cannot be made, as there is no folder {shown(str(folder))}"
    if not os.access(folder, os.W_OK | os.X_OK):
        yield f"cannot be made, as you may not write to {shown(str(folder))}"


def error_text(error: object) -> str:
    """Return an error in one line for a terminal, with the path of a system's error before its words, and no number."""
    return visible(_NUMBER.sub("", _ABOUT_PATH.sub(r"\2: \1", str(error))))


_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_ABOUT_PATH: Final = re.compile(r"\[Errno -?\d+\] ([^:\[\]\n]+): ('[^'\n]*'|\"[^\"\n]*\")")
"""What Python says of a system's error with a path: [Errno 2] No such file or directory: 'name'."""

WSDL_FILE: Final = InputFile("a WSDL file", is_regular=True, or_uri=True)
CERTIFICATE: Final = InputFile("a certificate in PEM")
KEY: Final = InputFile("a key in PEM")
