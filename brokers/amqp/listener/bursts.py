"""What was sent to a listener's client and is not written yet, in bursts.

A burst is what is sent before the thread of the connection reads again, or a part of that. Once it has ended, it is
known to which position of the output it reaches, so a message that was never written does not count as delivered.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from proton import Sender

from brokers.amqp.machine import MEBIBYTE

MAX_UNWRITTEN: Final = MEBIBYTE
"""Number of octets waiting for a client to read, or for the window of a session, beyond which no more messages are
taken from queues for it."""

MAX_UNWRITTEN_IN_ALL: Final = 64 * MEBIBYTE
"""The same for all sessions of a client together, whose windows the client controls."""

BURST_OCTETS: Final = 16_384
"""Number of octets of sent messages after which a burst ends, and it is checked how much the client has to read."""


class OutputBurst:
    """What is sent before the thread reads again: to which position of the output it reaches, once that is known."""

    __slots__ = ("encoded", "end", "last")

    def __init__(self) -> None:
        self.end: int | None = None  # of what proton has encoded
        self.last = 0  # of the rest, which the windows of sessions hold back
        self.encoded: dict[int, int] = {}  # octets of messages by the hash of the session

    def is_written(self, session: int, octets: int, passed: int) -> bool:
        """Return whether a message of this burst was written; False for the last few of a part if that is not known.

        Args:
            session: hash of its session.
            octets: octets of the messages of the session, from its beginning to the end of this one.
            passed: octets of the output that were written.
        """
        if self.end is None:
            return False
        after = self.encoded.get(session, 0) - octets  # at least so many octets follow it
        return passed >= (self.end - after if after >= 0 else self.last)


class Output(Protocol):
    """The output of a connection. With the lock held."""

    @property
    def unwritten(self) -> int:
        """Number of octets that wait for the client to read, without those that proton has not encoded yet."""

    @property
    def passed(self) -> int:
        """Octets of the output that were written."""

    def mark(self) -> int:
        """Return the position of the end of all pending output."""


class OutputBursts:
    """The messages for one client that are not written yet. With the lock held.

    Args:
        output: the output of its connection.

    Attributes:
        output: the output of its connection.
        present: the present burst.
        sessions: the client's sessions.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self.present = OutputBurst()
        self.sessions: set[Any] = set()
        self._octets: dict[int, int] = {}  # of the messages sent, by the hash of the session
        self._unmarked = 0  # octets of the present burst

    def note_sent(self, session: int, octets: int) -> int:
        """Record that a message was sent, and return the octets of its session; a burst ends after `BURST_OCTETS`."""
        self._octets[session] = end = self._octets.get(session, 0) + octets
        self._unmarked += octets
        if self._unmarked >= BURST_OCTETS:
            self.end()
        return end

    def end(self) -> None:
        """Record to which position of the output the present burst reaches, if it has messages, and begin another."""
        if not self._unmarked:
            return
        burst, end, last = self.present, self.output.mark(), 0
        for session in self.sessions:
            held_back = session.outgoing_bytes
            burst.encoded[hash(session)] = self._octets.get(hash(session), 0) - held_back
            last += held_back
        burst.end, burst.last = end, end + last
        self.present, self._unmarked = OutputBurst(), 0

    def is_behind(self, link: Sender) -> bool:
        """Return whether so much waits for the client to read that nothing more is sent on a link."""
        unwritten, of_one = self.output.unwritten, link.session.outgoing_bytes
        of_all = sum(each.outgoing_bytes for each in self.sessions)
        return max(unwritten, of_one) > MAX_UNWRITTEN or unwritten + of_all > MAX_UNWRITTEN_IN_ALL

    def forget(self, session: Any) -> None:
        """Forget a session that has ended."""
        self.sessions.discard(session)
        self._octets.pop(hash(session), None)
