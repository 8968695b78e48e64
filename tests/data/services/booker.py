"""A service that books what it is sent: `python booker.py URL URI STORE OTHER yes [DURABLE]`.

It ends at SIGTERM, and writes at SIGUSR1 what its threads do. DURABLE is the name of its subscription to a topic. With
`no` in the place of `yes` it does without transactions of the broker. What it writes through `request.transaction`
happens once. The line that it writes to the file OTHER, on the disk before anything else, may come twice.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import signal
import sys
import time
from threading import Event

from lxml import etree

import brokers
import soapjms

RETRY_SECONDS = 0.3
LOOK_SECONDS = 0.5

url, uri, store, other, transactions, *durable = sys.argv[1:]
service = soapjms.Service()
ledger = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


@service.operation("{urn:greeter}greetMe")
def book(request: soapjms.Request) -> etree._Element:
    """Book a number, and say hello to it."""
    number = request.element.text or ""
    os.write(ledger, f"{number}\n".encode())
    os.fsync(ledger)
    time.sleep(random.uniform(0, 0.02))  # so that what happens to the process happens at work
    request.transaction.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
    request.transaction.execute("INSERT INTO booked VALUES (?)", (int(number),))
    response = etree.Element("{urn:greeter}greetMeResponse")
    response.text = f"Hello {number}"
    return response


def serve(ended: Event) -> None:
    """Serve until it is to end."""
    with (
        soapjms.connect(url) as connection,
        soapjms.Dispatcher(
            connection,
            uri,
            service,
            workers=1 if durable else 4,
            durable=durable[0] if durable else None,
            store=store,
            transactional=transactions == "yes",
        ),
    ):
        while not ended.wait(LOOK_SECONDS):  # a signal that another thread got is not seen while this one waits
            pass


def main() -> None:
    """Serve; what keeps it from beginning is tried again."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.is_set():
        try:
            serve(ended)
        except (brokers.BrokerError, soapjms.StoreError) as error:
            logging.warning("it is tried again: %r", error)
            ended.wait(RETRY_SECONDS)


main()
