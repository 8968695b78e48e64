"""What the properties of a message tell rules: a part of its shape.

The *shape* of an exchange is all that rules read of it: a value for each `Fact` that a row of the table of assertions
reads. The first exchange of a shape goes through the whole judge. If that finds nothing, the others of the shape are
counted without being judged. Everything else goes the whole way; see `plan.py`.

`judge_all` defines what is right; with shapes a run has to give the same. `--engine exact` judges without them.

Spec: capture record, version 1, "Copies and pairing" and "Verdicts".
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.message import Properties, PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions import STACK_MARKS, stack_marks_of
from soapjms.protocol.names import Profile
from soapjms.protocol.properties import PROPERTY_NAMES
from soapjms.protocol.received_message import (
    MAX_CACHED_CHARACTERS,
    TRUE_TEXTS,
    URI_NAMES,
    describe,
    told_by_uri,
)
from soapjms.replay.parquet import properties_of


def short_digest(text: str) -> str:
    """Return a text of 40 characters that is the same for the same text only."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class PropertyFacts(NamedTuple):
    """What the properties of a message tell.

    Attributes:
        rules: a digest of all in them that a rule, or the guess of the sender's stack, depends on.
        request_uri: the requestURI.
        is_jndi: whether its lookup variant is jndi.
        states_headers: whether headers may be compared with values that the sender is known to have set.
        charset: the charset of the content type, in lower case.
        is_fault: whether a message that nothing else tells apart is a fault.
        multipart: the content type of a body in parts; None for other bodies.
    """

    rules: str
    request_uri: str | None
    is_jndi: bool
    states_headers: bool
    charset: str | None
    is_fault: bool
    multipart: str | None


def told_by(properties: Properties, profile: Profile, *, knows_senders: bool) -> PropertyFacts | None:
    """Return what properties tell; None if their message must be judged by itself.

    Args:
        properties: properties of a message.
        profile: the edition to read them by.
        knows_senders: whether something is known of senders, which messages are compared with.
    """
    described = describe(properties, profile)
    if not described.is_short or described.content_encoding is not None:
        return None
    uri, charset, kind = described.request_uri, described.charset, described.content_type
    depends_on: Any = tuple(map(tuple, described.properties)) if knows_senders else described.shape.key[1]
    if kind is not None and described.is_multipart:
        if kind.problem is not None:
            return None
        others = [each for each in depends_on if each[0] not in CONTENT_TYPE_NAMES]
        stated = sorted((name, value) for name, value in kind.parameters.items() if name != "boundary")
        depends_on = others, kind.media_type, stated, kind.repeats, kind.has_gap
    return PropertyFacts(
        rules=short_digest(repr((depends_on, sorted(stack_marks_of(properties))))),
        request_uri=described.text(names.REQUEST_URI),
        is_jndi=uri is not None and uri.variant == "jndi",
        states_headers=knows_senders or (uri is not None and bool(uri.parameters)),
        charset=None if charset is None else charset.lower(),
        is_fault=properties.text(names.IS_FAULT) in TRUE_TEXTS,
        multipart=described.text(names.CONTENT_TYPE) if described.is_multipart else None,
    )


Stated: TypeAlias = tuple[tuple[str | None, ...], ...]
"""Properties as columns hold them: of each its name, its type, and its value as text."""
MAX_KINDS_TOLD: Final = 16_384
"""Number of sets of properties that are remembered."""


class PropertyReader:
    """Tells what properties tell, and remembers it for all that differ in nothing but an ordinary requestURI.

    Args:
        profile, knows_senders: see `told_by`.
    """

    def __init__(self, profile: Profile, *, knows_senders: bool) -> None:
        self._profile, self._knows_senders = profile, knows_senders
        self._told: dict[Any, PropertyFacts | None] = {}

    def read(self, stated: Stated) -> PropertyFacts | None:
        """Return what properties tell; see `told_by`.

        Raises:
            InvalidRecordError: one of them is not a valid property.
        """
        uri, key = (None, None) if self._knows_senders else _without_uri(stated)
        if uri is None:
            return self._read(stated)
        if key not in self._told:
            if len(self._told) >= MAX_KINDS_TOLD:
                self._told.clear()
            self._told[key] = self._read(stated)
        told = self._told[key]
        return None if told is None else told._replace(request_uri=uri)

    def _read(self, stated: Stated) -> PropertyFacts | None:
        properties = properties_of((name or "", {"type": kind, "value": value}) for name, kind, value in stated)
        return told_by(properties, self._profile, knows_senders=self._knows_senders)


def _without_uri(stated: Stated) -> tuple[str | None, object]:
    """Return the requestURI of short properties, and them with no more of it than rules read; None if they read all."""
    uris = [each for each in stated if each[0] in URI_NAMES]
    if (
        len(uris) == 1
        and sum([len(name or "") + len(value or "") for name, _, value in stated]) <= MAX_SHORT_CHARACTERS
    ):
        ((_, kind, uri),) = uris
        told = told_by_uri(uri) if uri and kind == PropertyType.STRING else None
        if isinstance(told, tuple):
            return uri, tuple([(name, kind, told if name in URI_NAMES else value) for name, kind, value in stated])
    return None, None


MAX_SHORT_CHARACTERS: Final = MAX_CACHED_CHARACTERS // 2
"""Number of characters of properties up to which `MessageDescription.is_short` certainly holds for them."""
CONTENT_TYPE_NAMES: Final = frozenset({names.CONTENT_TYPE, *names.ALIASES.get(names.CONTENT_TYPE, ())})
READ_NAMES: Final = PROPERTY_NAMES | STACK_MARKS
"""The properties that rules and the guess of a stack read."""
