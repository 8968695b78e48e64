"""Renamed modules: importing one by its old name raises an error with the new name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class MovedModules:
    """Finder that stands behind all others, so that it sees only imports that they did not find.

    Args:
        names: maps old names of modules to new ones.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, as this finds no module.

        Raises:
            ModuleNotFoundError: the module was renamed; the text has the new name.
        """
        if fullname not in self.names:
            return None
        raise ModuleNotFoundError(f"{fullname} is {self.names[fullname]} now; see CHANGELOG.md", name=fullname)
