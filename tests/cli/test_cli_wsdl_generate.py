"""`soapjms wsdl generate` as a user types it: what it writes and prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result
from codegen_kit import BANK
from places import ROOT

from soapjms.cli.commands import soapjms


def run(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(soapjms, ["wsdl", "generate", *map(str, arguments)])


def test_it_prints_what_it_wrote_and_how_to_use_it(tmp_path: Path) -> None:
    """The files, and three lines of Python that run as they stand but for the arguments."""
    done = run(BANK, "--package", "bank_client", "--out", tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    files, _, example = done.stdout.partition("\nUse it like this, with what is sent in place of …:\n\n")
    assert files.split() == sorted(map(str, (tmp_path / "bank_client").iterdir()))
    assert example.splitlines()[-1].endswith("print(client.transfer(bank_client.Transfer(…)))")
    assert len(example.splitlines()) == 3
    program = example.replace("stomp://localhost:61613", "embedded:").replace(
        "print(client.transfer(bank_client.Transfer(…)))", "print(client.contract.port)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr) == ("BankJms\n", "")


def test_json(tmp_path: Path) -> None:
    """One object and nothing else."""
    done = run(BANK, "--package", "bank_client", "--out", tmp_path, "--json")
    said = json.loads(done.stdout)
    assert (said["package"], said["port"]) == ("bank_client", "BankJms")
    assert sorted(said["files"]) == sorted(map(str, (tmp_path / "bank_client").iterdir()))


def test_usage(tmp_path: Path) -> None:
    """Mistakes end with status 2 and one line that says what to do; nothing is written."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.py").write_text("x = 1\n")
    greeter = ROOT / "examples/greeter.wsdl"
    for arguments, said in (
        ((tmp_path / "none.wsdl", "--package", "a"), "which does not exist"),
        ((BANK, "--package", "a-b"), "package must be a Python identifier"),
        ((BANK, "--package", "mine"), "was not generated"),
        ((greeter, "--package", "a"), "choose one of: Greeter/GreeterPort, Greeter/GreeterPort12"),
        ((greeter, "--package", "a", "--port", "b"), "choose one of"),
    ):
        done = run(*arguments, "--out", tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["mine"]


def test_schemas_that_are_not_valid(tmp_path: Path) -> None:
    """They are refused, unless --no-validate is given."""
    (tmp_path / "bank.xsd").write_bytes(BANK.with_name("bank.xsd").read_bytes())
    path = tmp_path / "bank.wsdl"
    text = BANK.read_text("utf-8")
    path.write_text(text.replace('<xs:element name="limit"', '<xs:element minOccurs="2" name="limit"'))
    assert "not valid XML Schema" in run(path, "--package", "bank_client", "--out", tmp_path).stderr
    assert run(path, "--package", "bank_client", "--out", tmp_path, "--no-validate").exit_code == 0
