"""Which ports of a WSDL can be called through zeep, with which properties; services at an address of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep
from calling_kit import SOAP_11, SOAP_12
from zeep_kit import BINDING, HTTP, NS, PROPERTIES, binding, echo, gallery_wsdl, port, written

import soapjms
from brokers import Connection
from brokers.embedded import Broker
from soapjms import CR_2009, REC_2012, Dispatcher, InvalidUriError, InvalidWsdlError, UsageError, read_wsdl
from soapjms.protocol.names import CR_NAMESPACE, REC_NAMESPACE
from soapjms.protocol.properties import Origin
from soapjms.zeep import Client, JmsTransport

LIVES = "<j:timeToLive>60000</j:timeToLive>"
FIRST = "<j:priority>2</j:priority>"


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("ports").connect() as connection:
        yield connection


def endpoint_of(client: Any, service: Any) -> Any:
    """Return where the calls of a service go."""
    return client.transport.client_of(service._binding.place_of(service._binding_options)).endpoint


# Precedence


@pytest.mark.parametrize("name", [each.name for each in read_wsdl(PROPERTIES).ports])
@pytest.mark.parametrize("plain", [False, True])
def test_contradictions_of_cxf(connection: Connection, name: str, plain: bool) -> None:
    """Each port has the values that precedence demands: those that reading the file without zeep gives."""
    known = read_wsdl(PROPERTIES).port(name)
    with JmsTransport(connection) as transport:
        client = (zeep.Client if plain else Client)(str(PROPERTIES), transport=transport)
        endpoint = endpoint_of(client, client.bind(known.service.name, name))
    assert endpoint.properties == known.effective()
    assert endpoint.uri.text == known.address


def test_values_on_the_wire(connection: Connection) -> None:
    """Those of port, service and binding reach the message; the environment's win (Protocol-2001)."""
    with (
        Dispatcher(connection, "jms:queue:CXF.PROPS", echo()),
        Client(PROPERTIES, connection=connection, port_name="PortOverBinding") as client,
        Client(PROPERTIES, connection=connection, port_name="UriOverPort", properties={"priority": 9}) as other,
        client.settings(raw_response=True),
        other.settings(raw_response=True),
    ):
        request, said = client.service.greetMe("x").jms.request, other.service.greetMe("x").jms.request
    assert (request.priority, request.delivery_mode, request.reply_to.name) == (3, 2, "CXF.PROPS.REPLY.BINDING")
    assert (said.priority, said.properties.text("SOAPJMS_targetService")) == (9, "EchoPort")


# Which port


def mixed(jms: str = "jms:queue:gallery") -> str:
    """Write a WSDL with a service for HTTP, one for both, and two bindings for JMS."""
    bindings = (
        binding("Http", "soap", HTTP)
        + binding("Jms", "soap", REC_NAMESPACE)
        + binding("Old", "soap12", CR_NAMESPACE, FIRST)
    )
    services = (
        f'<wsdl:service name="Web">{port("Web", "Http", "http://localhost/")}</wsdl:service>'
        f'<wsdl:service name="Both">{LIVES}{port("Http", "Http", "http://localhost/")}{port("Jms", "Jms", jms)}'
        f"{port('Old', 'Old', jms, 'soap12')}</wsdl:service>"
    )
    return gallery_wsdl(bindings=bindings, services=services)


def test_the_first_jms_port_is_the_default(connection: Connection, tmp_path: Path) -> None:
    """In whatever service, as those for HTTP cannot be called; each port by its edition and SOAP version."""
    with Client(written(tmp_path, mixed()), connection=connection) as client:
        assert [[*each.ports] for each in client.wsdl.services.values()] == [[], ["Jms", "Old"]]
        default, old = endpoint_of(client, client.service), endpoint_of(client, client.bind(port_name="Old"))
        assert (default.profile, old.profile) == (REC_2012, CR_2009)
        assert client.bind("Both", "Old")._binding.nsmap["soap-env"] == SOAP_12.namespace
        assert (default.time_to_live, old.time_to_live, old.priority) == (60000, 60000, 2)
    with Client(written(tmp_path, mixed()), connection=connection, port_name="Old", profile=REC_2012) as client:
        assert endpoint_of(client, client.service).profile is REC_2012


def test_a_port_that_is_not_there(connection: Connection, tmp_path: Path) -> None:
    """The message names those there are."""
    with Client(written(tmp_path, mixed()), connection=connection) as client:
        for names, wanted in ((("Both", "Jm"), "Both/Jm"), (("Web", None), "Web"), ((None, "Http"), "Http")):
            with pytest.raises(UsageError, match=f"no port '{wanted}'; there are: Both/Jms, Both/Old"):
                client.bind(*names)


def test_a_wsdl_without_jms_port(connection: Connection, tmp_path: Path) -> None:
    """It says how to call it all the same; a port of HTTP says what it is."""
    text = gallery_wsdl("http://localhost/", bindings=binding("Jms", "soap", HTTP))
    with Client(written(tmp_path, text), connection=connection) as client:
        with pytest.raises(
            UsageError, match=r"no SOAP/JMS port; .* has no binding with a SOAP/JMS transport; call another at"
        ):
            _ = client.service
        with pytest.raises(InvalidWsdlError, match=f"port 'Jms' is not SOAP over JMS: its transport is '{HTTP}'"):
            client.bind(port_name="Jms")
        transport = client.transport
        with pytest.raises(InvalidWsdlError, match="port 'Jms' is not SOAP over JMS"):
            zeep.Client(str(tmp_path / "gallery.wsdl"), transport=transport).service.frame("Dusk")


def test_a_wsdl_without_soap(connection: Connection, tmp_path: Path) -> None:
    """There is nothing to call."""
    with (
        Client(written(tmp_path, gallery_wsdl(bindings="", services="")), connection=connection) as client,
        pytest.raises(UsageError, match=r"no SOAP/JMS port; .*gallery.wsdl has no SOAP binding at all"),
    ):
        _ = client.service


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ("http://schemas.xmlsoap.org/soap/jms", "an older id for JMS"),
        (REC_NAMESPACE.rstrip("/"), "without its last slash"),
        ("", "has the jms: address 'jms:queue:gallery', and the transpor"),
    ],
)
def test_a_transport_that_is_another(connection: Connection, tmp_path: Path, transport: str, said: str) -> None:
    """The message says what is written, and what is accepted."""
    path = written(tmp_path, gallery_wsdl(bindings=binding("Jms", "soap", transport)))
    with Client(path, connection=connection) as client, pytest.raises(InvalidWsdlError, match=said):
        client.bind("Gallery")


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("<j:priority>77</j:priority>", "priority of the port is '77'"),
        ("<j:replyToName>a</j:replyToName><j:topicReplyToName>b</j:topicReplyToName>", "topicReplyToName"),
    ],
)
def test_a_port_with_a_mistake(connection: Connection, tmp_path: Path, inside: str, said: str) -> None:
    """The rest of the WSDL loads; the port is refused when it is chosen, with file and line."""
    ports = port("Good", "Jms", "jms:queue:gallery") + port("Bad", "Jms", "jms:queue:gallery", inside=inside)
    path = written(tmp_path, gallery_wsdl(services=f'<wsdl:service name="Gallery">{ports}</wsdl:service>'))
    with Client(path, connection=connection) as client:
        assert client.service is not None
        with pytest.raises((InvalidWsdlError, soapjms.InvalidPropertyError), match=said) as caught:
            client.bind(port_name="Bad")
    assert "gallery.wsdl" in str(caught.value)


def test_a_port_without_address(connection: Connection, tmp_path: Path) -> None:
    """It says what to write."""
    services = '<wsdl:service name="Gallery"><wsdl:port name="Jms" binding="g:Jms"/></wsdl:service>'
    path = written(tmp_path, gallery_wsdl(services=services))
    with Client(path, connection=connection) as client, pytest.raises(InvalidWsdlError, match=r"location=.*jms:…"):
        _ = client.service


def test_a_binding_in_another_document(connection: Connection, tmp_path: Path) -> None:
    """Its properties count as those of one in the same."""
    inner = gallery_wsdl(bindings=binding("Jms", "soap", REC_NAMESPACE, FIRST), services="")
    written(tmp_path, inner, "inner.wsdl")
    outer = (
        f'<wsdl:definitions targetNamespace="urn:outer" xmlns:g="{NS}" xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/"'
        f' xmlns:j="{REC_NAMESPACE}"><wsdl:import namespace="{NS}" location="inner.wsdl"/>'
        f'<wsdl:service name="Outer">{LIVES}{port("Jms", "Jms", "jms:queue:outer")}</wsdl:service></wsdl:definitions>'
    )
    with Client(written(tmp_path, outer, "outer.wsdl"), connection=connection) as client:
        properties = endpoint_of(client, client.service).properties
    assert (properties["priority"].value, properties["priority"].origin) == (2, Origin.BINDING)
    assert (properties["timeToLive"].value, properties["timeToLive"].origin) == (60000, Origin.SERVICE)
    assert properties["destinationName"].value == "outer"


# An address of the caller's


def test_create_service(connection: Connection, tmp_path: Path) -> None:
    """The URI counts over the binding's properties; those of port and service are nobody's there."""
    with Client(written(tmp_path, mixed()), connection=connection) as client:
        made = client.create_service(f"{{{NS}}}Old", "jms:queue:other?timeToLive=5000")
        endpoint = endpoint_of(client, made)
        assert (endpoint.profile, endpoint.priority, endpoint.time_to_live) == (CR_2009, 2, 5000)
        assert endpoint.uri.destination == "other"
        plain = endpoint_of(client, client.create_service(f"{{{NS}}}Old", "jms:queue:other"))
        assert plain.time_to_live is None
        with pytest.raises(UsageError, match=f"no binding 'Old'; there are: {{{NS}}}Jms, {{{NS}}}Old"):
            client.create_service("Old", "jms:queue:other")
        for address, said in (
            ("http://other/", "'http://other/'"),
            (5, "address must be a jms: URI as text, got 5"),
            ("jms:other", "no second colon; a JMS URI is jms:variant:destination, such as jms:queue:orders"),
        ):
            with pytest.raises(UsageError, match=said):
                client.create_service(BINDING, address)


def test_create_service_of_a_binding_for_http(connection: Connection, tmp_path: Path) -> None:
    """A WSDL that knows nothing of JMS will do."""
    text = gallery_wsdl("http://localhost/", bindings=binding("Jms", "soap", HTTP))
    with JmsTransport(connection) as transport:
        for kind in (Client, zeep.Client):
            client = kind(str(written(tmp_path, text)), transport=transport)
            endpoint = endpoint_of(client, client.create_service(BINDING, "jms:queue:other?priority=7"))
            assert (endpoint.uri.destination, endpoint.priority, endpoint.profile) == ("other", 7, REC_2012)
            with pytest.raises(InvalidUriError, match="http"):
                client.create_service(BINDING, "http://other/").note("x")


def test_one_client_for_a_place(connection: Connection, tmp_path: Path) -> None:
    """However often it is bound; another address, which zeep's users put into the options, is another place."""
    path = written(tmp_path, gallery_wsdl())
    with JmsTransport(connection) as transport:
        for _ in range(3):
            client = Client(path, transport=transport)
            client.bind("Gallery", "Jms")
            client.create_service(BINDING, "jms:queue:other")
        assert len(transport._clients) == 2
        client.service._binding_options["address"] = "jms:queue:third?priority=3"
        assert endpoint_of(client, client.service).priority == 3
        assert len(transport._clients) == 3


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
def test_dump(connection: Connection, tmp_path: Path, version: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`wsdl.dump()` shows the ports."""
    with Client(written(tmp_path, gallery_wsdl(version=version)), connection=connection) as client:
        client.wsdl.dump()
    shown = capsys.readouterr().out
    assert f"Port: Jms (JmsSoap{version.replace('.', '')}Binding: {BINDING})" in shown
    assert "frame(title: xsd:string, picture: xsd:base64Binary[]" in shown


def test_reprs(connection: Connection) -> None:
    """Clients and transports say what they are, and where they send."""
    over = "over <EmbeddedConnection to embedded, connected>"
    with Client(PROPERTIES, connection=connection, port_name="UriOverPort") as client:
        assert repr(client.transport) == f"<soapjms.zeep.JmsTransport {over}, 0 addresses>"
        services = ", ".join(client.wsdl.services)
        assert "EchoService" in services
        assert repr(client) == f"<soapjms.zeep.Client of {services}, {client.transport!r}>"
    assert repr(client.transport) == f"<soapjms.zeep.JmsTransport {over}, closed>"
