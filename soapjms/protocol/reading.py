"""One received message as the rules look at it: each part worked out when first asked for, and once.

What is wrong with a part is a value that says why (`..._problem`), never an exception: the message is the peer's.
Nothing is judged here; that is for the assertions.

Spec: SOAP/JMS 2.2.3, 2.4.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from quopri import decodestring
from typing import Any, Final, Generic, TypeVar

from brokers.message import Message, MessageType
from soapjms.protocol import names
from soapjms.protocol.content import ContentType, Part, first_part, gunzip, parse_content_type
from soapjms.protocol.envelope import Blame, Envelope, Fault, UnknownVersionError, as_envelope, parse_xml, read_fault
from soapjms.protocol.names import Profile
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


class Reading:
    """A received message, lazily taken apart.

    Attributes:
        record: the message with what the capture knows of it.
        message: the message.
        profile: decides whether a content encoding is undone, and which names properties have.
    """

    def __init__(self, record: Record, profile: Profile) -> None:
        self.record = record
        self.message: Message = record.message
        self.profile = profile

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

    @lazy
    def _decoded(self) -> tuple[bytes | str | None, str | None]:
        """The body without its content encoding, and why there is none."""
        body = self.message.body
        if isinstance(body, memoryview):
            body = bytes(body)
        if not isinstance(body, bytes | str):
            return None, f"the body of a {self.message.message_type} message is no SOAP envelope"
        if self.content_encoding is None:
            return body, None
        if self.content_encoding != "gzip" or isinstance(body, str):
            return None, f"the content encoding {self.content_encoding} of a {self.message.message_type} message"
        try:
            return gunzip(body), None
        except ValueError as error:
            return None, str(error)

    @property
    def body(self) -> bytes | str | None:
        """The body without its content encoding; None if it is of another kind or cannot be decoded."""
        return self._decoded[0]

    @property
    def body_problem(self) -> str | None:
        """Why there is no `body`."""
        return self._decoded[1]

    @lazy
    def _root_part(self) -> tuple[Part | None, str | None]:
        kind, body = self.content_type, self.body
        if kind is None or kind.media_type != names.MULTIPART or body is None:
            return None, None
        boundary = kind.parameters.get("boundary")
        if not boundary:
            return None, "multipart/related without a boundary parameter"
        try:
            return first_part(body.encode("utf-8") if isinstance(body, str) else body, boundary), None
        except ValueError as error:
            return None, str(error)

    @property
    def root_part(self) -> Part | None:
        """The first part of a multipart body; None if it is not multipart, or broken."""
        return self._root_part[0]

    @property
    def multipart_problem(self) -> str | None:
        """Why a multipart body has no first part."""
        return self._root_part[1]

    @lazy
    def document(self) -> tuple[bytes | str | None, ContentType | None]:
        """The XML document with its content type: of the body, or of the first part of a multipart body."""
        if self.content_type is None or self.content_type.media_type != names.MULTIPART:
            return self.body, self.content_type
        if self.root_part is None:
            return None, None
        return _transfer_decoded(self.root_part), self.root_part.content_type

    @lazy
    def _envelope(self) -> tuple[Envelope | None, str | None, Blame]:
        octets, kind = self.document
        if octets is None:
            return None, self.body_problem or self.multipart_problem, Blame.SENDER
        try:
            return as_envelope(parse_xml(octets, kind.charset if kind else None)), None, Blame.SENDER
        except UnknownVersionError as error:
            return None, str(error), Blame.VERSION_MISMATCH
        except ValueError as error:
            return None, str(error), Blame.SENDER

    @property
    def envelope(self) -> Envelope | None:
        """The SOAP envelope; None if there is none, see `envelope_problem`."""
        return self._envelope[0]

    @property
    def envelope_problem(self) -> str | None:
        """Why there is no envelope."""
        return self._envelope[1]

    @property
    def envelope_blame(self) -> Blame:
        """The code of a fault that says so: VersionMismatch for the envelope of a SOAP that is neither 1.1 nor 1.2."""
        return self._envelope[2]

    @lazy
    def fault(self) -> Fault | None:
        """The SOAP fault that the envelope holds, None if it holds none."""
        return None if self.envelope is None else read_fault(self.envelope)

    @property
    def type_known(self) -> bool:
        """False where the wire does not show the JMS message type, and a body, even a cut one, that there was one."""
        return self.message.message_type is not MessageType.UNKNOWN or not (self.message.size or self.record.truncated)


_TRANSFER_DECODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "base64": b64decode,
    "quoted-printable": decodestring,
}


def _transfer_decoded(part: Part) -> bytes:
    """Undo a Content-Transfer-Encoding. Octets that are no base64 stay as they are, and then are no XML either."""
    decoder = _TRANSFER_DECODERS.get(part.transfer_encoding)
    try:
        return part.content if decoder is None else decoder(part.content)
    except ValueError:
        return part.content
