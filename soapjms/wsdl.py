"""WSDL files: reading them with what they import from beside them, and adding a port to one.

What a WSDL says is `soapjms.protocol.wsdl`; here are the files: which may be read, and how much of them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from io import BytesIO
from os import fsdecode
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from brokers.redaction import shown, without_login
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import Description, Loaded, Port, read
from soapjms.protocol.wsdl.documents import MAX_DOCUMENTS_OCTETS
from soapjms.protocol.wsdl.write import NewPort, add_port, with_address

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)(?:/+(.+))?", re.DOTALL)
"""What somebody gave who has it in a browser, or mixed it up; as a path it has one slash, if it has any."""


def read_wsdl(path: str | Path, *, allow: Iterable[str | Path] = ()) -> Description:
    """Read a WSDL 1.1 or 2.0 file with all that it imports or includes.

    Imports are read from local files below the file's own folder, links followed; nothing is fetched over a network.

    Args:
        path: of the file.
        allow: other folders that imports may be read from.

    Raises:
        InvalidWsdlError: it cannot be read, is no WSDL or has a document type; or an import that is refused, runs in a
            loop, or is too much.
    """
    files = Files(Path(path), allow)
    return read(files.first(), str(path), files.load)


def add_jms_port(path: str | Path, out: str | Path, port: NewPort, *, allow: Iterable[str | Path] = ()) -> Description:
    """Add a SOAP/JMS port to a WSDL file; the rest of it stays as it is.

    Args:
        path: of the file.
        out: the file to write, which may be the same; it is replaced in one go.
        port: what to add.
        allow: other folders that imports may be read from.

    Returns:
        What is in the new file.

    Raises:
        InvalidWsdlError: the file cannot be read, or not what it imports from where `out` is.
        InvalidUriError, InvalidPropertyError, UsageError: `port` is not as it must be.
        OSError: `out` cannot be written.
    """
    before, after = Files(Path(path), allow), Files(Path(out), allow)
    octets = add_port(before.first(), port, str(path), before.load)
    described = read(octets, str(out), after.load)  # from there: what it imports has to be there too
    _write(out, octets)
    return described


def move_jms_port(path: str | Path, out: str | Path, port: Port, address: str | None) -> Description:
    """Write a WSDL with another address for a SOAP/JMS port.

    Args:
        path: of the file.
        out: the file to write, which may be the same; it is replaced in one go.
        port: as it was read from the file.
        address: a `jms:` URI, right in the strict grammar; None leaves the port where it is.

    Returns:
        What is in the new file.

    Raises:
        InvalidWsdlError: the file cannot be read, or not what it imports from where `out` is; the port is not in it.
        InvalidUriError: the address is not as it must be.
        OSError: `out` cannot be written.
    """
    octets = Files(Path(path), ()).first()
    if address is not None:
        octets = with_address(octets, port, address, str(path))
    described = read(octets, str(out), Files(Path(out), ()).load)
    _write(out, octets)
    return described


def _write(out: str | Path, octets: bytes) -> None:
    unfinished = Path(f"{out}.part")
    try:
        unfinished.write_bytes(octets)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


class Folders:
    """The folders that a WSDL and what it imports may be read from, links followed: its own, and those allowed.

    Args:
        first: the file of the WSDL, links followed; None for one that is no local file, and has no folder.
        allow: other folders.
    """

    def __init__(self, first: Path | None, allow: Iterable[str | Path]) -> None:
        own = [] if first is None else [first.parent]
        self._folders = [*own, *(real_path(Path(each)) for each in allow)]

    def check(self, location: str, real: Path) -> None:
        """Refuse what is in none of them.

        Args:
            location: as it is written in the import.
            real: where it leads, links followed.

        Raises:
            InvalidWsdlError: it is outside.
        """
        if not any(real.is_relative_to(each) for each in self._folders):
            own = next(map(str, self._folders), "all folders")
            raise InvalidWsdlError(
                f"the import of {shown(location)} leads to {real}, outside of {own}; copy the file there, or allow its "
                "folder"
            )


class Files:
    """The files that one WSDL may be read from.

    Args:
        path: of the first.
        allow: folders that imports may be read from, beside that of the first.
    """

    def __init__(self, path: Path, allow: Iterable[str | Path]) -> None:
        self._path = path
        self._real = real_path(path)
        self._folders = Folders(self._real, allow)
        self._reals = {str(path): self._real}
        self._octets: dict[str, bytes] = {}  # of what is imported, each file read once

    def first(self) -> bytes:
        """Read the first."""
        return read_file(self._path)

    def load(self, location: str, base: str) -> Loaded:
        """Read what a document imports: a path, or a file: URI, from the folder of that document."""
        real = real_path(self._reals[base].parent / local_path(location))
        self._folders.check(location, real)
        name = self._name(real)
        if name not in self._reals:
            self._reals[name] = real
            self._octets[name] = read_file(real)
        return Loaded(name, self._octets.get(name, b""))

    def _name(self, real: Path) -> str:
        """Return how a file is called: as the first was, if it is below the same folder; each by one name only."""
        if real == self._real:
            return str(self._path)
        if real.is_relative_to(self._real.parent):
            return str(self._path.parent / real.relative_to(self._real.parent))
        return str(real)


def local_path(location: str) -> str:
    """Return the path in a location.

    Raises:
        InvalidWsdlError: it is no local file.
    """
    try:
        parts = urlsplit(location)
    except ValueError:  # its text repeats what is before the host
        raise InvalidWsdlError(f"the import of {shown(location)} is no URI: look at its host") from None
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise InvalidWsdlError(
            f"the import of {shown(location)} is refused: nothing is fetched over a network; save the file "
            "beside this one and write its name as the location"
        )
    return fsdecode(unquote_to_bytes(parts.path))


def real_path(path: Path) -> Path:
    """Return where a path leads, links followed.

    Raises:
        InvalidWsdlError: nowhere: a loop of links, or no name that a file can have.
    """
    try:
        return path.resolve()
    except RecursionError:  # of the caller's
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name with a null character
        raise InvalidWsdlError(f"{shown(str(path))} cannot be read: {error}") from None


def read_file(path: Path) -> bytes:
    """Read a file, if it is one: no device, no pipe, and one octet more at most than a WSDL may have.

    Raises:
        InvalidWsdlError: it cannot be read, or is no file.
    """
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        with path.open("rb") if is_file else BytesIO() as file:
            octets = file.read(MAX_DOCUMENTS_OCTETS + 1)
    except (OSError, ValueError) as error:
        raise InvalidWsdlError(_unreadable(path, error)) from None
    if not is_file:
        raise InvalidWsdlError(f"{str(path)!r} cannot be read: it is no file")
    return octets


def _unreadable(path: Path, error: OSError | ValueError) -> str:
    url = _URL.match(str(path))
    if url is None or url[2] is None:
        name = repr(str(path)) if url is None else shown(str(path))
        return f"{name} cannot be read: {error.strerror if isinstance(error, OSError) else error}"
    address = f"{url[1]}//{url[2]}"
    return (
        f"{without_login(address)!r} is refused: nothing is fetched over a network; save the WSDL, with what it "
        "imports, and give the name of the file"
    )
