"""The meaning of a `jms:` URI: a destination on a connection, where replies may go, and the broker to connect to.

Connections are opened by connection factory, context factory and provider URL. The functions that do so take URIs from
the caller's own configuration, never from a message. They choose among the brokers that `Names` allows and add no
login, host or option themselves.

Spec: RFC 6167 4.2, 4.2.1, 4.2.2.1, 4.3, 4.3.2, 8.2.2; SOAP/JMS 2.2.1, 2.2.2 replyToName; Protocol-2060.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Self, Unpack

from brokers.arguments import destination_name, items
from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.errors import BrokerError
from brokers.message import MAX_ADDRESS_CHARACTERS, TEMPORARY_KINDS, Destination, DestinationKind, Message, queue, topic
from brokers.naming import INITIAL, PROVIDER_URL, SECRET, Names
from brokers.schemes import ConnectArguments, connect
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import Mep
from soapjms.protocol.properties import Effective, Origin
from soapjms.protocol.text import named
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value, uncarried
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.as_json import MEP_WORDS
from soapjms.protocol.wsdl.model import read_uri

VARIANTS: Final[Mapping[str, Callable[[Names, str, Mapping[str, str]], Destination]]] = {
    "jndi": lambda names, name, environment: names.lookup(name, environment),
    "queue": lambda names, name, environment: queue(name),
    "topic": lambda names, name, environment: topic(name),
}
"""The function that finds a destination, by lookup variant."""


def destination_of(uri: JmsUri, names: Names, properties: Effective | None = None) -> Destination:
    """Find the destination that a URI names.

    Args:
        uri: the URI.
        names: resolves the JNDI name of a URI of the variant `jndi`.
        properties: the effective binding properties; None if only those of the URI count.

    Raises:
        UsageError: the lookup variant is not supported, or no header can carry the name.
        NameNotFoundError: the JNDI name is not registered.
    """
    try:
        find = VARIANTS[str(uri.variant)]
    except KeyError:
        raise UsageError(f"the lookup variant must be one of {', '.join(VARIANTS)}, got {uri.variant!r}") from None
    values = uri.effective() if properties is None else _as_text(properties)
    return _carried(f"{uri.variant}:{uri.destination}", find(names, str(uri.destination), jndi_entries(values)))


def reply_destination_of(uri: JmsUri, properties: Effective, names: Names) -> Destination | None:
    """Find the fixed reply destination of the effective properties; None if the client chooses the reply queue.

    For the variants queue and topic `replyToName` is a queue, `topicReplyToName` a topic. An empty name names nothing.

    Raises:
        NameNotFoundError: the JNDI name is not registered.
        UsageError: the name of the queue or topic is a URI.

    Spec: SOAP/JMS 2.2.2; Protocol-2008, Protocol-2070.
    """
    name, topic_name = properties.value("replyToName"), properties.value("topicReplyToName")
    if name:
        if uri.variant == "jndi":
            return _carried(f"replyToName {name}", names.lookup(str(name), jndi_entries(_as_text(properties))))
        return queue(destination_name("replyToName", str(name)))
    return topic(destination_name("topicReplyToName", str(topic_name), "topic")) if topic_name else None


def soap_action_of(
    port: Port | None, properties: Effective, soap_action: str | None, operation: str | None, mep: Mep
) -> str | None:
    """Return the SOAP action of one message: the caller's, else None if the properties give one, else the operation's.

    Raises:
        UsageError: the port has no such operation, the operation has another message exchange pattern, or there is no
            port; `soap_action` is not a string, or holds characters that a message property cannot carry.

    Spec: SOAP/JMS 2.2.3 soapAction, 3.4.3; Protocol-2001, Protocol-2018.
    """
    if soap_action is not None and not isinstance(soap_action, str):
        raise UsageError(f"soap_action must be a string, or None to use the properties' value, got {soap_action!r}")
    if soap_action is not None:
        require_carried("soap_action", soap_action)
    if operation is None:
        return soap_action
    if port is None:
        raise UsageError(f"operation must come with a WSDL, got {operation!r} without one; see Client.from_wsdl")
    found = port.operation(operation)
    if found.mep is not mep:
        raise UsageError(f"the operation {operation!r} must be {MEP_WORDS[mep]} here, got {MEP_WORDS[found.mep]}")
    if soap_action is not None or properties.stated("soapAction") is not None:
        return soap_action
    return found.soap_action or None


def require_carried(what: str, text: str) -> str:
    """Return a caller's text that becomes a header or a property; `what` names it in the error.

    Raises:
        UsageError: the text holds characters that not every protocol can carry there.
    """
    problem = uncarried(text)
    if problem is not None:
        raise UsageError(
            f"{what} is {text!r}, which holds {problem}: no message header or property can carry that; leave it out"
        )
    return text


def _carried(what: str, destination: Destination) -> Destination:
    require_carried(f"the destination of {what}", destination.name or "")
    return destination


def _as_text(properties: Effective) -> Mapping[str, str]:
    return {name: str(found.value) for name, found in properties.items()}


def jndi_entries(values: Mapping[str, str]) -> dict[str, str]:
    """Return the JNDI environment that the `jndi-…` parameters describe, without that prefix.

    Spec: RFC 6167 4.2.1.4.
    """
    return {name[5:]: value for name, value in values.items() if name.startswith("jndi-") and name != "jndi-"}


# Where a reply may go

FORBIDDEN_PREFIXES: Final = ("activemq.", "dlq.", "dlq::", "expiryqueue", "$")
"""Advisory, management and dead-letter destinations, in lower case."""

SPECIAL_CHARACTERS: Final = re.compile(r"[,*>?]|://")
"""Characters that make a broker read a name as several destinations, a pattern, or a destination with options."""


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """Where replies may go: anybody can send a request, and its JMSReplyTo names where the service is to write.

    The request's own destination and the broker's own destinations are refused, whatever is allowed here.

    Attributes:
        queues: the names of the queues that may be written to; None for any.
        topics: the names of the topics that may be written to; None for any. All subscribers get a reply sent there.
    """

    queues: frozenset[str] | None = None
    topics: frozenset[str] | None = frozenset()

    @classmethod
    def of(cls, queues: bool | Collection[str], topics: bool | Collection[str]) -> Self:
        """Make a rule from a user's options: True for any destination, False for no destination, or a list of names.

        Raises:
            UsageError: an option has another type, such as a single string, or a name that is never allowed.
        """
        return cls(_allowed("reply_queues", queues), _allowed("reply_topics", topics))

    def refusal(self, request: Message) -> str | None:
        """Say why a reply must not go to the request's JMSReplyTo; None if it may."""
        reply = request.reply_to
        if reply is None:
            return "the message has no JMSReplyTo"
        name = reply.name or (reply.address if reply.kind in TEMPORARY_KINDS else None)
        if not name:
            return f"JMSReplyTo is a {reply.kind} without a name"
        if len(name) > MAX_ADDRESS_CHARACTERS:
            return f"JMSReplyTo is {named(reply)}, which has {len(name)} characters, more than {MAX_ADDRESS_CHARACTERS}"
        if (problem := _uncarried_in_name(name)) is not None:
            return f"JMSReplyTo is {named(reply)}, which holds {problem}"
        if not reply.name:
            return None
        if request.destination is not None and request.destination.name == reply.name:
            return f"JMSReplyTo is {named(reply)}, the destination of the request itself"
        return None if reply.kind in TEMPORARY_KINDS else self._of_name(reply, reply.name)

    def _of_name(self, reply: Destination, name: str) -> str | None:
        option, allowed = "reply_queues", self.queues
        if reply.kind is DestinationKind.TOPIC:
            option, allowed = "reply_topics", self.topics
        if allowed is not None and name not in allowed:
            return (
                f"JMSReplyTo is {named(reply)}, a {reply.kind} that the option {option} does not allow; use "
                f"{option}=True, or a list with that name (`soapjms serve`: --{option.replace('_', '-')[:-1]} NAME)"
            )
        why = never_written(name)
        return None if why is None else f"JMSReplyTo is {named(reply)}, {why}"


_uncarried_in_name: Final = lru_cache(maxsize=256)(uncarried)


def never_written(name: str) -> str | None:
    """Say why a reply must never go to a queue or topic of this name; None if it may."""
    if name.lower() == "dlq" or name.lower().startswith(FORBIDDEN_PREFIXES):
        return "a destination of the broker's own"
    if SPECIAL_CHARACTERS.search(name):
        return "which a broker may read as several destinations or a pattern"
    return None


def _allowed(option: str, given: bool | Collection[str]) -> frozenset[str] | None:
    if isinstance(given, bool):
        return None if given else frozenset()
    names = frozenset(items(given, option, "True for any, False for none, or a list of names"))
    for name in names:
        require_carried(option, destination_name(f"each of {option}", name, option.removeprefix("reply_")[:-1]))
        if not name or never_written(name) is not None:
            raise UsageError(f"{option} allows {name!r}, {never_written(name) or 'which is not a name'}; leave it out")
    return names


ENTRIES: Final[Mapping[str, str]] = {"jndiInitialContextFactory": INITIAL, "jndiURL": PROVIDER_URL}
"""Entries of the JNDI environment by the property that gives the same value; `resolve` leaves one of the two names."""


def connect_uri(
    uri: str | JmsUri | Port,
    names: Names,
    *,
    properties: Mapping[str, Value] = MappingProxyType({}),
    timeout: float = DEFAULT_TIMEOUT,
    **options: Unpack[ConnectArguments],
) -> Connection:
    """Connect to the broker that a URI or a WSDL's port leads to.

    The jndiConnectionFactoryName, jndiURL and `jndi-` parameters name the broker. Without them the connection factory
    is called `ConnectionFactory`. URIs of the variants queue and topic may have these parameters too.

    Args:
        uri: a URI from the caller's own configuration, or the port of a WSDL.
        names: the meaning of JNDI names, and the brokers that may be reached.
        properties: binding properties that take precedence over those of the URI.
        timeout: seconds that connecting may take.
        options: options of the adapter; see `brokers.connect`.

    Raises:
        InvalidUriError, InvalidPropertyError: the URI or a property does not follow the specification.
        InvalidWsdlError: the port cannot be used.
        UsageError: a parameter of the URI looks like a secret.
        NameNotFoundError: there is no such connection factory.
        NamingError: the broker is not allowed, or the URI names a class or URL that would reach out.
        ConnectionFailedError: no broker answers at the URL, or the credentials were refused.
    """
    _, effective = read_uri(uri, properties)
    return connect(broker_url_of(effective, names), timeout=timeout, **options)


def connect_url(url: str, timeout: float = DEFAULT_TIMEOUT) -> Connection:
    """Connect to the broker at a URL from the caller's own configuration.

    Raises:
        UsageError: the URL cannot be read; the error text repeats no password.
        BrokerError: there is no adapter for the URL, or no broker answers there.
    """
    try:
        return connect(url, timeout=timeout)
    except BrokerError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def broker_url_of(properties: Effective, names: Names) -> str:
    """Find the URL, for `brokers.connect`, of the broker that effective properties lead to; it may hold a login.

    Raises:
        UsageError: a JNDI entry from a URI or WSDL looks like a secret.
        NameNotFoundError, NamingError: see `connect_uri`.
    """
    for name, found in properties.items():
        if name.startswith("jndi-") and SECRET.search(name) and found.origin is not Origin.ENVIRONMENT:
            raise UsageError(
                f"{name} in {found.origin} looks like a secret, which must not be there (RFC 6167 4.4); "
                "put the broker's login into the URL of the allowed broker"
            )
    stated = {name: str(found.value) for name, found in properties.items()}
    environment = jndi_entries(stated) | {entry: stated[name] for name, entry in ENTRIES.items() if name in stated}
    return names.broker_url(stated.get("jndiConnectionFactoryName"), environment=environment)
