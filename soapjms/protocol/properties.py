"""The binding properties: one table, from which everything else about them is derived.

For each property it has the type of the value, the default, the places where it may be set, the JMS header or
`SOAPJMS_` property that it becomes, and its treatment in the requestURI; the precedence of sources follows below. To
add a `SOAPJMS_` property, also set its value in `message_parts.message_properties`, from `requesting.Endpoint`; a
parameter of URIs is listed in `uri.model.PARAMETERS` as well.

Spec: SOAP/JMS 2.2, 2.2.4, 3.4.4, 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from brokers.message import DEFAULT_PRIORITY, DeliveryMode
from soapjms.protocol import names
from soapjms.protocol.errors import InvalidPropertyError
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.uri.model import SAME_IN_JNDI
from soapjms.protocol.values import BOOLEAN, DELIVERY_MODE, MILLISECONDS, PRIORITY, TEXT, Type, Value, uncarried


class Group(StrEnum):
    """The three groups of SOAP/JMS 2.2."""

    CONNECTION = "connection to a destination"
    HEADER = "JMS message header"
    MESSAGE = "JMS message property"


class Treatment(StrEnum):
    """How a client treats a property of the URI when it forms the requestURI (SOAP/JMS 2.2.4)."""

    AS_IS = "as is"
    SHOULD_EXCLUDE = "SHOULD exclude"
    MUST_EXCLUDE = "MUST exclude"
    NOT_IN_URI = "never in the URI"


class Source(StrEnum):
    """Where a property may be set."""

    ENVIRONMENT = "environment"
    URI = "URI"
    WSDL = "element of a WSDL"
    OPERATION = "attribute of a WSDL's SOAP operation"


class Origin(StrEnum):
    """Where the effective value came from, in order of precedence: the first wins."""

    ENVIRONMENT = "environment"
    URI = "URI"
    PORT = "port"
    SERVICE = "service"
    BINDING = "binding"
    DEFAULT = "default"


class Carrier(StrEnum):
    """The messages of an exchange."""

    REQUEST = "request"
    ONE_WAY = "one-way"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingProperty:
    """One row of the table.

    Attributes:
        name: the local name in the profile's namespace, and the name of its URI parameter.
        group: its group.
        type: the type of its value.
        default: the default value, or None.
        sources: where it may be set.
        treatment: how it is treated in the requestURI.
        header: the field of a `Message` that it becomes, or None.
        message_property: the `SOAPJMS_` property that it becomes, or None.
        carriers: the messages that carry it.
        section: the section of the specification that defines it.
    """

    name: str
    group: Group
    type: Type
    default: Value | None = None
    sources: frozenset[Source] = frozenset()
    treatment: Treatment = Treatment.NOT_IN_URI
    header: str | None = None
    message_property: str | None = None
    carriers: frozenset[Carrier] = frozenset()
    section: str


_ANYWHERE: Final = frozenset({Source.ENVIRONMENT, Source.URI, Source.WSDL})
_SENT: Final = frozenset({Carrier.REQUEST, Carrier.ONE_WAY})
_REQUEST: Final = frozenset({Carrier.REQUEST})
_ALL: Final = frozenset(Carrier)
_URI: Final = frozenset({Source.URI})

BINDING_PROPERTIES: Final[Mapping[str, BindingProperty]] = MappingProxyType(
    {
        row.name: row
        for row in (
            BindingProperty(
                name="lookupVariant", group=Group.CONNECTION, type=TEXT, section="2.2.1",
                sources=_URI, treatment=Treatment.AS_IS,
            ),
            BindingProperty(
                name="destinationName", group=Group.CONNECTION, type=TEXT, section="2.2.1",
                sources=_URI, treatment=Treatment.AS_IS, header="destination", carriers=_SENT,
            ),
            *(
                BindingProperty(
                    name=name, group=Group.CONNECTION, type=TEXT, section="2.2.1",
                    sources=_ANYWHERE, treatment=Treatment.SHOULD_EXCLUDE,
                )
                # the last one is a family: `jndi-` followed by the name of a JNDI environment entry
                for name in ("jndiConnectionFactoryName", "jndiInitialContextFactory", "jndiURL", "jndi-")
            ),
            BindingProperty(
                name="deliveryMode", group=Group.HEADER, type=DELIVERY_MODE, section="2.2.2",
                default=DeliveryMode.PERSISTENT.value, sources=_ANYWHERE, treatment=Treatment.SHOULD_EXCLUDE,
                header="delivery_mode", carriers=_SENT,
            ),
            BindingProperty(
                name="timeToLive", group=Group.HEADER, type=MILLISECONDS, section="2.2.2", default=0,
                sources=_ANYWHERE, treatment=Treatment.SHOULD_EXCLUDE, header="expiration", carriers=_SENT,
            ),
            BindingProperty(
                name="priority", group=Group.HEADER, type=PRIORITY, section="2.2.2", default=DEFAULT_PRIORITY,
                sources=_ANYWHERE, treatment=Treatment.SHOULD_EXCLUDE, header="priority", carriers=_SENT,
            ),
            BindingProperty(
                name="replyToName", group=Group.HEADER, type=TEXT, section="2.2.2",
                sources=_ANYWHERE, treatment=Treatment.MUST_EXCLUDE, header="reply_to", carriers=_REQUEST,
            ),
            BindingProperty(
                name="topicReplyToName", group=Group.HEADER, type=TEXT, section="2.2.2",
                sources=_ANYWHERE, treatment=Treatment.SHOULD_EXCLUDE, header="reply_to", carriers=_REQUEST,
            ),
            BindingProperty(
                name="targetService", group=Group.MESSAGE, type=TEXT, section="2.2.3",
                sources=frozenset({Source.URI, Source.ENVIRONMENT}), treatment=Treatment.MUST_EXCLUDE,
                message_property=names.TARGET_SERVICE, carriers=_SENT,
            ),
            BindingProperty(
                name="bindingVersion", group=Group.MESSAGE, type=TEXT, section="2.2.3",
                default=names.BINDING_VERSION_VALUE, message_property=names.BINDING_VERSION, carriers=_ALL,
            ),
            BindingProperty(
                name="contentType", group=Group.MESSAGE, type=TEXT, section="2.2.3",
                message_property=names.CONTENT_TYPE, carriers=_ALL,
            ),
            BindingProperty(
                name="contentEncoding", group=Group.MESSAGE, type=TEXT, section="REC 2.2.3",
                sources=frozenset({Source.ENVIRONMENT}), message_property=names.CONTENT_ENCODING, carriers=_ALL,
            ),
            BindingProperty(
                name="soapAction", group=Group.MESSAGE, type=TEXT, section="2.2.3",
                sources=frozenset({Source.ENVIRONMENT, Source.OPERATION}),
                message_property=names.SOAP_ACTION, carriers=_SENT,
            ),
            BindingProperty(
                name="isFault", group=Group.MESSAGE, type=BOOLEAN, section="2.2.3", default=False,
                message_property=names.IS_FAULT, carriers=frozenset({Carrier.RESPONSE}),
            ),
            BindingProperty(
                name="requestURI", group=Group.MESSAGE, type=TEXT, section="2.2.3",
                message_property=names.REQUEST_URI, carriers=_ALL,
            ),
        )
    }
)  # fmt: skip

PROPERTY_NAMES: Final = frozenset(
    spelled
    for row in BINDING_PROPERTIES.values()
    if row.message_property is not None
    for spelled in (row.message_property, *(each.spelled(row.message_property) for each in names.DIALECTS.values()))
    if spelled is not None
)
"""The names of the message properties of the binding, in any dialect."""

EXCLUDED: Final = frozenset(
    row.name
    for row in BINDING_PROPERTIES.values()
    if row.treatment in (Treatment.SHOULD_EXCLUDE, Treatment.MUST_EXCLUDE)
)
MUST_EXCLUDE: Final = frozenset(
    row.name for row in BINDING_PROPERTIES.values() if row.treatment is Treatment.MUST_EXCLUDE
)


def row_of(name: str) -> BindingProperty | None:
    """Return the row of a property by its name, one row for all `jndi-` names; None for an unknown name."""
    if name.startswith("jndi-"):
        name = "jndi-"
    return BINDING_PROPERTIES.get(name)


def request_uri(uri: JmsUri) -> str:
    """Derive the requestURI from the URI: without the parameters to exclude (SHOULD or MUST) and apparent secrets.

    Spec: SOAP/JMS 2.2.3 requestURI, 2.2.4; Protocol-2021, Protocol-2024.
    """
    return uri.without(EXCLUDED | {each.name for each in uri.parameters if each.is_secret})


# Effective values


class EffectiveValue(NamedTuple):
    """An effective value, and where it came from."""

    value: Value
    origin: Origin


class Effective(dict[str, EffectiveValue]):
    """The effective binding properties of one port or call, by name.

    Attributes:
        overridden: values that were set but are not effective, by property name, those of the stronger origins first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.overridden: dict[str, list[EffectiveValue]] = {}

    def offer(self, name: str, value: EffectiveValue) -> None:
        """Set a value unless a stronger origin gave one; otherwise note it as overridden."""
        if self.setdefault(name, value) is not value:
            self.overridden.setdefault(name, []).append(value)

    def ignore(self, name: str) -> None:
        """Move a property to `overridden`, as it was set but has no meaning here."""
        if name in self:
            self.overridden.setdefault(name, []).insert(0, self.pop(name))

    def value(self, name: str) -> Value | None:
        """Return the value of a property from any origin; None if it has none."""
        found = self.get(name)
        return None if found is None else found.value

    def stated(self, name: str) -> Value | None:
        """Return the value of a property that was set; None if it has no value but a default."""
        found = self.get(name)
        return None if found is None or found.origin is Origin.DEFAULT else found.value


def shown(name: str, value: Value) -> Value:
    """Return a value as people write it, such as a delivery mode by its name."""
    row = row_of(name)
    return value if row is None else row.type.shown(value)


def read_value(name: str, text: str, origin: Origin) -> Value:
    """Read the value of a property.

    Raises:
        InvalidPropertyError: its type does not allow the value; the message names property, value, place and rule.
    """
    row = row_of(name)
    if row is None:
        known = ", ".join(BINDING_PROPERTIES)
        near = get_close_matches(name, BINDING_PROPERTIES, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidPropertyError(f"unknown binding property {name!r} in {origin}{meant}; known are: {known}")
    try:
        return row.type.read(text)
    except (ValueError, KeyError):
        problem = uncarried(text)  # such a text cannot be sent, and may hold a secret, so it is not shown
        seen = f"is {text!r}" if problem is None else f"holds {problem}"
        raise InvalidPropertyError(
            f"{name} {seen} in {origin}; accepted is {row.type.accepted} (SOAP/JMS {row.section})"
        ) from None


def resolve(
    uri: JmsUri | None = None,
    environment: Mapping[str, Value] = MappingProxyType({}),
    wsdl: Mapping[Origin, Mapping[str, str]] = MappingProxyType({}),
) -> Effective:
    """Work out the effective properties, each with its origin: environment, URI, port, service, binding, default.

    `topicReplyToName` is ignored if `replyToName` is set or the variant is jndi, and so is the weaker of two names for
    one setting (on one level the `jndi-` one). Ignored values are kept in `overridden`; custom parameters of the URI
    are not binding properties and are left out.

    Args:
        uri: the URI of the destination; the last value of a repeated parameter counts.
        environment: the properties that the program sets, by name.
        wsdl: the extension elements of the levels port, service and binding.

    Raises:
        InvalidPropertyError: a value is not valid, a property is set where it may not be, or one level has both reply
            names.

    Spec: SOAP/JMS 2.2, 2.2.2, 3.4.4, 3.4.5; Protocol-2001, Protocol-2002, WSDLUsage-3002, WSDLUsage-3003.
    """
    levels: list[tuple[Origin, Source, Mapping[str, Value]]] = [
        (Origin.ENVIRONMENT, Source.ENVIRONMENT, environment),
        (Origin.URI, Source.URI, _of_uri(uri)),
        *((level, Source.WSDL, wsdl.get(level, {})) for level in (Origin.PORT, Origin.SERVICE, Origin.BINDING)),
    ]
    effective = Effective()
    for origin, source, values in levels:
        _refuse_both_reply_names(values, origin)
        for name, value in values.items():
            check_source(name, source, origin)
            effective.offer(name, EffectiveValue(read_value(name, _as_text(value), origin), origin))
    for row in BINDING_PROPERTIES.values():
        if row.default is not None:
            effective.setdefault(row.name, EffectiveValue(row.default, Origin.DEFAULT))
    if "replyToName" in effective or effective.value("lookupVariant") == "jndi":
        effective.ignore("topicReplyToName")
    for pair in SAME_IN_JNDI.items():
        if all(name in effective for name in pair):
            effective.ignore(max(pair, key=lambda name: list(Origin).index(effective[name].origin)))
    return effective


def _of_uri(uri: JmsUri | None) -> Mapping[str, Value]:
    if uri is None:
        return {}
    values: dict[str, Value] = {name: value for name, value in uri.effective().items() if _settable_in_uri(name)}
    if uri.variant is not None and uri.destination is not None:
        values |= {"lookupVariant": uri.variant, "destinationName": uri.destination}
    return values


def _refuse_both_reply_names(values: Mapping[str, Value], origin: Origin) -> None:
    if "replyToName" in values and "topicReplyToName" in values:
        raise InvalidPropertyError(
            f"replyToName is {values['replyToName']!r} and topicReplyToName is {values['topicReplyToName']!r} in one "
            f"{origin}; accepted is one of them (SOAP/JMS 2.2.2, RFC 6167 4.3.1)"
        )


def _settable_in_uri(name: str) -> bool:
    """Say whether a name is that of a binding property that URIs may set; custom parameters may have any name.

    Variant and destination name are parts of the URI, not parameters; `jndi-` without a name is ignored.
    """
    row = row_of(name)
    return row is not None and row.treatment is not Treatment.AS_IS and Source.URI in row.sources and name != "jndi-"


def check_source(name: str, source: Source, origin: Origin) -> None:
    """Check that a property may be set in a source; `read_value` refuses unknown properties.

    Raises:
        InvalidPropertyError: the property may not be set there; the message says where it may be.
    """
    row = row_of(name)
    if row is not None and source not in row.sources:
        places = ", ".join(row.sources) or "nowhere: the binding sets it"
        raise InvalidPropertyError(f"{name} is set in {origin}; it may be set in: {places} (SOAP/JMS {row.section})")


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
