"""The table: every entry point that is attacked by chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fuzz import amqp, bridge, captures, clients, codecs, messages, multipart, page, signatures, smqp, stomp, wsdl
from fuzz.row import Row

ROWS: Final[Mapping[str, Row]] = {
    each.name: each
    for each in (
        *(module.ROW for module in (messages, signatures, multipart, amqp, smqp, stomp, bridge, page, captures, wsdl)),
        clients.AMQP,
        clients.SMQP,
        codecs.STOMP,
        codecs.AMQP,
    )
}
