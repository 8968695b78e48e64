"""The conformance assertions: one table, one judge, verdicts.

`table.py` holds every assertion once, its rows in `of_messages.py`, `of_answers.py` and `unseen.py`; the checks behind
them are in `messages.py`, `actions.py`, `bodies.py`, `headers.py`, `precedence.py` and `pairs.py`; `judge.py` turns an
exchange into verdicts, and `repeated.py` does it for many that are alike; `habits.py` knows what real stacks do that
breaks nothing.

Spec: SOAP/JMS appendix E.
"""

from soapjms.protocol.assertions.habits import HABITS, MISDIRECTED, Habit, guess_dialect, habits, habits_of
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
    Need,
    Outcome,
    Sees,
    Setting,
    Verdict,
)
from soapjms.protocol.assertions.repeated import Judge, Memory
from soapjms.protocol.assertions.table import ASSERTIONS, REQUEST_FAULTS
from soapjms.protocol.names import Level

__all__ = [
    "ASSERTIONS",
    "HABITS",
    "MISDIRECTED",
    "REQUEST_FAULTS",
    "Assertion",
    "Binds",
    "Case",
    "Habit",
    "Judge",
    "Level",
    "Memory",
    "Need",
    "Outcome",
    "Sees",
    "Setting",
    "Verdict",
    "guess_dialect",
    "habits",
    "habits_of",
    "judge",
    "judge_readings",
    "judge_request",
    "not_observable",
    "readings",
    "violations",
]
