"""Where a tap gets its copies: how each broker copies its traffic, and where a STOMP broker speaks AMQP.

The table has one row a broker: where it copies its traffic to, if it is told, and what it has to be told. A copy
names another destination than its original was sent to; `translate` gives it its headers back.

Only AMQP shows the types of properties, so a tap on a STOMP broker looks for its AMQP. An address is knocked at
before a password is sent there, and taken only if what is sent over STOMP is seen there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from threading import Event
from typing import Final
from urllib.parse import urlsplit

from brokers.adapter.failover import read_failover
from brokers.connection import Connection, Delivery
from brokers.errors import BrokerError
from brokers.message import (
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    PropertyValue,
    as_text,
    changed,
    topic,
)
from brokers.schemes import connect
from soapjms.capture.recorder import MIRROR_PREFIX, from_mirror
from soapjms.ping import PING_PREFIX
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import REQUEST_URI
from soapjms.protocol.record import Direction
from soapjms.protocol.uri import Mode, parse

AMQP: Final[Mapping[str, tuple[str, int]]] = {"stomp": ("amqp", 5672), "stomp+ssl": ("amqps", 5671)}
"""By the scheme of a STOMP URL: that of AMQP, no less safe, and the port where that usually is."""

ONLY_STOMP: Final = frozenset({"clientId", "dialect", "deadLetters", "heartbeat"})
"""Parameters of a STOMP URL that mean nothing here."""

KNOCK_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 3.0


def amqp_urls(url: str, port: int | None = None, *, shares_ports: bool = False) -> list[str]:
    """Return where the broker of a STOMP URL may speak AMQP; nowhere for other URLs, and for several brokers.

    Args:
        url: of one broker, with user and password, which go on into what is returned.
        port: where, if that is known.
        shares_ports: look at the port of the URL too.
    """
    urls = read_failover(url, reconnect=True).urls
    parts = urlsplit(urls[0])
    if len(urls) != 1 or parts.scheme.lower() not in AMQP:
        return []
    scheme, usual = AMQP[parts.scheme.lower()]
    who, at, _ = parts.netloc.rpartition("@")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    written = urls[0] if url.lower().startswith("failover:") else url  # in the former reconnecting stands elsewhere
    query = "&".join(each for each in urlsplit(written).query.split("&") if each.partition("=")[0] not in ONLY_STOMP)
    ports = [parts.port, usual] if shares_ports else [usual]
    wanted = dict.fromkeys(ports if port is None else [port])  # each once
    return [f"{scheme}://{who}{at}{host}:{each}{'?' * bool(query)}{query}" for each in wanted if each is not None]


def copies_reach(sender: Connection, watcher: Connection, source: Destination, timeout: float = PROBE_SECONDS) -> bool:
    """Say whether `watcher` sees at `source` a copy of what `sender` sends, which nobody else gets.

    Raises:
        BrokerError: it cannot be sent, or the source not be read.
    """
    seen, probe = Event(), f"{PING_PREFIX}{token_hex(8)}"

    def look(delivery: Delivery) -> None:
        if delivery.message.correlation_id == probe:
            seen.set()

    with watcher.consume(source, look, prefetch=100, auto_accept=True):
        nowhere = sender.temporary(fresh=False)
        try:
            sender.send(probe_message(nowhere, probe))
            return seen.wait(timeout)
        finally:
            sender.end_temporary(nowhere)


def probe_message(destination: Destination, correlation_id: str) -> Message:
    """Return a message to see copies of."""
    return Message(
        message_type=MessageType.BYTES,
        body=b"",
        destination=destination,
        correlation_id=correlation_id,
        delivery_mode=DeliveryMode.NON_PERSISTENT,
    )


def typed_view(
    stomp: Connection, url: str, source: Destination, port: int | None = None, *, shares_ports: bool = False
) -> Connection | None:
    """Connect over AMQP to the broker that `stomp` is connected to; None if that cannot be done.

    Args:
        stomp: the connection.
        url: its URL.
        source: where the broker's copies are.
        port: where AMQP is; None to look where it usually is.
        shares_ports: look at the port of the URL too.

    Raises:
        UsageError: nothing of use is at the `port`.
    """
    why = []
    for each in amqp_urls(url, port, shares_ports=shares_ports):
        try:
            found = _enter(stomp, each, source)
        except (BrokerError, ImportError) as error:  # not installed: then there are no types
            found = f"{error}"
        if isinstance(found, Connection):
            return found
        why.append(found)
    if port is not None:
        raise UsageError(f"no AMQP at port {port}: {'; '.join(why) or 'that is for one broker, over STOMP'}")
    return None


def _enter(stomp: Connection, url: str, source: Destination) -> Connection | str:
    """Connect to a place, or say why not."""
    from brokers.amqp.dial import speaks_amqp  # needs the extra `amqp`

    if not speaks_amqp(url, KNOCK_SECONDS):
        return "nobody there wants a login for AMQP 1.0"
    opened = connect(url)
    try:
        if copies_reach(stomp, opened, source):
            return opened
    except BaseException:
        opened.close()
        raise
    opened.close()
    return (
        f"{opened.capabilities.broker} is there, and shows at {source} no copy of what is sent over STOMP: "
        "it is another broker, or has to be told to copy"
    )


@dataclass(frozen=True, slots=True)
class TapPoint:
    """How one broker is tapped.

    Attributes:
        name: what `soapjms capture --setting` calls it.
        source: the topic where the copies are.
        shares_ports: it may speak AMQP at the port where it speaks STOMP.
        translate: gives a copy its original headers back.
        file: where the setting belongs.
        setting: what is to be written there.
    """

    name: str
    source: Destination
    translate: Callable[[Message], Message]
    file: str
    setting: str
    shares_ports: bool = False


DIVERTED: Final = ("_AMQ_ORIG_", "JMS_AMQP_MA_x-opt-ORIG-")
"""How the properties begin in which Artemis says where a copy was. The second is what came over AMQP, where it is an
annotation; a tap over STOMP sees both."""

OF_STOMP: Final = frozenset(
    "__AMQ_CID content-length content-type destination destination-type persistent receipt transaction".split()
)
"""Headers of a sender over STOMP, which Artemis shows to consumers over AMQP as if they were properties."""

ANYCAST: Final = "1"
TEMPORARY: Final[Mapping[str, DestinationKind]] = {
    "temp-queue.": DestinationKind.TEMPORARY_QUEUE,
    "temp-topic.": DestinationKind.TEMPORARY_TOPIC,
}
"""How names of temporary destinations begin that STOMP clients made on Artemis."""


def from_divert(copy: Message) -> Message:
    """Give a copy from a divert of Artemis its destination and message id back: the `translate` of a tap on one.

    What Artemis added is taken away, and what it shows of STOMP. A temporary queue of a Java client is called a queue,
    as nothing tells it from one but that a request names it. A message from elsewhere stays as it is.
    """
    told = {name: value for name, _, value in reversed(copy.properties)}  # of a name that comes twice the first value
    address = _original(told, "ADDRESS")
    if address is None:
        return copy
    multicast = _original(told, "ROUTING_TYPE") not in (None, ANYCAST)
    came_over_stomp = told.get("destination") is not None
    of_stomp = OF_STOMP if came_over_stomp else frozenset()
    kept = [each for each in copy.properties if not each[0].startswith(DIVERTED) and each[0] not in of_stomp]
    return changed(
        copy,
        destination=_named(Destination(DestinationKind.TOPIC if multicast else DestinationKind.QUEUE, address)),
        reply_to=None if copy.reply_to is None else _named(_replied(copy.reply_to, came_over_stomp)),
        message_id=_id_of(copy, told),
        properties=Properties(kept),
    )


def _original(told: Mapping[str, PropertyValue], what: str) -> str | None:
    """Read what Artemis says of the original, among the values of properties by their names."""
    here, annotated = DIVERTED
    return as_text(told.get(here + what)) or as_text(told.get(annotated + what.replace("_", "-")))


def _id_of(copy: Message, told: Mapping[str, PropertyValue]) -> str | None:
    """Return the JMSMessageID where it is seen, which is over AMQP; else the number that the original has."""
    if copy.message_id is not None and copy.message_id.startswith("ID:"):
        return copy.message_id
    return _original(told, "MESSAGE_ID") or copy.message_id


def _replied(reply_to: Destination, came_over_stomp: bool) -> Destination:
    """Call a reply destination a queue that Artemis calls a topic, as over STOMP nothing says what it is."""
    if came_over_stomp and reply_to.kind is DestinationKind.TOPIC:
        return Destination(DestinationKind.QUEUE, reply_to.name, reply_to.address)
    return reply_to


def _named(destination: Destination) -> Destination:
    """Call a temporary destination by the name that everybody on Artemis knows it by."""
    name = destination.name or destination.address or ""
    for prefix, kind in TEMPORARY.items():
        if name.startswith(prefix):
            return Destination(kind, name)
    return Destination(destination.kind, name)


CLASSIC: Final = TapPoint(
    "activemq",
    topic(f"{MIRROR_PREFIX}>"),
    from_mirror,
    "conf/activemq.xml; the broker has to be restarted",
    '<broker xmlns="http://activemq.apache.org/schema/core" ... useMirroredQueues="true">',
)
ARTEMIS: Final = TapPoint(
    "artemis",
    topic("soapjms.capture"),
    from_divert,
    "etc/broker.xml, within <core>; the broker reads it without a restart",
    """\
<diverts>
  <divert name="soapjms-capture">
    <address>#</address>
    <forwarding-address>soapjms.capture</forwarding-address>
    <filter string="_AMQ_ORIG_ADDRESS IS NULL AND _AMQ_NotifType IS NULL"/>
    <routing-type>MULTICAST</routing-type>
    <exclusive>false</exclusive>
  </divert>
</diverts>""",
    shares_ports=True,
)

TAPS: Final[Mapping[str, TapPoint]] = {
    "ActiveMQ": CLASSIC,
    "ActiveMQ-Artemis": ARTEMIS,
    "apache-activemq-artemis": ARTEMIS,
}
"""By what the broker calls itself in its capabilities, without its version; Artemis over AMQP in its own way."""


def direction_of(message: Message) -> Direction | None:
    """Say what a message is that was seen from outside, None where nothing tells.

    Without a reply destination it is a response or a one-way message. One that is where its own requestURI leads is the
    latter: a response is where the request wanted it. It may have a JMSCorrelationID, so that cannot tell.
    """
    where = message.destination
    if message.reply_to is not None or where is None or where.kind.is_temporary:
        return None
    uri = parse(message.properties.text(REQUEST_URI) or "", Mode.LENIENT)
    variant = "topic" if where.kind.is_topic else "queue"
    return Direction.ONE_WAY if (uri.variant, uri.destination) == (variant, where.name) else None


def tap_point(broker: str) -> TapPoint:
    """Return how a broker is tapped, by what it calls itself (`ActiveMQ/6.1.8`).

    Raises:
        UsageError: it has nothing to tap.
    """
    try:
        return TAPS[broker.partition("/")[0]]
    except KeyError:
        raise UsageError(
            f"the broker {broker!r} has nothing to tap; known are: ActiveMQ, ActiveMQ-Artemis. A Client and a "
            "Dispatcher record what they send and get with recorder=soapjms.Recorder(PATH)"
        ) from None
