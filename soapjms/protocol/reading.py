"""One received message as the rules look at it: each part worked out when first asked for, and once.

What is wrong with a part is a value that says why (`..._problem`), never an exception: the message is the peer's.
Nothing is judged here; that is for the assertions.

Spec: SOAP/JMS 2.2.3, 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from brokers.message import Message, MessageType
from soapjms.protocol import names
from soapjms.protocol.attachments import Attachments, Multipart, Part, read_multipart
from soapjms.protocol.content import DECODERS, ContentType, parse_content_type
from soapjms.protocol.envelope import Blame, Envelope, Fault, UnknownVersionError, as_envelope, parse_xml, read_fault
from soapjms.protocol.limits import DEFAULT_LIMITS, Excess, LimitExceededError, Limits
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.record import Record
from soapjms.protocol.uri import JmsUri, parse

T = TypeVar("T")

TRUE_TEXTS: Final = frozenset({"true", "1"})
FALSE_TEXTS: Final = frozenset({"false", "0"})


class lazy(Generic[T]):  # noqa: N801  # a decorator, named as decorators are
    """Work a value out when it is first asked for, and keep it in the instance.

    As functools.cached_property does, but without the lock that Python 3.11 shares among all instances.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value


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
        record: the message with what the capture knows of it.
        message: the message.
        profile: decides whether a content encoding is undone, and which names properties have.
        limits: how much is read.
    """

    def __init__(self, record: Record, profile: Profile, limits: Limits = DEFAULT_LIMITS) -> None:
        self.record = record
        self.message: Message = record.message
        self.profile = profile
        self.limits = limits

    def text(self, name: str) -> str | None:
        """Return a message property as text, None if it is absent, null or empty (an empty one counts as absent).

        Where it is absent, a property counts that some dialect has in its place: see `alias_of`.
        """
        return self.message.properties.text(name) or self._alias_text(name)

    def _alias_text(self, name: str) -> str | None:
        alias = self.alias_of(name) if name in names.ALIASES else None
        return None if alias is None else self.message.properties.text(alias)

    def alias_of(self, name: str) -> str | None:
        """Return the name, of whatever dialect, that the message has for a SOAPJMS_ property; None if it has no other.

        None too where the property itself is there.
        """
        properties = self.message.properties
        if properties.text(name):
            return None
        return next((alias for alias in names.ALIASES.get(name, ()) if properties.text(alias)), None)

    def misses(self, name: str) -> bool:
        """Say whether a property is neither under its own name nor under the one that the profile has for it.

        Never for a property that the profile's dialect does not have.
        """
        spelled = self.profile.spelled(name)
        return spelled is not None and not any(self.message.properties.text(each) for each in (name, spelled))

    @lazy
    def content_type(self) -> ContentType | None:
        """SOAPJMS_contentType, read; None if it is missing."""
        text = self.text(names.CONTENT_TYPE)
        return None if text is None else parse_content_type(text)

    @lazy
    def is_simple(self) -> bool:
        """The content type is that of an envelope without attachments."""
        kind = self.content_type
        return kind is not None and (
            kind.media_type in names.VERSION_OF_MEDIA_TYPE or kind.media_type in self.profile.media_types.values()
        )

    @lazy
    def request_uri(self) -> JmsUri | None:
        """SOAPJMS_requestURI, read leniently; None if it is missing."""
        text = self.text(names.REQUEST_URI)
        return None if text is None else parse(text)

    @lazy
    def soap_action(self) -> str | None:
        """SOAPJMS_soapAction without the quotes that some stacks put around it; None if it is missing."""
        text = self.text(names.SOAP_ACTION)
        if text is not None and len(text) > 1 and text[0] == text[-1] == '"':
            return text[1:-1]
        return text

    @property
    def is_fault(self) -> bool | None:
        """SOAPJMS_isFault as the specification reads it: true, 1; false, 0 or absent; None for anything else."""
        text = self.text(names.IS_FAULT)
        if text is None or text in FALSE_TEXTS:
            return False
        return True if text in TRUE_TEXTS else None

    @lazy
    def content_encoding(self) -> str | None:
        """SOAPJMS_contentEncoding in lower case if the profile knows it; None for identity and absent."""
        if self.profile.content_encodings is None:
            return None
        text = (self.text(names.CONTENT_ENCODING) or "identity").strip().lower()
        return None if text == "identity" else text

    @property
    def is_multipart(self) -> bool:
        """The content type is that of a body with attachments."""
        return self.content_type is not None and self.content_type.media_type == names.MULTIPART

    @lazy
    def _decoded(self) -> tuple[bytes | memoryview | str | None, Problem | None]:
        """The body without its content encoding, and why there is none."""
        body = self.message.body
        if not isinstance(body, bytes | memoryview | str):
            return None, Problem(f"the body of a {self.message.message_type} message is no SOAP envelope")
        if len(body) > self.limits.size:
            return None, _problem(self.limits.excess("size", f"the body has the size {len(body)}"))
        if self.content_encoding is None:
            return (bytes(body) if isinstance(body, memoryview) and not self.is_multipart else body), None
        decoder = DECODERS.get(self.content_encoding)
        if decoder is None or isinstance(body, str):
            return None, Problem(
                f"the content encoding {self.content_encoding} of a {self.message.message_type} message"
            )
        try:
            return decoder(body, self.limits), None
        except ValueError as error:
            return None, _problem(error)

    @property
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
        return NO_ATTACHMENTS if self._multipart[0] is None else self._multipart[0].attachments

    def _document(self) -> tuple[bytes | str, str | None]:
        """Return the XML document and its charset: of the body, or of the SOAP part of a multipart body.

        Raises:
            ValueError: the part cannot be decoded.
        """
        multipart, body, kind = self._multipart[0], self.body, self.content_type
        if multipart is not None:
            return multipart.root.document, multipart.root.charset
        assert body is not None
        return body, kind.charset if kind else None

    @lazy
    def _envelope(self) -> tuple[Envelope | None, Problem | None]:
        problem = self._decoded[1] or self._multipart[1]
        if problem is not None:
            return None, problem
        try:
            document, charset = self._document()
            return as_envelope(parse_xml(document, charset, self.limits)), None
        except ValueError as error:
            return None, _problem(error)

    @property
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
    def excess(self) -> Excess | None:
        """The limit that the body goes beyond, so that it was not read; None if it goes beyond none."""
        problem = self._envelope[1]
        return None if problem is None else problem.excess

    @property
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version that the content type tells, or if it does not the body; None if that does not either."""
        kind = self.content_type
        if kind is not None:
            for told in (kind.media_type, *map(kind.parameters.get, ("type", "start-info"))):
                media_type = parse_content_type(told or "").media_type
                if media_type in names.VERSION_OF_MEDIA_TYPE:
                    return names.VERSION_OF_MEDIA_TYPE[media_type]
        return None if self.envelope is None else self.envelope.version

    @lazy
    def fault(self) -> Fault | None:
        """The SOAP fault that the envelope holds, None if it holds none."""
        return None if self.envelope is None else read_fault(self.envelope)

    @property
    def type_known(self) -> bool:
        """False where the wire does not show the JMS message type, and a body, even a cut one, that there was one."""
        return self.message.message_type is not MessageType.UNKNOWN or not (self.message.size or self.record.truncated)


NO_ATTACHMENTS: Final = Attachments()


def _text(problem: Problem | None) -> str | None:
    return None if problem is None else problem.text
