"""One received message as the rules look at it: each part worked out when first asked for, and once.

What is wrong with a part is a value that says why (`..._problem`), never an exception: the message is the peer's.
Nothing is judged here; that is for the assertions.

Spec: SOAP/JMS 2.2.3, 2.4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.message import Message, MessageType
from soapjms.protocol.attachments import Attachments, Multipart, Part, read_multipart
from soapjms.protocol.content import DECODERS, ContentType
from soapjms.protocol.described import describe, lazy
from soapjms.protocol.envelope import Blame, Envelope, Fault, UnknownVersionError, as_envelope, read_fault
from soapjms.protocol.limits import DEFAULT_LIMITS, Excess, LimitExceededError, Limits
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.record import EPOCH, Direction, Record
from soapjms.protocol.showing import shown
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.xml import parse


class Problem(NamedTuple):
    """Why a part of a message is not there.

    Attributes:
        text: for people.
        excess: the limit that it goes beyond, None if it is something else.
        blame: the code of a fault that says so.
    """

    text: str
    excess: Excess | None = None
    blame: Blame = Blame.SENDER


def _problem(error: ValueError) -> Problem:
    excess = error.excess if isinstance(error, LimitExceededError) else None
    blame = Blame.VERSION_MISMATCH if isinstance(error, UnknownVersionError) else Blame.SENDER
    return Problem(str(error), excess, blame)


class Reading:
    """A received message, lazily taken apart.

    Attributes:
        message: the message.
        profile: decides whether a content encoding is undone, and which names properties have.
        limits: how much is read.
        described: what the properties say; shared with other messages that have the same ones.
    """

    def __init__(
        self,
        message: Message,
        profile: Profile,
        limits: Limits = DEFAULT_LIMITS,
        *,
        direction: Direction | None = None,
        record: Record | None = None,
    ) -> None:
        """Take a live message, with the direction that its verdicts name, or one with the record of its capture."""
        self.message = message
        self.profile = profile
        self.limits = limits
        self.described = describe(message.properties, profile)
        self._direction = direction
        self._record = record

    @classmethod
    def of(cls, record: Record, profile: Profile, limits: Limits = DEFAULT_LIMITS) -> Reading:
        """Read a captured message."""
        return cls(record.message, profile, limits, record=record)

    @property
    def record(self) -> Record:
        """The message with what its capture knows of it; the time of a live one plays no part in any rule."""
        if self._record is None:
            self._record = Record(message=self.message, time=EPOCH, direction=self._direction)
        return self._record

    @property
    def truncated(self) -> bool:
        """The capture cut the body."""
        return self._record is not None and self._record.truncated

    # What the properties say, see `Described`.

    def text(self, name: str) -> str | None:
        """Return a message property as text, None if it is absent, null or empty; a dialect's name counts too."""
        return self.described.text(name)

    def alias_of(self, name: str) -> str | None:
        """Return the name, of whatever dialect, that the message has for a SOAPJMS_ property; else None."""
        return self.described.alias_of(name)

    def misses(self, name: str) -> bool:
        """Say whether a property is neither under its own name nor under the one that the profile has for it."""
        return self.described.misses(name)

    @property
    def content_type(self) -> ContentType | None:
        """SOAPJMS_contentType, read; None if it is missing."""
        return self.described.content_type

    @property
    def charset(self) -> str | None:
        """The charset parameter of the content type; None if it has none."""
        return self.described.charset

    @property
    def is_simple(self) -> bool:
        """The content type is that of an envelope without attachments."""
        return self.described.is_simple

    @property
    def is_multipart(self) -> bool:
        """The content type is that of a body with attachments."""
        return self.described.is_multipart

    @property
    def request_uri(self) -> JmsUri | None:
        """SOAPJMS_requestURI, read leniently; None if it is missing."""
        return self.described.request_uri

    @property
    def soap_action(self) -> str | None:
        """SOAPJMS_soapAction without the quotes that some stacks put around it; None if it is missing."""
        return self.described.soap_action

    @property
    def is_fault(self) -> bool | None:
        """SOAPJMS_isFault as the specification reads it: true, 1; false, 0 or absent; None for anything else."""
        return self.described.is_fault

    @property
    def content_encoding(self) -> str | None:
        """SOAPJMS_contentEncoding in lower case if the profile knows it; None for identity and absent."""
        return self.described.content_encoding

    # What the body holds.

    @lazy
    def _decoded(self) -> tuple[bytes | memoryview | str | None, Problem | None]:
        """The body without its content encoding, and why there is none."""
        body, encoding = self.message.body, self.described.content_encoding
        if not isinstance(body, OCTETS_OR_TEXT):
            return None, Problem(f"the body of a {self.message.message_type} message is no SOAP envelope")
        if len(body) > self.limits.size:
            return None, _problem(self.limits.excess("size", f"the body has the size {len(body)}"))
        if encoding is None:
            return (bytes(body) if isinstance(body, memoryview) and not self.is_multipart else body), None
        decoder = DECODERS.get(encoding)
        if decoder is None or isinstance(body, str):
            return None, Problem(f"the content encoding {shown(encoding)} of a {self.message.message_type} message")
        try:
            return decoder(body, self.limits), None
        except ValueError as error:
            return None, _problem(error)

    @lazy
    def body(self) -> bytes | str | None:
        """The body without its content encoding; None if it is of another kind or cannot be decoded."""
        body = self._decoded[0]
        return bytes(body) if isinstance(body, memoryview) else body

    @property
    def body_problem(self) -> str | None:
        """Why there is no `body`."""
        return _text(self._decoded[1])

    @lazy
    def _multipart(self) -> tuple[Multipart | None, Problem | None]:
        kind, body = self.content_type, self._decoded[0]
        if kind is None or not self.is_multipart or body is None:
            return None, None
        try:
            return read_multipart(body, kind, self.limits), None
        except ValueError as error:
            return None, _problem(error)

    @property
    def first_part(self) -> Part | None:
        """The first part of a multipart body; None if it is not multipart, or broken."""
        return None if self._multipart[0] is None else self._multipart[0].first

    @property
    def soap_part(self) -> Part | None:
        """The SOAP part of a multipart body; None if it is not multipart, or broken."""
        return None if self._multipart[0] is None else self._multipart[0].root

    @property
    def multipart_problem(self) -> str | None:
        """Why a multipart body has no parts."""
        return _text(self._multipart[1])

    @property
    def attachments(self) -> Attachments:
        """The parts beside the SOAP part; none of a body of one part."""
        return self._multipart[0].attachments if self.is_multipart and self._multipart[0] else NO_ATTACHMENTS

    @lazy
    def _envelope(self) -> tuple[Envelope | None, Problem | None]:
        """Read the body, or the SOAP part of a multipart body."""
        (document, problem), charset = self._decoded, self.described.charset
        if problem is None and self.described.is_multipart:
            problem = self._multipart[1]
        if problem is not None:
            return None, problem
        try:
            if self.described.is_multipart:
                part = self._multipart[0]
                assert part is not None
                document, charset = part.root.document, part.root.charset
            assert isinstance(document, OCTETS_OR_TEXT)
            assert not isinstance(document, memoryview)
            return as_envelope(parse(document, charset, self.limits)), None
        except ValueError as error:
            return None, _problem(error)

    @lazy
    def envelope(self) -> Envelope | None:
        """The SOAP envelope; None if there is none, see `envelope_problem`."""
        return self._envelope[0]

    @property
    def envelope_problem(self) -> str | None:
        """Why there is no envelope."""
        return _text(self._envelope[1])

    @property
    def envelope_blame(self) -> Blame:
        """The code of a fault that says so: VersionMismatch for the envelope of a SOAP that is neither 1.1 nor 1.2."""
        problem = self._envelope[1]
        return Blame.SENDER if problem is None else problem.blame

    @lazy
    def is_whole(self) -> bool:
        """The whole body was captured, and is within the limits."""
        problem = self._envelope[1]
        return not self.truncated and (problem is None or problem.excess is None)

    @property
    def excess(self) -> Excess | None:
        """The limit that the body goes beyond, so that it was not read; None if it goes beyond none."""
        problem = self._envelope[1]
        return None if problem is None else problem.excess

    @property
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version that the content type tells, or if it does not the body; None if that does not either."""
        told = self.described.soap_version
        return told if told is not None or self.envelope is None else self.envelope.version

    @lazy
    def fault(self) -> Fault | None:
        """The SOAP fault that the envelope holds, None if it holds none."""
        return None if self.envelope is None else read_fault(self.envelope)

    @property
    def type_known(self) -> bool:
        """False where the wire does not show the JMS message type, and a body, even a cut one, that there was one."""
        return self.message.message_type is not MessageType.UNKNOWN or not (self.message.size or self.truncated)


NO_ATTACHMENTS: Final = Attachments()
OCTETS_OR_TEXT: Final = (bytes, memoryview, str)


def _text(problem: Problem | None) -> str | None:
    return None if problem is None else problem.text
