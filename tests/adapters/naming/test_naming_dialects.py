"""What the files of each Java client mean."""

from __future__ import annotations

import subprocess

import pytest
from places import DATA
from real_brokers import BRIEF, RealBroker, java

from brokers import Destination, queue, topic
from brokers.naming import NameNotFoundError, Names, NamingError
from brokers.naming.dialects import ARTEMIS, CLASSIC, DIALECTS, QPID_JMS, dialect_of, factory_url
from brokers.naming.properties_file import read_properties

FILES = DATA / "jndi"
QPID = QPID_JMS.classes[0]

ALLOWED = {
    f"{url}": f"stomp://clerk:s3cr3t@{number}"
    for number, url in enumerate(
        [
            "failover:(tcp://broker-a.example.com:61616,tcp://broker-b.example.com:61616)",
            "ssl://back-office.example.com:61617",
            "(tcp://artemis-1.example.com:61616,tcp://artemis-2.example.com:61616)",
            "tcp://artemis.example.com:61616",
            "amqp://qpid.example.com",
            "amqps://qpid.example.com",
            "failover:(amqp://a.example.com:5672,amqp://b.example.com:5672)",
            "amqp://new.example.com",
            "amqp://default.example.com",
        ]
    )
}


def names(client: str) -> Names:
    """Read the file of a client."""
    return Names.from_properties(FILES / f"{client}.properties", allowed=ALLOWED)


@pytest.mark.parametrize(
    ("client", "name", "destination"),
    [
        ("classic", "jms/Orders", queue("orders.in")),
        ("classic", "jms/Replies", queue("orders.replies")),
        ("classic", "café", queue("café.bestellungen")),
        ("classic", "jms/News", topic("prices.eu")),
        ("classic", "with blanks", topic("trailing")),
        ("classic", "dynamicQueues/a?consumer.exclusive=true", queue("a")),
        ("artemis", "queues/orders", queue("orders.in")),
        ("artemis", "topics/news", topic("prices.${region}")),
        ("artemis", "dynamicTopics/a/b", topic("a/b")),
        ("qpid", "orders", queue("eu.orders")),
        ("qpid", "price", queue("${literal}")),
        ("qpid", "news", topic("eu.qpid.example.com.news")),
        ("qpid", "dynamicQueues/a?b", queue("a?b")),
    ],
)
def test_destinations(client: str, name: str, destination: Destination) -> None:
    """Queues and topics are found under their names."""
    assert names(client).lookup(name) == destination


@pytest.mark.parametrize(
    ("client", "factory", "number"),
    [
        ("classic", None, 0),
        ("classic", "ConnectionFactory", 0),
        ("classic", "jms/BackOffice", 1),
        ("classic", "jms/Archive", 0),
        ("artemis", None, 2),
        ("artemis", "Cluster", 2),
        ("artemis", "WithLogin", 3),
        ("artemis", "QueueConnectionFactory", 3),
        ("qpid", "plain", 4),
        ("qpid", "Upper", 5),
        ("qpid", "several", 6),
        ("qpid", "overridden", 7),
        ("qpid", "byDefault", 8),
    ],
)
def test_connection_factories(client: str, factory: str | None, number: int) -> None:
    """Connection factories lead to the allowed broker, with the caller's login and not the file's."""
    assert names(client).broker_url(factory) == f"stomp://clerk:s3cr3t@{number}"


@pytest.mark.parametrize(
    ("client", "factory", "known"),
    [
        ("classic", "QueueConnectionFactory", "ConnectionFactory, jms/Archive, jms/BackOffice"),
        (
            "artemis",
            "LowerCase",
            "Cluster, ConnectionFactory, QueueConnectionFactory, TopicConnectionFactory, WithLogin, "
            "XAConnectionFactory",
        ),
        ("qpid", "ConnectionFactory", "Upper, byDefault, overridden, plain, several"),
    ],
)
def test_unknown_connection_factory(client: str, factory: str, known: str) -> None:
    """A connection factory that the client would not find is not found here either; the error lists those there are."""
    with pytest.raises(NameNotFoundError) as caught:
        names(client).broker_url(factory)
    assert str(caught.value) == f"no connection factory has the JNDI name {factory!r}; there are: {known}"


def test_default_factories() -> None:
    """Without entries of their own, each client has the usual connection factories, at the provider URL."""
    for name, dialect in DIALECTS.items():
        text = f"java.naming.factory.initial={name}\njava.naming.provider.url=amqp://localhost"
        made = Names.from_properties(text=text, allowed={"amqp://localhost": "stomp://localhost"})
        assert {made.broker_url(each) for each in dialect.defaults} == {"stomp://localhost"}


def test_no_url() -> None:
    """A connection factory without a URL is an error that says where one goes: this does not guess localhost."""
    with pytest.raises(NamingError) as caught:
        factory_url("ConnectionFactory", {}, CLASSIC)
    assert str(caught.value) == (
        "the connection factory 'ConnectionFactory' has no URL; put it in one of: "
        "connection.ConnectionFactory.brokerURL, brokerURL, connection.ConnectionFactory.java.naming.provider.url, "
        "java.naming.provider.url"
    )


@pytest.mark.parametrize(
    "name",
    [
        "com.sun.jndi.ldap.LdapCtxFactory",
        "com.sun.jndi.rmi.registry.RegistryContextFactory",
        "com.sun.jndi.cosnaming.CNCtxFactory",
        "com.sun.jndi.dns.DnsContextFactory",
        "com.sun.jndi.fscontext.RefFSContextFactory",
        "com.ibm.websphere.naming.WsnInitialContextFactory",
        "org.apache.activemq.jndi.activemqinitialcontextfactory",
        "",
    ],
)
def test_unknown_classes(name: str) -> None:
    """A context factory that is not in the allow-list is refused, with those that are."""
    with pytest.raises(NamingError) as caught:
        dialect_of(name)
    assert str(caught.value) == (
        f"the initial context factory {name!r} is not supported; names are never looked up over a network (ldap, rmi, "
        "iiop, corbaname, dns, http) nor in other files; accepted are: "
        "org.apache.activemq.jndi.ActiveMQInitialContextFactory, "
        "org.apache.activemq.jndi.ActiveMQSslInitialContextFactory, "
        "org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory, "
        "org.apache.qpid.jms.jndi.JmsInitialContextFactory"
    )
    with pytest.raises(NamingError, match="is not supported"):
        Names.from_properties(text=f"java.naming.factory.initial={name}")


@pytest.mark.parametrize("url", ["ldap://a", "rmi://a", "iiop://a", "dns://a", "http://a/b", "file:/etc/a", "/etc/a"])
@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS, QPID_JMS])
def test_file_that_reaches_out(url: str, dialect: object) -> None:
    """A provider URL that is no broker's is refused when the file is read, another file too."""
    name = next(name for name, each in DIALECTS.items() if each is dialect)
    with pytest.raises(NamingError, match="is not a broker's URL; names are never looked up over a network"):
        Names.from_properties(text=f"java.naming.factory.initial={name}\njava.naming.provider.url={url}")


def test_empty_destination() -> None:
    """An entry that names no destination is refused."""
    with pytest.raises(NamingError, match=r"the entry 'queue\.a' names no destination"):
        Names.from_properties(text="queue.a= ")
    with pytest.raises(
        NamingError, match=r"the entry 'queue\.a' must be the name of a destination, such as 'b', not a"
    ):
        Names.from_properties(text="queue.a = jms:queue:b?priority=1")


class TestVariables:
    """Variables of Qpid JMS."""

    def read(self, text: str, **variables: str) -> Names:
        return Names.from_properties(text=f"java.naming.factory.initial={QPID}\n{text}", variables=variables)

    @pytest.mark.parametrize(
        ("value", "name"),
        [
            ("a", "a"),
            ("${x}", "X"),
            ("<${x}${x}>", "<XX>"),
            ("${y}", "given"),
            ("${z:-dflt}", "dflt"),
            ("${x:-dflt}", "X"),
            ("${z:-}a", "a"),
            ("$x", "$x"),
            ("${x", "${x"),
            ("$$", "$"),
            ("${deep}", "deep X"),
            ("${z:-one} ${z:-two}", "one two"),
        ],
    )
    def test_expanded(self, value: str, name: str) -> None:
        """Variables are the caller's, or other entries."""
        made = self.read(f"queue.a={value}\nx=X\ny=Y\ndeep=deep ${{x}}", y="given")
        assert made.lookup("a") == queue(name)

    def test_defaults_stay_where_they_are(self) -> None:
        """The default of a variable is for that place alone: elsewhere the variable is unknown."""
        with pytest.raises(NamingError, match=r"the entry 'queue\.b' needs the unknown variable 'z'"):
            self.read("queue.a=${z:-dflt}\nqueue.b=${z}")

    def test_process_environment(self) -> None:
        """The environment of the process is not looked at."""
        with pytest.raises(NamingError, match=r"the entry 'queue\.a' needs the unknown variable 'PATH'"):
            self.read("queue.a=${PATH}")

    @pytest.mark.parametrize(
        "text",
        [
            "queue.a=${queue.a}",
            "queue.a=${x}\nx=${y}\ny=${x}",
            "\n".join(["queue.a=${v0}", *(f"v{number}=${{v{number + 1}}}" for number in range(100)), "v100=x"]),
        ],
    )
    def test_recursive(self, text: str) -> None:
        """A variable that leads to itself is refused, as is one too deep."""
        with pytest.raises(NamingError, match="which refers to itself"):
            self.read(text)

    @pytest.mark.parametrize("fan", [2, 10])
    def test_bomb(self, fan: int) -> None:
        """Values that grow with every step are refused once they are too long."""
        steps = [f"v{number}={f'${{v{number + 1}}}' * fan}" for number in range(14)]
        with pytest.raises(NamingError, match="expands to more than 4096 characters"):
            self.read("\n".join(["queue.a=${v0}", *steps, "v14=xxxxxxxxxx"]))

    def test_secret(self) -> None:
        """A secret gets into no name and no URL."""
        text = "queue.a=${java.naming.security.credentials}\njava.naming.security.credentials=s3cr3t"
        with pytest.raises(NamingError, match="which looks like a secret") as caught:
            self.read(text)
        assert "s3cr3t" not in str(caught.value)

    def test_other_clients(self) -> None:
        """The other clients know no variables."""
        assert Names.from_properties(text="queue.a=${x}").lookup("a") == queue("${x}")

    def test_other_entries(self) -> None:
        """Variables in entries that say nothing here are left alone."""
        assert self.read("queue.a=b\nproperty.connectionfactory.c.password=${env.PW}").lookup("a") == queue("b")


@pytest.mark.broker
def test_as_activemq(activemq: RealBroker) -> None:
    """ActiveMQ's own context finds the same destinations and connection factories in the file."""
    path = FILES / "classic.properties"
    destinations = ["jms/Orders", "jms/Replies", "jms/News", "with blanks", "dynamicQueues/a/b"]
    factories = ["ConnectionFactory", "jms/BackOffice", "jms/Archive"]
    arguments = [java(), *BRIEF, "-Xmx128m", "-cp", activemq.classpath]
    asked = destinations + factories
    command = [*arguments, str(FILES / "JavaNames.java"), "lookup", str(path), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = dict(zip(asked, done.stdout.splitlines()[-len(asked) :], strict=True))
    ours = names("classic")
    for name in asked[: -len(factories)]:
        destination = ours.lookup(name)
        assert found[name] == f"{destination.kind}://{destination.name}"
    entries = read_properties(path.read_bytes())
    for name in factories:
        assert found[name] == factory_url(name, entries, CLASSIC)[0]
