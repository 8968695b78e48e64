"""Where brokers copy their traffic to, if they are told: one row a broker, and what it has to be told.

A copy says otherwise than the original where it was sent; `translate` gives it its headers back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from brokers.message import Destination, DestinationKind, Message, Properties, topic
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import REQUEST_URI
from soapjms.protocol.record import Direction
from soapjms.protocol.uri import Mode, parse
from soapjms.recorder import MIRROR_PREFIX, from_mirror


@dataclass(frozen=True, slots=True)
class TapPoint:
    """How one broker is tapped.

    Attributes:
        name: what `soapjms capture --setting` calls it.
        source: the topic where the copies are.
        translate: gives a copy its original headers back.
        file: where the setting belongs.
        setting: what is to be written there.
    """

    name: str
    source: Destination
    translate: Callable[[Message], Message]
    file: str
    setting: str


DIVERTED: Final = "_AMQ_ORIG_"
"""How the properties begin in which Artemis says where a copy was."""

ADDED: Final = (DIVERTED, "JMS_AMQP_MA_x-opt-ORIG-")
"""How those begin that it adds to a copy; the second to what came over AMQP."""

ANYCAST: Final = "1"
TEMPORARY: Final[Mapping[str, DestinationKind]] = {
    "temp-queue.": DestinationKind.TEMPORARY_QUEUE,
    "temp-topic.": DestinationKind.TEMPORARY_TOPIC,
}
"""How names of temporary destinations begin that STOMP clients made on Artemis."""


def from_divert(copy: Message) -> Message:
    """Give a copy from a divert of Artemis its destination and message id back: the `translate` of a tap on one.

    What Artemis added is taken away. A temporary queue of a Java client is called a queue, as nothing tells it from one
    but that a request names it. A message from elsewhere stays as it is.
    """
    address = copy.properties.text(f"{DIVERTED}ADDRESS")
    if address is None:
        return copy
    multicast = copy.properties.text(f"{DIVERTED}ROUTING_TYPE") not in (None, ANYCAST)
    return replace(
        copy,
        destination=_named(Destination(DestinationKind.TOPIC if multicast else DestinationKind.QUEUE, address)),
        reply_to=None if copy.reply_to is None else _named(copy.reply_to),
        message_id=copy.properties.text(f"{DIVERTED}MESSAGE_ID") or copy.message_id,
        properties=Properties(each for each in copy.properties if not each.name.startswith(ADDED)),
    )


def _named(destination: Destination) -> Destination:
    """Call a temporary destination by the name that everybody on Artemis knows it by."""
    name = destination.name or destination.address or ""
    kind = next((kind for prefix, kind in TEMPORARY.items() if name.startswith(prefix)), destination.kind)
    return Destination(kind, name)


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
)

TAPS: Final[Mapping[str, TapPoint]] = {"ActiveMQ": CLASSIC, "ActiveMQ-Artemis": ARTEMIS}
"""By what the broker calls itself in its capabilities, without its version."""


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
            f"the broker {broker!r} has nothing to tap; known are, over STOMP: {', '.join(TAPS)}. A Client and a "
            "Dispatcher record what they send and get with recorder=soapjms.Recorder(PATH)"
        ) from None
