"""Modules that have another name now: whoever imports one by its old name is told the new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class MovedModules(MetaPathFinder):
    """Stands behind all other finders, so that it is asked for what is not there.

    Args:
        names: the new names of modules by their old ones.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing.

        Raises:
            ModuleNotFoundError: the module has moved; the message says where it is.
        """
        if fullname not in self.names:
            return None
        raise ModuleNotFoundError(f"{fullname} is {self.names[fullname]} now; see CHANGELOG.md", name=fullname)
