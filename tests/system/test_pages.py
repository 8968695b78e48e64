"""Every block of code of README.md and docs/*.md does what a reader expects: in order, and alone if it stands alone."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from greeter_service import service as greeter
from page_kit import NOT_RUN, NOT_TYPED, READERS, Block, Reader, blocks, commands, is_shown, pages, why_not_typed
from places import ROOT
from ports import free_ports
from real_brokers import RealBroker, start_activemq
from typed_kit import shop, shop_wsdl
from zeep_kit import gallery, gallery_wsdl

import soapjms
from soapjms.replay import replay
from soapjms.service.typed import TypedService

ALL: Final = [block for page in pages() for block in blocks(page)]
ALONE: Final = [
    block
    for index, block in enumerate(ALL)
    if block.stands_alone and any(each.page == block.page and each.is_program for each in ALL[:index])
]
"""Blocks to run alone too: the first of a page is alone anyway."""
ON_A_BROKER: Final = {
    "README.md",
    *(f"docs/{name}.md" for name in ("bridges", "cli", "connections", "serving", "zeep")),
}
"""The pages that name a broker at localhost; the others need none."""

ENVELOPE: Final = """\
<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>
  <{0} xmlns="urn:greeter"><name>World</name></{0}></e:Body></e:Envelope>"""
SERVICE: Final = """\
import soapjms

service = soapjms.Service()
service.operation("{urn:bank}transfer")(lambda request: request.element)
"""
APPLICATION: Final = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/xml; charset=utf-8")])
    return [environ["wsgi.input"].read()]
"""


def at(path: str) -> Callable[[], bytes]:
    """Give the octets of a file of the repository."""
    return (ROOT / path).read_bytes


CAPTURED: Final = "capture-20261121T010203Z-0001.jsonl.gz"
"""What a page calls the log of a capture."""

GIVEN: Final[Mapping[str, Mapping[str, Callable[[], bytes]]]] = {
    "greeter.wsdl": {"greeter.wsdl": at("examples/greeter.wsdl")},
    "bank.wsdl": {"bank.wsdl": at("tests/data/wsdl/bank.wsdl"), "bank.xsd": at("tests/data/wsdl/bank.xsd")},
    "gallery.wsdl": {"gallery.wsdl": lambda: gallery_wsdl().encode()},
    "shop.wsdl": {"shop.wsdl": lambda: shop_wsdl(uri="jms:queue:shop").encode()},
    "order.json": {"order.json": lambda: b'{"from": "2026-11-21", "item": [{"article": "A1", "pieces": 2}]}'},
    "hello.xml": {"hello.xml": lambda: ENVELOPE.format("greetMe").encode()},
    "ping.xml": {"ping.xml": lambda: ENVELOPE.format("pingMe").encode()},
    "frame.xml": {"frame.xml": lambda: ENVELOPE.format("greetMe").encode()},
    "photo.png": {"photo.png": lambda: b"\x89PNG"},
    "dawn.png": {"dawn.png": lambda: b"\x89PNG"},
    "users.txt": {"users.txt": lambda: b"ann:secret\n"},
    "rights.txt": {"rights.txt": lambda: b"ann send queue:orders.*\n"},
    "b.password": {"b.password": lambda: b"x"},
    "bank.service": {"bank/service.py": SERVICE.encode},
    "news.service": {"news/service.py": SERVICE.encode},
    "bank.soap": {"bank/soap.py": APPLICATION.encode},
    "capture.jsonl": {"capture.jsonl": at("tests/data/cxf-exchanges.jsonl")},
    "request.jsonl": {"request.jsonl": at("tests/data/request.jsonl")},
    CAPTURED: {f"captures/{CAPTURED}": lambda: gzip.compress(at("tests/data/cxf-exchanges.jsonl")())},
    "captures": {"captures/cxf.jsonl": at("tests/data/cxf-exchanges.jsonl")},
}
"""What a reader has: for a name on a page, files and their content. Other files are blocks of the page."""

REPLAYED: Final = ("results", "last-week", "this-week", "week1", "week2", "week3", "week4")
"""Folders with results of earlier replays, where a page names them."""


def give(page: str, folder: Path) -> None:
    """Put the files into the folder of a reader that the page takes for granted."""
    named = [block.file for block in blocks(page)]
    text = "".join(block.text for block in blocks(page))
    for name, files in GIVEN.items():
        for file, content in files.items():
            if name in text and file not in named:
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_bytes(content())
    for name in ("key.pem", "ann.pem", "bob.pem", "server.pem"):
        if name in text:
            write_certificates(folder)
            break
    if re.search(r"\bsoapjms report ", text):
        for name in REPLAYED:
            replay(ROOT / "tests/data/cxf-exchanges.jsonl", folder / name, engine="local")


def write_certificates(folder: Path) -> None:
    """Write keys and certificates of two people and of a server."""
    made = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert("localhost", key_type=trustme.KeyType.RSA)
    made.private_key_pem.write_to_path(folder / "key.pem")
    for name in ("ann.pem", "bob.pem"):
        made.cert_chain_pems[0].write_to_path(folder / name)
    made.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")


def exchanged(page: str, broker: RealBroker | None) -> dict[str, str]:
    """Return what a reader reads in the place of ports, brokers, large numbers and long times of a page."""
    text = "".join(block.text for block in blocks(page))
    named = re.findall(r"(localhost|0\.0\.0\.0|127\.0\.0\.1):([1-9]\d+)", text)
    numbers = dict.fromkeys(number for _, number in named)
    free = dict(zip(numbers, free_ports(len(numbers)), strict=True))
    exchange = {f"{host}:{number}": f"{host.replace('0.0.0.0', 'localhost')}:{free[number]}" for host, number in named}
    exchange |= {"--messages 10000000": "--messages 1000", "--messages 1000000": "--messages 1000"}
    exchange |= {"--messages 100000": "--messages 1000", '"127.0.0.1", 5672': '"127.0.0.1", 0'}
    exchange["capture --out captures"] = "capture --for 1 --out captures"
    if broker is not None:
        for name in ("localhost", "HOST", "broker", "broker1", "broker2"):
            exchange[f"{name}:61613"] = f"{broker.host}:{broker.ports.stomp}"
        exchange |= {"USER:PASSWORD@": "admin:admin@", "user:password@": "admin:admin@"}
    return exchange


def attempt(page: str, folder: Path, exchange: Mapping[str, str], line: str = "") -> None:
    """Have a reader try a page, or one block of it, in a fresh interpreter; nothing may be said on standard error."""
    give(page, folder)
    words = [sys.executable, "-W", "error", str(ROOT / "tests/support/page_kit.py"), page, json.dumps(exchange), line]
    places = [str(ROOT / "tests"), str(ROOT), str(folder)]
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SOAPJMS_")},
        "PYTHONPATH": os.pathsep.join(places),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    done = subprocess.run(
        words,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def served(broker: RealBroker | None, folder: Path) -> Iterator[None]:
    """Serve what pages call, if they call anything: a greeter, a gallery and a shop."""
    with ExitStack() as stack:
        if broker is not None:
            connection = stack.enter_context(soapjms.connect(broker.stomp_url))
            for name, service in (("greeter", greeter), ("gallery", gallery()), ("shop", open_shop(folder))):
                stack.enter_context(soapjms.Dispatcher(connection, f"jms:queue:{name}", service))
        yield


def open_shop(folder: Path) -> TypedService:
    """Make a shop that takes orders."""
    service = shop(folder)

    @service.operation("order")
    def order(**values: Any) -> Any:
        return {"number": "N1", "pieces": sum(each.pieces for each in values["item"])}

    return service


@pytest.fixture(scope="module")
def mirrored() -> Iterator[RealBroker]:
    """ActiveMQ Classic with the setting for captures."""
    with start_activemq(mirrored=True) as broker:
        yield broker


@pytest.fixture
def broker(page: str, request: pytest.FixtureRequest) -> RealBroker | None:
    """The broker that a page names; None if it names none."""
    return request.getfixturevalue("mirrored") if page in ON_A_BROKER else None


def marked(page: str, *more: Any) -> Any:
    """Return parameters that say whether a broker is needed."""
    marks = [pytest.mark.broker] if page in ON_A_BROKER else []
    return pytest.param(page, *more, marks=marks, id=":".join(map(str, (page, *more))))


@pytest.mark.parametrize("page", [marked(page) for page in dict.fromkeys(block.page for block in ALL)])
def test_in_order(
    page: str, broker: RealBroker | None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From top to bottom."""
    with served(broker, tmp_path_factory.mktemp("shop")):
        attempt(page, tmp_path, exchanged(page, broker))


@pytest.mark.parametrize(("page", "line"), [marked(block.page, block.line) for block in ALONE])
def test_alone(
    page: str, line: int, broker: RealBroker | None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A block that begins with its imports, without the blocks above it."""
    with served(broker, tmp_path_factory.mktemp("shop")):
        attempt(page, tmp_path, exchanged(page, broker), str(line))


@pytest.mark.browser
@pytest.mark.peer
@pytest.mark.timeout(600)
def test_the_pictures(tmp_path: Path) -> None:
    """The command that the docs name takes the pictures; those in the repository have their sizes, and are small."""
    words = [sys.executable, str(ROOT / "tools/docs/pictures.py"), str(tmp_path)]
    subprocess.run(words, check=True, timeout=400, env={**os.environ, "PYTHONPATH": str(ROOT)})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in (ROOT / "docs/images").iterdir())
    for name in names:
        taken, shown = (tmp_path / name).read_bytes(), (ROOT / "docs/images" / name).read_bytes()
        assert shown[:24] == taken[:24]  # a PNG, its width and height
        assert len(shown) <= 300_000


def test_every_language_is_known() -> None:
    """Each block is read by what reads its language, or there is a reason; no reason is of none."""
    assert {block.language for block in ALL} == set(NOT_RUN) | set(READERS)


def test_every_reason_is_needed() -> None:
    """Each command that is not run has a reason; no reason is of none."""
    typed = [command for block in ALL if block.language == "console" for command, _ in commands(block.text)]
    assert {why_not_typed(command) for command in typed} - {None} == set(NOT_TYPED)
    assert {block.page for block in ALL} >= ON_A_BROKER


def test_every_fence_is_found() -> None:
    """No block escapes because its fence is written in another way."""
    for page in pages():
        fences = re.findall(r"^ *(?:```|~~~)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), page


@pytest.mark.parametrize(
    ("shown", "written", "expected"),
    [
        ("Hello\n", "Hello\n", True),
        ("Hello\n", "Hell\n", False),
        ("", "anything", True),
        ("one\n...\nthree\n", "one\ntwo\nthree\n", True),
        ("ID:…\n", "ID:17\n", True),
        ("ID:…\n", "no id\n", False),
    ],
)
def test_what_a_page_shows(shown: str, written: str, expected: bool) -> None:
    """Output is compared but for what the page leaves out."""
    assert is_shown(shown, written) is expected


@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("python", "undefined", "NameError"),
        ("toml", "a =", "TOMLDecodeError"),
        ("console", "$ false", "exit status 1"),
        ("console", "$ echo Hello\nGoodbye\n", "Goodbye"),
        ("console", "$ export NAME=World\n$ echo Hello $NAME\nHello Ann\n", "Hello World"),
    ],
)
def test_what_is_wrong_fails(language: str, text: str, error: str) -> None:
    """A block that does not run, or does something else than the page shows."""
    with pytest.raises((NameError, ValueError, AssertionError)) as raised:
        Reader({}).attempt(Block("page", 1, language, "", text))
    assert error in repr(raised.value)
