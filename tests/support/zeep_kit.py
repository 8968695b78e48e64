"""What the tests of zeep over JMS share: the WSDL of a gallery in many shapes, the gallery, the WSDLs of Apache CXF."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lxml import etree
from wsdl_kit import DATA

import soapjms
import soapjms.zeep
from soapjms import Attachment, Reply, Request, Service, SoapVersion
from soapjms.protocol.names import REC_NAMESPACE

CXF_NS: Final = "urn:soapjms:echo"
ECHO: Final = {SoapVersion.SOAP_11: DATA / "echo-soap11.wsdl", SoapVersion.SOAP_12: DATA / "echo-soap12.wsdl"}
PROPERTIES: Final = DATA / "echo-soap11-properties.wsdl"

NS: Final = "urn:gallery"
HTTP: Final = "http://schemas.xmlsoap.org/soap/http"
SOAP: Final = {SoapVersion.SOAP_11: "soap", SoapVersion.SOAP_12: "soap12"}
BINDING: Final = f"{{{NS}}}Jms"

TYPES: Final = """
      <xs:element name="frame"><xs:complexType><xs:sequence>
        <xs:element name="title" type="xs:string"/>
        <xs:element name="picture" type="xs:base64Binary" minOccurs="0" maxOccurs="unbounded"/>
      </xs:sequence></xs:complexType></xs:element>
      <xs:element name="framed"><xs:complexType><xs:sequence>
        <xs:element name="title" type="xs:string"/><xs:element name="picture" type="xs:base64Binary" minOccurs="0"/>
      </xs:sequence></xs:complexType></xs:element>
      <xs:element name="hang"><xs:complexType><xs:sequence>
        <xs:element name="work" type="g:Work"/></xs:sequence></xs:complexType></xs:element>
      <xs:complexType name="Work"><xs:sequence>
        <xs:element name="year" type="xs:int"/><xs:element name="sold" type="xs:date" minOccurs="0"/>
        <xs:element name="scan" type="xs:base64Binary" minOccurs="0"/>
      </xs:sequence><xs:attribute name="by" type="xs:string"/></xs:complexType>
      <xs:element name="hung"><xs:complexType><xs:sequence>
        <xs:element name="place" type="xs:string"/></xs:sequence></xs:complexType></xs:element>
      <xs:element name="note" type="xs:string"/>
      <xs:element name="visitor" type="xs:string"/>
      <xs:element name="guard" type="xs:string"/>"""
OPERATIONS: Final = {"frame": ("frame", "framed"), "hang": ("hang", "hung"), "note": ("note", None)}


def binding(name: str, soap: str, transport: str, inside: str = "") -> str:
    """Write a binding of the gallery; `frame` has a SOAP header in and one out."""
    headers = {
        "frame": '<s:header message="g:frame" part="visitor" use="literal"/>',
        "framed": '<s:header message="g:framed" part="guard" use="literal"/>',
    }
    operations = "".join(
        f'<wsdl:operation name="{each}"><s:operation soapAction="urn:gallery/{each}"/>'
        f'<wsdl:input>{headers.get(asked, "")}<s:body use="literal"/></wsdl:input>'
        + (f'<wsdl:output>{headers.get(said, "")}<s:body use="literal"/></wsdl:output>' if said else "")
        + "</wsdl:operation>\n"
        for each, (asked, said) in OPERATIONS.items()
    )
    return (
        f'<wsdl:binding name="{name}" type="g:Gallery" xmlns:s="http://schemas.xmlsoap.org/wsdl/{soap}/">'
        f'<s:binding style="document" transport="{transport}"/>{inside}{operations}</wsdl:binding>'
    )


def port(name: str, of: str, address: str, soap: str = "soap", inside: str = "") -> str:
    """Write a port of the gallery."""
    location = address.replace("&", "&amp;")
    return (
        f'<wsdl:port name="{name}" binding="g:{of}" xmlns:s="http://schemas.xmlsoap.org/wsdl/{soap}/">'
        f'{inside}<s:address location="{location}"/></wsdl:port>'
    )


def gallery_wsdl(
    uri: str = "jms:queue:gallery",
    version: SoapVersion = SoapVersion.SOAP_11,
    *,
    types: str = TYPES,
    head: str = "",
    bindings: str | None = None,
    services: str | None = None,
) -> str:
    """Write the WSDL of the gallery; by default one binding `Jms` and one port `Jms` of the service `Gallery`."""
    soap = SOAP[version]
    if bindings is None:
        bindings = binding("Jms", soap, REC_NAMESPACE)
    if services is None:
        services = f'<wsdl:service name="Gallery">{port("Jms", "Jms", uri, soap)}</wsdl:service>'
    parts = {"frame": ("visitor",), "framed": ("guard",)}
    messages = "".join(
        f'<wsdl:message name="{each}">'
        + "".join(f'<wsdl:part name="{part}" element="g:{part}"/>' for part in (each, *parts.get(each, ())))
        + "</wsdl:message>\n"
        for pair in OPERATIONS.values()
        for each in pair
        if each
    )
    interface = "".join(
        f'<wsdl:operation name="{each}"><wsdl:input message="g:{asked}"/>'
        + (f'<wsdl:output message="g:{said}"/>' if said else "")
        + "</wsdl:operation>\n"
        for each, (asked, said) in OPERATIONS.items()
    )
    return f"""\
<wsdl:definitions targetNamespace="{NS}" xmlns:g="{NS}" xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/"
    xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:j="{REC_NAMESPACE}">
  {head}
  <wsdl:types>
    <xs:schema targetNamespace="{NS}" elementFormDefault="qualified">{types}
    </xs:schema>
  </wsdl:types>
  {messages}
  <wsdl:portType name="Gallery">
  {interface}
  </wsdl:portType>
  {bindings}
  {services}
</wsdl:definitions>
"""


def written(folder: Path, text: str, name: str = "gallery.wsdl") -> Path:
    """Write a file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# The services


def made(name: str, **texts: str) -> etree._Element:
    """Make an element of the gallery with children."""
    element = etree.Element(f"{{{NS}}}{name}", nsmap={"g": NS})
    for each, text in texts.items():
        etree.SubElement(element, f"{{{NS}}}{each}").text = text
    return element


def echo() -> soapjms.Service:
    """Make the service of the WSDLs of Apache CXF; it counts its pings."""
    service = soapjms.Service()
    pings: list[str | None] = []

    def says(name: str, text: str) -> etree._Element:
        element = etree.Element(f"{{{CXF_NS}}}{name}")
        etree.SubElement(element, f"{{{CXF_NS}}}responseType").text = text
        return element

    @service.operation(f"{{{CXF_NS}}}greetMe")
    def greet(request: soapjms.Request) -> etree._Element:
        return says("greetMeResponse", f"Hello {request.findtext('{*}requestType')}")

    @service.operation(f"{{{CXF_NS}}}pingMe")
    def ping(request: soapjms.Request) -> None:
        pings.append(request.findtext("{*}requestType"))

    @service.operation(f"{{{CXF_NS}}}pingCount")
    def count(request: soapjms.Request) -> etree._Element:
        return says("pingCountResponse", str(len(pings)))

    @service.operation(f"{{{CXF_NS}}}testFault")
    def fail(request: soapjms.Request) -> etree._Element:
        detail = etree.Element(f"{{{CXF_NS}}}EchoFault")
        etree.SubElement(detail, f"{{{CXF_NS}}}code").text = "7"
        etree.SubElement(detail, f"{{{CXF_NS}}}reason").text = request.findtext("{*}requestType")
        raise soapjms.SoapFaultError("it was asked for", blame="Sender", detail=detail)

    return service


PICTURE = f"{{{NS}}}picture"


def gallery() -> Service:
    """Make the service: it frames the first picture, and says which parts came. `loud` sends what no one refers to."""
    service = Service()

    @service.operation(f"{{{NS}}}frame")
    def frame(request: Request) -> Reply:
        title = request.findtext(f"{{{NS}}}title") or ""
        picture = request.find(PICTURE)
        body = made("framed", title=f"{title}: {[bytes(each.content) for each in request.attachments]}")
        sent = []
        if picture is not None:
            framed = Attachment(
                b"[" + bytes(request.attachments.octets_of(picture)) + b"]", "image/png", "framed@gallery"
            )
            etree.SubElement(body, PICTURE).append(framed.include())
            sent.append(framed)
        if title == "loud":
            fields = {"Content-Disposition": 'attachment; filename="a.txt"'}
            sent.append(Attachment(b"loud\r\n", "text/plain", "loud@gallery", fields=fields))
        return Reply(body, sent)

    @service.operation(f"{{{NS}}}hang")
    def hang(request: Request) -> etree._Element:
        scan = next(request.element.iter(f"{{{NS}}}scan"))
        return made("hung", place=f"{bytes(request.attachments.octets_of(scan))!r} {len(scan)}")

    return service
