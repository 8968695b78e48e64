"""What soapjms.zeep takes for granted of zeep, one by one: when a new zeep breaks something, here it says what.

`python -m pytest tests/test_zeep*.py` with another zeep on the path (see docs/zeep.md) tries that one.
"""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import requests
import zeep
import zeep.exceptions
from lxml import etree
from typed_kit import shop_wsdl
from wsdl_kit import DATA
from zeep import plugins
from zeep.loader import absolute_location
from zeep.proxy import AsyncServiceProxy, ServiceProxy
from zeep.wsdl import Document, bindings
from zeep.wsdl.attachments import MessagePack
from zeep.wsdl.messages import DocumentMessage
from zeep.wsse import UsernameToken
from zeep.xsd import AnyObject, AnySimpleType, Base64Binary, ComplexType, Element, Group, String, gMonth, gYear
from zeep.xsd.elements.indicators import Indicator
from zeep.xsd.types.builtins import ParseError
from zeep_kit import BINDING, HTTP, NS, TYPES, gallery_wsdl, written
from zeep_kit import binding as binding_of

from soapjms.protocol.names import REC_NAMESPACE
from soapjms.zeep.repairs import repair

ECHO = DATA / "echo-soap11.wsdl"
REPLY = f"""<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>
<framed xmlns="{NS}"><title>Dusk</title><picture>cGljdHVyZQ==</picture></framed></e:Body></e:Envelope>"""


class Files:
    """A transport that reads files, and keeps what it was asked for."""

    binding_classes: tuple[type, ...] = ()

    def __init__(self, **documents: str) -> None:
        self.asked: list[Any] = []
        self.documents = documents

    def load(self, url: Any) -> bytes:
        self.asked.append(url)
        name = str(url).rpartition("/")[2]
        return self.documents[name].encode() if name in self.documents else Path(url).read_bytes()


@pytest.fixture
def http(tmp_path: Path) -> Document:
    """Return the gallery as zeep itself reads it, over HTTP."""
    text = gallery_wsdl("http://localhost/", bindings=binding_of("Jms", "soap", HTTP))
    return Document(str(written(tmp_path, text)), Files())  # type: ignore[arg-type]


@pytest.fixture
def frame(http: Document) -> Any:
    """Return the operation `frame`."""
    return http.bindings[BINDING].get("frame")


def test_the_versions_that_are_supported() -> None:
    """From 4.2 on, as pyproject.toml says; what is imported is the one that `make test-oldest-zeep` asks for."""
    assert tuple(int(each) for each in version("zeep").split(".")[:2]) >= (4, 2)
    assert zeep.__version__ == version("zeep") == os.environ.get("SOAPJMS_TEST_ZEEP", version("zeep"))


# Reading


@pytest.mark.parametrize("name", ["echo-soap11.wsdl", "echo-soap12.wsdl"])
def test_jms_ports_are_dropped_without_a_word(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bindings refuse their transport, a debug line is all that is said, and the service has no ports."""
    with caplog.at_level("INFO"):
        document = Document(str(DATA / name), Files())  # type: ignore[arg-type]
    assert document.bindings == {}
    assert [list(each.ports) for each in document.services.values()] == [[]]
    assert caplog.messages == []


def test_the_transport_says_which_bindings_there_are() -> None:
    """`binding_classes` of the transport, asked in order by `match`; the first that takes an element parses it."""
    seen: list[str] = []

    class Mine(bindings.Soap11Binding):
        @classmethod
        def match(cls, node: Any) -> bool:
            seen.append(f"match {node.get('name')}")
            return bool(super().match(node))

        @classmethod
        def parse(cls, definitions: Any, xmlelement: Any) -> Any:
            seen.append(f"parse {xmlelement.get('name')} of {definitions.location}")
            return super().parse(definitions, xmlelement)

    transport = Files()
    transport.binding_classes = (Mine,)
    Document(str(ECHO), transport)  # type: ignore[arg-type]
    assert seen == ["match EchoServiceSoapBinding", f"parse EchoServiceSoapBinding of {ECHO}"]


def test_a_binding_is_read_if_its_transport_is_that_of_http() -> None:
    """That attribute alone decides, and is kept as `transport` without being used."""
    text = ECHO.read_text().replace('transport="http://www.w3.org/2010/soapjms/"', f'transport="{HTTP}"')
    document = Document(BytesIO(text.encode()), Files())  # type: ignore[arg-type]
    (binding,) = document.bindings.values()
    assert sorted(binding.all()) == ["greetMe", "pingCount", "pingMe", "testFault"]
    assert (binding.transport, binding.wsdl) == (HTTP, document)


def test_the_options_of_a_port_are_what_its_binding_makes_of_it() -> None:
    """`process_service_port` gets the element in its tree, before anything of it is dropped; any keys do."""

    class Mine(bindings.Soap11Binding):
        @classmethod
        def parse(cls, definitions: Any, xmlelement: Any) -> Any:
            xmlelement.find("soap:binding", namespaces=cls.nsmap).set("transport", HTTP)
            return super().parse(definitions, xmlelement)

        def process_service_port(self, xmlelement: Any, force_https: bool = False) -> Any:
            return {"address": "jms:queue:x", "mine": xmlelement}

    transport = Files()
    transport.binding_classes = (Mine,)
    document = Document(str(ECHO), transport)  # type: ignore[arg-type]
    (service,) = document.services.values()
    (port,) = service.ports.values()
    element = port.binding_options["mine"]
    assert element.getparent().getparent().tag == "{http://schemas.xmlsoap.org/wsdl/}definitions"
    proxy = ServiceProxy(None, port.binding, **port.binding_options)
    assert proxy._binding_options == port.binding_options


def test_every_document_comes_from_load(tmp_path: Path) -> None:
    """Imports of WSDL and schema, relative and not: `load` gets an absolute path, or the URL as it is."""
    transport = Files(**{"types.xsd": '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>'})
    head = f'<wsdl:import namespace="urn:x" location="{ECHO}"/>'
    types = '<xs:include schemaLocation="http://example/types.xsd"/><xs:include schemaLocation="sub/types.xsd"/>'
    path = written(tmp_path, gallery_wsdl(head=head).replace(f'"{NS}" elementForm', f'"{NS}" elementForm'))
    path.write_text(path.read_text().replace("<xs:element name=", types + "<xs:element name=", 1))
    Document(str(path), transport)  # type: ignore[arg-type]
    assert transport.asked == [str(path), str(ECHO), "http://example/types.xsd", f"{tmp_path}/sub/types.xsd"]


def test_an_open_file_is_read_without_load() -> None:
    """Whatever has `read`."""
    transport = Files()
    document = Document(BytesIO(ECHO.read_bytes()), transport)  # type: ignore[arg-type]
    assert (transport.asked, document.location) == ([], None)


def test_an_import_under_a_wrong_namespace_is_loaded_again_and_again(tmp_path: Path) -> None:
    """So imports have to be counted: a WSDL that imports itself like that has no end."""
    path = written(tmp_path, gallery_wsdl(head='<wsdl:import namespace="urn:other" location="gallery.wsdl"/>'))

    class Ended(Exception):  # noqa: N818
        pass

    class Few(Files):
        def load(self, url: Any) -> bytes:
            if len(self.asked) == 50:
                raise Ended
            return super().load(url)

    with pytest.raises(Ended):
        Document(str(path), Few())  # type: ignore[arg-type]


# Calling


def test_a_call_is_the_bindings_send(http: Document) -> None:
    """With client, options, the operation's name, and the arguments as they were given."""
    seen: list[Any] = []
    binding = http.bindings[BINDING]
    binding.send = lambda *given: seen.append(given)
    client = zeep.Client(http, transport=Files())
    client.service.frame("Dusk", picture=b"x")
    (port,) = http.services["Gallery"].ports.values()
    assert seen == [(client, port.binding_options, "frame", ("Dusk",), {"picture": b"x"})]


def test_an_asynchronous_call_is_the_bindings_send_async(http: Document) -> None:
    """The proxy awaits it; it hands over SOAP headers where there are none."""

    async def send_async(*given: Any) -> Any:
        return given[2:]

    binding = http.bindings[BINDING]
    binding.send_async = send_async
    proxy = AsyncServiceProxy(zeep.Client(http, transport=Files()), binding, address="x")
    assert asyncio.run(proxy.frame("Dusk")) == ("frame", ("Dusk",), {"_soapheaders": None})


def test_an_asynchronous_client_makes_services_that_are_not() -> None:
    """`create_service` is zeep's issue 1288: ours makes its own."""
    assert zeep.AsyncClient.create_service is zeep.Client.create_service


def test_create_makes_the_envelope(http: Document) -> None:
    """`_create` of the binding, with a client for settings, plugins and wsse; header fields with the action."""
    client = zeep.Client(http, transport=Files())
    client.plugins, client.wsse = [], None
    envelope, headers = http.bindings[BINDING]._create("frame", ("Dusk",), {}, client=client, options={})
    assert envelope.tag == "{http://schemas.xmlsoap.org/soap/envelope/}Envelope"
    assert envelope.findtext(".//{*}title") == "Dusk"
    assert headers["SOAPAction"] == '"urn:gallery/frame"'


def test_a_client_can_be_copied(http: Document) -> None:
    """And the copy has plugins and wsse of its own."""
    client = zeep.Client(http, transport=Files(), wsse=object(), plugins=[object()])
    bare = copy.copy(client)
    bare.plugins, bare.wsse = [], None
    assert client.wsse is not None
    assert len(client.plugins) == 1
    assert bare.settings is client.settings


def test_settings_changed_for_a_while_are_those_of_one_thread(http: Document) -> None:
    """So envelopes are made, and responses read, where the caller is."""
    client = zeep.Client(http, transport=Files())

    async def other() -> bool:
        return await asyncio.to_thread(lambda: client.settings.raw_response)

    with client.settings(raw_response=True):
        assert client.settings.raw_response
        assert asyncio.run(other()) is False


def test_what_is_one_way(http: Document) -> None:
    """`abstract.output_message` is None; an operation without input has `input` None."""
    operations = http.bindings[BINDING].all()
    assert {name: each.abstract.output_message is None for name, each in operations.items()} == {
        "frame": False,
        "hang": False,
        "note": True,
    }
    assert all(each.input is not None for each in operations.values())
    assert operations["frame"].soapaction == "urn:gallery/frame"


def test_text_for_base64_is_taken_as_it_is(frame: Any) -> None:
    """Octets become base64; text marks the place of an attachment."""
    envelope = frame.create(title="Dusk", picture=[b"x", "mark"]).content
    assert [each.text for each in envelope.iter(f"{{{NS}}}picture")] == ["eA==", "mark"]


def test_objects_of_the_schema_keep_their_values_in_a_dictionary(http: Document) -> None:
    """`__values__`; an empty object of the type takes another; AnyObject has `xsd_obj` and `value`."""
    work = http.types.get_type(f"{{{NS}}}Work")
    value = work(year=1889, scan=b"x")
    other = type(value)()
    other.__values__ = {**value.__values__, "scan": "mark"}
    assert dict(value.__values__) == {"year": 1889, "sold": None, "scan": b"x", "by": None}
    assert (other.scan, value.scan, other == work(year=1889, scan="mark")) == ("mark", b"x", True)
    anything = AnyObject(work, value)
    assert (anything.xsd_obj, anything.value) == (work, value)


def test_a_text_of_another_type_is_sent_and_read_as_nothing(frame: Any, http: Document) -> None:
    """So ours reads it by `pythonvalue` of the type, found by `elements` of the complex type it is in."""
    hang = http.bindings[BINDING].get("hang")
    envelope = hang.create(work={"year": "abc"}).content
    assert envelope.findtext(f".//{{{NS}}}year") == "abc"
    work = http.types.get_type(f"{{{NS}}}Work")
    assert isinstance(work, ComplexType)
    types = {each.qname.text: each.type for _, each in work.elements if isinstance(each, Element)}
    year = types[f"{{{NS}}}year"]
    assert isinstance(year, AnySimpleType)
    assert (year.name, year.pythonvalue("7")) == ("int", 7)
    with pytest.raises(ValueError, match="abc"):
        year.pythonvalue("abc")
    assert work.parse_xmlelement(etree.fromstring(f'<w xmlns="{NS}"><year>abc</year></w>')).year is None
    assert frame.input.body.qname.text == f"{{{NS}}}frame"
    assert isinstance(frame.input.body.type, ComplexType)


def test_elements_stand_within_sequences_choices_and_groups(tmp_path: Path) -> None:
    """`elements_nested` leads to all of them; a group is one by its `child`, the others can be iterated."""
    inner = '<xs:element name="{}" type="xs:int"/>'
    types = f"""{TYPES}<xs:group name="Spot"><xs:sequence>{inner.format("a")}</xs:sequence></xs:group>
      <xs:complexType name="Wall"><xs:sequence><xs:group ref="g:Spot"/>
        <xs:choice maxOccurs="unbounded">{inner.format("b")}<xs:sequence>{inner.format("c")}</xs:sequence></xs:choice>
      </xs:sequence></xs:complexType>"""
    text = gallery_wsdl("http://localhost/", types=types, bindings=binding_of("Jms", "soap", HTTP))
    wall = Document(str(written(tmp_path, text)), Files()).types.get_type(f"{{{NS}}}Wall")  # type: ignore[arg-type]
    assert isinstance(wall, ComplexType)

    def names(member: Any) -> list[str]:
        if isinstance(member, Element):
            return [member.qname.localname]
        assert isinstance(member, Indicator)
        inside: Any = [member.child] if isinstance(member, Group) else member
        return [name for each in inside for name in names(each)]

    assert [name for _, member in wall.elements_nested for name in names(member)] == ["a", "b", "c"]


def test_types_by_name(http: Document) -> None:
    """That of an unknown namespace is None, and one that a known namespace lacks an error of zeep."""
    assert http.types.get_type(f"{{{NS}}}Work", fail_silently=True) is not None
    assert http.types.get_type("{urn:nobody}Work", fail_silently=True) is None
    with pytest.raises(zeep.exceptions.LookupError):
        http.types.get_type(f"{{{NS}}}Nobody", fail_silently=True)


def test_a_simple_value_alone_is_written_twice() -> None:
    """Called, its type makes a text of it, and the element another of that: of octets base64 of base64."""
    element, holder = Element("{urn:x}scan", Base64Binary()), etree.Element("holder")
    element.render(holder, element(b"abc"))
    element.render(holder, element("YWJj"))
    assert [each.text for each in holder] == ["WVdKag==", "YWJj"]
    year = Element("{urn:x}year", gYear())
    with pytest.raises(ValueError, match="unpack"):
        year.render(holder, year((2026, None)))


def test_a_month_has_one_digit() -> None:
    """Which is no month of a schema, and which zeep does not read either."""
    assert gMonth().xmlvalue((3, None)) == "--3"
    with pytest.raises(ParseError):
        gMonth().pythonvalue("--3")


def test_a_binding_makes_the_envelope_of_the_operations_that_it_has(http: Document, frame: Any) -> None:
    """So a copy with another message in an operation makes that, and the binding stays as it was."""
    binding, operation, message = copy.copy(http.bindings[BINDING]), copy.copy(frame), copy.copy(frame.input)
    message.body = Element("{urn:x}scan", String())
    operation.input, binding._operations = message, {"frame": operation}
    envelope, _ = binding._create("frame", ["text"], {}, client=zeep.Client(http, transport=Files()), options={})
    assert envelope.findtext(".//{urn:x}scan") == "text"
    assert http.bindings[BINDING].get("frame").input is frame.input


def test_plugins_are_called_one_after_the_other(http: Document, frame: Any) -> None:
    """A plugin that returns nothing changes nothing."""
    history = plugins.HistoryPlugin()
    client = zeep.Client(http, transport=Files(), plugins=[history])
    envelope = etree.fromstring(REPLY)
    assert plugins.apply_egress(client, envelope, {"a": "b"}, frame, {}) == (envelope, {"a": "b"})
    assert plugins.apply_ingress(client, envelope, {"c": "d"}, frame) == (envelope, {"c": "d"})
    assert history.last_sent == {"envelope": envelope, "http_headers": {"a": "b"}}
    assert history.last_received == {"envelope": envelope, "http_headers": {"c": "d"}}


def test_the_signature_of_an_operation(frame: Any) -> None:
    """As people read it."""
    assert "title: xsd:string, picture: xsd:base64Binary[]" in frame.input.signature()


# Responses


def test_an_operation_reads_an_envelope(frame: Any) -> None:
    """`process_reply` takes the element, and returns what zeep would for HTTP."""
    said = frame.process_reply(etree.fromstring(REPLY))
    assert (said.body.title, said.body.picture) == ("Dusk", b"picture")


def test_comments_are_stumbled_over(frame: Any) -> None:
    """One before the element hides it; so they are taken out first, as zeep's own parser does."""
    said = frame.process_reply(etree.fromstring(REPLY.replace("<framed", "<!-- here --><framed")))
    assert (said.body.title, said.body.picture) == (None, None)


def test_an_empty_body_is_stumbled_over(frame: Any) -> None:
    """With an error that says nothing; ours says which response it was."""
    root = etree.fromstring(REPLY)
    root[0].clear()
    with pytest.raises(IndexError):
        frame.process_reply(root)


def test_any_element_is_taken_for_the_response(frame: Any) -> None:
    """Its name is not looked at. So ours compares it with that of the message's body before, where it is no RPC."""
    said = frame.process_reply(etree.fromstring(REPLY.replace("framed", "unframed")))
    assert (said.body.title, said.body.picture) == ("Dusk", b"picture")
    assert isinstance(frame.output, DocumentMessage)
    assert (frame.output.body.qname.text, frame.output._is_body_wrapped) == (f"{{{NS}}}framed", False)


def test_an_envelope_of_the_other_version_is_an_error_of_zeep(frame: Any) -> None:
    """XMLSyntaxError."""
    other = REPLY.replace("http://schemas.xmlsoap.org/soap/envelope/", "http://www.w3.org/2003/05/soap-envelope")
    with pytest.raises(zeep.exceptions.XMLSyntaxError):
        frame.process_reply(etree.fromstring(other))


def test_a_pack_of_parts() -> None:
    """`MessagePack` takes what has headers and content, and strips what says that it is binary: zeep's own mistake."""

    class Part:
        encoding = "latin-1"
        content = b"\r\n"

        def __init__(self, **headers: bytes) -> None:
            self.headers = {name.replace("_", "-").encode(): value for name, value in headers.items()}

    pack = MessagePack(
        parts=[Part(content_id=b"<a>", content_type=b"image/png"), Part(content_transfer_encoding=b"binary")]
    )
    pack._set_root("root")
    assert (pack.root, pack.get_by_content_id("<a>")) == ("root", pack.attachments[0])
    assert [each.content for each in pack.attachments] == [b"\r\n", b""]
    assert pack.attachments[0].content_type == "image/png"


def test_a_list_of_wsse_is_not_verified(http: Document, frame: Any) -> None:
    """zeep applies a list and cannot verify one (its issue 953); ours does both."""
    client = zeep.Client(http, transport=Files(), wsse=[UsernameToken("ann", "secret")])
    reply = requests.Response()
    reply.status_code, reply._content = 200, REPLY.encode()
    with pytest.raises(AttributeError, match="verify"):
        http.bindings[BINDING].process_reply(client, frame, reply)


@pytest.mark.parametrize(
    "error", [zeep.exceptions.Fault, zeep.exceptions.TransportError, zeep.exceptions.XMLSyntaxError]
)
def test_errors_have_one_root(error: type) -> None:
    """So does ValidationError; TypeError and ValueError come from elsewhere."""
    assert issubclass(error, zeep.exceptions.Error)


def test_what_a_fault_is_made_of() -> None:
    """Five attributes by name."""
    fault = zeep.exceptions.Fault(message="m", code="c", actor="a", detail="d", subcodes=["s"])
    assert (fault.message, fault.code, fault.actor, fault.detail, fault.subcodes) == ("m", "c", "a", "d", ["s"])


def test_wrong_arguments(frame: Any) -> None:
    """An unknown name is a TypeError with the signature, a missing element a ValidationError with its path."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'titel'. Signature: `title: xsd:string"):
        frame.create(titel="Dusk")
    with pytest.raises(zeep.exceptions.ValidationError, match=r"Missing element title \(frame.title\)"):
        frame.create()


CHOOSING = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r"><xs:complexType><xs:sequence>
<xs:choice><xs:element name="n" type="xs:int"/><xs:element name="other" type="xs:int"/></xs:choice>
<xs:element name="u"><xs:simpleType><xs:union memberTypes="xs:anySimpleType"/></xs:simpleType></xs:element>
</xs:sequence></xs:complexType></xs:element></xs:schema>"""


@pytest.mark.parametrize("is_repaired", [False, True])
def test_choices_and_unions(is_repaired: bool) -> None:
    """zeep loses 0 in a choice, and reads an empty union as the word None; `repair` mends both, where the types are."""
    schema: Any = zeep.xsd.Schema(etree.fromstring(CHOOSING))
    if is_repaired:
        repair(schema)
        repair(schema)
    element = schema.get_element("r")
    found = [element(n=0, u="a"), element.parse(etree.fromstring("<r><n>0</n><u/></r>"), schema)]
    assert [getattr(each, "n", None) for each in found] == ([0, 0] if is_repaired else [None, None])
    assert found[1].u == (None if is_repaired else "None")


def test_zeep_needs_no_httpx() -> None:
    """It is imported where it is installed, and missed only by its AsyncTransport."""
    program = "import sys; sys.modules['httpx'] = None; import zeep; print(zeep.AsyncClient.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "AsyncClient\n"


class TestTypedServices:
    """What `soapjms.service.typed` takes for granted."""

    def test_reading(self, http: Document) -> None:
        """Input and headers are elements that read XML by themselves; without headers they make an empty object."""
        message: Any = http.bindings[BINDING].get("frame").input
        body = etree.fromstring(f'<frame xmlns="{NS}"><title>Dusk</title><picture>cGlj</picture></frame>')
        found = message.body.parse(body, http.types)
        assert found.__values__ == {"title": "Dusk", "picture": [b"pic"]}
        header = etree.fromstring(f'<e:Header xmlns:e="urn:e" xmlns="{NS}"><other/><visitor>Ann</visitor></e:Header>')
        assert message.header.parse(header, http.types).visitor == "Ann"
        assert message.header.type().visitor is None
        assert message.header.parse(header.makeelement("Header"), http.types).visitor is None

    def test_values(self, http: Document) -> None:
        """What a message consists of is known by name; one of a simple type has no elements."""
        operations = http.bindings[BINDING].all()
        body: Any = operations["frame"].input.body
        assert [name for name, _ in body.type.elements] == ["title", "picture"]
        assert body.type.attributes == []
        assert not isinstance(operations["note"].input.body.type, ComplexType)
        assert [element.qname.text for _, element in operations["frame"].input.header.type.elements] == [
            f"{{{NS}}}visitor"
        ]

    def test_writing(self, http: Document) -> None:
        """Output is written as input is; headers by name or as elements; what it lacks is said."""
        message: Any = http.bindings[BINDING].get("frame").output
        made = message.serialize(title="Dusk", picture=b"pic", _soapheaders={"guard": "Bob"}).content
        assert made.findtext(f".//{{{NS}}}guard") == "Bob"
        assert made.findtext(f".//{{{NS}}}picture") == "cGlj"
        made = message.serialize(title="Dusk", _soapheaders=[etree.Element("{urn:other}block")]).content
        assert made.find(".//{urn:other}block") is not None
        with pytest.raises(zeep.exceptions.ValidationError, match="Missing element title"):
            message.serialize()

    def test_rpc_wrapper(self, tmp_path: Path) -> None:
        """The wrapper of an RPC response is named after its message, which WS-I has otherwise: we rename it."""
        path = written(tmp_path, shop_wsdl().replace(REC_NAMESPACE, HTTP))
        document = Document(str(path), Files())  # type: ignore[arg-type]
        message: Any = document.bindings["{urn:shop}Shop"].get("move").output
        assert message.body.qname.text == "{urn:shop:rpc}moved"

    def test_documents(self, tmp_path: Path) -> None:
        """Documents are loaded by absolute paths, against that of the document that names them."""
        schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:more"/>'
        (tmp_path / "more.xsd").write_text(schema)
        types = f'<xs:import namespace="urn:more" schemaLocation="more.xsd"/>{TYPES}'
        files = Files()
        path = written(tmp_path, gallery_wsdl(types=types, bindings=binding_of("Jms", "soap", HTTP)))
        Document(str(path), files)  # type: ignore[arg-type]
        assert files.asked == [str(path), absolute_location("more.xsd", str(path))]
        assert files.asked[1] == str(tmp_path / "more.xsd")
