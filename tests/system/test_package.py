"""What `import soapjms` gives, and says where another package is in its way."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import brokers
import soapjms


def test_public_names() -> None:
    """Every public name is there; `connect` is that of `brokers`."""
    assert all(hasattr(soapjms, name) for name in soapjms.__all__)
    assert soapjms.connect is brokers.connect


def test_what_is_installed() -> None:
    """Both packages and the pages: whoever installs soapjms has brokers too, and nothing else of the repository."""
    root = Path(soapjms.__file__).parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == ["soapjms", "brokers", "docs"]


def test_what_is_pinned() -> None:
    """What the package and its tests need is in requirements.lock, by hash, in a version that is let in."""
    root = Path(soapjms.__file__).parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    entries = re.split(r"\n(?=[a-z])", (root / "requirements.lock").read_text("utf-8"))
    assert all("--hash=sha256:" in each for each in entries)
    pinned = dict(each.split(None, 1)[0].split("==") for each in entries)
    extras = settings["optional-dependencies"].values()
    for each in map(Requirement, [*settings["dependencies"], *chain.from_iterable(extras)]):
        assert each.name == "soapjms" or pinned[canonicalize_name(each.name)] in each.specifier, each


@pytest.mark.parametrize("shape", ["brokers.py", "brokers/__init__.py"])
def test_another_brokers(tmp_path: Path, shape: str) -> None:
    """A module or package `brokers` of the user's own that comes first is named, with what to do."""
    path = tmp_path / shape
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    paths = [str(tmp_path), str(Path(soapjms.__file__).parent.parent)]
    program = f"import sys; sys.path[:0] = {paths!r}\nimport soapjms"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert f"soapjms needs its own package `brokers`, but Python found another at {path}" in ran.stderr
    assert "rename that one, or start Python from another folder" in ran.stderr


BRIDGE = "soapjms bridge http --listen localhost:0 --to jms:queue:a --connection embedded:".split()


@pytest.mark.parametrize(
    ("package", "program", "extra"),
    [
        ("zeep", "import soapjms.zeep", "zeep"),
        ("zeep", "import soapjms; soapjms.Service.from_wsdl('a.wsdl')", "zeep"),
        ("zeep", "from soapjms.cli import main; sys.argv = ['soapjms', 'call', 'a.wsdl', 'greetMe']; main()", "zeep"),
        ("xsdata", "from soapjms.codegen import generate_package", "codegen"),
        ("xsdata", "from soapjms.codegen import ContractClient", "codegen"),
        ("starlette", "import soapjms.bridge.http", "bridge"),
        ("uvicorn", "import soapjms.bridge.listener", "bridge"),
        ("uvicorn", f"from soapjms.cli import main; sys.argv = {BRIDGE}; main()", "bridge"),
        ("pyarrow", "from soapjms.replay import replay", "replay"),
        ("jinja2", "from soapjms.replay import replay", "replay"),
        ("duckdb", "from soapjms.replay import replay", "replay"),
        ("msgspec", "from soapjms.replay import replay", "replay"),
        ("xmlsec", "import soapjms.signatures", "wsse"),
        ("prometheus_client", "import soapjms.prometheus", "prometheus"),
        ("opentelemetry", "import soapjms.opentelemetry", "opentelemetry"),
        ("stomp", "import soapjms; soapjms.connect('stomp://localhost')", "stomp"),
        ("proton", "import soapjms; soapjms.connect('amqp://localhost')", "amqp"),
    ],
)
def test_what_is_not_installed(package: str, program: str, extra: str) -> None:
    """Whoever installed too little is told, in the last line, what to type."""
    root = str(Path(soapjms.__file__).parent.parent)
    words = [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None\n{program}"]
    done = subprocess.run(words, env={"PYTHONPATH": root}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert f"pip install 'soapjms[{extra}]'" in done.stderr.strip().splitlines()[-1]
