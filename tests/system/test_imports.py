"""Modules that are imported at the start: only what is used. Importing costs more than all else that a start does."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest
from imports import ROOT, tree_of

import brokers
import soapjms
import soapjms.capture

SLOW = frozenset(
    "asyncio concurrent.futures.process email http importlib.metadata multiprocessing urllib.request xml "
    "click pandas pyarrow pyspark proton rich starlette stomp websockets xmlsec zeep".split()
)
"""Modules that take long to import, and are not for every program."""

STARTS = {
    "import soapjms": SLOW | {"dataclasses", "lxml", "logging", "sqlite3", "ssl", "tomllib"},
    "import brokers": SLOW | {"dataclasses", "logging", "ssl"},
    "from soapjms import Client, connect": SLOW | {"soapjms.protocol.wsdl.write", "soapjms.service"},
    "from soapjms import Dispatcher, Service, connect": SLOW | {"soapjms.protocol.wsdl.write", "soapjms.service.typed"},
    "from soapjms.cli import main; sys.argv = ['soapjms', '--help']; main()": (SLOW - {"click"})
    | {"lxml", "soapjms.client", "soapjms.cli.call", "soapjms.cli.terminal", "soapjms.service", "ssl", "tomllib"},
}
"""What must not be imported, by program. A package stands for the modules below it, too."""


def imported(program: str) -> set[str]:
    """Return the modules that a program imports, and no program without an import does."""
    words = (
        f"import atexit, sys\natexit.register(lambda: print('', *sys.modules, sep='\\n', file=sys.stderr))\n{program}"
    )
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize("program", STARTS)
def test_slow_modules_are_imported_when_they_are_used(program: str) -> None:
    """A start imports nothing that only some programs need."""
    seen = imported(program) - imported("pass")
    assert "brokers.public_names" in seen
    assert sorted(name for name in seen for slow in STARTS[program] if f"{name}.".startswith(f"{slow}.")) == []


def test_the_packages_alone_import_none_of_their_modules() -> None:
    """`import soapjms` imports the tables of the public names."""
    seen = {name for name in imported("import soapjms") if name.split(".")[0] in ("brokers", "soapjms")}
    assert seen == {"brokers", "brokers.moved_modules", "brokers.public_names", "soapjms"}


@pytest.mark.parametrize("package", [brokers, soapjms, soapjms.capture], ids=lambda package: package.__name__)
def test_public_names_are_those_that_type_checkers_see(package: ModuleType) -> None:
    """The table of names, the imports for type checkers and `__all__` agree; `dir` gives the same names."""
    tree = tree_of(ROOT.joinpath(*package.__name__.split("."), "__init__.py"))
    block = next(
        node for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )  # fmt: skip
    typed = {each.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert sorted(typed) == sorted(package.__all__) == dir(package)
    for name, module in typed.items():
        assert getattr(package, name) is getattr(import_module(str(module)), name)


def test_packages_below_are_attributes() -> None:
    """`import soapjms` is enough to use `soapjms.capture.Mask`; a name that does not exist is an AttributeError."""
    program = "import soapjms; print(soapjms.capture.Mask.__name__, hasattr(soapjms, 'Consumer'))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["Mask", "False"]
    with pytest.raises(AttributeError, match="module 'soapjms' has no attribute 'Consumer'"):
        soapjms.Consumer  # type: ignore[attr-defined]  # noqa: B018
