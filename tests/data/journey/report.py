"""With the extra `replay`, or `spark` and Java: judge a log, and read the report."""

from __future__ import annotations

import sys
from pathlib import Path

from soapjms.generate import generate
from soapjms.replay import replay

folder, engine = Path(sys.argv[1]), sys.argv[3]

if __name__ == "__main__":
    generate(folder / "generated", 100, broken=0.5)
    print("log", flush=True)
    summary = replay(folder / "generated" / "logs", folder / "report", engine=engine)
    assert summary.members["verdict"] == "failed"
    assert "<html" in (folder / "report" / "report.html").read_text("utf-8")
    print("report", flush=True)
