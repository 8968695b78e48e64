"""Answering a client that attaches a link: what it leads to, and what is agreed.

Spec: AMQP 1.0 part 2, section 2.6.3; part 3, section 3.5; anonymous terminus 2.2.1 and 2.3 (AT-04, AT-15, AT-24).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final, Protocol

from proton import Data, Receiver, Terminus

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.provider.incoming import CREDIT, Incoming, Posts, Sink, Unfinished
from brokers.amqp.provider.nodes import INVALID, MAX_NAME, NOT_IMPLEMENTED, RefusalError, kind_of, refusal_of
from brokers.amqp.provider.options import Action, Options
from brokers.amqp.provider.outgoing import Desk, Outgoing
from brokers.amqp.provider.transactions import CoordinatorLink
from brokers.amqp.sending import put_symbols
from brokers.embedded import Broker
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind

log = logging.getLogger(__name__)

LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"
REJECTED: Final = "amqp:rejected:list"


class Client(Desk, Sink, Protocol):
    """What a link's far end is told of its client."""

    @property
    def container(self) -> str:
        """What it calls itself."""


class Shared(Protocol):
    """What all clients share."""

    broker: Broker
    options: Options


class Attaching:
    """Makes our ends of a client's links. With the lock held."""

    def __init__(self, client: Client, shared: Shared) -> None:
        self._client = client
        self._broker = shared.broker
        self._options = shared.options
        self._unfinished = Unfinished(max(shared.options.max_unfinished, shared.options.max_message))

    def attach(self, link: Any) -> Incoming | Outgoing:
        """Attach our end.

        Raises:
            RefusalError: there is nothing that it could lead to.
        """
        return self._attach_incoming(link) if isinstance(link, Receiver) else self._attach_outgoing(link)

    def _attach_incoming(self, link: Any) -> Incoming:
        target = link.remote_target
        outcomes = symbols(link.remote_source.outcomes)
        understands = REJECTED in outcomes if outcomes else self._options.assume_rejected
        works = self._client.works
        incoming = Incoming(link, self._options.max_message, self._unfinished, works, understands_rejected=understands)
        if target.type == Terminus.COORDINATOR:
            coordinator = CoordinatorLink(works, incoming)
            incoming.take, incoming.end = coordinator.take, coordinator.end
            self._agree(link, link.target, [LOCAL_TRANSACTIONS])
        elif target.type != Terminus.TARGET:
            raise RefusalError(INVALID, "the link has no target")
        else:
            wanted = symbols(target.capabilities)
            destination = self._target(target, wanted)
            known = [each for each in wanted if each in CAPABILITIES.values()]
            if destination is not None:
                known = [each for each in known if each == CAPABILITIES[destination.kind]]
            if target.dynamic and destination is not None:
                incoming.end = partial(self._client.connection.end_temporary, destination)
            incoming.take = Posts(incoming, self._client, destination, frozenset(known)).take
            self._agree(link, link.target, known)
            if target.dynamic or destination is None:
                link.target.address = None if destination is None else self._client.nodes.address_of(destination)
        link.max_message_size = self._options.max_message
        link.open()
        link.flow(CREDIT)
        return incoming

    def _target(self, target: Any, capabilities: list[str]) -> Destination | None:
        """Return where a link leads; None for the anonymous terminus."""
        if target.dynamic:
            return self._temporary(capabilities)
        if not target.address:  # an empty one is no address either
            return None
        kind = kind_of(capabilities)
        return self._client.nodes.resolve(target.address, kind, self._client.user, Action.SEND)

    def _attach_outgoing(self, link: Any) -> Outgoing:
        source = link.remote_source
        if source.type != Terminus.SOURCE:
            raise RefusalError(INVALID, "the link has no source")
        if source.distribution_mode == Terminus.DIST_MODE_COPY:
            raise RefusalError(NOT_IMPLEMENTED, "queues cannot be browsed")
        wanted = symbols(source.capabilities)
        if source.dynamic:
            destination = self._temporary(wanted)
        else:
            user = self._client.user
            destination = self._client.nodes.resolve(source.address, kind_of(wanted), user, Action.RECEIVE)
        durable = self._durable_name(link, destination)
        subscribe = partial(self._client.connection.consume_on_credit, destination, durable_name=durable)
        forget = partial(self._forget, destination, durable, is_dynamic=source.dynamic)
        try:
            outgoing = Outgoing(link, self._client, subscribe, forget)
        except BrokerError as error:
            raise refusal_of(error) from error
        self._agree(link, link.source, [each for each in wanted if each == CAPABILITIES[destination.kind]])
        if source.dynamic:  # others are called as the client calls them, which some insist on
            link.source.address = self._client.nodes.address_of(destination)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.open()
        return outgoing

    def _durable_name(self, link: Any, destination: Destination) -> str | None:
        """Return what a subscription is called that outlives its link; None for others.

        Raises:
            RefusalError: that is too long to be kept.
        """
        is_durable = link.remote_source.durability != Terminus.NONDURABLE
        if destination.kind is not DestinationKind.TOPIC or not is_durable:
            return None
        if len(self._client.container) + len(link.name) > MAX_NAME:
            raise RefusalError(
                INVALID, f"container and link of a durable subscription have {MAX_NAME} characters at most"
            )
        return repr((self._client.user, self._client.container, link.name))

    def _forget(self, destination: Destination, durable: str | None, *, is_dynamic: bool, for_good: bool) -> None:
        """End what was there for a link only."""
        if is_dynamic:
            self._client.connection.end_temporary(destination)
        if durable is not None and for_good:
            try:
                self._broker.forget_durable(destination, durable)
            except BrokerError as error:  # somebody of the same user and container consumes from it still
                log.info("%s stays: %s", durable, error)

    def _temporary(self, capabilities: list[str]) -> Destination:
        kind = kind_of(capabilities)
        is_topic = kind is not None and kind.is_topic
        made = DestinationKind.TEMPORARY_TOPIC if is_topic else DestinationKind.TEMPORARY_QUEUE
        try:
            return self._client.connection.temporary(made)
        except BrokerError as error:
            raise refusal_of(error) from error

    @staticmethod
    def _agree(link: Any, terminus: Any, capabilities: list[str]) -> None:
        """Repeat what the client said of the link, with the capabilities that there are."""
        repeat(link.remote_source, link.source)
        repeat(link.remote_target, link.target)
        outcomes = symbols(link.remote_source.outcomes)
        if outcomes:
            put_symbols(link.source.outcomes, *outcomes)
        if capabilities:
            put_symbols(terminus.capabilities, *capabilities)


def repeat(said: Any, answer: Any) -> None:
    """Answer a terminus with what was said of it; properties and filters are left out, as none is heeded.

    Field by field: proton's own copy takes malformed values along, and writing them ends the process (seen with 0.40).
    """
    answer.type = said.type
    answer.address = said.address
    answer.dynamic = said.dynamic
    answer.durability = said.durability
    answer.expiry_policy = said.expiry_policy
    answer.timeout = said.timeout
    answer.distribution_mode = said.distribution_mode


def refuse(link: Any, refusal: RefusalError) -> None:
    """Answer without the terminus that was asked for, and detach with the reason. Spec: core 2.6.3 (AT-24)."""
    terminus = link.target if isinstance(link, Receiver) else link.source
    terminus.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = refusal.told()
    link.close()


def symbols(data: Data) -> list[str]:
    """Read a field that is a symbol or an array of symbols."""
    data.rewind()
    if not data.next():
        return []
    value: Any = data.get_object()
    if value is None:
        return []
    return [str(each) for each in getattr(value, "elements", [value])]
