"""Known habits of real stacks that break no assertion: worth a note, never a failure.

Each habit is a row: a code, a text, and a test for a message.

Spec: capture record, "Verdicts" (notes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from brokers.message import Message, MessageType, Properties, Property, PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions.judge import readings
from soapjms.protocol.assertions.model import Setting
from soapjms.protocol.content import ContentType
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import PropertiesShape, Reading
from soapjms.protocol.record import Direction
from soapjms.protocol.uri import Mode, parse


class Habit(NamedTuple):
    """One habit."""

    code: str
    text: str
    seen: Callable[[Reading, Carrier], bool]


def _quoted_action(message: Reading, carrier: Carrier) -> bool:
    return message.text(names.SOAP_ACTION) != message.soap_action


def _fault_flag_on_request(message: Reading, carrier: Carrier) -> bool:
    return carrier is not Carrier.RESPONSE and message.text(names.IS_FAULT) is not None


def _action_on_response(message: Reading, carrier: Carrier) -> bool:
    return carrier is Carrier.RESPONSE and message.text(names.SOAP_ACTION) is not None


def _fault_flag_as_number(message: Reading, carrier: Carrier) -> bool:
    if message.profile.assertion_id("Local-2.2.3-isFaultType") is not None:
        return False  # an assertion covers it in that profile
    flag = message.message.properties.lookup(names.IS_FAULT)
    return flag is not None and not message.message.untyped and flag.type is not PropertyType.BOOLEAN


def _lenient_uri(message: Reading, carrier: Carrier) -> bool:
    uri = message.request_uri
    return uri is not None and uri.well_formed and not parse(uri.text, Mode.STRICT).well_formed


def _encoding_unknown_to_profile(message: Reading, carrier: Carrier) -> bool:
    return message.profile.content_encodings is None and message.text(names.CONTENT_ENCODING) is not None


def _spells(name: str, alias: str) -> Callable[[Reading, Carrier], bool]:
    return lambda message, carrier: message.alias_of(name) == alias


def _lacks(name: str) -> Callable[[Reading, Carrier], bool]:
    """Make a test for the absence of a property that the profile's dialect does not have; elsewhere it is a breach."""
    return lambda message, carrier: message.profile.spelled(name) is None and message.text(name) is None


def _dialect_media_type(message: Reading, carrier: Carrier) -> bool:
    kind = message.content_type
    return kind is not None and message.is_simple and kind.media_type not in names.KNOWN_MEDIA_TYPES


def _marked_text(message: Reading, carrier: Carrier) -> bool:
    return isinstance(message.message.body, str) and message.message.body.startswith("\ufeff")


def _start_elsewhere(message: Reading, carrier: Carrier) -> bool:
    return message.soap_part is not message.first_part


def _start_nowhere(message: Reading, carrier: Carrier) -> bool:
    kind, part = message.content_type, message.soap_part
    start = None if kind is None else kind.parameters.get("start")
    return start is not None and part is not None and part.content_id != start.removeprefix("<").removesuffix(">")


def _bare_start(message: Reading, carrier: Carrier) -> bool:
    kind = message.content_type
    return kind is not None and message.is_multipart and _is_bare(kind.parameters.get("start"))


def _bare_content_id(message: Reading, carrier: Carrier) -> bool:
    root = message.soap_part
    return root is not None and any(_is_bare(each.fields.get("content-id")) for each in (root, *message.attachments))


def _is_bare(identifier: str | None) -> bool:
    return identifier is not None and not (identifier.startswith("<") and identifier.endswith(">"))


def _kinds(message: Reading) -> Iterator[ContentType]:
    """Return the content types of the envelope: that of the message, and that of the SOAP part."""
    kinds = [message.content_type]
    if message.soap_part is not None:
        kinds.append(message.soap_part.content_type)
    return (each for each in kinds if each is not None)


def _repeated_parameter(message: Reading, carrier: Carrier) -> bool:
    return any(each.repeats for each in _kinds(message))


def _empty_parameter(message: Reading, carrier: Carrier) -> bool:
    return any(each.has_gap for each in _kinds(message))


def _otherwise_written_encoding(message: Reading, carrier: Carrier) -> bool:
    text = message.text(names.CONTENT_ENCODING)
    return message.profile.content_encodings is not None and text is not None and text != text.strip().lower()


HABITS: Final = (
    Habit("quotedSoapAction", "SOAPJMS_soapAction stands in quotes, as the HTTP header has it", _quoted_action),
    Habit("isFaultOnRequest", "SOAPJMS_isFault is on a request, where it has no meaning", _fault_flag_on_request),
    Habit("soapActionOnResponse", "SOAPJMS_soapAction is on a response, where no table has it", _action_on_response),
    Habit(
        "isFaultNotBoolean", "SOAPJMS_isFault is no JMS boolean; some clients drop the message", _fault_flag_as_number
    ),
    Habit(
        "lenientRequestURI", "the requestURI is well-formed only for a lenient reader, not for RFC 6167", _lenient_uri
    ),
    Habit(
        "unknownContentEncoding",
        "SOAPJMS_contentEncoding is set, which this profile does not know",
        _encoding_unknown_to_profile,
    ),
    *(
        Habit(alias, f"{alias} was read in place of {name}", _spells(name, alias))
        for name, aliases in names.ALIASES.items()
        for alias in aliases
    ),
    Habit("markedText", "a TextMessage begins with a byte order mark, which has no meaning there", _marked_text),
    Habit("soapPartNotFirst", "the parameter start names another part than the first, the SOAP part", _start_elsewhere),
    Habit("startNamesNoPart", "the parameter start names no part; the first one was read", _start_nowhere),
    Habit("bareStart", "the parameter start is not in angle brackets; it was read as if it were", _bare_start),
    Habit("bareContentId", "a Content-ID is not in angle brackets; it was read as if it were", _bare_content_id),
    Habit(
        "repeatedParameter",
        "a content type has a parameter more than once; the first one was read",
        _repeated_parameter,
    ),
    Habit("emptyParameter", "a content type has a semicolon with no parameter after it", _empty_parameter),
    Habit(
        "contentEncodingSpelling",
        "SOAPJMS_contentEncoding has space around it or capital letters; it was read without",
        _otherwise_written_encoding,
    ),
    Habit("noRequestURI", "there is no requestURI, which this profile does not have", _lacks(names.REQUEST_URI)),
    Habit(
        "noBindingVersion",
        "there is no bindingVersion, which this profile does not have",
        _lacks(names.BINDING_VERSION),
    ),
    Habit(
        "otherMediaType", "the media type is that of this profile, not that of the specification", _dialect_media_type
    ),
)


MISDIRECTED: Final = (
    "misdirectedResponse",
    "a response correlates with a request, but came to another destination than its JMSReplyTo (Protocol-2037); they "
    "are not paired",
)
"""Not a habit, but the reason why two messages are not paired."""


def habits_of(message: Reading, carrier: Carrier) -> Iterator[tuple[str, str]]:
    """Yield the code and text of each habit that one message shows."""
    if message.described.is_short and not message.is_multipart and not _marked_text(message, carrier):
        return iter(_habits_by_properties(message.described.shape, carrier, message.message.untyped))
    return _shown_by(message, carrier)


def _shown_by(message: Reading, carrier: Carrier) -> Iterator[tuple[str, str]]:
    return ((habit.code, habit.text) for habit in HABITS if habit.seen(message, carrier))


@lru_cache(maxsize=1024)
def _habits_by_properties(shape: PropertiesShape, carrier: Carrier, untyped: bool) -> tuple[tuple[str, str], ...]:
    """Return the habits that properties show; a body without parts and byte order mark shows none."""
    described = shape.described
    message = Message(message_type=MessageType.BYTES, properties=described.properties, untyped=untyped)
    return tuple(_shown_by(Reading(message, described.profile), carrier))


def habits(
    exchange: Exchange, setting: Setting, messages: Mapping[Carrier, Reading] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the code and text of each habit that a message of the exchange shows, once for each message.

    A response that is not paired because it went to another destination is noted too.

    Args:
        exchange: the captured exchange.
        setting: the given facts.
        messages: the messages of the exchange as `readings` returns them; None to read them.
    """
    for carrier, message in (messages or readings(exchange, setting)).items():
        yield from habits_of(message, carrier)
    if exchange.misdirected and exchange.response is not None:
        yield MISDIRECTED


# Stacks by their habits

TIBCO_MARKS: Final = ("Content_Type", "SoapAction", "Mime_Version")
WEBSPHERE_MARKS: Final = ("SOAPJMS_requestIRI",)
SPRING_MARKS: Final = ("SOAPJMS_contentLength", "SOAPJMS_acceptEncoding")
STACK_MARKS: Final = frozenset({*TIBCO_MARKS, *WEBSPHERE_MARKS, *SPRING_MARKS})
"""The properties whose presence alone identifies a stack."""


def _has(*others: str) -> Callable[[Reading], bool]:
    return lambda message: any(message.message.properties.value(name) is not None for name in others)


def _is_spring(message: Reading) -> bool:
    if _has(*SPRING_MARKS)(message):
        return True
    there = message.message.properties.text
    return bool(there(names.CONTENT_TYPE)) and not any(map(there, (names.REQUEST_URI, names.BINDING_VERSION)))


def _is_cxf(message: Reading) -> bool:
    if message.record.direction is Direction.RESPONSE:
        return message.text(names.SOAP_ACTION) is not None
    is_marked = _quoted_action(message, Carrier.REQUEST) or _is_soap12(message)  # CXF quotes with SOAP 1.1 only
    return is_marked and message.text(names.IS_FAULT) is not None


def _is_soap12(message: Reading) -> bool:
    kind = message.content_type
    media_type = SoapVersion.SOAP_12.media_type
    return kind is not None and media_type in (kind.media_type, kind.parameters.get("start-info"))


DIALECT_MARKS: Final[tuple[tuple[str, Callable[[Reading], bool]], ...]] = (
    ("tibco", _has(*TIBCO_MARKS)),
    ("websphere", _has(*WEBSPHERE_MARKS)),
    ("spring-ws", _is_spring),
    ("cxf", _is_cxf),
)
"""The marks of each stack, the surest first. The absence of something proves nothing if the message follows the
rules."""


def guess_dialect(message: Reading) -> str | None:
    """Guess from a message's habits which stack sent it; None if it shows no marks of a known stack.

    The guess is for people: no rule depends on it.
    """
    if not message.described.is_short:
        return _first_mark(message)
    marks = stack_marks_of(message.message.properties)
    return _guess_by_properties(message.described.shape, marks, message.record.direction)


def stack_marks_of(properties: Properties) -> frozenset[str]:
    """Return which properties there are whose presence alone identifies a stack."""
    return frozenset(each.name for each in properties if each.name in STACK_MARKS and each.value is not None)


def _first_mark(message: Reading) -> str | None:
    return next((name for name, mark in DIALECT_MARKS if mark(message)), None)


@lru_cache(maxsize=1024)
def _guess_by_properties(shape: PropertiesShape, there: frozenset[str], direction: Direction | None) -> str | None:
    described = shape.described
    more = (Property(name, PropertyType.STRING, "") for name in there if described.properties.lookup(name) is None)
    message = Message(message_type=MessageType.BYTES, properties=Properties((*described.properties, *more)))
    return _first_mark(Reading(message, described.profile, direction=direction))
