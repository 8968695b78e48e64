"""What users do wrong, at the command line and on a real broker: one clear message each, and no traceback."""

from __future__ import annotations

from pathlib import Path

import places
import pytest
from calling_kit import PATIENCE, OnActiveMQ, OnRealBrokers, arrivals, envelope, eventually, request_message, text_of
from cli_kit import process
from real_brokers import RealBroker
from serving_kit import Served, serving
from wsdl_kit import DATA

import soapjms
from brokers import Connection, NoDestinationError, queue
from soapjms import Client
from soapjms.zeep import Client as ZeepClient

ECHO = DATA / "echo-soap11.wsdl"
CALLS = 400


def lines_of(served: Served, text: str) -> list[str]:
    """Return the lines on standard error that hold a text, once there is one."""
    eventually(lambda: any(text in line for line in served.err), text)
    return [line for line in served.err if text in line]


class TestServing(OnActiveMQ):
    """`soapjms serve` with a service that does what it should not."""

    @pytest.mark.parametrize(
        ("what", "said"),
        [
            ("raise", "ValueError: the database is\\naway"),
            ("nonsense", "TypeError: an operation must return an element, a SoapFaultError, None or a Reply, got int"),
        ],
    )
    def test_a_function_that_fails(
        self, url: str, connection: Connection, uri: str, what: str, said: str, tmp_path: Path
    ) -> None:
        """Its caller is told that the service failed; its log says in one line what it was, and where."""
        options = ["--connection", url, "--uri", uri]
        with serving("bad_greeter:service", *options, marks=tmp_path) as served:
            served.until_serving()
            done = process("call", *options, cwd=tmp_path, stdin=envelope(what))
            assert (done.returncode, b"the service failed" in done.stderr, done.stderr.count(b"\n")) == (1, True, 1)
            (line,) = lines_of(served, "greetMe failed")
            assert said in line
            assert ".py:" in line
        assert "Traceback" not in "".join(served.err)

    def test_a_typed_function_that_returns_nonsense(self, url: str, uri: str, tmp_path: Path) -> None:
        """The log says what the WSDL has."""
        with serving("bad_greeter:typed", "--connection", url, "--uri", uri, marks=tmp_path) as served:
            served.until_serving()
            call = ["call", "--connection", url, "--uri", uri, ECHO, "greetMe", "requestType=Bob"]
            done = process(*call, cwd=tmp_path)
            assert (done.returncode, b"the service failed" in done.stderr) == (1, True)
            (line,) = lines_of(served, "greetMe failed")
            assert "does not fit the WSDL" in line
        assert "Traceback" not in "".join(served.err)

    def test_a_function_that_never_returns(self, url: str, uri: str, tmp_path: Path) -> None:
        """Its caller hears so in its time; at the end the service says what is not finished, and the status is 1."""
        options = ["--connection", url, "--uri", uri]
        with serving("bad_greeter:service", *options, "--grace", "0.2", marks=tmp_path) as served:
            served.until_serving()
            done = process("call", *options, "--timeout", "1", cwd=tmp_path, stdin=envelope("never"))
            assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
            assert done.stderr.startswith(b"Error: no correlated response came in time (queue:")
            assert b"the broker confirmed the message); soapjms doctor --uri URI" in done.stderr
            served.process.terminate()
            assert served.ended() == 1
        assert "not all requests were finished within 0.2 s; the broker delivers the rest again" in "".join(served.err)

    def test_debug_shows_the_traceback(self, url: str, uri: str, tmp_path: Path) -> None:
        """For who asks."""
        options = ["--connection", url, "--uri", uri]
        with serving("bad_greeter:service", *options, "--log-level", "DEBUG", marks=tmp_path) as served:
            served.until_serving()
            process("call", *options, cwd=tmp_path, stdin=envelope("raise"))
            assert lines_of(served, "Traceback")

    def test_a_queue_that_nobody_serves(self, url: str, uri: str, tmp_path: Path) -> None:
        """ActiveMQ makes it, so all that is seen is that nobody answers: which the message says how to look into."""
        done = process("call", "--connection", url, "--uri", uri, "--timeout", "0.5", cwd=tmp_path, stdin=envelope())
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
        assert b"soapjms doctor --uri URI says whether anything consumes there" in done.stderr


class TestLoad(OnRealBrokers):
    """Services that are told to end while they are under load."""

    def test_nothing_is_lost_at_sigterm(
        self, url: str, connection: Connection, name: str, uri: str, tmp_path: Path
    ) -> None:
        """Three services one after the other, the second of two processes; two are ended by SIGTERM at work.

        Each ends with 0, and each call is answered once.
        """
        options = ["--connection", url, "--uri", uri, "--workers", "4"]
        with Client(connection, uri, timeout=120) as client:
            futures = [client.submit(envelope(str(number))) for number in range(CALLS)]
            for answered, processes in ((CALLS // 4, "1"), (CALLS // 2, "2"), (CALLS, "1")):
                more = ["--processes", processes]
                with serving("quick_greeter:service", *options, *more, marks=tmp_path) as served:
                    eventually(lambda: sum(each.done() for each in futures) >= answered, "some were answered")  # noqa: B023 - called at once
                    assert answered == CALLS or not all(each.done() for each in futures), "it was not ended at work"
                    served.process.terminate()
                    assert served.ended() == 0
            assert [text_of(each.result(0)) for each in futures] == [f"Hello {number}" for number in range(CALLS)]
            assert client.counts == {}
        begun = (tmp_path / "begun").read_text(encoding="utf-8").split()
        assert sorted(map(int, begun)) == list(range(CALLS)), "each was worked on once"
        with arrivals(connection, queue(name)) as left, arrivals(connection, queue(f"DLQ.{name}")) as dead:
            for found, destination in ((left, name), (dead, f"DLQ.{name}")):
                marker = request_message(destination, None)
                connection.send(marker).result(PATIENCE)
                assert found.next().correlation_id == marker.correlation_id, "nothing else is there"


@pytest.mark.broker
@pytest.mark.parametrize("scheme", ["stomp", "amqp"])
def test_a_queue_that_does_not_exist(scheme: str, artemis: RealBroker, tmp_path: Path) -> None:
    """Where queues are made by hand each command says so, and the doctor how to make one."""
    options = ["--connection", getattr(artemis, f"{scheme}_url"), "--uri", "jms:queue:administered.bank"]
    with serving("bad_greeter:service", *options, marks=tmp_path) as served:
        assert served.ended() == 1
    assert "cannot consume from queue:administered.bank: " in "".join(served.err)
    assert "not exist" in "".join(served.err)
    assert "Traceback" not in "".join(served.err)
    for words in (["call", *options], ["call", *options, "--one-way"]):
        done = process(*words, cwd=tmp_path, stdin=envelope())
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
        assert b"not exist" in done.stderr
    done = process("doctor", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert b"artemis queue create --name administered.bank" in done.stdout
    with (
        soapjms.connect(options[1]) as connection,
        pytest.raises(NoDestinationError, match="cannot consume from queue"),
    ):
        connection.consume(queue("administered.bank"), lambda delivery: delivery.release())


# Without a broker


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["call", "--connection", "embedded:", "@http", "greetMe"],
            "is not SOAP over JMS; give its address with --uri",
        ),
        (["call", "--connection", "embedded:", "--wsdl", "@http", "@envelope"], "no port with a SOAP/JMS transport"),
        (["call", "--connection", "embedded:", "@jms", "greet"], "no operation 'greet'; it has: pingMe("),
        (
            ["call", "--connection", "embedded:", "@jms", "greetMe", "name=Bob"],
            "there is no 'name'; there are: requestType",
        ),
        (["call", "--connection", "embedded:", "@none", "greetMe"], "none.wsdl', which does not exist"),
        (
            ["serve", "bad_greeter:service", "--connection", "stomp://127.0.0.1:1", "--wsdl", "@http"],
            "no port with a SOAP/JMS",
        ),
        (["serve", "bad_greeter:service", "--connection", "stomp://127.0.0.1:1"], "give either --uri or --wsdl"),
        (
            ["serve", "bad_greeter:none", "--connection", "stomp://127.0.0.1:1", "--uri", "jms:queue:a"],
            "must be a soapjms.Service",
        ),
        (
            ["serve", "nowhere:service", "--connection", "stomp://127.0.0.1:1", "--uri", "jms:queue:a"],
            "No module named 'nowhere'",
        ),
        (
            ["serve", "bad_greeter:service", "--connection", "stomp://127.0.0.1:1", "--uri", "jms:queue:a"],
            "no connection",
        ),
    ],
)
def test_a_message_in_place_of_a_traceback(words: list[str], said: str, tmp_path: Path) -> None:
    """Status 2, or 1 where a broker is not there to be served from; what would be right is in the message."""
    text = ECHO.read_text(encoding="utf-8").replace(
        "http://www.w3.org/2010/soapjms/", "http://schemas.xmlsoap.org/soap/http"
    )
    files = {
        "http": tmp_path / "http.wsdl",
        "jms": ECHO,
        "none": tmp_path / "none.wsdl",
        "envelope": tmp_path / "e.xml",
    }
    files["http"].write_text(text, encoding="utf-8")
    files["envelope"].write_bytes(envelope())
    done = process(
        *(str(files[word[1:]]) if word.startswith("@") else word for word in words),
        cwd=places.DATA / "services",
    )
    shown = done.stderr.decode()
    assert done.returncode in (1, 2), shown
    assert done.stdout == b""
    assert said in shown
    assert "Traceback" not in shown


def test_a_client_of_a_wsdl_without_jms(tmp_path: Path) -> None:
    """In a program it is an error that says which ports there are, and what else can be done."""
    text = ECHO.read_text(encoding="utf-8").replace(
        "http://www.w3.org/2010/soapjms/", "http://schemas.xmlsoap.org/soap/http"
    )
    path = tmp_path / "http.wsdl"
    path.write_text(text, encoding="utf-8")
    with soapjms.connect("embedded:") as connection:
        with pytest.raises(soapjms.UsageError, match="no port with a SOAP/JMS transport"):
            Client.from_wsdl(connection, path)
        with ZeepClient(path, connection=connection) as client, pytest.raises(soapjms.UsageError, match="create_serv"):
            client.bind()
