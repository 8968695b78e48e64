"""The wheel and the source distribution: valid, complete, and the same whoever builds them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from distribution_kit import PUBLISHED, build, build_from, copy_checkout
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from places import ROOT
from trove_classifiers import classifiers

import soapjms
from soapjms.doctor.checks import NEWEST, OLDEST

FILES = {"LICENSE", "NOTICE", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "pyproject.toml"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution of this checkout."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Metadata:
    """What the wheel says of itself."""
    with ZipFile(built[0]) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        return Metadata.from_email(wheel.read(name))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Make files that fewer may read."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def settings() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_valid(built: tuple[Path, Path]) -> None:
    """A package index takes both, and can show the README."""
    words = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_same_elsewhere(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Another folder, another day, another time zone and rights of files: the same octets."""
    (tmp_path / "checkout").mkdir()
    with umask(0o077):
        copy = copy_checkout(tmp_path / "checkout")
        others = build(tmp_path / "built", copy, TZ="Asia/Tokyo", PYTHONHASHSEED="7")
    assert [each.name for each in others] == [each.name for each in built]
    assert [each.read_bytes() for each in others] == [each.read_bytes() for each in built]


def test_the_same_from_source(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The source distribution gives the wheel that the checkout gives."""
    wheel = build_from(built[1], tmp_path)
    assert (wheel.name, wheel.read_bytes()) == (built[0].name, built[0].read_bytes())


def test_what_the_wheel_has(built: tuple[Path, Path]) -> None:
    """Every file of both packages, the pages that errors name, the licence, and nothing else."""
    with ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    info = f"{built[0].name.removesuffix('-py3-none-any.whl')}.dist-info"
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PUBLISHED
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    } | {f"soapjms/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert names - wanted == {
        f"{info}/{each}"
        for each in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
    }
    assert wanted <= names


def test_what_the_source_has(built: tuple[Path, Path]) -> None:
    """The packages, the pages, and what a packager must pass on."""
    with tarfile.open(built[1]) as source:
        names = {each.partition("/")[2] for each in source.getnames()}
    assert {each.partition("/")[0] for each in names} == {*FILES, *PUBLISHED, "docs", ".gitignore", "PKG-INFO"}


def test_metadata(metadata: Metadata) -> None:
    """Who made it, under which licence; the classifiers exist, and name the versions of Python that are let in."""
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE", "NOTICE"]
    assert metadata.author == "The soapjms developers"
    assert metadata.keywords
    assert metadata.classifiers
    assert set(metadata.classifiers) <= classifiers
    named = {found[1] for each in metadata.classifiers if (found := re.search(r":: (3\.\d+)$", each))}
    allowed = SpecifierSet(settings()["requires-python"])
    versions = [(3, minor) for minor in range(30) if f"3.{minor}" in allowed]
    assert named == {f"3.{minor}" for _, minor in versions}
    assert (versions[0], versions[-1]) == (OLDEST, NEWEST)
    assert f"{OLDEST} <= sys.version_info[:2] <= {NEWEST}" in (ROOT / "scripts" / "need-python.sh").read_text("utf-8")


def test_one_version(metadata: Metadata) -> None:
    """The version stands in `soapjms/__init__.py` alone; the metadata have it from there."""
    version = soapjms.__version__
    assert str(metadata.version) == version
    literal = re.compile(rf"""["']{re.escape(version)}["']""")
    modules = [path for package in PUBLISHED for path in (ROOT / package).rglob("*.py")]
    assert [path for path in modules if literal.search(path.read_text("utf-8"))] == [ROOT / "soapjms" / "__init__.py"]


def test_licence() -> None:
    """The Apache License 2.0, word for word."""
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert text.rstrip().endswith("limitations under the License.")
    assert "[name of copyright owner]" in text
