"""The socket under a STOMP session: dialling, reading, writing, heart-beats. The only file that touches stomp.py.

One thread waits for what arrives; others write, and never wait here. Reading costs one system call for each arrival
where the system can do that: each one more is a chance for the other threads to take Python's lock, and under load
the message waits for it.

stomp.py parses frames, one at a time and whole; but messages and receipts, which come by the thousand, are read by
`codec.py`. The socket is ours, and no write to it blocks. So three things hold that stomp.py leaves open: a session
that nobody answers on ends in time even while something is to be written; ending it waits for nothing; and TLS is
used by one thread at a time. What frames mean does not belong here.

What the broker does not read at once *waits* here, and a thread that is there only for that writes it. So nobody is
held up in the midst of a frame, and nobody holds `writing` for long. A thread that has messages to send, of which
there is no end, waits for that to be gone, for as long as it likes; what answers the broker is bounded by what it
asks, and does not wait.

The thread that reads may run quick tasks of a pool, see `lead`. What they write while further frames wait that came
together with theirs is *kept*, and goes out in one piece after the last, or some milliseconds later. Where a task
takes long, another thread stands in: it reads and leaves all tasks to the pool, and hands the lead back when the
reader is there again and some time is over, as one slow task is seldom alone.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Condition, Event, Lock, RLock, Semaphore, current_thread, get_ident
from time import monotonic, sleep, time
from typing import Any, Final, Protocol

from stomp.transport import BaseTransport
from stomp.utils import parse_frame

from brokers.adapter.consumer import GATHER_SECONDS, HOLD_SECONDS, MAX_HELD_OCTETS
from brokers.adapter.endpoints import MIN_TIMEOUT_SECONDS, connect_to
from brokers.errors import ConnectionLostError
from brokers.stomp.codec import Cut, Cutter, Frame, SkippedFrame, passed_of, read
from brokers.stomp.heads import HeadReader
from brokers.stomp.url import StompLogin
from brokers.threads.pool import Crew, GuestThread
from brokers.threads.thread import Thread

READ_OCTETS: Final = 65_536
"""Octets that are read at once."""

NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What `send` raises when there is no room, and `receive` when nothing came."""

AT_ONCE: Final = socket.MSG_DONTWAIT if sys.platform == "linux" else 0
"""The flag of a write that does not wait though reading does; 0 where there is none, or where it is not kept."""

TIMEVAL: Final = struct.Struct("@ll")


class PolledSocket:
    """A socket that never blocks, and is used by one thread at a time, as TLS wants it."""

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
        """Return what came, nothing at the end; wait so many seconds for it, None for as long as it takes."""
        try:
            with self._using:
                return self._socket.recv(READ_OCTETS)
        except NOT_NOW:
            self._readable.select(pause)
            raise

    def poll(self) -> bytes:
        """Return what came, nothing at the end; raise what `NOT_NOW` has where nothing did."""
        with self._using:
            return self._socket.recv(READ_OCTETS)

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        self._readable.close()
        with self._using:
            self._socket.close()


class BlockingSocket:
    """A socket whose reader waits in the system; see `PolledSocket`."""

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
        """Return what came, nothing at the end; raise BlockingIOError after `pause` seconds, or sooner."""
        if pause != self._limit and (pause is None or self._limit is None or not pause / 2 <= self._limit <= pause):
            self._limit_to(pause)
        return self._socket.recv(READ_OCTETS)

    def poll(self) -> bytes:
        """Return what came, nothing at the end; raise BlockingIOError where nothing did."""
        return self._socket.recv(READ_OCTETS, AT_ONCE)

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        with self._writing:
            self._socket.close()

    def _limit_to(self, pause: float | None) -> None:
        # No time at all would be for ever.
        seconds, rest = divmod(0 if pause is None else max(1, int(pause * 1_000_000)), 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(seconds, rest))
        self._limit = pause


def of(connected: socket.socket) -> PolledSocket | BlockingSocket:
    """Choose how to use a socket that is connected."""
    return PolledSocket(connected) if isinstance(connected, ssl.SSLSocket) or not AT_ONCE else BlockingSocket(connected)


log = logging.getLogger(__name__)

SOCKET_POLL_SECONDS: Final = 0.5
"""Seconds after which one who waits looks whether the socket is still there."""

BEAT: Final = b"\n"

COMMAND: Final = len(b"MESSAGE\n")

FRAMES: Final = frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"})
"""What a broker sends. ActiveMQ Classic may write an ERROR into the middle of a MESSAGE: then all that follows is in
doubt, so the session ends."""

KEEP_SECONDS: Final = 0.005
"""Seconds after which what is kept goes out though more frames wait, and after which signs of life are thought of."""

MIN_WAIT_SECONDS: Final = 0.0003
"""Seconds that reading takes at least where something had to be waited for."""

STAND_IN_SECONDS: Final = 0.5
"""Seconds for which another thread reads at least, once the reader was at a task for long."""


class FrameListener(Protocol):
    """What is told of frames, on the thread that reads: here what is read without stomp.py. And what is written."""

    def on_message(self, frame: Frame) -> None:
        """Take a MESSAGE."""

    def on_receipt(self, frame: Frame) -> None:
        """Take a RECEIPT."""

    def on_written(self) -> None:
        """Take note that all that waited is written. `writing` is held, by any thread."""


class Wire(BaseTransport):  # type: ignore[misc]  # stomp.py has no types
    """One socket, from `open` to `drop`.

    Args:
        login: where to.
        listener: is told of what was read, on the thread that reads; see stomp.py for its other methods.

    Attributes:
        writing: held by who writes, never for long.
        reader: the thread that reads, once there is one.
        failure: why reading ended, where the socket said so.
        is_lazy: what arrives may wait for more of it, which costs less than to be woken for each frame.
        read_at: when what is told of was read, in seconds since 1970, where `is_lazy`; else None.
    """

    def __init__(self, login: StompLogin, listener: FrameListener) -> None:
        super().__init__(auto_decode=False)
        self.writing = RLock()
        self.reader: Thread | None = None
        self.failure: OSError | None = None
        self.is_lazy = False
        self.read_at: float | None = None
        self._login = login
        self._closing = Lock()
        self._socket: Any = None
        self._use: PolledSocket | BlockingSocket | None = None
        self._is_down = False
        self._cutter = Cutter(login.max_message)
        self._heads = HeadReader()
        self._frames: deque[Cut | float] = deque()  # and when those that follow were read
        self._broken: ConnectionLostError | None = None  # what follows those
        self._told = {b"MESSAGE\n": listener.on_message, b"RECEIPT\n": listener.on_receipt}
        self._kept = bytearray()  # to be written; `writing` is held
        self._waiting: deque[memoryview] = deque()  # likewise, as there was no room
        self._written = Condition(self.writing)  # what waited
        self._writer: Thread | None = None
        self._note_written = listener.on_written
        self._crew: Crew | None = None
        self._guest: GuestThread | None = None
        self._reader_id = 0
        self._lead = Semaphore(0)  # handed back
        self._is_waiting = False  # the reader, for the lead
        self._over = Event()  # reading
        self._send_every = self._silence = 0.0
        self._heard = self._sent = 0.0
        self.override_threading(self._start_reader)
        self.set_listener("session", listener)

    def open(self, timeout: float) -> None:
        """Connect within `timeout` seconds and begin to read.

        Raises:
            OSError: nobody answers there, or `drop` was called meanwhile.
        """
        until = monotonic() + timeout
        secure = self._login.prepare()
        self._socket = secure(self._dial(until))
        if isinstance(self._socket, ssl.SSLSocket):
            self._shake_hands(self._socket, until)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._use = of(self._socket)
        self.start()

    def beat(self, send_every: float, silence: float) -> None:
        """From now on give a sign of life every so many seconds, and end when there was none for `silence`; 0: never.

        Any octet is one, so a large message on a slow way does not count as silence. For the reading thread to call.
        """
        self._heard = self._sent = monotonic()
        self._send_every, self._silence = send_every, silence

    def send(self, encoded_frame: bytes) -> None:
        """Write it, now or when there is room. Never waits.

        Raises:
            OSError: the socket is closed.
        """
        with self.writing:
            if not self._keeps(encoded_frame):
                self._write(encoded_frame)

    @property
    def is_behind(self) -> bool:
        """Whether the broker has to read before more is written."""
        return bool(self._waiting)

    def await_room(self, until: float) -> None:
        """Wait until nothing waits to be written, or the end. `writing` is held, by nobody further out.

        Raises:
            TimeoutError: the monotonic clock shows `until`.
        """
        while self._waiting and not self._is_down:
            left = until - monotonic()
            if left <= 0 or not self._written.wait(None if left == inf else left):
                raise TimeoutError("the broker does not read")

    def _write(self, frames: bytes) -> None:
        """Write what was kept, and more frames."""
        if self._kept:
            frames = bytes(self._kept + frames)
            self._kept.clear()
        if self._is_down:
            raise ConnectionAbortedError("the socket is closed")
        if self._waiting:
            self._waiting.append(memoryview(frames))
        elif rest := self._push(memoryview(frames)):
            self._waiting.append(rest)
            self._writer = Thread(target=self._write_waiting, name=f"{self._login} writer", daemon=True)
            try:
                self._writer.start()
            except RuntimeError as error:
                raise OSError(f"there is no thread to be had that writes: {error}") from error

    def _push(self, frames: memoryview) -> memoryview:
        """Write what there is room for; return the rest."""
        assert self._use is not None
        try:
            while frames:
                frames = frames[self._use.send(frames) :]
                self._sent = monotonic()
        except NOT_NOW:
            pass
        return frames

    def _write_waiting(self) -> None:
        """Write what waits whenever there is room, until nothing does, or the end."""
        try:
            while not self._has_written():
                self._wait_for_room()
        except OSError:
            self.join(monotonic() + SOCKET_POLL_SECONDS)  # what the broker said before it closed is still to be read
            self.drop()
        finally:
            with self.writing:
                self._written.notify_all()

    def _has_written(self) -> bool:
        """Write what there is room for; say whether that was all."""
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
        """End at once: who reads, writes or connects gets an error. Any thread may call it, and it never waits."""
        self._is_down = True
        self.running = False
        with self._closing:
            if self._socket is not None:
                with suppress(OSError):  # was not connected, or not any more
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS would want to say good-bye

    def join(self, until: float) -> None:
        """Wait until nobody reads any more or the monotonic clock shows `until`; not where the caller should read.

        Where the reader is at a task it is not waited for, but whoever reads meanwhile. The task may be the caller.
        """
        if self._guest is not None and self._guest.is_busy:
            self._over.wait(max(0.0, until - monotonic()))
        elif self.reader is not None and self.reader is not current_thread():
            self.reader.join(max(0.0, until - monotonic()))

    def _dial(self, until: float) -> Any:
        """Connect to the first address that answers; a socket that is being connected is in reach of `drop`."""
        error: OSError | None = None
        addresses = socket.getaddrinfo(self._login.host, self._login.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            self._socket = attempt = socket.socket(family, kind, protocol)
            try:
                connect_to(attempt, address, until - monotonic())
                if self._is_down:
                    raise ConnectionAbortedError("closed meanwhile")
                return attempt
            except OSError as failed:
                attempt.close()
                error = failed
            if self._is_down:
                break
        raise error or OSError("no address")

    def _shake_hands(self, safe: ssl.SSLSocket, until: float) -> None:
        try:
            safe.settimeout(max(MIN_TIMEOUT_SECONDS, until - monotonic()))
            safe.do_handshake()
        except OSError:
            safe.close()
            raise

    def _start_reader(self, loop: Callable[[], None]) -> Thread:
        def read() -> None:
            self._reader_id = get_ident()
            try:
                loop()
            finally:
                if self._crew is not None:
                    self._crew.dismiss()
                self.cleanup()  # stomp.py forgets it where `drop` came before its first look
                self._over.set()

        self.reader = Thread(target=read, name=f"{self._login} reader", daemon=True)
        self.reader.start()
        return self.reader

    def _wait_for_room(self) -> None:
        if self._is_down:
            raise ConnectionAbortedError("the socket is closed")
        with DefaultSelector() as selector:  # its own: another thread may close the socket, and with it what waits
            try:
                selector.register(self._socket, EVENT_WRITE)
            except ValueError:  # it has no number any more
                raise ConnectionAbortedError("the socket is closed") from None
            selector.select(SOCKET_POLL_SECONDS)

    # Reading

    def receive(self) -> bytes:
        """Read and tell the listener, until the end; return nothing then. stomp.py calls it, on the reading thread.

        Raises:
            ConnectionLostError: the peer was silent for too long, or sends what is no frame.
        """
        try:
            while not self._is_down:
                if self._crew is not None and self._guest is None:
                    self._guest = self._crew.admit(self._stand_in)
                if self._guest is None:
                    self._tell()
                else:
                    self._tell_and_work(self._guest)
                if self._guest is not None and self._guest.is_relieved:
                    self._wait_for_lead(self._guest)
                elif not self._take():
                    break
        except MemoryError:  # what was read is lost, and where the next frame begins not known
            self._let_go()
            raise
        return b""

    def lead(self, crew: Crew) -> None:
        """From now on have the thread that reads run tasks that `crew.run` is called with there."""
        self._crew = crew

    def _take(self, at_most: float = inf) -> bool:
        """Take what arrives within so many seconds, and give signs of life meanwhile; False at the end."""
        assert self._use is not None
        if self._broken is not None:  # what came before it was told of
            raise self._broken
        pause = min(at_most, self._keep_alive())
        begun = monotonic()
        try:
            data = self._use.receive(None if pause == inf else pause)
        except NOT_NOW:  # of some sockets also where something came meanwhile
            self._require_sign()
            return True
        except MemoryError:  # nothing was taken from the socket
            if not self._cutter.let_go():
                raise
            return True
        except OSError as error:
            self.failure = error
            raise
        if data:
            self._hold(data)
            if self.is_lazy and monotonic() - begun > MIN_WAIT_SECONDS:
                self._gather(len(data))
        return bool(data)

    def _hold(self, data: bytes) -> None:
        """Cut what was read into frames, to be told of; also those before one that is none."""
        self._heard = monotonic()
        frames = self._cutter.cut(data)
        if self.is_lazy:
            self._frames.append(time())
        try:
            self._frames.extend(frames)
        except ConnectionLostError as error:
            self._broken = error

    def _gather(self, octets: int) -> None:
        """Read on for a moment, and tell of nothing: what came until then is told of together."""
        assert self._use is not None
        until = monotonic() + HOLD_SECONDS
        while self._broken is None and octets < MAX_HELD_OCTETS and monotonic() < until:
            try:
                data = self._use.poll()
            except NOT_NOW:
                sleep(GATHER_SECONDS)
                continue
            except MemoryError:  # nothing was taken from the socket: the next one to read finds out
                return
            except OSError as error:
                self.failure = error
                return
            if not data:
                return
            octets += len(data)
            self._hold(data)

    def _tell(self) -> None:
        """Tell the listener of what was cut."""
        while self._frames and not self._is_down:
            self._tell_of(self._frames.popleft())

    def _tell_and_work(self, guest: GuestThread) -> None:
        """Tell as long as this thread has the lead; signs of life and what is kept do not wait for the last frame."""
        assert self._crew is not None
        until = monotonic() + KEEP_SECONDS
        while self._frames and not self._is_down and not guest.is_relieved:
            self._tell_of(self._frames.popleft())
            if not self._frames or monotonic() >= until:
                self._keep_alive()
                if self._kept:
                    self._crew.run(self._write_kept)
                until = monotonic() + KEEP_SECONDS

    def _tell_of(self, frame: Cut | float) -> None:
        if isinstance(frame, float):
            self.read_at = frame
            return
        if isinstance(frame, SkippedFrame):
            self._tell_of_passed(frame)
            return
        tell = self._told.get(frame[:COMMAND])
        try:
            found = None if tell is None else self._heads.read(frame)
        except MemoryError:
            self._tell_of_passed(passed_of(frame))
            return
        if tell is not None and found is not None:
            tell(found)
        else:
            self._leave_to_stomp_py(frame)

    def _tell_of_passed(self, frame: SkippedFrame) -> None:
        """Tell of a frame whose octets were let go; what is no message has lost its words, and counts all the same."""
        whole = frame.head.replace(b"\r\n", b"\n") + b"\0"
        tell, found = self._told.get(whole[:COMMAND]), read(whole)
        if tell is not None and found is not None:
            tell(found._replace(size=frame.size, refusal=frame.why))
        else:
            self._leave_to_stomp_py(whole, was_passed=True)

    def _leave_to_stomp_py(self, frame: bytes, *, was_passed: bool = False) -> None:
        """Read a frame that is rare, or broken; of a kind that no broker sends only where it was passed over."""
        try:
            found = parse_frame(frame[:-1])
            if found is not None and not was_passed and found.cmd.upper() not in FRAMES:
                raise ValueError(f"no frame of a broker's begins so: {found.cmd[:100]!r}")
            if found is not None:
                self.process_frame(found, frame)
        except Exception as error:
            log.warning("%s: a frame could not be read: %s", self._login, error)
            raise

    def _keeps(self, frames: bytes) -> bool:
        """Keep what is to be written, if the reader writes it and goes on to what arrived with it."""
        guest = self._guest
        if guest is None or guest.is_relieved or not self._frames or get_ident() != self._reader_id:
            return False
        if len(self._kept) + len(frames) > READ_OCTETS:
            return False
        self._kept += frames
        return True

    def _write_kept(self) -> None:
        with self.writing:
            try:
                if self._kept:
                    self._write(b"")
            except OSError:
                self.join(
                    monotonic() + SOCKET_POLL_SECONDS
                )  # what the broker said before it closed is still to be read
                self.drop()

    def _stand_in(self) -> None:
        """Read for the reader, on a thread of the crew."""
        assert self._crew is not None
        until = monotonic() + STAND_IN_SECONDS
        try:
            self._crew.submit(self._write_kept)  # which waits for its turn; and the reader may be about to keep some
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
            log.warning("%s: %s", self._login, error)
            self._end()
        finally:
            self._lead.release()

    def _let_go(self) -> None:
        """End for want of memory: first let what was read go, then say so, which takes some too."""
        self.drop()
        self._frames.clear()
        self._cutter = Cutter(self._login.max_message)
        log.error("%s: there is no memory for what the broker sends, so the connection ends", self._login)

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

    def _keep_alive(self) -> float:
        """Give a sign of life if one is due, and return the seconds until something is; `inf` for never."""
        if not self._send_every and not self._silence:
            return inf
        now = monotonic()
        until_silence = max(0.0, self._heard + self._silence - now) if self._silence else inf
        if not self._send_every:
            return until_silence
        if self._sent + self._send_every <= now:
            self._give_sign(now)
        return min(until_silence, self._sent + self._send_every - now)

    def _require_sign(self) -> None:
        """End where nothing is there to be read and was not for long. What waits there is a sign, if taken late."""
        now = monotonic()
        if self._silence and self._heard + self._silence <= now:
            log.warning("%s: no sign of life from the broker for %.1f s", self._login, now - self._heard)
            raise ConnectionLostError("the broker gives no sign of life")

    def _give_sign(self, now: float) -> None:
        self._sent = now
        if self.writing.acquire(blocking=False):  # else somebody writes, which is a sign as well
            try:
                if not self._waiting:  # else the peer does not read
                    self._write(BEAT)
            finally:
                self.writing.release()
