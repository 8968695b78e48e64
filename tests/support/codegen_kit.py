"""What the tests of generated packages share: packages generated into a folder, and imported from there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from places import DATA

from soapjms.codegen import generate_package

BANK: Final = DATA / "wsdl" / "bank.wsdl"


@contextmanager
def generated(wsdl: str | Path, folder: Path, package: str = "bank_client", **options: Any) -> Iterator[ModuleType]:
    """Generate a package into a folder, and import it; it is forgotten afterwards."""
    generate_package(wsdl, package, out=folder, **options)
    sys.path.insert(0, str(folder))
    invalidate_caches()
    try:
        yield import_module(package)
    finally:
        sys.path.remove(str(folder))
        for name in [each for each in sys.modules if each == package or each.startswith(f"{package}.")]:
            del sys.modules[name]


def small_wsdl(
    types: str, *, request: str = "t:ask", response: str = "t:answer", namespace: str = "urn:small", more: str = ""
) -> str:
    """Write a WSDL with one operation `ask`; its types hold the elements ask and answer.

    Args:
        types: the content of the schema.
        request, response: the elements of the messages.
        namespace: the namespace of the schema and the WSDL.
        more: more schemas.
    """
    return f"""\
<w:definitions targetNamespace="{namespace}" xmlns:t="{namespace}" xmlns:w="http://schemas.xmlsoap.org/wsdl/"
    xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <w:types><xs:schema targetNamespace="{namespace}" elementFormDefault="qualified">{types}</xs:schema>{more}</w:types>
  <w:message name="ask"><w:part name="p" element="{request}"/></w:message>
  <w:message name="answer"><w:part name="p" element="{response}"/></w:message>
  <w:portType name="Small"><w:operation name="ask">
    <w:input message="t:ask"/><w:output message="t:answer"/></w:operation></w:portType>
  <w:binding name="Small" type="t:Small"><s:binding transport="http://www.w3.org/2010/soapjms/"/>
    <w:operation name="ask"><s:operation soapAction="urn:ask"/>
      <w:input><s:body use="literal"/></w:input><w:output><s:body use="literal"/></w:output></w:operation></w:binding>
  <w:service name="Small"><w:port name="Small" binding="t:Small"><s:address location="jms:queue:small"/></w:port>
  </w:service>
</w:definitions>
"""
