"""What `soapjms doctor` says of the consumers of a destination: only what the broker tells."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from calling_kit import fresh
from cli_kit import said
from managed_kit import Managed
from qpid_kit import Qpid
from real_brokers import RealBroker
from smqp_kit import prepared, running

import soapjms
from brokers import Destination, queue, topic
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from soapjms.doctor import CheckOutcome, Patient
from soapjms.doctor.checks import check_destination, check_replies
from soapjms.doctor.consumers import check_consumers

KINDS = {"queue": queue, "topic": topic}


def consumers(url: str, uri: str, *arguments: object, status: int = 0) -> dict[str, Any]:
    """Run it and return what it found of the consumers."""
    checks = said("doctor", "--connection", url, "--uri", uri, "--timeout", "20", *arguments, status=status)["checks"]
    (found,) = [each for each in checks if each["check"] == "consumers"]
    return dict(found)


@contextmanager
def consuming(url: str, destination: Destination, number: int) -> Iterator[None]:
    """Have some consumers, each on a connection of its own."""
    with ExitStack() as stack:
        for _ in range(number):
            connection = stack.enter_context(soapjms.connect(url))
            stack.enter_context(connection.consume(destination, lambda delivery: delivery.release()))
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_in_this_process(kind: str) -> None:
    """It counts what consumes now; without a consumer there is a note, and no command that cannot help."""
    url, name = f"embedded:{fresh('broker')}", fresh()
    with soapjms.connect(url):
        for number in (1, 3):
            with consuming(url, KINDS[kind](name), number):
                seen = consumers(url, f"jms:{kind}:{name}")
                assert (seen["outcome"], seen["command"]) == ("ok", None)
                counted = "1 consumer," if number == 1 else "3 consumers,"
                assert seen["text"].startswith(f"{kind}:{name} has {counted} by the broker in this process; ")
                assert seen["text"].endswith("whether they answer is not checked")
        none = consumers(url, f"jms:{kind}:{name}")
    assert none["outcome"] == "note"
    assert none["text"].startswith(f"nothing consumes from {kind}:{name}, by the broker in this process: ")
    meaning = "what is sent now is lost" if kind == "topic" else "requests wait there until something does"
    assert none["text"].endswith(f": {meaning}; no other process reaches a broker that is embedded in this one")
    assert none["command"] == f"soapjms doctor --connection URL --uri jms:{kind}:{name}"
    assert none["page"] == "docs/cli.md#consumers-of-a-destination"


def test_without_a_destination() -> None:
    """Nothing is counted."""
    checks = said("doctor", "--connection", "embedded:", status=0)["checks"]
    (seen,) = [each for each in checks if each["check"] == "consumers"]
    assert (seen["outcome"], seen["text"]) == ("skipped", "give --uri or --wsdl to check it")


@pytest.mark.broker
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["stomp", "amqp", "ws", "jolokia"])
@pytest.mark.parametrize("broker", ["activemq", "artemis"])
def test_real_brokers(broker: str, way: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Each tells how many there are, and that there is none; the doctor's own consumers do not count."""
    real: RealBroker = request.getfixturevalue(broker)
    url = real.stomp_url if way == "jolokia" else getattr(real, f"{way}_url")
    console = f"http://admin:admin@{real.host}:{real.ports.jolokia}/jolokia"
    more = ["--jolokia", console] if way == "jolokia" else []
    name = fresh()
    with consuming(real.stomp_url, KINDS[kind](name), 2):
        seen = consumers(url, f"jms:{kind}:{name}", *more)
        assert seen["text"].startswith(f"{kind}:{name} has 2 consumers, by "), seen
        assert seen["outcome"] == "ok"
    none = consumers(url, f"jms:{kind}:{name}", *more)
    assert (none["outcome"], none["text"].startswith(f"nothing consumes from {kind}:{name}, by ")) == ("note", True)
    unheard = consumers(url, f"jms:{kind}:{fresh()}", *more)
    assert unheard["outcome"] == "note", unheard


@pytest.mark.broker
@pytest.mark.parametrize("way", ["stomp", "amqp"])
def test_who_may_not_ask_artemis(artemis: RealBroker, way: str) -> None:
    """The reason is said, and what else there is; nothing is promised."""
    limited = getattr(artemis, f"{way}_url").replace("admin:admin@", "limited:limited@")
    seen = consumers(limited, f"jms:queue:limited.{fresh()}", status=1)
    assert seen["outcome"] == "skipped"
    assert seen["text"].startswith("cannot be known here: the broker's management address: ")
    assert "permission" in seen["text"]
    assert seen["text"].endswith("; --jolokia URL asks the broker's console instead")


@pytest.mark.broker
def test_on_qpid(qpid: Qpid) -> None:
    """It does not tell its clients."""
    seen = consumers(qpid.amqp_url, f"jms:queue:{fresh()}")
    assert seen["text"] == "cannot be known here: Qpid Broker-J tells it only over HTTP, in its own console"


def test_on_rabbitmq() -> None:
    """Its management node tells of queues: how many consumers one has, or that it must be made, and how."""
    with Managed() as broker, soapjms.connect(broker.url) as connection:
        patient = Patient(broker.url, destination=queue("a b"), replies=queue("r"), connection=connection)
        for number, outcome in ((0, CheckOutcome.NOTE), (2, CheckOutcome.OK)):
            broker.answers["GET"] = "200", {"consumer_count": number}
            assert check_destination(patient).outcome is CheckOutcome.OK
            assert check_replies(patient).outcome is CheckOutcome.SKIPPED
            assert check_consumers(patient).outcome is outcome
        broker.answers["GET"] = "404", "queue 'a b' in vhost '/' not found"
        missing, no_replies = check_destination(patient), check_replies(patient)
        broker.answers["GET"] = "403", "no"
        assert check_destination(patient).outcome is CheckOutcome.FAILED
        patient.destination = topic("t")
        assert check_destination(patient).outcome is CheckOutcome.SKIPPED
        assert "counts the consumers of queues only" in check_consumers(patient).text
    assert (missing.outcome, no_replies.outcome) == (CheckOutcome.FAILED, CheckOutcome.FAILED)
    assert missing.command == "rabbitmqadmin declare queue name='a b' queue_type=quorum durable=true"
    assert missing.page == "docs/amqp.md#rabbitmq-4"


def test_over_smqp_without_an_account() -> None:
    """The command to type has the place of the account once, and the host after it."""
    with running() as server:
        url = f"smqp://{urlsplit(prepared(server)).netloc.rpartition('@')[2]}"
        checks = said("doctor", "--connection", url, "--timeout", "20", status=1)["checks"]
    (login,) = [each for each in checks if each["check"] == "login"]
    assert "an SMQP URL must have an account and a password" in login["text"]
    assert login["command"] == "export SOAPJMS_CONNECTION=smqp://USER:PASSWORD@HOST:PORT"


def test_over_smqp() -> None:
    """There is no command for it."""
    with running() as server:
        seen = consumers(prepared(server), "jms:queue:a")
    assert seen["text"] == "cannot be known here: SMQP has no command for it"


@contextmanager
def console(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Serve one answer for all questions; yield the URL, with a login, and the list of what was sent for it."""
    logins: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            logins.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://me:s3cret@127.0.0.1:{server.server_port}/api/jolokia", logins
        server.shutdown()
        thread.join(10)


NOTHING = json.dumps([{"status": 404, "error": "no MBean"}] * 2).encode()
DENIED = json.dumps([{"status": 403, "error": "access \x1b[31mdenied"}, {"status": 404}]).encode()


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (401, b"", {}, "answered HTTP 401 Unauthorized"),
        (302, b"", {"Location": "http://elsewhere.invalid/"}, "answered HTTP 302 Found"),
        (200, b"<html>", {}, "gave an answer that is not JSON"),
        (200, b"[" * 100_000, {}, "gave an answer that is not JSON"),
        (200, b"{}", {}, "gave an answer that is not Jolokia's"),
        (200, b"[1,2]", {}, "gave an answer that is not Jolokia's"),
        (200, NOTHING, {}, "knows no destinations of a broker"),
        (200, DENIED, {}, r"knows no destinations of a broker: access \x1b[31mdenied"),
    ],
)
def test_what_is_no_jolokia(status: int, body: bytes, headers: dict[str, str], why: str) -> None:
    """The reason is one line, without the password; no redirect is followed."""
    with console(status, body, **headers) as (url, logins):
        seen = consumers("embedded:", "jms:queue:a", "--jolokia", url)
    assert seen["outcome"] == "skipped"
    assert seen["text"].startswith("cannot be known here: Jolokia: 'http://***@127.0.0.1:")
    assert seen["text"].endswith(why)
    assert "s3cret" not in seen["text"]
    assert len(logins) == 1


def test_a_password_for_jolokia_in_another_encoding() -> None:
    """It goes out in the octets in which the command line had it."""
    with console(401, b"") as (url, logins):
        consumers("embedded:", "jms:queue:a", "--jolokia", url.replace("s3cret", "caf\udce9"))
    assert logins == [f"Basic {b64encode(b'me:caf' + bytes([0xE9])).decode()}"]


@pytest.mark.parametrize("url", ["nonsense", "ftp://me:s3cret@h", "http://", "http://me:s3cret@h:99999"])
def test_no_url_of_jolokia(url: str) -> None:
    """What one looks like is said, and no password."""
    seen = consumers("embedded:", "jms:queue:a", "--jolokia", url)
    assert seen["text"].endswith(
        "the URL of Jolokia must be http://USER:PASSWORD@HOST:PORT/PATH, or begin with https://"
    )


@pytest.mark.parametrize(
    ("name", "pattern", "number"), [("Name", "destinationName=", 3), ("Address", "subcomponent=queues", 3)]
)
def test_both_products(name: str, pattern: str, number: int) -> None:
    """Queues of other names do not count, and all queues of an address do."""
    values = {
        f"x:{pattern}{each}": {name: of, "ConsumerCount": count}
        for each, (of, count) in enumerate([("a", 1), ("b", 7), ("a", 2)])
    }
    known = [{"status": 404}, {"status": 200, "value": values}]
    with console(200, json.dumps(known).encode()) as (url, _):
        seen = consumers("embedded:", "jms:queue:a", "--jolokia", url)
    assert f"has {number} consumers, by Jolokia" in seen["text"]


def test_our_own_broker_over_a_network() -> None:
    """It is not in this process, and does not tell its clients."""
    with Listener(Broker(), port=0) as listener:
        found = consumers(f"amqp://127.0.0.1:{listener.port}", "jms:queue:greeter")
    assert found["outcome"] == "skipped"
    assert found["text"] == "cannot be known here: soapjms broker does not tell its clients"
