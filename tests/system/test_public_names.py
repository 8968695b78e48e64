"""Every name that docs/api has had stays importable, or whoever imports it by its old name is told the new one."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from places import DATA, ROOT

from brokers.moved_modules import MovedModules

NAMES = [tuple(line.split()) for line in (DATA / "public_names.txt").read_text().splitlines()]
MOVED = {old: new for each in sys.meta_path if isinstance(each, MovedModules) for old, new in each.names.items()}
CHANGES = (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_a_public_name_is_there() -> None:
    """Each: by the module that it was documented with, or by the one that the error names."""
    assert [each for each in NAMES if not hasattr(import_module(MOVED.get(each[0], each[0])), each[1])] == []


@pytest.mark.parametrize("old", MOVED)
def test_a_moved_module_is_told(old: str) -> None:
    """The old name says the new one, which is there; CHANGELOG.md has both."""
    with pytest.raises(ModuleNotFoundError, match=f"{old} is {MOVED[old]} now; see CHANGELOG.md"):
        import_module(old)
    import_module(MOVED[old])
    assert f"`{old}`" in CHANGES
    assert f"`{MOVED[old]}`" in CHANGES
