"""A greeter that does what a service should not, for tests of what is said then."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import soapjms

service = soapjms.Service()
typed = soapjms.Service.from_wsdl(Path(__file__).parents[1] / "wsdl" / "echo-soap11.wsdl")


@service.operation("{urn:greeter}greetMe")
def greet(request: soapjms.Request) -> Any:
    """Raise, return nonsense, or never return, as the request has it."""
    if request.element.text == "raise":
        raise ValueError("the database is\naway")
    if request.element.text == "nonsense":
        return 42
    Event().wait()
    return None


@typed.operation("greetMe")
def greet_with_types(requestType: str) -> Any:
    """Return what the WSDL does not have."""
    return {"nonsense": requestType}
