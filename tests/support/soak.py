"""All that `make soak` runs, one step after the other: what `make test` does, with much more; some hours.

`python tests/support/soak.py --small` runs each step with next to nothing, to see that all of them can begin and end;
`--only kills` those whose name has that in it. A step that fails holds up no other. The last lines say what became of
each; ends with 0 if all passed, else with 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from places import ROOT
from progress_kit import say

BROKERS: Final = ("activemq", "artemis")
PYTEST: Final = ("-m", "pytest", "-v", "-m", "soak")
INTERRUPTED: Final = 130


class Step(NamedTuple):
    """One program.

    Attributes:
        name: what people call it.
        words: what Python is to run.
        small: more words, for next to nothing.
    """

    name: str
    words: tuple[str, ...]
    small: tuple[str, ...]


KITS: Final = {
    "many callers": ("many_calls_kit.py", "--calls 320"),
    "many calls": ("soak_kit.py", "--calls 1500"),
}
"""What each broker goes through."""

STEPS: Final = (
    Step("kills", ("tests/support/kill_kit.py",), ("--seed", "1", "--calls", "60")),
    *(
        Step(f"{name}, {broker}", (*f"tests/support/{program}".split(), "--broker", broker), tuple(small.split()))
        for broker in BROKERS
        for name, (program, small) in KITS.items()
    ),
    Step("tests marked soak", PYTEST, ("tests/system/test_serving_brokers.py",)),
    Step(
        "SMQP server killed",
        ("tests/support/smqp_soak.py",),
        ("--subscribers", "5", "--messages", "10", "--kills", "1", "--mutations", "100"),
    ),
    Step(
        "hostile AMQP clients",
        ("tests/support/amqp_soak.py",),
        ("--inputs", "100", "--idle", "10", "--busy", "2", "--messages", "10"),
    ),
)


class Result(NamedTuple):
    """How a step ended."""

    name: str
    status: int
    seconds: float

    def __str__(self) -> str:
        verdict = "passed" if self.status == 0 else f"FAILED with {self.status}"
        return f"{self.name}: {verdict} in {self.seconds:.0f} s"


def run(step: Step, *, small: bool) -> Result:
    """Run one step, which writes where this does."""
    began = time.monotonic()
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/support")))
    done = subprocess.run(
        [sys.executable, *step.words, *(step.small if small else ())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        check=False,
    )
    return Result(step.name, done.returncode, time.monotonic() - began)


def run_all(steps: Sequence[Step], *, small: bool) -> list[Result]:
    """Run all, and say when each begins and how it ended."""
    results = list[Result]()
    for number, step in enumerate(steps, 1):
        head = f"[{number}/{len(steps)}]"
        say(f"{head} {step.name}")
        results.append(run(step, small=small))
        say(f"{head} {results[-1]}")
    return results


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME")
    options = parser.parse_args()
    chosen = [step for step in STEPS if options.only in step.name]
    if not chosen:
        parser.error(f"no step is called so; there are: {'; '.join(step.name for step in STEPS)}")
    try:
        results = run_all(chosen, small=options.small)
    except KeyboardInterrupt:  # the step that ran was interrupted as well
        return INTERRUPTED
    failed = [each for each in results if each.status != 0]
    print("\n".join(map(str, results)))
    print(f"soak: {len(results) - len(failed)} of {len(results)} steps passed: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
