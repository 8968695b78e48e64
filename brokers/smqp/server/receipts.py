"""The receipt that informs a publisher that a subscriber has its message.

The draft requires it, but does not define its form: here it is a message without data to the publisher's login topic,
whose attributes identify the message.

Spec: SMQP 4.1.8.1 (RECEIPT).
"""

from __future__ import annotations

from datetime import UTC, datetime

from brokers.smqp.protocol.ids import format_date
from brokers.smqp.protocol.messages import END, RECEIPT_CMUID, RECEIPT_COUNT, RECEIPT_SMUID, Attribute, Attributes
from brokers.smqp.server.accounts import Account
from brokers.smqp.server.messages import StoredMessage, size_of
from brokers.smqp.server.options import Options
from brokers.smqp.server.topics import FOREVER_SECONDS


def receipt(message: StoredMessage, account: Account, options: Options, now: float) -> StoredMessage:
    """Make the receipt of a message."""
    header = Attributes(
        (
            Attribute(RECEIPT_SMUID, f"{options.context}/{message.smuid}"),
            Attribute(RECEIPT_CMUID, message.cmuid),
            Attribute(RECEIPT_COUNT, "1"),
        )
    ).written()
    uid, created = f"R{message.smuid}", format_date(datetime.fromtimestamp(now, UTC), options.dialect)
    cmuid = f"server/0/{uid}"
    return StoredMessage(
        topic=account.topic,
        account=None,
        guid=None,
        uid=uid,
        cmuid=cmuid,
        origin=None,
        created=created,
        header=header,
        body=END,
        size=size_of(header, END, created, uid, cmuid),
        received=now,
        priority=options.default_priority,
        timeout=FOREVER_SECONDS if options.default_timeout is None else options.default_timeout,
        depth=0,
        receipt=False,
        sequenced=False,
    )
