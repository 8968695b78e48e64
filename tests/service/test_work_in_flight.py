"""How much a dispatcher works on, that no more is taken once it closes, and waiting for the end."""

from __future__ import annotations

from threading import Thread

from calling_kit import PATIENCE

from soapjms.service.dispatcher import OpenRequests
from soapjms.service.work import Subscription


def test_closing() -> None:
    """Who closes waits for what was begun before; nothing else is begun, and a second close is told so."""
    under_way, found, subscription = OpenRequests(), list[bool](), Subscription()
    assert under_way.begin(subscription)
    assert under_way.begin(subscription)
    assert under_way.close()
    assert not under_way.close()
    assert not under_way.begin(subscription)
    waiting = Thread(target=lambda: found.append(under_way.wait(PATIENCE)))
    waiting.start()
    under_way.end([subscription])
    assert (under_way.number, under_way.is_closing, found) == (1, True, [])
    under_way.end([subscription])
    waiting.join(PATIENCE)
    assert found == [True]


def test_out_of_time() -> None:
    """What does not end in time has not ended; where nothing is under way, nobody waits."""
    under_way = OpenRequests()
    assert under_way.wait(PATIENCE)
    under_way.begin(Subscription())
    assert not under_way.wait(0.01)
