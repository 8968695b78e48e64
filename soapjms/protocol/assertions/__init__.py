"""The conformance assertions: one table, one judge, verdicts.

`response_table.py` has the whole table, ASSERTIONS, with the rows on responses and those that no log can show; the
rows on one message are in `request_table.py`. The checks of the rows are in `request_checks.py`, `body_checks.py` and
`response_checks.py`, and say with `spots.py` what would be right; `markup.py` says what they may read of a body.
`judge.py` turns an exchange into verdicts, and `batch.py` does so for many similar exchanges; `habits.py` has the
habits of real stacks that break no assertion.

Spec: SOAP/JMS appendix E.
"""

from soapjms.protocol.assertions.batch import Judge, Memory
from soapjms.protocol.assertions.habits import (
    HABITS,
    MISDIRECTED,
    STACK_MARKS,
    Habit,
    guess_dialect,
    habits,
    habits_of,
    stack_marks_of,
)
from soapjms.protocol.assertions.judge import (
    judge,
    judge_readings,
    judge_request,
    not_observable,
    readings,
    violations,
)
from soapjms.protocol.assertions.model import (
    Assertion,
    Binds,
    Case,
    Fact,
    Need,
    Sees,
    Setting,
    Verdict,
    VerdictOutcome,
)
from soapjms.protocol.assertions.response_table import ASSERTIONS, REQUEST_FAULTS
from soapjms.protocol.assertions.spots import Reason, Spot, SpotKind
from soapjms.protocol.names import Level

__all__ = [
    "ASSERTIONS",
    "HABITS",
    "MISDIRECTED",
    "REQUEST_FAULTS",
    "STACK_MARKS",
    "Assertion",
    "Binds",
    "Case",
    "Fact",
    "Habit",
    "Judge",
    "Level",
    "Memory",
    "Need",
    "Reason",
    "Sees",
    "Setting",
    "Spot",
    "SpotKind",
    "Verdict",
    "VerdictOutcome",
    "guess_dialect",
    "habits",
    "habits_of",
    "judge",
    "judge_readings",
    "judge_request",
    "not_observable",
    "readings",
    "stack_marks_of",
    "violations",
]
