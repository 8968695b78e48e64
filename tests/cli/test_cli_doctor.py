"""The command `soapjms doctor` as a user types it: what it finds, what it says against that, and how it ends."""

from __future__ import annotations

import json
import re
import socket
import ssl
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from calling_kit import arrivals, eventually, fresh, request_message, take_one
from cli_kit import process, run, said
from places import ROOT
from ports import nobody
from real_brokers import RealBroker
from wsdl_kit import DATA

import soapjms
from brokers import queue
from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker
from brokers.schemes import SCHEMES
from soapjms.doctor import CHECKS, CheckFinding, CheckOutcome, Patient, examine
from soapjms.doctor.checks import EXTRAS, WAYS

NAMES = [each.name for each in CHECKS]


def found(*arguments: object, status: int = 0) -> dict[str, dict[str, Any]]:
    """Run it and return what each check found."""
    checks = said("doctor", "--timeout", "20", *arguments, status=status)["checks"]
    assert [each["check"] for each in checks] == NAMES
    for each in checks:
        assert (each["command"] is None) is (each["outcome"] in ("ok", "skipped")), each
    return {each["check"]: each for each in checks}


def outcomes(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Keep the outcomes, without those of this machine."""
    return {name: each["outcome"] for name, each in checks.items() if name in NAMES[4:]}


def test_all_is_well(tmp_path: Path) -> None:
    """Each check in a line, with what was seen; status 0."""
    done = run("doctor", "--connection", "embedded:", "--uri", "jms:queue:greeter", "--out", tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"ok +Python +3\.1\d\.\d+.*", lines[0])
    assert "ok      address         jms:queue:greeter leads to queue:greeter" in lines
    assert re.search(r"^ok +round trip +\d+\.\d ms to a temporary queue and back$", done.stdout, re.MULTILINE)
    assert re.search(r"^skipped +clock +the broker does not show its time$", done.stdout, re.MULTILINE)


def test_without_a_broker() -> None:
    """What is on this machine is checked; what needs the broker is not tried."""
    checks = found(status=1)
    assert outcomes(checks) == {"address": "skipped", "broker port": "failed"} | dict.fromkeys(NAMES[6:], "skipped")
    assert checks["broker port"]["command"] == "export SOAPJMS_CONNECTION=stomp://USER:PASSWORD@HOST:61613"
    assert checks["login"]["text"] == "needs: broker port"


def test_nobody_listens() -> None:
    """Each broker of a list is named; what mends it depends on whose machine it is."""
    with nobody() as port:
        checks = found("--connection", f"stomp://me:secret@127.0.0.1:{port},localhost:{port}", status=1)
    assert checks["broker port"]["text"].count("refused") == 2
    assert checks["broker port"]["command"] == "docker compose up --wait activemq"
    assert "secret" not in str(checks)
    away = found("--connection", "amqp://broker.invalid", status=1)["broker port"]
    assert away["text"].startswith("broker.invalid:5672: ")
    assert away["command"] == "export SOAPJMS_CONNECTION=amqp://USER:PASSWORD@HOST:5672"


@pytest.mark.parametrize(
    "url", ["carrier-pigeon://x", "stomp://me:secret@host:99999", "failover:()", "failover:(failover:x)"]
)
def test_no_url(url: str) -> None:
    """It is said, without what may be a password."""
    checks = found("--connection", url, status=1)
    assert checks["broker port"]["outcome"] == "failed"
    assert "secret" not in str(checks)


def test_no_broker_behind_the_port() -> None:
    """It is open, and nobody speaks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        checks = found("--connection", url, "--timeout", "1", status=1)
    assert (checks["broker port"]["outcome"], checks["login"]["outcome"]) == ("ok", "failed")
    assert "did not answer" in checks["login"]["text"]


@pytest.mark.parametrize(
    ("parameters", "text", "command"),
    [
        ("", "is not trusted here", "export SOAPJMS_CA_FILE=/etc/ssl/broker-ca.pem"),
        ("caFile={key}", "no certificate in PEM", "export SOAPJMS_CONNECTION='{url}?caFile=/etc/ssl/broker-ca.pem'"),
        ("certFile={cert}", "has no key", "export SOAPJMS_KEY_FILE=/etc/ssl/client.key"),
        ("keyFile={key}", "(certFile, SOAPJMS_CERT_FILE) is missing", "export SOAPJMS_CERT_FILE=/etc/ssl/client.pem"),
        ("caFile={ca}", "another name than 127.0.0.1", "export SOAPJMS_CONNECTION='{url}?serverName=NAME'"),
    ],
)
def test_unsuitable_tls(tmp_path: Path, parameters: str, text: str, command: str) -> None:
    """The remedy is for what was found: a variable, or the URL if the parameter is there already."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = authority.issue_cert("localhost")
    made.configure_cert(tls)
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    made.cert_chain_pems[0].write_to_path(files["cert"])
    made.private_key_pem.write_to_path(files["key"])
    with Listener(Broker(), "127.0.0.1", 0, Options(tls=tls)) as listener:
        login = found("--connection", f"{listener.url}?{parameters.format(**files)}", status=1)["login"]
    assert text in login["text"]
    assert login["command"] == command.format(url="amqps://USER:PASSWORD@HOST:5671")
    assert login["page"] == "docs/brokers.md#tls"


def test_an_expired_certificate(tmp_path: Path) -> None:
    """No setting of the client helps: the command shows the dates of the broker's certificate."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1)).configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with Listener(Broker(), "127.0.0.1", 0, Options(tls=tls)) as listener:
        login = found("--connection", f"{listener.url}?caFile={tmp_path}/ca.pem", status=1)["login"]
    assert "certificate has expired" in login["text"]
    place = listener.url.partition("://")[2]
    assert login["command"] == f"openssl s_client -connect {place} </dev/null | openssl x509 -noout -subject -dates"


def test_a_broker_whose_name_cannot_be() -> None:
    """It fails like one that nobody has."""
    assert "not a valid name" in found("--connection", "stomp://a..b:1", status=1)["broker port"]["text"]


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the broker's URL fails; another is a note. Both say what to install."""
    monkeypatch.setitem(sys.modules, "stomp", None)
    monkeypatch.setitem(sys.modules, "zeep", None)
    needed = found("--connection", "failover:(stomp://broker.invalid)", status=1)["extras"]
    assert (needed["outcome"], needed["command"]) == ("failed", "pip install 'soapjms[stomp]'")
    assert needed["page"] == "docs/install.md"
    other = found("--connection", "embedded:")["extras"]
    assert (other["outcome"], other["command"]) == ("note", "pip install 'soapjms[stomp,zeep]'")


def test_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which it has to be, and how to get there."""
    monkeypatch.setattr(sys, "version_info", (3, 15, 0))
    assert found("--connection", "embedded:", status=1)["Python"]["command"] == "python3.14 -m venv .venv"


@pytest.mark.parametrize(
    ("script", "text"),
    [(None, "no bin/java"), ("exit 1", "too old"), ("echo 'openjdk version \"1.8.0_9\"' >&2", "too old"), ("#", "")],
)
def test_java(tmp_path: Path, script: str | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Spark needs it, so it is a note."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if script is not None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(script if script == "#" else f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    java = found("--connection", "embedded:")["Java"]
    assert java["outcome"] == "note"
    assert text in java["text"]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert "no java on the PATH" in found("--connection", "embedded:")["Java"]["text"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The command makes it, and gives the right to write."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "captures", Path("/proc/captures")):
        seen = found("--connection", "embedded:", "--out", folder, status=1)["capture folder"]
        assert seen["outcome"] == "failed"
        assert seen["command"] == f"mkdir -p {folder} && chmod u+rwx {folder}"


@pytest.mark.parametrize(("skew", "outcome"), [(0, "ok"), (-3, "note"), (60, "failed"), (-60, "failed")])
def test_clocks(skew: int, outcome: str) -> None:
    """A small difference is noted, a large one fails; it says which way."""
    url = f"embedded:{fresh('broker')}"
    with soapjms.connect(url, clock=lambda: time.time_ns() // 1_000_000 + skew * 1000):
        clock = found("--connection", url, status=1 if outcome == "failed" else 0)["clock"]
    assert clock["outcome"] == outcome
    assert ("ahead of" if skew > 0 else "behind") in clock["text"] or not skew
    assert clock["command"] == (None if outcome == "ok" else "timedatectl set-ntp true")


def without_address(folder: Path) -> Path:
    """Write a WSDL whose port says no place that there could be."""
    path = folder / "bad.wsdl"
    text = (DATA / "echo-soap12.wsdl").read_text(encoding="utf-8")
    path.write_text(text.replace("jms:queue:CXF.ECHO.12", "bogus"), encoding="utf-8")
    return path


def test_addresses(tmp_path: Path) -> None:
    """A WSDL's port, JNDI names that lead to the broker, and what leads nowhere."""
    assert found("--connection", "embedded:", "--wsdl", DATA / "echo-soap12.wsdl")["address"]["text"] == (
        "jms:queue:CXF.ECHO.12 leads to queue:CXF.ECHO.12"
    )
    (tmp_path / "names.toml").write_text('[queues]\nA = "a"\n[connection_factories]\nConnectionFactory = "embedded:"\n')
    checks = found("--names", tmp_path / "names.toml", "--uri", "jms:jndi:A")
    assert checks["address"]["text"] == "jms:jndi:A leads to queue:a"
    assert checks["login"]["text"] == "embedded"
    wrong = found("--connection", "embedded:", "--uri", "jms:jndi:A", status=1)["address"]
    assert "no destination is registered" in wrong["text"]
    assert wrong["command"] == "soapjms doctor --uri jms:jndi:A --names FILE.toml"
    bogus = found("--connection", "embedded:", "--uri", "bogus", status=1)["address"]
    assert "a JMS URI begins with jms:" in bogus["text"]
    assert bogus["command"] == "soapjms doctor --uri jms:queue:NAME"
    port = found("--connection", "embedded:", "--wsdl", without_address(tmp_path), status=1)["address"]
    assert port["command"] == "soapjms wsdl lint FILE.wsdl"


def test_usage() -> None:
    """What cannot be asked is status 2."""
    for arguments in (["--uri", "jms:queue:a", "--wsdl", "x"], ["--timeout", "0"], ["--wsdl", "none.wsdl"]):
        assert run("doctor", "--connection", "embedded:", *arguments).exit_code == 2


@pytest.mark.broker
def test_on_activemq(activemq: RealBroker, tmp_path: Path) -> None:
    """All of it, as a process; the queue keeps its message."""
    name = fresh()
    with soapjms.connect(activemq.stomp_url) as connection:
        connection.send(request_message(name, None)).result(9)
        done = process("doctor", "--uri", f"jms:queue:{name}", cwd=tmp_path, SOAPJMS_CONNECTION=activemq.stomp_url)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"failed" not in done.stdout
        assert f"queue:{name} may be consumed from; no message was taken".encode() in done.stdout
        assert take_one(connection, queue(name)).destination == queue(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq", "artemis"])
def test_what_the_broker_refuses(broker: str, request: pytest.FixtureRequest) -> None:
    """A wrong password, and a queue that the user may not read."""
    real: RealBroker = request.getfixturevalue(broker)
    wrong = found("--connection", real.stomp_url.replace("admin:admin@", "admin:hunter2@"), status=1)
    assert (wrong["broker port"]["outcome"], wrong["login"]["outcome"]) == ("ok", "failed")
    assert wrong["login"]["page"] == "docs/brokers.md#login"
    assert "hunter2" not in str(wrong)
    limited = real.stomp_url.replace("admin:admin@", "limited:limited@")
    checks = found("--connection", limited, "--uri", "jms:queue:forbidden.a", status=1)
    assert checks["destination"]["outcome"] == "failed"
    assert "limited" in checks["destination"]["text"]
    # On that Artemis the user may not make temporary queues either.
    assert checks["round trip"]["outcome"] == ("ok" if broker == "activemq" else "failed")


@pytest.mark.broker
@pytest.mark.parametrize(
    ("broker", "protocol", "option", "uri", "outcome"),
    [
        ("activemq", "amqp", "", "jms:queue:a", "ok"),
        ("activemq", "ws", "", "jms:queue:a", "ok"),
        ("activemq", "stomp", "", "jms:queue:a", "skipped"),
        ("artemis", "amqp", "", "jms:queue:a", "note"),
        ("artemis", "amqp", "?idle=5000&temporaryQueues=topics", "jms:queue:a", "skipped"),
        ("artemis", "amqp", "", "jms:queue:a?replyToName=r", "skipped"),
        ("artemis", "stomp", "", "jms:queue:a", "skipped"),
    ],
)
def test_other_clients(
    broker: str, protocol: str, option: str, uri: str, outcome: str, request: pytest.FixtureRequest
) -> None:
    """What they make of messages and of temporary queues; a connector that is not as it has to be is another test's."""
    url = getattr(request.getfixturevalue(broker), f"{protocol}_url") + option
    seen = found("--connection", url, "--uri", uri)["other clients"]
    assert seen["outcome"] == outcome
    if outcome == "note":
        assert "replyToName" in seen["text"]
        assert (seen["command"] or "").startswith("export SOAPJMS_CONNECTION=amqp://")
        assert (seen["command"] or "").endswith("?temporaryQueues=topics")


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq", "artemis"])
def test_replies_that_nobody_takes(broker: str, request: pytest.FixtureRequest) -> None:
    """So many that ActiveMQ Classic looks no further are found, and a few are not; nothing is taken."""
    real: RealBroker = request.getfixturevalue(broker)
    name = fresh()
    arguments = "--connection", real.stomp_url, "--uri", f"jms:queue:a?replyToName={name}", "--timeout", "5"

    def leave(count: int) -> None:
        sent = [connection.send(request_message(name, None, correlation_id=f"gone-{each}")) for each in range(count)]
        for each in sent:
            each.result(9)

    with soapjms.connect(real.stomp_url) as connection:
        leave(20)
        few = found(*arguments)["reply queue"]
        assert (few["outcome"], few["text"]) == ("ok", f"a message to queue:{name} reached its selector")
        for each in range(5 if broker == "activemq" else 1):  # one that is busy looks further at times
            leave(600)
            number = 20 + 600 * (each + 1)
            many = json.loads(run("doctor", *arguments, "--json").stdout)["checks"][NAMES.index("reply queue")]
            if many["outcome"] == "failed":
                break
        assert many["outcome"] == ("ok" if broker == "artemis" else "failed")
        if broker == "activemq":
            assert many["command"] == f"activemq purge {name}"
        eventually(lambda: real.counters().messages.get(name, 0) >= number, "nothing was taken")
        with arrivals(connection, queue(name)) as left:
            found_there = left.take(number + (many["outcome"] == "failed"))  # the doctor's own among them, if not taken
            assert sum((each.correlation_id or "").startswith("gone-") for each in found_there) == number


@pytest.mark.broker
def test_over_amqp(activemq: RealBroker) -> None:
    """Where the time of a message is the sender's, nothing is said of clocks."""
    checks = found("--connection", activemq.amqp_url)
    assert (checks["round trip"]["outcome"], checks["clock"]["outcome"]) == ("ok", "skipped")


# The table


def slug(heading: str) -> str:
    """Return what a page calls a heading in its address."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def test_the_pages_are_there() -> None:
    """Each that a hint may name, with its heading."""
    program = "".join(each.read_text() for each in (ROOT / "soapjms" / "doctor").glob("*.py"))
    pages = set(re.findall(r'"((?:docs/|README)[^"]*)"', program))
    assert pages >= {each.page for each in CHECKS}
    for page in pages:
        path, _, heading = page.partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
        assert not heading or heading in map(slug, headings), page


def test_the_extras_are_those_of_the_package() -> None:
    """All that a user may install for a program, but for those that others consist of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"parquet", "all", "testing", "test", "dev"}


def test_every_scheme_is_known() -> None:
    """With its port, unless the broker is in this process."""
    assert set(WAYS) == set(SCHEMES) - {"failover"}
    assert [scheme for scheme, way in WAYS.items() if not way.port] == ["embedded"]


@pytest.mark.parametrize("scheme", [scheme for scheme in WAYS if scheme != "embedded"])
def test_each_scheme_is_tried_at_its_port(scheme: str) -> None:
    """Also within a list; no mistake of ours comes of it."""
    for url in (f"{scheme}://broker.invalid", f"failover:({scheme}://broker.invalid)"):
        seen = found("--connection", url, status=1)["broker port"]
        assert seen["text"].startswith(f"broker.invalid:{WAYS[scheme].port}: ")


def test_in_python() -> None:
    """A program gets the findings one by one; a hint says where to read on and what to type."""
    with Patient() as patient:
        findings = list(examine(patient))
    (failed,) = [each for each in findings if each.outcome is CheckOutcome.FAILED]
    assert failed.hint == f"see {failed.page}; type: {failed.command}"
    assert CheckFinding("a", CheckOutcome.OK, "b").hint is None
