"""WSDL documents for the tests: a ledger, in both versions, with what a test wants in each place on its own line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import places

from soapjms.protocol.names import CR_NAMESPACE as CR
from soapjms.protocol.names import REC_NAMESPACE as REC

DATA: Final = places.DATA / "wsdl"
CXF: Final = sorted(DATA.glob("echo-*.wsdl"))

WSDL_11: Final = "1.1"
WSDL_20: Final = "2.0"
VERSIONS: Final = (WSDL_11, WSDL_20)

INTERFACE_11: Final = """\
  <wsdl:message name="m"/>
  <wsdl:portType name="LedgerPT">
    <wsdl:operation name="post"><wsdl:input message="t:m"/><wsdl:output message="t:m"/></wsdl:operation>
    <wsdl:operation name="note"><wsdl:input message="t:m"/></wsdl:operation>
  </wsdl:portType>"""
OPERATIONS_11: Final = """\
    <wsdl:operation name="post">
      <s:operation soapAction="urn:ledger:post"/>
      <wsdl:input><s:body use="literal"/></wsdl:input>
      <wsdl:output><s:body use="literal"/></wsdl:output>
    </wsdl:operation>
    <wsdl:operation name="note">
      <s:operation/>
      <wsdl:input><s:body use="literal"/></wsdl:input>
    </wsdl:operation>"""
INTERFACE_20: Final = """\
  <interface name="LedgerPT">
    <operation name="post" pattern="http://www.w3.org/ns/wsdl/in-out"/>
    <operation name="note" pattern="http://www.w3.org/ns/wsdl/in-only"/>
  </interface>"""
OPERATIONS_20: Final = '    <operation ref="t:post" wsoap:action="urn:ledger:post"/>'


def wsdl11(
    *,
    head: str = "",
    interface: str = INTERFACE_11,
    transport: str = REC,
    binding: str = "",
    operations: str = OPERATIONS_11,
    service: str = "",
    port: str = "",
    address: str | None = "jms:queue:ledger",
    address_element: str = '<s:address location="{}"/>',
    more: str = "",
    soap: str = "soap",
) -> str:
    """Write a WSDL 1.1; `address` None leaves out the address element."""
    location = "" if address is None else address_element.format(address.replace("&", "&amp;"))
    return f"""\
<wsdl:definitions name="Ledger" targetNamespace="urn:ledger" xmlns:t="urn:ledger"
    xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/" xmlns:s="http://schemas.xmlsoap.org/wsdl/{soap}/"
    xmlns:other="http://schemas.xmlsoap.org/wsdl/soap12/" xmlns:j="{REC}" xmlns:cr="{CR}">
{head}
{interface}
  <wsdl:binding name="LedgerJms" type="t:LedgerPT">
    <s:binding style="document" transport="{transport}"/>
{binding}
{operations}
  </wsdl:binding>
  <wsdl:service name="LedgerService">
{service}
    <wsdl:port name="Ledger" binding="t:LedgerJms">
{port}
      {location}
    </wsdl:port>
{more}
  </wsdl:service>
</wsdl:definitions>
"""


def wsdl20(
    *,
    head: str = "",
    interface: str = INTERFACE_20,
    transport: str | None = REC,
    kind: str = "http://www.w3.org/ns/wsdl/soap",
    attributes: str = "",
    binding: str = "",
    operations: str = OPERATIONS_20,
    service: str = "",
    port: str = "",
    address: str | None = "jms:queue:ledger",
    more: str = "",
    of: str = 'interface="t:LedgerPT"',
) -> str:
    """Write a WSDL 2.0; `address` None leaves out the attribute, and so does `transport`."""
    location = "" if address is None else 'address="{}"'.format(address.replace("&", "&amp;"))
    protocol = "" if transport is None else f'wsoap:protocol="{transport}"'
    return f"""\
<description targetNamespace="urn:ledger" xmlns:t="urn:ledger" xmlns="http://www.w3.org/ns/wsdl"
    xmlns:wsdl="http://www.w3.org/ns/wsdl" xmlns:wsoap="http://www.w3.org/ns/wsdl/soap"
    xmlns:j="{REC}" xmlns:cr="{CR}">
{head}
{interface}
  <binding name="LedgerJms" {of} type="{kind}" {protocol} {attributes}>
{binding}
{operations}
  </binding>
  <service name="LedgerService" interface="t:LedgerPT">
{service}
    <endpoint name="Ledger" binding="t:LedgerJms" {location}>
{port}
    </endpoint>
{more}
  </service>
</description>
"""


def wsdl(version: str, **parts: Any) -> str:
    """Write a WSDL of a version; `parts` are those that both have."""
    return wsdl11(**parts) if version == WSDL_11 else wsdl20(**parts)


def line_of(text: str, part: str) -> int:
    """Return the line on which a part of a text begins."""
    assert part in text
    return text[: text.index(part)].count("\n") + 1


def with_import_from_above(folder: Path) -> Path:
    """Write a WSDL whose import is in the folder above its own; return its path."""
    (folder / "ledger.wsdl").write_text(wsdl11(), encoding="utf-8")
    path = folder / "below" / "importing.wsdl"
    path.parent.mkdir()
    path.write_text(
        '<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"><import location="../ledger.wsdl"/></definitions>',
        encoding="utf-8",
    )
    return path
