"""`soapjms bridge`: as a user has it, in a process of its own, on a real broker; and what it says of bad input."""

from __future__ import annotations

import re
import signal
import ssl
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from bridge_kit import ask
from calling_kit import PATIENCE, envelope, eventually, fresh, greeter, text_of
from cli_kit import process
from proxy_kit import Proxy
from real_brokers import RealBroker
from serving_kit import SERVICES, Served, started
from wsdl_kit import with_import_from_above
from zeep_kit import ECHO, PROPERTIES, echo

import soapjms
from soapjms.bridge.http import HttpBridge
from soapjms.bridge.listener import Listener


def until(served: Served, pattern: str) -> re.Match[str]:
    """Wait for a line on standard output."""

    def find() -> re.Match[str] | None:
        return next((found for line in served.out if (found := re.fullmatch(pattern, line.strip()))), None)

    eventually(lambda: find() or served.process.poll() is not None, pattern)
    found = find()
    assert found is not None, "".join((*served.out, *served.err))
    return found


def at(port: str) -> Any:
    """Name what listens at a port of this machine."""
    return SimpleNamespace(port=int(port))


@pytest.mark.broker
class TestOnActiveMQ:
    """Over STOMP, as programs."""

    def test_http(self, activemq: RealBroker, tmp_path: Path) -> None:
        """Two services, one by its WSDL; health; a call that is under way when SIGTERM comes is answered; status 0."""
        name, echoed = fresh(), fresh("echo")
        words = [
            f"--to=jms:queue:{name}",
            f"--to=/echo=jms:queue:{echoed}",
            f"--wsdl=/echo={ECHO[soapjms.SoapVersion('1.1')]}",
        ]
        options = ["--listen=127.0.0.1:0", "--health=127.0.0.1:0", "--set=timeToLive=60000", "--grace=10"]
        environment = {"SOAPJMS_CONNECTION": activemq.stomp_url}
        with (
            soapjms.connect(activemq.stomp_url) as connection,
            soapjms.Dispatcher(connection, f"jms:queue:{echoed}", echo()),
            started("bridge", "http", *words, *options, **environment) as bridge,
        ):
            health = until(bridge, r"health at port (\d+): /live, /ready")[1]
            listener = at(until(bridge, r"bridging http://127\.0\.0\.1:(\d+)/ to jms:queue:.*")[1])
            until(bridge, r"bridging http://[^/]*/echo to jms:queue:test\.echo\..*")
            ping = envelope().replace(b"urn:greeter", b"urn:soapjms:echo").replace(b"greetMe", b"pingMe")
            assert ask(listener, ping, path="/echo").status == 202
            assert b":%d/echo" % listener.port in ask(listener, None, path="/echo?wsdl").body
            eventually(lambda: ask(at(health), None, path="/ready").status == 200, "it is ready")
            with ThreadPoolExecutor(1) as other:
                under_way = other.submit(ask, listener, envelope())
                eventually(lambda: b'"under_way": 1' in ask(at(health), None, path="/live").body, "it is under way")
                bridge.process.send_signal(signal.SIGTERM)
                with soapjms.Dispatcher(connection, f"jms:queue:{name}", greeter()):
                    assert under_way.result(PATIENCE).text("greetMeResponse") == "Hello World"
            assert (bridge.ended(), bridge.err) == (0, [])

    def test_wsgi(self, activemq: RealBroker) -> None:
        """An application of the standard library, by two processes; status 0 at SIGTERM."""
        name = fresh()
        options = [
            "--connection",
            activemq.stomp_url,
            "--uri",
            f"jms:queue:{name}",
            "--processes",
            "2",
            "--path",
            "/soap",
        ]
        with (
            soapjms.connect(activemq.stomp_url) as connection,
            started("bridge", "wsgi", "wsgi_greeter:application", *options) as bridge,
            soapjms.Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
        ):
            bridge.until_serving(2)
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            bridge.process.send_signal(signal.SIGTERM)
            assert bridge.ended() == 0

    if sys.version_info < (3, 12):  # spyne imports what 3.12 took out

        def test_spyne(self, activemq: RealBroker) -> None:
            """A real application of spyne, unchanged: an answer, its own fault, what it refuses, a failure."""
            name = fresh()
            options = ["--connection", activemq.stomp_url, "--uri", f"jms:queue:{name}"]

            def asked(who: str, times: str = "1") -> str:
                return envelope().decode().replace(">World<", f"><name>{who}</name><times>{times}</times><")

            with (
                soapjms.connect(activemq.stomp_url) as connection,
                started("bridge", "wsgi", "spyne_greeter:application", *options, PYTHONWARNINGS="default") as bridge,
                soapjms.Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
            ):
                bridge.until_serving()
                answer = client.call(asked("Jürgen", "2"))
                assert answer.envelope.body.findtext(".//{*}greetMeResult") == "Hello Jürgen, Hello Jürgen"
                assert answer.findings() == ()
                for body, text in [
                    (asked(""), "whom shall I greet"),
                    (asked("Ann", "two"), "'two' is not a valid value"),
                    (asked("nobody"), "^Internal Error$"),
                ]:
                    with pytest.raises(soapjms.SoapFaultError, match=text):
                        client.call(body).raise_for_fault()

    def test_a_broker_that_goes(self, activemq: RealBroker) -> None:
        """503 while it is away, and /ready says no; when it is back the bridge goes on."""
        name = fresh()
        with (
            Proxy(activemq.host, activemq.ports.stomp) as proxy,
            soapjms.connect(activemq.stomp_url) as connection,
            soapjms.Dispatcher(connection, f"jms:queue:{name}", greeter()),
            started(
                "bridge", "http", f"--to=jms:queue:{name}", "--listen=127.0.0.1:0", "--health=127.0.0.1:0",
                "--timeout=10", f"--connection={proxy.stomp_url}", "--log-level=ERROR",
            ) as bridge,
        ):  # fmt: skip
            health = at(until(bridge, r"health at port (\d+): .*")[1])
            listener = at(until(bridge, r"bridging http://127\.0\.0\.1:(\d+)/ to .*")[1])
            assert ask(listener, envelope()).status == 200
            proxy.leave()
            eventually(lambda: ask(listener, envelope()).status == 503, "it is told")
            eventually(lambda: ask(health, None, path="/ready").status == 503, "it is not ready")
            assert ask(health, None, path="/live").status == 200
            proxy.come_back()
            eventually(lambda: ask(listener, envelope()).status == 200, "it goes on")


def test_https(tmp_path: Path) -> None:
    """With a certificate the bridge speaks TLS."""
    authority = trustme.CA()
    leaf = tmp_path / "leaf.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(leaf)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    with (
        soapjms.connect(f"embedded:{fresh('broker')}") as connection,
        soapjms.Dispatcher(connection, "jms:queue:a", greeter()),
        HttpBridge(connection, "jms:queue:a", timeout=PATIENCE) as bridge,
        Listener(bridge, "localhost:0", certificate=str(leaf)) as listener,
    ):
        request = urllib.request.Request(
            f"https://localhost:{listener.port}/", envelope(), {"Content-Type": "text/xml"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as response:
            assert b"Hello World" in response.read()


LISTEN = ["--listen", "127.0.0.1:0"]
BROKER = "the URL of a broker"
AT = [*LISTEN, "--connection", BROKER]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["http", *AT], "give --to, such as jms:queue:bank, or --wsdl, or both"),
        (["http", *LISTEN, "--to", "jms:queue:a"], "give --connection, such as stomp://"),
        (["http", "--to", "jms:queue:a"], "Missing option '--listen'"),
        (["http", *AT, "--to", "jms:nowhere"], "jms:nowhere"),
        (["http", *AT, "--to", "jms:queue:a", "--to", "jms:queue:b"], "/ must be given only once"),
        (["http", *AT, "--to", "/a=jms:queue:a", "--to", "/a/=jms:queue:b"], "/a must be given only once"),
        (["http", *AT, "--to", "jms:queue:a", "--set", "priority=99"], "priority"),
        (["http", *AT, "--wsdl", "none.wsdl"], "none.wsdl"),
        (["http", *AT, "--wsdl", f"{ECHO[soapjms.SoapVersion('1.1')]}#None"], "no port 'None'"),
        (["http", *AT, "--wsdl", PROPERTIES], f"; choose one with --wsdl {PROPERTIES}#PORT"),
        (["http", *AT, "--to", "jms:queue:a", "--cert", "none.pem"], "none.pem"),
        (
            ["http", *AT, "--to", "jms:queue:a", "--cert", __file__],
            "the file of the certificate has no certificate in PEM",
        ),
        (["http", *AT, "--to", "jms:queue:a", "--key", __file__], "key must come with its certificate"),
        (["http", *AT, "--to", "jms:queue:a", "--public-url", "soap.example.org"], "a URL such as https://"),
        (["http", "--listen", "8080", "--connection", BROKER, "--to", "jms:queue:a"], "must be HOST:PORT"),
        (["http", *LISTEN, "--connection", "stomp://me:secret@127.0.0.1:1", "--to", "jms:queue:a"], "no connection"),
        (["wsgi", "wsgi_greeter", "--connection", BROKER, "--uri", "jms:queue:a"], "must be MODULE:NAME"),
        (["wsgi", "none:app", "--connection", BROKER, "--uri", "jms:queue:a"], "cannot be imported"),
        (
            ["wsgi", "wsgi_greeter:none", "--connection", BROKER, "--uri", "jms:queue:a"],
            "wsgi_greeter.py has no 'none'; its callables are: application",
        ),
        (["wsgi", "wsgi_greeter:NS", "--connection", BROKER, "--uri", "jms:queue:a"], "must be a WSGI app"),
        (["wsgi", "wsgi_greeter:application", "--connection", BROKER], "give either --uri or --wsdl"),
    ],
)
def test_bad_input(arguments: list[str], text: str, shared_url: str) -> None:
    """One clear message, status 2, no traceback and no password."""
    done = process("bridge", *(shared_url if each == BROKER else each for each in arguments), cwd=SERVICES)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b""), said
    assert text in said
    assert "Error: " in said
    assert "soapjms.serve" not in said
    assert "Traceback" not in said
    assert "secret" not in said


@pytest.mark.parametrize("url", ["embedded:", "EMBEDDED:nobody"])
def test_nobody_is_in_an_embedded_broker(url: str) -> None:
    """It is refused at once, with what to do."""
    done = process("bridge", "http", *LISTEN, "--to", "jms:queue:a", "--connection", url, cwd=SERVICES)
    (line,) = [each for each in done.stderr.decode().splitlines() if each.startswith("Error: ")]
    assert (done.returncode, done.stdout) == (2, b"")
    assert line.startswith(f"Error: --connection '{url}' is a broker inside of this process, where no service is. Run")
    assert line.endswith("; or bridge from the program that serves, with soapjms.bridge.http.HttpBridge")


def test_imports_from_elsewhere(tmp_path: Path, shared_url: str) -> None:
    """The error says what to allow, and the option `--allow` does."""
    words = ["bridge", "http", *LISTEN, "--connection", shared_url, "--wsdl", with_import_from_above(tmp_path)]
    refused = process(*words, cwd=tmp_path)
    assert (refused.returncode, b"or allow its folder" in refused.stderr) == (2, True)
    with started(*map(str, words), "--allow", str(tmp_path)) as bridge:
        listening = until(bridge, r"bridging http://127.0.0.1:(\d+)/ to jms:queue:ledger")
        assert b"LedgerPT" in ask(at(listening[1]), None, path="/?doc=1").body
        bridge.process.terminate()
        assert bridge.ended() == 0
