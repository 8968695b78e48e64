"""One received message, read for judging: each part is worked out at its first access, and only once.

A problem with a part is a text that says why (`..._problem`), never an exception, as the message is the peer's. Nothing
is judged here; the assertions do that.

Most senders repeat the same properties in each message, so the meaning of the properties is worked out apart from the
body, and cached by the properties.

Spec: SOAP/JMS 2.2.3, 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from brokers.message import Message, MessageType, Properties, Property, as_text
from soapjms.protocol import names
from soapjms.protocol.attachments import Attachments, Multipart, Part, read_multipart
from soapjms.protocol.content import DECODERS, ContentType, is_plain, parse_content_type
from soapjms.protocol.envelope import Envelope, Fault, UnknownVersionError, as_envelope, read_fault
from soapjms.protocol.errors import Blame
from soapjms.protocol.limits import DEFAULT_LIMITS, Excess, LimitExceededError, Limits
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.properties import PROPERTY_NAMES
from soapjms.protocol.record import EPOCH, Direction, Record
from soapjms.protocol.text import shown
from soapjms.protocol.uri import JmsUri, Mode
from soapjms.protocol.uri import parse as parse_uri
from soapjms.protocol.xml import NotWellFormedError, parse, parse_utf8

T = TypeVar("T")

TRUE_TEXTS: Final = frozenset({"true", "1"})
FALSE_TEXTS: Final = frozenset({"false", "0"})


class lazy(Generic[T]):  # noqa: N801  # a decorator, named as decorators are
    """Work a value out at its first access, and keep it in the instance.

    Like functools.cached_property, but without the lock that Python 3.11 shares among all instances.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value


class MessageDescription:
    """The meaning of the properties of a message.

    Attributes:
        properties: the properties of the binding, under any name; others have no meaning here.
        profile: decides whether a content encoding is used, and which names properties have.
        is_short: True if the properties are short enough to be cached.
        rows_left: what `judge_request` knows of messages with these properties, by the other things that it depends on.
        answers: properties of the plain responses to requests with these properties, by profile and SOAP version.
    """

    def __init__(self, properties: Properties, profile: Profile) -> None:
        self.properties = properties
        self.profile = profile
        self.rows_left: dict[Any, Any] = {}
        self.answers: dict[tuple[str, SoapVersion], Properties] = {}
        self._texts: dict[str, str | None] = {}
        for each in properties:  # of two with the same name, which JMS does not allow, the first counts
            self._texts.setdefault(each.name, as_text(each.value))
        self.is_short = sum(len(name) + len(text or "") for name, text in self._texts.items()) <= MAX_CACHED_CHARACTERS

    def text(self, name: str) -> str | None:
        """Return a message property as text; None if it is absent, null or empty (an empty one counts as absent).

        If it is absent, a property that some dialect has in its place is used: see `alias_of`.
        """
        return self._texts.get(name) or self._alias_text(name)

    def _alias_text(self, name: str) -> str | None:
        alias = self.alias_of(name) if name in names.ALIASES else None
        return None if alias is None else self._texts.get(alias)

    def alias_of(self, name: str) -> str | None:
        """Return the name, from any dialect, under which the message has a SOAPJMS_ property.

        None if the message does not have the property, or has it under its own name.
        """
        if self._texts.get(name):
            return None
        return next((alias for alias in names.ALIASES.get(name, ()) if self._texts.get(alias)), None)

    def misses(self, name: str) -> bool:
        """Say whether a property is missing, both under its own name and under its name in the profile.

        A property that the profile's dialect does not have is never missing.
        """
        spelled = self.profile.spelled(name)
        return spelled is not None and not any(self._texts.get(each) for each in (name, spelled))

    @lazy
    def content_type(self) -> ContentType | None:
        """SOAPJMS_contentType, parsed; None if it is missing."""
        text = self.text(names.CONTENT_TYPE)
        return None if text is None else parse_content_type(text)

    @lazy
    def charset(self) -> str | None:
        """The charset parameter of the content type; None if it has none."""
        return None if self.content_type is None else self.content_type.charset

    @lazy
    def is_simple(self) -> bool:
        """True if the content type is that of an envelope without attachments."""
        kind = self.content_type
        return kind is not None and (
            kind.media_type in names.VERSION_OF_MEDIA_TYPE or kind.media_type in self.profile.media_types.values()
        )

    @lazy
    def is_multipart(self) -> bool:
        """True if the content type is that of a body with attachments."""
        return self.content_type is not None and self.content_type.media_type == names.MULTIPART

    @lazy
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version that the content type shows; None if it shows none."""
        kind = self.content_type
        if kind is not None:
            for told in (kind.media_type, *map(kind.parameters.get, ("type", "start-info"))):
                media_type = parse_content_type(told or "").media_type
                if media_type in names.VERSION_OF_MEDIA_TYPE:
                    return names.VERSION_OF_MEDIA_TYPE[media_type]
        return None

    @lazy
    def request_uri(self) -> JmsUri | None:
        """SOAPJMS_requestURI, parsed leniently; None if it is missing."""
        text = self.text(names.REQUEST_URI)
        return None if text is None else parse_uri(text)

    @lazy
    def soap_action(self) -> str | None:
        """SOAPJMS_soapAction without the quotes that some stacks put around it; None if it is missing."""
        text = self.text(names.SOAP_ACTION)
        return None if text is None else without_quotes(text)

    @lazy
    def target_service(self) -> str | None:
        """SOAPJMS_targetService; None if it is missing."""
        return self.text(names.TARGET_SERVICE)

    @lazy
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

    # The part of the properties that judging depends on.

    @lazy
    def shape(self) -> PropertiesShape:
        """The part of these properties that any rule of the binding depends on; most messages share it with others.

        Of an ordinary requestURI that is only the lookup variant; of a soapAction without another action in the content
        type, whether it is quoted.
        """
        return PropertiesShape(self, tuple([(each.name, each.type, self._told_by(each)) for each in self.properties]))

    def _told_by(self, entry: Property) -> object:
        text = as_text(entry.value)
        if not text:
            return text
        if entry.name in URI_NAMES and text == self.text(names.REQUEST_URI):
            return told_by_uri(text)
        if (
            entry.name in ACTION_NAMES
            and text == self.text(names.SOAP_ACTION)
            and not _may_state_action(self.content_type)
        ):
            return (text != self.soap_action,)
        return text


class PropertiesShape:
    """The shape of properties; equal if no rule tells the properties apart.

    Attributes:
        described: a description of properties with this shape.
        key: what is equal then, as a tuple of texts.
    """

    __slots__ = ("_hash", "described", "key")

    def __init__(self, described: MessageDescription, key: tuple[object, ...]) -> None:
        self.described = described
        self.key = described.profile.name, key
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PropertiesShape) and self.key == other.key)


def without_quotes(action: str) -> str:
    """Return an action without the quotes around it that HTTP requires and some stacks keep over JMS."""
    return action[1:-1] if len(action) > 1 and action[0] == action[-1] == '"' else action


def told_by_uri(text: str) -> object:
    """Return the part of a requestURI that rules depend on: all of it if it has parameters or is not valid."""
    uri = parse_uri(text)
    if not uri.well_formed or uri.parameters or not uri.variant or not uri.destination:
        return text
    return uri.variant, parse_uri(text, Mode.STRICT).well_formed


def _may_state_action(kind: ContentType | None) -> bool:
    """Say whether a content type may state an action, which soapAction is compared with."""
    if kind is None or kind.media_type == SoapVersion.SOAP_11.media_type:
        return False
    return kind.media_type != SoapVersion.SOAP_12.media_type or "action" in kind.parameters


URI_NAMES: Final = frozenset({names.REQUEST_URI, *names.ALIASES.get(names.REQUEST_URI, ())})
ACTION_NAMES: Final = frozenset({names.SOAP_ACTION, *names.ALIASES.get(names.SOAP_ACTION, ())})

MAX_CACHED_CHARACTERS: Final = 2048
"""Longest properties of a message, in characters altogether, that are cached."""


MAX_CACHED_DESCRIPTIONS: Final = 16384
"""Most different sets of properties that are cached: a broker has many queues, and a service many actions."""


class _Memory:
    """A cache of the descriptions of properties, by profile; it is cleared when it is full."""

    MOST: Final = MAX_CACHED_DESCRIPTIONS

    def __init__(self) -> None:
        self._known: dict[tuple[str, Properties], MessageDescription] = {}

    def describe(self, properties: Properties, profile: Profile) -> MessageDescription:
        """Return the description of properties; the same object for equal properties, while it is cached.

        Properties that are not of the binding are dropped, as some, such as a trace id, differ in each message.
        """
        for each in properties:
            if each[0] not in PROPERTY_NAMES:
                properties = Properties([each for each in properties if each[0] in PROPERTY_NAMES])
                break
        found = self._known.get((profile.name, properties))
        if found is None:
            found = MessageDescription(properties, profile)
            if found.is_short:
                if len(self._known) >= self.MOST:
                    self._known.clear()
                self._known[profile.name, properties] = found
        return found


describe: Final = _Memory().describe
"""Return the description of properties; the same object for equal properties and profile, while it is cached."""


class PartProblem(NamedTuple):
    """Why a part of a message cannot be read.

    Attributes:
        text: the text for people.
        excess: the limit that the part exceeds, or None.
        blame: the code of the fault for this problem.
        place: the line and the column, from 1 on, at which the document is not well-formed; None for another problem.
    """

    text: str
    excess: Excess | None = None
    blame: Blame = Blame.SENDER
    place: tuple[int, int] | None = None


def _problem(error: ValueError) -> PartProblem:
    excess = error.excess if isinstance(error, LimitExceededError) else None
    blame = Blame.VERSION_MISMATCH if isinstance(error, UnknownVersionError) else Blame.SENDER
    place = error.place if isinstance(error, NotWellFormedError) else None
    return PartProblem(str(error), excess, blame, place)


class Reading:
    """A received message, whose parts are read lazily.

    Attributes:
        message: the message.
        profile: decides whether a content encoding is undone, and which names properties have.
        limits: the limits for reading.
        described: the description of the properties; shared with other messages that have the same properties.
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
        """Read a live message, with the direction for its verdicts, or a captured one with its record."""
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
        """The record of the message; a live message gets one with an arbitrary time, which no rule uses."""
        if self._record is None:
            self._record = Record(message=self.message, time=EPOCH, direction=self._direction)
        return self._record

    @property
    def truncated(self) -> bool:
        """True if the capture cut the body."""
        return self._record is not None and self._record.truncated

    # The meaning of the properties, see `MessageDescription`.

    def text(self, name: str) -> str | None:
        """Return a message property as text; None if it is absent, null or empty; a dialect's name counts too."""
        return self.described.text(name)

    def alias_of(self, name: str) -> str | None:
        """Return the name, from any dialect, under which the message has a SOAPJMS_ property, if not under its own."""
        return self.described.alias_of(name)

    def misses(self, name: str) -> bool:
        """Say whether a property is missing, both under its own name and under its name in the profile."""
        return self.described.misses(name)

    @property
    def content_type(self) -> ContentType | None:
        """SOAPJMS_contentType, parsed; None if it is missing."""
        return self.described.content_type

    @property
    def charset(self) -> str | None:
        """The charset parameter of the content type; None if it has none."""
        return self.described.charset

    @property
    def is_simple(self) -> bool:
        """True if the content type is that of an envelope without attachments."""
        return self.described.is_simple

    @property
    def is_multipart(self) -> bool:
        """True if the content type is that of a body with attachments."""
        return self.described.is_multipart

    @property
    def request_uri(self) -> JmsUri | None:
        """SOAPJMS_requestURI, parsed leniently; None if it is missing."""
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

    # The content of the body.

    @lazy
    def _decoded(self) -> tuple[bytes | memoryview | str | None, PartProblem | None]:
        """The body without its content encoding, or why it cannot be read."""
        body, encoding = self.message.body, self.described.content_encoding
        if not isinstance(body, OCTETS_OR_TEXT):
            return None, PartProblem(f"the body of a {self.message.message_type} message is no SOAP envelope")
        if len(body) > self.limits.size:
            return None, _problem(self.limits.excess("size", f"the body has the size {len(body)}"))
        if encoding is None:
            return (bytes(body) if isinstance(body, memoryview) and not self.is_multipart else body), None
        decoder = DECODERS.get(encoding)
        if decoder is None or isinstance(body, str):
            return None, PartProblem(f"the content encoding {shown(encoding)} of a {self.message.message_type} message")
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
        """Why `body` is None."""
        return _text(self._decoded[1])

    @lazy
    def _multipart(self) -> tuple[Multipart | None, PartProblem | None]:
        kind, body = self.content_type, self._decoded[0]
        if kind is None or not self.is_multipart or body is None:
            return None, None
        try:
            return read_multipart(body, kind, self.limits), None
        except ValueError as error:
            return None, _problem(error)

    @property
    def first_part(self) -> Part | None:
        """The first part of a multipart body; None if the body is not multipart, or broken."""
        return None if self._multipart[0] is None else self._multipart[0].first

    @property
    def soap_part(self) -> Part | None:
        """The SOAP part of a multipart body; None if the body is not multipart, or broken."""
        return None if self._multipart[0] is None else self._multipart[0].root

    @property
    def multipart_problem(self) -> str | None:
        """Why the parts of a multipart body cannot be read."""
        return _text(self._multipart[1])

    @property
    def attachments(self) -> Attachments:
        """The parts beside the SOAP part; empty for a body that is not multipart."""
        return self._multipart[0].attachments if self.is_multipart and self._multipart[0] else NO_ATTACHMENTS

    @lazy
    def _envelope(self) -> tuple[Envelope | None, PartProblem | None]:
        """The envelope in the body, or in the SOAP part of a multipart body, or why it cannot be read."""
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
        described = self.described
        is_whole = described.content_encoding is None and not described.is_multipart
        found = self.read_plain() if is_whole and is_plain(self.message.body, described.charset) else None
        return self._envelope[0] if found is None else found

    def read_plain(self) -> Envelope | None:
        """Read the envelope of a plain document (see `is_plain`) without a content encoding, by a shorter way.

        Return None, having read nothing, for a document that has to be read the whole way.
        """
        body, limits = self.message.body, self.limits
        if type(body) is not bytes or len(body) > limits.size:
            return None
        try:
            envelope = as_envelope(parse_utf8(body, limits))
        except ValueError:
            return None
        values = self.__dict__
        values["envelope"], values["_envelope"] = envelope, (envelope, None)
        return envelope

    @property
    def envelope_problem(self) -> str | None:
        """Why `envelope` is None."""
        return _text(self._envelope[1])

    @property
    def malformed_place(self) -> tuple[int, int] | None:
        """The line and the column, from 1 on, at which the XML is not well-formed; None if that is not the problem."""
        problem = self._envelope[1]
        return None if problem is None else problem.place

    @property
    def envelope_blame(self) -> Blame:
        """The code of the fault for it: VersionMismatch for the envelope of a SOAP that is neither 1.1 nor 1.2."""
        problem = self._envelope[1]
        return Blame.SENDER if problem is None else problem.blame

    @lazy
    def is_whole(self) -> bool:
        """True if the whole body was captured, and is within the limits."""
        problem = self._envelope[1]
        return not self.truncated and (problem is None or problem.excess is None)

    @property
    def excess(self) -> Excess | None:
        """The limit that the body exceeds, so that it was not read; None if it exceeds none."""
        problem = self._envelope[1]
        return None if problem is None else problem.excess

    @property
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version that the content type shows, or else the body; None if neither shows it."""
        told = self.described.soap_version
        return told if told is not None or self.envelope is None else self.envelope.version

    @lazy
    def fault(self) -> Fault | None:
        """The SOAP fault in the envelope, or None."""
        return None if self.envelope is None else read_fault(self.envelope)

    @property
    def type_known(self) -> bool:
        """False if the message has a body, even a cut one, and the protocol does not show the JMS message type."""
        return self.message.message_type is not MessageType.UNKNOWN or not (self.message.size or self.truncated)


NO_ATTACHMENTS: Final = Attachments()
OCTETS_OR_TEXT: Final = (bytes, memoryview, str)


def _text(problem: PartProblem | None) -> str | None:
    return None if problem is None else problem.text
