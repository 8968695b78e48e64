"""With the extra `zeep`: a service and a client from one WSDL."""

from __future__ import annotations

import sys
from pathlib import Path

import soapjms
import soapjms.zeep

wsdl = Path(sys.argv[1]) / "greeter.wsdl"
service = soapjms.Service.from_wsdl(wsdl, port="GreeterPort")


@service.operation("greetMe")
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}"


@service.operation("pingMe")
def ping(name: str) -> None:
    """Do nothing."""


with soapjms.connect("embedded:") as connection, soapjms.Dispatcher(connection, "jms:queue:greeter", service):
    print("service", flush=True)
    with soapjms.zeep.Client(wsdl, connection=connection) as client:
        assert client.service.greetMe("World") == "Hello World"
    print("call", flush=True)
