"""Opening connections by URI: from JNDI names to a call, on the embedded broker and on ActiveMQ."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest
from calling_kit import PATIENCE, OnEachBroker, envelope, fresh, greeter, text_of

import soapjms
from brokers import queue
from brokers.naming import NameNotFoundError, Names, NamingError
from soapjms import Client, Dispatcher, InvalidUriError, UsageError
from soapjms.destinations import broker_url_of, destination_of, reply_destination_of
from soapjms.protocol import names as spelling
from soapjms.protocol.properties import Origin, resolve
from soapjms.protocol.uri import build
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.model import read_uri

CLASSIC = "org.apache.activemq.jndi.ActiveMQInitialContextFactory"
ARTEMIS = "org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory"
JAVA_URL = "tcp://localhost:61616"
OWN_URL = "stomp://clerk:s3cr3t@localhost:61613"
FILE = f"""\
java.naming.factory.initial = {CLASSIC}
java.naming.provider.url = {JAVA_URL}
java.naming.security.credentials = s3cr3t
connectionFactoryNames = CF, Other
connection.Other.brokerURL = tcp://elsewhere.example:61616
queue.jms/Orders = orders
"""
NAMES = Names.from_properties(
    text=FILE, allowed={JAVA_URL: OWN_URL, "tcp://backup.example:61616": "stomp://backup.example"}
)
BACKUP = "tcp://backup.example:61616"


@pytest.mark.parametrize(
    ("parameters", "properties", "url"),
    [
        ({"jndiConnectionFactoryName": "CF"}, {}, OWN_URL),
        ({"jndiURL": JAVA_URL}, {}, OWN_URL),
        ({"jndiURL": BACKUP, "jndiConnectionFactoryName": "CF"}, {}, "stomp://backup.example"),
        ({"jndi-java.naming.provider.url": BACKUP}, {}, "stomp://backup.example"),
        ({"jndiURL": JAVA_URL, "jndi-java.naming.provider.url": BACKUP}, {}, OWN_URL),
        ({"jndiInitialContextFactory": CLASSIC, "jndiConnectionFactoryName": "CF"}, {}, OWN_URL),
        ({"jndiInitialContextFactory": ARTEMIS, "jndiConnectionFactoryName": "ConnectionFactory"}, {}, OWN_URL),
        ({"jndi-connectionFactoryNames": "Mine", "jndiConnectionFactoryName": "Mine"}, {}, OWN_URL),
        ({"jndi-connection.CF.brokerURL": BACKUP, "jndiConnectionFactoryName": "CF"}, {}, "stomp://backup.example"),
        ({"jndi-": "x", "custom": "y", "jndiConnectionFactoryName": "CF"}, {}, OWN_URL),
        ({"jndiURL": BACKUP}, {"jndiURL": JAVA_URL}, OWN_URL),
        ({"jndiURL": BACKUP}, {"jndi-java.naming.provider.url": JAVA_URL}, OWN_URL),
        ({"jndi-java.naming.provider.url": BACKUP}, {"jndiURL": JAVA_URL}, OWN_URL),
        (
            {"jndiInitialContextFactory": "com.example.Mine", "jndiConnectionFactoryName": "CF"},
            {"jndi-java.naming.factory.initial": CLASSIC},
            OWN_URL,
        ),
        ({"jndiConnectionFactoryName": "CF"}, {"jndi-java.naming.security.credentials": "s3cr3t"}, OWN_URL),
        ({"jndiConnectionFactoryName": "Other"}, {"jndiConnectionFactoryName": "CF"}, OWN_URL),
    ],
)
def test_broker_url(parameters: Mapping[str, str], properties: Mapping[str, Value], url: str) -> None:
    """The parameters of a URI choose among the allowed brokers; what the program sets goes over them."""
    for variant in ("jndi", "queue", "topic"):
        uri = build(variant, "jms/Orders", parameters.items())
        assert broker_url_of(read_uri(uri, properties)[1], NAMES) == url


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"jndiConnectionFactoryName": "Nobody"}, NameNotFoundError, "'Nobody'; there are: CF, Other"),
        ({}, NameNotFoundError, "'ConnectionFactory'; there are: CF, Other"),
        ({"jndiConnectionFactoryName": "Other"}, NamingError, "leads to tcp://elsewhere.example:61616, which is not"),
        ({"jndiURL": "tcp://evil.example:1"}, NamingError, "leads to tcp://evil.example:1, which is not allowed"),
        ({"jndiURL": "ldap://evil.example"}, NamingError, "names are never looked up over a network"),
        ({"jndiURL": "rmi://evil.example"}, NamingError, "names are never looked up over a network"),
        ({"jndiURL": "iiop://evil.example"}, NamingError, "names are never looked up over a network"),
        ({"jndiURL": "dns://evil.example"}, NamingError, "names are never looked up over a network"),
        ({"jndiURL": "https://evil.example"}, NamingError, "names are never looked up over a network"),
        ({"jndiURL": "file:/C:/JMSAdmin"}, NamingError, "names are never looked up over a network"),
        ({"jndi-java.naming.provider.url": "dns://evil.example"}, NamingError, "names are never looked up"),
        ({"jndiInitialContextFactory": "com.sun.jndi.ldap.LdapCtxFactory"}, NamingError, "is not supported"),
        ({"jndi-java.naming.factory.initial": "com.example.Mine"}, NamingError, "'com.example.Mine' is not supported"),
        ({"jndiURL": f"{JAVA_URL}?user=clerk&password=s3cr3t"}, NamingError, "carries a login"),
        ({"jndiURL": "tcp://clerk:s3cr3t@localhost:61616"}, NamingError, r"://\*\*\*"),
        ({"jndiURL": f"failover:({JAVA_URL},tcp://evil.example:1)"}, NamingError, "leads to tcp://evil.example:1"),
        (
            {"jndi-connection.CF.brokerURL": "tcp://evil.example:1", "jndiConnectionFactoryName": "CF"},
            NamingError,
            "1,",
        ),
    ],
)
def test_refused(parameters: Mapping[str, str], error: type[Exception], message: str) -> None:
    """A URI brings no host, class or login of its own; nothing is connected."""
    with pytest.raises(error, match=message) as caught:
        soapjms.connect_uri(f"jms:jndi:jms%2FOrders?{urlencode(parameters)}", NAMES)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("name", ["jndi-java.naming.security.credentials", "jndi-java.naming.security.principal"])
def test_secrets(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A secret in a URI or WSDL is refused and shown nowhere."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UsageError) as caught:
        soapjms.connect_uri(f"jms:jndi:jms%2FOrders?jndiConnectionFactoryName=CF&{name}=s3cr3t", NAMES)
    assert str(caught.value) == (
        f"{name} in URI looks like a secret, which must not be there (RFC 6167 4.4); "
        "put the broker's login into the URL of the allowed broker"
    )
    with pytest.raises(UsageError, match=f"{name} in port looks like a secret"):
        broker_url_of(resolve(wsdl={Origin.PORT: {name: "s3cr3t"}}), NAMES)
    assert "s3cr3t" not in caplog.text


def test_bad_uri() -> None:
    """The URI is read before anything else."""
    with pytest.raises(InvalidUriError):
        soapjms.connect_uri("jms:jndi:", NAMES)


def test_environment_of_names() -> None:
    """`jndi-` parameters are entries of the environment that destination and reply destination are found in."""
    uri, properties = read_uri("jms:jndi:jms%2FOrders?jndi-queue.jms%2FOrders=mine&jndi-queue.r=answers", {})
    assert destination_of(uri, NAMES) == queue("mine")
    uri, properties = read_uri("jms:jndi:jms%2FOrders?replyToName=r&jndi-queue.r=answers", {})
    assert destination_of(uri, NAMES) == queue("orders")
    assert reply_destination_of(uri, properties, NAMES) == queue("answers")


class TestCall(OnEachBroker):
    """Whole calls by `jms:jndi:` URI, everything resolved from a file."""

    @pytest.mark.parametrize("fixed", [False, True])
    def test_jndi(self, url: str, tmp_path: Path, fixed: bool) -> None:
        """Connection factory, destination and reply destination come from a jndi.properties (Protocol-2060)."""
        requests, replies = fresh("orders"), fresh("replies")
        path = tmp_path / "jndi.properties"
        path.write_text(
            f"java.naming.factory.initial = {CLASSIC}\n"
            f"java.naming.provider.url    = failover:({JAVA_URL})?randomize=false\n"
            "connectionFactoryNames       = jms/ConnectionFactory\n"
            f"queue.jms/Greeter           = {requests}\n"
            f"queue.jms/Replies           = {replies}\n"
        )
        names = Names.from_properties(path, allowed={JAVA_URL: url})
        parameters = [("jndiConnectionFactoryName", "jms/ConnectionFactory"), ("jndiInitialContextFactory", CLASSIC)]
        uri = build("jndi", "jms/Greeter", parameters + [("replyToName", "jms/Replies")] * fixed)
        with (
            soapjms.connect_uri(uri, names) as near,
            soapjms.connect_uri(uri, names) as far,
            Dispatcher(far, uri, greeter(), names=names) as dispatcher,
            Client(near, uri, names=names, timeout=PATIENCE) as client,
        ):
            response = client.call(envelope("Ann"))
        assert text_of(response) == "Hello Ann"
        assert response.findings() == ()
        assert dispatcher.destination == queue(requests)
        assert response.message.properties.text(spelling.REQUEST_URI) == "jms:jndi:jms%2FGreeter"
        assert response.message.destination is not None
        assert (response.message.destination.name == replies) is fixed
