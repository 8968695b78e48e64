"""The API reference: all that users import, with the signatures and docstrings of the source, read by griffe.

python tools/docs/reference.py      write docs/api, as `make docs` does
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final, NamedTuple

import griffe

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs/api"
WIDTH: Final = 100

SECTION: Final = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Spec|Deviation):(.*)")
ITEM: Final = re.compile(r"    (\S[^:]*): (.*)|    (\S.*)")


class Chapter(NamedTuple):
    """One page of the reference.

    Attributes:
        title: title of the page.
        text: purpose of the page.
        modules: names by module; if empty, those in the module's `__all__`.
    """

    title: str
    text: str
    modules: Mapping[str, Sequence[str]]


CHAPTERS: Final[Mapping[str, Chapter]] = {
    "soapjms": Chapter(
        "soapjms",
        "Calling, serving, recording: the names in `soapjms`.",
        {
            "soapjms": (), "soapjms.service.typed": (), "soapjms.security": ("UsernameTokens", "refused"),
            "soapjms.signatures": ("Signatures",), "soapjms.progress": ("Phase",),
        },
    ),
    "zeep": Chapter(
        "soapjms.zeep",
        "zeep over JMS. How to use it: [zeep.md](../zeep.md).",
        {"soapjms.zeep": (), "soapjms.zeep.words": ("read_words", "read_json", "arguments_of")},
    ),
    "codegen": Chapter(
        "soapjms.codegen",
        "Code from a WSDL, and what generated code runs on. How to use it: [codegen.md](../codegen.md).",
        {"soapjms.codegen": ()},
    ),
    "bridge": Chapter(
        "soapjms.bridge",
        "SOAP over HTTP and SOAP over JMS. How to use it: [bridges.md](../bridges.md).",
        {
            "soapjms.bridge.http": ("HttpBridge",),
            "soapjms.bridge.backend": ("Behind",),
            "soapjms.bridge.listener": ("Listener",),
            "soapjms.bridge.wsgi": ("WsgiService", "WsgiError"),
        },
    ),
    "serving": Chapter(
        "soapjms.serving",
        "Services that run until they are told to stop. How to use it: [serving.md](../serving.md#from-a-program).",
        {"soapjms.serving": ()},
    ),
    "replay": Chapter(
        "soapjms.replay", "Judging captured traffic. From the command line: [cli.md](../cli.md).",
        {"soapjms.replay": ()},
    ),
    "testing": Chapter(
        "soapjms.testing", "Tests of clients and services. How to use it: [testing.md](../testing.md).",
        {"soapjms.testing": ()},
    ),
    "observing": Chapter(
        "soapjms.observing",
        "Metrics, traces, custom observers. How to use it: [observing.md](../observing.md).",
        {
            "soapjms.observing": ("Observer", "Observed", "Place", "Side", "Outcome"),
            "soapjms.prometheus": ("Metrics",),
            "soapjms.opentelemetry": ("Traces",),
        },
    ),
    "protocol": Chapter(
        "soapjms.protocol",
        "The binding itself, without a broker: URIs, WSDL, content types, records. It is pure: no I/O, no clock.",
        {
            "soapjms.protocol.uri": (),
            "soapjms.protocol.wsdl": (),
            "soapjms.protocol.requesting": ("Endpoint", "RequestingNode"),
            "soapjms.protocol.responding": ("RespondingNode", "RequestAccepted"),
            "soapjms.protocol.record": ("Record",),
            "soapjms.protocol.names": ("FailureReason", "Mep", "profile"),
        },
    ),
    "brokers": Chapter(
        "brokers", "A small JMS: messages, destinations, connections. Supported brokers: [brokers.md](../brokers.md).",
        {"brokers": (), "brokers.naming": ()},
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def sources() -> griffe.ModulesCollection:
    """Read both packages, once."""
    loader = griffe.GriffeLoader(search_paths=[str(ROOT)], allow_inspection=False)
    for package in ("brokers", "soapjms"):
        loader.load(package)
    loader.resolve_aliases(implicit=True, external=False)
    return loader.modules_collection


def page(key: str) -> str:
    """Write a page."""
    chapter = CHAPTERS[key]
    parts = [
        f"# {chapter.title}\n",
        "Written by `make docs` from the docstrings.\n",
        f"{chapter.text}\n",
    ]
    for module, wanted in chapter.modules.items():
        names = wanted or exported(module)
        if len(chapter.modules) > 1:
            parts.append(f"## {module}\n")
        links = (f"[{name}](#{name.lower()})" for name in names)
        parts.append(" · ".join(links) + "\n")
        for name in names:
            parts += described(sources()[f"{module}.{name}"], name)
    return "\n".join(parts)


def exported(module: str) -> list[str]:
    """Return the names that a module's `__all__` lists."""
    return sorted(map(str, sources()[module].exports or ()), key=str.lower)


def index() -> str:
    """Write the page that links to the others."""
    lines = [
        "# API reference\n",
        "Written by `make docs` from the docstrings.\n",
    ]
    lines += [f"* [{each.title}]({key}.md): {each.text}" for key, each in CHAPTERS.items()]
    return "\n".join(lines) + "\n"


# A class, function or value


def described(found: Any, name: str) -> Iterator[str]:
    """Write the entry of a class, function or value."""
    target = found.final_target if found.is_alias else found
    yield f"### {name}\n"
    if target.is_class:
        yield from of_class(target, name)
    elif target.is_function:
        yield signature(target, name)
        yield documented(target)
    else:
        kind = "" if target.annotation is None else f": {target.annotation}"
        value = f" = {target.value}" if target.value is not None and len(str(target.value)) <= WIDTH else ""
        yield f"`{name}{kind}{value}`\n"
        yield documented(target)


def of_class(target: Any, name: str) -> Iterator[str]:
    """Write a class: how it is made, and its public methods and properties."""
    made = target.all_members.get("__init__") if "dataclass" not in target.labels else None
    bases = ", ".join(str(each) for each in target.bases)
    fields = target.parameters if "dataclass" in target.labels else (made.parameters if made is not None else None)
    if is_enum(target):
        yield f"```python\nclass {name}({bases})\n```\n"
    else:
        yield block(f"class {name}", list(shown_parameters(fields or ())))
        if bases and bases != "Exception":
            yield f"Of {', '.join(f'`{each}`' for each in bases.split(', '))}.\n"
    yield documented(target)
    for each in target.members.values():
        if each.name.startswith("_") or each.is_alias:
            continue
        if each.is_function:
            yield f"#### {name}.{each.name}\n"
            yield signature(each, each.name)
            yield documented(each)
        elif "property" in each.labels and each.docstring is not None:
            yield f"#### {name}.{each.name}\n"
            yield f"`{each.name}: {each.annotation}`\n"
            yield documented(each)
        elif is_enum(target) and each.value is not None:
            yield f"* `{each.name}` = `{each.value}`"
    yield ""


def is_enum(target: Any) -> bool:
    """Say whether a class is an enumeration."""
    return any(str(each).endswith(("Enum", "Flag")) for each in target.bases)


def signature(function: Any, name: str) -> str:
    """Write how a function is called."""
    labels = "".join(f"@{each}\n" for each in ("classmethod", "staticmethod") if each in function.labels)
    word = "async def" if "async" in function.labels else "def"
    returned = f" -> {function.returns}" if function.returns is not None else ""
    return block(f"{labels}{word} {name}", list(shown_parameters(function.parameters)), returned)


def block(head: str, parameters: list[str], tail: str = "") -> str:
    """Write a signature in one line, or with a line for each parameter if that is too long."""
    line = f"{head}({', '.join(parameters)}){tail}"
    if len(line.rpartition("\n")[2]) > WIDTH:
        inner = "".join(f"    {each},\n" for each in parameters)
        line = f"{head}(\n{inner}){tail}"
    return f"```python\n{line}\n```\n"


def shown_parameters(parameters: Any) -> Iterator[str]:
    """Write parameters with their types and defaults."""
    is_keyword_only = False
    for each in parameters:
        if each.name in ("self", "cls"):
            continue
        kind = each.kind.value if each.kind is not None else ""
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not is_keyword_only:
            yield "*"
        is_keyword_only |= kind in ("keyword-only", "variadic positional")
        annotation = "" if each.annotation is None else f": {each.annotation}"
        default = "" if each.default is None or stars else f"{' = ' if annotation else '='}{each.default}"
        yield f"{stars}{each.name}{annotation}{default}"


# Docstrings


def documented(target: Any) -> str:
    """Write a docstring: its text as it is, its sections as lists."""
    text = cleandoc(target.docstring.value) if target.docstring is not None else ""
    return "\n".join([*sectioned(text.splitlines()), ""])


def sectioned(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a docstring as Markdown."""
    in_section = False
    for line in lines:
        head = SECTION.fullmatch(line)
        if head is not None:
            in_section = True
            yield f"**{head[1]}**:{head[2]}" + ("" if head[2] else "\n")
        elif in_section and (item := ITEM.fullmatch(line)) is not None:
            yield f"* `{item[1]}`: {item[2]}" if item[1] else f"* {item[3]}"
        elif in_section and line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            in_section &= bool(line.startswith(" ") or not line)
            yield line


def pages() -> dict[str, str]:
    """Return all pages by the names of their files."""
    return {"README.md": index(), **{f"{key}.md": page(key) for key in CHAPTERS}}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
