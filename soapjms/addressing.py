"""What a `jms:` URI means on a connection: the destination, the fixed reply destination, and where replies may go.

Spec: RFC 6167 4.2, 4.3; SOAP/JMS 2.2.1, 2.2.2 replyToName.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from brokers.message import Destination, DestinationKind, Message, queue, topic
from brokers.naming import Names
from soapjms.protocol.errors import UsageError
from soapjms.protocol.properties import Effective, Value, resolve
from soapjms.protocol.uri import JmsUri, checked

VARIANTS: Final[Mapping[str, Callable[[Names, str, Mapping[str, str]], Destination]]] = {
    "jndi": lambda names, name, environment: names.lookup(name, environment),
    "queue": lambda names, name, environment: queue(name),
    "topic": lambda names, name, environment: topic(name),
}
"""The lookup variants, each with how it finds a destination."""


def read_uri(uri: str | JmsUri, environment: Mapping[str, Value]) -> tuple[JmsUri, Effective]:
    """Read a URI that the caller wants to use, and work out the effective properties.

    Raises:
        InvalidUriError, InvalidPropertyError: the URI or a property is not as the specification has it.
    """
    parsed = checked(uri.text, uri.mode) if isinstance(uri, JmsUri) else checked(uri)
    return parsed, resolve(parsed, environment)


def destination_of(uri: JmsUri, names: Names) -> Destination:
    """Find the destination that a URI names.

    Raises:
        UsageError: a lookup variant that is not supported.
        NameNotFoundError: a JNDI name that is not registered.
    """
    try:
        find = VARIANTS[str(uri.variant)]
    except KeyError:
        raise UsageError(f"the lookup variant {uri.variant!r} is none of: {', '.join(VARIANTS)}") from None
    return find(names, str(uri.destination), jndi_entries(uri.effective()))


def reply_destination_of(uri: JmsUri, properties: Effective, names: Names) -> Destination | None:
    """Find the fixed reply destination of the effective properties, None if the reply queue is ours to choose.

    For the variants queue and topic `replyToName` is a queue, `topicReplyToName` a topic.

    Raises:
        NameNotFoundError: a JNDI name that is not registered.

    Spec: SOAP/JMS 2.2.2; Protocol-2008, Protocol-2070.
    """
    name, topic_name = properties.value("replyToName"), properties.value("topicReplyToName")
    if name is not None:
        if uri.variant == "jndi":
            entries = jndi_entries({each: str(found.value) for each, found in properties.items()})
            return names.lookup(str(name), entries)
        return queue(str(name))
    return None if topic_name is None else topic(str(topic_name))


def jndi_entries(values: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of the JNDI environment that the parameters `jndi-…` make: the prefix is taken off.

    Spec: RFC 6167 4.2.1.4.
    """
    return {name[5:]: value for name, value in values.items() if name.startswith("jndi-") and name != "jndi-"}


# Where a reply may go

FORBIDDEN_PREFIXES: Final = ("activemq.", "dlq.", "dlq::", "expiryqueue", "$")
"""Advisory, management and dead-letter destinations, in lower case."""

SPECIAL_CHARACTERS: Final = re.compile(r"[,*>?]|://")
"""What makes a broker take a name for something else: several destinations, a pattern, a destination with options."""


def reply_refusal(request: Message) -> str | None:
    """Say why a reply must not go to the request's JMSReplyTo, None if it may.

    It may go to any queue or temporary destination but the request's own and those of the broker itself: a request is
    anybody's, and its JMSReplyTo would make the service write wherever its sender likes.
    """
    reply = request.reply_to
    if reply is None:
        return "the message has no JMSReplyTo"
    if reply.kind is DestinationKind.TOPIC:
        return f"JMSReplyTo is {reply}; a reply goes to a queue or temporary destination"
    if not reply.name:
        own_form = reply.kind.is_temporary and reply.address
        return None if own_form else f"JMSReplyTo is a {reply.kind} without a name"
    return _name_refusal(reply, reply.name, request.destination)


def _name_refusal(reply: Destination, name: str, own: Destination | None) -> str | None:
    if own is not None and own.name == name:
        return f"JMSReplyTo is {reply}, the destination of the request itself"
    if reply.kind.is_temporary:
        return None
    if name.lower() == "dlq" or name.lower().startswith(FORBIDDEN_PREFIXES):
        return f"JMSReplyTo is {reply}, a destination of the broker's own"
    if SPECIAL_CHARACTERS.search(name):
        return f"JMSReplyTo is {reply}, which a broker may take for several destinations or a pattern"
    return None
