"""The rules on imports, names and the length of functions, read from the syntax tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from imports import PRODUCT, ROOT, circles, graph, imports_of, tree_of

sys.path.insert(0, str(ROOT / "tools/docs"))
from architecture import arrows

PROTOCOL = ROOT / "soapjms" / "protocol"
PURE = [path for path in PRODUCT if path.is_relative_to(PROTOCOL)]

ORDER = (
    "names errors text limits content xml simple_types uri values properties wsdl envelope wsa "
    "attachments record exchange received_message assertions mep message_parts requesting responding senders repetition"
).split()
INSIDE_ASSERTIONS = (
    "spots model request_checks body_checks response_checks markup request_table response_table judge batch habits"
).split()

# Modules of the standard library that reach outside of a program, read a clock, draw at random or run threads.
IMPURE = frozenset(
    "asyncio concurrent glob http io logging multiprocessing os pathlib queue random sched secrets select selectors "
    "shutil signal socket socketserver sqlite3 ssl subprocess sys tempfile threading time urllib.request uuid".split()
)
THIRD_PARTY_OF_PROTOCOL = frozenset({"lxml"})
IMPURE_NAMES = frozenset({"open", "print", "input", "now", "utcnow", "today", "environ", "getenv", "eval", "exec"})


def name_of(path: Path) -> str:
    """Return the file as people name it: relative to the repository."""
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    """The rules below see the product."""
    seen = {name for path in PURE for name in (path.stem, path.parent.name)}
    assert seen >= {*ORDER, *INSIDE_ASSERTIONS} - {"wsdl"}


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_are_absolute(path: Path) -> None:
    """No import begins with a dot."""
    assert [module for module, dots in imports_of(path) if dots] == []


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_no_drawers_for_everything(path: Path) -> None:
    """No module is called utils, common or helpers."""
    assert not {"utils", "util", "common", "helpers", "misc"} & {part.removesuffix(".py") for part in path.parts}


@pytest.mark.parametrize("path", [path for path in PRODUCT if path.is_relative_to(ROOT / "brokers")], ids=name_of)
def test_brokers_know_nothing_of_soap(path: Path) -> None:
    """brokers never imports soapjms."""
    assert [module for module, _ in imports_of(path) if module.split(".")[0] == "soapjms"] == []


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_the_terminal_is_for_the_command_line(path: Path) -> None:
    """click and rich live in soapjms/cli only."""
    if not path.is_relative_to(ROOT / "soapjms" / "cli"):
        assert not {"click", "rich"} & {module.split(".")[0] for module, _ in imports_of(path)}


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_threads_begin_or_fail(path: Path) -> None:
    """Threads are those of brokers.threads, whose start waits no longer than it must; replay serves nobody."""
    if path == ROOT / "brokers/threads/thread.py" or path.is_relative_to(ROOT / "soapjms" / "replay"):
        return
    named = {
        each.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom) for each in node.names
        if node.module in ("threading", "concurrent.futures")
    }  # fmt: skip
    assert not named & {"Thread", "Timer", "ThreadPoolExecutor"}
    assert "threading" not in {module for module, _ in imports_of(path)} or named


@pytest.mark.parametrize(
    "path", [path for path in PRODUCT if path.is_relative_to(ROOT / "soapjms" / "replay")], ids=name_of
)
def test_replay_judges_nothing_itself(path: Path) -> None:
    """replay imports the protocol, brokers.message, progress, log events, lazy names, the version; never a broker."""
    of_package = [
        each.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "soapjms"
        for each in node.names
    ]
    assert set(of_package) <= {"__version__", "events"}
    ours = {module for module, _ in imports_of(path) if module.split(".")[0] in ("soapjms", "brokers")}
    assert [
        each
        for each in ours - {"soapjms"}
        if not each.startswith(
            (
                "soapjms.protocol",
                "soapjms.replay",
                "soapjms.progress",
                "soapjms.events",
                "brokers.message",
                "brokers.public_names",
            )
        )
    ] == []


@pytest.mark.parametrize(
    "path", [path for path in PRODUCT if path.is_relative_to(ROOT / "soapjms" / "generate")], ids=name_of
)
def test_the_generator_does_not_ask_the_judge(path: Path) -> None:
    """generate writes what its own table says: it imports the protocol and what writes logs, and never judges."""
    ours = {module for module, _ in imports_of(path) if module.split(".")[0] in ("soapjms", "brokers")}
    assert [each for each in ours if not each.startswith(("soapjms.protocol", "soapjms.generate", *WRITES_LOGS))] == []
    assert "judge" not in {each.id for each in ast.walk(tree_of(path)) if isinstance(each, ast.Name)}


WRITES_LOGS = ("soapjms.capture.log", "soapjms.replay.parquet")


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_the_protocol_is_pure(path: Path) -> None:
    """protocol: the standard library without I/O, clock, thread and randomness, lxml, three files of brokers."""
    for module, _ in imports_of(path):
        top = module.split(".")[0]
        if top == "soapjms":
            assert module.startswith("soapjms.protocol"), module
        elif top == "brokers":
            assert module in ("brokers.errors", "brokers.message", "brokers.redaction"), module
        else:
            assert top in THIRD_PARTY_OF_PROTOCOL or top in sys.stdlib_module_names, module
            assert not {top, module} & IMPURE, module


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_the_protocol_calls_nothing_impure(path: Path) -> None:
    """protocol opens, prints and asks for the time nowhere."""
    called = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    named = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called}
    assert not named & IMPURE_NAMES


def place(module: str) -> int:
    """Return the place of a module of the protocol in its order."""
    return ORDER.index(module.split(".")[2])


@pytest.mark.parametrize("path", [path for path in PURE if path != PROTOCOL / "__init__.py"], ids=name_of)
def test_a_file_imports_only_files_above_it(path: Path) -> None:
    """protocol is read from top to bottom, a folder in it as one file; so are the files of the assertions."""
    parts = path.relative_to(PROTOCOL).with_suffix("").parts
    own = ORDER.index(parts[0])
    for module, _ in imports_of(path):
        if module == "soapjms.protocol" or not module.startswith("soapjms.protocol."):
            continue
        if place(module) != own:
            assert place(module) < own, module
        elif parts[0] == "assertions" and parts[1] != "__init__":
            assert INSIDE_ASSERTIONS.index(module.split(".")[3]) < INSIDE_ASSERTIONS.index(parts[1]), module
        else:
            assert len(parts) == 2, module


def test_no_module_imports_itself_by_a_detour() -> None:
    """No circle of imports anywhere, those within functions and for types included."""
    assert circles(graph()) == {}


def test_no_room_imports_itself_by_a_detour() -> None:
    """Nor does a folder, by way of others: docs/architecture.md draws them."""
    found = dict[str, set[str]]()
    for one, other in arrows():
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set())
    assert circles(found) == {}


FLAT = (
    "__init__ __main__ destinations event_loop events middleware observing opentelemetry ping progress prometheus "
    "reply security signatures tally validation wsdl"
)


def test_few_files_lie_flat() -> None:
    """What stands in `soapjms/` itself is what users import by that name, or what all rooms need."""
    assert {path.stem for path in (ROOT / "soapjms").glob("*.py")} == set(FLAT.split())


def test_the_order_is_documented() -> None:
    """The docstring of the protocol names its files in their order."""
    said = ast.get_docstring(tree_of(PROTOCOL / "__init__.py")) or ""
    listed = said.partition("order:")[2].partition(".")[0]
    assert [each.strip() for each in listed.replace("\n", " ").split(",")] == ORDER


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_size(path: Path) -> None:
    """Functions have up to 50 lines."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 50, node.name


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("brokers", ["stomp", "brokers.stomp", "brokers.embedded", "lxml", "soapjms"]),
        ("soapjms", ["stomp", "brokers.stomp", "soapjms.prometheus", "prometheus_client", "opentelemetry", "zeep"]),
        ("soapjms.replay.follower", ["pyspark"]),
        ("soapjms.protocol.responding", ["stomp", "brokers.stomp", "brokers.embedded", "pyspark", "pyarrow", "click"]),
    ],
)
def test_what_an_import_loads(imported: str, absent: list[str]) -> None:
    """No adapter is loaded before its URL scheme is asked for, and no library of an extra by the protocol."""
    program = f"import sys, {imported}; print([each for each in {absent!r} if each in sys.modules])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("part", ["brokers.smqp.client", "brokers.smqp.server", "brokers.smqp.adapter"])
def test_each_part_of_smqp_is_imported_by_itself(part: str) -> None:
    """In whatever order a program does; a client never loads the server."""
    program = f"import sys, {part}; print('brokers.smqp.server' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.strip() == "True") is (part == "brokers.smqp.server")


@pytest.mark.parametrize("path", [*PRODUCT, *sorted((ROOT / "tests").rglob("*.py"))], ids=name_of)
def test_a_name_is_given_once(path: Path) -> None:
    """No constant at the top of a file is set a second time there."""
    named = [
        target.id
        for node in tree_of(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    assert sorted(named) == sorted(set(named))


# Names

GERUND_OR_PARTICIPLE = re.compile(r"(?!ping$|need$)[a-z]+(ing|ed)|begun|built|given|heard|held|known|sent|told|written")

ALLOWED_MODULES = {
    "requesting": "the specification's word for a node",
    "responding": "the specification's word for a node",
    "addressing": "as in WS-Addressing",
    "naming": "as in the Java Naming and Directory Interface; users import it",
    "embedded": "the embedded broker; users import it",
    "observing": "users import it",
    "serving": "users import it",
    "testing": "users import it",
    "typed": "users import it",
}


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_modules_are_nouns(path: Path) -> None:
    """No module or package has a bare gerund or participle for a name, but for the specification's and the users'."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    assert [each for each in parts if GERUND_OR_PARTICIPLE.fullmatch(each) and each not in ALLOWED_MODULES] == []


ALLOWED_CLASSES = {
    "Addressing": "as in WS-Addressing",
    "Begun": "an event",
    "Binding": "WSDL's word",
    "Ended": "an event",
    "Encoding": "a noun",
    "Finding": "a noun",
    "Generated": "what soapjms.generate returns; users have it",
    "Loaded": "what a `load` of users returns",
    "Observed": "users have it",
    "Packaging": "a noun",
    "Prepared": "users have it: soapjms.Prepared",
    "Published": "users of the SMQP library have it",
    "Reading": "a noun: see docs/glossary.md",
    "Received": "users of the SMQP library have it",
    "Setting": "a noun",
    "Sighting": "a noun",
    "Signing": "users import it: soapjms.zeep.Signing",
}

EQUAL_CLASSES = {
    "AsyncClient": "soapjms.AsyncClient, soapjms.zeep.AsyncClient: likewise in asyncio",
    "Client": "soapjms.Client, soapjms.zeep.Client, brokers.smqp.client.Client: what users connect with",
    "Finding": "what read and lint of a URI and of a WSDL return",
    "Listener": "soapjms.bridge.listener.Listener, brokers.amqp.listener.Listener: what users start",
    "Options": "what users give brokers.amqp.listener.Listener, and brokers.smqp.server.Server",
    "Place": "of who is observed; of a finding in a WSDL",
    "Right": "what users allow at brokers.amqp.listener, and at brokers.smqp.server",
    "Service": "soapjms.Service, which users register functions with; the component of a WSDL",
    "Severity": "of a finding in a URI, and of one in a WSDL",
}


def public_classes() -> dict[str, list[str]]:
    """Return the modules of each public class of the product, by its name."""
    found: dict[str, list[str]] = {}
    for path in PRODUCT:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    return found


def test_no_two_public_classes_of_one_name() -> None:
    """A name says which class is meant, but for those that users import from packages of their own."""
    equal = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert {name: places for name, places in equal.items() if name not in EQUAL_CLASSES} == {}
    assert set(EQUAL_CLASSES) <= set(equal)


def test_classes_are_nouns() -> None:
    """No class has a bare gerund or participle for a name, but for events and what users have by that name."""
    single = [name for name in public_classes() if re.fullmatch("[A-Z][a-z]+", name)]
    assert {name for name in single if GERUND_OR_PARTICIPLE.fullmatch(name.lower())} <= set(ALLOWED_CLASSES)


PLAIN_NUMBERS = {
    "CR", "NUL",  # octets
    "MIB", "MEBIBYTE",  # units themselves
    "VERSION",  # of a form of files
    "GENERATION", "ANYONE",  # numbers that stand for something
    "DECLARE", "DECLARED", "DISCHARGE", "ERROR", "NULL", "TRANSACTIONAL", "UINT",  # codes of AMQP
    "UNAUTHORIZED",  # a status of HTTP
    "COLUMNS", "WIDTH", "HEIGHT", "LEFT", "TOP", "BOTTOM", "TICKS",  # a chart's, in its own units
    "BROKEN", "DISORDER", "PACE", "KEPT",  # what users import by that name
}  # fmt: skip


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_numbers_carry_subject_and_unit(path: Path) -> None:
    """No number at the top of a module has one word for a name, such as LOOK or MOST."""
    for node in tree_of(path).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for each in targets:
            if isinstance(each, ast.Name) and is_number(node.value) and re.fullmatch("_?[A-Z]+", each.id):
                assert each.id in PLAIN_NUMBERS, f"line {node.lineno}"


def is_number(node: ast.expr | None) -> bool:
    """Say whether an expression is a number, or is worked out of numbers alone."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.BinOp) and is_number(node.left) and is_number(node.right)
