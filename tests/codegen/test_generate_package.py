"""What a generated package consists of, when it is written, and what type checkers say about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from codegen_kit import BANK, generated, small_wsdl
from cxf_kit import ECHO
from places import ROOT
from typed_kit import shop_wsdl

import soapjms
from soapjms import InvalidWsdlError, SoapVersion, UsageError
from soapjms.codegen import generate_package
from soapjms.zeep import Client

MARKER = b"# Written by `soapjms wsdl generate`"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files in a folder."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


# Files


def test_the_files(tmp_path: Path) -> None:
    """Each has the mark in its head, says its generator, and no time and no path of this machine."""
    made = generate_package(BANK, "bank_client", out=tmp_path)
    found = contents(made.path)
    assert sorted(found) == sorted(made.files)
    assert os.listdir(tmp_path) == ["bank_client"]
    for text in found.values():
        head = text.splitlines()[0]
        assert head.startswith(MARKER)
        assert b"xsdata" in head
        assert b"from bank.wsdl" in head
        assert str(BANK.parent).encode() not in text


def test_the_same_wsdl_gives_the_same_octets(tmp_path: Path) -> None:
    """Wherever the file lies, whatever the hash seed of Python is, and when a package is replaced."""
    first = contents(generate_package(BANK, "bank_client", out=tmp_path).path)
    assert contents(generate_package(BANK, "bank_client", out=tmp_path).path) == first
    program = (
        "import sys; from soapjms.codegen import generate_package; generate_package(*sys.argv[1:3], out=sys.argv[3])"
    )
    for seed in "12":
        folder = tmp_path / seed
        folder.mkdir()
        for name in ("bank.wsdl", "bank.xsd"):
            (folder / name).write_bytes(BANK.with_name(name).read_bytes())
        subprocess.run(
            [sys.executable, "-c", program, "bank.wsdl", "bank_client", "."],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            check=True,
            timeout=60,
        )
        assert contents(folder / "bank_client") == first


def test_foreign_files_stay(tmp_path: Path) -> None:
    """A folder with a file that was not generated is not replaced, nor is anything that is no folder."""
    folder = generate_package(BANK, "bank_client", out=tmp_path).path
    (folder / "__pycache__").mkdir()
    (folder / "old.py").write_bytes(MARKER + b" long ago\n")
    generate_package(BANK, "bank_client", out=tmp_path)
    assert not (folder / "old.py").exists()
    (folder / "mine.py").write_text("x = 1\n")
    before = contents(folder)
    with pytest.raises(UsageError, match=r"mine\.py was not generated"):
        generate_package(ECHO[SoapVersion.SOAP_11], "bank_client", out=tmp_path)
    assert contents(folder) == before
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(folder)
    for name in ("file", "link"):
        with pytest.raises(UsageError, match="it is something else"):
            generate_package(BANK, name, out=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["bank_client", "file", "link"]


def test_a_module_is_not_hidden(tmp_path: Path) -> None:
    """A package beside a module of its name would be imported in its stead."""
    module = tmp_path / "bank.py"
    module.write_text("service = 1\n")
    with pytest.raises(UsageError, match=r"bank\.py is a module of the same name, .*; give another package or out"):
        generate_package(BANK, "bank", out=tmp_path)
    assert os.listdir(tmp_path) == ["bank.py"]


def test_a_package_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails, or putting the new package in place, the earlier one stays as it was."""
    folder = generate_package(BANK, "bank_client", out=tmp_path).path
    before = contents(folder)
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if source.name == "new":
            raise OSError("no space")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="no space"):
        generate_package(ECHO[SoapVersion.SOAP_11], "bank_client", out=tmp_path)
    with pytest.raises(InvalidWsdlError):
        generate_package(tmp_path / "none.wsdl", "bank_client", out=tmp_path)
    assert contents(folder) == before
    assert os.listdir(tmp_path) == ["bank_client"]


@pytest.mark.parametrize(
    ("package", "out", "said"),
    [
        ("a-b", ".", "package must be a Python identifier"),
        ("class", ".", "package must be a Python identifier"),
        ("a.b.c", ".", r"identifier, such as bank_client, got 'a\.b\.c'; write c, and the folder a/b of out$"),
        ("../a", ".", "package must be a Python identifier"),
        (
            "json",
            ".",
            "package must not be the name of a package that .*, got 'json'; give another, such as json_client",
        ),
        ("soapjms", ".", "package must not be the name of a package"),
        ("brokers", ".", "package must not be the name of a package"),
        ("lxml", ".", "package must not be the name of a package"),
        ("a", "nowhere", "out must be a folder that exists"),
    ],
)
def test_what_is_no_package(tmp_path: Path, package: str, out: str, said: str) -> None:
    """A name that cannot be imported, and a folder that is not there, are refused."""
    with pytest.raises(UsageError, match=said):
        generate_package(BANK, package, out=tmp_path / out)
    assert not list(tmp_path.iterdir())


def test_a_name_of_pythons_within_a_package(tmp_path: Path) -> None:
    """There it is not in the way of Python's own."""
    (tmp_path / "__init__.py").touch()
    assert generate_package(BANK, "json", out=tmp_path).path == tmp_path / "json"


# Names


def test_names_that_clash(tmp_path: Path) -> None:
    """Elements, types, faults and classes of the package itself that share a name all get names of their own."""
    texts = (
        "SmallClient AsyncSmallClient SmallService Decimal Enum List field Any Meta str XmlDate XmlDateTime ForwardRef "
    )
    names = [*texts.split(), "Sequence", "types"]
    types = "".join(f'<xs:element name="{each}" type="t:{each}"/>' for each in names) + "".join(
        f'<xs:complexType name="{each}"><xs:sequence><xs:element name="class" type="xs:string"/>'
        '<xs:element name="Class" type="xs:string"/><xs:element name="import" type="xs:dateTime"/>'
        f'<xs:element name="{each}" type="t:Level"/></xs:sequence></xs:complexType>'
        for each in names
    )
    types += (
        '<xs:simpleType name="Level"><xs:restriction base="xs:string"><xs:enumeration value="None"/>'
        '<xs:enumeration value="none"/><xs:enumeration value="1"/><xs:enumeration value=""/>'
        '<xs:enumeration value="mro"/></xs:restriction></xs:simpleType>'
    )
    path = tmp_path / "small.wsdl"
    path.write_text(small_wsdl(types, request="t:SmallClient", response="t:field"), encoding="utf-8")
    with generated(path, tmp_path, "small") as small:
        assert {"SmallClient", "SmallClient_", "SmallService_", "AsyncSmallClient_"} <= set(small.__all__)
        assert len(small.Level) == 5
        assert {"XmlDateType", "Sequence", "Types"} <= set(small.__all__)
        operation = small.CONTRACT.operations["ask"]
        assert operation.request is small.SmallClient
        level = small.Level("none")
        request = operation.request(class_value="a", small_class="b", import_value=1, small_client=level)
        assert request.small_client.value == "none"


@pytest.mark.parametrize(
    ("operation", "method"),
    [
        ("greetMe", "greet_me"),
        ("GetURL", "get_url"),
        ("HTTPPost2", "http_post2"),
        ("close", "close_"),
        ("import", "import_"),
        ("a.b-c", "a_b_c"),
        ("_call", "call"),
        ("Überweisen", "überweisen"),
        ("types", "types_"),
    ],
)
def test_names_of_methods(tmp_path: Path, operation: str, method: str) -> None:
    """The operation's name as Python writes functions; names that are taken get an underscore."""
    path = tmp_path / "small.wsdl"
    text = small_wsdl('<xs:element name="ask" type="xs:string"/>', response="t:ask")
    path.write_text(text.replace('operation name="ask"', f'operation name="{operation}"'), encoding="utf-8")
    with generated(path, tmp_path, "small") as small:
        assert callable(getattr(small.SmallClient, method))
        assert callable(getattr(small.SmallService, method))
        assert small.CONTRACT.operations[operation].method == method


def test_documentation(tmp_path: Path) -> None:
    """The documentation of types and operations is in the docstrings."""
    with generated(BANK, tmp_path) as bank:
        assert bank.Account2.__doc__.strip() == "An account of the \"bank\" \\ '''with''' signs."
        assert "Moves money; 'at once' or later. /N{BULLET} '''" in bank.BankClient.transfer.__doc__
        assert "TransferRefusedError, ClosedError" in bank.AsyncBankClient.transfer.__doc__


# What cannot be generated


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('element="t:Note"', 'element="t:None"', "no such element"),
        ('<s:body use="literal"/>', '<s:body use="encoded"/>', "must have use='literal'"),
        ('name="p" element="t:Note"', 'name="p" type="xs:string"', "must have an element"),
        (
            '<w:part name="p" element="t:Note"/>',
            '<w:part name="p" element="t:Note"/><w:part name="q" element="t:Note"/>',
            "has 2 parts in the body",
        ),
        ('namespace="urn:bank:rpc"/></w:input>', 'namespace="urn:bank"/></w:input>', None),
        ('<xs:element name="Note"', '<xs:element name="Convert" type="xs:string"/><xs:element name="Note"', None),
        ("jms:queue:bank", "http://bank", "SOAP/JMS transport and the address"),
        ("xs:decimal", "xs:decimals", "decimals"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    """Mistakes in a WSDL are told before anything is written; None for a text that is none."""
    (tmp_path / "bank.xsd").write_bytes(BANK.with_name("bank.xsd").read_bytes())
    path = tmp_path / "bank.wsdl"
    text = BANK.read_text("utf-8").replace(old, new)
    assert new in text
    path.write_text(text, encoding="utf-8")
    if said is None:
        generate_package(path, "bank_client", out=tmp_path)
        return
    with pytest.raises(UsageError, match=said):
        generate_package(path, "bank_client", out=tmp_path)
    assert not (tmp_path / "bank_client").exists()


def test_an_overloaded_operation(tmp_path: Path) -> None:
    """It is refused everywhere: zeep takes the messages of one and the action of the other."""
    text = small_wsdl('<xs:element name="ask" type="xs:int"/><xs:element name="answer" type="xs:int"/>')
    for element in re.findall(r"<w:operation .*?</w:operation>", text, re.DOTALL):
        text = text.replace(element, f"{element}{element.replace('urn:ask', 'urn:other')}")
    (tmp_path / "small.wsdl").write_text(text, encoding="utf-8")
    said = "the operation ask is overloaded: the binding has several of that name; give each a name of its own"
    with pytest.raises(UsageError, match=said):
        generate_package(tmp_path / "small.wsdl", "small", out=tmp_path)
    with pytest.raises(UsageError, match=said):
        soapjms.Service.from_wsdl(tmp_path / "small.wsdl").operation("ask")(lambda value: value)
    with (
        soapjms.connect("embedded:overloaded") as connection,
        Client(tmp_path / "small.wsdl", connection=connection) as client,
        pytest.raises(UsageError, match=said),
    ):
        client.service.ask(1)


def test_an_element_like_an_rpc_wrapper(tmp_path: Path) -> None:
    """An element of the schema that has the name of an RPC wrapper is refused: one class cannot be both."""
    path = tmp_path / "shop.wsdl"
    text = shop_wsdl().replace("urn:shop:rpc", "urn:shop").replace('<xs:element name="till"', '<xs:element name="move"')
    path.write_text(text.replace("t:till", "t:move"), encoding="utf-8")
    with pytest.raises(
        InvalidWsdlError, match=r"an element \{urn:shop\}move, which wraps a message of the RPC operation"
    ):
        generate_package(path, "shop", out=tmp_path)


def test_the_port_is_chosen(tmp_path: Path) -> None:
    """With several ports one must be named; its properties, address and SOAP version are in the contract."""
    greeter = ROOT / "examples/greeter.wsdl"
    with pytest.raises(UsageError, match="choose one of: Greeter/GreeterPort, Greeter/GreeterPort12"):
        generate_package(greeter, "greeter", out=tmp_path)
    with generated(greeter, tmp_path, "greeter", port="Greeter/GreeterPort12") as package:
        contract = package.CONTRACT
        assert (contract.soap_version, contract.address) == ("1.2", "jms:queue:greeter?priority=7")
    properties = BANK.with_name("echo-soap11-properties.wsdl")
    with generated(properties, tmp_path, "echo", port="PortOverBinding") as package:
        assert package.CONTRACT.properties["priority"] == "3"
        assert package.CONTRACT.properties["timeToLive"] == "7200000"


def test_a_port_for_http(tmp_path: Path) -> None:
    """A WSDL without SOAP/JMS ports gives a package too; its clients are given the address."""
    path = tmp_path / "small.wsdl"
    text = small_wsdl('<xs:element name="ask" type="xs:string"/>', response="t:ask")
    text = text.replace("http://www.w3.org/2010/soapjms/", "http://schemas.xmlsoap.org/soap/http")
    path.write_text(text.replace("jms:queue:small", "http://small"), encoding="utf-8")
    with generated(path, tmp_path, "small", port="Small") as small:
        assert small.CONTRACT.target("jms:queue:small") == "jms:queue:small"
        with pytest.raises(UsageError, match="uri must be given"):
            small.CONTRACT.target(None)


# Type checkers

PROGRAM = """\
from decimal import Decimal

import soapjms
from soapjms import Request

import bank_client
from bank_client import AsyncBankClient, BankClient, BankService, Currency, Find, Note, Transfer, TransferResponse
from xsdata.models.datatype import XmlDate


class Bank(BankService):
    def transfer(
        self, request: Transfer, *, session: bank_client.Session | None, _request: Request | None = None
    ) -> TransferResponse:
        if request.amount > 1000:
            raise bank_client.TransferRefusedError(bank_client.TransferRefused(limit=Decimal(1), class_value=""), "no")
        raise NotImplementedError

    async def find(self, request: Find) -> bank_client.Account:
        return bank_client.Account(iban=str(request.number), owner=None)

    def import_(self, request: Note) -> None:
        print(request.value)

    def reset(self) -> None:
        pass

    def convert(self, request: bank_client.Convert) -> bank_client.ConvertResponse:
        return bank_client.ConvertResponse(amount=request.amount)


class Shape:
    def reset(self) -> None:
        pass


connection = soapjms.connect("embedded:")
service = soapjms.Service.from_wsdl("bank.wsdl", Bank())
soapjms.Service.from_wsdl("bank.wsdl", Shape())  # E: incompatible type "Shape"
account = bank_client.Account2(iban="DE1", owner=None)


def call(client: BankClient) -> int:
    request = Transfer(
        amount=Decimal(1), currency=Currency.EUR, from_value=account, to=account, on_or_at=XmlDate(2026, 1, 1)
    )
    try:
        receipt = client.transfer(request, session=bank_client.Session(token=""), timeout=5).receipt
    except bank_client.TransferRefusedError as error:
        print(error.detail.limit + 1, error.detail.limits)  # E: no attribute "limits"
        raise
    client.reset(expires=None)
    client.import_(Note(value=""), expires=3)  # E: Unexpected keyword argument "expires"
    client.transfer(Note(value=""))  # E: incompatible type "Note"
    client.transfer(request, Note(value=""))  # E: Too many positional arguments
    client.find(Find(number="7"))  # E: incompatible type "str"
    Transfer(amount=Decimal(1))  # E: Missing named argument
    word: str = client.find(Find(number=7)).owner  # E: Incompatible types in assignment
    client.transfers(request)  # E: has no attribute "transfers"
    return receipt.number


async def call_async(client: AsyncBankClient) -> int:
    found = await client.find(Find(number=7))
    client.find(Find(number=7)).iban  # E: has no attribute "iban"
    return found.iban  # E: Incompatible return value type


class Half(BankService):
    def transfer(self, request: Note) -> int:  # E: incompatible with supertype
        return 1


AsyncBankClient(connection, max_calls=3)
BankClient(connection, timeot=3)  # E: Unexpected keyword argument "timeot"
Half()  # E: Cannot instantiate abstract class
"""


def test_type_checkers(tmp_path: Path) -> None:
    """mypy --strict has no complaint about a package, and about a program only where it misuses the package."""
    for wsdl, package, port in (
        (BANK, "bank_client", None),
        (ECHO[SoapVersion.SOAP_12], "echo", None),
        (ROOT / "examples/greeter.wsdl", "greeter", "GreeterPort"),
    ):
        generate_package(wsdl, package, out=tmp_path, port=port)
    (tmp_path / "shop.wsdl").write_text(shop_wsdl(), encoding="utf-8")
    generate_package(tmp_path / "shop.wsdl", "shop", out=tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"),
         "--hide-error-context", "bank_client", "echo", "greeter", "shop", "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )  # fmt: skip
    errors: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if ": error:" in line:
            assert line.startswith("program.py:"), line
            errors[int(line.split(":")[1])] = errors.get(int(line.split(":")[1]), "") + line
    wanted = {
        number: line.partition("# E: ")[2] for number, line in enumerate(PROGRAM.splitlines(), 1) if "# E: " in line
    }
    assert errors.keys() == wanted.keys(), done.stdout
    for number, text in wanted.items():
        assert text in errors[number]
