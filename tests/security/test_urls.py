"""URLs with passwords, right and mistyped, at everything that takes one: nothing that is said repeats the password."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from cli_kit import run
from hypothesis import given
from hypothesis import strategies as st

import brokers.adapter.failover
import brokers.amqp
import brokers.embedded
import brokers.smqp.adapter
import brokers.stomp
import soapjms
from brokers.naming import AllowedBrokers
from brokers.naming.allow_list import endpoints_of, own_endpoints
from brokers.redaction import shown, without_login, without_logins
from soapjms.protocol.uri import parse
from soapjms.protocol.uri.redact import without_user_info
from soapjms.testing.broker import BrokerNotAvailableError, checked
from soapjms.testing.broker import given as broker_at
from soapjms.validation import host_and_port
from soapjms.wsdl import local_path, read_wsdl
from soapjms.zeep.loader import DocumentLoader

SECRET = "S3CRET"
URLS = [
    "stomp://u:S3CRET@127.0.0.1:1",
    "stomp://u:S3CRET@127.0.0.1:1,127.0.0.1:2",
    "stomp://u:S3CRET",
    "stomp://u:S3CRET@",
    "stomp://u:S3CRET/x",
    "stomp://u:/S3CRET@127.0.0.1",
    "stomp://u:x?S3CRET@127.0.0.1",
    "stomp://u:x#S3CRET@127.0.0.1",
    "stomp://u:x[S3CRET@127.0.0.1",
    "stomp://u:x\u2100S3CRET@127.0.0.1",
    "stomp://u:a@S3CRET@127.0.0.1:99999",
    "stomp:u:S3CRET",
    "stomp:u:S3CRET@127.0.0.1",
    "stomp+ssl://u:S3CRET",
    "amqp://u:S3CRET",
    "amqp+ws://u:S3CRET",
    "amqps://u:S3CRET@127.0.0.1:x",
    "smqp://u:S3CRET",
    "smqps://u:S3CRET@127.0.0.1:1/x",
    "embedded://u:S3CRET@x",
    "embedded://u:S3CRET",
    "embedded:u:S3CRET@x",
    "embedded:u:S3CRET@x?heartbeat=1",
    "embedded:x?S3CRET@x",
    "failover:(stomp://u:S3CRET@127.0.0.1:1,stomp://v:S3CRET)",
    "failover:(stomp://u:S3CRET)",
    "failover:stomp://u:S3CRET@127.0.0.1:1,amqp://v:w@127.0.0.1",
    "failover:(failover:(stomp://u:S3CRET))",
    "nonsense://u:S3CRET",
    "nonsense://u:S3CRET@x",
    "https://u:S3CRET@127.0.0.1/a.wsdl",
    "u:S3CRET@127.0.0.1",
    "xy://u:S3CRET@127.0.0.1",
]


def _opened(connect: Callable[..., Any]) -> Callable[[str], object]:
    return lambda url: connect(url, timeout=2.0).close()


TAKERS: dict[str, Callable[[str], object]] = {
    "soapjms.connect": _opened(soapjms.connect),
    "brokers.stomp": _opened(brokers.stomp.connect),
    "brokers.amqp": _opened(brokers.amqp.connect),
    "brokers.embedded": _opened(brokers.embedded.connect),
    "brokers.adapter.failover": _opened(brokers.adapter.failover.connect),
    "brokers.smqp": _opened(brokers.smqp.adapter.connect),
    "allowed, a list": lambda url: f"{AllowedBrokers([url])}",
    "allowed, ours": lambda url: f"{AllowedBrokers({'tcp://a:1': url})}",
    "allowed, theirs": lambda url: f"{AllowedBrokers({url: 'stomp://a:1'})}",
    "own endpoints": lambda url: f"{own_endpoints(url)}",
    "their endpoints": lambda url: f"{endpoints_of(url, 'java.naming.provider.url')}",
    "jndiURL": lambda url: soapjms.connect_uri(f"jms:jndi:x?jndiURL={url}", soapjms.Names()),
    "connect_uri": lambda url: soapjms.connect_uri(url, soapjms.Names()),
    "import": local_path,
    "WSDL": lambda url: read_wsdl(url if ":" in url[2:] and url[1] != ":" else "x:"),
    "zeep": lambda url: DocumentLoader((), None).load(url),
    "listen": host_and_port,
    "shown": lambda url: (shown(url), without_login(url)),
    "in a text": lambda url: "://" in url and (without_logins(f"'{url}' is wrong"), without_user_info(url)),
    "jms:": lambda url: repr(parse(url)),
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("taker", TAKERS)
def test_programs(taker: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a result that is shown, nor an error with all that is behind it, nor the log has it."""
    caplog.set_level(logging.DEBUG)
    said = ""
    try:
        said = str(TAKERS[taker](url) if taker != "import" else "")
        if taker == "import":
            local_path(url)
    except Exception as error:
        said = "".join(format_exception(error, limit=0)) + repr(error)
    assert SECRET not in said + caplog.text


COMMANDS = (
    "doctor --timeout 1 --connection @",
    "doctor --timeout 1 --uri @",
    "doctor --timeout 1 --uri jms:jndi:x?jndiURL=@",
    "doctor --timeout 1 --wsdl @",
    "doctor --timeout @",
    "doctor @",
    "call --timeout 1 --connection @ --uri jms:queue:a",
    "call --timeout 1 --uri @",
    "call @ op",
    "capture --connection @ --queue a",
    "serve soapjms:Service --connection @ --uri jms:queue:a",
    "serve soapjms:Service --connection embedded: --uri @",
    "serve soapjms:Service --connection embedded: --uri jms:queue:a --health @",
    "unsubscribe a --connection @",
    "bridge http --listen 127.0.0.1:0 --connection @ --to jms:queue:a",
    "bridge http --listen @ --connection embedded: --to jms:queue:a",
    "broker --amqp @",
    "explain --uri @",
    "uri parse @",
    "uri parse jms:jndi:x?jndiURL=@",
    "wsdl inspect @",
    "wsdl lint @",
    "replay @ --local --out OUT",
    "report @",
    "@",
    "--config @ doctor",
)


@pytest.mark.parametrize("url", [*URLS[:4], "embedded://u:S3CRET@x", "failover:(stomp://u:S3CRET)"])
@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_commands(words: str, url: str, debug: tuple[str, ...], tmp_path: Path) -> None:
    """Neither output nor errors of a command have it, wherever the URL stands, with --debug too."""
    given = [each.replace("@", url).replace("OUT", str(tmp_path / "out")) for each in words.split()]
    with soapjms.connect("embedded:"):
        done = run(*debug, *given)
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    [
        'connection = ["stomp://u:S3CRET@h"]',
        'doctor = "stomp://u:S3CRET@h"',
        '[doctor]\nconnection = ["stomp://u:S3CRET@h"]',
        '[doctor]\ntimeout = "stomp://u:S3CRET@h"',
        '[bridge]\nhttp = "stomp://u:S3CRET@h"',
        '[doctor]\nconnection = "stomp://u:S3CRET"',
        'connection = "stomp://u:S3CRET@h" x',
    ],
)
def test_configuration(text: str, tmp_path: Path) -> None:
    """Nor what is said of a configuration file."""
    file = tmp_path / "soapjms.toml"
    file.write_text(text)
    for command in ("doctor", "bridge"):
        done = run("--config", file, command, *(["http"] if command == "bridge" else []))
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("url", ["stomp://u:S3CRET@127.0.0.1:1", "stomp://u:S3CRET", "embedded://u:S3CRET@x"])
def test_broker_of_tests(url: str) -> None:
    """Nor what a test says whose broker cannot be reached."""
    with pytest.raises((BrokerNotAvailableError, ValueError)) as error, broker_at(checked(url)):
        pass
    assert SECRET not in "".join(format_exception(error.value, limit=0))


@given(
    st.sampled_from(["stomp", "amqp+ws", "failover", "x"]),
    st.sampled_from(["://", ":", ":(stomp://"]),
    st.text("ab:/?#@,;()[] %=&", max_size=6),
    st.text("ab:/?#@,;()[] %=&", max_size=6),
    st.sampled_from(["@h", "@h:1", "@[::1]:1", "@h:1,k:2", "@h)", "@"]),
)
def test_any_password(scheme: str, mark: str, before: str, after: str, rest: str) -> None:
    """Whatever stands in a password before an @ is not shown."""
    assert SECRET not in shown(f"{scheme}{mark}u:{before}S3CRET{after}{rest}")


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("stomp://u:p@h:61613?x=y", "'stomp://***@h:61613'"),
        ("stomp://h:61613", "'stomp://h:61613'"),
        ("https://h:8080/a:b.xsd", "'https://h:8080/a:b.xsd'"),
        ("http://[::1]:80/x", "'http://[::1]:80/x'"),
        ("failover:(stomp://a:1,stomp://b:2)?x=y", "'failover:(stomp://a:1,stomp://b:2)'"),
        ("file:///a/b.wsdl", "'file:///a/b.wsdl'"),
        ("a.xsd", "'a.xsd'"),
        ("stomp://u:p", "'stomp://***'"),
    ],
)
def test_what_is_shown(url: str, seen: str) -> None:
    """What is no login stays, so that a mistake is found."""
    assert shown(url) == seen
