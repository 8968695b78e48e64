"""Replay on a cluster: a script for spark-submit, with the arguments of `soapjms replay`.

    spark-submit --master yarn --py-files soapjms-*-py3-none-any.whl examples/replay_on_spark.py \\
        replay hdfs:///captures --out /shared/report

Without arguments it replays a small log of its own, on Spark on this machine.

It needs: pip install 'soapjms[cli,spark]', and Java
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from soapjms.cli import main
from soapjms.generate import generate


def small_replay() -> list[str]:
    """Write a small log, and return the words of a command that replays it."""
    folder = Path(mkdtemp(prefix="soapjms-"))
    generate(folder / "made", 200, broken=0)
    return ["replay", str(folder / "made" / "logs"), "--out", str(folder / "report"), "--engine", "spark"]


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or small_replay()
    main()
