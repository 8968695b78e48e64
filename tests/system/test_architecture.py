"""The rules on imports, names and the length of functions, read from the syntax tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from imports import PRODUCT, ROOT, circles, graph, imports_of, tree_of

sys.path.insert(0, str(ROOT / "tools/docs"))
from architecture import arrows

PROTOCOL = ROOT / "soapjms" / "protocol"
PURE = [path for path in PRODUCT if path.is_relative_to(PROTOCOL)]
BROKERS, REPLAY, GENERATE = (
    [path for path in PRODUCT if path.is_relative_to(ROOT / folder)]
    for folder in ("brokers", "soapjms/replay", "soapjms/generate")
)

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


@pytest.fixture(scope="module", autouse=True)
def trees_are_shared() -> Iterator[None]:
    """Each file is parsed once for all rules; the trees, of more than 100 MiB, are not kept for other tests."""
    yield
    tree_of.cache_clear()


def offenders(rule: Callable[[Path], Collection[str]], paths: list[Path] = PRODUCT) -> dict[str, Collection[str]]:
    """Return what breaks a rule, by file.

    Args:
        rule: returns what breaks it in a file.
        paths: the files that it is for.
    """
    return {name_of(path): broken for path in paths if (broken := rule(path))}


def test_there_is_something_to_check() -> None:
    """The rules below see the product."""
    seen = {name for path in PURE for name in (path.stem, path.parent.name)}
    assert seen >= {*ORDER, *INSIDE_ASSERTIONS} - {"wsdl"}
    assert all((BROKERS, REPLAY, GENERATE))
    assert offenders(lambda path: [path.name]).keys() == {name_of(path) for path in PRODUCT}


def modules_of(path: Path) -> set[str]:
    """Return the modules that a file imports."""
    return {module for module, _ in imports_of(path)}


def tops_of(path: Path) -> set[str]:
    """Return the packages that a file imports, each by the name at its top."""
    return {module.split(".")[0] for module in modules_of(path)}


def ours_of(path: Path) -> set[str]:
    """Return those of our modules that a file imports."""
    return {module for module in modules_of(path) if module.split(".")[0] in ("soapjms", "brokers")}


def names_from(path: Path, *modules: str) -> set[str]:
    """Return the names that a file imports from modules."""
    nodes = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom) and node.module in modules)
    return {each.name for node in nodes for each in node.names}


def test_imports_are_absolute() -> None:
    """No import begins with a dot."""
    assert offenders(lambda path: [module for module, dots in imports_of(path) if dots]) == {}


def test_no_drawers_for_everything() -> None:
    """No module is called utils, common or helpers."""
    drawers = {"utils", "util", "common", "helpers", "misc"}
    assert offenders(lambda path: drawers & {part.removesuffix(".py") for part in path.parts}) == {}


def test_brokers_know_nothing_of_soap() -> None:
    """brokers never imports soapjms."""
    assert offenders(lambda path: tops_of(path) & {"soapjms"}, BROKERS) == {}


def test_the_terminal_is_for_the_command_line() -> None:
    """click and rich live in soapjms/cli only."""
    others = [path for path in PRODUCT if not path.is_relative_to(ROOT / "soapjms" / "cli")]
    assert offenders(lambda path: tops_of(path) & {"click", "rich"}, others) == {}


def test_threads_begin_or_fail() -> None:
    """Threads are those of brokers.threads, whose start waits no longer than it must; replay serves nobody."""
    others = [path for path in PRODUCT if path not in (*REPLAY, ROOT / "brokers/threads/thread.py")]

    def broken(path: Path) -> set[str]:
        named = names_from(path, "threading", "concurrent.futures")
        whole = modules_of(path) & {"threading"} if not named else set[str]()
        return named & {"Thread", "Timer", "ThreadPoolExecutor"} | whole

    assert offenders(broken, others) == {}


JUDGED_BY_OTHERS = (
    "soapjms.protocol", "soapjms.replay", "soapjms.progress", "soapjms.events", "brokers.message",
    "brokers.public_names",
)  # fmt: skip


def test_replay_judges_nothing_itself() -> None:
    """replay imports the protocol, brokers.message, progress, log events, lazy names, the version; never a broker."""

    def broken(path: Path) -> set[str]:
        modules = {each for each in ours_of(path) - {"soapjms"} if not each.startswith(JUDGED_BY_OTHERS)}
        return modules | names_from(path, "soapjms") - {"__version__", "events"}

    assert offenders(broken, REPLAY) == {}


WRITES_LOGS = ("soapjms.capture.log", "soapjms.replay.parquet")


def test_the_generator_does_not_ask_the_judge() -> None:
    """generate writes what its own table says: it imports the protocol and what writes logs, and never judges."""

    def broken(path: Path) -> set[str]:
        modules = {
            each for each in ours_of(path)
            if not each.startswith(("soapjms.protocol", "soapjms.generate", *WRITES_LOGS))
        }  # fmt: skip
        return modules | {each.id for each in ast.walk(tree_of(path)) if isinstance(each, ast.Name)} & {"judge"}

    assert offenders(broken, GENERATE) == {}


def is_pure(module: str) -> bool:
    """Say whether the protocol may import a module."""
    top = module.split(".")[0]
    if top == "soapjms":
        return module.startswith("soapjms.protocol")
    if top == "brokers":
        return module in ("brokers.errors", "brokers.message", "brokers.redaction")
    return top in THIRD_PARTY_OF_PROTOCOL | sys.stdlib_module_names and not {top, module} & IMPURE


def test_the_protocol_is_pure() -> None:
    """protocol: the standard library without I/O, clock, thread and randomness, lxml, three files of brokers."""
    assert offenders(lambda path: [each for each in modules_of(path) if not is_pure(each)], PURE) == {}


def test_the_protocol_calls_nothing_impure() -> None:
    """protocol opens, prints and asks for the time nowhere."""

    def broken(path: Path) -> set[str]:
        called = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called} & (
            IMPURE_NAMES
        )

    assert offenders(broken, PURE) == {}


def place(module: str) -> int:
    """Return the place of a module of the protocol in its order."""
    return ORDER.index(module.split(".")[2])


def is_above(module: str, path: Path) -> bool:
    """Say whether a file of the protocol may import a module, which is of the protocol too."""
    parts = path.relative_to(PROTOCOL).with_suffix("").parts
    own = ORDER.index(parts[0])
    if place(module) != own:
        return place(module) < own
    if parts[0] == "assertions" and parts[1] != "__init__":
        return INSIDE_ASSERTIONS.index(module.split(".")[3]) < INSIDE_ASSERTIONS.index(parts[1])
    return len(parts) == 2


def test_a_file_imports_only_files_above_it() -> None:
    """protocol is read from top to bottom, a folder in it as one file; so are the files of the assertions."""

    def broken(path: Path) -> list[str]:
        inside = [each for each in modules_of(path) if each.startswith("soapjms.protocol.")]
        return [each for each in inside if not is_above(each, path)]

    assert offenders(broken, [path for path in PURE if path != PROTOCOL / "__init__.py"]) == {}


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


def test_size() -> None:
    """Functions have up to 50 lines."""

    def broken(path: Path) -> list[str]:
        nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        return [node.name for node in nodes if (node.end_lineno or 0) - node.lineno >= 50]

    assert offenders(broken) == {}


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


def constants(tree: ast.Module) -> list[tuple[str, ast.expr | None]]:
    """Return the names that are set at the top of a file, each with its value."""
    return [
        (target.id, node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]


def test_a_name_is_given_once() -> None:
    """No constant at the top of a file is set a second time there, nor in tests."""

    def broken(path: Path) -> set[str]:
        tree = tree_of(path) if path in products else ast.parse(path.read_text("utf-8"))
        return {name for name, number in Counter(name for name, _ in constants(tree)).items() if number > 1}

    products = set(PRODUCT)
    assert offenders(broken, [*PRODUCT, *(ROOT / "tests").rglob("*.py")]) == {}


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


def test_modules_are_nouns() -> None:
    """No module or package has a bare gerund or participle for a name, but for the specification's and the users'."""

    def broken(path: Path) -> list[str]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        return [each for each in parts if GERUND_OR_PARTICIPLE.fullmatch(each) and each not in ALLOWED_MODULES]

    assert offenders(broken) == {}


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


def test_numbers_carry_subject_and_unit() -> None:
    """No number at the top of a module has one word for a name, such as LOOK or MOST."""

    def broken(path: Path) -> set[str]:
        numbers = {name for name, value in constants(tree_of(path)) if is_number(value)}
        return {name for name in numbers if re.fullmatch("_?[A-Z]+", name)} - PLAIN_NUMBERS

    assert offenders(broken) == {}


def is_number(node: ast.expr | None) -> bool:
    """Say whether an expression is a number, or is worked out of numbers alone."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.BinOp) and is_number(node.left) and is_number(node.right)
