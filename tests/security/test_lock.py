"""What the gate installs: all of it is pinned by hashes, so that nobody on the way puts in something else."""

from __future__ import annotations

import re
import tomllib

import pytest
from places import ROOT

LOCKS = ["requirements.lock", "requirements-oldest-zeep.lock"]
OURS = "--no-deps --no-build-isolation --editable ."
"""How the package itself is installed, for which nothing is fetched."""


@pytest.mark.parametrize("lock", LOCKS)
def test_each_has_its_hash(lock: str) -> None:
    """Each requirement is of one version, with the SHA-256 of its files."""
    text = re.sub(r"^\s*#.*$", "", (ROOT / lock).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    requirements = [line for line in text.splitlines() if line.strip()]
    assert requirements
    for each in requirements:
        assert re.match(r"[\w.\[\],-]+==[\w.+!]+ ", each), each
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", each), each


def test_whatever_pip_installs() -> None:
    """Each line of the Makefile that installs asks for hashes, but for the package itself."""
    lines = re.findall(r"^\t\$\(PIP\) install (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert OURS in lines
    assert sum(f"--requirement {lock}" in each for each in lines for lock in LOCKS) == len(LOCKS)
    assert [each for each in lines if each != OURS and "--require-hashes" not in each] == []


def test_the_oldest_zeep_is_the_oldest() -> None:
    """It is the one that pyproject.toml lets in."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["zeep"]
    oldest = {match[1] for each in wanted if (match := re.match(r"zeep>=([\d.]+)", each))}
    pinned = re.findall(r"^zeep==([\d.]+)", (ROOT / LOCKS[1]).read_text(), re.MULTILINE)
    assert {each.removesuffix(".0") for each in pinned} == oldest
