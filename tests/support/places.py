"""Where things lie in the repository, for tests and what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SUPPORT: Final = ROOT / "tests/support"
DATA: Final = ROOT / "tests/data"
VECTORS: Final = ROOT / "tests/vectors"
