"""Parses every document of the W3C XML conformance data, and watches whether that opens a file or a socket.

A program of its own, as an audit hook cannot be taken out again: python watch.py DATA

It writes JSON: `documents`, each test with what became of it, and what the operating system meanwhile saw `opened` in
the folder of the data (libxml2 opens files without asking Python); `audited`, what Python was asked to open while
parsing; `seen`, that a file which is opened on purpose at the end was seen. Every document is parsed in its own folder,
where the files that it names are.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lxml import etree

from soapjms.protocol import content, xml

XML_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
IN_OPEN, IN_NONBLOCK, IN_Q_OVERFLOW = 0x20, 0x800, 0x4000
EVENT_HEAD: Final = 16


def tests_of(data: Path) -> Iterator[tuple[etree._Element, Path]]:
    """Yield every test of the suite with its document; the suite's own list has a document type."""
    manifest = etree.parse(data / "cleaned" / "xmlconf-flattened.xml", etree.XMLParser(resolve_entities=False))
    for test in manifest.getroot().iter("TEST"):
        bases = [each.get(XML_BASE, "") for each in (test, *test.iterancestors())]
        yield test, data / "xmlconf" / "".join(reversed(bases)) / test.get("URI", "")


class FileWatch:
    """What is opened below a folder, as Linux tells it (inotify)."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = self._libc.inotify_init1(IN_NONBLOCK)
        self._folders: dict[int, Path] = {}
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            watch = self._libc.inotify_add_watch(self._number, os.fsencode(each), IN_OPEN)
            if watch < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(each))
            self._folders[watch] = each

    def opened(self) -> list[str]:
        """Return what was opened since the last time."""
        found = []
        while events := self._read():
            position = 0
            while position < len(events):
                watch, mask, _, length = (
                    int.from_bytes(events[position + at : position + at + 4], sys.byteorder) for at in (0, 4, 8, 12)
                )
                name = events[position + EVENT_HEAD : position + EVENT_HEAD + length].rstrip(b"\0").decode()
                found.append("events were lost" if mask & IN_Q_OVERFLOW else str(self._folders[watch] / name))
                position += EVENT_HEAD + length
        return found

    def _read(self) -> bytes:
        try:
            return os.read(self._number, 1 << 16)
        except BlockingIOError:
            return b""


def outcome(octets: bytes) -> tuple[str, str]:
    """Parse a document: accepted, or refused and why."""
    try:
        xml.parse(octets)
    except xml.DocumentTypeError as error:
        return "document type", str(error)
    except ValueError as error:
        return "refused", str(error)
    return "accepted", ""


def main() -> None:
    """Read all, then parse all under watch, then show that the watch sees."""
    data = Path(sys.argv[1])
    tests = [(test, path, path.read_bytes()) for test, path in tests_of(data)]
    for codec in content.CODECS:
        codecs.lookup(codec)  # Python loads a codec from disk when it is first used
    watch, audited, watching = FileWatch(data), [], False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching:
            audited.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(hook)
    documents: list[dict[str, Any]] = []
    for test, path, octets in tests:
        os.chdir(path.parent)
        watch.opened()
        watching = True
        became, why = outcome(octets)
        watching = False
        opened = watch.opened()
        documents.append({**test.attrib, "octets": octets.hex(), "became": became, "why": why, "opened": opened})
    os.chdir(data)
    watching = True
    (data / "xmlconf" / "xmlconf.xml").read_bytes()
    watching = False
    print(json.dumps({"documents": documents, "audited": audited, "seen": watch.opened()}))


if __name__ == "__main__":
    main()
