"""Who may use which destinations, read from text: what `Options.may` can be given instead of a function.

# who   may      where
ann     send     queue:orders.*
ann     receive  queue:answers
*       *        topic:news
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Self

from brokers.amqp.provider.options import Action
from brokers.message import Destination

ANY: Final = "*"
ACTIONS: Final = (*Action, ANY)


class Right(NamedTuple):
    """What somebody may do.

    Attributes:
        user: who; `*` for everybody, those without a name too.
        action: `send` or `receive`; `*` for both.
        where: `queue:NAME` or `topic:NAME`, with `*`, `?` and `[…]` as in names of files.
    """

    user: str
    action: str
    where: str

    def covers(self, user: str | None, action: Action, destination: Destination) -> bool:
        """Say whether this is about what somebody wants to do."""
        return self.user in (user, ANY) and self.action in (action, ANY) and fnmatchcase(str(destination), self.where)


class Rights:
    """What everybody may; nobody may anything else. Of temporary destinations knows only who was told of them.

    Attributes:
        rights: as they were given.
    """

    def __init__(self, rights: Iterable[Right]) -> None:
        self.rights = tuple(rights)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a right from each line; empty lines and those that begin with # are left out.

        Raises:
            ValueError: a line that is none; it says which, and what would be one.
        """
        return cls(
            _read(number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        )

    def __call__(self, user: str | None, action: Action, destination: Destination) -> bool:
        """Say whether a user, None for somebody anonymous, may do something with a destination."""
        return destination.kind.is_temporary or any(each.covers(user, action, destination) for each in self.rights)


def _read(number: int, line: str) -> Right:
    parts = line.split(None, 2)
    right = Right(*parts) if len(parts) == len(Right._fields) else None
    if right is None or right.action not in ACTIONS or not right.where.startswith(("queue:", "topic:", ANY)):
        raise ValueError(
            f"line {number} is not USER {'|'.join(ACTIONS)} DESTINATION, as: ann send queue:orders.*: {line.strip()!r}"
        )
    return right._replace(where=right.where.rstrip())
