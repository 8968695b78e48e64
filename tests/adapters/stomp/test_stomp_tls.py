"""STOMP over TLS to real brokers: who is trusted, and what is said when somebody is not."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
from real_brokers import RealBroker
from stomp_kit import PATIENCE, accepting, assert_no_threads, message_to, send

import brokers
from brokers import ConnectionFailedError, TlsError, queue
from brokers.stomp import StompConnection, Tls

pytestmark = pytest.mark.broker


@pytest.fixture(params=["activemq", "artemis"])
def broker(request: pytest.FixtureRequest) -> RealBroker:
    """Give each real broker."""
    found: RealBroker = request.getfixturevalue(request.param)
    return found


def assert_works(connection: brokers.Connection, name: str) -> None:
    """Send a few mebibytes there and back."""
    assert isinstance(connection, StompConnection)
    body = bytes(range(256)) * 8192
    inbox = accepting()
    with connection.consume(queue(name), inbox, prefetch=2):
        send(connection, message_to(queue(name), body), message_to(queue(name), b"small"))
        assert [inbox.next().message.body for _ in range(2)] == [body, b"small"]


def test_known_authority(broker: RealBroker) -> None:
    """With the authority's certificate given in the URL everything works; the log shows TLS in the address."""
    url = f"{broker.tls_url}?caFile={broker.certificates.authority}"
    with brokers.connect(url, timeout=PATIENCE) as connection:
        assert "stomp+ssl://localhost" in repr(connection)
        assert_works(connection, "tls.known")
    assert_no_threads()


def test_context_of_ones_own(broker: RealBroker) -> None:
    """For what the options do not cover."""
    context = ssl.create_default_context(cafile=broker.certificates.authority)
    with brokers.connect(broker.tls_url, timeout=PATIENCE, tls=context) as connection:
        assert_works(connection, "tls.context")


def test_unknown_authority(broker: RealBroker) -> None:
    """Refused before anything is sent; the error says how to make the authority known."""
    url = f"{broker.tls_url}?caFile={broker.certificates.wrong_authority}"
    for each in (url, broker.tls_url):
        with pytest.raises(TlsError, match=r"not trusted here.*caFile=FILE"):
            brokers.connect(each, timeout=PATIENCE)
    assert_no_threads()


def test_wrong_name(broker: RealBroker) -> None:
    """A certificate that is for somebody else does not do, whoever signed it, unless that name is asked for."""
    tls = Tls(ca_file=broker.certificates.authority)
    url = broker.tls_url.replace("@localhost:", "@127.0.0.1:")
    with pytest.raises(TlsError, match=r"another name than 127\.0\.0\.1; put.*serverName=NAME"):
        brokers.connect(url, timeout=PATIENCE, tls=tls)
    with brokers.connect(f"{url}?serverName=localhost", timeout=PATIENCE, tls=tls) as connection:
        assert_works(connection, "tls.name")


def test_unverified_is_possible_and_logged(broker: RealBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Only where it is asked for, and each time with a warning."""
    with brokers.connect(f"{broker.tls_url}?verify=false", timeout=PATIENCE) as connection:
        assert_works(connection, "tls.unverified")
    assert "is not checked" in caplog.text


def test_client_certificate(broker: RealBroker) -> None:
    """A broker that wants one lets in who shows one that it trusts."""
    certificates = broker.certificates
    tls = Tls(ca_file=certificates.authority, cert_file=certificates.client)
    with brokers.connect(broker.mutual_tls_url, timeout=PATIENCE, tls=tls) as connection:
        assert_works(connection, "tls.mutual")


def test_client_certificate_is_required(broker: RealBroker) -> None:
    """Without one the error says so."""
    url = f"{broker.mutual_tls_url}?caFile={broker.certificates.authority}"
    with pytest.raises(TlsError, match="certificate"):
        brokers.connect(url, timeout=PATIENCE)
    assert_no_threads()


def test_client_certificate_of_a_stranger(broker: RealBroker) -> None:
    """One that the broker does not trust is as good as none."""
    certificates = broker.certificates
    tls = Tls(ca_file=certificates.authority, cert_file=certificates.stranger)
    with pytest.raises(TlsError, match="our certificate"):
        brokers.connect(broker.mutual_tls_url, timeout=PATIENCE, tls=tls)


def test_plain_and_tls_are_not_mixed(broker: RealBroker) -> None:
    """TLS to a plain port, and the other way round, end in time with an error that names the mistake or the address."""
    with pytest.raises(ConnectionFailedError, match="TLS"):
        brokers.connect(f"stomp+ssl://localhost:{broker.ports.stomp}", timeout=3.0)
    with pytest.raises(ConnectionFailedError, match=f"{broker.ports.tls}"):
        brokers.connect(f"stomp://localhost:{broker.ports.tls}", timeout=3.0)
    assert_no_threads()


def test_key_with_a_password(broker: RealBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read from a file, as the certificate is; a wrong one is an error and asks nobody at the terminal."""
    from cryptography.hazmat.primitives import serialization

    caplog.set_level(logging.DEBUG)
    pem = broker.certificates.client.read_bytes()
    locked = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"tops3cret"),
    )
    (tmp_path / "key.pem").write_bytes(locked)
    (tmp_path / "password").write_text("tops3cret\n")
    tls = Tls(
        ca_file=broker.certificates.authority, cert_file=broker.certificates.client, key_file=tmp_path / "key.pem"
    )
    with pytest.raises(ConnectionFailedError):
        brokers.connect(broker.mutual_tls_url, timeout=PATIENCE, tls=tls)
    url = f"{broker.mutual_tls_url}?keyPasswordFile={tmp_path}/password"
    with brokers.connect(url, timeout=PATIENCE, tls=tls) as connection:
        assert_works(connection, "tls.key")
    assert "tops3cret" not in caplog.text
