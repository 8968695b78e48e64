"""The edges of the API: envelopes from elements, what objects show of themselves, what errors know."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from calling_kit import GREETER, NS, PATIENCE, URI, Peers, arrivals, element, envelope, greeter, text_of
from codegen_kit import BANK, generated
from lxml import etree
from places import ROOT

import soapjms
from brokers import Connection
from soapjms import CallFailedError, CallTimeoutError, Client, Dispatcher, Service, UsageError


class TestEnvelopes(Peers):
    """Envelopes that are made of elements."""

    @pytest.mark.parametrize(("version", "namespace"), [("1.1", "xmlsoap"), (soapjms.SoapVersion.SOAP_12, "2003/05")])
    def test_made(self, client: Client, served: Dispatcher, version: str, namespace: str) -> None:
        """An envelope has copies of body and headers, in the SOAP version asked for, and can be sent."""
        body, block = element("greetMe", "Ann"), etree.Element("{urn:other}session")
        made = soapjms.envelope(body, headers=[block], version=version)
        assert namespace in etree.QName(made).namespace
        assert [etree.QName(each).localname for each in made] == ["Header", "Body"]
        assert (made[0][0].tag, made[1][0].tag) == (block.tag, body.tag)
        assert body.getparent() is None
        assert text_of(client.call(made)) == "Hello Ann"

    def test_empty(self) -> None:
        """Without a body element and without headers there is an empty Body and no Header."""
        assert [etree.QName(each).localname for each in soapjms.envelope(None)] == ["Body"]

    def test_mistakes(self) -> None:
        """Another version, and what is no element, are refused."""
        with pytest.raises(UsageError, match=r"version must be '1\.1' or '1\.2', got '1\.3'"):
            soapjms.envelope(None, version="1.3")
        wrong: Any = "<a/>"
        for arguments in ({"body": wrong}, {"body": None, "headers": [wrong]}):
            with pytest.raises(UsageError, match="must be lxml elements, got str"):
                soapjms.envelope(**arguments)

    def test_called_with_a_body(self, client: Client, served: Dispatcher) -> None:
        """A call takes the element of its body, and leaves it where it is."""
        body = element("greetMe", "Bob")
        parent = etree.Element("parent")
        parent.append(body)
        assert text_of(client.call(body)) == "Hello Bob"
        assert text_of(client.submit(body).result(PATIENCE)) == "Hello Bob"
        assert body.getparent() is parent


class TestValues(Peers):
    """Bodies as plain Python."""

    def test_both_ways(self, connection: Connection, client: Client) -> None:
        """A service reads values from the request, a client from the response."""
        seen: list[object] = []
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: soapjms.Request) -> etree._Element:
            seen.append(request.body_value())
            answer = element("greetMeResponse")
            etree.SubElement(answer, "text").text = "Hello"
            return answer

        with Dispatcher(connection, f"jms:{GREETER}", service):
            assert client.call(envelope("Ann")).body_value() == {"text": "Hello"}
        assert seen == ["Ann"]

    def test_a_fault(self, connection: Connection, client: Client) -> None:
        """A fault has no value: it is raised."""
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: soapjms.Request) -> None:
            raise soapjms.SoapFaultError("no")

        with (
            Dispatcher(connection, f"jms:{GREETER}", service),
            pytest.raises(soapjms.SoapFaultError, match="no"),
        ):
            client.call(envelope()).body_value()

    def test_documentation(self) -> None:
        """What docs/services.md shows of a service without a WSDL runs as it stands."""
        text = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
        block = text.partition("## By elements")[2].partition("```python\n")[2].partition("```")[0]
        assert "body_value() ==" in block
        exec(compile(block, "services.md", "exec"), {})


class TestShown(Peers):
    """What objects show of themselves."""

    def test_reprs(self, connection: Connection, client: Client, served: Dispatcher) -> None:
        """They name what they are for, and how they are."""
        assert repr(connection) == "<EmbeddedConnection to embedded, connected>"
        assert repr(client) == "<soapjms.Client of queue:greeter, 0 under way>"
        assert repr(served) == "<soapjms.Dispatcher of queue:greeter, 4 of 4 subscriptions, 0 under way>"
        assert repr(greeter()) == "<soapjms.Service with 3 operations>"
        assert repr(soapjms.Service.from_wsdl(ROOT / "examples/greeter.wsdl", port="GreeterPort")) == (
            "<soapjms.Service at the port GreeterPort with 0 operations>"
        )
        assert repr(soapjms.REC_2012) == "<soapjms profile rec-2012>"
        client.close()
        assert repr(client) == "<soapjms.Client of queue:greeter, closed>"

    def test_requests_and_generated_clients(self, connection: Connection, other: Connection, tmp_path: Path) -> None:
        """They too; nothing of a request's content is shown."""
        service, shown = soapjms.Service(), list[str]()
        service.operation(f"{{{NS}}}greetMe")(lambda request: shown.append(repr(request)))
        assert repr(service) == "<soapjms.Service with 1 operation>"
        with Dispatcher(other, URI, service), Client(connection, URI, timeout=PATIENCE) as client:
            sent = client.call(envelope("s3cret"), timeout=PATIENCE).request
        assert shown == [f"<soapjms.Request {{{NS}}}greetMe, JMSCorrelationID {sent.correlation_id!r}>"]
        with generated(BANK, tmp_path) as package, package.BankClient(connection) as bank:
            assert repr(bank) == f"<bank_client.BankClient through {bank.client!r}>"

    def test_options_of_connections(self) -> None:
        """One that no adapter has, or that the scheme's adapter has not, is named, with what was perhaps meant."""
        for url, option, said in (
            ("stomp://a", "heartbet", "connections to stomp: have no option heartbet=; perhaps heartbeat= was meant"),
            ("embedded:", "timout", "connections to embedded: have no option timout=; perhaps timeout= was meant"),
            ("embedded:", "idle", "connections to embedded: have no option idle="),
            ("amqp://localhost:1", "max_octets", "connections to amqp: have no option max_octets="),
            ("stomp://localhost:1", "mechanism", "connections to stomp: have no option mechanism="),
            ("smqp://me:s@localhost:1", "nonsense", "connections to smqp: have no option nonsense="),
        ):
            with pytest.raises(UsageError) as caught:
                soapjms.connect(url, **{option: 5})  # type: ignore[misc]
            assert str(caught.value) == said

    def test_names(self) -> None:
        """`dir` lists the public names."""
        assert dir(soapjms) == sorted(soapjms.__all__)


class TestTraces(Peers):
    """What the error of a call knows."""

    def test_timeout(self, client: Client, other: Connection) -> None:
        """Where it went, its id, how long it waited, and that the broker has it; also after pickling."""
        with arrivals(other, GREETER) as found:
            with pytest.raises(CallTimeoutError) as caught:
                client.call(envelope(), timeout=0.5, expires=None)
            request = found.next()
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert error.text == "no correlated response came in time"
            assert error.destination == "queue:greeter"
            assert error.correlation_id == request.correlation_id
            assert 0.5 <= error.waited < PATIENCE
            assert (error.is_confirmed, error.connection_lost) == (True, False)
            assert str(error).startswith(
                f"{error.text} (queue:greeter, JMSCorrelationID '{request.correlation_id}', after "
            )
            assert str(error).endswith(" s; the broker confirmed the message)")

    def test_lost(self, client: Client, connection: Connection) -> None:
        """A connection that was closed meanwhile is named."""
        future = client.submit(envelope())
        connection.close()
        error = future.exception(PATIENCE)
        assert isinstance(error, CallFailedError)
        assert error.connection_lost
        assert "the connection was lost or closed meanwhile" in str(error)

    def test_a_closed_connection(self, client: Client, connection: Connection) -> None:
        """One that was closed before the call is no connection that was lost meanwhile."""
        connection.close()
        with pytest.raises(CallFailedError, match="could not be sent: the connection was closed") as caught:
            client.call(envelope())
        assert not caught.value.connection_lost
        assert "meanwhile" not in str(caught.value)

    def test_a_wait_that_ends_early(self, client: Client, other: Connection) -> None:
        """It is a plain TimeoutError; the request goes on, and its future can still be answered."""
        future = client.submit(envelope("Ann"), timeout=PATIENCE)
        with pytest.raises(TimeoutError) as caught:
            future.result(timeout=0.05)
        assert not isinstance(caught.value, soapjms.SoapJmsError)
        with soapjms.Dispatcher(other, URI, greeter()):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"


def test_an_operation_without_a_namespace() -> None:
    """A name without a namespace is refused when it is registered, unless that is said."""
    service = Service()
    with pytest.raises(UsageError, match=r"'greetMe', which has no namespace: write \{\}greetMe"):
        service.operation("greetMe")
    service.operation("{}greetMe")(lambda request: None)
    service.operation(f"{{{NS}}}greetMe")(lambda request: None)
