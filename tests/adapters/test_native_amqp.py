"""ActiveMQ Classic with its AMQP connector as it is by default: to clients over other protocols messages stay whole.

Who meets that is told what the connector lacks.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling_kit import PATIENCE, SOAP_11, eventually, fresh
from cli_kit import said
from cxf_kit import Cxf, echo_service, request_of, uri_of
from real_brokers import RealBroker, start_activemq

import soapjms
from brokers import Connection
from soapjms import CallFailedError, Client, Dispatcher
from soapjms.doctor.others import ADD_TRANSFORMER
from soapjms.protocol.errors import SoapFaultError

pytestmark = pytest.mark.broker

TRANSFORMER = "transport.transformer=jms"


@pytest.fixture(scope="module")
def broker() -> Iterator[RealBroker]:
    """Run one for all tests here."""
    with start_activemq(native_amqp=True) as running:
        yield running


@pytest.fixture
def over_amqp(broker: RealBroker) -> Iterator[Connection]:
    """Connect by that connector."""
    with soapjms.connect(broker.amqp_url) as connection:
        yield connection


@pytest.fixture
def over_stomp(broker: RealBroker) -> Iterator[Connection]:
    """Connect by another."""
    with soapjms.connect(broker.stomp_url) as connection:
        yield connection


def test_doctor(broker: RealBroker) -> None:
    """It fails, and has the command that mends it; nothing is left behind."""
    checks = said("doctor", "--connection", broker.amqp_url, status=1)["checks"]
    (found,) = [each for each in checks if each["check"] == "other clients"]
    assert (found["outcome"], found["page"]) == ("failed", "docs/amqp.md#what-differs")
    assert TRANSFORMER in found["text"]
    assert TRANSFORMER in found["command"]
    eventually(lambda: broker.counters().temporaries == [], "its temporary queue is gone")


CONNECTORS = {
    '"amqp://0.0.0.0:5672?maximumConnections=9&amp;x=1"': '"amqp://0.0.0.0:5672?{}&amp;maximumConnections=9&amp;x=1"',
    "'amqp+nio+ssl://localhost:5671'": "'amqp+nio+ssl://localhost:5671?{}'",
    '"amqp://[::]:5672?transport.transformer=native&amp;x=1"': '"amqp://[::]:5672?{}&amp;x=1"',
    '"amqp://0.0.0.0:5672?x=1&amp;transport.transformer=jms"': '"amqp://0.0.0.0:5672?x=1&amp;{}"',
    '"stomp://0.0.0.0:61613?x=1"': '"stomp://0.0.0.0:61613?x=1"',
}
"""How connectors are spelled, before and after."""


@pytest.mark.parametrize("times", [1, 2])
def test_its_command(tmp_path: Path, times: int) -> None:
    """It finds every spelling of a connector, leaves others alone, and does nothing a second time."""
    file = tmp_path / "conf/activemq.xml"
    file.parent.mkdir()
    lines = "<transportConnector name='a'\n  uri={}/>\n"
    file.write_text("".join(map(lines.format, CONNECTORS)))
    for _ in range(times):
        subprocess.run(["sh", "-c", ADD_TRANSFORMER], cwd=tmp_path, check=True)
    assert file.read_text() == "".join(lines.format(after.format(TRANSFORMER)) for after in CONNECTORS.values())


def test_our_client(cxf: Cxf, broker: RealBroker, over_amqp: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """CXF's service cannot parse its request; the log says what may be the cause, and so does the error."""
    name = fresh("cxf")
    with cxf.service(uri_of(broker, name)), Client(over_amqp, f"jms:queue:{name}", timeout=PATIENCE) as client:
        response = client.call(request_of(SOAP_11, "greetMe", "a"))
    with pytest.raises(SoapFaultError, match="Couldn't parse stream") as caught:
        response.raise_for_fault()
    assert TRANSFORMER in caught.value.__notes__[0]
    (warning,) = [each for each in caplog.records if "Couldn't parse stream" in each.getMessage()]
    assert warning.levelno == logging.WARNING
    assert TRANSFORMER in warning.getMessage()


def test_their_client(cxf: Cxf, broker: RealBroker, over_amqp: Connection) -> None:
    """CXF's client cannot parse the answer of a service of ours: only `soapjms doctor` tells here."""
    name = fresh("cxf")
    with Dispatcher(over_amqp, f"jms:queue:{name}", echo_service(SOAP_11)[0]):
        answer = cxf.call(uri_of(broker, name), "greetMe", "a")
    assert answer.kind == "failed"
    assert "Couldn't parse stream" in answer.words[0]


def test_our_service_over_stomp(over_amqp: Connection, over_stomp: Connection) -> None:
    """A service of ours tells its caller."""
    name = fresh()
    ours = Dispatcher(over_stomp, f"jms:queue:{name}", echo_service(SOAP_11)[0])
    with ours, Client(over_amqp, f"jms:queue:{name}", timeout=PATIENCE) as client:
        fault = client.call(request_of(SOAP_11, "greetMe", "a")).fault
    assert fault is not None
    assert TRANSFORMER in fault.reason


def test_our_client_over_stomp(over_amqp: Connection, over_stomp: Connection) -> None:
    """So does the error of a call to a service over AMQP."""
    name = fresh()
    ours = Dispatcher(over_amqp, f"jms:queue:{name}", echo_service(SOAP_11)[0])
    theirs = Client(over_stomp, f"jms:queue:{name}", timeout=PATIENCE)
    with ours, theirs, pytest.raises(CallFailedError, match=TRANSFORMER):
        theirs.call(request_of(SOAP_11, "greetMe", "a"))
