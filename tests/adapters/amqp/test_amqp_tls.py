"""AMQP over TLS to real brokers, over TCP and WebSocket, and logging in by a certificate."""

from __future__ import annotations

import pytest
from calling_kit import PATIENCE, REAL_BROKERS, envelope, fresh, greeter, text_of
from real_brokers import RealBroker

import brokers
from brokers import ConnectionFailedError, LoginRefusedError, TlsError
from brokers.amqp import Tls
from soapjms import Client, Dispatcher

pytestmark = pytest.mark.broker


@pytest.fixture(params=REAL_BROKERS)
def product(request: pytest.FixtureRequest) -> RealBroker:
    """Run both real brokers, one after the other."""
    broker: RealBroker = request.getfixturevalue(request.param)
    return broker


def assert_calls(connection: brokers.Connection) -> None:
    """Call a service, with more than fits into one record of TLS."""
    uri, name = f"jms:queue:{fresh()}", "Zoë" * 20_000
    with Dispatcher(connection, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
        assert text_of(client.call(envelope(name))) == f"Hello {name}"


@pytest.mark.parametrize("way", ["amqps_url", "wss_url"])
def test_calls_over_tls(product: RealBroker, way: str) -> None:
    """With the authority known; without it nothing is sent."""
    url = getattr(product, way)
    with brokers.connect(url, timeout=PATIENCE, tls=Tls(ca_file=product.certificates.authority)) as connection:
        assert_calls(connection)
    with pytest.raises(TlsError, match="not trusted here"):
        brokers.connect(url, timeout=PATIENCE, tls=Tls(ca_file=product.certificates.wrong_authority))


def test_a_certificate_says_who_one_is(artemis: RealBroker) -> None:
    """EXTERNAL, without user and password, may do what its user may."""
    tls = Tls(ca_file=artemis.certificates.authority, cert_file=artemis.certificates.client)
    with brokers.connect(artemis.mutual_amqps_url, timeout=PATIENCE, tls=tls, mechanism="EXTERNAL") as connection:
        assert_calls(connection)
    strange = Tls(ca_file=artemis.certificates.authority, cert_file=artemis.certificates.stranger)
    with pytest.raises(ConnectionFailedError, match="certificate"):
        brokers.connect(artemis.mutual_amqps_url, timeout=PATIENCE, tls=strange, mechanism="EXTERNAL")


def test_a_broker_that_knows_nobody_by_a_certificate(activemq: RealBroker) -> None:
    """ActiveMQ Classic wants one where it is told to, but offers no EXTERNAL: the error says what it takes."""
    tls = Tls(ca_file=activemq.certificates.authority, cert_file=activemq.certificates.client)
    with pytest.raises(LoginRefusedError, match=r"does not offer EXTERNAL.*; it offers"):
        brokers.connect(activemq.mutual_amqps_url, timeout=PATIENCE, tls=tls, mechanism="EXTERNAL")
    url = activemq.mutual_amqps_url.replace("//", "//admin:admin@")
    with brokers.connect(url, timeout=PATIENCE, tls=tls) as connection:
        assert_calls(connection)
