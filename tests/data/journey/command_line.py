"""With the extra `cli`: the command explains itself and its commands, or names the extra that one needs; reads URIs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.prefix) / "bin" / "soapjms"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False, timeout=60)


told = run("--help")
assert told.returncode == 0
print("help", flush=True)
for name in re.findall(r"^  ([a-z]+)  ", told.stdout.partition("Commands:")[2], re.MULTILINE):
    done = run(name, "--help")
    assert f"Usage: soapjms {name}" in done.stdout or "pip install 'soapjms[" in done.stderr, name
print("help of each command", flush=True)
parsed = run("uri", "parse", "jms:queue:orders?priority=7")
assert parsed.returncode == 0
assert "orders" in parsed.stdout
print("uri", flush=True)
