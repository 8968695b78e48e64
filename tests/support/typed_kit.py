"""What the tests of typed services share: the WSDL of a shop, with all that a WSDL may say, and requests to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from calling_kit import SOAP_11
from service_kit import accepted

from soapjms import Service, SoapVersion
from soapjms.protocol import names
from soapjms.protocol.envelope import Envelope, Fault, as_envelope, read_fault
from soapjms.protocol.names import REC_NAMESPACE
from soapjms.service.typed import TypedService

NS: Final = "urn:shop"

ELEMENTS: Final = """
    <xs:element name="order"><xs:complexType><xs:sequence>
      <xs:element name="item" maxOccurs="unbounded"><xs:complexType><xs:sequence>
        <xs:element name="article" type="b:Code"/><xs:element name="pieces" type="xs:int"/>
        <xs:element name="price" type="xs:decimal" minOccurs="0"/></xs:sequence></xs:complexType></xs:element>
      <xs:element name="from" type="xs:date" minOccurs="0"/></xs:sequence>
      <xs:attribute name="urgent" type="xs:boolean"/>
      <xs:attribute name="discount" type="xs:decimal"/></xs:complexType></xs:element>
    <xs:element name="ordered"><xs:complexType><xs:sequence>
      <xs:element name="number" type="b:Code"/><xs:element name="pieces" type="xs:int"/></xs:sequence>
      </xs:complexType></xs:element>
    <xs:element name="price" type="b:Code"/>
    <xs:element name="priced" type="xs:decimal"/>
    <xs:element name="stocked"><xs:complexType><xs:sequence>
      <xs:element name="code" type="b:Code" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
      </xs:complexType></xs:element>
    <xs:element name="Sold"><xs:complexType><xs:sequence>
      <xs:element name="article" type="b:Code"/></xs:sequence></xs:complexType></xs:element>
    <xs:element name="Closed" type="xs:string"/>
    <xs:element name="customer"><xs:complexType><xs:sequence>
      <xs:element name="name" type="b:Code"/></xs:sequence></xs:complexType></xs:element>
    <xs:element name="till" type="xs:int"/>"""
CODE: Final = """
    <xs:simpleType name="Code"><xs:restriction base="xs:string"><xs:pattern value="[A-Z]+[0-9]*"/>
      <xs:maxLength value="8"/></xs:restriction></xs:simpleType>
    <xs:complexType name="Place"><xs:sequence><xs:element name="shelf" type="xs:int"/></xs:sequence></xs:complexType>"""


def shop_wsdl(
    version: SoapVersion = SOAP_11, *, code: str = CODE, use: str = "literal", uri: str = "jms:queue:shop"
) -> str:
    """Write the WSDL: `order` in the document style with a header in and out, `price` with simple types, `stock` with
    an empty body, `move` in the RPC style; the faults Sold and Closed; two have a Closed of their own.
    """
    soap = "soap" if version is SOAP_11 else "soap12"

    def operation(name: str, style: str = "document", heads: bool = False) -> str:
        space = f' namespace="{NS}:rpc"' if style == "rpc" else ""
        head = '<s:header message="t:heads" part="{}" use="literal"/>' if heads else ""
        body = f'<s:body use="{use}"{space}/>'
        return (
            f'<w:operation name="{name}"><s:operation soapAction="urn:shop:{name}" style="{style}"/>'
            f"<w:input>{head.format('customer')}{body}</w:input>"
            f"<w:output>{head.format('till')}{body}</w:output></w:operation>"
        )

    return f"""\
<w:definitions targetNamespace="{NS}" xmlns:t="{NS}" xmlns:b="{NS}:base" xmlns:w="http://schemas.xmlsoap.org/wsdl/"
    xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <w:types>
    <xs:schema targetNamespace="{NS}" elementFormDefault="qualified"><xs:import namespace="{NS}:base"/>{ELEMENTS}
    </xs:schema>
    <xs:schema targetNamespace="{NS}:base">{code}</xs:schema>
  </w:types>
  <w:message name="order"><w:part name="p" element="t:order"/></w:message>
  <w:message name="ordered"><w:part name="p" element="t:ordered"/></w:message>
  <w:message name="price"><w:part name="p" element="t:price"/></w:message>
  <w:message name="priced"><w:part name="p" element="t:priced"/></w:message>
  <w:message name="nothing"/>
  <w:message name="stocked"><w:part name="p" element="t:stocked"/></w:message>
  <w:message name="move"><w:part name="article" type="b:Code"/><w:part name="to" type="b:Place"/></w:message>
  <w:message name="moved"><w:part name="pieces" type="xs:int"/></w:message>
  <w:message name="Sold"><w:part name="p" element="t:Sold"/></w:message>
  <w:message name="Closed"><w:part name="p" element="t:Closed"/></w:message>
  <w:message name="Text"><w:part name="p" type="xs:string"/></w:message>
  <w:message name="heads"><w:part name="customer" element="t:customer"/>
    <w:part name="till" element="t:till"/></w:message>
  <w:portType name="Shop">
    <w:operation name="order"><w:input message="t:order"/><w:output message="t:ordered"/>
      <w:fault name="Sold" message="t:Sold"/><w:fault name="Closed" message="t:Closed"/></w:operation>
    <w:operation name="price"><w:input message="t:price"/><w:output message="t:priced"/>
      <w:fault name="Closed" message="t:Sold"/><w:fault name="Text" message="t:Text"/></w:operation>
    <w:operation name="stock"><w:input message="t:nothing"/><w:output message="t:stocked"/></w:operation>
    <w:operation name="move"><w:input message="t:move"/><w:output message="t:moved"/></w:operation>
  </w:portType>
  <w:binding name="Shop" type="t:Shop" xmlns:s="http://schemas.xmlsoap.org/wsdl/{soap}/">
    <s:binding transport="{REC_NAMESPACE}"/>
    {operation("order", heads=True)}{operation("price")}{operation("stock")}{operation("move", "rpc")}
  </w:binding>
  <w:service name="Shop"><w:port name="Shop" binding="t:Shop" xmlns:s="http://schemas.xmlsoap.org/wsdl/{soap}/">
    <s:address location="{uri}"/></w:port></w:service>
</w:definitions>
"""


def shop(folder: Path, version: SoapVersion = SOAP_11, *, validate: bool = True, **wsdl: Any) -> TypedService:
    """Make a service of the shop, without functions."""
    path = folder / "shop.wsdl"
    path.write_text(shop_wsdl(version, **wsdl), encoding="utf-8")
    return Service.from_wsdl(path, validate=validate)


def answer_to(
    service: Service, body: str, version: SoapVersion = SOAP_11, *, header: str = "", action: str | None = None
) -> Envelope:
    """Return the envelope that a service answers with."""
    text = (
        f'<e:Envelope xmlns:e="{version.namespace}" xmlns="{NS}"><e:Header>{header}</e:Header>'
        f"<e:Body>{body}</e:Body></e:Envelope>"
    )
    properties = {} if action is None else {names.SOAP_ACTION: action}
    return as_envelope(service.answer(accepted(version, body=text.encode(), properties=properties)).envelope)


def fault_to(service: Service, body: str, version: SoapVersion = SOAP_11, **more: Any) -> Fault:
    """Return the fault that a service answers with."""
    fault = read_fault(answer_to(service, body, version, **more))
    assert fault is not None
    return fault
