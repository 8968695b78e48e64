"""What to change where a party breaks an assertion: in general, and with the settings of each known stack.

The texts are in `remedies.toml`, which is read at the first use. They are plain sentences; nothing of a log is in them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import ASSERTIONS, Assertion
from soapjms.protocol.assertions.judge import shares_id
from soapjms.protocol.assertions.model import rule_name
from soapjms.protocol.names import profile

STACKS: Final[Mapping[str, str]] = {
    "cxf": "Apache CXF",
    "websphere": "WebSphere",
    "spring-ws": "Spring-WS",
    "tibco": "TIBCO",
    "soapjms": "soapjms",
}
"""The stacks that remedies may be known for, with their names for people; the keys are those of `guess_dialect`."""


def stack_name(stack: str) -> str:
    """Return the name of a stack for people."""
    return STACKS.get(stack, stack)


LATER: Final = "REC "
"""What the sections of the Recommendation of 2012 begin with."""
REFERENCE: Final = "@"
"""First character of a text in `remedies.toml` that refers to a note."""


class Remedy(NamedTuple):
    """What to change: a sentence or two, and the setting or the line of code, if there is one."""

    text: str
    code: str = ""


class SubcodeText(NamedTuple):
    """Why a request is refused with a subcode, and what its sender changes."""

    cause: str
    remedy: str


class RuleText(NamedTuple):
    """An assertion for people.

    Attributes:
        rule: what it demands, in one sentence.
        section: its section in the Candidate Recommendation, or in the Recommendation if it says so.
        quotation: at most a line of the Candidate Recommendation, word for word; empty if it has no sentence for it.
        general: what to change, whatever the stack.
        by_stack: what to change with a stack, by the keys of `STACKS`; stacks for which nothing is known are left out.
    """

    rule: str
    section: str
    quotation: str
    general: Remedy
    by_stack: Mapping[str, Remedy]

    @property
    def place(self) -> str:
        """Its section in words, with the text that has it."""
        is_later = self.section.startswith(LATER)
        edition = "Recommendation of 2012" if is_later else "Candidate Recommendation of 2009"
        return f"section {self.section.removeprefix(LATER)} of SOAP over JMS 1.0, {edition}"


@cache
def rule_text(assertion: Assertion) -> RuleText:
    """Return the texts about a row of the table of assertions."""
    texts = table()["assertion"][assertion.id]
    if "general" in texts:
        general = _remedy(texts["general"])
    else:
        assert assertion.subcode is not None
        general = Remedy(subcode_texts()[assertion.subcode].remedy)
    return RuleText(
        rule=texts.get("rule") or _sentence(assertion.title),
        section=assertion.section,
        quotation=texts.get("quotation", ""),
        general=general,
        by_stack={stack: _remedy(texts[stack]) for stack in STACKS if stack in texts},
    )


@cache
def rules(profile_name: str) -> Mapping[str, Assertion]:
    """Return the rows of the table by the names of their rules in a profile, see `rule_name`.

    Of several rows with one name, the first counts.
    """
    edition = profile(profile_name)
    named = ((edition.assertion_id(row.id), row) for row in reversed(ASSERTIONS))
    return {rule_name(name, is_answer=shares_id(row, edition)): row for name, row in named if name is not None}


@cache
def rule_texts(profile_name: str) -> Mapping[str, RuleText]:
    """Return the texts about all rules of a profile, by their names."""
    return {name: rule_text(row) for name, row in rules(profile_name).items()}


def subcode_texts() -> Mapping[str, SubcodeText]:
    """Return the cause and the remedy of each subcode."""
    return {name: SubcodeText(*texts) for name, texts in table()["subcode"].items()}


@cache
def table() -> Mapping[str, Any]:
    """Read the file."""
    return tomllib.loads(files("soapjms.replay.report").joinpath("remedies.toml").read_text("utf-8"))


def _remedy(written: str | Mapping[str, str]) -> Remedy:
    """Return a remedy, with the note that it refers to in its place."""
    if not isinstance(written, str):
        return _remedy(written["text"])._replace(code=written["code"])
    if written.startswith(REFERENCE):
        return _remedy(table()["note"][written.removeprefix(REFERENCE)])
    return Remedy(written)


def _sentence(title: str) -> str:
    """Make a sentence of a title; names such as requestURI and text/xml keep their first letter."""
    first = title.partition(" ")[0]
    return f"{title[0].upper() if first.islower() and first.isalpha() else title[0]}{title[1:]}."
