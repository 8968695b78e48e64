"""What the properties of a message tell rules: a part of its shape.

The *shape* of an exchange is all that rules read of it: a value for each `Fact` that a row of the table of assertions
reads. The first exchange of a shape goes through the whole judge. If that finds nothing, the others of the shape are
counted without being judged. Everything else goes the whole way; see `plan.py`.

`judge_all` defines what is right; with shapes a run has to give the same. `--engine exact` judges without them.

Spec: capture record, version 1, "Copies and pairing" and "Verdicts".
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, NamedTuple

from brokers.message import Properties
from soapjms.protocol import names
from soapjms.protocol.assertions import STACK_MARKS, stack_marks_of
from soapjms.protocol.names import Profile
from soapjms.protocol.properties import PROPERTY_NAMES
from soapjms.protocol.received_message import TRUE_TEXTS, describe


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


CONTENT_TYPE_NAMES: Final = frozenset({names.CONTENT_TYPE, *names.ALIASES.get(names.CONTENT_TYPE, ())})
READ_NAMES: Final = PROPERTY_NAMES | STACK_MARKS
"""The properties that rules and the guess of a stack read."""
