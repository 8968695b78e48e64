"""Deliveries of proton, without Python objects for them.

proton's own binding creates four objects for a delivery, and writes all parts of its state at each update, which takes
longer than reading a small message. This module uses proton's C library directly, as proton's own binding does.

A *transfer* is the library's pointer to a delivery. It can be the key of a dictionary. It must not be used once it was
settled, or its link or connection has ended.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, TypeAlias, cast

from cproton_ffi import ffi, lib
from proton import Condition, Delivery

from brokers.amqp.primitives import WRITERS, read_value

Transfer: TypeAlias = Any

STATE_ACCEPTED: Final = 0x24
"""The delivery state of an accepted message."""

DECLARED: Final = 0x33
"""The delivery state of a declared transaction: its id."""

TRANSACTIONAL: Final = 0x34
"""The delivery state within a transaction: the id of the transaction, and the outcome at its commit."""

PLACE_OCTETS: Final = 65_536
"""Number of octets that are moved from or to the library at once."""

_CHARS: Final = ffi.typeof("char[]")

_OUTCOME_ACCEPTED: Final = b"\x00\x53\x24\x45"


def wrapped(transfer: Transfer) -> Delivery:
    """Return proton's object for a transfer."""
    kind: Any = Delivery
    return cast("Delivery", kind(transfer))


def begin(link: Any, tag: bytes, transaction: bytes | None = None) -> Transfer:
    """Begin a message, perhaps within a transaction; its octets follow."""
    transfer = lib.pn_delivery(link._impl, (len(tag), ffi.from_buffer(tag)))
    if transaction is not None:
        _update(transfer, TRANSACTIONAL, _state(WRITERS[bytes](transaction)))
    return transfer


def credit_of(link: Any) -> int:
    """Return the number of messages that the peer takes."""
    return int(lib.pn_link_credit(link._impl))


def max_message_of(link: Any) -> int:
    """Return the number of octets that a message may have by the peer's word; 0 if it did not say."""
    return int(lib.pn_link_remote_max_message_size(link._impl))


def drained(link: Any) -> int:
    """Give back the credit of a link if the peer asks for that; return how much. Spec: AMQP 1.0 part 2, 2.6.7."""
    return int(lib.pn_link_drained(link._impl))


def pass_on(link: Any, octets: bytes, *, is_last: bool = True) -> None:
    """Send further octets of the message that was begun on a link."""
    lib.pn_link_send(link._impl, octets, len(octets))
    if is_last:
        lib.pn_link_advance(link._impl)


def send(link: Any, tag: bytes, octets: bytes, transaction: bytes | None = None) -> Transfer:
    """Send a whole message, perhaps within a transaction."""
    transfer = begin(link, tag, transaction)
    lib.pn_link_send(link._impl, octets, len(octets))
    lib.pn_link_advance(link._impl)
    return transfer


def accept_in(transfer: Transfer, transaction: bytes) -> None:
    """Accept a message within a transaction, and settle it."""
    _update(transfer, TRANSACTIONAL, _state(WRITERS[bytes](transaction), _OUTCOME_ACCEPTED))
    lib.pn_delivery_settle(transfer)


def settle(transfer: Transfer, outcome: int | None = None, error: Condition | None = None) -> None:
    """Settle a message, with an outcome if it was received; a modified one counts as a failed delivery."""
    if outcome == Delivery.MODIFIED:
        lib.pn_disposition_set_failed(lib.pn_delivery_local(transfer), True)
    if error is None and outcome is not None:
        lib.pn_delivery_update(transfer, int(outcome))
    elif error is not None:
        delivery: Any = wrapped(transfer)
        delivery.local.condition = error
        delivery.update(outcome)
    lib.pn_delivery_settle(transfer)


def drop_unsent(transfer: Transfer) -> None:
    """Drop the octets of a message on an ended link that wait for the window of the session.

    Otherwise they would be part of `outgoing_octets` as long as the session lasts (seen with proton 0.40).
    """
    if lib.pn_delivery_pending(transfer):
        lib.pn_delivery_abort(transfer)


def outgoing_octets(session: Any) -> int:
    """Return the number of octets of messages that wait for the window of a session."""
    return int(lib.pn_session_outgoing_bytes(session._impl))


def give_credit(link: Any, credit: int) -> None:
    """Let the peer send so many further messages."""
    lib.pn_link_flow(link._impl, credit)


def accept(transfer: Transfer) -> None:
    """Accept a message, and settle it."""
    lib.pn_delivery_update(transfer, STATE_ACCEPTED)
    lib.pn_delivery_settle(transfer)


class ArrivedOctets(NamedTuple):
    """Octets of a message.

    Attributes:
        octets: those that have arrived since the last time.
        is_partial: whether more will follow.
    """

    octets: bytes
    is_partial: bool


def new_place() -> Any:
    """Return memory for octets on their way from or to the library; for one thread at a time."""
    return ffi.new(_CHARS, PLACE_OCTETS)


def read_some(transfer: Transfer, link: Any, place: Any, limit: int) -> tuple[bytes, bool] | None:
    """Read octets of a message, and return them, and whether there is more; None if there are none, or it was aborted.

    What remains is read with `read`, which also tells the end of a message that has more octets than `limit`.

    Args:
        transfer: the message.
        link: its link.
        place: memory for the octets; see `new_place`.
        limit: number of octets, fewer than `place` has.
    """
    if not lib.pn_delivery_readable(transfer):
        return None
    size = lib.pn_link_recv(link._impl, place, PLACE_OCTETS)
    if size <= 0:  # also for an aborted message
        return None
    is_partial = size > limit or bool(lib.pn_delivery_partial(transfer))
    if not is_partial:
        lib.pn_link_advance(link._impl)
    return ffi.unpack(place, size), is_partial


def read(transfer: Transfer) -> ArrivedOctets | None:
    """Read what has arrived of a message; None if it has no data for now, or was aborted."""
    if not lib.pn_delivery_readable(transfer) or lib.pn_delivery_aborted(transfer):
        return None
    link, pending = lib.pn_delivery_link(transfer), lib.pn_delivery_pending(transfer)
    octets = b""
    if pending:
        place = ffi.new("char[]", pending)
        lib.pn_link_recv(link, place, pending)
        octets = ffi.unpack(place, pending)
    is_partial = bool(lib.pn_delivery_partial(transfer))
    if not is_partial:
        lib.pn_link_advance(link)
    return ArrivedOctets(octets, is_partial)


def was_settled(transfer: Transfer) -> bool:
    """Return whether the peer has settled a message."""
    return bool(lib.pn_delivery_settled(transfer))


def declared_transaction(transfer: Transfer) -> bytes | None:
    """Return the id of the transaction that the peer declared; None if the state is another one, or has no valid id."""
    found = read_value(_state_of(transfer), 0) if lib.pn_delivery_remote_state(transfer) == DECLARED else None
    fields = [] if found is None else found[1]
    return fields[0] if isinstance(fields, list) and fields and isinstance(fields[0], bytes) else None


def settle_accepted(transfer: Transfer) -> bool:
    """Settle a message that was sent if the peer plainly accepted it, outside a transaction; return whether it did."""
    if lib.pn_delivery_remote_state(transfer) != STATE_ACCEPTED:
        return False
    lib.pn_delivery_settle(transfer)
    return True


def was_accepted(transfer: Transfer, transaction: bytes | None) -> bool:
    """Return whether the peer plainly accepted a message, within its transaction if it has one."""
    state = lib.pn_delivery_remote_state(transfer)
    if transaction is None:
        return bool(state == STATE_ACCEPTED)
    expected = _state(WRITERS[bytes](transaction), _OUTCOME_ACCEPTED)
    return bool(state == TRANSACTIONAL) and _state_of(transfer) == expected


def _state(*fields: bytes) -> bytes:
    """Return the list of the fields of a state, encoded as proton does."""
    octets = b"".join(fields)
    return struct.pack(">BII", 0xD0, len(octets) + 4, len(fields)) + octets


def _state_of(transfer: Transfer) -> bytes:
    """Return the list of the fields of the peer's state, encoded."""
    data = lib.pn_disposition_data(lib.pn_delivery_remote(transfer))
    size = lib.pn_data_encoded_size(data)
    octets = ffi.new("char[]", max(0, size))
    return bytes(ffi.unpack(octets, max(0, lib.pn_data_encode(data, octets, size))))


def _update(transfer: Transfer, state: int, octets: bytes) -> None:
    data = lib.pn_disposition_data(lib.pn_delivery_local(transfer))
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, octets, len(octets))
    lib.pn_delivery_update(transfer, state)
