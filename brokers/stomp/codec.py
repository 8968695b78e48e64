"""STOMP frames as octets: cutting a stream into frames, parsing common frames, and encoding frames. No I/O.

Cutting takes linear time. stomp.py searches again from the start for each piece with a NUL, and copies its buffer for
each frame: a message of 40 MiB with NULs took five seconds. So stomp.py gets one complete frame at a time. The cutter
reads only `content-length`. Its buffer is limited: the octets of a larger frame are dropped as they arrive, and only
the headers that identify the message are kept.

Parsing takes a fifth of the time of stomp.py, with the same result. Frames of unusual form are left to stomp.py.

Spec: STOMP 1.2, augmented BNF; content-length; size limits; value encoding; repeated header entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from io import BytesIO
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from brokers.errors import ConnectionLostError, UsageError
from brokers.message import MAX_MESSAGE_OCTETS, TOO_LARGE
from brokers.stomp.dialect import MESSAGE_HEADERS

HEAD_ENDS: Final = re.compile(rb"\n\r?\n")
"""Matches the end of the headers."""

LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*([0-9]+)[ \t]*\r?\n")
LARGE_OCTETS: Final = 1 << 16
"""Minimum size of a large body, in octets: it is kept once only, see `Cutter`."""

MAX_LENGTH_DIGITS: Final = 12
"""Maximum number of digits of a `content-length`."""
NUL: Final = 0
LINE_FEED: Final = 10
ENDS_OF_LINES: Final = b"\r\n"
MAX_END_OCTETS: Final = 3
"""Maximum size of the end of the headers, in octets."""

MAX_HEAD_OCTETS: Final = 1 << 20
MAX_HEADERS: Final = 10_000
"""Maximum size (in octets) and number of lines of headers that are kept unchanged."""

SHORT_LINE_CHARACTERS: Final = 256
"""Maximum number of characters of a header line that is cached after parsing."""

MAX_CACHED_CHARACTERS: Final = 4096
"""Maximum number of characters of the names of a head that is cached when it was written."""

MAX_LINE_OCTETS: Final = 4096
"""Maximum size of a line that is kept of headers above the limit, in octets."""

USUAL_HEAD_OCTETS: Final = 4096
"""Maximum size of headers of the usual form, in octets."""

WORDS: Final = b"message"
"""The header of ERROR that gives the reason."""

KEPT: Final = frozenset(each.encode() for each in MESSAGE_HEADERS | {"receipt-id"})
"""Headers that are kept of headers above the limit, to identify, acknowledge and answer a message."""

HEADERS_TOO_LARGE: Final = f"its headers have more than {MAX_HEAD_OCTETS} octets, or {MAX_HEADERS} lines"

NO_MEMORY: Final = "there is no memory to read it"


class SkippedFrame(NamedTuple):
    """A frame whose body was skipped.

    Attributes:
        head: command and headers up to the empty line; of headers above the limit only those in `KEPT`.
        size: size of the body, in octets.
        why: reason why the body was skipped.
    """

    head: bytes
    size: int
    why: str


class WholeFrame(NamedTuple):
    """A frame as octets, without its NUL.

    Attributes:
        head: command and headers, to the end of the empty line; all of the frame if it has no empty line.
        body: the body.
    """

    head: bytes
    body: bytes = b""


_new_frame: Final[Callable[[tuple[bytes, bytes]], WholeFrame]] = partial(tuple.__new__, WholeFrame)
"""Make a frame of its parts, in half the time of `WholeFrame`."""

Cut: TypeAlias = WholeFrame | SkippedFrame


class Cutter:
    """Cuts a stream of octets, received in any pieces, into frames.

    Args:
        limit: maximum size of a body, in octets; larger bodies are skipped.
        large: minimum size of a body, in octets, that is collected outside of the buffer for arriving data.
    """

    def __init__(self, limit: int = MAX_MESSAGE_OCTETS, large: int = LARGE_OCTETS) -> None:
        self._limit, self._large = limit, large
        self._held = bytearray()
        self._start = 0
        self._looked = 0  # octets before this offset have been searched
        self._body = 0  # offset of the body of the frame that begins at `start`
        self._end = 0  # offset of the end of that frame; 0 while unknown
        self._has_head = self._is_shortened = False
        self._passing: _Passing | None = None

    def cut(self, data: bytes) -> Iterator[Cut]:
        """Add octets; yield each complete frame, or a SkippedFrame.

        Line ends between frames are heart-beats and are dropped.

        Raises:
            ConnectionLostError: the start of the next frame is unknown, because a body is not followed by NUL, the
                headers of a message contain NUL, or a content-length has too many digits.
        """
        if self._passing is not None:  # then no other octets are held
            end = self._passing.pass_over(data, 0)
            if end is None:
                return
            yield self._end_passing(0)
            data = data[end:]
        if not self._held:
            frames, start = self._usual(data)
            yield from frames
            if start == len(data):
                return
            data = data[start:]
        self._hold(data)
        is_first = True
        while True:
            if self._passing is None and self._is_whole():
                yield self._whole()
                self._begin_next(self._end)
                if is_first:  # what follows the frame whose start was held may be of the usual form again
                    is_first = False
                    frames, end = self._usual(bytes(memoryview(self._held)[self._start :]))
                    yield from frames
                    self._begin_next(self._start + end)
            elif self._passing is None or (end := self._passing.pass_over(self._held, self._start)) is None:
                break
            else:
                yield self._end_passing(end)
        del self._held[: len(self._held) if self._passing else self._start]
        self._looked, self._body = max(0, self._looked - self._start), max(0, self._body - self._start)
        self._end -= self._start if self._end else 0
        self._start = 0

    def _hold(self, data: bytes) -> None:
        """Add octets; if memory is short, first drop the received part of the body.

        Raises:
            MemoryError: no body has begun, or memory is still short without it.
        """
        try:
            self._held += data
        except MemoryError:
            if not self.let_go():
                raise
            self._held += data

    def let_go(self) -> bool:
        """Drop the received part of a body and skip the rest, to free memory; return False if no body has begun."""
        if self._passing is not None:
            return self._passing.let_go()
        if not self._has_head:
            return False
        self._pass(self._end - self._body - 1 if self._end else None, NO_MEMORY).pass_over(self._held, self._start)
        self._held.clear()
        self._start = 0
        return True

    def _whole(self) -> Cut:
        head = bytes(self._held[self._start : self._body])
        try:
            with memoryview(self._held) as held:
                return WholeFrame(head, bytes(held[self._body : self._end - 1]))  # one copy, not two
        except MemoryError:
            return SkippedFrame(head, self._end - self._body - 1, NO_MEMORY)

    def _end_passing(self, start: int) -> Cut:
        """Return the frame that was passed over; the next one begins at `start`."""
        assert self._passing is not None
        passed, self._passing = self._passing.passed, None
        self._begin_next(start)
        return passed

    def _begin_next(self, start: int) -> None:
        self._start = self._looked = start
        self._end = self._body = 0
        self._has_head = self._is_shortened = False

    def _usual(self, data: bytes) -> tuple[list[WholeFrame], int]:
        """Cut the frames at the start of the octets that are complete and of the usual form, as nearly all are.

        The usual form has lines that end with LF, a head that is not long, and a body within the limit. Return the
        frames, and the offset of the rest.
        """
        frames: list[WholeFrame] = []
        start, octets, find = 0, len(data), data.find
        while start < octets:
            if data[start] == LINE_FEED:  # a heart-beat
                start += 1
                continue
            end = find(b"\n\n", start, start + USUAL_HEAD_OCTETS)
            if end < 0 or find(b"\0", start, end) >= 0 or find(b"\r", start, end) >= 0:
                break
            body = end + 2
            length = LENGTH.search(data, start, end + 1)
            stop = find(b"\0", body) if length is None else body + int(length[1][: MAX_LENGTH_DIGITS + 1])
            if not body <= stop < octets or stop - body > self._limit or data[stop] != NUL:
                break
            try:
                frames.append(_new_frame((data[start:body], data[body:stop])))
            except MemoryError:
                break
            start = stop + 1
        return frames, start

    def _is_whole(self) -> bool:
        """Return whether the frame that begins at `start` is complete. Begin to skip its body if that is too large."""
        if not self._has_head and not self._find_head():
            return False
        if self._passing is None and not self._end:
            found = self._held.find(NUL, self._looked)
            self._looked = len(self._held)
            self._end = found + 1
            if (self._end or self._looked) - self._body - bool(self._end) > self._limit:
                self._end = 0
                self._pass(None)
        elif self._passing is None and self._end <= len(self._held) and self._held[self._end - 1] != NUL:
            raise ConnectionLostError("the broker sent a frame that does not end where its content-length says")
        return self._passing is None and 0 < self._end <= len(self._held)

    def _find_head(self) -> bool:
        """Find the end of the headers and read the size of the body; return False if the headers are incomplete."""
        held = self._held
        while self._start < len(held) and held[self._start] in ENDS_OF_LINES:
            self._start += 1
        since = max(self._start, self._looked - MAX_END_OCTETS)
        nul = held.find(NUL, since)  # first, so that the next search does not read beyond a short frame
        found = HEAD_ENDS.search(held, since, len(held) if nul < 0 else nul)
        end = len(held) if found is None else found.end()
        if found is None and nul >= 0:  # the frame ends within its headers
            if held.startswith(b"MESSAGE", self._start):  # its rest may follow
                raise ConnectionLostError("the broker sent a message whose headers do not end with a blank line")
            self._has_head, self._looked, self._body = True, nul, nul
            return True
        self._looked = end
        if found is None:
            if end - self._start > MAX_HEAD_OCTETS:
                self._shorten(end)
            return False
        self._has_head, self._body = True, end
        is_large = self._is_shortened or end - self._start > MAX_HEAD_OCTETS
        is_large = is_large or (end - self._start > MAX_HEADERS < held.count(b"\n", self._start, end))
        length = LENGTH.search(held, self._start, end)
        if length is not None and len(length[1]) > MAX_LENGTH_DIGITS:
            raise ConnectionLostError(f"the broker sent a content-length of more than {MAX_LENGTH_DIGITS} digits")
        size = None if length is None else int(length[1])
        if is_large or (size or 0) > self._limit:
            self._pass(size, HEADERS_TOO_LARGE if is_large else "")
        elif size is not None and size >= self._large:
            self._collect(size)
        elif size is not None:
            self._end = end + size + 1
        return True

    def _shorten(self, end: int) -> None:
        """Drop all received headers but those in `KEPT`, and the excess of an unfinished long line."""
        last = self._held.rfind(b"\n", self._start, end) + 1
        kept = _kept(bytes(self._held[self._start : last])) if last > self._start else b""
        begin = max(last, self._start)
        # One octet above the limit is kept, so that the line still counts as too long.
        rest = bytes(self._held[begin : min(end, begin + MAX_LINE_OCTETS + 1)])
        self._held[self._start : end] = kept + rest
        self._looked = len(self._held)
        self._is_shortened = True

    def _collect(self, size: int) -> None:
        """Begin to collect a body of `size` octets."""
        try:
            collected = BytesIO(bytes(size))  # takes real memory only as octets arrive, and is not copied at the end
        except MemoryError:
            self._pass(size, NO_MEMORY)
        else:
            self._pass(size, collected=collected)

    def _pass(self, size: int | None, why: str = "", collected: BytesIO | None = None) -> _Passing:
        """Begin to skip a body of `size` octets, or to collect it; None if it ends at the next NUL."""
        head = bytes(self._held[self._start : self._body])
        if why == HEADERS_TOO_LARGE:
            head = _kept(head) + b"\n"
        self._start = self._body
        self._passing = passing = _Passing(head, size, why, self._limit, collected)
        return passing


def _kept(lines: bytes) -> bytes:
    """Return the command and the first of each header in `KEPT`: without long ones, but with the start of `WORDS`."""
    command, *headers = lines.split(b"\n")
    found: dict[bytes, bytes] = {}
    for line in headers:
        name = line.partition(b":")[0]
        if name == WORDS or (name in KEPT and len(line) <= MAX_LINE_OCTETS):
            found.setdefault(name, line)
    return b"".join(line[:MAX_LINE_OCTETS] + b"\n" for line in (command, *found.values()))


def passed_of(frame: WholeFrame) -> SkippedFrame:
    """Return a complete frame without its body, because there is not enough memory to parse it."""
    return SkippedFrame(frame.head, len(frame.body), NO_MEMORY)


class _Passing:
    """The skipping of one body, with the number of octets seen so far. A large body can be collected meanwhile.

    It is collected where it stays: no other copy of it is made.
    """

    def __init__(self, head: bytes, size: int | None, why: str, limit: int, collected: BytesIO | None) -> None:
        self._head = head
        self._size = size
        self._why = why
        self._limit = limit
        self._collected = collected
        self._seen = 0

    def let_go(self) -> bool:
        """Drop what was collected, and skip the rest; return False if nothing was."""
        if self._collected is None:
            return False
        self._collected, self._why = None, NO_MEMORY
        return True

    @property
    def passed(self) -> Cut:
        """The frame; complete once its end was seen."""
        if self._collected is not None:
            return WholeFrame(self._head, self._collected.getvalue())
        return SkippedFrame(self._head, self._seen, self._why or TOO_LARGE.format(self._seen, self._limit))

    def pass_over(self, held: bytes | bytearray, start: int) -> int | None:
        """Return the offset after the NUL of the frame; None if all octets from `start` belong to the body.

        Raises:
            ConnectionLostError: the body is not followed by NUL.
        """
        end = held.find(NUL, start) if self._size is None else start + self._size - self._seen
        if self._collected is not None:
            try:
                with memoryview(held) as view:
                    self._collected.write(view[start : max(end, start)])
            except MemoryError:
                self.let_go()
        if not start <= end < len(held):
            self._seen += len(held) - start
            return None
        if held[end] != NUL:
            raise ConnectionLostError("the broker sent a frame that does not end where its content-length says")
        self._seen += end - start
        return end + 1


ESCAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "1.0": {},
    "1.1": {"\\": "\\\\", "\n": "\\n", ":": "\\c"},  # CR has no escape and stands for itself
    "1.2": {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
"""The escapes of special characters in headers, by version of STOMP; the escape character comes first.

Frames are written with the escapes of their version. They are read with those of 1.2, which include the others.
"""

ESCAPE: Final = re.compile(r"\\(.)")
UNESCAPED: Final = {escape[1]: special for special, escape in ESCAPES["1.2"].items()}
"""The special character that each character after a backslash stands for. Other characters make no escape."""


class Frame(NamedTuple):
    """A parsed frame. The names of its first three parts are those of stomp.py.

    Attributes:
        cmd: command.
        headers: the headers, unescaped; the first of repeated headers counts.
        body: the body; empty if it was skipped.
        size: size of a skipped body, in octets.
        refusal: reason why the body was skipped; empty if it was not.
    """

    cmd: str
    headers: dict[str, str]
    body: bytes
    size: int = 0
    refusal: str = ""


new_frame: Final[Callable[[tuple[str, dict[str, str], bytes, int, str]], Frame]] = partial(tuple.__new__, Frame)
"""Make a frame of its five parts, in half the time of `Frame`."""


def read(frame: WholeFrame) -> Frame | None:
    """Parse a complete frame; return None if its headers have no end, or contain a carriage return.

    The first of repeated headers counts. Lines without a colon or a name are dropped.
    """
    if not frame.head.endswith(b"\n\n") or b"\r" in frame.head:
        return None
    command, *lines = frame.head[:-2].decode("utf-8", "replace").split("\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, value = (_header if len(line) <= SHORT_LINE_CHARACTERS else _header.__wrapped__)(line)
        if name and name not in headers:
            headers[name] = value
    return Frame(command, headers, frame.body)


@lru_cache(maxsize=4096)
def _header(line: str) -> tuple[str, str]:
    """Return name and value of a header line; both empty if it has no colon. Most lines recur in many messages."""
    name, colon, value = line.partition(":")
    if not colon:
        return "", ""
    return (unescape(name), unescape(value)) if "\\" in line else (name, value)


def unescape(text: str) -> str:
    """Return a name or value of a header with its escapes replaced; invalid escapes stay unchanged."""
    plain = text.replace("\\c", ":")
    if "\\" not in plain:  # nearly always
        return plain
    if "\\\\" in text:
        return ESCAPE.sub(lambda found: UNESCAPED.get(found[1], found[0]), text)
    for special, escape in ESCAPES["1.2"].items():
        text = text.replace(escape, special)
    return text


Frames: TypeAlias = bytes | tuple[bytes, ...]
"""Encoded frames, in one piece or in several that follow each other: a large body is a piece of its own, not copied."""


def pack(command: str, headers: Mapping[str, str], body: bytes = b"", version: str = "1.2") -> bytes:
    """Encode one frame in one piece; see `pack_apart`."""
    if "content-length" not in headers and b"\0" in body:
        raise _torn(command)
    return b"".join((pack_head(command, headers, version), body, b"\0"))


def pack_apart(command: str, headers: Mapping[str, str], body: bytes, version: str) -> Frames:
    """Encode one frame; a large body stays a piece of its own.

    Raises:
        UsageError: the body has a NUL, and the headers no `content-length`; and see `pack_head`.
    """
    if "content-length" not in headers and b"\0" in body:
        raise _torn(command)
    if len(body) < LARGE_OCTETS:
        return b"".join((pack_head(command, headers, version), body, b"\0"))
    return pack_head(command, headers, version), body, b"\0"


def _torn(command: str) -> UsageError:
    """Return the error for a body that would end its frame early: the broker would read its rest as further frames."""
    return UsageError(f"the body of {command} cannot hold NUL without content-length")


def joined(frames: Sequence[Frames]) -> Frames:
    """Return frames in one piece; if one of them has several, in all these pieces."""
    small = [each for each in frames if isinstance(each, bytes)]
    if len(small) == len(frames):
        return b"".join(small)
    return tuple(chain.from_iterable((each,) if isinstance(each, bytes) else each for each in frames))


def pack_head(command: str, headers: Mapping[str, str], version: str = "1.2") -> bytes:
    """Encode command and headers, with the empty line, escaping names and values as `version` requires.

    stomp.py can encode frames too, but it does not escape names, replaces a lone surrogate by a question mark, and
    takes four times as long, which matters at thousands of messages a second.

    Raises:
        UsageError: a header has a NUL or a lone surrogate, which no frame can carry.

    Spec: STOMP 1.1 and 1.2, value encoding; STOMP 1.0 has none.
    """
    names = (*headers,)
    template = _template if sum(map(len, names)) <= MAX_CACHED_CHARACTERS else _template.__wrapped__
    return (template(command, names, version) % (*escaped(command, headers.values(), version),)).encode()


def escaped(command: str, values: Collection[str], version: str) -> Collection[str]:
    """Return values of headers with the escapes that `version` requires.

    Raises:
        UsageError: a value has a NUL.
    """
    together = "".join(values)  # all at once takes a third of the time
    if together.isprintable() and ":" not in together and "\\" not in together:
        return values
    together = "\0".join(values)
    if together.count("\0") != max(0, len(values) - 1):
        raise UsageError(f"a header of {command} cannot hold NUL")
    for special, escape in ESCAPES[version].items():
        together = together.replace(special, escape)
    return together.split("\0")


def _escape(text: str, version: str) -> str:
    for special, escape in ESCAPES[version].items():
        text = text.replace(special, escape)
    return text


@lru_cache(maxsize=1024)
def _template(command: str, names: tuple[str, ...], version: str) -> str:
    """Return the head of a frame, with a place for each value: programs send few different sets of names.

    Raises:
        UsageError: a name has a NUL.
    """
    head = f"{command}\n{header_lines(names, version)}\n"
    if "\0" in head:
        raise UsageError(f"a header of {command} cannot hold NUL")
    return head


def header_lines(names: Iterable[str], version: str) -> str:
    """Return the lines of headers, with a place for each value."""
    return "".join(f"{_escape(name, version).replace('%', '%%')}:%s\n" for name in names)
