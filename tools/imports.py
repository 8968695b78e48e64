"""The imports of each file of the product, read from its syntax tree."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = sorted(path for name in ("brokers", "soapjms") for path in (ROOT / name).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file, once."""
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the module that each import of a file names, and how many dots stand before it.

    `from package import name` names `package.name` if that is one of our modules.
    """
    found = list[tuple[str, int]]()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(each.name, 0) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for each in node.names:
                inner = ROOT.joinpath(*module.split("."), each.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                found.append((f"{module}.{each.name}" if is_module else module, node.level))
    return tuple(found)


def module_of(path: Path) -> str:
    """Return a file's module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def graph() -> dict[str, set[str]]:
    """Return the modules that each module of the product imports, including imports in functions and for types."""
    names = {module_of(path): path for path in PRODUCT}
    return {name: {each for each, _ in imports_of(path)} & names.keys() - {name} for name, path in names.items()}


def circles(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the part of a graph that remains without the modules that are in no cycle; empty without cycles."""
    while graph:  # remove modules that import none of the others, or are imported by none of them
        imported = set().union(*graph.values())
        spare = {name for name, wanted in graph.items() if not wanted or name not in imported}
        if not spare:
            break
        graph = {name: wanted - spare for name, wanted in graph.items() if name not in spare}
    return graph
