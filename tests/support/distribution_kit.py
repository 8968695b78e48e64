"""Build what is published, the wheel and the source distribution, as a packager would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT

PUBLISHED = ("soapjms", "brokers")
"""The packages of the wheel."""


def build(folder: Path, source: Path = ROOT, **options: str) -> tuple[Path, Path]:
    """Build the wheel and the source distribution.

    Args:
        folder: where they go; it must be empty.
        source: the checkout to build from.
        options: environment variables to add.

    Returns:
        the wheel and the source distribution.

    Raises:
        subprocess.CalledProcessError: the build failed.
    """
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(words, cwd=source, env={**os.environ, **options}, capture_output=True, check=True, timeout=120)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def build_from(sdist: Path, folder: Path) -> Path:
    """Build the wheel from a source distribution by way of pip, without a network."""
    words = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir"]
    words += ["--wheel-dir", str(folder), str(sdist)]
    subprocess.run(words, capture_output=True, check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    return wheel


def copy_checkout(folder: Path) -> Path:
    """Copy what distributions are built from, with the times of today."""
    for name in (*PUBLISHED, "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, copy_function=shutil.copyfile)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    return folder
