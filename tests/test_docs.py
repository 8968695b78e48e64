"""The generated pages are what the tables say today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import soapjms
from brokers.smqp.server.setup import Setup

ROOT = Path(__file__).resolve().parent.parent


def test_generated_pages_are_current() -> None:
    """`docs/generate.py --check` finds nothing out of date."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of the README runs as it stands, in one go; what needs zeep in tests/test_zeep_docs.py."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    blocks = [each for each in blocks if "soapjms.zeep" not in each]
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    lines = (tmp_path / "capture.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(blocks) == 3
    assert len(lines) == 4  # request and response, as the client and as the service saw them


def test_every_requirement_of_amqp_has_a_test() -> None:
    """Each row of the two AMQP specifications has a test that names it, or says why there is none."""
    page = (ROOT / "docs" / "conformance-amqp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:AT|WS)-\d\d) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == [f"AT-{n:02}" for n in range(1, 25)] + [f"WS-{n:02}" for n in range(1, 42)]
    assert [name for name, tests in rows if tests == "**none**"] == []


def test_every_requirement_of_smqp_has_a_test() -> None:
    """Each row of SMQP has a test that names it, or says why there is none; no test names a requirement that is not."""
    page = (ROOT / "docs" / "conformance-smqp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (SM-\d{3}) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(dict(rows)) == 203
    assert [name for name, tests in rows if tests == "**none**"] == []
    named = {
        f"SM-{number}"
        for path in (ROOT / "tests").glob("test_smqp*.py")
        for number in re.findall(r"SM[-_](\d{3})", path.read_text("utf-8"))
    }
    assert named <= set(dict(rows))


def test_the_page_on_smqp_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/smqp.md runs as it stands; its setup file can be read."""
    text = (ROOT / "docs" / "smqp.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), "smqp.md", "exec"), {})
    (setup,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "b.password").write_text("x")
    (tmp_path / "smqp.toml").write_text(setup)
    assert Setup.read(tmp_path / "smqp.toml").context == "mq.example"


def test_the_page_on_bridges_runs() -> None:
    """The Python of docs/bridges.md runs as it stands."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/bridges.md", "exec"), scope)
    assert isinstance(scope["service"], soapjms.Service)
