"""The commands `soapjms wsdl` and `soapjms explain` as a user types them: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from places import ROOT
from wsdl_kit import CR, DATA, REC, VERSIONS, line_of, with_import_from_above, wsdl, wsdl11

import soapjms as package
from soapjms.cli.commands import soapjms
from soapjms.protocol.properties import Origin
from soapjms.protocol.wsdl.as_json import members

PROPERTIES = DATA / "echo-soap11-properties.wsdl"


def run(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(soapjms, list(map(str, arguments)))


def said(*arguments: object, status: int = 0) -> Any:
    """Run a command with --json and return what it printed, one object and nothing else."""
    done = run(*arguments, "--json")
    assert (done.exit_code, done.stderr) == (status, "")
    return json.loads(done.stdout)


def written(tmp_path: Path, text: str) -> Path:
    """Write a WSDL."""
    path = tmp_path / "a.wsdl"
    path.write_text(text, encoding="utf-8")
    return path


# inspect


def test_inspect_as_json() -> None:
    """Services, ports, SOAP version, address, properties with origin, operations."""
    (port,) = said("wsdl", "inspect", DATA / "echo-soap12.wsdl")["ports"]
    assert list(port) == ["service", "port", "soap_version", "address", "properties", "operations"]
    assert (port["service"], port["port"], port["soap_version"]) == ("EchoService", "EchoPort12", "1.2")
    assert port["address"] == "jms:queue:CXF.ECHO.12"
    assert port["properties"]["priority"] == {"value": 4, "origin": "default"}
    assert port["operations"][0] == {"name": "pingMe", "soap_action": "urn:soapjms:echo/pingMe", "mep": "one-way"}


def test_inspect_in_words() -> None:
    """The same as tables."""
    done = run("wsdl", "inspect", PROPERTIES)
    assert done.exit_code == 0
    assert "EchoService/UriOverBinding SOAP/JMS, rec-2012" in done.stdout
    assert "greetMe (request-response) soapAction urn:soapjms:echo/greetMe" in done.stdout
    assert "NON_PERSISTENT" in done.stdout


def test_inspect_shows_other_ports(tmp_path: Path) -> None:
    """A port of another transport says so; one without address or version shows a dash."""
    path = written(tmp_path, wsdl11(transport="urn:other", address=None).replace("<s:binding ", "<t:binding "))
    done = run("wsdl", "inspect", path)
    assert done.exit_code == 0
    assert "LedgerService/Ledger not SOAP/JMS: transport None" in done.stdout
    assert "address    -" in done.stdout


FOREIGN = {
    "http://www.soapjms.org/2007/08/soap/bindings/JMS/": "that of the member submission of 2007",
    "http://schemas.xmlsoap.org/soap/jms": "an older id for JMS that no specification defines",
    REC[:-1]: "that of the Recommendation of 2012 without its last slash",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", FOREIGN)
def test_transports_known_in_the_field(tmp_path: Path, version: str, transport: str) -> None:
    """Inspect says what they are, as lint does; explain does not offer such a port."""
    path = written(tmp_path, wsdl(version, transport=transport))
    (port,) = said("wsdl", "inspect", path)["ports"]
    (judged,) = said("wsdl", "lint", path, status=1)["findings"]
    text = f"the transport '{transport}' is {FOREIGN[transport]}, not that of SOAP over JMS 1.0"
    assert judged["text"] == text
    assert port["not_soap_jms"] == f"{text} (SOAP/JMS 3.4.2); {judged['write']}"
    assert port["properties"] == {}
    assert f"LedgerService/Ledger not SOAP/JMS: {text}" in run("wsdl", "inspect", path).stdout
    refused = run("explain", path)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert text in refused.stderr
    assert "choose one of" not in refused.stderr
    assert text in run("explain", path, "--port", "Ledger").stderr


def test_only_soap_jms_ports_are_offered(tmp_path: Path) -> None:
    """A port of another transport is no choice, and without any other there is none."""
    port = '<wsdl:port name="{}" binding="t:LedgerJms"><s:address location="jms:queue:q"/></wsdl:port>'
    other = '<wsdl:binding name="Old" type="t:LedgerPT"><s:binding transport="http://schemas.xmlsoap.org/soap/jms"/>'
    more = port.format("Second") + port.format("Third").replace("LedgerJms", "Old")
    path = written(tmp_path, wsdl11(more=more, head=other + "</wsdl:binding>"))
    for arguments, option in (([], " (--port SERVICE/PORT)"), (["--port", "x"], "")):
        refused = run("explain", path, *arguments).stderr
        assert refused.endswith(f"; choose one of: LedgerService/Ledger, LedgerService/Second{option}\n")
    path = written(tmp_path, wsdl11(transport="urn:other", address="http://example/"))
    assert run("explain", path).stderr.endswith("no port with a SOAP/JMS transport; `soapjms wsdl add-port` adds one\n")


@pytest.mark.parametrize("command", ["inspect", "lint"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not well-formed XML"),
        ("<!DOCTYPE d>" + wsdl11(), "a document type declaration (DOCTYPE), which is refused"),
        (wsdl11(head='<wsdl:import location="http://example/x.wsdl"/>'), "nothing is fetched over a network"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, command: str, text: str, message: str) -> None:
    """One line on standard error, and status 2."""
    done = run("wsdl", command, written(tmp_path, text))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_inspect_refuses_what_cannot_be_used(tmp_path: Path, version: str) -> None:
    """A port without address, and an http address under a JMS transport."""
    for address, message in ((None, "has no address"), ("http://example/", "the address 'http://example/'")):
        done = run("wsdl", "inspect", written(tmp_path, wsdl(version, address=address)))
        assert done.exit_code == 2
        assert message in done.stderr


def test_imports_from_elsewhere(tmp_path: Path) -> None:
    """Only from folders that are allowed."""
    path = with_import_from_above(tmp_path)
    assert "allow its folder" in run("wsdl", "inspect", path).stderr
    assert run("wsdl", "inspect", path, "--allow", tmp_path).exit_code == 0
    assert run("explain", path, "--allow", tmp_path).exit_code == 0


# lint


def test_lint_finds_nothing() -> None:
    """Status 0."""
    done = run("wsdl", "lint", DATA / "echo-soap11.wsdl")
    assert (done.exit_code, done.stdout) == (0, "nothing found\n")
    assert said("wsdl", "lint", DATA / "echo-soap11.wsdl") == {"findings": []}


def test_lint_says_line_rule_and_what_to_write(tmp_path: Path) -> None:
    """A line for each finding, status 1; as JSON the same."""
    text = wsdl11(port="<j:targetService>\x85[bold]</j:targetService>")
    path = written(tmp_path, text)
    done = run("wsdl", "lint", path)
    line = line_of(text, "<j:targetService")
    assert done.exit_code == 1
    assert done.stdout == (
        f"{path}:{line}: error: targetService is an element of the port, and is no property that a WSDL declares by an "
        "element (WSDLUsage-3004); write it into the address: ?targetService=VALUE\n"
    )
    (found,) = said("wsdl", "lint", path, status=1)["findings"]
    assert list(found) == ["file", "line", "code", "severity", "rule", "text", "write"]
    assert (found["file"], found["line"], found["rule"]) == (str(path), line, "WSDLUsage-3004")


def test_what_a_wsdl_says_does_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    """Control characters are shown as escapes, brackets are no markup."""
    path = written(tmp_path, wsdl11(port="<j:priority>\u009b[bold]</j:priority>").replace('"post"', '"\u009b[bold]"'))
    for done in (run("wsdl", "lint", path), run("wsdl", "inspect", path), run("explain", path)):
        assert "\u009b" not in done.output
        assert "[bold]" in done.output


# add-port


@pytest.mark.parametrize("version", VERSIONS)
def test_add_port(tmp_path: Path, version: str) -> None:
    """What is given is what inspect shows."""
    path, out = written(tmp_path, wsdl(version)), tmp_path / "out.wsdl"
    settings = ["--set", "priority=9", "--set", "service.timeToLive=5", "--set", "binding.jndi-a.b=c=d"]
    names = ["--port", "New", "--binding", "NewJms", "--service", "LedgerService", "--interface", "LedgerPT"]
    uri = "jms:queue:new?targetService=t"
    done = run(
        "wsdl", "add-port", path, "--to", uri, "-o", out, "--soap", "1.2", "--profile", "cr-2009", *settings, *names
    )
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{out}: 2 SOAP/JMS ports\n", "")
    found = said("wsdl", "inspect", out)["ports"][1]
    assert (found["port"], found["soap_version"], found["address"]) == ("New", "1.2", uri)
    assert found["properties"]["priority"] == {"value": 9, "origin": "port"}
    assert found["properties"]["timeToLive"] == {"value": 5, "origin": "service"}
    assert found["properties"]["jndi-a.b"] == {"value": "c=d", "origin": "binding"}
    assert found["operations"] == said("wsdl", "inspect", path)["ports"][0]["operations"]
    profile = package.read_wsdl(out).port("New").profile
    assert profile is not None
    assert profile.namespace == CR


def test_add_port_to_a_service_of_another_transport(tmp_path: Path) -> None:
    """The first SOAP/JMS port of a service."""
    path = written(tmp_path, wsdl11(transport="http://schemas.xmlsoap.org/soap/http", address="http://example/"))
    done = run("wsdl", "add-port", path, "--to", "jms:queue:new", "--out", path)
    assert done.stdout == f"{path}: 1 SOAP/JMS port\n"
    assert [each["port"] for each in said("wsdl", "inspect", path)["ports"]] == ["Ledger", "LedgerServiceJms"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "http://example/"], "wrongScheme"),
        (["--to", "jms:queue:q", "--set", "priority=11"], "priority is '11' in port"),
        (["--to", "jms:queue:q", "--set", "uri.priority=1"], "unknown binding property 'uri.priority'"),
        (["--to", "jms:queue:q", "--set", "priority"], "must be NAME=VALUE"),
        (["--to", "jms:queue:q", "--service", "x"], "service must be one of"),
        (["--to", "jms:queue:q", "--soap", "2"], "'1.1', '1.2'"),
        ([], "Missing option '--to'"),
    ],
)
def test_add_port_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Nothing is written; status 2."""
    path, out = written(tmp_path, wsdl11()), tmp_path / "out.wsdl"
    done = run("wsdl", "add-port", path, "-o", out, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not out.exists()


def test_add_port_where_nothing_can_be_written(tmp_path: Path) -> None:
    """The folder is named, and the option."""
    path = written(tmp_path, wsdl11())
    done = run("wsdl", "add-port", path, "--to", "jms:queue:q", "-o", tmp_path / "missing" / "out.wsdl")
    assert done.exit_code == 2
    assert "'--out' / '-o': it must be a file for the WSDL, got" in done.stderr
    assert f"there is no folder '{tmp_path / 'missing'}'" in done.stderr


# explain


def test_explain_a_wsdl() -> None:
    """Each effective value, its origin, and what it overrides; --set is the environment."""
    found = said("explain", PROPERTIES, "--port", "UriOverBinding", "--set", "priority=9")
    assert found["uri"].startswith("jms:queue:CXF.PROPS?")
    assert found["properties"]["priority"] == {
        "value": 9,
        "origin": "environment",
        "overridden": [{"value": 1, "origin": "uri"}, {"value": 6, "origin": "binding"}],
    }
    assert found["properties"]["bindingVersion"] == {"value": "1.0", "origin": "default", "overridden": []}
    done = run("explain", PROPERTIES, "--port", "UriOverBinding", "--set", "priority=9")
    assert "1 (uri), 6 (binding)" in done.stdout


def test_explain_a_uri() -> None:
    """As a port with no markup; what is ignored is shown as such, secrets are not."""
    found = said("explain", "JMS:jndi:q?topicReplyToName=t&priority=2&jndi-java.naming.security.credentials=hunter2")
    assert found["properties"]["topicReplyToName"] == {
        "value": None,
        "origin": "ignored",
        "overridden": [{"value": "t", "origin": "uri"}],
    }
    assert found["properties"]["jndi-java.naming.security.credentials"]["value"] == "***"
    assert "hunter2" not in json.dumps(found)
    assert "t (uri)" in run("explain", "jms:jndi:q?topicReplyToName=t").stdout


def test_explain_two_names_of_one_setting() -> None:
    """The name that loses is shown, with the value that does not count."""
    given = "jndi-java.naming.provider.url=tcp://localhost:61616"
    found = said("explain", "jms:jndi:q?jndiURL=tcp%3A%2F%2Furi%3A1", "--set", given)["properties"]
    assert found["jndi-java.naming.provider.url"]["origin"] == "environment"
    assert found["jndiURL"] == {
        "value": None,
        "origin": "ignored",
        "overridden": [{"value": "tcp://uri:1", "origin": "uri"}],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_explain_both_versions(tmp_path: Path, version: str) -> None:
    """Every origin at once."""
    elements = {
        "port": "<j:timeToLive>3</j:timeToLive>",
        "service": "<j:replyToName>s</j:replyToName>",
        "binding": "<j:jndiURL>b</j:jndiURL>",
    }
    path = written(tmp_path, wsdl(version, address="jms:queue:q?priority=2", **elements))
    found = said("explain", path, "--set", "deliveryMode=NON_PERSISTENT")["properties"]
    wanted = ("deliveryMode", "priority", "timeToLive", "replyToName", "jndiURL", "bindingVersion")
    assert [found[each]["origin"] for each in wanted] == [each.lower() for each in Origin]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["jms:queue:q", "--set", "priority=11"],
            "priority is '11' in environment; accepted is an integer from 0 to 9",
        ),
        (["jms:queue:q?deliveryMode=persistent"], "deliveryMode is 'persistent' in URI; accepted is PERSISTENT or"),
        (["jms:queue:q?timeToLive=1.5"], "timeToLive is '1.5' in URI; accepted is milliseconds"),
        (["jms:queue:q?replyToName=a&topicReplyToName=b"], "in one URI; accepted is one of them"),
        (
            ["jms:queue:q", "--set", "replyToName=a", "--set", "topicReplyToName=b"],
            "replyToName is 'a' and topicReplyToName is 'b' in one environment; accepted is one of them",
        ),
        (["jms:queue:q", "--port", "x"], "a URI has no ports"),
        (["jms:queue"], "noVariant"),
        ([PROPERTIES], "more than one port with a SOAP/JMS transport; choose one of: EchoService/BindingOnly"),
        ([PROPERTIES, "--port", "x"], "no port 'x'"),
        (["missing.wsdl"], "it must be a WSDL file, got 'missing.wsdl', which does not exist"),
    ],
)
def test_explain_refuses(arguments: list[object], message: str) -> None:
    """The property, the value, the place, the rule; status 2."""
    done = run("explain", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_it_is_a_command(tmp_path: Path) -> None:
    """In a process of its own: quick to answer, quiet, without the libraries of other commands."""
    block = (
        "import sys\nfrom soapjms.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    status = end.code\n"
        "assert not {'pyspark', 'pyarrow', 'jinja2', 'zeep'} & set(sys.modules)\nsys.exit(status)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", block, "wsdl", "inspect", str(PROPERTIES), "--json"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(json.dumps(members(package.read_wsdl(PROPERTIES))))
