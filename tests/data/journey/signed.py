"""With the extra `wsse`: a service that takes only what a known certificate signed."""

from __future__ import annotations

import sys
from pathlib import Path

import xmlsec
from zeep.wsse import BinarySignature

import soapjms
import soapjms.zeep
from soapjms.signatures import Signatures
from soapjms.zeep import Signing

folder = Path(sys.argv[1])
wsdl = folder / "greeter.wsdl"
service = soapjms.Service.from_wsdl(wsdl, port="GreeterPort", verify=Signatures({"ann": folder / "ann.pem"}))


@service.operation("greetMe")
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}"


@service.operation("pingMe")
def ping(name: str) -> None:
    """Do nothing."""


key, certificate = str(folder / "key.pem"), str(folder / "ann.pem")
signature = BinarySignature(key, certificate, None, xmlsec.Transform.RSA_SHA256, xmlsec.Transform.SHA256)
with soapjms.connect("embedded:") as connection, soapjms.Dispatcher(connection, "jms:queue:greeter", service):
    print("service", flush=True)
    with soapjms.zeep.Client(wsdl, connection=connection, wsse=Signing(signature)) as client:
        assert client.service.greetMe("World") == "Hello World"
    print("signed call", flush=True)
