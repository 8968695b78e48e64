"""A bank that is killed at its work: `python fatal_bank.py URL URI STORE WHERE`. Says when it is up.

WHERE is `before`: when the sixth commit of the broker is about to begin, so that requests are finished in the store and
not answered; `after`: when that commit was carried out; `never`.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import Future
from itertools import count
from typing import Any

from bank import service
from calling_kit import Wrapped

import soapjms
from brokers import Transaction

COMMITS = 6


class Fatal(Wrapped):
    """A connection that takes the process along."""

    def __init__(self, inner: soapjms.Client | Any, where: str) -> None:
        super().__init__(inner)
        self.where = where
        self.commits = count(1)

    def begin(self) -> Transaction:
        """Begin a transaction, or die."""
        is_last = next(self.commits) == COMMITS
        if is_last and self.where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        transaction = self.inner.begin()
        if is_last and self.where == "after":
            commit = transaction.commit

            def commit_and_die() -> Future[Any]:
                commit().result(30)
                os.kill(os.getpid(), signal.SIGKILL)
                raise AssertionError("it is dead")

            transaction.commit = commit_and_die  # type: ignore[method-assign]
        return transaction


url, uri, path, where = sys.argv[1:]
with (
    soapjms.connect(url) as connection,
    soapjms.SqliteStore(path, lease=0.5) as store,
    soapjms.Dispatcher(Fatal(connection, where), uri, service, workers=4, store=store),
):
    print("serving", flush=True)
    sys.stdin.read()
