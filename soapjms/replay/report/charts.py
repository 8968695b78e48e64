"""The charts over time, as inline SVG without scripts or styles; the only data in them are numbers and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring  # writes, never parses

from soapjms.protocol.text import counted
from soapjms.replay.flat_records import EPOCH
from soapjms.replay.parties import BROKEN
from soapjms.replay.report.milestones import Milestone
from soapjms.replay.report.texts import MILLISECOND, duration, moment, number, since_1970, visible, width
from soapjms.replay.summary import MESSAGES, Timeline, latencies_of, quantiles

COLUMNS: Final = 96
WIDTH: Final = 960
HEIGHT: Final = 132
LEFT: Final = 64
TOP: Final = 10
BOTTOM: Final = 22
PLOT: Final = HEIGHT - TOP - BOTTOM
TICKS: Final = 6
LABEL_CHARACTER_WIDTH: Final = 8
"""At most the width of a character of a label: the last label ends at the edge where it might reach beyond it."""
MESSAGES_PER_OUTLIER: Final = 1000
"""At either end of the charts, up to one in this many messages may be left out if that shows the others better."""
MIN_SPREAD_FACTOR: Final = 10

ROUND: Final = tuple(
    unit * count
    for unit, counts in (
        (timedelta(milliseconds=10), (1, 2, 5, 10, 20, 25, 50)),
        (timedelta(seconds=1), (1, 2, 5, 10, 15, 30)),
        (timedelta(minutes=1), (1, 2, 5, 10, 15, 30)),
        (timedelta(hours=1), (1, 2, 3, 6, 12)),
        (timedelta(days=1), (1, 2, 7, 14, 28, 56, 91, 182, 364)),
        (timedelta(days=364), (2, 5, 10, 20, 50, 100)),
    )
    for count in counts
)
"""Possible widths of a column of the charts."""

Says: TypeAlias = Callable[[int], str]


class Column(NamedTuple):
    """The counts of one span of the charts."""

    start: datetime
    messages: int
    failed: int
    warning: int
    median: timedelta | None
    slow: timedelta | None
    slowest: timedelta | None
    label: str


class Charts(NamedTuple):
    """The charts of a run.

    Attributes:
        columns: the data, for a table; median, and the times that 95 % and 99 % of responses took at most.
        span: the width of a column, in words.
        left_out: how many messages are outside the charts.
        messages, violations, latency: the charts, as SVG.
        series: the data at its full resolution, for the script: the beginning of a span in milliseconds since 1970 and
            its width; the width of a column; for each span its number, messages, failures and warnings by assertion,
            and latency bins; the times and texts of the milestones.
    """

    columns: list[Column]
    span: str
    left_out: int
    messages: str
    violations: str
    latency: str
    series: dict[str, Any]


def charts(timeline: Timeline, milestones: Sequence[Milestone] = ()) -> Charts | None:
    """Draw a run, with marks where a party's behaviour changed; return None if it has no messages."""
    spans = _without_outliers(timeline)
    if not spans:
        return None
    first, last = min(spans), max(spans)
    step = _step(timeline.width, last - first + 1)
    begin = first // step * step  # so that a column begins at a round time
    found = list(_columns(spans, begin, last, step, timeline.width))
    shown = sum(each.messages for each in found)
    total = sum(span[MESSAGES] for span in timeline.spans.values())
    span = step * timeline.width
    places = list(_places(milestones, found, span))
    return Charts(
        columns=found,
        span=width(span),
        left_out=total - shown,
        messages=_draw(found, span, _stacked(found, ("messages",)), number, places),
        violations=_draw(found, span, _stacked(found, ("failed", "warning")), number, places),
        latency=_draw(found, span, _ranges(found), lambda each: duration(timedelta(microseconds=each)), places),
        series=_series(spans, timeline.width, span) | {"m": _told(milestones)},
    )


def _series(spans: dict[int, Counter[str]], span: timedelta, column: timedelta) -> dict[str, Any]:
    first, rows = min(spans), []
    for each, counts in sorted(spans.items()):
        bins = sorted(latencies_of(counts).items())
        broken = [{name: n for name, n in counts.items() if name.startswith(f"{kind}/")} for kind in BROKEN]
        kept = [{name.partition("/")[2]: n for name, n in sorted(found.items())} for found in broken]
        rows.append([each - first, counts[MESSAGES], *kept, [number for pair in bins for number in pair]])
    begin = since_1970(_time(first, span))
    return {"b": begin, "w": span // MILLISECOND, "c": column // MILLISECOND, "s": rows}


def _told(milestones: Iterable[Milestone]) -> list[tuple[int, str]]:
    return [(since_1970(each.time), visible(each.text)) for each in milestones]


def _places(milestones: Iterable[Milestone], columns: list[Column], span: timedelta) -> Iterator[tuple[float, str]]:
    """Yield where a milestone is, in columns, and its text."""
    for each in milestones:
        at = (each.time - columns[0].start) / span
        if 0 <= at <= len(columns):
            yield at, each.text


def _step(span: timedelta, number: int) -> int:
    """Choose how many spans a column has: the smallest round time that fits, else the smallest number that fits."""
    least = -(-number // COLUMNS) * span
    return next((each // span for each in ROUND if each >= least and not each % span), least // span)


def _without_outliers(timeline: Timeline) -> dict[int, Counter[str]]:
    """Leave out a few messages at the ends if a wrong clock would squeeze all others into one column."""
    spans = timeline.spans
    allowed = sum(span[MESSAGES] for span in spans.values()) // MESSAGES_PER_OUTLIER
    ordered = sorted(spans)
    ordered = ordered[_outliers(spans, ordered, allowed) :]
    backwards = ordered[::-1]
    return {each: spans[each] for each in backwards[_outliers(spans, backwards, allowed) :]}


def _outliers(spans: dict[int, Counter[str]], ordered: list[int], allowed: int) -> int:
    """Return how many spans to leave out at the beginning of a list, so that the others have far more room."""
    seen = 0
    for index, each in enumerate(ordered):
        if (abs(ordered[-1] - each) + 1) * MIN_SPREAD_FACTOR <= abs(ordered[-1] - ordered[0]) + 1:
            return index
        seen += spans[each][MESSAGES]
        if seen > allowed:
            break
    return 0


def _columns(spans: dict[int, Counter[str]], first: int, last: int, step: int, span: timedelta) -> Iterator[Column]:
    counted: dict[int, Counter[str]] = {}  # empty spans are skipped: there may be very many
    for each, seen in spans.items():
        counted.setdefault((each - first) // step, Counter()).update(seen)
    for index in range((last - first) // step + 1):
        yield _column(counted.get(index, Counter()), _time(first + index * step, span), step * span)


def _column(counted: Counter[str], start: datetime, span: timedelta) -> Column:
    taken = quantiles(latencies_of(counted), (0.5, 0.95, 0.99))
    return Column(
        start=start,
        messages=counted[MESSAGES],
        failed=_under(counted, "failed/"),
        warning=_under(counted, "warning/"),
        median=taken[0] if taken else None,
        slow=taken[1] if taken else None,
        slowest=taken[2] if taken else None,
        label=moment(start, span, in_full=True),
    )


def _time(begin: int, span: timedelta) -> datetime:
    try:
        return EPOCH + begin * span
    except OverflowError:  # a span that begins before the first year of the calendar
        return datetime.min.replace(tzinfo=EPOCH.tzinfo)


def _under(counted: Counter[str], prefix: str) -> int:
    return sum(count for name, count in counted.items() if name.startswith(prefix))


class Mark(NamedTuple):
    """A bar in a column, from one value to another."""

    kind: str
    column: int
    low: float
    high: float
    start: datetime
    said: str


COUNTED: Final = {"messages": "message", "warning": "warning"}
"""What the counts of a column count, one of them."""


def _amount(count: int, kind: str) -> str:
    return counted(count, COUNTED[kind]) if kind in COUNTED else f"{number(count)} {kind}"


def _stacked(columns: list[Column], kinds: tuple[str, ...]) -> list[Mark]:
    marks = []
    for index, column in enumerate(columns):
        low = 0
        said = f"{column.label}: {', '.join(_amount(getattr(column, kind), kind) for kind in kinds)}"
        for kind in kinds:
            count = getattr(column, kind)
            if count:
                marks.append(Mark(kind, index, low, low + count, column.start, said))
            low += count
    return marks


def _ranges(columns: list[Column]) -> list[Mark]:
    marks = []
    for index, column in enumerate(columns):
        if column.median is not None and column.slow is not None and column.slowest is not None:
            taken = (column.median, column.slow, column.slowest)
            median, slow, slowest = (each / timedelta(microseconds=1) for each in taken)
            shares = zip((50, 95, 99), taken, strict=True)
            said = f"{column.label}: {', '.join(f'{share} % within {duration(each)}' for share, each in shares)}"
            ranges = (("slow", median, slow), ("slowest", slowest, slowest), ("median", median, median))
            marks += [Mark(kind, index, low, high, column.start, said) for kind, low, high in ranges]
    return marks


def _draw(
    columns: list[Column], span: timedelta, marks: list[Mark], say: Says, places: Iterable[tuple[float, str]]
) -> str:
    """Draw one chart: a scale of three lines, the marks, lines at some places, and the times below."""
    top = max((mark.high for mark in marks), default=0)
    svg = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "aria-hidden": "true", "focusable": "false"})
    for part in (0, 0.5, 1) if top else (0,):
        y = _y(part * top, top)
        SubElement(svg, "line", {"class": "grid", "x1": str(LEFT), "x2": str(WIDTH), "y1": y, "y2": y})
        if not (part == 0.5 and top < 2):
            text = SubElement(svg, "text", {"class": "scale", "x": str(LEFT - 8), "y": y, "dy": "0.32em"})
            text.text = "0" if not part else say(round(part * top))
    pitch = (WIDTH - LEFT) / len(columns)
    for mark in marks:
        _bar(svg, mark, pitch, top)
    for at, said in places:
        x = f"{LEFT + at * pitch:.1f}"
        stroke = SubElement(svg, "line", {"class": "turn", "x1": x, "x2": x, "y1": "0", "y2": _y(0, 1)})
        SubElement(stroke, "title").text = visible(said)
    _times(svg, columns, span, pitch)
    return tostring(svg, "unicode", short_empty_elements=False)


def _bar(svg: Element, mark: Mark, pitch: float, top: float) -> None:
    high, low = float(_y(mark.high, top)), float(_y(mark.low, top))
    least = 2 if mark.low == mark.high else 1  # so that small values stay visible
    place = {
        "x": f"{LEFT + mark.column * pitch + pitch * 0.1:.1f}",
        "width": f"{pitch * 0.8:.1f}",
        "y": f"{min(high, low - least) if mark.low != mark.high else high - 1:.1f}",
        "height": f"{max(least, low - high):.1f}",
    }
    rect = SubElement(svg, "rect", {"class": mark.kind, **place})
    SubElement(rect, "title", {"data-t": str(since_1970(mark.start))}).text = mark.said


def _times(svg: Element, columns: list[Column], span: timedelta, pitch: float) -> None:
    every = max(1, -(-len(columns) // TICKS))
    before = None
    for index in range(0, len(columns), every):
        start, at = columns[index].start, LEFT + index * pitch
        whole = start.year if span >= timedelta(days=1) else start.date()
        label = moment(start, span, in_full=whole != before)
        before = whole
        has_room = at + len(label) * LABEL_CHARACTER_WIDTH <= WIDTH
        x, end = f"{at:.1f}", {} if has_room else {"text-anchor": "end"}
        SubElement(svg, "line", {"class": "tick", "x1": x, "x2": x, "y1": _y(0, 1), "y2": str(HEIGHT - BOTTOM + 4)})
        place = {"class": "time", "x": x if has_room else str(WIDTH), "y": str(HEIGHT - 5), **end}
        SubElement(svg, "text", {**place, "data-t": str(since_1970(start))}).text = label


def _y(value: float, top: float) -> str:
    return f"{TOP + PLOT - (PLOT * value / top if top else 0):.1f}"
