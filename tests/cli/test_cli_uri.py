"""The command `soapjms uri parse` as a user types it: what it prints, in words and as JSON, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result
from places import ROOT

from soapjms.cli.commands import soapjms


def run(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(soapjms, ["uri", *arguments])


def parsed(*arguments: str) -> dict[str, Any]:
    """Run `uri parse --json` and return what it printed, one object and nothing else."""
    said = json.loads(run("parse", "--json", *arguments).stdout)
    assert isinstance(said, dict)
    return said


def test_json_of_a_valid_uri() -> None:
    """The members of the JSON form, with the requestURI that is derived; exit status 0."""
    uri = "jms:jndi:jms%2FOrders?jndiURL=tcp%3A%2F%2Fh%3A1&a=1&a=2&targetService=ledger"
    done = run("parse", "--json", uri)
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "well_formed": True,
        "valid": True,
        "variant": "jndi",
        "destination": "jms/Orders",
        "parameters": [["jndiURL", "tcp://h:1"], ["a", "1"], ["a", "2"], ["targetService", "ledger"]],
        "request_uri": "jms:jndi:jms%2FOrders?a=1&a=2",
        "findings": [{"code": "repeated", "text": "the parameter 'a' is repeated; the last one counts"}],
    }


@pytest.mark.parametrize(
    ("uri", "mode", "well_formed", "valid"),
    [
        ("jms:jndi:a/b", "lenient", True, True),
        ("jms:jndi:a/b", "draft-03", True, True),
        ("jms:jndi:a/b", "strict", False, False),
        ("jms:queue:q?priority=10", "strict", True, False),
        ("jms:queue:q?priority=10", "draft-03", True, False),
        ("jms:queue:q?priority=10", "lenient", True, True),
        ("jms:queue:q%", "lenient", False, False),
        ("jms:queue:in box", "lenient", False, False),
        ("", "lenient", False, False),
    ],
)
def test_modes_and_exit_status(uri: str, mode: str, well_formed: bool, valid: bool) -> None:
    """The exit status is 0 if the URI is valid in the mode, else 1, with JSON and without."""
    said = parsed(uri, "--mode", mode)
    assert (said["well_formed"], said["valid"]) == (well_formed, valid)
    assert run("parse", uri, "--mode", mode, "--json").exit_code == (0 if valid else 1)
    done = run("parse", uri, "--mode", mode)
    assert done.exit_code == (0 if valid else 1)
    verdict = "VALID" if valid else "WELL-FORMED, NOT VALID" if well_formed else "NOT WELL-FORMED"
    assert done.stdout.startswith(f"{verdict} by the grammar {mode}\n")


def test_lenient_is_the_default() -> None:
    """Reading defaults to lenient."""
    assert parsed("jms:jndi:a/b?x&y=/") == parsed("jms:jndi:a/b?x&y=/", "--mode", "lenient")


def test_a_malformed_uri_has_no_request_uri() -> None:
    """What cannot be read as a URI is derived from in no way; what has no variant has null there."""
    assert parsed("jms:queue:q%?a=1")["request_uri"] is None
    said = parsed("http://example.com/q")
    assert (said["variant"], said["destination"], said["request_uri"]) == (None, None, None)


def test_the_table() -> None:
    """Every part and every finding stands on a line, with its position."""
    lines = run("parse", "jms:queue:a%2Fb?note=x%20y&note&priority=11").stdout.splitlines()
    words = [line.split() for line in lines]
    assert ["variant", "queue"] in words
    assert ["destination", "a/b"] in words
    assert ["parameter", "note", "x", "y"] in words
    assert ["parameter", "note", "-"] in words
    assert ["requestURI", "jms:queue:a%2Fb?note=x%20y&note"] in words
    assert any("27" in line and "note" in line and "noValue" in line for line in words)
    assert any("32" in line and "priority" in line and "'11';" in line for line in words)


def test_nothing_to_say() -> None:
    """A URI without findings has no table of them."""
    assert "finding" not in run("parse", "jms:queue:q").stdout


@pytest.mark.parametrize("options", [[], ["--json"], ["--mode", "strict"], ["--json", "--mode", "draft-03"]])
@pytest.mark.parametrize(
    "uri",
    [
        "jms:queue:q?password=hunter2",
        "jms:queue:q?jndi-java.naming.security.credentials=hunter2&a=1",
        "jms:queue:q?a=1&password=hunter2/%zz%E9&password=hunter2",
        "jms:queue:q?jndiURL=tcp://me:hunter2@host",
        "jms:jndi:ldap://me:hunter2@host/cn=q",
        "jms:queue:q%?token=hunter2",
        "jms:jndi:ldap%3A%2F%2Fme%3Ahunter2%40host",
        "jms:ldap%3A%2F%2Fme%3Ahunter2%40host:q",
        "jms:queue:q?password%3Dhunter2",
    ],
)
def test_no_secret_is_printed(uri: str, options: list[str]) -> None:
    """What looks like a secret is shown as ***, also in the requestURI and the findings."""
    done = run("parse", uri, *options)
    assert "hunter2" not in done.stdout + done.stderr
    assert "***" in done.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nothing_printed_acts_on_a_terminal(options: list[str]) -> None:
    """Control characters, line ends and marks of direction are escapes, whether they come escaped or plain."""
    for uri in (
        "jms:queue:a%1B%5B31m%E2%80%AE%0A?b%0D=%00%C2%9B",
        "jms:queue:a\x1b[31m\u202e\n?b\r=\x9b",
        "jms:\x07:q",
    ):
        printed = run("parse", uri, *options).stdout
        assert all(line.isprintable() for line in printed.split("\n"))


def test_marks_of_the_terminal_library_are_plain_text() -> None:
    """A name in square brackets is printed as it is."""
    assert "[bold]a[/bold]" in run("parse", "jms:queue:%5Bbold%5Da%5B/bold%5D").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["parse"], "Missing argument 'URI'"),
        (["parse", "a", "b"], "unexpected extra argument"),
        (["parse", "jms:queue:q", "--mode", "loose"], "'strict', 'draft-03', 'lenient'"),
        (["format", "jms:queue:q"], "No such command 'format'"),
    ],
)
def test_usage(arguments: list[str], said: str) -> None:
    """A wrong command line ends with 2, says why on standard error, and prints nothing else."""
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_help() -> None:
    """The command is listed, and its help says what the exit status means."""
    assert "uri " in CliRunner().invoke(soapjms, ["--help"]).stdout
    assert "Exit status: 0 the URI is valid, 1 it is not, 2 usage." in run("parse", "--help").stdout


def test_as_a_process() -> None:
    """The exit status reaches the shell; an argument that is no UTF-8 is a finding, no crash."""
    command = [sys.executable, "-m", "soapjms.cli", "uri", "parse", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}
    for uri, status in ((b"jms:queue:q", 0), (b"jms:queue:q\xe9", 1)):
        done = subprocess.run([*command, uri], env=environment, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (status, b"")
        assert json.loads(done.stdout)["well_formed"] is (status == 0)


def test_a_character_that_the_output_cannot_encode() -> None:
    """It is printed as an escape, as on stderr, and is no error."""
    done = subprocess.run(
        [sys.executable, "-m", "soapjms", "uri", "parse", "jms:queue:R%C3%A9s"],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "R\\xe9s" in done.stdout
