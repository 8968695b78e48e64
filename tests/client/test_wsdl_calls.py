"""Calling a port of a WSDL, 1.1 and 2.0, with a plain envelope: on the embedded broker and on ActiveMQ over STOMP."""

from __future__ import annotations

from pathlib import Path

import pytest
from calling_kit import PATIENCE, SOAP_12, OnEachBroker, arrivals, envelope, greeter, text_of
from wsdl_kit import CR, CXF, VERSIONS, WSDL_11, with_import_from_above, wsdl

import soapjms
from brokers import Connection, queue
from soapjms import CR_2009, REC_2012, AsyncClient, Client, Dispatcher, InvalidWsdlError, Names, UsageError, read_wsdl

INTERFACE = {
    "1.1": """<wsdl:portType name="LedgerPT">
      <wsdl:operation name="greetMe"><wsdl:input/><wsdl:output/></wsdl:operation>
      <wsdl:operation name="pingMe"><wsdl:input/></wsdl:operation></wsdl:portType>""",
    "2.0": """<interface name="LedgerPT"><operation name="greetMe"/>
      <operation name="pingMe" pattern="http://www.w3.org/ns/wsdl/in-only"/></interface>""",
}
OPERATIONS = {
    "1.1": """<wsdl:operation name="greetMe"><s:operation soapAction="urn:greeter:greetMe"/></wsdl:operation>
      <wsdl:operation name="pingMe"><s:operation soapAction=""/></wsdl:operation>""",
    "2.0": '<operation ref="t:greetMe" wsoap:action="urn:greeter:greetMe"/>',
}
VALUES = {
    "binding": "<j:priority>2</j:priority><j:deliveryMode>NON_PERSISTENT</j:deliveryMode>",
    "service": "<j:timeToLive>60000</j:timeToLive>",
    "port": "<j:priority>7</j:priority>",
}


def greeter_wsdl(folder: Path, version: str, address: str, **parts: str) -> Path:
    """Write the WSDL of the greeter, of SOAP 1.2."""
    soap = {"soap": "soap12"} if version == WSDL_11 else {}
    whole = {"interface": INTERFACE[version], "operations": OPERATIONS[version], **VALUES, **soap, **parts}
    path = folder / "greeter.wsdl"
    path.write_text(wsdl(version, address=address, **whole), encoding="utf-8")
    return path


class TestCalls(OnEachBroker):
    """A client of a port."""

    @pytest.mark.parametrize("version", VERSIONS)
    def test_call(self, connection: Connection, other: Connection, name: str, version: str, tmp_path: Path) -> None:
        """The request goes to the address, with the properties of every level and the operation's action."""
        path = greeter_wsdl(tmp_path, version, f"jms:queue:{name}?targetService=greeter")
        with (
            Dispatcher(other, f"jms:queue:{name}", greeter()),
            Client.from_wsdl(connection, path, "Ledger", timeout=PATIENCE) as client,
        ):
            plain = client.call(envelope("World", SOAP_12))
            named = client.submit(envelope("World", SOAP_12), operation="greetMe").result(PATIENCE)
        assert (text_of(plain), text_of(named)) == ("Hello World", "Hello World")
        assert (plain.findings(), named.findings()) == ((), ())
        assert (named.request.priority, named.request.delivery_mode) == (7, 1)
        assert client.endpoint.time_to_live == 60000
        properties = named.request.properties
        assert properties.value("SOAPJMS_soapAction") == "urn:greeter:greetMe"
        assert properties.value("SOAPJMS_targetService") == "greeter"
        assert properties.value("SOAPJMS_requestURI") == f"jms:queue:{name}"
        assert plain.request.properties.value("SOAPJMS_soapAction") is None

    def test_one_way(self, connection: Connection, other: Connection, name: str, tmp_path: Path) -> None:
        """A one-way operation is sent."""
        path = greeter_wsdl(tmp_path, "2.0", f"jms:queue:{name}")
        with (
            arrivals(other, queue(name)) as found,
            Client.from_wsdl(connection, path) as client,
        ):
            client.send(envelope(version=SOAP_12, operation="pingMe"), operation="pingMe")
            assert found.next().reply_to is None


def test_imports_from_elsewhere(connection: Connection, tmp_path: Path) -> None:
    """Only from folders that are allowed."""
    path = with_import_from_above(tmp_path)
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidWsdlError, match="or allow its folder"):
            kind.from_wsdl(connection, path)
        assert kind.from_wsdl(connection, path, allow=[tmp_path]).endpoint.uri.destination == "ledger"


@pytest.fixture
def connection() -> Connection:
    """Return a connection to a broker of the test's own."""
    return soapjms.connect("embedded:wsdl-calls")


@pytest.mark.parametrize(
    ("given", "properties", "action"),
    [
        (None, {}, "urn:greeter:greetMe"),
        ("urn:mine", {}, "urn:mine"),
        (None, {"soapAction": "urn:set"}, "urn:set"),
        ("urn:mine", {"soapAction": "urn:set"}, "urn:mine"),
    ],
)
def test_which_action_counts(
    connection: Connection, tmp_path: Path, given: str | None, properties: dict[str, str], action: str
) -> None:
    """The call's, else the environment's (Protocol-2001), else the operation's."""
    path = greeter_wsdl(tmp_path, "1.1", "jms:queue:actions")
    with (
        Dispatcher(connection, "jms:queue:actions", greeter()),
        Client.from_wsdl(connection, path, timeout=PATIENCE, properties=properties) as client,
    ):
        response = client.call(envelope(version=SOAP_12), operation="greetMe", soap_action=given)
    assert response.request.properties.value("SOAPJMS_soapAction") == action


def test_operations_are_checked_before_anything_is_sent(connection: Connection, tmp_path: Path) -> None:
    """An unknown one, one of the other pattern, or any where there is no WSDL."""
    path = greeter_wsdl(tmp_path, "1.1", "jms:queue:unheard")
    with Client.from_wsdl(connection, path) as client, Client(connection, "jms:queue:unheard") as plain:
        with pytest.raises(UsageError, match="has no operation 'greet'; there are: greetMe, pingMe"):
            client.call(envelope(), operation="greet")
        with pytest.raises(UsageError, match="'pingMe' must be request-response here, got one-way"):
            client.submit(envelope(), operation="pingMe")
        with pytest.raises(UsageError, match="'greetMe' must be one-way here, got request-response"):
            client.send(envelope(), operation="greetMe")
        with pytest.raises(
            UsageError, match=r"operation must come with a WSDL, got 'greetMe' without one; see Client\.from_wsdl"
        ):
            plain.call(envelope(), operation="greetMe")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_edition_is_that_of_the_transport(connection: Connection, tmp_path: Path, version: str) -> None:
    """Unless the caller chooses another."""
    path = greeter_wsdl(tmp_path, version, "jms:queue:q", transport=CR)
    with Client.from_wsdl(connection, path) as client:
        assert client.endpoint.profile is CR_2009
    with Client.from_wsdl(connection, path, profile=REC_2012) as client:
        assert client.endpoint.profile is REC_2012
    with Client.from_wsdl(connection, CXF[1]) as client:
        assert client.endpoint.profile is REC_2012
    port = read_wsdl(path).port()
    with Client(connection, port) as client:
        assert client.endpoint.profile is REC_2012
    with Client(connection, port, profile="auto", timeout=PATIENCE) as client:
        assert client.endpoint.profile is CR_2009
        with Dispatcher(connection, port, greeter(), profile="auto") as dispatcher:
            assert dispatcher.setting.profile is CR_2009
            assert text_of(client.call(envelope(version=SOAP_12))) == "Hello World"


def test_jndi_names_by_the_markup(connection: Connection, tmp_path: Path) -> None:
    """A jndiContextParameter of the WSDL counts as one of the URI does."""
    parameter = '<j:jndiContextParameter name="queue.orders" value="markup.orders"/>'
    path = greeter_wsdl(tmp_path, "1.1", "jms:jndi:orders", port=parameter)
    with (
        Dispatcher(connection, "jms:queue:markup.orders", greeter()),
        Client.from_wsdl(connection, path, names=Names(), timeout=PATIENCE) as client,
    ):
        assert text_of(client.call(envelope(version=SOAP_12))) == "Hello World"


def test_ports_that_cannot_be_called(connection: Connection, tmp_path: Path) -> None:
    """The errors of reading and choosing."""
    path = greeter_wsdl(tmp_path, "2.0", "http://example/")
    with pytest.raises(InvalidWsdlError, match="'http://example/'"):
        Client.from_wsdl(connection, path)
    with pytest.raises(UsageError, match="no endpoint 'x'"):
        Client.from_wsdl(connection, path, "x")
    with pytest.raises(InvalidWsdlError, match="cannot be read"):
        Client.from_wsdl(connection, tmp_path / "missing.wsdl")
