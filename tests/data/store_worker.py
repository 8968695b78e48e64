"""Finishes requests of a store that others share, some with effects, some late, until all are finished.

Arguments: the file, how many requests, a seed. The response says whether there were effects; each effect is a row.
"""

from __future__ import annotations

import random
import sys
import time

from brokers import Message, MessageType
from soapjms import SqliteStore, StoreError, UsageError
from soapjms.service.store.base import Claim, FinishedBefore

path, requests, chance = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3])


def work(claim: Claim, number: int) -> None:
    """Finish a request, in one of the ways that there are; or fail, and let go of it."""
    writes = chance.random() < 0.5
    if writes:
        claim.transaction.execute("INSERT INTO effects VALUES (?)", (number,))
    time.sleep(chance.choice((0.0, 0.0, 0.01, 0.1)))
    end = chance.random()
    if end < 0.1:
        claim.abandon(failed=True)
        return
    if writes and end < 0.3:
        claim.roll_back()
        writes = False
    claim.finish(Message(message_type=MessageType.TEXT, body="effects" if writes else "none"))


def opened() -> SqliteStore:
    """Open the store, though somebody who was stopped may have it locked."""
    while True:
        try:
            return SqliteStore(path, lease=0.2, timeout=0.1, transaction_timeout=chance.choice((0.3, 30)))
        except StoreError:
            time.sleep(0.1)


with opened() as store:
    left = list(range(requests))
    while left:
        number = chance.choice(left[:6])
        claim: Claim | None = None
        try:
            found = store.begin(b"%d" % number)
            if isinstance(found, FinishedBefore):
                left.remove(number)
            elif found is not None:
                claim = found
                work(claim, number)
        except (StoreError, UsageError):
            if claim is not None:
                claim.abandon()
