"""A program that uses the installed soapjms, for mypy and for pyright: both refuse the same lines, and no others.

And what an editor offers while such a program is written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from codegen_kit import BANK
from completion_kit import LanguageServer, language_server
from distribution_kit import build
from places import DATA, ROOT

import soapjms
from soapjms.codegen import generate_package

PROGRAM = DATA / "typing" / "program.py"
PYRIGHT = ROOT / "build" / "pyright" / "node_modules" / "pyright" / "index.js"


class Judgement(NamedTuple):
    """What a type checker said.

    Attributes:
        errors: by line, the first error.
        types: by line, the type that a `reveal_type` revealed, without the names of modules.
    """

    errors: dict[int, str]
    types: dict[int, str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; what the wheel needs is that of this environment."""
    folder = tmp_path_factory.mktemp("typing")
    wheel, _ = build(folder / "built")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True, timeout=60)
    python = folder / "env" / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), "utf-8")  # whose own .pth files do not count
    return python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program, where no soapjms is near."""
    return Path(shutil.copy(PROGRAM, tmp_path))


def judgement(found: list[tuple[int, bool, str]], revealed: str) -> Judgement:
    """Sort what was said of each line."""
    errors, types = dict[int, str](), dict[int, str]()
    for line, is_error, text in found:
        if reveal := re.fullmatch(revealed, text):
            named = re.sub(r"\b(?:\w+\.)+(?=\w)", "", reveal[1])
            types[line] = re.sub(r"tuple\[[^\[\]]*, fallback=(\w+)\]", r"\1", named)  # mypy's named tuples
        elif is_error:
            errors.setdefault(line, text)
    return Judgement(errors, types)


def run(words: list[str], program: Path) -> str:
    """Run a type checker beside the program, and return what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MYPY", "PYTHON"))}
    done = subprocess.run(
        words, cwd=program.parent, env=clean, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def mypy(python: Path, program: Path) -> Judgement:
    """Ask `mypy --strict`."""
    words = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--output", "json"]
    found = [json.loads(line) for line in run([*words, program.name], program).splitlines()]
    assert {each["file"] for each in found} == {program.name}, "only the program has errors"
    return judgement(
        [(each["line"], each["severity"] == "error", each["message"]) for each in found], r'Revealed type is "(.*)"'
    )


def pyright(python: Path, program: Path) -> Judgement:
    """Ask pyright in its strict mode."""
    assert PYRIGHT.is_file(), "type: make packages"
    setting = {
        "include": [program.name],
        "typeCheckingMode": "strict",
        "reportPrivateUsage": False,
    }  # lxml.etree._Element
    (program.parent / "pyrightconfig.json").write_text(json.dumps(setting), "utf-8")
    words = ["node", str(PYRIGHT), "--outputjson", "--pythonpath", str(python)]
    found = json.loads(run(words, program))["generalDiagnostics"]
    assert {Path(each["file"]).name for each in found} == {program.name}
    return judgement(
        [
            (each["range"]["start"]["line"] + 1, each["severity"] == "error", each["message"].partition("\n")[0])
            for each in found
        ],
        r'Type of ".*" is "(.*)"',
    )


@pytest.mark.peer
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_program(checker: Callable[[Path, Path], Judgement], python: Path, program: Path) -> None:
    """Wrong lines are refused and right ones are not; the main calls return what they say."""
    lines = enumerate(PROGRAM.read_text("utf-8").splitlines(), 1)
    marked = {number: text.partition("  # ") for number, text in lines if "  # " in text}
    wrong = {number for number, (_, _, said) in marked.items() if said.startswith("error: ")}
    types = {
        number: said for number, (code, _, said) in marked.items() if "reveal_type" in code and number not in wrong
    }
    found = checker(python, program)
    assert {number: text for number, text in found.errors.items() if number not in wrong} == {}
    assert wrong <= found.errors.keys()
    assert {number: text for number, text in found.types.items() if number in types} == types


CONNECTION = 'import soapjms\nconnection = soapjms.connect("embedded:")\n'
CLIENT = f'{CONNECTION}client = soapjms.Client(connection, "jms:queue:a")\n'
BANK_CLIENT = f"import bank_client\n{CONNECTION}client = bank_client.BankClient(connection)\n"


@pytest.fixture(scope="module")
def server(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """A language server for a folder with a package that was generated from a WSDL."""
    folder = tmp_path_factory.mktemp("programs")
    generate_package(BANK, "bank_client", out=folder)
    with language_server(folder, python) as server:
        yield server


@pytest.mark.peer
def test_public_names_are_offered(server: LanguageServer) -> None:
    """Those, and no module or name that is not for users."""
    offered = server.offers("import soapjms\nsoapjms.")
    assert {each for each in offered if not each.startswith("__")} == {*soapjms.__all__} - {"__version__"}


@pytest.mark.peer
@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("import soapjms\nsoapjms.connect('amqp://h', ", {"timeout=", "heartbeat=", "reconnect=", "tls=", "dialect="}),
        ("import soapjms\nsoapjms.connect('amqp://h', dialect='", {"activemq", "artemis", "qpid", "rabbitmq", "plain"}),
        (f"{CONNECTION}soapjms.Client(connection, 'jms:queue:a', ", {"timeout=", "profile=", "message_type="}),
        (f"{CLIENT}client.", {"call", "submit", "send", "close", "ping"}),
        (f"{CLIENT}client.call(b'', ", {"timeout=", "expires=", "soap_action=", "attachments="}),
        (f"{CLIENT}client.call(b'', expires='", {"timeout"}),
        (f"{CLIENT}response = client.call(b'')\nresponse.", {"body_value", "fault", "element", "message"}),
        (
            f"{CLIENT}try:\n    pass\nexcept soapjms.CallTimeoutError as error:\n    error.",
            {"correlation_id", "destination", "waited", "is_confirmed", "connection_lost"},
        ),
        ("import soapjms\nsoapjms.Service().operation('{urn:a}b', ", {"action="}),
        (
            "import soapjms\n\n\ndef greet(request: soapjms.Request) -> None:\n    request.",
            {"element", "findtext", "attachments", "message"},
        ),
        (f"{BANK_CLIENT}client.", {"transfer", "find", "import_", "reset", "convert"}),
        (f"{BANK_CLIENT}client.transfer(bank_client.Transfer(", {"amount=", "currency="}),
        (f"{BANK_CLIENT}client.transfer(bank_client.Transfer(), ", {"session=", "timeout=", "expires="}),
        (f"{BANK_CLIENT}answer = client.find(bank_client.Find())\nanswer.", {"owner"}),
        (
            "import bank_client\ntry:\n    pass\nexcept bank_client.TransferRefusedError as error:\n    error.detail.",
            {"limit", "class_value"},
        ),
    ],
)
def test_offered(server: LanguageServer, program: str, wanted: set[str]) -> None:
    """What may be written next is offered: options, words of an option, members, fields from a WSDL."""
    offered = {each.strip("'\"") for each in server.offers(program)}
    assert wanted <= offered, sorted(offered)
