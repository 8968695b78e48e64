"""Numbers as options take them: finite ones, as `nan` and `inf` are numbers to Python, and times that can be waited."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import click

LONGEST: Final = 365 * 86400
"""Seconds that a command may wait for anything: a year."""


class Range(click.FloatRange):
    """A range of finite numbers. NaN is smaller than no bound and larger than none, so click lets it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


SECONDS: Final = Range(min=0, max=LONGEST, min_open=True)
