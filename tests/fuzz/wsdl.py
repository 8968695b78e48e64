"""WSDL files of strangers: each is read, or refused with the error that the caller is told to expect."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Final

from lxml import etree
from places import ROOT
from wsdl_kit import WSDL_11, WSDL_20, wsdl

from fuzz.row import MIB, Case, Row
from soapjms import Service
from soapjms.protocol.errors import UsageError
from soapjms.protocol.wsdl.as_json import members
from soapjms.protocol.wsdl.lint import lint
from soapjms.protocol.wsdl.write import NewPort
from soapjms.wsdl import add_jms_port, read_wsdl

FILES: Final = (ROOT / "examples/greeter.wsdl", *sorted((ROOT / "tests/data/wsdl").glob("*.wsdl")))
BASES: Final = (*(each.read_bytes() for each in FILES), *(wsdl(each).encode() for each in (WSDL_11, WSDL_20)))
VALUES: Final = (
    *("", " ", "x", "t:", ":t", "t:t:t", "none:x", "xsd:string", "-1", "0", "unbounded", "9" * 30, "true", "x" * 5000),
    *("jms:queue:q", "jms:", "jms:queue:%", "http://x/", "file:///etc/passwd", "../x.wsdl", "self.wsdl", "a b"),
    *("{urn:x}y", "__import__('os')", "'''", '"', "*", "##any", "[", "(a+)+$", "\\p{L}", "2026-13-45", "qualified"),
)  # fmt: skip
SCHEMA: Final = (
    *("element", "complexType", "sequence", "choice", "any", "extension", "restriction", "union", "list", "import"),
    *("include", "redefine", "group", "attributeGroup", "key", "keyref", "pattern", "enumeration", "all"),
)  # fmt: skip


def changed(root: etree._Element, chance: Random) -> None:
    """Change one thing."""
    found = list(root.iter(etree.Element))
    part, other = chance.choice(found), chance.choice(found)
    is_apart = other is not part and other not in part.iterdescendants() and other not in part.iterancestors()
    names = list(part.attrib) or ["name"]
    match chance.randrange(9):
        case 0 | 1 | 2:
            part.set(chance.choice(names), chance.choice(VALUES))
        case 3:
            part.attrib.pop(chance.choice(names), None)
        case 4 if part.getparent() is not None:
            part.getparent().remove(part)
        case 5 if part is not root:
            other.append(deepcopy(part))
        case 6 if is_apart and part is not root:
            other.append(part)
        case 7:
            part.tag = f"{{{etree.QName(other).namespace}}}{chance.choice([etree.QName(other).localname, *SCHEMA])}"
        case 8:
            made = etree.SubElement(part, f"{{http://www.w3.org/2001/XMLSchema}}{chance.choice(SCHEMA)}")
            for name in chance.sample(
                ["name", "type", "ref", "base", "value", "schemaLocation", "namespace", "location"], 3
            ):
                made.set(name, chance.choice([*VALUES, *(each.get("name", "x") for each in found)]))
        case _:
            part.text = chance.choice(VALUES)


def spelled(octets: bytes, chance: Random) -> bytes:
    """Change octets anywhere."""
    at = chance.randrange(len(octets))
    piece = chance.choice([b"", b"\0", b"<", b"&x;", b"]]>", b"<!--", b"<a>" * 3000, b'<!DOCTYPE x [<!ENTITY x "y">]>'])
    return octets[:at] + piece + octets[at + chance.choice((0, 0, 1, 100)) :]


class Readers:
    """All that reads a WSDL."""

    def __init__(self, folder: Path) -> None:
        self._path, self._out = folder / "self.wsdl", folder / "out.wsdl"

    def make(self, chance: Random) -> Case:
        """Change one of those that are right."""
        root = etree.fromstring(chance.choice(BASES))
        for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
            changed(root, chance)
        octets = etree.tostring(root)
        if chance.random() < 0.1:
            octets = spelled(octets, chance)
        way = chance.choice([self.inspect, self.inspect, self.add, self.serve])
        return Case(len(octets), lambda: way(octets))

    def inspect(self, octets: bytes) -> str:
        """Read it, and say what it says and what is wrong with it."""
        self._path.write_bytes(octets)
        try:
            found = read_wsdl(self._path)
        except UsageError:
            return "refused"
        with suppress(UsageError):  # of a port that cannot be used
            members(found)
        return "described with findings" if lint(found) else "described"

    def add(self, octets: bytes) -> str:
        """Add a port; what comes of it can be read."""
        self._path.write_bytes(octets)
        try:
            add_jms_port(self._path, self._out, NewPort(address="jms:queue:new"))
        except UsageError:
            return "nothing added"
        assert read_wsdl(self._out).ports
        return "a port added"

    def serve(self, octets: bytes) -> str:
        """Make a service of it."""
        self._path.write_bytes(octets)
        try:
            Service.from_wsdl(self._path)
        except UsageError:
            return "no service"
        return "a service"

    def look(self) -> None:
        """There is nobody else."""


@contextmanager
def readers() -> Iterator[Readers]:
    """Have a folder; what zeep warns of is nothing here."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield Readers(Path(folder))


ROW: Final = Row(
    name="wsdl",
    holds="each file is read or refused by the error of the documentation",
    opens=readers,
    gate=150,
    slack=64 * MIB,
)
