"""Log events: each has a stable name, and the same fields in its text and in `extra` of the log record.

Each package has a table of events, `brokers.events` and `soapjms.events`, and logs by nothing else.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Final

from brokers.events.visible import visible

_NAMED: Final = re.compile(r"%\((\w+)\)")
_PLAIN: Final = (str, int, float, bool, type(None))


class _Visible:
    """A value in the text of a record: no peer's words end the line or act on a terminal."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return visible(str(self._value))

    def __repr__(self) -> str:
        return visible(repr(self._value))


def _of_text(value: object) -> object:
    is_plain = value.isprintable() if type(value) is str else isinstance(value, int | float)
    return value if is_plain else _Visible(value)


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log record."""

    name: str
    """Stable name, such as `request.expired`; the field `event` of the record."""
    logger: str
    """Name of the logger."""
    level: int
    """Level; `log` can be given another one."""
    text: str
    """Text with the names of fields, such as `%(error)s`."""
    meaning: str
    """What happened, or what to do, for the documentation."""
    more: tuple[str, ...] = ()
    """Names of values that the record has besides those in the text."""
    traceback: bool = False
    """Whether the error that is being handled is logged with its traceback."""
    fields: tuple[str, ...] = field(init=False)
    """Names of the values, in the order in which `log` takes them: those in the text, then `more`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", (*dict.fromkeys(_NAMED.findall(self.text)), *self.more))

    def log(self, *values: object, level: int | None = None, exc_info: BaseException | None = None) -> None:
        """Log this event, with one value for each field; nothing is made of them while the level is off.

        `level` replaces the event's own. `exc_info` is an error to log with its traceback.
        """
        level = self.level if level is None else level
        logger = logging.getLogger(self.logger)
        if not logger.isEnabledFor(level):
            return
        fields = dict(zip(self.fields, values, strict=True))
        extra = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in fields.items()}
        arguments = ({name: _of_text(value) for name, value in fields.items()},) if fields else ()
        error = exc_info or self.traceback
        logger.log(level, self.text, *arguments, exc_info=error, extra={"event": self.name, **extra}, stacklevel=2)
