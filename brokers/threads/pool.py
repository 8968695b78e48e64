"""Threads that share tasks: as few as can keep up, and more when tasks block.

With one thread per consumer, every message would wake a thread, and Python would spend more time on passing its lock
around than on the messages. Here one thread takes tasks for as long as there are any. A *watcher* checks every few
milliseconds: if tasks wait and none was taken since the last check, it doubles the working threads; otherwise it sends
one thread to sleep. A thread that spends several checks on one task is *stuck* and is not counted until the task is
done, so a slow task does not delay the start of the next.

What threads outside wait for is given to them after a *burst*, the tasks that one thread takes without a pause: see
`after_burst`.

A thread with other work, such as reading a socket, may run quick tasks as a *guest*. That saves a change of threads,
which costs more than many a task. If the tasks turn out to be slow, the watcher has another thread do the guest's
work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Condition, Lock, current_thread, get_ident
from time import monotonic, sleep
from typing import Any, Final, Generic, TypeVar

from brokers import events
from brokers.threads.bursts import SUBMITTERS, Submitter, begin_bursts
from brokers.threads.thread import Thread
from brokers.threads.timer import left

T = TypeVar("T")

TICK_SECONDS: Final = 0.002
"""Interval between two checks of the watcher, in seconds: the longest wait of a task behind one that blocks."""

IDLE_SECONDS: Final = 10.0
"""Time after which an idle thread ends, in seconds."""

LINGER_TICKS: Final = 50
"""Number of ticks for which the watcher goes on checking when there is no work."""

Task = Callable[[], None]


STUCK_TICKS: Final = 3
"""Number of checks after which the thread of a task is stuck."""

BEHIND_TICKS: Final = 5
"""Number of checks after which a guest is relieved: during one task, or over several, not counting one check each."""


GUEST_TICKS: Final = 2
"""Number of ticks between two checks while only guests have tasks: each check interrupts a guest."""

BURST_SECONDS: Final = 0.005
"""Time after which what waits for the end of a burst is called between two tasks, in seconds."""

SLOW_TICKS: Final = 2
"""Number of checks after which the burst of a task's thread is ended by another thread."""


class _Member:
    """One thread of the crew, and the lock that it sleeps on.

    Attributes:
        burst: what is to be called after its tasks; see `after_burst`.
        looks: number of checks of the watcher during its current task; None while it has no task.
    """

    __slots__ = ("awake", "burst", "has_left", "looks", "thread")

    def __init__(self) -> None:
        self.awake = Lock()
        self.awake.acquire()
        self.burst: deque[Callable[[], object]] = deque()
        self.has_left = False
        self.thread: Thread | None = None
        self.looks: int | None = None


class GuestThread:
    """A thread that runs quick tasks between its own work; see `Crew.admit`. Only `is_relieved` needs no crew lock.

    Attributes:
        relieve: the task that another thread runs when this one takes too long.
        is_relieved: whether another thread runs it.
        looks: number of checks of the watcher during its current task; None while it has no task.
        behind: number of checks during earlier tasks, not counting one each.
    """

    __slots__ = ("behind", "is_relieved", "looks", "relieve")

    def __init__(self, relieve: Task) -> None:
        self.relieve = relieve
        self.is_relieved = False
        self.looks: int | None = None
        self.behind = 0

    @property
    def is_busy(self) -> bool:
        """Whether the guest is running a task."""
        return self.looks is not None

    def end(self) -> None:
        """Record that the task is done."""
        self.behind = max(0, self.behind + (self.looks or 0) - 1)
        self.looks = None

    def come_back(self) -> None:
        """Record that the guest has resumed its own work."""
        self.is_relieved, self.behind = False, 0

    def look(self, ticks: int = 1) -> bool:
        """Count one check of the watcher; return True if another thread must take over now.

        Args:
            ticks: the time since the last check; the first check of a task counts one, as the task may have just begun.
        """
        if self.looks is None or self.is_relieved:
            return False
        self.looks += ticks if self.looks else 1
        self.is_relieved = self.behind + self.looks >= BEHIND_TICKS
        return self.is_relieved


class Crew:
    """Runs tasks on its own daemon threads, in the order in which they were submitted.

    A task may block for any time. An exception from a task is logged.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._tasks: deque[Task] = deque()
        self._asleep: list[_Member] = []
        self._working: set[_Member] = set()
        self._guests: dict[int, GuestThread] = {}  # by thread id
        self._left_to: set[Submitter] = set()
        self._left: list[tuple[Submitter, Task]] = []  # since the last check of the watcher
        self._overdue: list[tuple[Submitter, Task]] = []  # before that
        self._stuck = 0
        self._taken = 0
        self._spare = 0
        self._is_closed = False
        self._is_short = False  # of threads
        self._rests_until = 0.0
        self._watch = Condition(self._lock)
        self._is_watched = False
        self._watcher: Thread | None = None

    def submit(self, task: Task, submitter: Submitter | None = None) -> None:
        """Run a task soon, never on the calling thread. If no further thread can be started, the task waits.

        Args:
            task: the task.
            submitter: the calling thread, if it may be left to it to wake another one when it waits; see `Submitter`.

        Raises:
            RuntimeError: the crew was closed, or has no thread and can start none.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name} is closed")
            self._tasks.append(task)
            if not self._at_work and not (submitter is not None and self._is_left_to(submitter)):
                self._call_up()
            if not self._is_watched:
                self._be_watched()
            if not self._working and self._watcher is None:
                self._tasks.pop()
                self._rests_until = 0.0  # another attempt would delay no thread, as there is none
                raise RuntimeError(f"{self._name} has no thread, and none could be started")

    def submit_soon(self, task: Task) -> None:
        """Run a task like `submit`, but if the calling thread usually waits afterwards, only then; see `Submitter`."""
        own = SUBMITTERS.own
        own.submitted_at = monotonic()
        self.submit(task, own)

    def leave(self, submitter: Submitter, task: Task) -> bool:
        """Leave a quick task to a submitter, which is the calling thread, until it waits.

        If it does not soon, a thread of the crew runs the task too. Return False, having left nothing, if the thread
        did not wait the last time, or nobody would notice if it does not now.
        """
        submitter.submitted_at = monotonic()
        if not submitter.waits:
            return False
        owed = partial(task)  # which can be told from others
        submitter.owed.append(owed)  # first: the watcher takes what is not there for done
        with self._lock:
            if self._is_watched:
                self._left.append((submitter, owed))
                return True
            if not self._is_closed:
                self._be_watched()
        submitter.owed.remove(owed)
        return False

    def wake(self) -> None:
        """Wake a thread for the tasks that were left to a submitter."""
        with self._lock:
            self._left_to.clear()
            if self._tasks and not self._at_work:
                self._call_up()

    def admit(self, relieve: Task) -> GuestThread:
        """Let the calling thread run quick tasks, with `run`, until it calls `dismiss`.

        Args:
            relieve: does the work of that thread on another one, once a task takes long.
        """
        guest = GuestThread(relieve)
        with self._lock:
            self._guests[get_ident()] = guest
        return guest

    def dismiss(self) -> None:
        """Undo `admit` for the calling thread."""
        with self._lock:
            self._guests.pop(get_ident(), None)

    def resume(self, guest: GuestThread) -> None:
        """Let a guest run tasks again, now that it has resumed its own work."""
        with self._lock:
            guest.come_back()

    def run(self, task: Task) -> None:
        """Run a task at once if the calling thread is a guest, idle and not relieved; otherwise submit it.

        Raises:
            RuntimeError: as `submit` raises it.
        """
        guest = self._guests.get(get_ident())
        if guest is None or guest.looks is not None or guest.is_relieved:
            self.submit(task)
            return
        with self._lock:
            guest.looks = 0
            if not self._is_watched:
                self._be_watched()
        try:
            task()
        except BaseException:  # SystemExit too: the thread has other work to do
            self._log_failure()
        with self._lock:
            if guest.looks or guest.behind:
                guest.end()
            else:
                guest.looks = None

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a thread."""
        return len(self._tasks)

    def close(self, until: float | None = None) -> None:
        """Accept no more tasks; the threads end when the submitted tasks are done. Idempotent.

        Args:
            until: wait for that until the monotonic clock shows this; None not to wait.
        """
        with self._lock:
            self._is_closed = True
            threads = [self._watcher, *(member.thread for member in (*self._asleep, *self._working))]
            for member in self._asleep:
                member.awake.release()
            self._asleep.clear()
            self._watch.notify()
        for thread in threads if until is not None else ():
            if thread is not None and thread is not current_thread():
                thread.join(left(until or 0.0))

    # Called with the lock held

    @property
    def _at_work(self) -> int:
        """Number of working threads that are not stuck."""
        return len(self._working) - self._stuck

    def _is_left_to(self, submitter: Submitter) -> bool:
        """Leave it to a submitter to wake a thread, if it waited the last time and the watcher will see if it does."""
        if not (submitter.waits and self._is_watched):
            return False
        if submitter not in self._left_to:
            self._left_to.add(submitter)
            submitter.owed.append(self.wake)
        return True

    def _call_up(self) -> None:
        with suppress(MemoryError):  # the watcher tries again
            if self._asleep:
                self._working.add(self._asleep[-1])
                self._asleep.pop().awake.release()
                return
            member = _Member()
            self._working.add(member)
            member.thread = self._begin("crew", self._work, member)
            if member.thread is None:
                self._working.discard(member)

    def _begin(self, what: str, target: Callable[..., None], *args: Any) -> Thread | None:
        """Start a thread, or return None if that fails; the watcher tries again.

        After a failure that took time, the next attempt waits as long: the lock is held, and other threads need it.
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
                    events.TASK_WAITS.log(self._name, error)
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
        """Return a task, or None if the thread should sleep: there is no task, or more threads work than are needed."""
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

    # Called on the threads of the crew

    def _work(self, member: _Member) -> None:
        burst, own = member.burst, SUBMITTERS.own
        begin_bursts(burst)
        until = monotonic() + BURST_SECONDS
        while True:
            task = self._next(member)
            if task is not None:
                self._carry_out(task)
                if not burst or monotonic() < until:
                    continue
            self._end_burst(burst)
            own.wake_owed()
            if task is None and (member.has_left or not self._sleep(member)):
                return
            until = monotonic() + BURST_SECONDS

    def _end_burst(self, burst: deque[Callable[[], object]]) -> None:
        """Call what waits for the end of a burst; two threads may do so at a time."""
        while burst:
            with suppress(IndexError):
                self._carry_out(burst.popleft())

    def _carry_out(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException:  # SystemExit too: it must not end a shared thread
            self._log_failure()

    def _log_failure(self) -> None:
        with suppress(MemoryError):
            events.TASK_FAILED.log(self._name)

    def _sleep(self, member: _Member) -> bool:
        """Sleep until called up; return False if that took longer than `IDLE_SECONDS`, or the crew was closed."""
        if member.awake.acquire(timeout=IDLE_SECONDS):
            return not (self._is_closed and not self._tasks)
        with self._lock:
            if member in self._asleep:
                self._asleep.remove(member)
                return False
        member.awake.acquire()  # called up at the last moment
        return True

    def _look(self) -> None:
        """Run the watcher, which ensures that no task waits behind a blocked one, even when memory runs out."""
        while True:
            with suppress(MemoryError):
                self._look_on()
                return
            sleep(TICK_SECONDS)

    def _look_on(self) -> None:
        """Check regularly until the crew is closed and its tasks are done."""
        taken, quiet = -1, 0
        with self._lock:
            while not (self._is_closed and not self._tasks):
                if quiet > LINGER_TICKS:
                    self._is_watched = False
                    self._watch.wait()
                    quiet = 0
                are_guests_alone = not self._tasks and not self._working
                self._watch.wait(TICK_SECONDS * (GUEST_TICKS if are_guests_alone else 1))
                self._count_stuck()
                self._end_slow_bursts()
                self._run_overdue()
                self._relieve_guests(GUEST_TICKS if are_guests_alone else 1)
                if self._tasks and self._taken == taken and all(each.looks for each in self._working):
                    self._note_unwoken()
                    for _ in range(min(len(self._tasks), max(1, self._at_work))):
                        self._call_up()
                elif self._at_work > 1:
                    self._spare = 1
                is_busy = bool(self._tasks or self._working or self._overdue)
                is_busy = is_busy or any(each.is_busy for each in self._guests.values())
                quiet = 0 if is_busy else quiet + 1
                taken = self._taken

    def _relieve_guests(self, ticks: int) -> None:
        for guest in list(self._guests.values()):
            if guest.look(ticks):
                try:
                    self._tasks.appendleft(guest.relieve)
                except MemoryError:  # the next check relieves the guest
                    guest.come_back()
                    raise
                self._call_up()

    def _note_unwoken(self) -> None:
        """Record which submitters do not wait for what they submitted."""
        for submitter in self._left_to:
            submitter.waits = False
        self._left_to.clear()

    def _run_overdue(self) -> None:
        """Have what was left to submitters run that did not wait since the check before the last one."""
        for submitter, owed in self._overdue:
            if owed in submitter.owed:
                submitter.waits = False
                self._tasks.append(owed)
                self._call_up()
        self._overdue, self._left = self._left, []

    def _end_slow_bursts(self) -> None:
        """Have another thread call what waits for the end of a task that takes long."""
        for burst in [each.burst for each in self._working if each.burst and (each.looks or 0) >= SLOW_TICKS]:
            self._tasks.appendleft(partial(self._end_burst, burst))
            self._call_up()

    def _count_stuck(self) -> None:
        for member in self._working:
            if member.looks is not None:
                member.looks += 1
                self._stuck += member.looks == STUCK_TICKS


def at_once(task: Task) -> None:
    """Run a task at once, on the calling thread."""
    task()


class Turns(Generic[T]):
    """Passes items to a function one at a time, in order.

    Args:
        submit: runs a task, as `Crew.submit` does; `at_once` if the function never blocks.
        function: called with each item; an exception is logged, and the next item follows.
        later: runs a task once there is a thread, after `submit` has raised RuntimeError; None to pass that on.
    """

    def __init__(
        self,
        submit: Callable[[Task], None],
        function: Callable[[T], None],
        later: Callable[[Task], None] | None = None,
    ) -> None:
        self._submit = submit
        self._function = function
        self._later = later
        self._items: deque[T] = deque()
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._is_busy = False
        self._is_stopped = False
        self._is_awaited = False
        self._thread: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an item is being handled or waits."""
        return self._is_busy

    @property
    def is_inside(self) -> bool:
        """Whether the caller is called by the function itself."""
        return self._thread == get_ident()

    def put(self, item: T) -> None:
        """Add an item; after `stop` it is dropped. Raises what `submit` raises; the item then waits for another."""
        with self._lock:
            if self._is_stopped:
                return
            self._items.append(item)
            if self._is_busy:
                return
            self._is_busy = True
        try:
            self._submit(self._run)
        except BaseException as error:
            self._begin_later(error)

    def _begin_later(self, error: BaseException) -> None:
        """Handle the items later if there was no thread; otherwise raise the error, and let another item begin."""
        try:
            if self._later is None or not isinstance(error, RuntimeError):
                raise error
            self._later(self._run)
        except BaseException:
            with self._lock:
                self._is_busy = False
            raise

    def stop(self) -> None:
        """Start no further call, and drop the waiting items."""
        with self._changed:
            self._is_stopped = True
            self._items.clear()

    def join(self, until: float) -> None:
        """Wait for the current call until the monotonic clock shows `until`; return at once if made from that call."""
        with self._changed:
            self._is_awaited = True
            if not self.is_inside:
                self._changed.wait_for(lambda: self._thread is None, left(until))

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
                with suppress(MemoryError):  # logging may fail; the next items must be handled anyway
                    events.TASK_ITEM_FAILED.log()
            del item  # it may be large, and the next one may take long to arrive
