"""The store of requests in a SQLite file and a second file beside it, shared by processes of one machine.

SQLite lets one connection at a time write to a file, and a service may take long to write, or hang. So a separate
file, the claims, says who runs which request, and holds the requests finished without a transaction of their service;
its transactions are ours and short. The first file has the writes of services through `request.transaction` and, in
the same transaction, the fact that their request is finished, with its response. A request is finished if either file
says so; no commit needs both. Why nothing is done twice:

* A claim belongs to its owner as long as the claims have this owner and this count of starts for its key. Finishing a
  request there, or giving it to another owner, is one transaction of the claims: of several attempts one succeeds.
* To get a transaction, an owner takes the lock of the first file and then notes `writes` in the claims, which fails
  if it no longer has the claim. Only then does the service write. The lock of the first file is always taken before
  that of the claims.
* A claim with `writes` is neither given to another owner nor swept, except by a process that holds the lock of the
  first file and saw there that the request is not finished. So the former owner has no transaction, and cannot get
  another one, as the claim is gone.
* An owner that commits in the first file has held its lock since it noted `writes`: it still has the claim, and the
  request is not finished in the claims, as only the owner finishes it, in one of the two files. `UNIQUE` ensures this
  once more.

A service's writes are on the disk before any confirmation (`synchronous=FULL`); the other transactions survive the
death of the process, but a power cut may undo the last of them (`NORMAL`). A request without a claim is looked up in
the first file too: after a power cut, only a request that wrote nothing runs again.

Each store regularly writes a sign of life of its process into the claims. If a process gives none for `lease` seconds,
the requests that it had begun may be begun again, but not while it holds the lock of the first file; if it wakes up, it
cannot finish them. Neither this nor the age of entries depends on the clock of the machine: see `clock.py`. A function
of this process that holds a transaction for `transaction_timeout` seconds loses it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, get_ident
from typing import Final, Self, TypeAlias

from brokers.arguments import at_least_one, finite, not_negative
from brokers.message import Message
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from soapjms import events
from soapjms.protocol.errors import OvertakenError, StoreError, UsageError
from soapjms.service.store.base import KEY_OCTETS, OWN_PLACE, UNCOUNTED_DELIVERIES, Claim, FinishedBefore, Store
from soapjms.service.store.clock import BEATS_PER_LEASE, FileTime, Liveness
from soapjms.service.store.effects import ENDED, Effects, code_of
from soapjms.service.store.place import network_of, writer_of
from soapjms.service.store.tables import ClaimEntry, ClaimPlace, File, Holder, Ledger, Results, packed, unpacked
from soapjms.validation import file_path, positive

DAY_SECONDS: Final = 86_400.0
SWEEP_SECONDS: Final = 30.0
"""Seconds between two sweeps."""

SWEEP_ENTRIES: Final = 200
"""Entries listed and removed in one transaction; few, so that calls hardly wait for a sweep."""

LOCK_WARNING_SECONDS: Final = 2.0
"""Seconds that a request waits for another's transaction before its holder is logged."""

SWEEP_LOCK_SECONDS: Final = 0.2
"""Seconds that a sweep waits for the lock of the first file; then it is left to the next sweep."""

PROBE_SECONDS: Final = 0.02
"""Seconds to try whether the first file can be written, while no request needs it."""

LOCKED_SECONDS: Final = 4.0
"""Seconds after which a locked first file is a problem, if no other process has committed there meanwhile."""

TRANSACTION_POLL_SECONDS: Final = 1.0
"""Longest interval, in seconds, between checks for functions that hold their transaction for too long."""


CLOSE_LOCK_SECONDS: Final = 1.0
"""Seconds that `close` waits for a writer; after that the writer closes the file when it ends."""


Doomed: TypeAlias = Sequence[tuple[int, float]]
"""Requests to remove: the number and the time of the last touch of each."""


class SqliteStore(Store):
    """Remembers requests in a file and `FILE-claims` beside it. Usable in a `with` statement.

    The store is for the processes of one machine: several machines with one queue each have their own store, and a
    request that one of them finished but did not accept at the broker is run again by another.

    Args:
        path: the file, created if absent, readable by its owner only. It must be on a local disk, as SQLite cannot lock
            out other machines.
        lease: seconds without a sign of life after which a process counts as dead, observed by another process.
        keep: seconds that an entry is kept after it was last touched, `math.inf` for no limit. A redelivery after that
            runs again. Time during which no process has the file open counts up to half of this.
        max_entries: entries kept in each of the two files; beyond that the oldest are removed, finished or not.
        max_octets: octets of responses kept in each file; beyond that likewise.
        timeout: seconds to wait for other writers; 0 not to wait.
        transaction_timeout: seconds that a function may hold its `request.transaction`. After that its writes are
            undone, the request counts as failed, and other functions go on. `math.inf` for no limit.
        clock: returns the time in seconds since 1970; called when the store is made.
        steady: returns seconds of a clock without steps.

    Raises:
        StoreError: the file cannot be opened, is not a SQLite file, or was made by another version.
        UsageError: an argument is not valid.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        lease: float = 5.0,
        keep: float = 7 * DAY_SECONDS,
        max_entries: int = 1_000_000,
        max_octets: int = 1 << 30,
        timeout: float = 30.0,
        transaction_timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        if path == ":memory:":
            raise UsageError(f"path must be the path of a file, got {path!r}: a store outlives its process")
        self.path = file_path(path).absolute()
        self.claims = self.path.with_name(f"{self.path.name}-claims")
        self._lease, self._keep, self._timeout = finite(lease, "lease"), positive(keep, "keep"), not_negative(timeout)
        self._max_entries = at_least_one(max_entries, "max_entries")
        self._max_octets = at_least_one(max_octets, "max_octets")
        self._life = Liveness()
        self._sign_at, self._sign_error = time.monotonic(), ""
        self._commits, self._locked_since, self._is_locked = 0, math.inf, False  # of the first file, by other processes
        self._owner = token_hex(16)
        self._transaction_timeout = positive(transaction_timeout, "transaction_timeout")
        self._held: set[ClaimPlace] = set()
        self._lock = Lock()  # to write the claims in this process, as SQLite's own wait has no order and long naps
        self._turn = Lock()  # likewise to write the first file; taken before `_lock`
        self._waiting: set[int] = set()  # threads that have waited long for the turn
        self._holder: Holder | None = None  # of this process
        self._closing, self._is_free = Event(), Event()
        self._is_ended = False
        self._effects: Effects | None = None
        self._watch: Thread | None = None
        if (kind := network_of(self.path.parent)) is not None:
            events.STORE_NETWORK_FILE.log(self.path, kind)
        self._open(clock, steady)
        self._keeper = Thread(target=self._look_after, name="soapjms-store", daemon=True)
        self._keeper.start()

    def _open(self, clock: Callable[[], float], steady: Callable[[], float]) -> None:
        files = list[File]()
        try:
            files.append(results := Results.open(self.path, self._timeout))
            files.append(ledger := Ledger.open(self.claims, self._timeout))
            self._results, self._ledger = results, ledger
            self._files = {each: (str(each), identity(each)) for each in (self.path, self.claims)}
            if results.version() == 1:
                results.move_claims(self.path, ledger, clock())
            newest = max(results.newest(), ledger.newest())
            self._clock = FileTime(clock, steady, keep=self._keep, newest=newest, opened=ledger.opened())
            with self._writing():
                ledger.note_opened(self._clock(), self._clock.clock)
            self._show_life()
        except BaseException as error:
            for each in files:
                each.end()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{self.path}: {error}") from error
            raise

    @property
    def problem(self) -> str:
        """Why requests wait: the holder of a long transaction, or why no sign of life can be written; else empty."""
        silent = time.monotonic() - self._sign_at
        if silent > self._lease and not self._closing.is_set():
            return f"{self.claims}: nothing could be written for {silent:.0f} s{self._sign_error}"
        return self._held_by() if self._waiting or self._is_locked else ""

    # Working

    def begin(self, key: bytes) -> Claim | FinishedBefore | None:
        """Begin a request; see `Store`."""
        found = self._attempt(key, is_sure=False)
        if isinstance(found, ClaimEntry):
            self._take_turn(self._timeout)
            try:
                found = self._attempt(key, is_sure=True)
            finally:
                self._end_turn()
        assert not isinstance(found, ClaimEntry)
        return found

    def _attempt(self, key: bytes, *, is_sure: bool) -> Claim | FinishedBefore | ClaimEntry | None:
        found: Claim | FinishedBefore | ClaimEntry | None = None
        try:
            with self._writing() as ledger:
                self._require_file(self.path)
                found = self._begin(ledger, key, is_sure=is_sure)
        except BaseException:
            if isinstance(found, SqliteClaim):  # not held by this process, even if it is in the file after all
                self._held.discard(self._place(found))
            raise
        return found

    def _begin(self, ledger: Ledger, key: bytes, *, is_sure: bool) -> Claim | FinishedBefore | ClaimEntry | None:
        """Begin a request; return its entry if another owner may be about to commit it. `is_sure`: we have the turn."""
        places = self._places(ledger, key)
        if not places:  # nor is there an entry, as `places` lists all keys that `key_of` makes of a name
            return self._hold(SqliteClaim(self, key, ledger.add(key, self._owner, self._clock()), 1))
        key = _known_as(key, places)
        entry = ledger.entry(key)
        if entry is not None and entry.is_finished:
            return FinishedBefore(unpacked(ledger.response(entry.number)), SqliteClaim(self, key))
        finished = self._results.finished(key)
        if finished is not None:
            return FinishedBefore(unpacked(finished.response), SqliteClaim(self, key))
        if entry is None:
            number = ledger.add(key, self._owner, self._clock())
            return self._hold(SqliteClaim(self, key, number, 1, copied=True))
        if entry.owner is not None and self._is_alive(ledger, ClaimPlace(entry.number, key, entry.starts, entry.owner)):
            return None
        if entry.writes is not None and not is_sure:
            return entry
        deaths = entry.deaths + (entry.owner is not None)
        copied = ledger.is_copy(key[:KEY_OCTETS], entry.number)
        ledger.begin_again(entry.number, self._owner, deaths, self._clock())
        return self._hold(SqliteClaim(self, key, entry.number, entry.starts + 1, deaths, entry.failures, copied))

    def _places(self, ledger: Ledger, key: bytes) -> list[bytes]:
        """List the keys of requests of the same name; only some of them if there are many."""
        name = key[:KEY_OCTETS]
        return [*ledger.places(name), *self._results.places(name)]

    def _hold(self, claim: SqliteClaim) -> SqliteClaim:
        self._held.add(self._place(claim))
        return claim

    def _is_alive(self, ledger: Ledger, place: ClaimPlace) -> bool:
        if place.owner == self._owner:
            return place in self._held
        return self._life.is_alive(place.owner, ledger.sign(place.owner))

    def _place(self, claim: SqliteClaim) -> ClaimPlace:
        return ClaimPlace(claim.number, claim.key, claim.starts, self._owner)

    def arrive(self, key: bytes, deliveries: int) -> int:
        """Note a delivery; see `Store`."""
        with self._writing() as ledger:
            key = _known_as(key, self._places(ledger, key))
            entry = ledger.entry(key)
            if (entry is not None and entry.is_finished) or self._results.finished(key) is not None:
                return UNCOUNTED_DELIVERIES
            return ledger.arrive(key, deliveries, self._clock())

    def depart(self, key: bytes) -> None:
        """Forget the deliveries of a request; see `Store`."""
        try:
            with self._writing() as ledger:
                ledger.depart(_known_as(key, self._places(ledger, key)))
        except StoreError as error:
            events.STORE_DELIVERY_MISCOUNTED.log(error)

    # Called by claims

    def begin_effects(self, claim: SqliteClaim) -> Effects:
        """Begin the transaction of a service; until it ends, no other request has one.

        Raises:
            StoreError: another request holds a transaction for too long, or the file cannot be written.
            OvertakenError: another process has taken the request over.
        """
        effects = self._take_turn(self._timeout)
        try:
            holder = Holder(time.time(), os.getpid(), claim.name)
            if claim.number:  # else the request is finished, and this transaction will not be committed
                with self._writing() as ledger:
                    if not ledger.hold(self._place(claim), holder):
                        raise self._overtaken()
            self._holder = holder
            effects.lend(time.monotonic())
            if self._watch is None:
                watch = Thread(target=self._break_off, name="soapjms-store-watch", daemon=True)
                watch.start()
                self._watch = watch
        except BaseException:
            self._end_turn()
            raise
        return effects

    def end_effects(self, effects: Effects) -> None:
        """Undo uncommitted writes, and let others write; do nothing if the transaction was broken off."""
        effects.stop()
        if not effects.is_over:
            self._end_turn()

    def finish(self, claim: SqliteClaim, response: Message | None, effects: Effects | None) -> None:
        """Commit a finished request, in the transaction of its service if there is one."""
        if effects is None:
            with self._writing() as ledger:
                self._note(ledger, claim, response)
        else:
            self._require_file(self.path)
            try:
                with effects.results() as results:
                    self._note(results, claim, response)
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: {error}") from error
        self._held.discard(self._place(claim))

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(
            f"{self.path}: a request was taken over by another process, as this one gave no sign of life for "
            f"{self._lease} s; its writes were undone"
        )

    def _note(self, file: Ledger | Results, claim: SqliteClaim, response: Message | None) -> None:
        packs, now = packed(response), self._clock()
        if isinstance(file, Ledger):
            done = file.finish(self._place(claim), packs, now)
        else:
            done = file.finish(claim.key, packs, now)
        if not done:
            raise self._overtaken()

    def let_go(self, claim: SqliteClaim, *, forget: bool) -> None:
        """Release the claim on a request; if that cannot be written, the claim ends after a while by itself."""
        place = self._place(claim)
        try:
            with self._writing() as ledger:
                if forget:
                    ledger.forget(place)
                else:
                    ledger.let_go(place, claim.deaths, claim.failures)
                self._held.discard(place)
        except StoreError as error:
            self._held.discard(place)
            events.STORE_CLAIM_KEPT.log(error)

    # Turns

    def _take_turn(self, patience: float) -> Effects:
        """Begin a transaction in the first file, once no other is open there; after a while log its holder.

        Raises:
            StoreError: another transaction is open for longer than `patience` seconds, or the file cannot be written.
        """
        until = time.monotonic() + patience
        self._wait_for(lambda seconds: self._turn.acquire(timeout=seconds), until)
        try:
            self._require(self.path)
            if self._effects is None:
                self._effects = Effects.open(self.path, self._timeout, self._transaction_timeout)
            self._wait_for(self._effects.begin, until)
            return self._effects
        except BaseException as error:
            self._drop_effects()
            self._leave_turn()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{self.path}: {error}") from error
            raise

    def _wait_for(self, attempt: Callable[[float], bool], until: float) -> None:
        """Attempt something for `LOCK_WARNING_SECONDS`, then log a warning and attempt it until `until`."""
        seconds = left(until)
        if attempt(min(seconds, LOCK_WARNING_SECONDS)):
            return
        held = self._held_by()
        if seconds > LOCK_WARNING_SECONDS:
            events.STORE_REQUEST_WAITS.log(held)
            self._waiting.add(get_ident())
            try:
                if attempt(left(until)):
                    return
            finally:
                self._waiting.discard(get_ident())
        raise StoreError(held)

    def _held_by(self) -> str:
        """Say who has a transaction in the first file."""
        holder, writer = self._holder, os.getpid()
        if holder is None:  # another process has it
            writer, holder = writer_of(self.path) or 0, self._last_holder()
        if holder is None or writer not in (0, holder.pid):  # such as an administrator's program
            return f"{self.path}: {f'process {writer}' if writer else 'another process'} has it locked"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        what = holder.request or "a request without a name"
        return f"{self.path}: process {holder.pid} has had a request.transaction since {since}, for {what}"

    def _last_holder(self) -> Holder | None:
        """Read the last holder, on a separate connection, as other threads may wait for this store's own."""
        try:
            reader = Ledger.open(self.claims, SWEEP_LOCK_SECONDS)
        except StoreError:
            return None
        try:
            return reader.holder()
        except sqlite3.Error:
            return None
        finally:
            reader.end()

    def _end_turn(self) -> None:
        """Undo uncommitted writes, and let others write."""
        try:
            if self._effects is not None:
                self._effects.undo()
                if self._effects.is_spent:
                    self._drop_effects()
        except sqlite3.Error as error:  # then a new connection takes its place, and this one's writes are undone
            events.STORE_EFFECTS_FAILED.log(self.path, error)
            self._drop_effects()
        finally:
            self._leave_turn()

    def _leave_turn(self) -> None:
        """Let others have a transaction; after `close`, this closes the file."""
        self._holder = None
        try:
            if self._closing.is_set():
                self._drop_effects()
                self._is_free.set()
        finally:
            self._turn.release()

    def _drop_effects(self) -> None:
        effects, self._effects = self._effects, None
        if effects is not None:
            with suppress(sqlite3.Error):
                effects.end()

    def _break_off(self) -> None:
        """Break off transactions that functions hold for too long, on a separate thread."""
        while not self._is_free.wait(min(TRANSACTION_POLL_SECONDS, self._transaction_timeout / 10)):
            effects, holder = self._effects, self._holder
            late = None if effects is None or holder is None else effects.late(time.monotonic())
            if effects is None or late is None:
                continue
            events.STORE_EFFECTS_TIMEOUT.log(self._held_by())
            try:
                if effects.break_off(late):
                    self._effects = None
                    self._leave_turn()
            except Exception:  # this thread must go on, for the next late transaction
                events.STORE_TRANSACTION_FAILED.log(self.path)

    def _require(self, path: Path) -> None:
        """Refuse to write to a closed store, or to a file that was removed or replaced, as its writes would be lost.

        Raises:
            StoreError: the store is closed, or the file was removed or replaced.
        """
        if self._closing.is_set():
            raise StoreError(f"{self.path}: the store is closed")
        self._require_file(path)

    def _require_file(self, path: Path) -> None:
        text, known = self._files[path]
        if known is None or identity(text) != known:
            raise StoreError(f"{path} was removed or replaced while it was in use: put it back, or start again")

    def _take_lock(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise StoreError(f"{self.claims}: {self._locked()}")
        try:
            self._require(self.claims)
        except StoreError:
            self._release()
            raise

    def _release(self) -> None:
        """Let others write; after `close`, this closes the file."""
        try:
            if self._closing.is_set():
                self._end()
        finally:
            self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[Ledger]:
        """Yield the claims for writing in one transaction, to one thread at a time."""
        self._take_lock()
        try:
            with self._ledger.writing():
                yield self._ledger
        except sqlite3.Error as error:
            raise StoreError(self._told(error)) from error
        finally:
            self._release()

    def _told(self, error: sqlite3.Error) -> str:
        """Say what failed in the claims."""
        return f"{self.claims}: {self._locked() if code_of(error) == sqlite3.SQLITE_BUSY else error}"

    def _locked(self) -> str:
        """Say which process has the claims locked, as far as the system tells."""
        writer = writer_of(self.claims)
        return f"database is locked{f' by process {writer}' if writer else ''}"

    # Maintenance of the files, on a separate thread

    def _show_life(self) -> None:
        self._require_file(self.path)
        with self._writing() as ledger:
            ledger.show_life(self._owner, self._clock() + (self._life.signs + 1) / 1_000_000)  # a new value each time
            self._life.look(ledger.signs())
            commits, self._commits = self._commits, self._results.commits()
        self._sign_at, self._sign_error = time.monotonic(), ""
        now = time.monotonic()
        self._locked_since = min(now, self._locked_since) if self._is_taken(commits) else math.inf
        self._is_locked = now - self._locked_since >= LOCKED_SECONDS

    def _is_taken(self, commits: int) -> bool:
        """Say whether another process has the first file locked and nothing was committed there since the last look."""
        if commits != self._commits or self._turn.locked():  # threads that wait for the turn report a lock themselves
            return False
        try:
            self._take_turn(PROBE_SECONDS)
        except StoreError as error:
            events.STORE_MARK_WAITS.log(error)
            return not self._closing.is_set()
        self._end_turn()
        return False

    def _look_after(self) -> None:
        sweep_at = time.monotonic() + SWEEP_SECONDS
        while not self._closing.wait(self._lease / BEATS_PER_LEASE):
            try:
                self._show_life()
                if time.monotonic() > sweep_at:
                    self.sweep()
                    sweep_at = time.monotonic() + SWEEP_SECONDS
            except StoreError as error:
                if not self._closing.is_set():
                    self._sign_error = f": {error}"
                    events.STORE_SIGN_FAILED.log(error)
            except Exception:  # this thread must go on: without signs of life others would take over our requests
                events.STORE_UPKEEP_FAILED.log(self.path)

    def sweep(self) -> int:
        """Remove entries that are too old or too many, a few at a time; return how many were removed.

        The store does this by itself every 30 seconds. Calls go on meanwhile.

        Raises:
            StoreError: the file cannot be read or written.
        """
        for each in self._files:
            self._require(each)
        try:
            removed = self._sweep(Ledger, self.claims, self._remove_claims)
            removed += self._sweep(Results, self.path, self._remove_results)
            before = self._clock() - self._keep
            with self._writing() as ledger:
                ledger.forget_arrivals(before)
                for owner, sign in self._life.dead():
                    ledger.forget_owner(owner, sign)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        return removed

    def _sweep(self, kind: type[File], path: Path, remove: Callable[[Doomed], int]) -> int:
        """Look for entries to remove, on a separate connection that only reads, so that no writer waits for it."""
        reader, removed, last = kind.open(path, self._timeout), 0, 0
        try:
            self._clock.catch_up(reader.newest())
            before = self._clock() - self._keep
            up_to = reader.newest_beyond(self._max_entries, self._max_octets)
            while not self._closing.is_set() and (doomed := reader.doomed(last, up_to, before, SWEEP_ENTRIES)):
                removed += remove(doomed)
                last = doomed[-1][0]
        finally:
            reader.end()
        return removed

    def _remove_claims(self, doomed: Doomed) -> int:
        effects = self._turn_now()
        try:
            with self._writing() as ledger:
                return ledger.remove_settled(doomed) if effects is None else ledger.remove(doomed)
        finally:
            if effects is not None:
                self._end_turn()

    def _remove_results(self, doomed: Doomed) -> int:
        effects = self._turn_now()
        if effects is None:
            return 0
        try:
            with effects.results() as results:
                return results.remove(doomed)
        finally:
            self._end_turn()

    def _turn_now(self) -> Effects | None:
        """Take the turn if it is free; else return None, and the removal waits for the next sweep."""
        try:
            return self._take_turn(SWEEP_LOCK_SECONDS)
        except StoreError as error:
            events.STORE_SWEEP_WAITS.log(error)
            return None

    def close(self) -> None:
        """Close the file; requests that are still running count as begun by a dead process. Idempotent.

        A function that is writing may still commit. `close` does not wait for it: the file is closed when it ends.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        for lock, release in ((self._lock, self._release), (self._turn, self._leave_turn)):
            if lock.acquire(timeout=CLOSE_LOCK_SECONDS):
                release()
            else:
                events.STORE_CLOSE_WAITS.log(self.path)
        self._keeper.join(CLOSE_LOCK_SECONDS)

    def _end(self) -> None:
        """Remove this owner from the claims, and close the files. Idempotent; the lock is held."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            self._require_file(self.claims)
            self._ledger.hurry(CLOSE_LOCK_SECONDS)
            with self._ledger.writing():
                self._ledger.leave(self._owner)
        except (StoreError, sqlite3.Error) as error:
            events.STORE_CLOSE_UNTOLD.log(self.path, error)
        self._ledger.end()
        self._results.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def identity(path: str | Path) -> tuple[int, int] | None:
    """Return the identity of a file, whatever its name; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _known_as(key: bytes, places: list[bytes]) -> bytes:
    """Return the key that a request has among `places`; entries of an older version are names without a place."""
    name = key[:KEY_OCTETS]
    if key == name:
        return places[0] if places else key
    return next((each for each in (key, name + OWN_PLACE, name) if each in places), key)


class SqliteClaim(Claim):
    """A claim on a request; without a number it is on a finished request, and its transaction is always undone."""

    def __init__(
        self,
        store: SqliteStore,
        key: bytes,
        number: int = 0,
        starts: int = 0,
        deaths: int = 0,
        failures: int = 0,
        copied: bool = False,
    ) -> None:
        self.key = key
        self.number = number
        self.starts = starts
        self.deaths = deaths
        self.failures = failures
        self.copied = copied
        self._store = store
        self._effects: Effects | None = None
        self._connection: sqlite3.Connection | None = None
        self._is_over = False
        self._problem: StoreError | UsageError | None = None

    @property
    def transaction(self) -> sqlite3.Connection:
        """A connection to the store's file, in a transaction. No other request has one until this one is finished.

        Raises:
            StoreError: another request holds a transaction for too long.
            UsageError: the request has ended, but a thread of its function has not.
        """
        found = self._connection
        if found is None:
            if self._is_over:
                raise UsageError(ENDED)
            try:
                self._effects = self._store.begin_effects(self)
            except StoreError as error:
                self._problem = error
                raise
            self._problem = None
            self._connection = found = self._effects.connection
        return found

    def problem(self) -> StoreError | UsageError | None:
        """Return why the request cannot be finished; see `Claim`."""
        if self._effects is not None and self._problem is None:
            self._problem = self._effects.stop()
        return self._problem

    def roll_back(self) -> None:
        """Undo the writes in the transaction."""
        self._is_over, self._connection = True, None
        if self._effects is not None:
            effects, self._effects = self._effects, None
            self._store.end_effects(effects)

    def finish(self, response: Message | None) -> None:
        """Commit; see `Claim`."""
        try:
            if self._effects is not None and (problem := self.problem()) is not None:
                raise problem
            self._store.finish(self, response, self._effects)
        finally:
            self.roll_back()  # undoes nothing after a commit

    def abandon(self, *, failed: bool = False) -> None:
        """Give up the request; see `Claim`."""
        self.roll_back()
        self.failures += failed
        self._store.let_go(self, forget=False)

    def forget(self) -> None:
        """Give up the request, and forget it; see `Claim`."""
        self.roll_back()
        self._store.let_go(self, forget=True)
