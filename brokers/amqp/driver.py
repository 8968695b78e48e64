"""One AMQP connection, of either side: a machine, its socket, and the thread that reads.

proton is not thread-safe, so it is used only with `lock` held, and its output is written before the lock is released.
The reading thread passes arriving data to the handlers, and then, without the lock, runs the functions that they passed
to `later`, which may wait for other threads. proton's objects are never used outside the lock. A pair of sockets wakes
the thread that waits for the socket.

The reading thread may run quick tasks of a pool, see `lead`. Their output is written in one piece after the last of the
functions, or some milliseconds later. If a task takes long, another thread *leads*: it reads, leaves all tasks to the
pool, and hands the lead back when the reading thread is ready again and some time has passed.
"""

from __future__ import annotations

import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Event, RLock, Semaphore, current_thread, get_ident
from time import monotonic, time
from traceback import walk_tb
from typing import Any, Final, NoReturn

from proton import Condition, ProtonException

from brokers import events
from brokers.adapter.consumer import GATHER_SECONDS, HOLD_SECONDS, MAX_HELD_OCTETS
from brokers.amqp.machine import AmqpMachine, Handlers
from brokers.amqp.outcomes import DECODE
from brokers.amqp.stack import start, with_stack
from brokers.errors import BrokerError, ConnectionFailedError, ConnectionLostError
from brokers.files import reason_of
from brokers.threads.pool import Crew, GuestThread
from brokers.threads.thread import Thread
from brokers.threads.timer import left


class Waker:
    """A pair of sockets: any thread writes to one to wake the thread that waits for the other."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._noted = bytearray(4096)  # allocated in advance, because memory may be short later

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._far.fileno()

    def wake(self) -> None:
        """Wake the thread, now or when it next waits."""
        with suppress(OSError):  # the thread is awake, or has ended
            self._near.send(b"!")

    def doze(self, seconds: float) -> bool:
        """Wait only for `wake`, at most `seconds`, and return whether it was called.

        The wake-up is not consumed: the next wait ends at once.
        """
        was_woken = False
        with suppress(OSError):  # the sockets are closed, or the time is over
            self._far.settimeout(seconds)
            was_woken = bool(self._far.recv_into(self._noted, 1, socket.MSG_PEEK))
        with suppress(OSError):
            self._far.setblocking(False)
        return was_woken

    def rest(self) -> None:
        """Consume the wake-ups."""
        with suppress(OSError):
            self._far.recv_into(self._noted)

    def close(self) -> None:
        """Close both sockets."""
        self._near.close()
        self._far.close()


READ_OCTETS: Final = 65_536
"""Maximum number of octets of one read."""

MAX_READS: Final = 16
"""Maximum number of reads before other threads get the lock."""

JOIN_SECONDS: Final = 0.5
"""Time that the thread has to end, in seconds."""

KEEP_SECONDS: Final = 0.005
"""Time after which output is written although functions wait that may add to it, in seconds."""

STAND_IN_SECONDS: Final = 0.5
"""Minimum time for which another thread reads after a task of the reading thread took long, in seconds."""

NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class HeldLock:
    """Holds the lock of a driver during a `with` statement, and writes proton's output afterwards.

    While the leading thread is awake, it soon writes, unless it is busy with a task of its crew, which may take long.
    """

    __slots__ = ("_acquire", "_driver", "_release")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._acquire, self._release = driver.lock.acquire, driver.lock.release

    def __enter__(self) -> None:
        self._acquire()
        if not self._driver.is_up:
            self._release()
            raise self._driver.lost()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        driver = self._driver
        try:
            if kind is None and (not driver._is_awake or (get_ident() != driver._leader and driver._is_at_task)):
                driver._flush()
        finally:
            self._release()


class Driver(ABC):
    """One connection, from `_start` until it ends; it never starts again.

    Args:
        name: of the connection, for logs and errors.
        max_debt: octets that the peer may write beyond those it read, while data waits for it; beyond that, nothing is
            read from it until it has read.

    Attributes:
        lock: held while proton is used.
        is_lazy: whether arriving data may wait for more, which costs less than a wake-up for each piece.
        is_up: whether the connection has not ended. It changes with the lock held.
        read_at: when the data being handled was read, in seconds since 1970, if `is_lazy`; otherwise None.
    """

    def __init__(self, name: str, max_debt: float = inf) -> None:
        self.lock = RLock()
        self.is_lazy = False
        self.read_at: float | None = None
        self._held: deque[tuple[float, bytes]] = deque()
        self._name = name
        self._machine: AmqpMachine | None = None
        self._socket: socket.socket | None = None
        self._waker = Waker()
        self._selector = DefaultSelector()
        self._woken = self._selector.register(self._waker, EVENT_READ), EVENT_READ
        self._events = EVENT_READ  # of the connection that the selector waits for
        self._thread: Thread | None = None
        self._leader: int | None = None  # the id of the thread that reads
        self._is_awake = False  # whether the leading thread will write before it next waits for the socket
        self._after: list[Callable[[], None]] = []
        self._over = Event()
        self._crew: Crew | None = None
        self._guest: GuestThread | None = None
        self._error: BrokerError | None = None  # why there is nothing more to read
        self._lead = Semaphore(0)  # released when the lead is handed back
        self._is_waiting = False  # whether the reading thread waits for the lead
        self._holding = HeldLock(self)
        self._out = memoryview(b"")
        self._passed = 0
        self._debt = 0
        self._max_debt = max_debt
        self._deeds: deque[Callable[[], None]] = deque()
        self.is_up = True
        self._why = ""

    def __str__(self) -> str:
        return self._name

    @property
    @abstractmethod
    def _handlers(self) -> Handlers:
        """Functions for proton's events, always the same; called by the reading thread, with the lock held."""

    @abstractmethod
    def _ended(self, error: BrokerError) -> None:
        """Inform all waiting callers that the connection has ended. Called once, by any thread, without the lock."""

    def _let_go(self) -> bool:
        """Drop partial large messages to free memory; return False if there are none. With the lock held."""
        return False

    def _explain(self, why: str) -> BrokerError:
        """Return the error for an end without a reason."""
        return ConnectionFailedError(f"{self} {why}")

    @property
    def unwritten(self) -> int:
        """Number of octets that wait for the peer to read, without those that proton has not encoded yet."""
        return len(self._out) + (0 if self._machine is None else self._machine.waiting)

    def mark(self) -> int:
        """Return a mark for the end of all pending output; with the lock held, as for `has_passed`.

        Output that is held back by the window of a session is not included.
        """
        if self._machine is not None:
            self._machine.gather()
        return self._passed + self.unwritten

    def has_passed(self, mark: int) -> bool:
        """Return whether all output before a mark was written."""
        return self._passed >= mark

    def held(self) -> HeldLock:
        """Return what holds the lock during a `with` statement, and writes proton's output afterwards.

        Entering it raises:
            ConnectionLostError: the connection has ended.
        """
        return self._holding

    def after_arrivals(self, deed: Callable[[], None]) -> None:
        """Run a function on the leading thread after the functions that wait there; at once on any other thread."""
        if self._deeds and get_ident() == self._leader:
            self._after.append(deed)
        else:
            deed()

    def later(self, deed: Callable[[], None]) -> None:
        """Run a function on the leading thread once it does not hold the lock; after the end, run it at once."""
        if not self.is_up:
            deed()
            return
        self._deeds.append(deed)
        if get_ident() != self._leader:
            self._waker.wake()

    def lead(self, crew: Crew) -> None:
        """Let the reading thread run tasks that are passed to `crew.run` there, from now on."""
        self._crew = crew

    def break_off(self, condition: str, why: str, info: Any = None) -> NoReturn:
        """Close the connection with an error for the peer; from handlers of proton's events, with the lock held.

        Raises:
            ConnectionFailedError: always; it ends the reading thread.
        """
        assert self._machine is not None
        self._why = f": {why} ({condition})"
        self._machine.connection.condition = Condition(condition, why, info)
        self._machine.connection.close()
        raise ConnectionFailedError(f"{self}{self._why}")

    def lost(self) -> ConnectionLostError:
        """Return the error for callers that find the connection ended."""
        return ConnectionLostError(f"the connection to {self} was lost{self._why}")

    def close(self, until: float) -> None:
        """Close the connection and end the thread before the monotonic clock shows `until`."""
        if self.is_up and self.lock.acquire(timeout=left(until)):
            try:
                if self.is_up and self._machine is not None:
                    self._machine.connection.close()
                    self._flush()
            finally:
                self.lock.release()
            self._join(until)
        self.drop()
        self._join(max(until, monotonic() + JOIN_SECONDS))

    def drop(self) -> None:
        """End at once, without waiting. All waiting callers are informed."""
        self._end(ConnectionFailedError(f"{self}: the connection was closed"))

    def _start(self, machine: AmqpMachine, connected: socket.socket) -> None:
        """Begin to write and read; the socket is non-blocking."""
        self._machine, self._socket = machine, connected
        with self.lock:
            self._flush()
        thread = Thread(target=self._run, args=(machine, connected), name=f"{self} reader", daemon=True)
        start(thread)
        self._thread = thread

    def _join(self, until: float) -> None:
        thread = self._thread
        if thread is None or (get_ident() == self._leader and not self._is_at_task):
            return
        if self._over.wait(left(until)) and thread is not current_thread() and not self._is_relieved:
            thread.join(left(until))

    def _end(self, error: BrokerError) -> None:
        with self.lock:
            if not self.is_up:
                return
            self.is_up = False
        self._waker.wake()
        self._ended(error)

    # Writing; called with the lock held

    def _flush(self) -> None:
        """Write pending output as far as the socket takes it; the leading thread writes the rest."""
        while self.is_up and self._machine is not None and self._socket is not None:
            is_all = not self._out  # that proton has
            if is_all:
                self._out = memoryview(self._machine.take())
            if not self._out:
                self._debt = 0
                return
            try:
                written = self._socket.send(self._out)
            except OSError:  # the socket is full or broken: the leading thread finds out
                if get_ident() != self._leader:
                    self._waker.wake()
                return
            self._out = self._out[written:]
            self._passed += written
            if is_all and not self._out:
                self._debt = 0
                return
            self._debt = max(0, self._debt - written)

    # Reading

    def _run(self, machine: AmqpMachine, connected: socket.socket) -> None:
        """Read to the end; wait while another thread has the lead."""
        machine.handlers = self._handlers
        try:
            self._selector.register(connected, self._events)
        except OSError as error:
            self._error = self._explain(f"broke off: {reason_of(error)}")
        while not self._over.is_set():
            if self._crew is not None and self._guest is None:
                self._guest = self._crew.admit(partial(self._stand_in, machine, connected))
            if self._is_relieved:
                self._wait_for_lead()
            else:
                self._read_until(machine, connected, self._must_stop_reading)
        if self._crew is not None:
            self._crew.dismiss()

    def _must_stop_reading(self) -> bool:
        """Whether the reading thread was relieved, or must be admitted to the crew first."""
        guest = self._guest
        return self._crew is not None if guest is None else guest.is_relieved

    @property
    def _is_relieved(self) -> bool:
        return self._guest is not None and self._guest.is_relieved

    @property
    def _is_at_task(self) -> bool:
        """Whether the reading thread runs a task of the crew, which may take long: then another thread reads."""
        return self._guest is not None and self._guest.is_busy

    def _wait_for_lead(self) -> None:
        assert self._crew is not None
        assert self._guest is not None
        self._is_waiting = True
        self._lead.acquire()
        self._is_waiting = False
        self._crew.resume(self._guest)

    def _stand_in(self, machine: AmqpMachine, connected: socket.socket) -> None:
        """Have a thread read for the reading thread, if one can be started. Called on a thread of the crew."""
        until = monotonic() + STAND_IN_SECONDS
        try:
            with_stack(lambda: self._read_until(machine, connected, lambda: self._is_waiting and monotonic() >= until))
        except RuntimeError as error:
            events.AMQP_NO_STAND_IN.log(self, error)
        finally:
            self._lead.release()

    def _read_until(self, machine: AmqpMachine, connected: socket.socket, is_over: Callable[[], bool]) -> None:
        """Lead: read until `is_over`, or to the end of the connection."""
        with self.lock:
            self._leader, self._is_awake = get_ident(), True
        error: BrokerError | None = ConnectionFailedError(f"{self}: the reading thread failed")
        try:
            error = self._error = self._error or self._read_to_the_end(machine, connected, is_over)
            if error is not None:
                self._do_deeds(is_over)
                error = None if is_over() else error  # then the next that leads concludes
        finally:  # whatever happened, so that no caller waits for a thread that does not read
            if error is not None:
                self._conclude(machine, connected, error)

    def _read_to_the_end(
        self, machine: AmqpMachine, connected: socket.socket, is_over: Callable[[], bool]
    ) -> BrokerError | None:
        """Read until the connection ends, and return the reason; None once `is_over`."""
        try:
            self._do_deeds(is_over)
            while not is_over():
                if not self._read_on(machine, connected):
                    self._why = f": {machine.farewell}" if machine.farewell else self._why
                    return self._explain(f"closed the connection at login{self._why}")
                self._do_deeds(is_over)
            return None
        except BrokerError as failed:
            return without_frames(failed)
        except (OSError, ProtonException) as failed:
            return self._explain(f"broke off: {failed}")
        except MemoryError:
            self._why = ": there is no memory for the data that it sends"
            return ConnectionFailedError(f"{self}{self._why}")
        except Exception as failed:
            if is_protons(failed):
                return self._note_unreadable(machine, failed)
            events.AMQP_READER_FAILED.log(self)
            return ConnectionFailedError(f"{self}: the reading thread failed: {type(failed).__name__}")

    def _note_unreadable(self, machine: AmqpMachine, failed: Exception) -> BrokerError:
        """Close the connection with an error for the peer, which sent the value; return the error."""
        try:
            with self.lock:
                machine.connection.open()  # a listener may not have done so yet
                self.break_off(DECODE, f"a value cannot be read: {failed}")
        except ConnectionFailedError as error:
            return without_frames(error)

    def _conclude(self, machine: AmqpMachine, connected: socket.socket, error: BrokerError) -> None:
        with self.lock:
            has_more_to_say = self.is_up and not machine.may_hang_up
            if has_more_to_say:
                machine.leave()
                self._flush()
        self._end(error)
        self._do_deeds()
        if has_more_to_say:
            self._part(connected)
        self._hang_up()

    @staticmethod
    def _part(connected: socket.socket) -> None:
        """Give the peer a moment to read the last output; the system might discard it otherwise."""
        with suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_WR)
            connected.settimeout(JOIN_SECONDS)
            until = monotonic() + JOIN_SECONDS
            while monotonic() < until and connected.recv(READ_OCTETS):
                pass

    def _read_on(self, machine: AmqpMachine, connected: socket.socket) -> bool:
        """Wait for the socket or a wake-up, and handle what arrived; return False at the end."""
        with self.lock:
            if not self.is_up:
                return False
            wait = self._tick(machine)
            if self._is_relieved and (wait is None or wait > STAND_IN_SECONDS):
                wait = STAND_IN_SECONDS
            listens = self._listens
            events = EVENT_READ * listens | EVENT_WRITE * bool(self._out)
            if events != self._events:
                self._selector.modify(connected, events)
                self._events = events
            self._is_awake = False
        ready = self._selector.select(wait)
        if self._woken in ready:
            self._waker.rest()
        if self.is_lazy and listens and ready:
            self._gather(connected)
        with self.lock:
            self._is_awake, goes_on = True, False
            try:
                goes_on = self.is_up and (not (listens and ready) or self._read(machine, connected))
                return goes_on
            finally:
                if not goes_on or not self._deeds:  # which add to the output, and `_tick` writes it
                    self._flush()

    def _gather(self, connected: socket.socket) -> None:
        """Collect data for a moment without handling it, until none arrives or the thread is woken.

        The end of the connection and errors are left to the next read.
        """
        until, octets, is_empty = monotonic() + HOLD_SECONDS, 0, True
        while octets < MAX_HELD_OCTETS:
            try:
                with self.lock:  # because TLS may be used by only one thread at a time
                    read = connected.recv(READ_OCTETS)
            except NOT_NOW:
                if is_empty or monotonic() >= until or self._waker.doze(GATHER_SECONDS):
                    return
                is_empty = True
                continue
            except (OSError, MemoryError):
                return
            if not read:
                return
            octets, is_empty = octets + len(read), False
            self._held.append((time(), read))

    @property
    def _listens(self) -> bool:
        return not self._out or self._debt < self._max_debt

    def _tick(self, machine: AmqpMachine) -> float | None:
        """Run proton's timers, and return the seconds until the next one is due; None for never."""
        now = monotonic()
        due = machine.tick(now)
        machine.dispatch()
        self._flush()
        return None if due is None else max(0.0, due - now)

    def _read(self, machine: AmqpMachine, connected: socket.socket) -> bool:
        """Handle arriving data; return False at the end."""
        while self._held:
            self.read_at, octets = self._held.popleft()
            if not self._take(machine, octets):
                return False
        for _ in range(MAX_READS):
            try:
                octets = connected.recv(READ_OCTETS)
            except NOT_NOW:
                return True
            except MemoryError:  # nothing was taken from the socket
                if not self._let_go():
                    raise
                continue
            if self.is_lazy:
                self.read_at = time()
            if not self._take(machine, octets):
                return False
            if len(octets) < READ_OCTETS and not isinstance(connected, ssl.SSLSocket):
                return True
        self._waker.wake()
        return True

    def _take(self, machine: AmqpMachine, octets: bytes) -> bool:
        self._debt += len(octets)
        machine.feed(octets)
        machine.gather()  # so that `unwritten` includes it
        return bool(octets) and not machine.is_over

    def _do_deeds(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run the functions that wait, until `is_over`; and now and then those that wait for them, and write."""
        until = monotonic() + KEEP_SECONDS
        while self._deeds and not is_over():
            deed = self._deeds.popleft()
            try:
                deed()
            except Exception as error:
                self._note_failed(error)
            if monotonic() >= until:
                self._do_after()
                with self.lock:
                    self._flush()
                until = monotonic() + KEEP_SECONDS
        if self._after:
            self._do_after()

    def _do_after(self) -> None:
        after, self._after = self._after, []
        for deed in after:
            try:
                deed()
            except Exception as error:
                self._note_failed(error)

    def _note_failed(self, error: Exception) -> None:
        if isinstance(error, MemoryError) and self.is_up:
            raise error  # the data is lost here, so the peer must send it again
        events.AMQP_DATA_FAILED.log(self, exc_info=error)

    def _hang_up(self) -> None:
        with self.lock:
            if self._socket is not None:
                self._socket.close()
            self._waker.close()
            self._selector.close()
            if self._machine is not None:
                self._machine.end()
        self._over.set()


def without_frames(error: BrokerError) -> BrokerError:
    """Return an error without its tracebacks, because it is kept, and their frames would keep proton's objects.

    The garbage collector would free those on any thread and in any order, and the library reads freed memory if a link
    is the last object of its connection (seen with 0.40).
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def is_protons(error: Exception) -> bool:
    """Return whether an error was raised within proton, for example for a value that Python lacks (a map as key)."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith(("proton.", "cproton"))
