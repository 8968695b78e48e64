"""Threads that share work: as few at a time as keep up, as many as it takes when tasks block.

A thread for each consumer would be woken for each message, and Python would spend more on handing its lock around than
on the messages. Here one thread goes on taking tasks while there are any; a *watcher* looks every few milliseconds, and
where tasks wait though none was taken since, it calls up as many threads again as are at work. Where all goes well, it
sends one home. A thread that was at one task for a few looks is *stuck*, and counts for nothing until it is done: with
one slow task on its way the next finds a thread as quickly as without.

A thread that has something else to do, as one that reads a socket, may run quick tasks in between as a *guest*: that
saves the change of threads, which costs more than many a task. Where they are not as quick as was thought, the watcher
has another thread do what the guest should be doing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Lock, get_ident
from time import monotonic, sleep
from typing import Any, Final, Generic, TypeVar

from brokers.threads.thread import Thread

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS: Final = 0.002
"""Seconds between two looks of the watcher: a task waits no longer behind one that blocks."""

IDLE_SECONDS: Final = 10.0
"""Seconds that a thread without work stays."""

LINGER_TICKS: Final = 50
"""Ticks that the watcher goes on looking when there is no work."""

Task = Callable[[], None]


STUCK_TICKS: Final = 3
"""Looks of the watcher after which a task is a slow one."""

BEHIND_TICKS: Final = 5
"""Looks of the watcher after which a guest is relieved: at one task, or at several, beyond one look for each."""


class _Member:
    """One thread, and the lock that it sleeps on.

    Attributes:
        looks: how many looks of the watcher its task has seen; None while it has no task.
    """

    __slots__ = ("awake", "has_left", "looks")

    def __init__(self) -> None:
        self.awake = Lock()
        self.awake.acquire()
        self.has_left = False
        self.looks: int | None = None


class GuestThread:
    """A thread that runs quick tasks in between; see `Crew.admit`. The crew's lock is held but for `is_relieved`.

    Attributes:
        relieve: what another thread is to do when this one takes long.
        is_relieved: another thread does so.
    """

    __slots__ = ("_behind", "_looks", "is_relieved", "relieve")

    def __init__(self, relieve: Task) -> None:
        self.relieve = relieve
        self.is_relieved = False
        self._looks: int | None = None  # of the watcher, that its task has seen; None while it has no task
        self._behind = 0  # looks that earlier tasks saw, beyond one for each

    @property
    def is_busy(self) -> bool:
        """Whether it is at a task."""
        return self._looks is not None

    def begin(self) -> None:
        """Note that it begins a task."""
        self._looks = 0

    def end(self) -> None:
        """Note that it is done."""
        self._behind = max(0, self._behind + (self._looks or 0) - 1)
        self._looks = None

    def come_back(self) -> None:
        """Note that it does again what it should."""
        self.is_relieved, self._behind = False, 0

    def look(self) -> bool:
        """Have the watcher look; True if another thread is to take over now."""
        if self._looks is None or self.is_relieved:
            return False
        self._looks += 1
        self.is_relieved = self._behind + self._looks >= BEHIND_TICKS
        return self.is_relieved


class Crew:
    """Runs tasks in the order in which they were handed in, on daemon threads of its own.

    A task may block for as long as it likes. An exception that leaves it is logged.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._tasks: deque[Task] = deque()
        self._asleep: list[_Member] = []
        self._working: set[_Member] = set()
        self._guests: dict[int, GuestThread] = {}  # by thread
        self._stuck = 0
        self._taken = 0
        self._spare = 0
        self._is_closed = False
        self._is_short = False  # of threads
        self._rests_until = 0.0
        self._watch = Condition(self._lock)
        self._is_watched = False
        self._watcher: Thread | None = None

    def submit(self, task: Task) -> None:
        """Have a task run soon; never by the caller. While there is no further thread to be had, tasks wait for those.

        Raises:
            RuntimeError: the crew was closed, or has no thread at all and gets none.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name} is closed")
            self._tasks.append(task)
            if not self._at_work:
                self._call_up()
            self._be_watched()
            if not self._working and self._watcher is None:
                self._tasks.pop()
                self._rests_until = 0.0  # nobody is here whom another try would hold up
                raise RuntimeError(f"{self._name} has no thread, and there is none to be had")

    def admit(self, relieve: Task) -> GuestThread:
        """Let the calling thread run quick tasks, with `run`, until it says `dismiss`.

        Args:
            relieve: does what that thread should be doing, once it is at a task for long; on another thread.
        """
        guest = GuestThread(relieve)
        with self._lock:
            self._guests[get_ident()] = guest
        return guest

    def dismiss(self) -> None:
        """End what `admit` began for the calling thread."""
        with self._lock:
            self._guests.pop(get_ident(), None)

    def resume(self, guest: GuestThread) -> None:
        """Let a guest run tasks again: it does what it should."""
        with self._lock:
            guest.come_back()

    def run(self, task: Task) -> None:
        """Run a task at once if the calling thread is a guest, with no task and not relieved; else as `submit` does.

        Raises:
            RuntimeError: the crew was closed, and the task is for another thread.
        """
        guest = self._guests.get(get_ident())
        if guest is None or guest.is_busy or guest.is_relieved:
            self.submit(task)
            return
        with self._lock:
            guest.begin()
            self._be_watched()
        self._carry_out(task)
        with self._lock:
            guest.end()

    @property
    def waiting(self) -> int:
        """How many tasks wait for a thread."""
        return len(self._tasks)

    def close(self) -> None:
        """Take no more tasks; threads end when those that were handed in are done. Idempotent."""
        with self._lock:
            self._is_closed = True
            for member in self._asleep:
                member.awake.release()
            self._asleep.clear()
            self._watch.notify()

    # With the lock held

    @property
    def _at_work(self) -> int:
        """How many threads can be counted on."""
        return len(self._working) - self._stuck

    def _call_up(self) -> None:
        with suppress(MemoryError):  # the watcher tries again
            if self._asleep:
                self._working.add(self._asleep[-1])
                self._asleep.pop().awake.release()
                return
            member = _Member()
            self._working.add(member)
            if self._begin("crew", self._work, member) is None:
                self._working.discard(member)

    def _begin(self, what: str, target: Callable[..., None], *args: Any) -> Thread | None:
        """Start a thread; None if there is none to be had. The watcher tries again.

        Not at once where the failure took its time: the lock is held, and those that are there want to work.
        """
        since = monotonic()
        if since < self._rests_until:
            return None
        was_short, self._is_short = self._is_short, True
        try:
            thread = Thread(target=target, args=args, name=f"{self._name} {what}", daemon=True)
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._rests_until = 2 * monotonic() - since
            if not was_short:
                with suppress(MemoryError):
                    log.error("%s: tasks wait, as there is no further thread to be had: %s", self._name, error)
            return None
        self._is_short = False
        return thread

    def _be_watched(self) -> None:
        if self._is_watched:
            return
        if self._watcher is None:
            self._watcher = self._begin("watcher", self._look)
            if self._watcher is None:
                return
        self._is_watched = True
        self._watch.notify()

    def _next(self, member: _Member) -> Task | None:
        """Take a task; without one, or with more threads at work than are needed, lie down to sleep."""
        with self._lock:
            if member.looks is not None and member.looks >= STUCK_TICKS:
                self._stuck -= 1
            member.looks = None
            if self._tasks and not (self._spare and self._at_work > 1):
                member.looks = 0
                self._taken += 1
                return self._tasks.popleft()
            self._spare = 0
            self._working.discard(member)
            if self._is_closed:
                member.has_left = True
            else:
                self._asleep.append(member)
            return None

    # On the threads

    def _work(self, member: _Member) -> None:
        while True:
            task = self._next(member)
            if task is None:
                if member.has_left or not self._sleep(member):
                    return
                continue
            self._carry_out(task)

    def _carry_out(self, task: Task) -> None:
        try:
            task()
        except BaseException:  # SystemExit too: it must not end the thread of others
            with suppress(MemoryError):
                log.exception("a task of %s failed", self._name)

    def _sleep(self, member: _Member) -> bool:
        """Wait to be called up; False if that did not happen for long, or the crew was closed."""
        if member.awake.acquire(timeout=IDLE_SECONDS):
            return not (self._is_closed and not self._tasks)
        with self._lock:
            if member in self._asleep:
                self._asleep.remove(member)
                return False
        member.awake.acquire()  # called up at the last moment
        return True

    def _look(self) -> None:
        """Watch that no task waits behind one that blocks, also through a want of memory."""
        while True:
            with suppress(MemoryError):
                self._look_on()
                return
            sleep(TICK_SECONDS)

    def _look_on(self) -> None:
        """Watch until the end."""
        taken, quiet = -1, 0
        with self._lock:
            while not (self._is_closed and not self._tasks):
                if quiet > LINGER_TICKS:
                    self._is_watched = False
                    self._watch.wait()
                    quiet = 0
                self._watch.wait(TICK_SECONDS)
                self._count_stuck()
                self._relieve_guests()
                if self._tasks and self._taken == taken:
                    for _ in range(min(len(self._tasks), max(1, self._at_work))):
                        self._call_up()
                elif self._at_work > 1:
                    self._spare = 1
                is_busy = self._tasks or self._working or any(each.is_busy for each in self._guests.values())
                quiet = 0 if is_busy else quiet + 1
                taken = self._taken

    def _relieve_guests(self) -> None:
        for guest in list(self._guests.values()):
            if guest.look():
                try:
                    self._tasks.appendleft(guest.relieve)
                except MemoryError:  # it is relieved at the next look
                    guest.come_back()
                    raise
                self._call_up()

    def _count_stuck(self) -> None:
        for member in self._working:
            if member.looks is not None:
                member.looks += 1
                self._stuck += member.looks == STUCK_TICKS


def at_once(task: Task) -> None:
    """Run a task on the thread that hands it in."""
    task()


class Turns(Generic[T]):
    """Hands items to a function one at a time, in order.

    Args:
        submit: has a task run, as `Crew.submit` does; or `at_once`, where the function never blocks.
        function: called with each item; what leaves it is logged, and the next item follows.
    """

    def __init__(self, submit: Callable[[Task], None], function: Callable[[T], None]) -> None:
        self._submit = submit
        self._function = function
        self._items: deque[T] = deque()
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._is_busy = False
        self._is_stopped = False
        self._is_awaited = False
        self._thread: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an item is being handled, or waits."""
        return self._is_busy

    @property
    def are_waiting(self) -> bool:
        """Whether items wait, beside the one that is being handled."""
        return bool(self._items)

    def put(self, item: T) -> None:
        """Add an item; after `stop` it is dropped. Raises what `submit` does; the item then waits for the next one."""
        with self._lock:
            if self._is_stopped:
                return
            self._items.append(item)
            if self._is_busy:
                return
            self._is_busy = True
        try:
            self._submit(self._run)
        except BaseException:
            with self._lock:
                self._is_busy = False
            raise

    def stop(self) -> None:
        """Start no further call, and drop what waits."""
        with self._changed:
            self._is_stopped = True
            self._items.clear()

    def join(self, until: float) -> None:
        """Wait for the call under way, until the monotonic clock shows `until`; not for one's own."""
        with self._changed:
            self._is_awaited = True
            if self._thread != get_ident():
                self._changed.wait_for(lambda: self._thread is None, max(0.0, until - monotonic()))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._items:
                    self._is_busy = False
                    self._thread = None
                    if self._is_awaited:
                        self._changed.notify_all()
                    return
                item = self._items.popleft()
                self._thread = get_ident()
            try:
                self._function(item)
            except BaseException:
                with suppress(MemoryError):  # of telling: the next items are to be handled all the same
                    log.exception("what handles an item failed")
            del item  # it may be large, and the next one may be long in coming
