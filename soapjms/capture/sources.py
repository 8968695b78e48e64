"""The source of a tap's copies: how each broker copies its traffic, and where a STOMP broker speaks AMQP.

The table has one row per broker: where it copies its traffic to, and the setting that makes it do so. A copy names
another destination than its original; `translate` restores the original headers.

Only AMQP shows the types of properties, so a tap on a STOMP broker looks for its AMQP port. The protocol at an address
is checked before a password is sent there, and the address is used only if messages sent over STOMP are seen there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Final
from urllib.parse import urlsplit

from brokers.adapter.failover import read_failover
from brokers.connection import Connection, Delivery
from brokers.errors import BrokerError
from brokers.message import (
    Destination,
    DestinationKind,
    Message,
    Properties,
    PropertyValue,
    as_text,
    changed,
    topic,
)
from brokers.schemes import connect
from soapjms.capture.recorder import MIRROR_PREFIX, from_mirror
from soapjms.ping import new_ping_id, ping_message
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import REQUEST_URI
from soapjms.protocol.record import Direction
from soapjms.protocol.uri import Mode, parse

AMQP: Final[Mapping[str, tuple[str, int]]] = {"stomp": ("amqp", 5672), "stomp+ssl": ("amqps", 5671)}
"""The AMQP scheme, no less secure, and its usual port, by the scheme of a STOMP URL."""

ONLY_STOMP: Final = frozenset({"clientId", "dialect", "deadLetters", "heartbeat"})
"""Parameters of a STOMP URL that have no meaning over AMQP."""

PROBE_SECONDS: Final = 3.0


def amqp_urls(url: str, port: int | None = None, *, shares_ports: bool = False) -> list[str]:
    """Return the URLs where the broker of a STOMP URL may speak AMQP; none for other URLs, or for several brokers.

    Args:
        url: the URL of one broker; its user and password are copied into the result.
        port: the AMQP port, if it is known.
        shares_ports: try the port of the URL too.
    """
    urls = read_failover(url, reconnect=True).urls
    parts = urlsplit(urls[0])
    if len(urls) != 1 or parts.scheme.lower() not in AMQP:
        return []
    scheme, usual = AMQP[parts.scheme.lower()]
    who, at, _ = parts.netloc.rpartition("@")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    written = urls[0] if url.lower().startswith("failover:") else url  # failover: has its reconnect options outside
    query = "&".join(each for each in urlsplit(written).query.split("&") if each.partition("=")[0] not in ONLY_STOMP)
    ports = [parts.port, usual] if shares_ports else [usual]
    wanted = dict.fromkeys(ports if port is None else [port])  # each once
    return [f"{scheme}://{who}{at}{host}:{each}{'?' * bool(query)}{query}" for each in wanted if each is not None]


def copies_reach(sender: Connection, watcher: Connection, source: Destination, timeout: float = PROBE_SECONDS) -> bool:
    """Say whether `watcher` sees, at `source`, a copy of a message from `sender` that nobody else gets.

    Raises:
        BrokerError: the message cannot be sent, or the source cannot be read.
    """
    seen, probe = Event(), new_ping_id()

    def look(delivery: Delivery) -> None:
        if delivery.message.correlation_id == probe:
            seen.set()

    with watcher.consume(source, look, prefetch=100, auto_accept=True):
        nowhere = sender.temporary(fresh=False)
        try:
            sender.send(ping_message(probe, nowhere))
            return seen.wait(timeout)
        finally:
            sender.end_temporary(nowhere)


def typed_view(
    stomp: Connection, url: str, source: Destination, port: int | None = None, *, shares_ports: bool = False
) -> Connection | None:
    """Connect over AMQP to the broker that `stomp` is connected to; return None if that fails.

    Args:
        stomp: the connection over STOMP.
        url: its URL.
        source: the destination with the broker's copies.
        port: the AMQP port; None to try the usual one.
        shares_ports: try the port of the URL too.

    Raises:
        UsageError: there is no AMQP of this broker at the `port`.
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
        raise UsageError(f"no AMQP at port {port}: {'; '.join(why) or 'this needs the STOMP URL of one broker'}")
    return None


def _enter(stomp: Connection, url: str, source: Destination) -> Connection | str:
    """Connect to a URL, or say why that failed."""
    from brokers.amqp.probe import speaks_amqp  # needs the extra `amqp`

    if not speaks_amqp(url, PROBE_SECONDS):
        return "nothing there asks for an AMQP 1.0 login"
    opened = connect(url)
    try:
        if copies_reach(stomp, opened, source):
            return opened
    except BaseException:
        opened.close()
        raise
    opened.close()
    return (
        f"{opened.capabilities.broker} answers there, but {source} shows no copies of messages sent over STOMP: "
        "it is another broker, or is not set up to copy"
    )


@dataclass(frozen=True, slots=True)
class TapPoint:
    """How one broker is tapped.

    Attributes:
        name: its name for `soapjms capture --setting`.
        source: the topic with the copies.
        shares_ports: whether it may speak AMQP at its STOMP port.
        translate: restores the original headers of a copy.
        file: the configuration file that the setting belongs in.
        setting: the text of the setting.
    """

    name: str
    source: Destination
    translate: Callable[[Message], Message]
    file: str
    setting: str
    shares_ports: bool = False


DIVERTED: Final = ("_AMQ_ORIG_", "JMS_AMQP_MA_x-opt-ORIG-")
"""Prefixes of the properties in which Artemis describes the original of a copy. The second one marks messages that
came over AMQP, where it is an annotation; a tap over STOMP sees both."""

OF_STOMP: Final = frozenset(
    "__AMQ_CID content-length content-type destination destination-type persistent receipt transaction".split()
)
"""Headers of a STOMP sender that Artemis shows to AMQP consumers as if they were properties."""

ANYCAST: Final = "1"
TEMPORARY: Final[Mapping[str, DestinationKind]] = {
    "temp-queue.": DestinationKind.TEMPORARY_QUEUE,
    "temp-topic.": DestinationKind.TEMPORARY_TOPIC,
}
"""Prefixes of the names of temporary destinations that STOMP clients made on Artemis."""


def from_divert(copy: Message) -> Message:
    """Restore destination and message id of a copy from a divert of Artemis: the `translate` of a tap on one.

    Properties that Artemis added, or took from STOMP headers, are removed. A temporary queue of a Java client appears
    as a queue, as only the request that names it tells the two apart. Other messages stay as they are.
    """
    told = {name: value for name, _, value in reversed(copy.properties)}  # of a repeated name, the first value
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
    """Return one fact about the original from the properties that Artemis added, or None."""
    here, annotated = DIVERTED
    return as_text(told.get(here + what)) or as_text(told.get(annotated + what.replace("_", "-")))


def _id_of(copy: Message, told: Mapping[str, PropertyValue]) -> str | None:
    """Return the JMSMessageID if it is visible, which it is over AMQP; else the number of the original."""
    if copy.message_id is not None and copy.message_id.startswith("ID:"):
        return copy.message_id
    return _original(told, "MESSAGE_ID") or copy.message_id


def _replied(reply_to: Destination, came_over_stomp: bool) -> Destination:
    """Turn a reply destination that came over STOMP into a queue: Artemis calls it a topic without knowing."""
    if came_over_stomp and reply_to.kind is DestinationKind.TOPIC:
        return Destination(DestinationKind.QUEUE, reply_to.name, reply_to.address)
    return reply_to


def _named(destination: Destination) -> Destination:
    """Give a temporary destination the name and kind that it has for all clients of Artemis."""
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
"""Tap points by the broker's name in its capabilities, without the version; Artemis has another name over AMQP."""


def direction_of(message: Message) -> Direction | None:
    """Return the direction of a message that was seen from outside, or None if it cannot be told.

    A message without a reply destination is a response or a one-way message. If it was sent where its own requestURI
    leads, it is one-way: a response goes where the request wanted it. A JMSCorrelationID may be in both.
    """
    where = message.destination
    if message.reply_to is not None or where is None or where.kind.is_temporary:
        return None
    uri = parse(message.properties.text(REQUEST_URI) or "", Mode.LENIENT)
    variant = "topic" if where.kind.is_topic else "queue"
    return Direction.ONE_WAY if (uri.variant, uri.destination) == (variant, where.name) else None


def tap_point(broker: str) -> TapPoint:
    """Return how to tap a broker, by its own name and version (`ActiveMQ/6.1.8`).

    Raises:
        UsageError: no way to tap this broker is known.
    """
    try:
        return TAPS[broker.partition("/")[0]]
    except KeyError:
        raise UsageError(
            f"the broker must be ActiveMQ or ActiveMQ-Artemis to be tapped, got {broker!r}. A Client or Dispatcher "
            "with recorder=soapjms.Recorder(PATH) records its own messages at any broker"
        ) from None
