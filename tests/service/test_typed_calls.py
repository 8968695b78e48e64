"""Typed services called through zeep, over brokers: the WSDLs of Apache CXF with each operation, and attachments."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep.exceptions
from calling_kit import PATIENCE, SOAP_11, SOAP_12, OnActiveMQ, OnEachBroker, eventually
from places import ROOT
from serving_kit import serving
from zeep_kit import ECHO, NS, PROPERTIES, gallery_wsdl, written

import soapjms
from brokers import Connection, MessageType
from brokers.embedded import Broker
from soapjms import Attachment, Dispatcher, Part, Reply, Service, Services, SoapVersion
from soapjms.service.typed import TypedService
from soapjms.zeep import Client, JmsFaultError, JmsTransport

BOTH = [SOAP_11, SOAP_12]
GREETER = ROOT / "examples" / "greeter.wsdl"
PHOTO = b"\x89PNG\r\n\x1a\n\x00\xff\r\n"


def echo(path: Path, port: str | None = None) -> TypedService:
    """Make the service of the WSDLs of Apache CXF: it counts its pings."""
    service, pings = Service.from_wsdl(path, port=port), list[str | None]()

    @service.operation("greetMe")
    def greet(requestType: str | None) -> str:
        return f"Hello {requestType}"

    @service.operation("pingMe")
    def ping(requestType: str | None) -> None:
        pings.append(requestType)

    @service.operation("pingCount")
    async def count() -> int:
        await asyncio.sleep(0)
        return len(pings)

    @service.operation("testFault")
    def fail(requestType: str) -> str:
        if requestType != "broken":
            return f"nothing broken in {requestType}"
        raise service.fault("EchoFault", code=7, reason=requestType, _message="it was asked for", _blame="Sender")

    return service


def call_each(client: Client, version: SoapVersion) -> None:
    """Call each operation, and look at what comes."""
    assert client.service.greetMe("Zoë") == "Hello Zoë"
    assert client.service.greetMe(requestType=None) == "Hello None"
    assert client.service.testFault("order") == "nothing broken in order"
    assert client.service.pingMe("there") is None
    eventually(lambda: client.service.pingCount() == 1, "the ping was counted")
    with pytest.raises(JmsFaultError, match="it was asked for") as caught:
        client.service.testFault("broken")
    fault = caught.value
    assert fault.code == ("env:Client" if version is SOAP_11 else "env:Sender")
    detail = client.wsdl.types.deserialize(fault.detail[0])
    assert (detail.code, detail.reason) == (7, "broken")
    assert fault.response.envelope.version is version
    assert fault.response.findings() == ()


class TestCxf(OnEachBroker):
    """The WSDLs that Apache CXF publishes, served and called by what the service writes out."""

    @pytest.mark.parametrize("version", BOTH)
    def test_each_operation(
        self, connection: Connection, other: Connection, uri: str, version: SoapVersion, tmp_path: Path
    ) -> None:
        """Values in, values out; one-way; the declared fault."""
        out = tmp_path / "echo.wsdl"
        echo(ECHO[version]).write_wsdl(out, f"{uri}?timeToLive=60000")
        service = echo(out)
        with (
            Dispatcher(other, service.port, service),
            Client(out, connection=connection, operation_timeout=PATIENCE) as client,
        ):
            call_each(client, version)


class TestServe(OnActiveMQ):
    """`soapjms serve` with a typed service."""

    def test_as_it_is(self, url: str, connection: Connection, name: str, tmp_path: Path) -> None:
        """It is served where its WSDL says, unless the command line says something else."""
        greeter = Service.from_wsdl(GREETER, port="GreeterPort")
        path = tmp_path / "greeter.wsdl"
        greeter.write_wsdl(path, f"jms:queue:{name}?timeToLive=60000")
        options = ("--connection", url, "--processes", "2")
        with (
            serving("typed_greeter:service", *options, marks=tmp_path, GREETER_WSDL=str(path)) as served,
            Client(path, connection=connection, port_name="GreeterPort", operation_timeout=PATIENCE) as client,
        ):
            served.until_serving(2)
            assert f"queue:{name}" in served.out[0]
            said = client.service.greetMe("World")
            assert said in [f"Hello World from {pid}" for pid in served.pids()]
            served.process.terminate()
            assert served.ended() == 0, "".join(served.err)


class TestProperties(OnActiveMQ):
    """The WSDL with properties on port, service and binding."""

    @pytest.mark.parametrize("port", ["BindingOnly", "PortOverBinding", "UriOverPort", "ServiceOverBinding"])
    def test_each_operation(
        self, connection: Connection, other: Connection, name: str, port: str, tmp_path: Path
    ) -> None:
        """Each of its ports is served and called, at destinations of the test's own."""
        text = PROPERTIES.read_text(encoding="utf-8").replace("CXF.PROPS", name)
        path = written(tmp_path, text)
        service = echo(path, port)
        with (
            Dispatcher(other, service.port, service),
            Client(path, connection=connection, port_name=port, operation_timeout=PATIENCE) as client,
        ):
            call_each(client, SOAP_11)


def gallery(path: Path, *, lazy: bool = False) -> TypedService:
    """Make the service: it frames the first picture; with its visitor in a header."""
    service = Service.from_wsdl(path)

    @service.operation("frame", lazy=lazy)
    def frame(title: str, picture: list[Any], _soapheaders: Any, _attachments: list[Part]) -> Reply:
        kinds = "".join(type(each).__name__[0] for each in picture)
        listed = [bytes(each.content) for each in _attachments]
        framed = [b"[", *(bytes(each.content) if isinstance(each, Part) else each for each in picture), b"]"]
        out = Attachment(b"".join(framed), "image/png") if picture else None
        sent = [Attachment(b"loud\r\n", "text/plain", "loud@gallery")] if title == "loud" else []
        said = {"title": f"{title} {kinds} {listed}", "picture": out}
        return Reply(said, sent, headers={"guard": f"for {_soapheaders.visitor}"})

    @service.operation("hang", lazy=lazy)
    def hang(work: Any) -> str:
        return f"{type(work.scan).__name__} of {work.year} by {work.by}"

    return service


class TestAttachments(OnEachBroker):
    """MTOM and SwA, in and out."""

    @pytest.mark.parametrize("kind", [MessageType.BYTES, MessageType.TEXT])
    @pytest.mark.parametrize("lazy", [False, True])
    @pytest.mark.parametrize("version", BOTH)
    def test_in_and_out(
        self,
        connection: Connection,
        other: Connection,
        uri: str,
        version: SoapVersion,
        lazy: bool,
        kind: MessageType,
        tmp_path: Path,
    ) -> None:
        """What is included is bytes, or a part where it is to stay where it is; the rest comes beside."""
        path = written(tmp_path, gallery_wsdl(uri, version))
        transport = JmsTransport(connection, operation_timeout=PATIENCE, message_type=kind)
        with Dispatcher(other, uri, gallery(path, lazy=lazy)), Client(path, transport=transport) as client:
            photo = Attachment(PHOTO, "image/png")
            headers = {"visitor": "Ann"}
            said = client.service.frame("a", picture=[photo, b"!"], _soapheaders=headers)
            assert said.body.title == f"a {'Pb' if lazy else 'bb'} []"
            assert said.body.picture == b"[" + PHOTO + b"!]"
            assert said.header.guard == "for Ann"
            said = client.service.frame("loud", _attachments=[Attachment(b"beside\r\n", "text/plain")])
            assert said.root.body.title == "loud  [b'beside\\r\\n']"
            assert [each.content for each in said.attachments] == [b"loud\r\n"]
            work = {"year": 1889, "by": "Vincent", "scan": photo}
            assert client.service.hang(work) == f"{'Part' if lazy else 'bytes'} of 1889 by Vincent"


class TestLocally:
    """What needs no broker of its own."""

    @pytest.fixture
    def connection(self) -> Iterator[Connection]:
        with Broker("gallery").connect() as connection:
            yield connection

    @pytest.mark.parametrize("lazy", [False, True])
    def test_misplaced(self, connection: Connection, tmp_path: Path, lazy: bool) -> None:
        """An attachment in the place of a text, or one that is not there, is the sender's mistake."""
        path = written(tmp_path, gallery_wsdl())
        include = '<xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include" href="cid:{}"/>'
        body = (
            f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body><frame xmlns="{NS}"><title>{{}}</title>'
            "<picture>{}</picture></frame></e:Body></e:Envelope>"
        )
        photo = Attachment(PHOTO, "image/png", "photo")
        here, gone = include.format("photo"), include.format("gone")
        with (
            Dispatcher(connection, "jms:queue:gallery", gallery(path, lazy=lazy)),
            soapjms.Client(connection, "jms:queue:gallery") as client,
        ):
            fault = client.call(body.format(here, ""), attachments=[photo]).fault
            assert fault is not None
            problem = "frame.title must be of type string, got an attachment"
            assert fault.reason == f"the request does not fit the WSDL: {problem}"
            fault = client.call(body.format("a", f"{here}<more/>"), attachments=[photo]).fault
            assert fault is not None
            assert "is not alone in" in fault.reason
            swapped = Attachment(PHOTO, "image/png", "other")
            fault = client.call(body.format("a", gone.replace("gone", "other")), attachments=[swapped]).fault
            assert fault is None

    def test_large(self, connection: Connection, tmp_path: Path) -> None:
        """A large part that stays where it is is a view of the message: nobody copied it; it goes out from a file."""
        path, octets = written(tmp_path, gallery_wsdl()), PHOTO * (1 << 20)
        (tmp_path / "photo.png").write_bytes(octets)
        service, seen = Service.from_wsdl(path), list[Any]()

        @service.operation("frame", lazy=True)
        def frame(title: str, picture: list[Part]) -> dict[str, Any]:
            content = picture[0].content
            seen.append(content)
            return {"title": title, "picture": Attachment(tmp_path / "photo.png", "image/png")}

        with (
            Dispatcher(connection, "jms:queue:gallery", service),
            Client(path, connection=connection, operation_timeout=PATIENCE) as client,
        ):
            said = client.service.frame("large", picture=[Attachment(octets, "image/png")])
        assert io.BytesIO(said.body.picture).read(8) == PHOTO[:8]
        assert said.body.picture == octets
        assert isinstance(seen[0], memoryview)
        assert seen[0] == octets

    def test_unreadable(self, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """An attachment that cannot be read, or stands where none can, is the service's failure."""
        path = written(tmp_path, gallery_wsdl())
        service = Service.from_wsdl(path)
        answers = [
            {"title": "a", "picture": Attachment(tmp_path / "none.png")},
            {"title": Attachment(PHOTO), "picture": None},
        ]
        service.operation("frame")(lambda title, picture: answers.pop(0))
        with (
            Dispatcher(connection, "jms:queue:gallery", service),
            Client(path, connection=connection, operation_timeout=PATIENCE) as client,
        ):
            for says in ("none.png", "framed.title must be of type string, got an attachment"):
                with pytest.raises(zeep.exceptions.Fault, match="the service failed"):
                    client.service.frame("a")
                assert says in caplog.text

    def test_both_versions_behind_one_queue(self, connection: Connection, tmp_path: Path) -> None:
        """Services by their names: the client's WSDL says which, by targetService in its address."""
        paths = {}
        for version in BOTH:
            paths[version] = tmp_path / f"{version}.wsdl"
            echo(ECHO[version]).write_wsdl(paths[version], f"jms:queue:echo?targetService=echo{version}")
        services = Services({f"echo{version}": echo(paths[version]) for version in BOTH})
        assert f"echo{SOAP_11}/greetMe" in services.operations
        with Dispatcher(connection, "jms:queue:echo", services):
            for version in BOTH:
                with Client(paths[version], connection=connection, operation_timeout=PATIENCE) as client:
                    call_each(client, version)
