"""The source of a link that a client receives on: its requested and its granted properties.

The answer contains only properties that are applied: unknown filters, and distribution modes and lifetimes that a node
does not support, are left out, and a client that requires them detaches.

Spec: AMQP 1.0 part 3, sections 3.5.1, 3.5.3 and 3.5.8; AMQP JMS Mapping 1.0, 6.3 (subscriptions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from proton import Data, Described, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.listener.messages import SEEN_HEADERS
from brokers.amqp.listener.options import MAX_NAME_CHARACTERS, RefusalError
from brokers.amqp.outcomes import INVALID
from brokers.amqp.receive import SELECTOR, SELECTOR_CODE
from brokers.amqp.sections import is_described
from brokers.amqp.send import put_symbols
from brokers.embedded.queues import SubscribeTerms
from brokers.errors import InvalidSelectorError
from brokers.message import Destination, DestinationKind
from brokers.selector import Selector

NO_LOCAL: Final = "apache.org:no-local-filter:list"
NO_LOCAL_CODE: Final = 0x0000_468C_0000_0003

SELECTORS: Final = frozenset({SELECTOR, SELECTOR_CODE})
NO_LOCALS: Final = frozenset({NO_LOCAL, NO_LOCAL_CODE})

SHARED: Final = "shared"
GLOBAL: Final = "global"
SHARED_SUBSCRIPTIONS: Final = "SHARED-SUBS"
"""The capability of a connection whose links may share subscriptions; Qpid JMS checks for it."""

SHARE: Final = re.compile(r"\|(?:\d+|volatile\d+|(?P<is_global>global(?:\d*|-volatile\d+)))", re.ASCII)
"""The suffix of a shared subscription's link names in Qpid JMS, which distinguishes its links.

Any other text after a `|` is part of the name: Qpid JMS creates no such names, but other clients may.
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a link that are applied.

    Attributes:
        selector: the selector, or None.
        no_local: whether to leave out messages that the client itself sent.
        told: both as the client named them.
        text: the text of the selector, or None.
    """

    selector: Selector | None = field(default=None, compare=False)
    no_local: bool = False
    told: dict[str, Described] = field(default_factory=dict, compare=False)
    text: str | None = None

    @classmethod
    def read(cls, said: Data, kind: DestinationKind) -> Filters:
        """Parse a filter set.

        Raises:
            RefusalError: the filter set or a selector is invalid, or there are two selectors.
        """
        said.rewind()
        found: Any = said.get_object() if said.next() else None
        if found is not None and not isinstance(found, dict):
            raise RefusalError(INVALID, f"the filters of a source must be a map, got {type(found).__name__}")
        selector, no_local, told = None, False, {}
        for key, value in (found or {}).items():
            if is_described(value, SELECTORS):
                if selector is not None:
                    raise RefusalError(INVALID, "a source must have at most one selector; join them with AND")
                selector = read_selector(value.value)
            elif is_described(value, NO_LOCALS) and kind.is_topic:  # queues do not support it
                no_local = True
            else:
                continue
            told[str(key)] = value
        return cls(selector, no_local, told, None if selector is None else selector.text)

    @classmethod
    def kept(cls, text: str | None, *, no_local: bool) -> Filters:
        """Return the filters of an existing subscription."""
        told = {} if text is None else {"jms-selector": Described(ulong(SELECTOR_CODE), text)}
        if no_local:
            told["no-local"] = Described(ulong(NO_LOCAL_CODE), [])
        return cls(None if text is None else Selector(text, SEEN_HEADERS), no_local, told, text)

    def tell(self, answer: Data) -> None:
        """Write the filters of the answer."""
        if self.told:
            answer.put_object({symbol(key): value for key, value in self.told.items()})


def read_selector(text: object) -> Selector:
    """Parse a selector.

    Raises:
        RefusalError: it is invalid.
    """
    if not isinstance(text, str):
        raise RefusalError(INVALID, f"a selector must be a string, got {type(text).__name__}")
    try:
        return Selector(text, SEEN_HEADERS)
    except InvalidSelectorError as error:
        raise RefusalError(INVALID, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSubscription:
    """A named subscription to a topic.

    Attributes:
        name: its name in the broker.
        is_durable: whether it outlives its links.
        is_shared: whether several links may use it.
        is_global: whether links of any container may use it.
    """

    name: str
    is_durable: bool
    is_shared: bool = False
    is_global: bool = False

    @property
    def capabilities(self) -> list[str]:
        """Capabilities of the source of its links."""
        return [name for name, has in ((SHARED, self.is_shared), (GLOBAL, self.is_global)) if has]


def subscription_of(
    user: str | None, container: str, link: Any, capabilities: Iterable[str]
) -> NamedSubscription | None:
    """Return the named subscription that a link to a topic belongs to, or None if the link has its own.

    A name is valid within one container or, if the subscription is global, within all containers of one user. A durable
    and a non-durable subscription of the same name are different.

    Raises:
        RefusalError: the name is too long.
    """
    is_durable = link.remote_source.durability != Terminus.NONDURABLE
    is_shared, is_global = SHARED in capabilities, GLOBAL in capabilities
    if not (is_durable or is_shared):
        return None
    is_global = is_global and is_shared
    name = _shared_name(link.name)[0] if is_shared else link.name
    if len(container) * (not is_global) + len(name) > MAX_NAME_CHARACTERS:
        raise RefusalError(
            INVALID, f"container and link of a subscription with a name have {MAX_NAME_CHARACTERS} characters at most"
        )
    kept = _kept(user, None if is_global else container, name, is_durable=is_durable)
    return NamedSubscription(name=kept, is_durable=is_durable, is_shared=is_shared, is_global=is_global)


def _shared_name(link: str) -> tuple[str, bool]:
    """Return the name of the shared subscription in a link's name, and whether the link's name marks it as global."""
    name, delimiter, rest = link.rpartition("|")
    found = SHARE.fullmatch(delimiter + rest)
    if not name or found is None:
        return link, False
    return name, found["is_global"] is not None


def _kept(user: str | None, container: str | None, name: str, *, is_durable: bool) -> str:
    """Return the name of a subscription in the broker; a difference in any argument means another subscription."""
    return repr((user, container, name, is_durable))


def kept_names(user: str | None, container: str, link: str) -> list[str]:
    """Return the names of durable subscriptions that a link without a source may mean, the likeliest first."""
    name, is_global = _shared_name(link)
    of = None if is_global else container
    return [_kept(user, container, link, is_durable=True), _kept(user, of, name, is_durable=True)]


@dataclass(frozen=True, slots=True)
class Label:
    """The terms that identify a named subscription besides its name."""

    filters: Filters
    is_shared: bool
    is_global: bool


def terms_of(filters: Filters, subscription: NamedSubscription | None, *, is_browsing: bool) -> SubscribeTerms:
    """Return the terms of a link's subscription in the broker: on credit."""
    wants = None if filters.selector is None else filters.selector.wants
    if subscription is None:
        return SubscribeTerms(prefetch=0, wants=wants, leaves_out_own=filters.no_local, is_browsing=is_browsing)
    return SubscribeTerms(
        prefetch=0,
        name=subscription.name,
        is_durable=subscription.is_durable,
        wants=wants,
        leaves_out_own=filters.no_local,
        label=Label(filters, subscription.is_shared, subscription.is_global),
    )


def tell(
    answer: Any, destination: Destination, terms: SubscribeTerms, filters: Filters, capabilities: Iterable[str]
) -> None:
    """Write the applied properties to the source of the answer."""
    is_durable = terms.name is not None and terms.is_durable
    is_copied = destination.kind.is_topic or terms.is_browsing
    answer.durability = Terminus.CONFIGURATION if is_durable else Terminus.NONDURABLE
    answer.expiry_policy = Terminus.EXPIRE_NEVER if is_durable else Terminus.EXPIRE_WITH_LINK
    answer.distribution_mode = Terminus.DIST_MODE_COPY if is_copied else Terminus.DIST_MODE_MOVE
    filters.tell(answer.filter)
    put_symbols(answer.capabilities, CAPABILITIES[destination.kind], *capabilities)
