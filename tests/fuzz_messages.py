"""Drives mutated messages through everything that reads messages: `make fuzz`.

PYTHONPATH=.:tests python tests/fuzz_messages.py --messages 100000 --seed 1

Hypothesis draws them in batches of a thousand; batch n has the seed plus n, which is printed with it, and which repeats
it with `--messages 1000`. What fails is shrunk and shown, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from fuzz_kit import DIALECTS, Tally, drive, lines, messages, read_line
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from brokers.message import Message

BATCH = 1000
LINES_OF_BATCH = 100


def run_batch(number: int, size: int) -> Tally:
    """Drive one batch of messages, and a few garbled lines of a log."""
    tally = Tally()
    quiet = settings(
        max_examples=size, deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
    )

    @seed(number)
    @quiet
    @given(messages(), st.sampled_from(DIALECTS), st.booleans())
    def drive_messages(message: Message, dialect: str, strict: bool) -> None:
        drive(message, dialect, strict, tally)

    @seed(number)
    @settings(quiet, max_examples=LINES_OF_BATCH)
    @given(lines())
    def read_lines(line: str) -> None:
        tally.became["line of a log read" if read_line(line) else "line of a log refused"] += 1

    drive_messages()
    read_lines()
    return tally


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first batch; drawn if it is not given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; as many as processors by default")
    return parser.parse_args()


def main() -> int:
    """Run batches until there were enough messages; the first that fails ends all."""
    options = arguments()
    first = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    print(f"{options.messages} messages, --seed {first}", flush=True)
    total, began = Tally(), time.monotonic()
    sizes = [min(BATCH, options.messages - done) for done in range(0, options.messages, BATCH)]
    with ProcessPoolExecutor(options.jobs) as pool:
        batches = {pool.submit(run_batch, first + index, size): first + index for index, size in enumerate(sizes)}
        for batch in as_completed(batches):
            if batch.exception() is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                print(
                    f"this batch failed; repeat it with --seed {batches[batch]} --messages {BATCH} --jobs 1", flush=True
                )
                batch.result()
            total.add(batch.result())
            left = (time.monotonic() - began) / total.messages * (options.messages - total.messages)
            print(
                f"seed {batches[batch]}: {total.messages} of {options.messages} messages, {max(left, 0):.0f} s left, "
                f"slowest {total.slowest:.3f} s",
                flush=True,
            )
    for what, times in sorted(total.became.items()):
        print(f"{times:8} {what}")
    print(f"{total.messages} messages in {time.monotonic() - began:.0f} s: each accepted or refused, nothing escaped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
