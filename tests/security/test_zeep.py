"""WSDLs of strangers at zeep: what they import comes from their own folder, or from one that the user allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep
from cli_kit import run

import soapjms
import soapjms.zeep
from brokers.connection import Connection
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.wsdl import read_wsdl
from soapjms.zeep import JmsTransport

TYPES = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:types">
<xs:element name="order" type="xs:string"/></xs:schema>"""
WSDL = """<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:t="urn:types" xmlns:a="urn:a"
 targetNamespace="urn:a" xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="http://www.w3.org/2001/XMLSchema">
{imported}
<types><xs:schema><xs:import namespace="urn:types" schemaLocation="{location}"/></xs:schema></types>
<message name="order"><part name="body" element="t:order"/></message>
<portType name="Orders"><operation name="order"><input message="a:order"/></operation></portType>
<binding name="Jms" type="a:Orders"><soap:binding transport="http://www.w3.org/2010/soapjms/"/>
 <operation name="order"><soap:operation soapAction="urn:order"/><input><soap:body use="literal"/></input></operation>
</binding>
<service name="S"><port name="Jms" binding="a:Jms"><soap:address location="jms:queue:orders"/></port></service>
</definitions>"""
OTHER = """<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:b"/>"""


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A connection of its own."""
    with soapjms.connect("embedded:wsdl-of-a-stranger") as connection:
        yield connection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a WSDL, beside one with a schema that belongs to the user."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "types.xsd").write_text(TYPES)
    (tmp_path / "private" / "other.wsdl").write_text(OTHER)
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "link.xsd").symlink_to(tmp_path / "private" / "types.xsd")
    (tmp_path / "stranger" / "linked").symlink_to(tmp_path / "private")
    (tmp_path / "stranger" / "over.xsd").write_text(
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:types">'
        '<xs:include schemaLocation="../private/types.xsd"/></xs:schema>'
    )
    return tmp_path


LOCATIONS = (
    "../private/types.xsd",
    "{folder}/private/types.xsd",
    "file://{folder}/private/types.xsd",
    "file:{folder}/stranger/../private/types.xsd",
    "file://{folder}/stranger/%2e%2e/private/types.xsd",
    "link.xsd",
    "linked/types.xsd",
    "over.xsd",
)


def written(folder: Path, location: str, imported: str = "") -> Path:
    """Write the WSDL of a stranger."""
    path = folder / "stranger" / "a.wsdl"
    path.write_text(WSDL.format(location=location.format(folder=folder), imported=imported.format(folder=folder)))
    return path


def by_client(path: Path, connection: Connection, *allow: Path) -> object:
    """Read it with the client."""
    with soapjms.zeep.Client(str(path), connection=connection, allow=allow) as client:
        return client.service


def by_file_uri(path: Path, connection: Connection, *allow: Path) -> object:
    """Read it by its URI."""
    with soapjms.zeep.Client(path.as_uri(), connection=connection, allow=allow) as client:
        return client.service


def by_transport(path: Path, connection: Connection, *allow: Path) -> object:
    """Read it with zeep's own client."""
    with JmsTransport(connection, allow=allow) as transport:
        return zeep.Client(str(path), transport=transport).service


def by_service(path: Path, connection: Connection, *allow: Path) -> object:
    """Serve it."""
    return soapjms.Service.from_wsdl(path, allow=allow)


READERS: list[Callable[..., Any]] = [by_client, by_file_uri, by_transport, by_service]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("location", LOCATIONS)
def test_outside(reader: Callable[..., Any], location: str, folder: Path, connection: Connection) -> None:
    """A schema outside the folder is not read, however it is written; from an allowed folder it is."""
    path = written(folder, location)
    is_understood = not location.startswith("file:") or reader is by_file_uri  # else zeep makes an https: URL of it
    refusal = r", outside .*/stranger; copy the file there, or allow its folder" if is_understood else "is refused"
    with pytest.raises(InvalidWsdlError, match=refusal):
        reader(path, connection)
    if is_understood:
        reader(path, connection, folder / "private")


@pytest.mark.parametrize("reader", READERS)
def test_other_wsdl(reader: Callable[..., Any], folder: Path, connection: Connection) -> None:
    """Nor is another WSDL."""
    (folder / "stranger" / "types.xsd").write_text(TYPES)
    path = written(folder, "types.xsd", '<import namespace="urn:b" location="../private/other.wsdl"/>')
    with pytest.raises(InvalidWsdlError, match=", outside "):
        reader(path, connection)
    reader(path, connection, folder / "private")


@pytest.mark.parametrize("reader", READERS)
def test_inside(reader: Callable[..., Any], folder: Path, connection: Connection) -> None:
    """What is below the folder of the WSDL is read, also where it is reached by a link, and by one that is imported."""
    (folder / "stranger" / "below").mkdir()
    (folder / "stranger" / "below" / "types.xsd").write_text(TYPES)
    (folder / "stranger" / "below" / "over.xsd").write_text(
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:types">'
        '<xs:include schemaLocation="../below/types.xsd"/></xs:schema>'
    )
    reader(written(folder, "below/over.xsd"), connection)
    path = folder / "stranger" / "again.wsdl"
    path.symlink_to("a.wsdl")
    reader(path, connection)
    (folder / "stranger" / "below" / "types.xsd").unlink()
    with pytest.raises(InvalidWsdlError, match=r"types\.xsd"):
        reader(path, connection)


def test_open_file(folder: Path, connection: Connection) -> None:
    """The folder of an open file is its own too."""
    path = written(folder, "{folder}/private/types.xsd")
    with (
        path.open("rb") as file,
        pytest.raises(InvalidWsdlError, match=", outside "),
        soapjms.zeep.Client(file, connection=connection),
    ):
        pass


def test_fetched(folder: Path, connection: Connection) -> None:
    """A WSDL that came over a network imports no local files."""

    class Loader:
        def load(self, url: str) -> bytes:
            return WSDL.format(location=f"file://{folder}/private/types.xsd", imported="").encode()

    with (
        pytest.raises(InvalidWsdlError, match=", outside all folders"),
        soapjms.zeep.Client("https://stranger.example/a.wsdl", connection=connection, loader=Loader()),
    ):
        pass
    with JmsTransport(connection, loader=Loader()) as transport, pytest.raises(InvalidWsdlError, match=", outside "):
        zeep.Client("https://stranger.example/a.wsdl", transport=transport)


@pytest.mark.parametrize("location", [each for each in LOCATIONS if not each.startswith("file:")])
def test_command(location: str, folder: Path) -> None:
    """`soapjms call` reads schemas from folders given by --allow only."""
    path = written(folder, location)
    given = ("call", path)
    done = run(*given)
    assert (done.exit_code, ", outside " in done.stderr) == (2, True)
    assert run(*given, "--allow", folder / "private").exit_code == 0
    assert run(*given, "--allow", folder / "stranger").exit_code == 2


def test_without_zeep(folder: Path) -> None:
    """The reader without zeep has the same rule for other WSDLs; schemas it does not read."""
    path = written(folder, "types.xsd", '<import namespace="urn:b" location="../private/other.wsdl"/>')
    with pytest.raises(InvalidWsdlError, match=", outside "):
        read_wsdl(path)
    read_wsdl(path, allow=[folder / "private"])
