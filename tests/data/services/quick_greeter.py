"""A greeter whose work takes a moment, and is noted in BANK_MARKS, for tests that end it under load."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lxml import etree

import soapjms

MARKS = Path(os.environ["BANK_MARKS"])

service = soapjms.Service()


@service.operation("{urn:greeter}greetMe")
def greet(request: soapjms.Request) -> etree._Element:
    """Say hello, after some work."""
    with (MARKS / "begun").open("a", encoding="utf-8") as file:  # a line is written in one go
        file.write(f"{request.element.text}\n")
    time.sleep(0.01)
    response = etree.Element("{urn:greeter}greetMeResponse")
    response.text = f"Hello {request.element.text}"
    return response
