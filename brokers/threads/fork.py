"""What becomes of objects in a forked process, which has their memory and sockets, and only the thread that forked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_ENDS: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def after_fork(thing: T, function: Callable[[T], object]) -> None:
    """Call `function(thing)` in each process that this one forks while `thing` lives; it must not wait for a lock."""
    _ENDS[thing] = function


def _call_all() -> None:
    for thing, function in list(_ENDS.items()):
        function(thing)


os.register_at_fork(after_in_child=_call_all)
