"""A typed greeter for tests of `soapjms serve`; GREETER_WSDL is its WSDL."""

from __future__ import annotations

import os

import soapjms

service = soapjms.Service.from_wsdl(os.environ["GREETER_WSDL"], port="GreeterPort")


@service.operation("greetMe")
async def greet(name: str) -> str:
    """Say hello, and which process did."""
    return f"Hello {name} from {os.getpid()}"
