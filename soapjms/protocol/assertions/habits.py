"""Known habits of real stacks that break nothing: worth a note, never a failure.

Each is a row: a code, what it says, and how to see it in a message.

Spec: capture record, "Verdicts" (notes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from brokers.message import PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions.judge import readings
from soapjms.protocol.assertions.model import Setting
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.properties import Carrier
from soapjms.protocol.reading import Reading
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
    flag = message.message.properties.lookup(names.IS_FAULT)
    return flag is not None and not message.message.untyped and flag.type is not PropertyType.BOOLEAN


def _lenient_uri(message: Reading, carrier: Carrier) -> bool:
    uri = message.request_uri
    return uri is not None and uri.well_formed and not parse(uri.text, Mode.STRICT).well_formed


def _encoding_unknown_to_profile(message: Reading, carrier: Carrier) -> bool:
    return message.profile.content_encodings is None and message.text(names.CONTENT_ENCODING) is not None


HABITS: Final = (
    Habit("quotedSoapAction", "SOAPJMS_soapAction stands in quotes, as the HTTP header has it", _quoted_action),
    Habit("isFaultOnRequest", "SOAPJMS_isFault is on a request, where it says nothing", _fault_flag_on_request),
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
)


def habits(exchange: Exchange, setting: Setting) -> Iterator[tuple[str, str]]:
    """Yield the code and text of each habit that a message of the exchange shows, once for each message."""
    for carrier, message in readings(exchange, setting.profile).items():
        for habit in HABITS:
            if habit.seen(message, carrier):
                yield habit.code, habit.text
