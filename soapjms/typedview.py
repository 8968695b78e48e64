"""Finding the AMQP of a broker that STOMP leads to, for a tap: only AMQP shows the types of properties.

A place is knocked at before a password is sent there, and taken only if what is sent over STOMP is seen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex
from threading import Event
from typing import Final
from urllib.parse import urlsplit

from brokers.connecting import connect
from brokers.connection import Connection, Delivery
from brokers.errors import BrokerError
from brokers.failover import read_failover
from brokers.message import DeliveryMode, Destination, Message, MessageType
from soapjms.health import PING_PREFIX
from soapjms.protocol.errors import UsageError

AMQP: Final[Mapping[str, tuple[str, int]]] = {"stomp": ("amqp", 5672), "stomp+ssl": ("amqps", 5671)}
"""By the scheme of a STOMP URL: that of AMQP, no less safe, and the port where that usually is."""

ONLY_STOMP: Final = frozenset({"clientId", "dialect", "deadLetters", "heartbeat"})
"""Parameters of a STOMP URL that mean nothing here."""

KNOCK: Final = 1.0
PROBE: Final = 3.0


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


def copies_reach(sender: Connection, watcher: Connection, source: Destination, timeout: float = PROBE) -> bool:
    """Say whether `watcher` sees at `source` a copy of what `sender` sends, which nobody else gets.

    Raises:
        BrokerError: it cannot be sent, or the source not be read.
    """
    seen, probe = Event(), f"{PING_PREFIX}{token_hex(8)}"

    def look(delivery: Delivery) -> None:
        if delivery.message.correlation_id == probe:
            seen.set()

    with watcher.consume(source, look, prefetch=100, auto_accept=True, inline=True):
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
    from brokers.amqp.knocking import speaks_amqp  # needs the extra `amqp`

    if not speaks_amqp(url, KNOCK):
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
