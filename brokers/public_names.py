"""Public names of a package that are imported when they are first used, so that importing the package costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def import_when_used(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package: a name is imported when it is first asked for.

    A package or module below `package` that holds such a name is an attribute too, without an import of its own.

    Args:
        package: the name of the package.
        names: for each module, its names that the package exports, with a space between two.
    """
    modules = {name: module for module, words in names.items() for name in words.split()}
    below = {module.removeprefix(f"{package}.").partition(".")[0] for module in names if module.startswith(package)}

    def find(name: str) -> object:
        if name in modules:
            found = getattr(import_module(modules[name]), name)
        elif name in below:
            found = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted(modules)
