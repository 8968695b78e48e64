"""When a lost connection is made again, and what follows where nobody can."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread

import pytest

from brokers.reconnect import Reconnect, Reconnector


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is given up, so that whoever looks knows; it would stay lost for ever."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    causes: SimpleQueue[str] = SimpleQueue()
    reconnector = Reconnector("broker", Reconnect(), lambda: None, causes.put)
    monkeypatch.setattr(Thread, "start", refuse)
    reconnector.start()
    assert causes.get_nowait() == (
        "broker was lost, and there is no thread to be had that makes it again: can't start new thread"
    )
    reconnector.stop()
    reconnector.start()
    assert causes.empty(), "it was stopped"
