"""The modules of a generated package, beside its dataclasses: contract, faults, clients, service class, `__init__`.

They hold tables and signatures only; what they do is in `soapjms.codegen`, so that a corrected soapjms corrects
packages that were generated before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from soapjms.codegen.dataclass_source import MODULE
from soapjms.codegen.port_model import OperationModel, PortModel
from soapjms.codegen.python_text import call, docstring, literal

MARKER: Final = "# Written by `soapjms wsdl generate`"
"""The start of every generated file."""

TIMEOUT: Final = "timeout: float | None = None"
EXPIRES: Final = 'expires: Expiry = "timeout"'


def modules(model: PortModel) -> Mapping[str, str]:
    """Return the source of each module of a package, by the name of its file."""
    bodies = {
        "__init__.py": _init(model),
        "client.py": _clients(model),
        "contract.py": _contract(model),
        "faults.py": _faults(model),
        "service.py": _service(model),
    }
    found = {name: "\n".join(lines) for name, lines in bodies.items()} | {f"{MODULE}.py": model.types.source}
    versions = ", ".join(f"{each} {_version(each)}" for each in ("soapjms", "xsdata"))
    header = f"{MARKER} ({versions}) from {model.wsdl}: do not edit.\n# ruff: noqa\n"
    return {name: f"{header}{source.rstrip()}\n" for name, source in sorted(found.items())}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _indented(lines: Iterable[str], indent: int = 4) -> list[str]:
    return [f"{' ' * indent}{each}" if each else "" for each in lines]


def _imports(lines: Sequence[str], *names: str) -> list[str]:
    """Return the imports of those sibling modules that the lines use."""
    used = [each for each in names if any(f"{each}." in line for line in lines)]
    return [f"from . import {', '.join(used)}"] if used else []


def _module(text: str, imports: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [*docstring([text], 0), "", "from __future__ import annotations", "", *imports, "", *lines]


def _class(model: PortModel) -> str:
    return f"the port {model.port.name} of the service {model.port.service.name}"


# contract


def _contract(model: PortModel) -> list[str]:
    port, binding = model.port, model.port.binding
    assert binding is not None, "zeep has a binding for the port"
    assert binding.soap_version is not None, "it is a SOAP binding"
    properties: dict[str, str] = {}
    for _, extensions in reversed(list(port.levels())):
        properties |= {each.name: each.value or "" for each in extensions}
    body = [
        "CONTRACT: Final = PortContract(",
        f"    wsdl={literal(model.wsdl)},",
        f"    service={literal(port.service.name)},",
        f"    port={literal(port.name)},",
        f"    binding={literal(port.binding_name)},",
        f"    transport={literal(binding.transport or '')},",
        f"    soap_version={literal(str(binding.soap_version))},",
        f"    address={literal(port.address if port.profile is not None else None)},",
        *_indented(_table("properties", {literal(key): literal(value) for key, value in properties.items()})),
        "    operations={",
        *(line for each in model.operations for line in _indented(_operation(each), 8)),
        "    },",
        ")",
    ]
    imports = ["from typing import Final", "", "from soapjms.codegen import OperationContract, PortContract", ""]
    siblings = _imports(body, "faults", MODULE)
    return _module(f"What {model.wsdl} states about {_class(model)}.", [*imports, *siblings], body)


def _table(name: str, items: Mapping[str, str]) -> list[str]:
    if not items:
        return [f"{name}={{}},"]
    return [f"{name}={{", *(f"    {key}: {value}," for key, value in items.items()), "},"]


def _operation(operation: OperationModel) -> list[str]:
    arguments = [f"method={literal(operation.method)}", f"action={literal(operation.action)}"]
    if operation.request:
        arguments.append(f"request={_type(operation.request)}")
    if operation.response:
        arguments.append(f"response={_type(operation.response)}")
    if operation.headers:
        items = (f"{literal(name)}: {_type(each)}" for name, each in operation.headers.items())
        arguments.append(f"headers={{{', '.join(items)}}}")
    if operation.faults:
        errors = dict.fromkeys(f"faults.{each.error}" for each in operation.faults)
        arguments.append(f"faults=({', '.join(errors)}{',' * (len(errors) == 1)})")
    arguments += ["one_way=True"] * operation.one_way + ["rpc=True"] * operation.rpc
    return call(f"{literal(operation.name)}: OperationContract(", arguments, "),", 8)


def _type(name: str) -> str:
    return f"{MODULE}.{name}"


# faults


def _faults(model: PortModel) -> list[str]:
    lines: list[str] = []
    for each in model.faults:
        lines += [
            "",
            f"class {each.error}(DeclaredFaultError[{_type(each.detail)}]):",
            *_indented(docstring([f"The fault {each.name}"], 4)),
            "",
            f"    fault_name = {literal(each.name)}",
            f"    detail_type = {_type(each.detail)}",
            "",
        ]
    imports = ["from soapjms.codegen import DeclaredFaultError", "", *_imports(lines, MODULE)]
    return _module(f"The faults that {model.wsdl} declares for {_class(model)}.", imports if lines else [], lines)


# clients


def _clients(model: PortModel) -> list[str]:
    lines: list[str] = []
    for name, base, keyword, more in (
        (model.client, "ContractClient", "", ""),
        (model.async_client, "AsyncContractClient", "async ", ", for asyncio"),
    ):
        lines += [
            "",
            f"class {name}({base}):",
            *_indented(docstring([f"Calls {_class(model)}{more}"], 4)),
            "",
            "    contract = CONTRACT",
            *(line for each in model.operations for line in _indented(_method(each, keyword))),
            "",
        ]
    nothing = any("NoneType" in each for each in lines)
    expiry = ", Expiry" if any(EXPIRES in each for each in lines) else ""
    imports = [
        *(["from types import NoneType", ""] if nothing else []),
        f"from soapjms.codegen import AsyncContractClient, ContractClient{expiry}",
        "",
        *_imports(lines, "faults", MODULE),
        "from .contract import CONTRACT",
    ]
    return _module(f"The clients of {_class(model)}, as {model.wsdl} states it.", imports, lines)


def _method(operation: OperationModel, keyword: str) -> Iterator[str]:
    """Yield the lines of a client's method."""
    parameters = ["self", *_request(operation), "*"]
    parameters += [f"{name}: {_type(kind)} | None = None" for name, kind in operation.headers.items()]
    result = _type(operation.response) if operation.response else "None"
    yield ""
    parameters += [TIMEOUT] if operation.one_way else [TIMEOUT, EXPIRES]
    yield from call(f"{keyword}def {operation.method}(", parameters, f") -> {result}:", 4)
    yield from _indented(docstring(_texts(operation), 8))
    wait = "await " if keyword else ""
    given = ", ".join(f"{literal(each)}: {each}" for each in operation.headers)
    arguments = [literal(operation.name), "request" if operation.request else "None"]
    if not operation.one_way:
        arguments.append(_type(operation.response) if operation.response else "NoneType")
    arguments += [f"{{{given}}}", "timeout"] if operation.one_way else [f"{{{given}}}", "timeout", "expires"]
    start = f"{'return ' if operation.response else ''}{wait}self.{'_send' if operation.one_way else '_call'}("
    yield from _indented(call(start, arguments, ")", 8))


def _request(operation: OperationModel) -> list[str]:
    return [f"request: {_type(operation.request)}"] if operation.request else []


def _texts(operation: OperationModel) -> Iterator[str]:
    """Yield the paragraphs of the docstring of an operation's methods."""
    yield f"{'Send the one-way message' if operation.one_way else 'Call the operation'} {operation.name}"
    yield operation.documentation
    if operation.faults:
        yield f"Raises {', '.join(dict.fromkeys(each.error for each in operation.faults))}"


# service


def _service(model: PortModel) -> list[str]:
    lines = ["", f"class {model.service}(ServiceInterface, Protocol):"]
    lines += _indented(
        docstring(
            [
                f"What a service implements for {_class(model)}",
                "Give an object of a class that inherits from this one to soapjms.Service.from_wsdl. Methods may be "
                "async. "
                "A method with a parameter `_request: soapjms.Request | None = None` gets the request there.",
            ],
            4,
        )
    )
    lines += ["", "    __soapjms_contract__: ClassVar[PortContract] = CONTRACT"]
    for each in model.operations:
        lines += ["", *_indented(_member(each))]
    awaitable = any("Awaitable[" in each for each in lines)
    imports = [
        *(["from collections.abc import Awaitable"] if awaitable else []),
        "from typing import ClassVar, Protocol",
        "",
        "from soapjms.codegen import PortContract, ServiceInterface",
        "",
        *_imports(lines, "faults", MODULE),
        "from .contract import CONTRACT",
    ]
    return _module(f"The class that services inherit from, as {model.wsdl} states it.", imports, lines)


def _member(operation: OperationModel) -> list[str]:
    parameters = ["self", *_request(operation), *(["*"] if operation.headers else [])]
    parameters += [f"{name}: {_type(kind)} | None" for name, kind in operation.headers.items()]
    result = _type(operation.response) if operation.response else "None"
    lines = call(f"def {operation.method}(", parameters, f") -> {result} | Awaitable[{result}]:", 4)
    verb = "Take the one-way message" if operation.one_way else "Answer the operation"
    _, *others = _texts(operation)
    return [*lines, *_indented(docstring([f"{verb} {operation.name}", *others], 8)), "    ..."]


# __init__


def _init(model: PortModel) -> list[str]:
    text = [
        f"A typed client and service class for {_class(model)}, as {model.wsdl} states it",
        f"{model.client} and {model.async_client} call it, {model.service} is what a service implements.",
    ]
    names = {
        "client": [model.async_client, model.client],
        "contract": ["CONTRACT"],
        "faults": [each.error for each in model.faults],
        "service": [model.service],
        MODULE: list(model.types.classes),
    }
    lines = [*docstring(text, 0), ""]
    for module, exported in names.items():
        if exported:
            lines += _import(module, sorted(exported))
    everything = sorted({each for exported in names.values() for each in exported})
    return [*lines, "", *call("__all__ = [", [literal(each) for each in everything], "]", 0)]


def _import(module: str, names: Sequence[str]) -> list[str]:
    line, *others = call(f"from .{module} import (", names, ")", 0)
    return [line, *others] if others else [line.replace("(", "").replace(")", "")]
