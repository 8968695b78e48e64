"""Signals that end a command."""

from __future__ import annotations

import signal
from threading import Event

import pytest
from calling_kit import PATIENCE

from soapjms.cli.ending import ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_may_come_at_any_moment(number: signal.Signals) -> None:
    """Also while the main thread, about to wait for the end, holds the lock that telling it takes."""
    stop, before = Event(), signal.getsignal(number)
    with ending(stop):
        with stop._cond:  # type: ignore[attr-defined]  # as `stop.wait` does
            signal.raise_signal(number)
        assert stop.wait(PATIENCE)
    assert signal.getsignal(number) is before


def test_a_second_one_interrupts() -> None:
    """Ctrl-C again does not wait for what is under way; to be terminated again changes nothing."""
    stop = Event()
    with ending(stop):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.wait(PATIENCE)
