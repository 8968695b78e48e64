"""The numbers in the threat model's table of defaults are those of the code."""

from __future__ import annotations

import re
from inspect import signature
from typing import Final

import pytest
from places import ROOT

from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.amqp.listener import FILES_PER_CLIENT as AMQP_FILES
from brokers.amqp.listener import Options as AmqpOptions
from brokers.amqp.stack import MAX_FRAME_VALUES
from brokers.embedded import broker
from brokers.listeners import guesses
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.smqp.protocol.messages import SmqpLimits as SmqpLimits
from brokers.smqp.server import Options as SmqpOptions
from brokers.smqp.server import driver as smqp
from brokers.stomp import codec
from soapjms.bridge import limits, pace
from soapjms.protocol.limits import DEFAULT_LIMITS
from soapjms.security import UsernameTokens
from soapjms.service.store.sqlite import DAY_SECONDS, SqliteStore
from soapjms.serving import status_page

UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

AMQP, SMQP = AmqpOptions(), SmqpOptions()
TOKENS = {name: each.default for name, each in signature(UsernameTokens).parameters.items()}
KEPT: Final = signature(SqliteStore).parameters["keep"].default
FREE, SECONDS = guesses.FREE_LOGINS, guesses.LOGIN_INTERVAL_SECONDS

ROWS: Final[dict[str, list[float]]] = {
    "over AMQP: clients at once": [AMQP.max_connections, AMQP.max_strangers],
    "wrong passwords": [FREE, SECONDS],
    "over AMQP: seconds": [AMQP.patience, AMQP.idle],
    "over AMQP: links": [AMQP.max_links, AMQP.max_client_destinations, MAX_FRAME_VALUES],
    "over SMQP: sessions": [SMQP.max_sessions, SMQP.max_logins, SMQP.max_strangers, SMQP.login_timeout],
    "over SMQP: what an account": [smqp.HANDSHAKE_TIMEOUT],
    "clients of all": [AMQP_FILES, smqp.FILES_PER_CLIENT, 1],
    "over SMQP: a message": [SmqpLimits().message, SMQP.max_octets],
    "over HTTP": [pace.PIECE_OCTETS, limits.MAX_BODY, limits.MAX_CALLS, pace.PIECE_TIMEOUT],
    "connections to the bridge": [limits.MAX_CONNECTIONS, limits.MAX_HELD],
    "a message over AMQP or STOMP": [MAX_MESSAGE_OCTETS, AMQP.max_unfinished],
    "over STOMP": [codec.MAX_HEAD_OCTETS, codec.MAX_HEADERS],
    "open transactions": [AMQP.max_transactions, AMQP.transaction_idle],
    "messages of a queue": [
        broker.DEFAULT_MAX_MESSAGES,
        broker.DEFAULT_MAX_OCTETS,
        broker.DEFAULT_MAX_TOTAL_OCTETS,
    ],
    "over JMS": [
        DEFAULT_LIMITS.size,
        DEFAULT_LIMITS.depth,
        DEFAULT_LIMITS.elements,
        DEFAULT_LIMITS.parts,
        DEFAULT_LIMITS.unpacked,
        DEFAULT_LIMITS.ratio,
    ],
    "deliveries": [MAX_DELIVERIES],
    "days": [KEPT / DAY_SECONDS],
    "age of a token": [TOKENS["max_age"], TOKENS["skew"], TOKENS["max_nonces"]],
    "the page": [status_page.MAX_PAGE_CONNECTIONS, status_page.REQUEST_TIMEOUT],
}
"""The numbers of the rows that have some, by how the row begins."""


def told() -> dict[str, list[float]]:
    """Return the numbers of each row, by its first cell."""
    page = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    table = page.split("## Defaults that matter")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", table, re.MULTILINE)
    return {what: numbers(f"{what}; {default}") for what, default in rows}


def numbers(text: str) -> list[float]:
    """Return the numbers in a text, in octets where it says so; modes of files begin with 0 and are none."""
    found = re.findall(r"\b(?!0\d)(\d[\d,]*\d|\d)\b(?: (KiB|MiB|GiB)\b)?", text)
    return [int(digits.replace(",", "")) * UNITS[unit] for digits, unit in found]


@pytest.mark.parametrize("begins", ROWS)
def test_numbers_are_those_of_the_code(begins: str) -> None:
    """Each row says what its constants are."""
    [found] = [each for what, each in told().items() if what.startswith(begins)]
    assert found == ROWS[begins]


def test_rows_with_numbers_are_compared() -> None:
    """No number stands in the table that this file does not know."""
    assert [what for what, found in told().items() if found and not what.startswith(tuple(ROWS))] == []
