"""Runs the rows, each in a process of its own, as many at a time as there are processors: `make fuzz`.

PYTHONPATH=.:tests:tests/support python -m fuzz --only signatures --seed 17 --cases 1

The first row that fails ends with status 1, with the seed of its case and the command that carries it out again.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.row import Row
from fuzz.rows import ROWS
from fuzz.running import FailedError, Outcome, Seed, run

HANGS = 120.0
"""Seconds that a case may take by the clock on the wall; then its process ends."""

TOLD = 10.0
"""Seconds between two lines of a row."""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--seed", type=int, default=None, help="of the first case; drawn if it is not given")
    parser.add_argument("--cases", type=int, default=None, help="of each row; by default as many as the row has")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no row begins a case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--noted", type=Path, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def carry_out(row: Row, options: argparse.Namespace, cases: int) -> int:
    """Run a row in this process."""
    faulthandler.enable()
    seed, said = Seed(options.noted), time.monotonic()

    def begin(number: int) -> None:
        seed.write(number)
        faulthandler.dump_traceback_later(HANGS, exit=True)

    def tell(outcome: Outcome) -> None:
        nonlocal said
        if time.monotonic() - said > TOLD:
            said = time.monotonic()
            print(f"{row.name}: {outcome.cases} of {cases} after {outcome.seconds:.0f} s", flush=True)

    try:
        outcome = run(row, options.seed, cases, seconds=options.seconds, begins=begin, tells=tell)
    except FailedError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"{error}", flush=True)
        return 1
    print(f"{row.name}: {outcome}", flush=True)
    return 0


def start(row: Row, options: argparse.Namespace, cases: int) -> int:
    """Run a row in a process of its own; one that crashes is told of by the seed that it was at."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "seed")
        command = [sys.executable, "-m", "fuzz", "--only", row.name, "--seed", f"{options.seed}", "--cases", f"{cases}"]
        status = subprocess.run([*command, "--seconds", f"{options.seconds}", "--noted", f"{noted}"]).returncode
        seed = Seed(noted)
        at = seed.read()
        seed.close()
    if status not in (0, 1) and at is not None:
        print(
            f"{row.name}: crashed with status {status} at the case of seed {at}; again: {row.command(at)}", flush=True
        )
    return status


def main() -> int:
    """Run what was asked for; 0 if all of it held."""
    options = arguments()
    rows = [ROWS[name] for name in options.only]
    if options.noted is not None:
        return carry_out(rows[0], options, options.cases)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 30)
    print(f"{', '.join(each.name for each in rows)}: --seed {options.seed}", flush=True)
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        statuses = list(pool.map(lambda row: start(row, options, options.cases or row.cases), rows))
    return max(map(bool, statuses))


if __name__ == "__main__":
    sys.exit(main())
