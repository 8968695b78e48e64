"""The allow-list of brokers, and the URLs of Java clients that are keys to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.naming import AllowedBrokers, Names, NamingError
from brokers.naming.allow_list import endpoints_of, refuse_login

STOMP = "stomp://clerk:s3cr3t@localhost:61613"
ALLOWED = AllowedBrokers(
    {
        "tcp://localhost:61616": STOMP,
        "failover:(tcp://a.example.com:61616,ssl://b.example.com:61617)": "stomp://cluster:61613",
        "amqp://localhost": "stomp://localhost:61614",
        "tcp://[::1]:61616": "stomp://[::1]:61613",
        "vm://orders": "embedded:orders",
    }
)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("tcp://localhost:61616", STOMP),
        ("tcp://LOCALHOST:61616/", STOMP),
        ("TCP://localhost:61616?wireFormat.maxInactivityDuration=0&soTimeout=1", STOMP),
        ("failover:tcp://localhost:61616", STOMP),
        ("failover://tcp://localhost:61616", STOMP),
        ("failover:(tcp://localhost:61616)", STOMP),
        ("failover:(tcp://localhost:61616?a=b,tcp://a.example.com:61616)?randomize=false", STOMP),
        ("failover://(tcp://a.example.com:61616,tcp://localhost:61616)", "stomp://cluster:61613"),
        ("(ssl://b.example.com:61617,tcp://localhost:61616)?ha=true", "stomp://cluster:61613"),
        ("amqp://localhost:5672", "stomp://localhost:61614"),
        ("amqp://localhost?amqp.idleTimeout=1", "stomp://localhost:61614"),
        ("tcp://[::1]:61616", "stomp://[::1]:61613"),
        ("vm://orders?create=false", "embedded:orders"),
        ("vm:orders", "embedded:orders"),
    ],
)
def test_allowed(url: str, own: str) -> None:
    """Scheme, host and port decide; options are dropped; of several brokers the first counts."""
    assert ALLOWED.url_of(url, "jndiURL") == own


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("amqp+ws://h", "amqp+ws://h:80"),
        ("amqp+wss://h", "amqpwss://h:443"),
        ("amqp+wss://h:443", "amqpwss://h"),
        ("stomp+ssl://h", "stomp+ssl://h:61612"),
        ("stomp+ssl://h", "stomp+nio+ssl://h"),
        ("amqps://h", "amqp+ssl://h:5671"),
        ("smqp://h", "smqp://h:720"),
    ],
)
def test_one_broker_in_several_forms(allowed: str, url: str) -> None:
    """The usual port may be left out for each scheme, and other names of a scheme mean the same."""
    assert AllowedBrokers([allowed]).url_of(url, "jndiURL") == allowed


@pytest.mark.parametrize("url", ["amqp://clerk:s3cr3t@a:5671,b:5671?randomize=true", "stomp+ssl://a:5671,[::1]:5671"])
def test_several_hosts(url: str) -> None:
    """A URL that connect takes is one here, with each of its hosts, and stands for all of them in a list."""
    scheme, host = url.partition(":")[0], url.partition("?")[0].rpartition(",")[2]
    assert AllowedBrokers([url]).url_of(f"failover:({scheme}://{host},{scheme}://a:5671)", "jndiURL") == url
    assert AllowedBrokers({"tcp://h:61616": url}).url_of("tcp://h:61616", "jndiURL") == url
    assert Names(connection_factories={"factory": url}).broker_url("factory") == url
    for wrong in (url.replace("a:5671", "a:port"), url.replace("a:5671", "")):
        with pytest.raises(NamingError, match="is not a URL for brokers") as caught:
            AllowedBrokers([wrong])
        assert "s3cr3t" not in str(caught.value)


def test_a_list_with_logins() -> None:
    """The login belongs elsewhere; where is said."""
    with pytest.raises(
        NamingError, match="must have no user or password within the list; set SOAPJMS_USER and"
    ) as seen:
        AllowedBrokers({"tcp://h:61616": "failover:(amqp://clerk:s3cr3t@a,amqp://clerk:s3cr3t@b)"})
    assert "s3cr3t" not in str(seen.value)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("tcp://localhost:61617", "tcp://localhost:61617"),
        ("tcp://localhost", "tcp://localhost"),
        ("ssl://localhost:61616", "ssl://localhost:61616"),
        ("tcp://localhost.:61616", "tcp://localhost.:61616"),
        ("tcp://localhost.evil.example:61616", "tcp://localhost.evil.example:61616"),
        ("failover:(tcp://localhost:61616,tcp://evil.example:1)", "tcp://evil.example:1"),
        ("tcp://[::2]:61616", "tcp://[::2]:61616"),
        ("stomp://localhost:61613", "stomp://localhost:61613"),
    ],
)
def test_not_allowed(url: str, endpoint: str) -> None:
    """A broker that is not in the list is refused, also behind one that is; the error lists those that are."""
    with pytest.raises(NamingError) as caught:
        ALLOWED.url_of(url, "jndiURL")
    assert str(caught.value).startswith(
        f"jndiURL leads to {endpoint}, which is not allowed; allowed are: amqp://localhost:5672, "
    )


@pytest.mark.parametrize("scheme", ["ldap", "ldaps", "rmi", "iiop", "corbaname", "dns", "http", "https", "file", "jar"])
@pytest.mark.parametrize("form", ["{}://localhost:61616/a", "failover:({}://localhost:61616)", "{}:localhost"])
def test_reaching_out(scheme: str, form: str) -> None:
    """Nothing reaches out: a scheme that is no broker's is refused, with those that are accepted."""
    with pytest.raises(NamingError) as caught:
        ALLOWED.url_of(form.format(scheme), "jndiURL")
    assert f"jndiURL is '{scheme}:" in str(caught.value)
    assert "which is not a broker's URL; names are never looked up over a network" in str(caught.value)
    assert "accepted are: amqp, " in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "printable ASCII characters, no blanks"),
        ("tcp://localhost:61616 ", "no blanks"),
        ("tcp://localhost:61616\n", "no blanks"),
        ("tcp://lоcalhost:61616", "printable ASCII"),
        ("tcp://localhost\\@evil:61616", "printable ASCII"),
        ("tcp://" + "a" * 5000, "up to 4096"),
        ("localhost:61616", "is not a broker's URL; names are never"),
        ("tcp://", "must be SCHEME://HOST:PORT"),
        ("tcp:///a", "must be SCHEME://HOST:PORT"),
        ("tcp://localhost:61616/a", "must be SCHEME://HOST:PORT"),
        ("tcp://localhost:61616#a", "must be SCHEME://HOST:PORT"),
        ("tcp://localhost:99999", "its host or port is invalid"),
        ("tcp://localhost:a", "its host or port is invalid"),
        ("tcp://[::1:61616", "its host or port is invalid"),
        ("tcp://a:1,tcp://b:1", "its host or port is invalid"),
        ("tcp://a%2e:1", "must be SCHEME://HOST:PORT"),
        ("failover:(tcp://localhost:61616", "the brackets of 'failover:\\(tcp://localhost:61616' do not match"),
        ("(tcp://localhost:61616)x", "do not match"),
        (
            "failover:(failover:(tcp://localhost:61616))",
            "is 'failover:\\(tcp://localhost:61616\\)', which is not a broker",
        ),
        ("vm:(broker:(tcp://localhost:61616))", "must be SCHEME"),
        ("failover:()", "is '', which is not a broker's URL"),
        ("failover:(" + ",".join(["tcp://a:1"] * 33) + ")", "must list at most 32 brokers, got 33"),
    ],
)
def test_not_a_url(url: str, message: str) -> None:
    """What is no broker's URL is refused."""
    with pytest.raises(NamingError, match=message):
        endpoints_of(url, "jndiURL")


@pytest.mark.parametrize(
    "url",
    [
        "tcp://clerk:s3cr3t@localhost:61616",
        "tcp://clerk:s3cr3t@localhost:port",
        "ldap://clerk:s3cr3t@localhost",
        "clerk:s3cr3t@localhost",
        "failover:(tcp://localhost:61616,tcp://clerk:s3cr3t@localhost:61616)",
        "(tcp://clerk:s3cr3t@localhost:61616",
        "tcp://[s3cr3t@:1",
    ],
)
def test_login_in_a_url(url: str) -> None:
    """A login in a Java client's URL is refused and not repeated."""
    with pytest.raises(NamingError) as caught:
        endpoints_of(url, "jndiURL")
    assert "s3cr3t" not in str(caught.value)
    assert "clerk" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "options", ["?user=clerk;password=s3cr3t", "?jms.username=clerk", "?a=b&jms.password=s3cr3t", "?x.token=s3cr3t"]
)
def test_login_in_options(options: str) -> None:
    """Options that look like a login are refused where the URL comes from outside, and never repeated."""
    with pytest.raises(NamingError, match="jndiURL carries a login") as caught:
        refuse_login("tcp://localhost:61616" + options, "jndiURL")
    assert "s3cr3t" not in str(caught.value)
    refuse_login("tcp://localhost:61616?useRetroactiveConsumer=true&sslEnabled=true", "jndiURL")


@given(
    st.text(max_size=60)
    | st.from_regex(r"(failover:)?\(?(tcp|vm|amqp)://[a-z0-9@:/,()?\[\]#;&=]{0,40}", fullmatch=True)
)
def test_only_what_the_caller_wrote(url: str) -> None:
    """Whatever is asked for, nothing but a URL of the caller's own comes out."""
    try:
        found = ALLOWED.url_of(url, "jndiURL")
    except NamingError:
        return
    assert found in {
        STOMP,
        "stomp://cluster:61613",
        "stomp://localhost:61614",
        "stomp://[::1]:61613",
        "embedded:orders",
    }


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ("stomp://localhost", "must be a mapping or a list of URLs, got a string"),
        (["tcp://localhost:61616"], "'tcp://localhost:61616' is not a URL for brokers.connect; known schemes"),
        (["stomp://localhost:port"], r"'stomp://\*\*\*' is not a URL for brokers.connect"),
        ([7], "a broker's URL must be a string, got int"),
        ({"tcp://a:1": 7}, "a broker's URL must be a string, got int"),
        ({7: "stomp://a"}, "allowed brokers is not a broker's URL"),
        ({"tcp://a:1": "stomp://clerk:s3/cr3t@a"}, r"://\*\*\*"),
        ({"tcp://a:1": "stomp://clerk:s3?cr3t@a"}, r"://\*\*\*"),
        ({"tcp://a:1": "stomp://clerk:12/cr3t@a"}, "in user or password must be percent-encoded"),
        ({"tcp://a:1": "stomp://clerk:s3#cr3t@a"}, r"://\*\*\*"),
        ({"tcp://clerk:s3cr3t@a:1": "stomp://a"}, "the login belongs in the URL of the allowed broker"),
        ({"tcp://a:1": "stomp://a", "failover:(tcp://a:1)": "stomp://b"}, "tcp://a:1 has two URLs"),
    ],
)
def test_bad_list(allowed: Mapping[str, str] | Iterable[str], message: str) -> None:
    """A list that is not as it must be is refused at once, and no login repeated."""
    with pytest.raises(NamingError, match=message) as caught:
        AllowedBrokers(allowed)
    assert "cr3t" not in str(caught.value)


def test_forms() -> None:
    """URLs for connect stand for themselves; a list can be copied; its text holds no login."""
    allowed = AllowedBrokers([STOMP, "embedded:orders"])
    assert AllowedBrokers(allowed).url_of("stomp://localhost", "here") == STOMP
    assert allowed.url_of("embedded:orders", "here") == "embedded:orders"
    assert len(allowed) == 2
    assert repr(allowed) == "<AllowedBrokers embedded://orders, stomp://localhost:61613>"
    assert str(AllowedBrokers()) == "none"
    many = AllowedBrokers([f"embedded:{number:02}" for number in range(25)])
    assert str(many).endswith("embedded://19 and 5 more")
