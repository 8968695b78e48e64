"""What the properties of a message say of it: each part worked out when first asked for, and once.

Most senders repeat the same properties message by message, so what was worked out is remembered by them. The body is
no business of this file: see `soapjms.protocol.reading`.

Spec: SOAP/JMS 2.2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from brokers.message import Properties, Property, as_text
from soapjms.protocol import names
from soapjms.protocol.content import ContentType, parse_content_type
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.uri import JmsUri, Mode, parse

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


class Described:
    """What the properties of a message say of it.

    Attributes:
        properties: those of the binding, under whatever name; others say nothing here.
        profile: decides whether a content encoding counts, and which names properties have.
        is_short: the properties take little room, so that they may be remembered.
    """

    def __init__(self, properties: Properties, profile: Profile) -> None:
        self.properties = properties
        self.profile = profile
        self._texts: dict[str, str | None] = {}
        for each in properties:  # of two with the same name, which JMS does not have, the first counts
            self._texts.setdefault(each.name, as_text(each.value))
        self.is_short = sum(len(name) + len(text or "") for name, text in self._texts.items()) <= SHORT

    def text(self, name: str) -> str | None:
        """Return a message property as text, None if it is absent, null or empty (an empty one counts as absent).

        Where it is absent, a property counts that some dialect has in its place: see `alias_of`.
        """
        return self._texts.get(name) or self._alias_text(name)

    def _alias_text(self, name: str) -> str | None:
        alias = self.alias_of(name) if name in names.ALIASES else None
        return None if alias is None else self._texts.get(alias)

    def alias_of(self, name: str) -> str | None:
        """Return the name, of whatever dialect, that the message has for a SOAPJMS_ property; None if it has no other.

        None too where the property itself is there.
        """
        if self._texts.get(name):
            return None
        return next((alias for alias in names.ALIASES.get(name, ()) if self._texts.get(alias)), None)

    def misses(self, name: str) -> bool:
        """Say whether a property is neither under its own name nor under the one that the profile has for it.

        Never for a property that the profile's dialect does not have.
        """
        spelled = self.profile.spelled(name)
        return spelled is not None and not any(self._texts.get(each) for each in (name, spelled))

    @lazy
    def content_type(self) -> ContentType | None:
        """SOAPJMS_contentType, read; None if it is missing."""
        text = self.text(names.CONTENT_TYPE)
        return None if text is None else parse_content_type(text)

    @lazy
    def charset(self) -> str | None:
        """The charset parameter of the content type; None if it has none."""
        return None if self.content_type is None else self.content_type.charset

    @lazy
    def is_simple(self) -> bool:
        """The content type is that of an envelope without attachments."""
        kind = self.content_type
        return kind is not None and (
            kind.media_type in names.VERSION_OF_MEDIA_TYPE or kind.media_type in self.profile.media_types.values()
        )

    @lazy
    def is_multipart(self) -> bool:
        """The content type is that of a body with attachments."""
        return self.content_type is not None and self.content_type.media_type == names.MULTIPART

    @lazy
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version that the content type tells; None if it does not."""
        kind = self.content_type
        if kind is not None:
            for told in (kind.media_type, *map(kind.parameters.get, ("type", "start-info"))):
                media_type = parse_content_type(told or "").media_type
                if media_type in names.VERSION_OF_MEDIA_TYPE:
                    return names.VERSION_OF_MEDIA_TYPE[media_type]
        return None

    @lazy
    def request_uri(self) -> JmsUri | None:
        """SOAPJMS_requestURI, read leniently; None if it is missing."""
        text = self.text(names.REQUEST_URI)
        return None if text is None else parse(text)

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

    # What judging needs to know, and no more.

    @lazy
    def shape(self) -> Shape:
        """What any rule of the binding can tell of these properties; most messages share it with others.

        Of a requestURI without anything out of the ordinary that is the lookup variant, of a soapAction that has no
        other beside it whether it is quoted.
        """
        return Shape(self, tuple([(each.name, each.type, self._told_by(each)) for each in self.properties]))

    def _told_by(self, entry: Property) -> object:
        text = as_text(entry.value)
        if not text or entry.name not in TELLING_LITTLE:
            return text
        if text == self.text(names.REQUEST_URI):
            return _told_by_uri(text)
        if text == self.text(names.SOAP_ACTION) and not _may_state_action(self.content_type):
            return (text != self.soap_action,)
        return text


class Shape:
    """The shape of properties: equal where no rule tells them apart.

    Attributes:
        described: properties of this shape.
    """

    __slots__ = ("_hash", "_key", "described")

    def __init__(self, described: Described, key: tuple[object, ...]) -> None:
        self.described = described
        self._key = described.profile.name, key
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Shape) and self._key == other._key)


def without_quotes(action: str) -> str:
    """Return an action without the quotes that HTTP has around it, and some stacks keep over JMS."""
    return action[1:-1] if len(action) > 1 and action[0] == action[-1] == '"' else action


def _told_by_uri(text: str) -> object:
    """Return what a rule can tell of a requestURI: the whole of it if it has parameters, or anything is wrong."""
    uri = parse(text)
    if not uri.well_formed or uri.parameters or not uri.variant or not uri.destination:
        return text
    return uri.variant, parse(text, Mode.STRICT).well_formed


def _may_state_action(kind: ContentType | None) -> bool:
    """Say whether a content type may hold an action, so that soapAction is compared with it."""
    if kind is None or kind.media_type == SoapVersion.SOAP_11.media_type:
        return False
    return kind.media_type != SoapVersion.SOAP_12.media_type or "action" in kind.parameters


TELLING_LITTLE: Final = frozenset(
    name for known in (names.REQUEST_URI, names.SOAP_ACTION) for name in (known, *names.ALIASES.get(known, ()))
)

SHORT: Final = 2048
"""Characters that the properties of a message may have altogether to be remembered."""


REMEMBERED: Final = 16384
"""Properties of different content that are remembered: a broker has many queues, and a service many actions."""


class _Memory:
    """What was worked out for the properties seen of late, by profile; it forgets all when it has too many."""

    MOST: Final = REMEMBERED

    def __init__(self) -> None:
        self._known: dict[tuple[str, Properties], Described] = {}

    def describe(self, properties: Properties, profile: Profile) -> Described:
        """Return what these properties say; the same object for the same ones, while it is remembered.

        A property that is not of the binding, such as the id of a trace, may be another in each message.
        """
        for each in properties:
            if each.name not in names.PROPERTY_NAMES:
                properties = Properties(each for each in properties if each.name in names.PROPERTY_NAMES)
                break
        found = self._known.get((profile.name, properties))
        if found is None:
            found = Described(properties, profile)
            if found.is_short:
                if len(self._known) >= self.MOST:
                    self._known.clear()
                self._known[profile.name, properties] = found
        return found


describe: Final = _Memory().describe
"""Return what properties say; the same object for the same properties and profile, while it is remembered."""
