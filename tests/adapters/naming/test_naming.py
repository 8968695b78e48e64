"""JNDI names without network JNDI."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import DATA as DATA_FOLDER

from brokers import BrokerError, Destination, queue, topic
from brokers.errors import UsageError
from brokers.naming import NameNotFoundError, Names, NamingError

DATA = DATA_FOLDER / "jndi"


@pytest.mark.parametrize(
    ("name", "destination"),
    [
        ("jms/orders", queue("orders")),
        ("dynamicQueues/orders", queue("orders")),
        ("dynamicQueues/a/b", queue("a/b")),
        ("dynamicTopics/news", topic("news")),
        ("dynamicQueues/mine", topic("registered")),
    ],
)
def test_lookup(name: str, destination: Destination) -> None:
    """Registered names come first; dynamic names name a queue or topic themselves."""
    names = Names({"jms/orders": queue("orders"), "dynamicQueues/mine": topic("registered")})
    assert names.lookup(name) == destination


@pytest.mark.parametrize("name", ["", "orders", "dynamicQueues/", "dynamicTopics/", "dynamicqueues/a", "ldap://host/a"])
def test_unknown(name: str) -> None:
    """Any other name is an error that says what there is; nothing is looked up over a network."""
    with pytest.raises(NameNotFoundError) as caught:
        Names({"jms/b": queue("b"), "jms/a": queue("a")}).lookup(name)
    assert str(caught.value) == (
        f"no destination is registered under the JNDI name {name!r}; registered: jms/a, jms/b; "
        "or use dynamicQueues/NAME or dynamicTopics/NAME"
    )
    assert isinstance(caught.value, BrokerError)
    assert isinstance(caught.value, LookupError)


def test_empty_registry() -> None:
    """Without registered names, the error says so."""
    with pytest.raises(NameNotFoundError, match="registered: none;"):
        Names().lookup("orders")


@pytest.mark.parametrize("destinations", [{"a": "x"}, {"a": None}, "a", [queue("a")]])
def test_no_destinations(destinations: Any) -> None:
    """Refused at once, not when the name is used."""
    with pytest.raises(UsageError, match=r"destinations must be a mapping of names to destinations, such as .*, got "):
        Names(destinations)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("names.toml", "[queues]\na = 1", "all values in queues must be strings"),
        ("names.toml", "[queue]", "unknown table 'queue'"),
        ("names.toml", "[queues", "the file is not valid TOML"),
        ("names.toml", "[queues]\na = 'b'\n[topics]\na = 'b'", "'a' is both in queues and in topics"),
        ("jndi.properties", "a = \\u00", "line 1: "),
    ],
)
def test_bad_file(tmp_path: Path, name: str, content: str, says: str) -> None:
    """The error names it, once."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(NamingError, match=f"^{re.escape(f'{path}: {says}')}"):
        Names.from_file(path)


def test_the_registry_is_a_copy() -> None:
    """What happens to the mapping later changes nothing."""
    mapping = {"a": queue("a")}
    names = Names(mapping)
    mapping.clear()
    assert names.lookup("a") == queue("a")


@pytest.mark.parametrize(
    ("environment", "destination"),
    [
        ({"queue.a": "other"}, queue("other")),
        ({"topic.a": "other"}, topic("other")),
        ({"queue.a": "other", "topic.a": "news"}, topic("news")),
        ({"queue.b": "other", "connectionFactoryNames": "a"}, queue("a")),
    ],
)
def test_environment(environment: dict[str, str], destination: Destination) -> None:
    """Entries of the JNDI environment go over those that are registered."""
    assert Names({"a": queue("a")}).lookup("a", environment) == destination


def test_long_lists() -> None:
    """An error does not list a thousand names, nor repeat a huge one."""
    with pytest.raises(NameNotFoundError) as caught:
        Names({f"{number:04}": queue("a") for number in range(1000)}).lookup("x" * 10_000)
    assert "0019 and 980 more" in str(caught.value)
    assert len(str(caught.value)) < 600


# Brokers

JAVA_URL = "tcp://localhost:61616"
OWN_URL = "stomp://clerk:s3cr3t@localhost:61613"
CLASSIC_CLASS = "org.apache.activemq.jndi.ActiveMQInitialContextFactory"
ARTEMIS_CLASS = "org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory"
INITIAL = "java.naming.factory.initial"
PROVIDER = "java.naming.provider.url"


def registry() -> Names:
    """A registry in code."""
    factories = {"CF": JAVA_URL, "Own": "embedded:orders"}
    return Names({"a": queue("a")}, connection_factories=factories, allowed={JAVA_URL: OWN_URL})


@pytest.mark.parametrize(
    ("factory", "provider", "environment", "url"),
    [
        ("CF", None, {}, OWN_URL),
        ("Own", None, {}, "embedded:orders"),
        ("Own", JAVA_URL, {}, "embedded:orders"),
        (None, JAVA_URL, {}, OWN_URL),
        (None, f"failover:({JAVA_URL})?randomize=false", {}, OWN_URL),
        (None, None, {PROVIDER: JAVA_URL}, OWN_URL),
        (None, JAVA_URL, {PROVIDER: "tcp://elsewhere:1"}, OWN_URL),
        ("ConnectionFactory", JAVA_URL, {INITIAL: CLASSIC_CLASS}, OWN_URL),
        ("Other", JAVA_URL, {INITIAL: CLASSIC_CLASS, "connectionFactoryNames": "Other"}, OWN_URL),
        ("Other", None, {INITIAL: ARTEMIS_CLASS, "connectionFactory.Other": JAVA_URL}, OWN_URL),
    ],
)
def test_broker_url(factory: str | None, provider: str | None, environment: dict[str, str], url: str) -> None:
    """Connection factory, provider URL and environment choose among what the caller allows."""
    assert registry().broker_url(factory, provider, environment=environment) == url


@pytest.mark.parametrize(
    ("factory", "provider", "environment", "error", "message"),
    [
        ("Nobody", None, {}, NameNotFoundError, "'Nobody'; registered: CF, Own; or name the initial context factory"),
        (None, None, {}, NameNotFoundError, "'ConnectionFactory'; registered: CF, Own;"),
        ("CF", "tcp://evil.example:1", {}, NamingError, r"or jndiURL\) leads to tcp://evil.example:1, which is not"),
        (
            "CF",
            None,
            {PROVIDER: "ldap://evil.example"},
            NamingError,
            "is 'ldap://evil.example', which is not a broker's",
        ),
        ("CF", None, {INITIAL: "com.sun.jndi.ldap.LdapCtxFactory"}, NamingError, "'com.sun.jndi.ldap.LdapCtxFactory'"),
        (None, f"{JAVA_URL}?password=s3cr3t", {}, NamingError, "carries a login"),
        (None, "tcp://clerk:s3cr3t@localhost:61616", {}, NamingError, r"://\*\*\*"),
        (
            "Other",
            None,
            {INITIAL: ARTEMIS_CLASS, "connectionFactory.Other": "tcp://evil.example:1"},
            NamingError,
            r"the connection factory 'Other' \(connectionFactory.Other\) leads to tcp://evil.example:1, which is not",
        ),
        ("Other", JAVA_URL, {INITIAL: CLASSIC_CLASS}, NameNotFoundError, "'Other'; there are: ConnectionFactory, "),
    ],
)
def test_no_broker_url(
    factory: str | None, provider: str | None, environment: dict[str, str], error: type[BrokerError], message: str
) -> None:
    """Whatever is not allowed is refused, although it is not needed; no error holds a login."""
    with pytest.raises(error, match=message) as caught:
        registry().broker_url(factory, provider, environment=environment)
    assert "s3cr3t" not in str(caught.value)


def test_the_environment_picks_the_dialect() -> None:
    """The initial context factory of a URI says how a file is meant, over the file's own."""
    text = f"{INITIAL}={CLASSIC_CLASS}\nconnectionFactory.CF={JAVA_URL}"
    names = Names.from_properties(text=text, allowed={JAVA_URL: OWN_URL})
    with pytest.raises(NameNotFoundError, match="'CF'"):
        names.broker_url("CF")
    assert names.broker_url("CF", environment={INITIAL: ARTEMIS_CLASS}) == OWN_URL


@pytest.mark.parametrize("url", ["tcp://localhost:61617", "ldap://localhost", "stomp://a:b/c@localhost", 7])
def test_bad_connection_factory(url: str) -> None:
    """A connection factory whose broker is not allowed is refused at once."""
    with pytest.raises(NamingError):
        Names(connection_factories={"CF": url}, allowed={JAVA_URL: OWN_URL})


def test_secrets_stay_hidden() -> None:
    """No login is in the text of a registry, of the file or of the allow-list."""
    for client in ("classic", "artemis", "qpid"):
        names = Names.from_properties(DATA / f"{client}.properties", allowed={JAVA_URL: OWN_URL})
        assert repr(names).startswith("<Names: ")
        assert repr(names).endswith(" destinations, 1 allowed brokers>")
        for shown in (repr(names), str(names), f"{names.allowed}", repr(names.allowed)):
            assert "s3cr3t" not in shown
            assert "clerk" not in shown


# Files


def test_toml() -> None:
    """TOML holds destinations, connection factories and the allowed brokers."""
    names = Names.from_toml(DATA / "names.toml")
    assert names.lookup("jms/Orders") == queue("orders.in")
    assert names.lookup("jms/News") == topic("prices.eu")
    assert names.broker_url() == "stomp://clerk:s3cr3t@broker.example.com:61613"
    assert names.broker_url("Local") == "embedded:local"
    properties = Names.from_properties(text=f"{INITIAL}={CLASSIC_CLASS}", allowed=names.allowed)
    assert properties.broker_url(provider_url="tcp://broker.example.com:61616") == names.broker_url()
    assert repr(names) == "<Names: 3 destinations, 1 allowed brokers>"


def test_toml_array() -> None:
    """Allowed brokers may be an array; an empty file is fine."""
    names = Names.from_toml(text='allowed_brokers = ["embedded:a"]')
    assert names.broker_url(provider_url="embedded:a") == "embedded:a"
    with pytest.raises(NameNotFoundError):
        Names.from_toml(text=b"").lookup("a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[queues", "the file is not valid TOML: "),
        (b"\xff", "the TOML is not UTF-8 at octet 0"),
        ("[queue]", "unknown table 'queue'; accepted are: queues, topics, connection_factories, allowed_brokers"),
        ("queues = 1", "queues must be a table of names and strings"),
        ('queues = ["a"]', "queues must be a table of names and strings"),
        ("[queues]\na = 1", "all values in queues must be strings"),
        ("allowed_brokers = [1]", "all values in allowed_brokers must be strings"),
        ("[queues]\na.b = 'c'", "all values in queues must be strings"),
        ("[queues]\na = ' '", "the entry 'a' names no destination"),
        ("[queues]\na = 'jms:queue:b'", "the entry 'a' must be the name of a destination, such as 'b', not a URI"),
        ("[queues]\na = 'b'\n[topics]\na = 'b'", "'a' is both in queues and in topics"),
        ("[connection_factories]\na = 'tcp://b:1'", "the connection factory 'a' leads to tcp://b:1, which is not"),
        ("[allowed_brokers]\n'ldap://a' = 'embedded:'", "'ldap://a', which is not a broker's URL"),
        ("[allowed_brokers]\n'tcp://a:1' = 'stomp://clerk:s3/cr3t@a'", r"://\*\*\*"),
        ("#" * 600, "a line of the TOML must have at most 512 characters"),
        ("\n" * 200_000, "the TOML must hold at most 131072 octets, got 200000"),
        ("a = " + "[" * 500 + "\n" + "[" * 500 + "\n" + "[" * 500, "the TOML is nested too deeply"),
    ],
)
def test_bad_toml(text: str | bytes, message: str) -> None:
    """What is not as it must be is refused, and no login repeated."""
    with pytest.raises(NamingError, match=message) as caught:
        Names.from_toml(text=text)
    assert "cr3t" not in str(caught.value)


@pytest.mark.parametrize("read", [Names.from_properties, Names.from_toml])
class TestFiles:
    """Where names are read from."""

    def test_path_or_text(self, read: Callable[..., Names]) -> None:
        """Either a path or a text."""
        for arguments in ({}, {"path": "a", "text": "b"}):
            with pytest.raises(NamingError, match="give either the path of a file, or its text"):
                read(**arguments)

    def test_no_file(self, read: Callable[..., Names], tmp_path: Path) -> None:
        """A folder or a pipe is refused; a file that is missing is the system's error."""
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(NamingError, match="is not a regular file"):
                read(path)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "missing")

    def test_huge(self, read: Callable[..., Names], tmp_path: Path) -> None:
        """A huge file is not read to its end."""
        path = tmp_path / "huge"
        with path.open("wb") as file:
            file.truncate(1 << 36)
        with pytest.raises(NamingError, match="octets, got more"):
            read(str(path))


def test_many_keys_in_a_line() -> None:
    """TOML that makes Python's reader slow ends in time."""
    text = "[queues]\n" + "\n".join(f"k{number:03}{'.a' * 245}='x'" for number in range(250))
    begin = time.process_time()
    with pytest.raises(NamingError):
        Names.from_toml(text=text)
    assert time.process_time() - begin < 5
