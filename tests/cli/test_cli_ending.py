"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread, get_ident

import pytest
from calling_kit import PATIENCE

from soapjms.serving.runner import SIGNALS, ending


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_may_come_at_any_moment(number: signal.Signals) -> None:
    """Also while the main thread, about to wait for the end, holds the lock that telling it takes."""
    stop, before = Event(), signal.getsignal(number)
    with ending(stop):
        with stop._cond:  # type: ignore[attr-defined]  # as `stop.wait` does
            signal.raise_signal(number)
        assert stop.wait(PATIENCE)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_may_reach_any_thread(number: signal.Signals) -> None:
    """As one does that was sent while the process was stopped; the main thread waits, and nothing else wakes it."""
    stop, waits = Event(), Event()

    def be_told() -> None:
        assert waits.wait(PATIENCE)
        signal.pthread_kill(get_ident(), number)

    with ending(stop):
        told = Thread(target=be_told)
        told.start()
        waits.set()
        assert stop.wait(PATIENCE)
        told.join()


def test_a_process_that_was_stopped_ends(tmp_path: Path) -> None:
    """SIGTERM reaches it when it goes on."""
    command = [sys.executable, "-m", "soapjms.cli", "broker", "--smqp", "127.0.0.1:0", "--amqp", "127.0.0.1:0"]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env={**os.environ}) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert process.stdout.readline()
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
                process.send_signal(number)
            try:
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


def test_a_closed_terminal_that_is_to_be_ignored() -> None:
    """As `nohup` says; else it ends as by SIGTERM."""
    stop, before = Event(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending(stop):
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGTERM)
            assert stop.wait(PATIENCE)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_one_interrupts() -> None:
    """Ctrl-C again does not wait for what is under way; to be terminated again changes nothing."""
    stop = Event()
    with ending(stop):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.wait(PATIENCE)
