"""A client that calls a booker and keeps a journal of it: `python customer.py URL URI NUMBERS JOURNAL TIMEOUT`.

NUMBERS is a file with the numbers to ask for, one a line: every fourth as a one-way message. Two threads for each
strategy for replies. The journal is on the disk before and after each call; see `call_checker.Journal`. SIGUSR1 has it
write what its threads do.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any

from call_checker import ONE_WAY_EACH, Did, number_in
from calling_kit import Wrapped, envelope

import brokers
import soapjms
from brokers import Completion, Message, SendResult, Transaction
from soapjms.client.pending_calls import PendingCall

RETRY_SECONDS = 0.3
SECONDS_TO_END = 5.0
THREADS = 2
"""For each strategy for replies."""

TRIES = 3
"""Of a request of which nobody knows what became, as the same request."""

url, uri, given, written, timeout = sys.argv[1:]
journal = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def note(did: Did, number: int = -1, *, synchronous: bool = True, **more: Any) -> None:
    """Write a line of the journal."""
    line = {"did": did, "number": number, "at": time.monotonic(), **more}
    os.write(journal, f"{json.dumps(line)}\n".encode())
    if synchronous:
        os.fsync(journal)


class Confirming(Wrapped):
    """A connection that notes the requests of which the broker said that it has them."""

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        done = super().send(message, transaction, **options)
        number = number_in(message.body)
        if number is not None:
            done.on_settled(lambda settled: settled.exception() or note(Did.CONFIRMED, number, synchronous=False))
        return done


def ask(client: soapjms.Client, number: int) -> None:
    """Call once, or send one message; of those of which nobody knows what became, every second is tried again."""
    tries = TRIES if number // ONE_WAY_EACH % 2 == 0 else 1
    unknown: soapjms.CallFailedError | None = None
    for last in (False,) * (tries - 1) + (True,):
        note(Did.ASKED, number)
        try:
            if number % ONE_WAY_EACH == 0:
                client.send(envelope(str(number)), retry_of=unknown)
                return note(Did.SENT, number)
            return note_answer(number, client.call(envelope(str(number)), retry_of=unknown))
        except Exception as error:
            if isinstance(error, soapjms.CallFailedError) and not error.is_known:
                unknown = error
                if not last:
                    continue
            classes = [each.__name__ for each in type(error).__mro__]
            outcome = getattr(unknown or error, "outcome", "")
            return note(Did.FAILED, number, classes=classes, text=str(error), outcome=outcome)
    return None


def note_answer(number: int, response: soapjms.Response) -> None:
    """Note what came."""
    element = response.element
    text = f"fault: {response.fault}" if response.fault is not None or element is None else element.text
    note(Did.ANSWERED, number, text=text)


def ask_all(client: soapjms.Client, numbers: SimpleQueue[int]) -> None:
    """Call until there is nothing more to ask for."""
    while True:
        try:
            number = numbers.get_nowait()
        except Empty:
            return
        ask(client, number)


def persistent(make: Callable[[], Any]) -> Any:
    """Make something, which is tried again if the broker is not there."""
    while True:
        try:
            return make()
        except brokers.BrokerError as error:
            logging.warning("it is tried again: %r", error)
            time.sleep(RETRY_SECONDS)


def clients(stack: ExitStack, connection: soapjms.Connection) -> list[soapjms.Client]:
    """Make a client for each strategy for replies."""
    join = "&" if "?" in uri else "?"
    options = [
        {"uri": uri},
        {"uri": uri, "profile": "cr-2009"},
        {"uri": f"{uri}{join}replyToName={os.path.basename(written)}"},
    ]
    return [
        stack.enter_context(persistent(lambda: soapjms.Client(connection, timeout=float(timeout), **each)))  # noqa: B023
        for each in options
    ]


def main() -> None:
    """Ask for all numbers, and say what is left in this process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    numbers: SimpleQueue[int] = SimpleQueue()
    with open(given, encoding="utf-8") as lines:
        for line in lines:
            numbers.put(int(line))
    with ExitStack() as stack:
        connection = stack.enter_context(persistent(lambda: soapjms.connect(url)))
        callers = clients(stack, Confirming(connection))
        with ThreadPoolExecutor(THREADS * len(callers)) as pool:
            done = [pool.submit(ask_all, client, numbers) for client in callers for _ in range(THREADS)]
            for each in done:
                each.result()
    strays = {name: sum(each.counts.get(name, 0) for each in callers) for name in ("unknown", "foreign", "duplicate")}
    del callers, connection, stack
    until = time.monotonic() + SECONDS_TO_END
    while (left := what_is_left()) and time.monotonic() < until:
        time.sleep(RETRY_SECONDS)
    note(Did.ENDED, strays=strays, left=left)


def what_is_left() -> list[str]:
    """Name the objects of connections and calls that are still there; threads that end may hold some for a moment."""
    gc.collect()
    kinds = brokers.Connection | brokers.Consumer | PendingCall
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds)]


main()
