"""A greeter whose work takes a moment, for tests that kill it: `python slow_greeter.py URL URI`. Says when it is up."""

from __future__ import annotations

import sys
import time
from threading import Event

from lxml import etree

import soapjms

service = soapjms.Service()


@service.operation("{urn:greeter}greetMe")
def greet(request: soapjms.Request) -> etree._Element:
    """Say hello, after some work."""
    time.sleep(0.02)
    response = etree.Element("{urn:greeter}greetMeResponse")
    response.text = f"Hello {request.element.text}"
    return response


with soapjms.connect(sys.argv[1]) as connection, soapjms.Dispatcher(connection, sys.argv[2], service, workers=4):
    print("serving", flush=True)
    Event().wait()
