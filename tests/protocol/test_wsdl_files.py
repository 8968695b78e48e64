"""WSDL files: imports from local files only, hostile files refused quickly, a port added to a file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from wsdl_kit import CXF, VERSIONS, wsdl, wsdl11, wsdl20

import soapjms
from brokers.embedded import Broker
from soapjms import Client
from soapjms.protocol.errors import InvalidPropertyError, InvalidWsdlError, UsageError
from soapjms.protocol.names import Mep
from soapjms.protocol.properties import Origin
from soapjms.protocol.wsdl.write import NewPort
from soapjms.wsdl import add_jms_port, read_wsdl

FRAME = '<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:ledger">{}</definitions>'


@contextmanager
def at_once() -> Iterator[None]:
    """Hold what is inside to one second of processor time."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 1


def write(folder: Path, **texts: str) -> Path:
    """Write files, and return the first."""
    for name, text in texts.items():
        (folder / f"{name}.wsdl").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(texts))}.wsdl"


def importing(*locations: object) -> str:
    """Write a document that imports others."""
    return FRAME.format("".join(f'<import namespace="urn:ledger" location="{each}"/>' for each in locations))


# Hostile files: one clear error each, quickly

BOMB = "".join(f'<!ENTITY a{each} "{f"&a{each - 1};" * 10 if each else "x" * 100}">' for each in range(12))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("this is no XML", r"a\.wsdl: not well-formed XML"),
        ("", r"a\.wsdl: not well-formed XML"),
        ("<html/>", r"a\.wsdl: the root element is html; accepted is .*definitions or .*description"),
        ("<description xmlns='http://www.w3.org/2006/01/wsdl'/>", r"accepted is .*http://www.w3.org/ns/wsdl"),
        (f"<!DOCTYPE d>{wsdl11()}", r"a\.wsdl: a document type declaration \(DOCTYPE\), which is refused"),
        (f"<!DOCTYPE d SYSTEM 'http://127.0.0.1:9/d.dtd'>{wsdl11()}", "a document type declaration"),
        (f"<!DOCTYPE d [<!ENTITY x SYSTEM '/etc/hostname'>]>{wsdl11(head='&x;')}", "a document type declaration"),
        (f"<!DOCTYPE d [{BOMB}]>{wsdl11(head='&a11;')}", "a document type declaration"),
        (importing("http://127.0.0.1:9/b.wsdl"), r"a\.wsdl:1: the import of 'http://127.0.0.1:9/b.wsdl' is refused"),
        (importing("//127.0.0.1/b.wsdl"), "nothing is fetched over a network"),
        (importing("file://server/b.wsdl"), "nothing is fetched over a network"),
        (importing("jar:file:/b.jar!/b.wsdl"), "nothing is fetched over a network"),
        (importing("http://[/b.wsdl"), "is not a URI"),
        (importing("../b.wsdl"), r"a\.wsdl:1: the import of '\.\./b\.wsdl' leads to .*, outside"),
        (importing("file:///etc/hostname"), "leads to /etc/hostname, outside"),
        (importing("b%2F..%2F..%2F..%2Fetc%2Fhostname"), "outside"),
        (importing("missing.wsdl"), r"a\.wsdl:1: '.*missing.wsdl' cannot be read: No such file"),
        (importing("a%00.wsdl"), "cannot be read"),
        (importing("."), "cannot be read: it is not a file"),
        (importing("a.wsdl"), r"a\.wsdl:1: the imports run in a loop: .*a\.wsdl imports .*a\.wsdl; take one of them"),
    ],
)  # fmt: skip
def test_hostile_files(tmp_path: Path, text: str, said: str) -> None:
    """The error names the file, and for an import the line."""
    path = write(tmp_path, a=text)
    with at_once(), pytest.raises(InvalidWsdlError, match=said):
        read_wsdl(path)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("parts", "said"),
    [({"address": None}, "has no address"), ({"address": "http://example/q"}, "the address 'http://example/q'")],
)
def test_ports_that_cannot_be_used(tmp_path: Path, version: str, parts: dict[str, Any], said: str) -> None:
    """A port without address, an http address under a JMS transport: file, line, rule, what to write."""
    path = write(tmp_path, a=wsdl(version, **parts))
    with at_once(), pytest.raises(InvalidWsdlError, match=rf"a\.wsdl:\d+: .*{said}.*\(SOAP/JMS 3.4.5\); write"):
        read_wsdl(path).port("Ledger").effective()


def chain(folder: Path, files: int) -> Path:
    """Write files of which each imports the next, and return the first."""
    texts = {f"n{each}": importing(f"n{each + 1}.wsdl") for each in range(files - 1)}
    return write(folder, **texts, **{f"n{files - 1}": wsdl11()})


@pytest.mark.parametrize("files", [25, 90, 100])
def test_a_chain_of_imports(tmp_path: Path, files: int) -> None:
    """What the last of up to 100 files says is read."""
    path = chain(tmp_path, files)
    with at_once():
        assert read_wsdl(path).ports == read_wsdl(tmp_path / f"n{files - 1}.wsdl").ports


@pytest.mark.parametrize("files", [101, 300])
def test_a_chain_of_imports_that_is_too_long(tmp_path: Path, files: int) -> None:
    """More than 100 levels are more than any real WSDL has."""
    path = chain(tmp_path, files)
    with at_once(), pytest.raises(InvalidWsdlError, match=r"n99\.wsdl:1: imports go more than 100 levels deep"):
        read_wsdl(path)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("files", [2, 9, 25, 100])
def test_a_loop_of_imports(tmp_path: Path, files: int, first: int) -> None:
    """A loop is named as one, whether it leads back to the first file or to a later one; a long one in short."""
    following = [*range(1, files), min(first, files - 1)]
    path = write(tmp_path, **{f"n{each}": importing(f"n{to}.wsdl") for each, to in enumerate(following)})
    said = rf"n{files - 1}\.wsdl:1: the imports run in a loop: .*n{first}\.wsdl imports .*n{first}\.wsdl; take one"
    with at_once(), pytest.raises(InvalidWsdlError, match=said) as caught:
        read_wsdl(path)
    assert str(caught.value).count(" imports ") <= 11
    assert ("more) imports" in str(caught.value)) is (files > 9)


def test_imports_that_multiply(tmp_path: Path) -> None:
    """Each file is read once, however many import it."""
    locations = ["{}n{}.wsdl".format("./" * each, "{}") for each in range(90)]
    texts = {f"n{each}": importing(*(one.format(each + 1) for one in locations)) for each in range(10)}
    path = write(tmp_path, **texts, n10=FRAME.format(""))
    with at_once():
        assert read_wsdl(path).ports == ()


def test_other_things_than_files(tmp_path: Path) -> None:
    """A folder, a pipe, a device, a link that leads to itself are not read, and not waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in (tmp_path, tmp_path / "pipe", "/dev/zero", tmp_path / "missing", tmp_path / "loop", "a\0b"):
        with at_once(), pytest.raises(InvalidWsdlError, match="cannot be read"):
            read_wsdl(name)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://example.com/bank?wsdl", "http://example.com/bank?wsdl"),
        ("HTTPS://user:secret@example.com/bank.wsdl", "HTTPS://***@example.com/bank.wsdl"),
    ],
)
def test_an_address_of_the_web(address: str, shown: str) -> None:
    """Nothing is fetched; what to do is said, and no password."""
    for each in (address, Path(address)):
        with pytest.raises(InvalidWsdlError) as caught:
            soapjms.read_wsdl(each)
        said = "is refused: nothing is fetched over a network; save the WSDL, with its imports, and give the name"
        assert str(caught.value).startswith(f"{shown!r} {said}")


def test_large_files(tmp_path: Path) -> None:
    """No more is read than a WSDL may have."""
    path = tmp_path / "large.wsdl"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with at_once(), pytest.raises(InvalidWsdlError, match="more than 16 MiB"):
        read_wsdl(path)


# Imports


def split(folder: Path, location: str) -> tuple[str, str]:
    """Return a WSDL as two documents: the first has the service and imports the second from a location."""
    whole = wsdl11()
    at, end = whole.index("  <wsdl:message"), whole.index("  <wsdl:service")
    first = whole[:at] + f'<wsdl:import namespace="urn:ledger" location="{location}"/>' + whole[end:]
    return first, whole[:end] + "</wsdl:definitions>"


@pytest.mark.parametrize("location", ["parts/b%20c.wsdl", "./parts/../parts/b c.wsdl", "{uri}"])
def test_imports_below_the_folder(tmp_path: Path, location: str) -> None:
    """A relative location, escaped or not, or a file: URI; places name the file as it is reached."""
    (tmp_path / "parts").mkdir()
    target = tmp_path / "parts" / "b c.wsdl"
    first, second = split(tmp_path, location.format(uri=target.as_uri()))
    target.write_text(second)
    found = read_wsdl(write(tmp_path, a=first)).port()
    assert found.operation("post").mep is Mep.REQUEST_RESPONSE
    assert found.operation("post").place.file == str(target)


def test_imports_from_elsewhere(tmp_path: Path) -> None:
    """Only where the caller allows the folder; a link is where it leads to."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    (inner / "link.wsdl").symlink_to(outer / "b.wsdl")
    for location in ("../outer/b.wsdl", "link.wsdl"):
        first, second = split(tmp_path, location)
        path = write(inner, a=first)
        write(outer, b=second)
        with pytest.raises(InvalidWsdlError, match=r"outside .*inner; copy the file there, or allow its folder"):
            read_wsdl(path)
        assert read_wsdl(path, allow=[outer]).port().name == "Ledger"
        assert read_wsdl(path, allow=iter([str(outer)])).port().name == "Ledger"


@pytest.mark.parametrize("allow", ["/usr", b"/usr", Path("/usr"), 5, [5], None])
def test_folders_are_a_list(tmp_path: Path, allow: Any) -> None:
    """A single path would count as its characters, and `/` would allow every file of the machine."""
    first, second = split(tmp_path, "../b.wsdl")
    (tmp_path / "inner").mkdir()
    path = write(tmp_path / "inner", a=first)
    write(tmp_path, b=second)
    says = f"allow must be a list of folders, got {allow!r}"
    with pytest.raises(UsageError, match=re.escape(says)):
        read_wsdl(path, allow=allow)
    with Broker("folders").connect() as connection, pytest.raises(UsageError, match=re.escape(says)):
        Client.from_wsdl(connection, path, allow=allow)


def test_includes_of_wsdl_20(tmp_path: Path) -> None:
    """As imports."""
    interface, rest = wsdl20().split("  <binding")
    head, _, _ = interface.partition("  <interface")
    path = write(tmp_path, a=f'{head}<include location="b.wsdl"/><binding{rest}', b=f"{interface}</description>")
    assert read_wsdl(path).port().operation("note").mep is Mep.ONE_WAY


def test_it_is_public() -> None:
    """`soapjms.read_wsdl`."""
    assert soapjms.read_wsdl(CXF[0]).ports
    assert soapjms.read_wsdl(str(CXF[0])).ports


# Writing


@pytest.mark.parametrize("version", VERSIONS)
def test_a_port_is_added_to_a_file(tmp_path: Path, version: str) -> None:
    """Into another file or the same; what is returned is what is read back."""
    path = write(tmp_path, a=wsdl(version))
    new = NewPort(address="jms:queue:new", properties={Origin.PORT: {"priority": 9}})
    described = add_jms_port(path, tmp_path / "out.wsdl", new)
    assert path.read_text() == wsdl(version)
    assert read_wsdl(tmp_path / "out.wsdl") == described
    assert described.port("LedgerServiceJms").effective()["priority"] == (9, Origin.PORT)
    add_jms_port(path, path, new)
    assert path.read_bytes() == (tmp_path / "out.wsdl").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.wsdl", "out.wsdl"]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A file is replaced where a link leads, and keeps its mode, whatever the umask; files beside it stay."""
    new = NewPort(address="jms:queue:new")
    path = write(tmp_path, a=wsdl11())
    path.chmod(0o666)
    precious, link, out = tmp_path / "precious", tmp_path / "link.wsdl", tmp_path / "out.wsdl"
    for each in (precious, tmp_path / "a.wsdl.part"):
        each.write_text("mine")
    (tmp_path / "out.wsdl.part").symlink_to(precious)
    link.symlink_to("a.wsdl")
    add_jms_port(path, out, new)
    add_jms_port(path, link, new)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o666
    assert "jms:queue:new" in path.read_text()
    assert not out.is_symlink()
    assert [precious.read_text(), (tmp_path / "a.wsdl.part").read_text()] == ["mine", "mine"]
    names = ["a.wsdl", "a.wsdl.part", "link.wsdl", "out.wsdl", "out.wsdl.part", "precious"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names


def test_nothing_is_written_if_something_is_wrong(tmp_path: Path) -> None:
    """Neither the file nor a part of it; a file whose imports are not there from its new place is wrong, too."""
    path = write(tmp_path, a=wsdl11())
    out = tmp_path / "out.wsdl"
    with pytest.raises(InvalidPropertyError):
        add_jms_port(path, out, NewPort(address="jms:queue:q", properties={Origin.PORT: {"priority": 11}}))
    first, second = split(tmp_path, "b.wsdl")
    path = write(tmp_path, a=first, b=second)
    (tmp_path / "sub").mkdir()
    with pytest.raises(InvalidWsdlError, match=r"sub/b\.wsdl' cannot be read"):
        add_jms_port(path, tmp_path / "sub" / "out.wsdl", NewPort(address="jms:queue:q"))
    alone = write(tmp_path, alone=wsdl11())
    for place in (tmp_path / "missing" / "out.wsdl", tmp_path / "sub"):
        with pytest.raises(UsageError, match=f"must be that of a file in a folder that exists, got '{place}'$"):
            add_jms_port(alone, place, NewPort(address="jms:queue:q"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.wsdl", "alone.wsdl", "b.wsdl", "sub"]
    assert not list((tmp_path / "sub").iterdir())
