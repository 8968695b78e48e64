"""A `jms:` URI as it was read.

Spec: RFC 6167 3, 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from brokers.urls import without_login
from soapjms.protocol.uri.findings import Finding, Mode, Severity
from soapjms.protocol.uri.showing import REDACTED, holds_secret, is_secret_name, without_user_info


class Parameter(NamedTuple):
    """One parameter: decoded name and value (None without `=`), its text in the URI, and where that begins."""

    name: str
    value: str | None
    raw: str
    position: int

    @property
    def is_secret(self) -> bool:
        """True if its value must not be shown."""
        return self.value is not None and (is_secret_name(self.name) or holds_secret(self.value))

    @property
    def shown_value(self) -> str | None:
        """The value, redacted if it looks like a secret."""
        return REDACTED if self.is_secret else self.value

    def __repr__(self) -> str:
        return f"Parameter(name={self.name!r}, value={self.shown_value!r}, position={self.position})"


@dataclass(frozen=True, slots=True, repr=False)
class JmsUri:
    """A URI as it was read. Parts are decoded; they are None where the URI is too broken to have them.

    A part that cannot be decoded (a bad escape, a bad character, octets that are not UTF-8) stays as it is written.

    Attributes:
        text: the URI as given.
        mode: the grammar it was held to.
        variant: the lookup variant (`jndi`, `queue`, `topic`, ...), case-sensitive.
        destination: the destination's name.
        parameters: all of them, in order, repeats included.
        findings: everything worth saying, in order of position; at most `KEPT` of a kind.
        base: the URI without its query, as given.
    """

    text: str
    mode: Mode
    variant: str | None
    destination: str | None
    parameters: tuple[Parameter, ...]
    findings: tuple[Finding, ...]
    base: str

    @property
    def well_formed(self) -> bool:
        """True if the grammar of the mode holds."""
        return all(finding.severity is not Severity.SYNTAX for finding in self.findings)

    @property
    def valid(self) -> bool:
        """True if it is well-formed and no MUST on values or combinations is broken."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def redacted(self) -> str:
        """The URI as given, with `***` for what looks like a secret."""
        pieces, end = [], 0
        for each in self.parameters:
            if each.is_secret:
                pieces += [self.text[end : each.position + each.raw.index("=") + 1], REDACTED]
                end = each.position + len(each.raw)
        redacted = "".join([*pieces, self.text[end:]])
        is_ours = redacted[:4].lower() == "jms:"
        return without_user_info(redacted) if is_ours else without_login(redacted)  # perhaps a broker's

    def __repr__(self) -> str:
        return f"JmsUri({self.redacted!r}, {self.mode.value!r})"

    def value(self, name: str) -> str | None:
        """Return the value of a parameter, of its last occurrence if it is repeated (Protocol-2002), else None."""
        for parameter in reversed(self.parameters):
            if parameter.name == name:
                return parameter.value
        return None

    def effective(self) -> Mapping[str, str]:
        """Return the parameters that count: the last of each name, those without a value left out."""
        last = {each.name: each.value for each in self.parameters}
        return {name: value for name, value in last.items() if value is not None}

    def without(self, excluded: Iterable[str]) -> str:
        """Return the URI without the parameters named (`jndi-` stands for the whole family), the rest undecoded.

        No parameter left means no `?`.
        """
        names = frozenset(excluded)
        family = "jndi-" if "jndi-" in names else None
        kept = [each.raw for each in self.parameters if each.name not in names and each.name[:5] != family]
        return f"{self.base}?{'&'.join(kept)}" if kept else self.base
