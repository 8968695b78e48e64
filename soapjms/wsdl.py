"""WSDL files: reading one with its imports, and adding a port to one.

`soapjms.protocol.wsdl` interprets a WSDL; this module reads the files, and limits which and how much is read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from functools import partial
from io import BytesIO
from os import fsdecode
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

from brokers.arguments import items
from brokers.redaction import shown, without_login
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.text import reason_of
from soapjms.protocol.wsdl import Description, Loaded, Port, read
from soapjms.protocol.wsdl.documents import MAX_DOCUMENTS_OCTETS

if TYPE_CHECKING:
    from soapjms.protocol.wsdl.write import NewPort

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)(?:/+(.+))?", re.DOTALL)
"""A URL given where a path was wanted; turned into a path it has at most one slash after the scheme."""


def read_wsdl(path: str | Path, *, allow: Iterable[str | Path] = ()) -> Description:
    """Read a WSDL 1.1 or 2.0 file with all that it imports or includes.

    Imports are read from local files below the file's own folder, after following links; nothing is fetched over a
    network.

    Args:
        path: the file.
        allow: other folders that imports may be read from.

    Raises:
        InvalidWsdlError: the file cannot be read, is no WSDL, or has a document type declaration; or an import is
            refused, is circular, or is too large.
    """
    files = Files(Path(path), allow)
    return read(files.first(), str(path), files.load)


def add_jms_port(path: str | Path, out: str | Path, port: NewPort, *, allow: Iterable[str | Path] = ()) -> Description:
    """Add a SOAP/JMS port to a WSDL file; the rest of the file stays as it is.

    Args:
        path: the file to read.
        out: the file to write, which may be the same; it is replaced atomically.
        port: the port to add.
        allow: other folders that imports may be read from.

    Returns:
        The description in the new file.

    Raises:
        InvalidWsdlError: the file cannot be read, or its imports cannot be read relative to `out`.
        InvalidUriError, InvalidPropertyError, UsageError: `port` is invalid.
        UsageError: `out` is a folder, or in a folder that does not exist.
        OSError: `out` cannot be written.
    """
    from soapjms.protocol.wsdl.write import add_port

    before, after = Files(Path(path), allow), Files(Path(out), allow)
    octets = add_port(before.first(), port, str(path), before.load)
    described = read(octets, str(out), after.load)  # relative to `out`: the imports must be readable from there too
    _write(out, octets)
    return described


def move_jms_port(path: str | Path, out: str | Path, port: Port, address: str | None) -> Description:
    """Write a WSDL with another address for a SOAP/JMS port.

    Args:
        path: the file to read.
        out: the file to write, which may be the same; it is replaced atomically.
        port: the port, as it was read from the file.
        address: a `jms:` URI that follows the strict grammar; None keeps the address.

    Returns:
        The description in the new file.

    Raises:
        InvalidWsdlError: the file cannot be read, or its imports cannot be read relative to `out`; or the port is not
            in it.
        InvalidUriError: the address is invalid.
        UsageError: `out` is a folder, or in a folder that does not exist.
        OSError: `out` cannot be written.
    """
    octets = Files(Path(path), ()).first()
    if address is not None:
        from soapjms.protocol.wsdl.write import with_address

        octets = with_address(octets, port, address, str(path))
    described = read(octets, str(out), Files(Path(out), ()).load)
    _write(out, octets)
    return described


def _write(out: str | Path, octets: bytes) -> None:
    """Write a file, or the file that a link leads to, as a whole or not at all; an existing one keeps its mode."""
    place = Path(os.path.realpath(out))
    if place.is_dir() or not place.parent.is_dir():
        raise UsageError(f"the path to write to must be that of a file in a folder that exists, got {str(out)!r}")
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
    unfinished = place.with_name(f".{token_hex(16)}.part")
    try:
        with open(unfinished, "xb", opener=partial(os.open, mode=0o666 if mode is None else mode)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)  # what the umask took
            file.write(octets)
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


def folders_given(allow: Iterable[str | Path]) -> tuple[str | Path, ...]:
    """Return the folders that the caller allows.

    Raises:
        UsageError: it is not a list of paths; a single path would count as its characters, of which `/` allows all.
    """
    return items(allow, "allow", "a list of folders", str | Path)


class Folders:
    """The folders that a WSDL and its imports may be read from, after following links: its own, and those allowed.

    Args:
        first: the file of the WSDL, after following links; None for a WSDL that is not a local file.
        allow: other folders.
    """

    def __init__(self, first: Path | None, allow: Iterable[str | Path]) -> None:
        own = [] if first is None else [first.parent]
        self._folders = [*own, *(real_path(Path(each)) for each in folders_given(allow))]

    def check(self, location: str, real: Path) -> None:
        """Refuse a file that is in none of the folders.

        Args:
            location: the location as it is written in the import.
            real: the path it leads to, after following links.

        Raises:
            InvalidWsdlError: the file is in none of the folders.
        """
        if not any(real.is_relative_to(each) for each in self._folders):
            own = next(map(str, self._folders), "all folders")
            raise InvalidWsdlError(
                f"the import of {shown(location)} leads to {real}, outside {own}; copy the file there, or allow its "
                "folder"
            )


class Files:
    """The files that one WSDL may be read from.

    Args:
        path: the first file.
        allow: folders that imports may be read from, beside that of the first file.
    """

    def __init__(self, path: Path, allow: Iterable[str | Path]) -> None:
        self._path = path
        self._real = real_path(path)
        self._folders = Folders(self._real, allow)
        self._reals = {str(path): self._real}
        self._octets: dict[str, bytes] = {}  # the contents of imported files, each read once

    def first(self) -> bytes:
        """Read the first file."""
        return read_file(self._path)

    def load(self, location: str, base: str) -> Loaded:
        """Read a document's import: a path or file: URI, relative to the folder of the document `base`."""
        real = real_path(self._reals[base].parent / local_path(location))
        self._folders.check(location, real)
        name = self._name(real)
        if name not in self._reals:
            self._reals[name] = real
            self._octets[name] = read_file(real)
        return Loaded(name, self._octets.get(name, b""))

    def _name(self, real: Path) -> str:
        """Return the one name of a file: in the form of the first file's path if it is below the same folder."""
        if real == self._real:
            return str(self._path)
        if real.is_relative_to(self._real.parent):
            return str(self._path.parent / real.relative_to(self._real.parent))
        return str(real)


def local_path(location: str) -> str:
    """Return the path in a location.

    Raises:
        InvalidWsdlError: the location is not a local file.
    """
    try:
        parts = urlsplit(location)
    except ValueError:  # its text repeats the login before the host
        raise InvalidWsdlError(f"the import of {shown(location)} is not a URI: check its host") from None
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise InvalidWsdlError(
            f"the import of {shown(location)} is refused: nothing is fetched over a network; save the file "
            "beside this one and use its name as the location"
        )
    return fsdecode(unquote_to_bytes(parts.path))


def real_path(path: Path) -> Path:
    """Return where a path leads, after following links.

    Raises:
        InvalidWsdlError: the path leads nowhere: links form a loop, or a file cannot have this name.
    """
    try:
        return path.resolve()
    except RecursionError:  # the caller's
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name with a null character
        raise InvalidWsdlError(f"{shown(str(path))} cannot be read: {reason_of(error)}") from None


def read_file(path: Path) -> bytes:
    """Read a regular file, not a device or pipe, up to one octet more than a WSDL may have.

    Raises:
        InvalidWsdlError: the file cannot be read, or is not a regular file.
    """
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        with path.open("rb") if is_file else BytesIO() as file:
            octets = file.read(MAX_DOCUMENTS_OCTETS + 1)
    except (OSError, ValueError) as error:
        raise InvalidWsdlError(_unreadable(path, error)) from None
    if not is_file:
        raise InvalidWsdlError(f"{str(path)!r} cannot be read: it is not a file")
    return octets


def _unreadable(path: Path, error: OSError | ValueError) -> str:
    url = _URL.match(str(path))
    if url is None or url[2] is None:
        name = repr(str(path)) if url is None else shown(str(path))
        return f"{name} cannot be read: {error.strerror if isinstance(error, OSError) else error}"
    address = f"{url[1]}//{url[2]}"
    return (
        f"{without_login(address)!r} is refused: nothing is fetched over a network; save the WSDL, with its imports, "
        "and give the name of the file"
    )
