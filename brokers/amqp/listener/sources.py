"""What a client wants of the source of a link that it receives on, and what it is told that it gets.

Nothing is in the answer that is not applied: filters that nobody knows here, ways to distribute and lifetimes that a
node does not have are left out, and a client that cannot do without detaches.

Spec: AMQP 1.0 part 3, sections 3.5.1, 3.5.3 and 3.5.8; AMQP JMS Mapping 1.0, 6.3 (subscriptions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from proton import Data, Described, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.listener.options import INVALID, MAX_NAME_CHARACTERS, RefusalError
from brokers.amqp.listener.send import SEEN_HEADERS
from brokers.amqp.receive import SELECTOR, SELECTOR_CODE
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
"""The capability of a connection whose links may share subscriptions, as Qpid JMS looks for it."""

SHARE: Final = re.compile(r"\|(?:\d+|volatile\d+|(?P<is_global>global(?:\d*|-volatile\d+)))", re.ASCII)
"""What follows the name of a shared subscription in that of a link of Qpid JMS, and tells its links apart.

Anything else after a `|` is part of the name: Qpid JMS makes no names with one, others may.
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a link that are applied.

    Attributes:
        selector: the text of a selector.
        no_local: leave out what the client itself sent.
        told: both as the client named them.
    """

    selector: Selector | None = field(default=None, compare=False)
    no_local: bool = False
    told: dict[str, Described] = field(default_factory=dict, compare=False)
    text: str | None = None

    @classmethod
    def read(cls, said: Data, kind: DestinationKind) -> Filters:
        """Read a filter set.

        Raises:
            RefusalError: a selector is none, there are two, or it is no filter set.
        """
        said.rewind()
        found: Any = said.get_object() if said.next() else None
        if found is not None and not isinstance(found, dict):
            raise RefusalError(INVALID, f"the filters of a source are a map, not {type(found).__name__}")
        selector, no_local, told = None, False, {}
        for key, value in (found or {}).items():
            if not isinstance(value, Described):
                continue
            if value.descriptor in SELECTORS:
                if selector is not None:
                    raise RefusalError(INVALID, "a source has one selector at most; join them with AND")
                selector = read_selector(value.value)
            elif value.descriptor in NO_LOCALS and kind.is_topic:  # queues do not know it.
                no_local = True
            else:
                continue
            told[str(key)] = value
        return cls(selector, no_local, told, None if selector is None else selector.text)

    @classmethod
    def kept(cls, text: str | None, *, no_local: bool) -> Filters:
        """Return the filters of a subscription that was made before."""
        told = {} if text is None else {"jms-selector": Described(ulong(SELECTOR_CODE), text)}
        if no_local:
            told["no-local"] = Described(ulong(NO_LOCAL_CODE), [])
        return cls(None if text is None else Selector(text, SEEN_HEADERS), no_local, told, text)

    def tell(self, answer: Data) -> None:
        """Write the filters of the answer."""
        if self.told:
            answer.put_object({symbol(key): value for key, value in self.told.items()})


def read_selector(text: object) -> Selector:
    """Read a selector.

    Raises:
        RefusalError: it is none.
    """
    if not isinstance(text, str):
        raise RefusalError(INVALID, f"a selector is a string, not {type(text).__name__}")
    try:
        return Selector(text, SEEN_HEADERS)
    except InvalidSelectorError as error:
        raise RefusalError(INVALID, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSubscription:
    """A named subscription to a topic.

    Attributes:
        name: what the broker knows it by.
        is_durable: it is there while nobody subscribes.
        is_shared, is_global: several links may, of any container.
    """

    name: str
    is_durable: bool
    is_shared: bool = False
    is_global: bool = False

    @property
    def capabilities(self) -> list[str]:
        """What the source of its links is said to have."""
        return [name for name, has in ((SHARED, self.is_shared), (GLOBAL, self.is_global)) if has]


def subscription_of(
    user: str | None, container: str, link: Any, capabilities: Iterable[str]
) -> NamedSubscription | None:
    """Return the subscription that a link to a topic belongs to; None where it has one of its own.

    One of the same name belongs to one container, or where it is global to all containers of one user. One that lasts
    and one that does not are not the same.

    Raises:
        RefusalError: its name is too long to be kept.
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
    """Return the name of the shared subscription that a link is one of, and whether the link says that it is global."""
    name, delimiter, rest = link.rpartition("|")
    found = SHARE.fullmatch(delimiter + rest)
    if not name or found is None:
        return link, False
    return name, found["is_global"] is not None


def _kept(user: str | None, container: str | None, name: str, *, is_durable: bool) -> str:
    """Return what the broker knows a subscription by; each of these makes it another one."""
    return repr((user, container, name, is_durable))


def kept_names(user: str | None, container: str, link: str) -> list[str]:
    """Return the names of durable subscriptions that a link without a source may mean, likeliest first."""
    name, is_global = _shared_name(link)
    of = None if is_global else container
    return [_kept(user, container, link, is_durable=True), _kept(user, of, name, is_durable=True)]


@dataclass(frozen=True, slots=True)
class Label:
    """What a named subscription goes by besides its name; another one is another subscription."""

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
    """Say in the answer's source what is applied."""
    is_durable = terms.name is not None and terms.is_durable
    is_copied = destination.kind.is_topic or terms.is_browsing
    answer.durability = Terminus.CONFIGURATION if is_durable else Terminus.NONDURABLE
    answer.expiry_policy = Terminus.EXPIRE_NEVER if is_durable else Terminus.EXPIRE_WITH_LINK
    answer.distribution_mode = Terminus.DIST_MODE_COPY if is_copied else Terminus.DIST_MODE_MOVE
    filters.tell(answer.filter)
    put_symbols(answer.capabilities, CAPABILITIES[destination.kind], *capabilities)
