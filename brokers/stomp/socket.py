"""The socket under a STOMP session: dialling, reading, writing, heart-beats. Only this file uses stomp.py.

One thread waits for arriving data; others write, and never wait here. If the system permits, reading takes one system
call per arrival: with each further call other threads may take Python's lock, and under load the message waits for it.

stomp.py parses whole frames, one at a time; but `codec.py` parses messages and receipts, which come by the thousand.
The socket is ours, and no write to it blocks. This gives three guarantees that stomp.py lacks: a silent session ends
in time even while data waits to be written; ending it never waits; and only one thread at a time uses TLS. The meaning
of frames does not belong here.

Data that the broker does not read at once *waits* here, and a separate thread writes it. So no thread is blocked in the
middle of a frame, and none holds `writing` for long. A thread with messages to send, whose number is unbounded, waits
for that data to be written, up to its own time limit; answers to the broker are bounded by its requests, and do not
wait.

The reading thread may run quick tasks of a pool, see `lead`. Data that they write while further frames of the same
arrival wait is *kept*, and written in one piece after the last frame, or some milliseconds later. If a task takes long,
another thread stands in: it reads and leaves all tasks to the pool, and hands the lead back when the reader is ready
again and some time has passed, because slow tasks seldom come alone.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from math import inf
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Condition, Event, Lock, RLock, Semaphore, current_thread, get_ident
from time import monotonic, sleep, time
from typing import Any, Final, Protocol

from stomp.transport import BaseTransport
from stomp.utils import parse_frame

from brokers import events
from brokers.adapter.consumer import GATHER_SECONDS, HOLD_SECONDS, MAX_HELD_OCTETS
from brokers.adapter.dial import Dial
from brokers.adapter.wrong_port import HEAD_OCTETS, check
from brokers.errors import ConnectionFailedError, ConnectionLostError
from brokers.stomp.codec import Cut, Cutter, Frame, Frames, SkippedFrame, WholeFrame, passed_of, read
from brokers.stomp.heads import HeadReader
from brokers.stomp.url import StompLogin
from brokers.threads.bursts import SUBMITTERS, Submitter, begin_bursts, end_burst, leave_bursts
from brokers.threads.pool import Crew, GuestThread
from brokers.threads.thread import Thread
from brokers.threads.timer import left

READ_OCTETS: Final = 65_536
"""Maximum number of octets of one read."""

NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Exceptions of `send` when there is no room, and of `receive` when no data has arrived."""

AT_ONCE: Final = socket.MSG_DONTWAIT if sys.platform == "linux" else 0
"""Flag for non-blocking writes on a blocking socket; 0 on systems that lack it or ignore it."""

TIMEVAL: Final = struct.Struct("@ll")


class PolledSocket:
    """A non-blocking socket that only one thread at a time uses, as TLS requires."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._using = Lock()
        self._readable = DefaultSelector()
        self._readable.register(connected, EVENT_READ)

    def send(self, data: memoryview | bytes) -> int:
        """Write what there is room for; return how many octets that is."""
        with self._using:
            return self._socket.send(data)

    def receive(self, pause: float | None) -> bytes:
        """Return arrived octets, none at the end; raise `NOT_NOW` after `pause` seconds (None: no limit), or sooner."""
        try:
            with self._using:
                return self._socket.recv(READ_OCTETS)
        except NOT_NOW:
            self._readable.select(pause)
            raise

    def poll(self) -> bytes:
        """Return arrived octets, none at the end; raise one of `NOT_NOW` if no data has arrived."""
        with self._using:
            return self._socket.recv(READ_OCTETS)

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        self._readable.close()
        with self._using:
            self._socket.close()


class BlockingSocket:
    """A socket whose reader blocks in the system call; see `PolledSocket`."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected
        self._writing = Lock()
        self._limit: float | None = None

    def send(self, data: memoryview | bytes) -> int:
        """Write what there is room for; return how many octets that is."""
        with self._writing:
            return self._socket.send(data, AT_ONCE)

    def receive(self, pause: float | None) -> bytes:
        """Return arrived octets, none at the end; raise BlockingIOError after `pause` seconds, or sooner."""
        if pause != self._limit and (pause is None or self._limit is None or not pause / 2 <= self._limit <= pause):
            self._limit_to(pause)
        return self._socket.recv(READ_OCTETS)

    def poll(self) -> bytes:
        """Return arrived octets, none at the end; raise BlockingIOError if no data has arrived."""
        return self._socket.recv(READ_OCTETS, AT_ONCE)

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        with self._writing:
            self._socket.close()

    def _limit_to(self, pause: float | None) -> None:
        # A time-out of 0 would mean no limit.
        seconds, rest = divmod(0 if pause is None else max(1, int(pause * 1_000_000)), 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(seconds, rest))
        self._limit = pause


def of(connected: socket.socket) -> PolledSocket | BlockingSocket:
    """Return the wrapper for a connected socket."""
    return PolledSocket(connected) if isinstance(connected, ssl.SSLSocket) or not AT_ONCE else BlockingSocket(connected)


class ForeignThreadFilter(logging.Filter):
    """Drops what stomp.py logs on our threads: our own log has the same events, and its lines hold whole frames."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record comes from another thread, of a program that uses stomp.py itself."""
        return not isinstance(current_thread(), Thread)


logging.getLogger("stomp.py").addFilter(ForeignThreadFilter())

SOCKET_POLL_SECONDS: Final = 0.5
"""Interval at which waiting threads check whether the socket still exists, in seconds."""

BEAT: Final = b"\n"

TOLD: Final = (b"MESSAGE\n", b"RECEIPT\n")
"""The first lines of frames that are parsed here."""

RECEIPT: Final = re.compile(rb"RECEIPT\nreceipt-id:([ -\[\]-~]*)\n\n")
"""Matches a RECEIPT as nearly all are: one header, without escapes."""

FRAMES: Final = frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"})
"""The commands that a broker sends. ActiveMQ Classic may write an ERROR into the middle of a MESSAGE: then all
following data is in doubt, so the session ends."""

FIRST_WORDS: Final = tuple(each.encode() for each in sorted(FRAMES))
"""The words with which a STOMP broker may begin."""

KEEP_SECONDS: Final = 0.005
"""Time after which kept data is written although more frames wait, and heart-beats are checked, in seconds."""

MIN_WAIT_SECONDS: Final = 0.0003
"""Minimum duration of a read that had to wait for data, in seconds."""

STAND_IN_SECONDS: Final = 0.5
"""Minimum time for which another thread reads after a task of the reader took long, in seconds."""


class FrameListener(Protocol):
    """Receives frames that are parsed without stomp.py, on the reading thread, and is told of completed writes."""

    def on_message(self, frame: Frame) -> None:
        """Take a MESSAGE."""

    def on_receipt(self, receipt: str | None) -> None:
        """Take the `receipt-id` of a RECEIPT."""

    def on_no_frame(self) -> None:
        """Note that octets are no frame of a broker; the session ends next."""

    def on_written(self) -> None:
        """Record that all waiting data was written. Called by any thread, with `writing` held."""


class Wire(BaseTransport):  # type: ignore[misc]  # stomp.py has no types
    """One socket, from `open` to `drop`.

    Args:
        login: address of the broker.
        listener: receives frames on the reading thread; see stomp.py for its other methods.

    Attributes:
        writing: held while writing, never for long.
        reader: the reading thread, once it has started.
        failure: the socket error that ended reading, if any.
        stranger: the error that says that the peer does not speak STOMP, if so.
        is_lazy: whether arriving data may wait for more, which costs less than a wake-up for each frame.
        read_at: when the current frame was read, in seconds since 1970, if `is_lazy`; otherwise None.
    """

    def __init__(self, login: StompLogin, listener: FrameListener) -> None:
        super().__init__(auto_decode=False)
        self.writing = RLock()
        self.reader: Thread | None = None
        self.failure: OSError | None = None
        self.stranger: ConnectionFailedError | None = None
        self.is_lazy = False
        self.read_at: float | None = None
        self._login = login
        self._dial = Dial(login)
        self._closing = Lock()
        self._socket: Any = None
        self._use: PolledSocket | BlockingSocket | None = None
        self._is_down = False
        self._heard: bytes | None = b""  # the first octets, until they are recognised as STOMP
        self._cutter = Cutter(login.max_message)
        self._heads = HeadReader()
        self._frames: deque[Cut | float] = deque()  # a float is the time when the frames after it were read
        self._broken: ConnectionLostError | None = None  # the error to raise after those frames
        self._listener = listener
        self._kept = bytearray()  # data to be written soon; used with `writing` held
        self._keepers: set[Submitter] = set()  # the threads that write it when they wait; likewise
        self._after: list[Callable[[], None]] = []  # tasks for the end of this arrival; see `after_arrivals`
        self._waiting: deque[memoryview] = deque()  # data that had no room; used with `writing` held
        self._written = Condition(self.writing)  # signalled when waiting data was written
        self._writer: Thread | None = None
        self._note_written = listener.on_written
        self._crew: Crew | None = None
        self._guest: GuestThread | None = None
        self._reader_id = 0
        self._lead = Semaphore(0)  # released when the lead is handed back
        self._is_waiting = False  # whether the reader waits for the lead
        self._over = Event()  # set when reading has ended
        self._send_every = self._silence = inf
        self._heard_at = self._sent = 0.0
        self.override_threading(self._start_reader)
        self.set_listener("session", listener)

    def open(self, timeout: float) -> None:
        """Connect within `timeout` seconds and begin to read.

        Raises:
            OSError: no address answered, or `drop` was called.
            ConnectionFailedError: what answers does not speak TLS.
        """
        self._socket = self._dial.connect(timeout)
        self._use = of(self._socket)
        self.start()

    def beat(self, send_every: float, silence: float) -> None:
        """Send heart-beats every `send_every` seconds, and end after `silence` seconds without data; 0 for never.

        Any octet counts, so a large message on a slow connection is not silence. Called by the reading thread.
        """
        self._heard_at = self._sent = monotonic()
        self._send_every, self._silence = send_every or inf, silence or inf

    def send(self, frames: Frames) -> None:
        """Write frames, now or when there is room. Never waits.

        Raises:
            OSError: the socket is closed.
        """
        with self.writing:
            if isinstance(frames, tuple):
                for piece in frames:
                    self._write(piece)
            elif self._frames and len(self._kept) + len(frames) <= READ_OCTETS and self._is_leader:
                self._kept += frames  # more frames of the same arrival wait, and the reader writes what it has then
            else:
                self._write(frames)

    def keep(self, frames: bytes, crew: Crew) -> bool:
        """Keep frames until the calling thread waits for something, or some milliseconds; return False if it may not.

        With `writing` held. `_flush` is left to the thread; see `Crew.leave`.
        """
        own = SUBMITTERS.own
        if len(self._kept) + len(frames) > READ_OCTETS or self._waiting or self._is_down:
            return False
        if own not in self._keepers:
            if not crew.leave(own, self._flush):
                return False
            self._keepers.add(own)
        else:
            own.submitted_at = monotonic()
        self._kept += frames
        return True

    def _flush(self) -> None:
        """Write what was kept; if that fails, the session ends."""
        with self.writing:
            try:
                if self._kept and not self._is_down:
                    self._write(b"")
            except OSError:
                self.join(monotonic() + SOCKET_POLL_SECONDS)  # so that the last frames of the broker are still read
                self.drop()

    @property
    def is_silent(self) -> bool:
        """Whether the broker has said nothing yet."""
        return self._heard == b""

    @property
    def is_behind(self) -> bool:
        """Whether the broker has to read before more is written."""
        return bool(self._waiting)

    def await_room(self, until: float) -> None:
        """Wait until all waiting data is written, or the end. `writing` is held, exactly once by this thread.

        Raises:
            TimeoutError: the monotonic clock shows `until`.
        """
        while self._waiting and not self._is_down:
            rest = left(until)
            if not rest or not self._written.wait(None if rest == inf else rest):
                raise TimeoutError("the broker does not read")

    def _write(self, frames: bytes) -> None:
        """Write kept data, followed by more frames."""
        if self._kept:
            frames = bytes(self._kept + frames)
            self._kept.clear()
            self._keepers.clear()
        if self._is_down:
            raise ConnectionAbortedError("the socket is closed")
        if self._waiting:
            self._waiting.append(memoryview(frames))
        elif (rest := self._push(frames)) is not None:
            self._waiting.append(rest)
            self._writer = Thread(target=self._write_waiting, name=f"{self._login} writer", daemon=True)
            try:
                self._writer.start()
            except RuntimeError as error:
                raise OSError(f"no thread could be started that writes: {error}") from error

    def _push(self, frames: bytes | memoryview) -> memoryview | None:
        """Write as much as there is room for; return the rest, or None if that was all."""
        assert self._use is not None
        rest = None
        try:
            while frames:
                written = self._use.send(frames)
                self._sent = monotonic()
                if written == len(frames):  # nearly always
                    return None
                frames = rest = memoryview(frames)[written:]
        except NOT_NOW:
            rest = memoryview(frames)
        return rest

    def _write_waiting(self) -> None:
        """Write waiting data whenever there is room, until all is written, or the end."""
        try:
            while not self._has_written():
                self._wait_for_room()
        except OSError:
            self.join(monotonic() + SOCKET_POLL_SECONDS)  # so that the last frames of the broker are still read
            self.drop()
        finally:
            with self.writing:
                self._written.notify_all()

    def _has_written(self) -> bool:
        """Write as much as there is room for; return whether that was all."""
        with self.writing:
            while self._waiting:
                rest = self._push(self._waiting[0])
                if rest:
                    self._waiting[0] = rest
                    return False
                self._waiting.popleft()
            self._written.notify_all()
            self._note_written()
            return True

    def drop(self) -> None:
        """End at once: reading, writing and connecting fail. Any thread may call this, and it never waits."""
        self._is_down = True
        self.running = False
        with self._closing:
            self._dial.drop()

    def join(self, until: float) -> None:
        """Wait until reading has ended or the monotonic clock shows `until`; return at once on the reading thread.

        If the reader runs a task, which may be the caller, this waits for the thread that stands in.
        """
        if self._guest is not None and self._guest.is_busy:
            self._over.wait(left(until))
        elif self.reader is not None and self.reader is not current_thread():
            self.reader.join(left(until))

    def _start_reader(self, loop: Callable[[], None]) -> Thread:
        def read() -> None:
            self._reader_id = get_ident()
            begin_bursts()
            try:
                loop()
            finally:
                leave_bursts()
                if self._crew is not None:
                    self._crew.dismiss()
                self._run_after()
                self.cleanup()  # stomp.py omits this if `drop` was called before its first check
                self._over.set()

        self.reader = Thread(target=read, name=f"{self._login} reader", daemon=True)
        self.reader.start()
        return self.reader

    def _wait_for_room(self) -> None:
        if self._is_down:
            raise ConnectionAbortedError("the socket is closed")
        with DefaultSelector() as selector:  # a new one, because another thread may close the socket
            try:
                selector.register(self._socket, EVENT_WRITE)
            except ValueError:  # the socket has no descriptor any more
                raise ConnectionAbortedError("the socket is closed") from None
            selector.select(SOCKET_POLL_SECONDS)

    # Reading

    def receive(self) -> bytes:
        """Read and inform the listener until the end; then return no octets. stomp.py calls it on the reading thread.

        Raises:
            ConnectionLostError: the peer was silent for too long, or sent an invalid frame.
        """
        try:
            while not self._is_down:
                if self._crew is not None and self._guest is None:
                    leave_bursts()  # as tasks may take long
                    self._guest = self._crew.admit(self._stand_in)
                if self._guest is None:
                    self._tell()
                else:
                    self._tell_and_work(self._guest)
                if self._guest is not None and self._guest.is_relieved:
                    self._end_arrival()  # what was left since the stand-in began
                    self._wait_for_lead(self._guest)
                elif not self._take():
                    break
        except MemoryError:  # the data is lost, so the start of the next frame is unknown
            self._let_go()
            raise
        return b""

    def lead(self, crew: Crew) -> None:
        """Let the reading thread run tasks that are passed to `crew.run` there, from now on."""
        self._crew = crew

    def _take(self, at_most: float = inf) -> bool:
        """Read data for at most `at_most` seconds, and send heart-beats meanwhile; return False at the end."""
        assert self._use is not None
        if self._broken is not None:  # all frames before it were passed on
            self._note_no_frame()
            raise self._broken
        begun = monotonic()
        if begun >= self._sent + self._send_every:
            self._give_sign(begun)
        pause = min(at_most, self._sent + self._send_every - begun, self._heard_at + self._silence - begun)
        end_burst()
        try:
            data = self._use.receive(None if pause == inf else max(0.0, pause))
        except NOT_NOW:  # some sockets raise this even if data has arrived meanwhile
            self._require_sign()
            return True
        except MemoryError:  # nothing was taken from the socket
            if not self._cutter.let_go():
                raise
            return True
        except OSError as error:
            self.failure = error
            raise
        if not data:
            return False
        self._hold(data)
        if self.is_lazy and monotonic() - begun > MIN_WAIT_SECONDS:
            self._gather(len(data))
        return True

    def _hold(self, data: bytes) -> None:
        """Split octets into frames to be passed on, including those before an invalid one."""
        self._heard_at = monotonic()
        if self._heard is not None:
            self._recognise(data)
        if self.is_lazy:
            self._frames.append(time())
        try:
            self._frames.extend(self._cutter.cut(data))
        except ConnectionLostError as error:
            self._broken = error

    def _recognise(self, data: bytes) -> None:
        """Check that the first octets are those of STOMP.

        Raises:
            ConnectionFailedError: they are not.
        """
        assert self._heard is not None
        self._heard = (self._heard + data[:HEAD_OCTETS]).lstrip(b"\r\n")[:HEAD_OCTETS]
        try:
            check(self._login, self._heard, FIRST_WORDS)
        except ConnectionFailedError as error:
            self.stranger = error
            raise
        if len(self._heard) >= max(map(len, FIRST_WORDS)):
            self._heard = None

    def _gather(self, octets: int) -> None:
        """Read on for a moment without passing frames on, so that they are handled together."""
        assert self._use is not None
        until = monotonic() + HOLD_SECONDS
        while self._broken is None and octets < MAX_HELD_OCTETS and monotonic() < until:
            try:
                data = self._use.poll()
            except NOT_NOW:
                sleep(GATHER_SECONDS)
                continue
            except MemoryError:  # nothing was taken from the socket: the next read handles this
                return
            except OSError as error:
                self.failure = error
                return
            if not data:
                return
            octets += len(data)
            self._hold(data)

    def _tell(self) -> None:
        """Pass the frames to the listener."""
        while self._frames and not self._is_down:
            self._tell_of(self._frames.popleft())

    def _tell_and_work(self, guest: GuestThread) -> None:
        """Pass frames on while this thread has the lead; heart-beats and kept data do not wait for the last frame."""
        assert self._crew is not None
        frames = self._frames
        until = monotonic() + KEEP_SECONDS if len(frames) > 1 else 0.0
        while frames and not self._is_down and not guest.is_relieved:
            self._tell_of(frames.popleft())
            if frames:
                now = monotonic()
                if now < until:
                    continue
                until = now + KEEP_SECONDS
                if now >= self._sent + self._send_every:
                    self._give_sign(now)
            if self._after or self._kept:
                self._crew.run(self._end_arrival)

    def _tell_of(self, frame: Cut | float) -> None:
        if not isinstance(frame, WholeFrame):
            if isinstance(frame, float):
                self.read_at = frame
            else:
                self._tell_of_passed(frame)
            return
        head = frame.head
        if head.startswith(b"R") and (receipt := RECEIPT.fullmatch(head)) is not None:
            self._listener.on_receipt(receipt[1].decode())
            return
        try:
            found = self._heads.read(frame) if head.startswith(TOLD) else None
        except MemoryError:
            self._tell_of_passed(passed_of(frame))
            return
        if found is None:
            self._leave_to_stomp_py(head + frame.body)
        elif found[0] == "MESSAGE":
            self._listener.on_message(found)
        else:
            self._pass_on(found)

    def _pass_on(self, frame: Frame) -> None:
        if frame.cmd == "MESSAGE":
            self._listener.on_message(frame)
        else:
            self._listener.on_receipt(frame.headers.get("receipt-id"))

    def _tell_of_passed(self, frame: SkippedFrame) -> None:
        """Pass on a frame whose body was dropped; frames other than messages are passed on without their body."""
        head = frame.head.replace(b"\r\n", b"\n")
        found = read(WholeFrame(head)) if head.startswith(TOLD) else None
        if found is not None:
            self._pass_on(found._replace(size=frame.size, refusal=frame.why))
        else:
            self._leave_to_stomp_py(head, was_passed=True)

    def _leave_to_stomp_py(self, frame: bytes, *, was_passed: bool = False) -> None:
        """Parse a rare or broken frame with stomp.py; an unknown command is accepted only if the frame was skipped."""
        try:
            found = parse_frame(frame)
            if found is not None and not was_passed and found.cmd.upper() not in FRAMES:
                self._note_no_frame()
                raise ValueError(f"a broker sends no such frame: {found.cmd[:100]!r}")
            if found is not None:
                self.process_frame(found, frame)
        except Exception as error:
            events.STOMP_FRAME_UNREAD.log(self._login, error)
            raise

    def _note_no_frame(self) -> None:
        self._listener.on_no_frame()
        self._flush()

    def after_arrivals(self, task: Callable[[], None]) -> None:
        """Run a task, which must neither block nor fail, once the frames that were read together are passed on.

        That is at once, unless this is the reading thread and more of those frames wait. Their data is written with it.
        """
        if self._frames and self._is_leader:
            self._after.append(task)
        else:
            task()

    @property
    def _is_leader(self) -> bool:
        """Whether the caller is the reading thread, while it runs tasks and no other thread stands in."""
        return self._guest is not None and not self._guest.is_relieved and get_ident() == self._reader_id

    def _run_after(self) -> None:
        after, self._after = self._after, []
        for task in after:
            task()

    def _end_arrival(self) -> None:
        """Run the tasks that wait for the end of the arrival, and write the data that was kept."""
        self._run_after()
        self._flush()

    def _stand_in(self) -> None:
        """Read for the reader, on a thread of the crew."""
        assert self._crew is not None
        until = monotonic() + STAND_IN_SECONDS
        try:
            self._crew.submit(self._end_arrival)  # not here: it waits for `writing`, and the reader may keep more
            self._tell()
            while not (self._is_waiting and monotonic() >= until):
                if self._is_down or not self._take(SOCKET_POLL_SECONDS):
                    self._end()
                    break
                self._tell()
        except OSError:
            self._end()
        except MemoryError:
            self._let_go()
            self._end()
        except Exception as error:
            events.STOMP_READ_FAILED.log(self._login, error)
            self._end()
        finally:
            self._lead.release()

    def _let_go(self) -> None:
        """End for lack of memory: first drop the data, then log the error, which needs memory too."""
        self.drop()
        self._frames.clear()
        self._cutter = Cutter(self._login.max_message)
        events.STOMP_OUT_OF_MEMORY.log(self._login)

    def _end(self) -> None:
        self.cleanup()
        self.notify("disconnected")
        self._over.set()

    def _wait_for_lead(self, guest: GuestThread) -> None:
        assert self._crew is not None
        self._is_waiting = True
        self._lead.acquire()
        self._is_waiting = False
        self._crew.resume(guest)

    # Ending

    def cleanup(self) -> None:
        """Close the socket. Idempotent."""
        self.drop()
        assert self._use is not None
        with self._closing:
            self._use.close()

    def _require_sign(self) -> None:
        """End if no data has arrived for too long. Unread data in the socket counts as a sign of life."""
        now = monotonic()
        if self._heard_at + self._silence <= now:
            events.STOMP_SILENT.log(self._login, now - self._heard_at)
            raise ConnectionLostError("the broker gives no sign of life")

    def _give_sign(self, now: float) -> None:
        """Send a heart-beat."""
        self._sent = now
        if self.writing.acquire(blocking=False):  # otherwise another thread writes, which is a sign as well
            try:
                if not self._waiting:  # otherwise the peer does not read
                    self._write(BEAT)
            finally:
                self.writing.release()
