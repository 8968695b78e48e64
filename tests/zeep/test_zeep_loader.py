"""Loading a WSDL through zeep: it is anybody's. Local files only, no entities, an end to everything, clear messages."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
import zeep
import zeep.exceptions
from calling_kit import SOAP_11
from wsdl_kit import wsdl20
from zeep_kit import ECHO, NS, TYPES, gallery_wsdl, written

from brokers import Connection
from brokers.embedded import Broker
from soapjms import InvalidWsdlError, Service, UsageError
from soapjms.codegen import generate_package
from soapjms.protocol.wsdl import documents
from soapjms.zeep import Client, JmsTransport, loader

SCHEMA = (
    f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{NS}" elementFormDefault="qualified">'
)
DOCTYPE = '<!DOCTYPE x [<!ENTITY who SYSTEM "file:///etc/hostname">]>'


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("loading").connect() as connection:
        yield connection


@pytest.fixture
def transport(connection: Connection) -> Iterator[JmsTransport]:
    """Return a transport."""
    with JmsTransport(connection) as transport:
        yield transport


def including(*locations: str) -> str:
    """Write a WSDL whose schema includes others."""
    includes = "".join(f'<xs:include schemaLocation="{each}"/>' for each in locations)
    return gallery_wsdl(types=includes + TYPES)


# What may be given


def test_what_a_wsdl_may_be_given_as(transport: JmsTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path as text or Path, relative too, a file: URL, an open file, a document."""
    path = written(tmp_path, gallery_wsdl())
    monkeypatch.chdir(tmp_path)
    with path.open("rb") as file:
        client = Client(file, transport=transport)
    for wsdl in (
        path,
        str(path),
        "gallery.wsdl",
        Path("gallery.wsdl"),
        path.as_uri(),
        BytesIO(path.read_bytes()),
        client.wsdl,
    ):
        assert list(Client(wsdl, transport=transport).wsdl.services) == ["Gallery"]


@pytest.mark.parametrize(
    ("wsdl", "said"),
    [
        ("", "wsdl must be a path or an open binary file, got nothing"),
        (None, "wsdl must be a path or an open binary file, got nothing"),
        (StringIO("<a/>"), "must be a file opened in binary mode"),
        (BytesIO(b"<a/>"), "the root element must be .*definitions.*, got a"),
        (BytesIO(b"no XML"), "not well-formed XML"),
        ("/nowhere/greeter.wsdl", "'/nowhere/greeter.wsdl' cannot be read: No such file"),
        ("/dev/zero", "'/dev/zero' cannot be read: it is not a file"),
        ("/", "'/' cannot be read: it is not a file"),
        ("http://ann:secret@localhost:1/a.wsdl", r"http://\*\*\*@localhost:1/a.wsdl is refused: nothing is fetched"),
        ("ftp://localhost/a.wsdl", "ftp://localhost/a.wsdl is refused|cannot be read"),
        ("file://elsewhere/a.wsdl", "is refused: nothing is fetched over a network"),
        (5, "5 cannot be read"),
    ],
)
def test_what_is_no_wsdl(transport: JmsTransport, wsdl: Any, said: str) -> None:
    """Each with one message."""
    with pytest.raises(InvalidWsdlError, match=said):
        Client(wsdl, transport=transport)


@pytest.mark.parametrize("allow", ["/", Path("/"), 5])
def test_folders_are_a_list(connection: Connection, tmp_path: Path, allow: Any) -> None:
    """A single path would count as its characters, and `/` would allow every file of the machine."""
    path = written(tmp_path, gallery_wsdl())
    with pytest.raises(UsageError, match="allow must be a list of folders, got"):
        JmsTransport(connection, allow=allow)
    with pytest.raises(UsageError, match="allow must be a list of folders, got"):
        Client(path, connection=connection, allow=allow)
    with pytest.raises(UsageError, match="allow must be a list of folders, got"):
        Service.from_wsdl(path, allow=allow)
    with pytest.raises(UsageError, match="allow must be a list of folders, got"):
        generate_package(path, "gallery", out=tmp_path, allow=allow)


def test_wsdl_20(transport: JmsTransport, tmp_path: Path) -> None:
    """zeep does not read it; the message says who does."""
    with pytest.raises(InvalidWsdlError, match=r"zeep does not read WSDL 2.0, call .* with soapjms\.Client\.from_wsdl"):
        Client(written(tmp_path, wsdl20()), transport=transport)


def test_what_is_missing_in_a_wsdl(transport: JmsTransport, tmp_path: Path) -> None:
    """zeep's own errors stay; what it stumbles over is a typed error."""
    for text, kind in (
        (gallery_wsdl().replace('type="g:Work"', 'type="g:None"'), zeep.exceptions.Error),
        (gallery_wsdl().replace('part="visitor"', ""), (zeep.exceptions.Error, InvalidWsdlError)),
        (gallery_wsdl().replace('part="visitor"', 'part="none"'), (zeep.exceptions.Error, InvalidWsdlError)),
        (gallery_wsdl().replace("<s:binding style", "<s:binding x"), (zeep.exceptions.Error, InvalidWsdlError)),
        (gallery_wsdl().replace('name="Jms"', ""), (zeep.exceptions.Error, InvalidWsdlError)),
    ):
        path = written(tmp_path, text)
        try:
            Client(path, transport=transport)
        except kind:
            continue


# Networks


@pytest.fixture
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """Return the address of somebody who listens, and what was heard."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    heard.append(peer.recv(100))

        thread = Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(20)


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_fetched(
    transport: JmsTransport, tmp_path: Path, listener: tuple[str, list[bytes]], plain: bool
) -> None:
    """Whatever a WSDL imports or includes, by whatever scheme; nobody is even asked."""
    url, heard = listener
    for text in (
        including(f"{url}/types.xsd"),
        gallery_wsdl(head=f'<wsdl:import namespace="urn:x" location="{url}/more.wsdl"/>'),
    ):
        path = written(tmp_path, text)
        with pytest.raises(InvalidWsdlError, match=r"is refused: nothing is fetched over a network; .* loader=zeep"):
            (zeep.Client if plain else Client)(str(path), transport=transport)
    assert heard == []


def test_a_loader_of_the_callers(connection: Connection, tmp_path: Path) -> None:
    """What it fetches is looked at all the same; local files are not its business."""

    class Loader:
        def __init__(self) -> None:
            self.asked: list[str] = []
            self.says = f"{SCHEMA}</xs:schema>"

        def load(self, url: str) -> bytes:
            self.asked.append(url)
            return self.says.encode()

    loader = Loader()
    with JmsTransport(connection, loader=loader) as transport:
        path = written(tmp_path, including("https://example/types.xsd"))
        assert Client(path, transport=transport).service is not None
        assert loader.asked == ["https://example/types.xsd"]
        loader.says = DOCTYPE + loader.says
        with pytest.raises(InvalidWsdlError, match=r"https://example/types.xsd: a document type declaration"):
            Client(path, transport=transport)


# Entities


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("where", ["wsdl", "schema", "import"])
def test_no_document_types(transport: JmsTransport, tmp_path: Path, where: str, plain: bool) -> None:
    """Neither in the WSDL nor in what it imports: so there are no entities."""
    first, schema, more = gallery_wsdl(), f"{SCHEMA}</xs:schema>", gallery_wsdl().replace(NS, "urn:more")
    if where == "wsdl":
        first = DOCTYPE + first
    elif where == "schema":
        first, schema = including("types.xsd"), DOCTYPE + schema
    else:
        first, more = gallery_wsdl(head='<wsdl:import namespace="urn:more" location="more.wsdl"/>'), DOCTYPE + more
    written(tmp_path, schema, "types.xsd")
    written(tmp_path, more, "more.wsdl")
    with pytest.raises(InvalidWsdlError, match="a document type declaration"):
        (zeep.Client if plain else Client)(str(written(tmp_path, first)), transport=transport)


def test_no_document_types_in_an_open_file(transport: JmsTransport) -> None:
    """The same."""
    with pytest.raises(InvalidWsdlError, match="a document type declaration"):
        Client(BytesIO((DOCTYPE + gallery_wsdl()).encode()), transport=transport)


# Files


@pytest.mark.parametrize("location", ["/etc/passwd", "/dev/zero", "file:///etc/passwd", "pipe", "."])
def test_files_that_are_no_schema(transport: JmsTransport, tmp_path: Path, location: str) -> None:
    """They are not read, or not shown; a pipe holds nobody up."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidWsdlError) as caught:
        Client(written(tmp_path, including(location)), transport=transport)
    assert "root:" not in str(caught.value)


# An end to everything


def test_imports_without_end(transport: JmsTransport, tmp_path: Path) -> None:
    """A WSDL that imports itself under other names."""
    head = "".join(f'<wsdl:import namespace="urn:{each}" location="gallery.wsdl"/>' for each in range(2))
    path = written(tmp_path, gallery_wsdl(head=head))
    with pytest.raises(InvalidWsdlError, match=r"more than 1000 imports|refer to themselves"):
        Client(path, transport=transport)


def test_imports_that_double(transport: JmsTransport, tmp_path: Path) -> None:
    """Each of 40 documents imports the next twice, under a wrong name: zeep would read 2^40."""
    for number in range(40):
        location = f"{number + 1}.wsdl"
        head = "".join(f'<wsdl:import namespace="urn:{each}" location="{location}"/>' for each in "ab")
        written(tmp_path, gallery_wsdl(head=head, types="", bindings="", services=""), f"{number}.wsdl")
    written(tmp_path, gallery_wsdl(), "40.wsdl")
    with pytest.raises(InvalidWsdlError, match="more than 1000 imports"):
        Client(tmp_path / "0.wsdl", transport=transport)


def test_schemas_that_include_each_other(transport: JmsTransport, tmp_path: Path) -> None:
    """A loop is no harm."""
    for one, other in (("a", "b"), ("b", "a")):
        written(tmp_path, f'{SCHEMA}<xs:include schemaLocation="{other}.xsd"/></xs:schema>', f"{one}.xsd")
    assert Client(written(tmp_path, including("a.xsd")), transport=transport).service is not None


def doubling(kind: str, levels: int) -> str:
    """Write groups of which each refers twice to the next."""
    inner = "<xs:sequence>{}</xs:sequence>" if kind == "group" else "{}"
    leaf = {"group": "element", "attributeGroup": "attribute"}[kind]
    groups = [
        f'<xs:{kind} name="G{number}">{inner.format(f"""<xs:{kind} ref="g:G{number + 1}"/>""" * 2)}</xs:{kind}>'
        for number in range(levels)
    ]
    last = inner.format(f'<xs:{leaf} name="a" type="xs:string"/>')
    return f'{"".join(groups)}<xs:{kind} name="G{levels}">{last}</xs:{kind}>'


USE: Final = '<xs:complexType name="Big"><xs:{} ref="g:G0"/></xs:complexType>'


@pytest.mark.parametrize("kind", ["group", "attributeGroup"])
class TestGroups:
    """Groups of elements and of attributes, which zeep writes out wherever they are referred to."""

    @pytest.mark.parametrize("levels", [19, 60])
    def test_that_double(self, transport: JmsTransport, tmp_path: Path, kind: str, levels: int) -> None:
        """A few lines that come to 2^levels are refused at once."""
        path = written(tmp_path, gallery_wsdl(types=TYPES + doubling(kind, levels) + USE.format(kind)))
        with pytest.raises(InvalidWsdlError, match="have more than 1,000,000 elements and attributes"):
            Client(path, transport=transport)

    def test_in_several_documents(self, transport: JmsTransport, tmp_path: Path, kind: str) -> None:
        """Also where no document is the one that has too much, and one of them has no namespace of its own."""
        lower = doubling(kind, 10).replace('"G', '"H').replace("g:G", "H")
        upper = doubling(kind, 10).replace("g:G10", "g:H0").split(f'<xs:{kind} name="G10">')[0]
        written(tmp_path, f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{lower}</xs:schema>', "lower.xsd")
        head = '<xs:include schemaLocation="lower.xsd"/>'
        Client(written(tmp_path, gallery_wsdl(types=head + TYPES)), transport=transport)
        path = written(tmp_path, gallery_wsdl(types=head + TYPES + upper + USE.format(kind)))
        with pytest.raises(InvalidWsdlError, match="the groups of the schemas have more than"):
            Client(path, transport=transport)

    def test_in_themselves(self, transport: JmsTransport, tmp_path: Path, kind: str) -> None:
        """A group that consists of itself is refused with its name."""
        endless = doubling(kind, 3).replace("g:G3", "g:G0")
        path = written(tmp_path, gallery_wsdl(types=TYPES + endless + USE.format(kind)))
        with pytest.raises(InvalidWsdlError, match=rf"contains itself: {kind} .*G. in {kind} .*G"):
            Client(path, transport=transport)

    def test_that_are_large(self, transport: JmsTransport, tmp_path: Path, kind: str) -> None:
        """What real schemas have is none of it."""
        path = written(tmp_path, gallery_wsdl(types=TYPES + doubling(kind, 10) + USE.format(kind)))
        assert Client(path, transport=transport).get_type(f"{{{NS}}}Big") is not None


def test_a_group_within_an_element_of_its_own(transport: JmsTransport, tmp_path: Path) -> None:
    """The type of an element in a group may have that group again: so are trees."""
    node = (
        '<xs:element name="node" minOccurs="0"><xs:complexType><xs:group ref="g:Tree"/></xs:complexType></xs:element>'
    )
    tree = f'<xs:group name="Tree"><xs:sequence>{node}</xs:sequence></xs:group>'
    forest = '<xs:complexType name="Forest"><xs:group ref="g:Tree"/></xs:complexType>'
    client = Client(written(tmp_path, gallery_wsdl(types=TYPES + tree + forest)), transport=transport)
    forests = client.get_type(f"{{{NS}}}Forest")
    assert forests(node={"node": {"node": None}}).node.node.node is None


@pytest.mark.parametrize(
    "types",
    [
        '<xs:simpleType name="A"><xs:restriction base="g:A"/></xs:simpleType><xs:element name="a" type="g:A"/>',
        "".join(
            f'<xs:complexType name="T{number}"><xs:complexContent><xs:extension base="g:T{number + 1}"/>'
            "</xs:complexContent></xs:complexType>"
            for number in range(1000)
        )
        + '<xs:complexType name="T1000"/>',
    ],
)
def test_types_of_types_without_end(transport: JmsTransport, tmp_path: Path, types: str) -> None:
    """A type that is derived from itself, or from a thousand others, is one clear error."""
    with pytest.raises(InvalidWsdlError, match="types refer to themselves, or are nested too deep"):
        Client(written(tmp_path, gallery_wsdl(types=TYPES + types)), transport=transport)


def test_size(transport: JmsTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one document, and of all together."""
    path = written(tmp_path, gallery_wsdl(head="<!--" + " " * documents.MAX_DOCUMENTS_OCTETS + "-->"))
    for wsdl in (path, BytesIO(path.read_bytes())):
        with pytest.raises(InvalidWsdlError, match="the document has more than 16 MiB"):
            Client(wsdl, transport=transport)
    monkeypatch.setattr(loader, "MAX_DOCUMENTS_OCTETS", 1 << 20)
    written(tmp_path, f"{SCHEMA}<!--{' ' * 300_000}--></xs:schema>", "types.xsd")
    schemas = [f"./{'./' * number}types.xsd" for number in range(5)]
    for each in range(5):
        written(tmp_path, f"{SCHEMA}<!--{' ' * 300_000}--></xs:schema>", f"{each}.xsd")
    path = written(tmp_path, including(*schemas, *(f"{each}.xsd" for each in range(5))))
    with pytest.raises(InvalidWsdlError, match="the WSDL with all its imports has more than 1 MiB"):
        Client(path, transport=transport)


def test_depth(transport: JmsTransport, tmp_path: Path) -> None:
    """Markup that is too deep."""
    path = written(tmp_path, gallery_wsdl(head="<a>" * 200 + "</a>" * 200))
    with pytest.raises(InvalidWsdlError, match="depth"):
        Client(path, transport=transport)


@pytest.mark.parametrize("element", ["binding", "service"])
def test_number(transport: JmsTransport, tmp_path: Path, element: str) -> None:
    """More bindings or services than any real WSDL has."""
    path = written(tmp_path, gallery_wsdl(head=f'<wsdl:{element} name="x"/>' * 1001))
    with pytest.raises(InvalidWsdlError, match=f"children {element}; accepted are 1000"):
        Client(path, transport=transport)


def test_bindings_up_to_the_limit(transport: JmsTransport, tmp_path: Path) -> None:
    """A thousand load."""
    text = gallery_wsdl(head='<wsdl:binding name="x" type="g:Gallery"/>' * 999)
    assert Client(written(tmp_path, text), transport=transport).service is not None


def test_a_document_is_read_once(transport: JmsTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call reads no WSDL."""
    client = Client(ECHO[SOAP_11], transport=transport)
    service = client.service
    monkeypatch.setattr("soapjms.zeep.bindings.place_of", None)
    binding, options = service._binding, service._binding_options
    assert binding.place_of(options) is binding.place_of(options)
