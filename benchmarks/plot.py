"""Draws the files of results in a folder as SVG, one beside each.

    python benchmarks/plot.py [FOLDER]

Without a folder it draws those of benchmarks/results. A row of the picture is a row of the results, with a bar for each
side. The first panels have the figures that have a goal: ratios over the first side with a line at 1, or the figures
themselves. The thin line is the spread over the rounds, and the mark is the goal. The last panel has the processor
time of a call. Colours follow the reader's scheme.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
LEFT, PANEL, GAP, BAR, SPACE, TOP = 330, 260, 160, 16, 18, 96
"""Pixels: of the titles, a panel, the numbers beside it; of a bar, between rows; above the first row."""

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-size: 16px; font-weight: 600 }
.faint { fill: #6a737d } .value { font-size: 11px } .axis { stroke: #8c959f } .spread, .goal { stroke: #24292f }
.goal { stroke-width: 3 } .s0 { fill: #9aa4af } .s1 { fill: #2f7de1 } .s2 { fill: #e08a1e } .s3 { fill: #5aa469 }
.s4 { fill: #b65fa8 } .s5 { fill: #c9a227 }
.broker { fill: #c3cad1 } .client { fill: #2f7de1 } .service { fill: #7b5cc4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .faint { fill: #9198a1 } .axis { stroke: #6e7681 } .spread, .goal { stroke: #e6edf3 }
  .s0 { fill: #7d8590 } .broker { fill: #59616a }
}
"""
ROLES = ("broker", "client", "service")
COST = "client+service µs"


class Panel:
    """One figure of all rows.

    Args:
        rows: the rows of the results.
        figure: the figure.
        left: pixels from the left.
    """

    def __init__(self, rows: list[dict[str, Any]], figure: str, left: int) -> None:
        goals = [goal for row in rows for goal in row["goals"] if goal["figure"] == figure]
        self.figure, self.left = figure, left
        self._by_ratio = all(goal["by_ratio"] for goal in goals)
        shown = [each for row in rows for side in row["sides"].values() if (each := self._shown(side))]
        bounds = [goal["bound"] for goal in goals if goal["by_ratio"] == self._by_ratio]
        self._most = max([each["high"] for each in shown] + bounds + [1.0] * self._by_ratio)

    @property
    def title(self) -> str:
        return f"{self.figure}, over the first side" if self._by_ratio else self.figure

    def _shown(self, side: Mapping[str, Any]) -> Mapping[str, float] | None:
        found: Mapping[str, Any] | None = side.get(self.figure)
        return found["over"] if found and self._by_ratio else found

    def _x(self, value: float) -> float:
        return self.left + PANEL * value / self._most

    def bar(self, side: Mapping[str, Any], at: int, top: float) -> Iterator[str]:
        """Draw the bar of a side."""
        shown = self._shown(side)
        if shown is None:
            return
        end, middle = self._x(shown["median"]), top + BAR / 2
        yield rectangle(f"s{at}", self.left, end, top)
        low, high = self._x(shown["low"]), self._x(shown["high"])
        yield f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:g}" y2="{middle:g}"/>'
        text = number(side[self.figure]["median"])
        if self._by_ratio:
            text = f"{shown['median']:.2f} ({text})"
        yield f'<text class="value" x="{self.left + PANEL + 8}" y="{top + 12:g}">{text}</text>'

    def goal(self, goal: Mapping[str, Any], top: float) -> Iterator[str]:
        """Draw the goal of a side."""
        if goal["figure"] == self.figure and goal["by_ratio"] == self._by_ratio:
            x = self._x(goal["bound"])
            yield f'<line class="goal" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{top + BAR:g}"/>'

    def line(self, bottom: float) -> Iterator[str]:
        """Draw the line at 1, or the axis."""
        x = self._x(1.0) if self._by_ratio else self.left
        dashes = ' stroke-dasharray="4 3"' if self._by_ratio else ""
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom:g}"{dashes}/>'


class ProcessorPanel(Panel):
    """The processor time of a call, of broker, client and service beside each other."""

    def __init__(self, rows: list[dict[str, Any]], left: int) -> None:
        self.figure, self.left = "", left
        self._by_ratio = False
        self._most = max(sum(self._parts(side).values()) for row in rows for side in row["sides"].values()) or 1.0

    @property
    def title(self) -> str:
        return "processor time a call, µs"

    def legend(self, top: float) -> Iterator[str]:
        """Name the colours."""
        for at, role in enumerate(ROLES):
            x = self.left + 80 * at
            yield f'<rect class="{role}" x="{x}" y="{top - 9:g}" width="10" height="10"/>'
            yield f'<text class="value" x="{x + 15}" y="{top:g}">{role}</text>'

    def _parts(self, side: Mapping[str, Any]) -> dict[str, float]:
        return {role: side[f"{role} µs"]["median"] for role in ROLES if f"{role} µs" in side}

    def bar(self, side: Mapping[str, Any], at: int, top: float) -> Iterator[str]:
        """Draw the parts, with broker + client + service as numbers."""
        parts, sum_so_far = self._parts(side), 0.0
        for role, part in parts.items():
            start, end = self._x(sum_so_far), self._x(sum_so_far + part)
            yield rectangle(role, start, end, top)
            sum_so_far += part
        text = " + ".join(number(part) for part in parts.values())
        yield f'<text class="value" x="{self.left + PANEL + 8}" y="{top + 12:g}">{text}</text>'


def rectangle(name: str, left: float, right: float, top: float) -> str:
    """Draw a bar."""
    return f'<rect class="{name}" x="{left:.1f}" y="{top + 2:g}" width="{right - left:.1f}" height="{BAR - 4}"/>'


def number(value: float) -> str:
    """Write a figure with two or three digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def panels_of(rows: list[dict[str, Any]]) -> list[Panel]:
    """Choose what is shown: the figures with goals, or the first one, and the processor time."""
    goals = dict.fromkeys(goal["figure"] for row in rows for goal in row["goals"] if goal["figure"] != COST)
    figures = list(goals) or [next(iter(next(iter(rows[0]["sides"].values()))))]
    lefts = (LEFT + (PANEL + GAP) * at for at in range(len(figures) + 1))
    found = [Panel(rows, figure, left) for figure, left in zip(figures, lefts, strict=False)]
    if any(COST in side for row in rows for side in row["sides"].values()):
        found.append(ProcessorPanel(rows, next(lefts)))
    return found


def drawn(results: Mapping[str, Any]) -> Iterator[str]:
    """Draw a file of results."""
    rows = results["rows"]
    panels = panels_of(rows)
    height = TOP + sum(len(row["sides"]) * BAR + SPACE for row in rows) + 24
    width = LEFT + (PANEL + GAP) * len(panels)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    yield f"<style>{STYLE}</style>"
    yield f'<text class="title" x="16" y="28">{escape(results["name"])}</text>'
    machine = results["machine"]
    length = f" of {results['seconds']:g} s" if results["seconds"] else ""
    how = f"{results['pairs']} round{'s' * (results['pairs'] > 1)}{length}, data: {results['data']}"
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
    said = "; ".join(filter(None, [results["date"][:10], where, results["versions"].get("broker"), how]))
    yield f'<text class="faint" x="16" y="48">{escape(said)}</text>'
    for panel in panels:
        yield f'<text x="{panel.left}" y="{TOP - 16}">{escape(panel.title)}</text>'
        yield from panel.line(height - 32)
    top = float(TOP)
    for row in rows:
        yield f'<text x="16" y="{top + 12:g}">{escape(row["row"])}</text>'
        for at, (name, side) in enumerate(row["sides"].items()):
            yield f'<text x="{LEFT - 10}" y="{top + 12:g}" text-anchor="end">{escape(name)}</text>'
            for panel in panels:
                yield from panel.bar(side, 1 if name == "ours" else at, top)
                for goal in row["goals"]:
                    if goal["side"] == name:
                        yield from panel.goal(goal, top)
            top += BAR
        top += SPACE
    for panel in panels:
        if isinstance(panel, ProcessorPanel):
            yield from panel.legend(height - 12)
    yield "</svg>\n"


def main() -> None:
    """Draw."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else RESULTS
    for file in sorted(folder.glob("*.json")):
        results = json.loads(file.read_text(encoding="utf-8"))
        file.with_suffix(".svg").write_text("\n".join(drawn(results)), encoding="utf-8")
        print(file.with_suffix(".svg"))


if __name__ == "__main__":
    main()
