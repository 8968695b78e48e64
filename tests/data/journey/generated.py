"""With the extra `codegen`: a typed client and a service, generated from a WSDL."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import soapjms
from soapjms.codegen import generate_package

with TemporaryDirectory() as folder:
    generate_package(Path(sys.argv[1]) / "greeter.wsdl", "greeter_client", port="GreeterPort", out=folder)
    print("package", flush=True)
    sys.path.insert(0, folder)
    greeter = importlib.import_module("greeter_client")

    class Greeter(greeter.GreeterService):
        """A service of the generated class."""

        def greet_me(self, request):
            """Say hello."""
            return greeter.GreetMeResponse(greeting=f"Hello {request.name}")

        def ping_me(self, request):
            """Do nothing."""

    service = soapjms.Service.from_wsdl(Path(sys.argv[1]) / "greeter.wsdl", Greeter())
    with soapjms.connect("embedded:") as connection, soapjms.Dispatcher(connection, "jms:queue:greeter", service):
        print("service", flush=True)
        with greeter.GreeterClient(connection, "jms:queue:greeter") as client:
            assert client.greet_me(greeter.GreetMe(name="World")).greeting == "Hello World"
        print("call", flush=True)
