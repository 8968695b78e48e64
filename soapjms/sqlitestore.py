"""The store of requests in a SQLite file, which several processes of one machine may share.

A request is begun in one short transaction and finished in another, with the response and with whatever the service
wrote through `request.transaction`. What such a service wrote is on the disk before anybody hears of it
(`synchronous=FULL`); the other transactions survive the death of the process, and a power cut may take back the last of
them (`NORMAL`), which makes a request run again as if it had not been begun.

Each store shows its process's life in the file every so often. Of a process that does not for `lease` seconds, what it
had begun may be begun again; should it wake up, it can finish nothing of that.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Final, Self

from brokers.message import Message
from soapjms.idempotency import Answered, Claim, Store
from soapjms.protocol.errors import OvertakenError, StoreError, UsageError
from soapjms.sqlitefile import Effects, Ledger, connected, packed, unpacked

log = logging.getLogger("soapjms.store")

DAY: Final = 86_400.0
BEATS: Final = 4
"""Signs of life within a lease."""

SWEEP: Final = 30.0
"""Seconds between two clean-ups."""

BATCH: Final = 200
"""Entries listed, and removed in one transaction, so that calls wait next to nothing for it."""

LEAVING: Final = 1.0
"""Seconds that closing waits for whoever writes; then it is left to them to close the file."""


class SqliteStore(Store):
    """What is known of requests, in a file. Usable in a `with` statement.

    Args:
        path: the file, made if it is not there, readable by its owner only. On a local disk: SQLite cannot lock others.
        lease: seconds without a sign of life after which a process counts as dead.
        keep: seconds that an entry is kept after it was last touched. A redelivery after that runs again.
        max_entries: entries kept; of more, the oldest go, finished or not.
        max_octets: octets of responses kept, likewise.
        timeout: seconds to wait for others who write.
        clock: returns the time in seconds; the same for all who share the file.

    Raises:
        StoreError: the file cannot be opened, is no SQLite file, or was made by another version.
        UsageError: an argument is not as it must be.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        lease: float = 5.0,
        keep: float = 7 * DAY,
        max_entries: int = 1_000_000,
        max_octets: int = 1 << 30,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, value in (("lease", lease), ("keep", keep), ("max_entries", max_entries), ("max_octets", max_octets)):
            if not value > 0:
                raise UsageError(f"{name} is {value!r}; it is more than 0")
        self.path = Path(path).absolute()
        self._lease, self._keep, self._timeout = lease, keep, timeout
        self._max_entries, self._max_octets = max_entries, max_octets
        self._clock = clock
        self._owner = token_hex(16)
        self._held: set[tuple[int, int]] = set()
        self._lock = Lock()  # who writes in this process, as SQLite's own queue has no order and long naps
        self._closing = Event()
        self._is_ended = False
        self._effects: Effects | None = None
        self._ledger = Ledger.open(self.path, timeout)
        self._file = identity(self.path)
        try:
            self._show_life()
        except BaseException:
            self._ledger.end()
            raise
        self._keeper = Thread(target=self._look_after, name="soapjms-store", daemon=True)
        self._keeper.start()

    # Working

    def begin(self, key: bytes) -> Claim | Answered | None:
        """Begin a request; see `Store`."""
        found: Claim | Answered | None = None
        try:
            with self._writing() as ledger:
                found = self._begin(ledger, key)
        except BaseException:
            if isinstance(found, SqliteClaim):  # nobody works on it, should it be in the file all the same
                self._held.discard(found.place)
            raise
        return found

    def _begin(self, ledger: Ledger, key: bytes) -> Claim | Answered | None:
        entry = ledger.entry(key)
        if entry is None:
            return self._hold(SqliteClaim(self, ledger.add(key, self._owner, self._clock()), 1))
        if entry.is_finished:
            return Answered(unpacked(ledger.response(entry.number)))
        if entry.owner is not None and self._is_alive(ledger, entry.owner, (entry.number, entry.starts)):
            return None
        deaths = entry.deaths + (entry.owner is not None)
        ledger.begin_again(entry.number, self._owner, deaths, self._clock())
        return self._hold(SqliteClaim(self, entry.number, entry.starts + 1, deaths, entry.failures))

    def _hold(self, claim: SqliteClaim) -> SqliteClaim:
        self._held.add(claim.place)
        return claim

    def _is_alive(self, ledger: Ledger, owner: str, held: tuple[int, int]) -> bool:
        return held in self._held if owner == self._owner else ledger.is_alive(owner, self._clock())

    # What claims need of their store; a claim that has a transaction holds the lock

    def begin_effects(self) -> Effects:
        """Begin the transaction of a service; until it ends, nobody else writes."""
        self._take_lock()
        try:
            if self._effects is None:
                self._effects = Effects.open(self.path, self._timeout)
            self._effects.begin()
            return self._effects
        except BaseException as error:
            self._drop_effects()
            self._release()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{self.path}: {error}") from error
            raise

    def end_effects(self, effects: Effects) -> None:
        """Undo what was written and not committed, and let others write."""
        try:
            effects.undo()
        except sqlite3.Error as error:  # then a new connection takes its place, and this one's writes are undone
            log.error("%s: %s", self.path, error)
            self._drop_effects()
        finally:
            self._release()

    def _drop_effects(self) -> None:
        effects, self._effects = self._effects, None
        if effects is not None:
            with suppress(sqlite3.Error):
                effects.end()

    def finish(self, claim: SqliteClaim, response: Message | None, effects: Effects | None) -> None:
        """Commit a finished request, in the transaction of its service if there is one."""
        if effects is None:
            with self._writing() as ledger:
                self._note(ledger, claim, response)
        else:
            try:
                with effects.as_ledger() as ledger:
                    self._note(ledger, claim, response)
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: {error}") from error
        self._held.discard(claim.place)

    def _note(self, ledger: Ledger, claim: SqliteClaim, response: Message | None) -> None:
        self._require_file()
        finished = ledger.finish(claim.number, self._owner, claim.starts, packed(response), self._clock())
        if not finished:
            raise OvertakenError(
                f"{self.path}: a request was begun by another process, as this one gave no sign of life for "
                f"{self._lease} s; nothing that it wrote was kept"
            )

    def let_go(self, claim: SqliteClaim, *, forget: bool) -> None:
        """Note that nobody works on a request any more; if that cannot be written, others find out in a while."""
        try:
            with self._writing() as ledger:
                if forget:
                    ledger.forget(claim.number, self._owner, claim.starts)
                else:
                    ledger.let_go(claim.number, self._owner, claim.starts, claim.deaths, claim.failures)
                self._held.discard(claim.place)  # now, as the next request may get the number of a forgotten one
        except StoreError as error:
            self._held.discard(claim.place)
            log.warning("a request could not be let go of: %s", error)

    def _require_file(self) -> None:
        """Refuse to write to a file that nobody will find again: all of it would be lost with this process."""
        if self._file is None or identity(self.path) != self._file:
            raise StoreError(f"{self.path} was removed or replaced while it was in use: put it back, or start again")

    def _take_lock(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise StoreError(f"{self.path}: somebody else has been writing for {self._timeout} s")
        try:
            if self._closing.is_set():
                raise StoreError(f"{self.path}: the store is closed")
            self._require_file()
        except StoreError:
            self._release()
            raise

    def _release(self) -> None:
        """Let others write; who does so after `close` closes the file."""
        try:
            if self._closing.is_set():
                self._end()
        finally:
            self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[Ledger]:
        """Write in one transaction, one thread at a time."""
        self._take_lock()
        try:
            with self._ledger.writing():
                yield self._ledger
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        finally:
            self._release()

    # Looking after the file, on a thread of its own

    def _show_life(self) -> None:
        with self._writing() as ledger:
            ledger.show_life(self._owner, self._clock() + self._lease)

    def _look_after(self) -> None:
        sweep_at = time.monotonic() + SWEEP
        while not self._closing.wait(self._lease / BEATS):
            try:
                self._show_life()
                if time.monotonic() > sweep_at:
                    self.sweep()
                    sweep_at = time.monotonic() + SWEEP
            except StoreError as error:
                if not self._closing.is_set():
                    log.warning("no sign of life could be given: %s", error)
            except Exception:  # without signs of life others would take over what is worked on
                log.exception("%s: looking after the file failed", self.path)

    def sweep(self) -> int:
        """Remove what is too old or too much, some entries at a time; return how many there were.

        Happens by itself every half a minute. Calls go on meanwhile.

        Raises:
            StoreError: the file cannot be read or written.
        """
        self._require_file()
        reader = self._reader()
        removed, last, before = 0, 0, self._clock() - self._keep
        try:
            up_to = reader.newest_beyond(self._max_entries, self._max_octets)
            while not self._closing.is_set() and (doomed := reader.doomed(last, up_to, before, BATCH)):
                with self._writing() as ledger:
                    ledger.remove(doomed)
                removed += len(doomed)
                last = doomed[-1][0]
            with self._writing() as ledger:
                ledger.forget_owners(before)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        finally:
            reader.end()
        return removed

    def _reader(self) -> Ledger:
        """Open a connection that reads beside those who write, so that nobody waits while it looks around."""
        return Ledger(connected(self.path, self._timeout, sqlite3.Connection, "NORMAL"))

    def close(self) -> None:
        """Close the file; what is being worked on counts as begun by somebody who died. Idempotent.

        A function that is writing may still commit. It is not waited for: the file is closed when it ends.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        if self._lock.acquire(timeout=LEAVING):
            self._release()
        else:
            log.warning("%s: closed while somebody writes, and so when that ends", self.path)
        self._keeper.join(LEAVING)

    def _end(self) -> None:
        """Take leave of the others who share the file, and close it. Idempotent; the lock is held."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            self._require_file()
            self._ledger.hurry(LEAVING)
            with self._ledger.writing():
                self._ledger.leave(self._owner)
        except (StoreError, sqlite3.Error) as error:
            log.warning("%s: nobody could be told that it was closed: %s", self.path, error)
        self._ledger.end()
        if self._effects is not None:
            self._effects.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def identity(path: Path) -> tuple[int, int] | None:
    """Tell a file from every other, whatever it is called; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SqliteClaim(Claim):
    """The right to work on a request."""

    def __init__(self, store: SqliteStore, number: int, starts: int, deaths: int = 0, failures: int = 0) -> None:
        self.number = number
        self.starts = starts
        self.deaths = deaths
        self.failures = failures
        self._store = store
        self._effects: Effects | None = None

    @property
    def place(self) -> tuple[int, int]:
        """What tells it from every other."""
        return self.number, self.starts

    @property
    def transaction(self) -> sqlite3.Connection:
        """A connection to the store's file, in a transaction. Nobody else writes until the request is finished.

        Raises:
            StoreError: somebody else has been writing for too long.
        """
        if self._effects is None:
            self._effects = self._store.begin_effects()
        return self._effects.connection

    def roll_back(self) -> None:
        """Undo what was written in the transaction."""
        if self._effects is not None:
            effects, self._effects = self._effects, None
            self._store.end_effects(effects)

    def finish(self, response: Message | None) -> None:
        """Commit; see `Claim`."""
        try:
            self._store.finish(self, response, self._effects)
        finally:
            self.roll_back()  # nothing, but where it could not be committed

    def abandon(self, *, failed: bool = False) -> None:
        """Let go; see `Claim`."""
        self.roll_back()
        self.failures += failed
        self._store.let_go(self, forget=False)

    def forget(self) -> None:
        """Let go, and forget; see `Claim`."""
        self.roll_back()
        self._store.let_go(self, forget=True)
