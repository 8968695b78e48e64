"""With the extra `parquet`: generate a log in Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

from soapjms.generate import generate

made = generate(Path(sys.argv[1]) / "generated", 100, form="parquet")
assert made.files
assert {each.suffix for each in made.files} == {".parquet"}
print("log", flush=True)
