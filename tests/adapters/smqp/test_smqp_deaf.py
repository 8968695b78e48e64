"""A server of SMQP that reads nothing: no caller waits beyond its time, and calls go on once it reads again."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from calling_kit import NS, PATIENCE, element, envelope, eventually, fresh, text_of
from lxml import etree
from proxy_kit import Proxy, Way
from smqp_kit import prepared, running

import soapjms
from soapjms import CallFailedError, Client, Dispatcher, Request, Service
from soapjms.protocol.errors import SendOutcome

CALLERS = 4
TIMEOUT = 2.0
LATE = 1.0
"""Seconds beyond its time-out after which a call has ended."""

LARGE = 8_000_000
"""Octets of a request that do not fit between us and who does not read."""


def failed(client: Client, text: str) -> tuple[SendOutcome | None, float]:
    """Call; return the outcome of its failure, None if there is none, and how many seconds that took."""
    began, outcome = time.monotonic(), None
    try:
        client.call(envelope(text), timeout=TIMEOUT)
    except CallFailedError as error:
        outcome = error.outcome
    return outcome, time.monotonic() - began


def test_calls() -> None:
    """Each ends in time; what could not be sent is never carried out, and what may have been, once at most."""
    ran, service, uri = Counter[str](), Service(), f"jms:queue:{fresh()}"

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: Request) -> etree._Element:
        text = request.element.text or ""
        ran[text[:1]] += 1
        return element("said", text[:1])

    with running() as server:
        url, (host, port) = prepared(server), server.address
        with (
            Proxy(host, port) as proxy,
            soapjms.connect(url) as other,
            soapjms.connect(url.replace(f":{port}", f":{proxy.port}")) as connection,
            Dispatcher(other, uri, service) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
            ThreadPoolExecutor(CALLERS) as callers,
        ):
            assert text_of(client.call(envelope("first"))) == "f"
            proxy.silence(Way.UP)
            ended = list(callers.map(lambda name: failed(client, name * LARGE), "ABCD"))
            proxy.speak()
            assert all(seconds < TIMEOUT + LATE for _, seconds in ended), ended
            assert {outcome for outcome, _ in ended} <= {SendOutcome.UNKNOWN, SendOutcome.NOT_SENT}, ended
            connection.wait_connected(PATIENCE)
            assert text_of(client.call(envelope("last"))) == "l"
            eventually(lambda: dispatcher.under_way == 0, "nothing is under way")
        for name, (outcome, _) in zip("ABCD", ended, strict=True):
            assert ran[name] <= (outcome is SendOutcome.UNKNOWN), (name, outcome, ran)
