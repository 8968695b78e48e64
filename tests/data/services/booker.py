"""A service that books what it is sent: `python booker.py URL URI STORE LOG OTHER yes`. Says when it is up.

It never ends, but is killed. With `no` in the place of `yes` it does without transactions of the broker. What it writes
through `request.transaction` happens once. The line that it writes to the file OTHER may come twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

from lxml import etree

import soapjms

url, uri, store, log, other, transactions = sys.argv[1:]
service = soapjms.Service()


@service.operation("{urn:greeter}greetMe")
def book(request: soapjms.Request) -> etree._Element:
    """Book a number, and say hello to it."""
    number = request.element.text or ""
    with Path(other).open("a", encoding="utf-8") as lines:
        lines.write(f"{number}\n")
    request.transaction.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
    request.transaction.execute("INSERT INTO booked VALUES (?)", (int(number),))
    response = etree.Element("{urn:greeter}greetMeResponse")
    response.text = f"Hello {number}"
    return response


with (
    soapjms.connect(url) as connection,
    soapjms.Recorder(log) as recorder,
    soapjms.Dispatcher(
        connection,
        uri,
        service,
        workers=4,
        store=store,
        recorder=recorder,
        transactional=transactions == "yes",
    ),
):
    print("serving", flush=True)
    Event().wait()
