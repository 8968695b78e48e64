"""Adding a port to a WSDL: what was written is read back, and nothing else changes."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from wsdl_kit import CR, CXF, REC, VERSIONS, WSDL_11, WSDL_20, wsdl, wsdl11, wsdl20

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidPropertyError, InvalidUriError, InvalidWsdlError, UsageError
from soapjms.protocol.names import CR_2009, Mep, SoapVersion
from soapjms.protocol.properties import Origin
from soapjms.protocol.uri import build
from soapjms.protocol.wsdl import Loaded, Port, read
from soapjms.protocol.wsdl.lint import lint
from soapjms.protocol.wsdl.write import NewPort, add_port, with_address

HTTP = "http://schemas.xmlsoap.org/soap/http"


def added(text: str, **new: Any) -> str:
    """Add a port to a document."""
    return add_port(text.encode(), NewPort(**{"address": "jms:queue:new", **new})).decode()


def port_of(text: str, name: str = "LedgerServiceJms") -> Port:
    """Read a port of a document."""
    return read(text.encode()).port(name)


def lost_lines(before: str, after: str) -> list[str]:
    """Return the lines that are no longer there."""
    return [each for each in difflib.ndiff(before.splitlines(), after.splitlines()) if each.startswith("- ")]


# What was written is read back

EVERYTHING: dict[str, Any] = {
    "jndiConnectionFactoryName": "CF",
    "jndiInitialContextFactory": "com.example.Factory",
    "jndiURL": "tcp://example:1",
    "jndi-a": " 1 ",
    "jndi-b": "<&\"'>\n",
    "deliveryMode": "NON_PERSISTENT",
    "timeToLive": 60000,
    "priority": "07",
    "replyToName": "R & <b>",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", [Origin.PORT, Origin.SERVICE, Origin.BINDING])
def test_every_property_on_every_level(version: str, level: Origin) -> None:
    """Values, origin, address, SOAP version, operations; nothing that lint would find."""
    before = wsdl(version)
    after = added(before, properties={level: EVERYTHING}, soap_version=SoapVersion.SOAP_12)
    found = port_of(after)
    assert {name: each.value for name, each in found.effective().items() if each.origin is level} == {
        **EVERYTHING,
        "deliveryMode": 1,
        "priority": 7,
    }
    assert (found.address, found.soap_version) == ("jms:queue:new", SoapVersion.SOAP_12)
    assert [(each.name, each.soap_action, each.mep) for each in found.operations] == [
        ("post", "urn:ledger:post", Mep.REQUEST_RESPONSE),
        ("note", None, Mep.ONE_WAY),
    ]
    assert lint(read(after.encode())) == ()
    assert lost_lines(before, after) == []


LEVELS = st.sampled_from([Origin.PORT, Origin.SERVICE, Origin.BINDING])
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).map(lambda each: each.strip(" \t\r\n"))
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "replyToName": TEXTS,
        "jndiURL": TEXTS,
        "priority": st.integers(0, 9),
        "timeToLive": st.integers(0, 2**63 - 1),
        "deliveryMode": st.sampled_from(["PERSISTENT", "NON_PERSISTENT"]),
        "jndi-x": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    },
)


@given(
    version=st.sampled_from(VERSIONS),
    properties=st.dictionaries(LEVELS, PROPERTIES, max_size=3),
    destination=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    soap=st.sampled_from(SoapVersion),
)
def test_any_values_come_back(
    version: str, properties: dict[Origin, dict[str, Any]], destination: str, soap: SoapVersion
) -> None:
    """Any Unicode that XML can hold, on any level."""
    address = build("queue", destination)
    found = port_of(added(wsdl(version), address=address, properties=properties, soap_version=soap))
    for level, extensions in found.levels():
        written = {name: str(value) for name, value in properties.get(level, {}).items()}
        assert {each.name: each.value for each in extensions} == written
    assert (found.address, found.soap_version, found.uri().destination) == (address, soap, destination)


def test_the_edition_of_2009() -> None:
    """Transport and elements are in the namespace of the profile."""
    for version in VERSIONS:
        found = port_of(added(wsdl(version), profile=CR_2009, properties={Origin.PORT: {"priority": 1}}))
        assert found.profile is CR_2009
        assert [each.namespace for each in found.extensions] == [CR]


# Nothing else changes


@pytest.mark.parametrize("path", CXF, ids=lambda path: path.name)
@pytest.mark.parametrize("soap", list(SoapVersion))
def test_files_of_cxf(path: Path, soap: SoapVersion) -> None:
    """Everything that was there is there, and means the same; the new port has the operations of the others."""
    before = path.read_bytes()
    properties = {Origin.BINDING: {"priority": 2}, Origin.PORT: {"timeToLive": 5}}
    new = NewPort(address="jms:queue:x", service="EchoService", soap_version=soap, properties=properties)
    after = add_port(before, new)
    old, described = read(before), read(after)
    assert lost_lines(before.decode(), after.decode()) == []
    found = described.port("EchoServiceJms")
    assert [(each.name, each.soap_action, each.mep) for each in found.operations] == [
        (each.name, each.soap_action, each.mep) for each in old.ports[0].operations
    ]
    assert found.soap_version is soap
    for each in old.ports:
        assert described.port(f"{each.service.name}/{each.name}").effective() == each.effective()


def test_the_document_stays_as_it_is_written() -> None:
    """Comments, quotes, line breaks inside tags, CDATA, references, processing instructions, no final newline."""
    odd = """<?xml version='1.0'?><!-- <service> --><?pi <service> ?>
<definitions  name = 'L'
    targetNamespace="urn:l" xmlns:t='urn:l' xmlns="http://schemas.xmlsoap.org/wsdl/"><documentation><![CDATA[<service>]]>
    &#228; a > b </documentation><portType name='P'><operation name="o"  ><input/></operation></portType>
\t<service name="S" ><!-- here -->\t</service ></definitions>"""
    after = added(odd)
    assert after.replace("\r", "") == after
    start, end = odd.split("<service name=")
    assert after.startswith(start)
    assert after.endswith("\t</service ></definitions>")
    assert "<!-- here -->" in after
    assert port_of(after, "SJms").operation("o").mep is Mep.ONE_WAY
    assert "\n\t\t<port name=" in after
    assert end


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ('<service name="S"/>', '<service name="S">{}{}\n  </service>'),
        ('<service name="S" />', '<service name="S" >{}{}\n  </service>'),
        ('<service name="S"></service>', '<service name="S">{}{}</service>'),
        ('<service name="S">\n  </service>', '<service name="S">{}{}\n  </service>'),
        ('<service name="S"><documentation/></service>', '<service name="S"><documentation/>{}{}</service>'),
        (
            '<service name="S"><documentation/><port name="p" binding="t:B"/></service>',
            '<service name="S"><documentation/>{}<port name="p" binding="t:B"/>{}</service>',
        ),
    ],
)
def test_where_things_go_in_a_service(service: str, expected: str) -> None:
    """Elements of the service come first, behind its documentation; the port comes last."""
    text = f"""<definitions targetNamespace="urn:l" xmlns:t="urn:l" xmlns="http://schemas.xmlsoap.org/wsdl/">
  <portType name="P"/>
  {service}
</definitions>"""
    after = added(text, properties={Origin.SERVICE: {"priority": 1}}, interface="P")
    element = f'\n    <soapjms:priority xmlns:soapjms="{REC}">1</soapjms:priority>'
    start = after.index('\n    <port name="SJms"')
    port = after[start : after.index("</port>") + 7]
    assert after[after.index("<service") : after.index("</definitions>") - 1] == expected.format(element, port)
    assert after.index("<binding") < after.index("<service")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str) -> None:
    """The document keeps its encoding; a character that it lacks is written by number."""
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?>\n' + wsdl11(head="<!-- ä -->")
    properties = {Origin.PORT: {"replyToName": "ä☃"}}
    after = add_port(text.encode(encoding), NewPort(address="jms:queue:q", properties=properties))
    assert read(after).port("LedgerServiceJms").effective().value("replyToName") == "ä☃"
    assert "<!-- ä -->" in after.decode(encoding)
    assert lost_lines(text, after.decode(encoding)) == []


def test_line_breaks() -> None:
    """A document with CR LF gets CR LF; a carriage return in a value is kept."""
    text = wsdl11().replace("\n", "\r\n")
    after = added(text, properties={Origin.PORT: {"replyToName": "a\rb"}})
    assert after.replace("\r\n", "").count("\n") == 0
    assert port_of(after).effective().value("replyToName") == "a\rb"


def test_an_encoding_that_is_not_known() -> None:
    """An encoding that is not in our table is refused by its name."""
    text = '<?xml version="1.0" encoding="viscii"?>' + wsdl11()
    with pytest.raises(InvalidWsdlError, match="the encoding 'viscii' is unknown"):
        added(text)


# Bindings


def test_an_existing_binding_is_used() -> None:
    """A SOAP/JMS binding that is named is taken as it is."""
    for version in VERSIONS:
        after = added(wsdl(version), binding="LedgerJms")
        assert port_of(after).binding == read(wsdl(version).encode()).bindings["{urn:ledger}LedgerJms"]
        assert len(read(after.encode()).bindings) == 1
        assert len(lost_lines(wsdl(version), after)) == 0


COPIED = """\
    <wsdl:operation name="post">
      <wsdl:documentation>left <b>out</b></wsdl:documentation><j:priority>1</j:priority>
      <s:operation soapAction="urn:a&amp;b" soapActionRequired="true" style="rpc" wsdl:required="true" xml:lang="en"/>
      <wsdl:input name="i" xmlns:m="urn:ledger" xmlns:x="urn:x">
        <s:header message="m:m" part="p" use="literal"/><s:header message="plain" part="p" use="literal"/>
        <x:other>some text</x:other><x:empty/>
      </wsdl:input>
      <wsdl:output/>
    </wsdl:operation>"""


@pytest.mark.parametrize(("soap", "required"), [(SoapVersion.SOAP_11, None), (SoapVersion.SOAP_12, "true")])
def test_operations_are_copied(soap: SoapVersion, required: str | None) -> None:
    """From a SOAP binding of the port type: for the SOAP version asked for, with prefixes that mean the same."""
    before = wsdl11(operations=COPIED, soap="soap12", binding="")
    after = added(before, soap_version=soap)
    root = xml.parse(after.encode())
    space = f"{{http://schemas.xmlsoap.org/wsdl/{'soap' if soap is SoapVersion.SOAP_11 else 'soap12'}/}}"
    (binding,) = root.xpath("//*[local-name()='binding'][@name='LedgerPTJms']")  # type: ignore[misc,union-attr]
    assert isinstance(binding, etree._Element)
    operation = binding.find(f"*/{space}operation")
    assert operation is not None
    assert (operation.get("soapAction"), operation.get("soapActionRequired")) == ("urn:a&b", required)
    assert operation.get("{http://schemas.xmlsoap.org/wsdl/}required") == "true"
    assert operation.get("{http://www.w3.org/XML/1998/namespace}lang") == "en"
    prefixes = [each.get("message", "").rpartition(":")[0] for each in binding.iter(f"{space}header")]
    assert [binding.nsmap.get(each) if each else "" for each in prefixes] == ["urn:ledger", ""]
    assert [each.text for each in binding.iter("{urn:x}other")] == ["some text"]
    assert "left" not in "".join(str(each) for each in binding.itertext())
    assert not list(binding.iter(f"{{{REC}}}*"))


def test_operations_without_a_binding_to_copy() -> None:
    """They are document and literal, with no action, for input, output and faults by their names."""
    interface = """<wsdl:portType name="Other"><wsdl:operation name="get"><wsdl:input name="i"/><wsdl:output/>
      <wsdl:fault name="f"/></wsdl:operation></wsdl:portType>"""
    after = added(wsdl11(head=interface), interface="Other")
    binding = after[after.index('name="OtherJms"') : after.index("<wsdl:service")]
    assert '<wsdl:input name="i">' in binding
    assert '<s:fault name="f" use="literal"/>' in binding
    assert binding.count('<s:body use="literal"/>') == 2
    assert port_of(after).operation("get").soap_action is None


def test_a_binding_of_the_same_version_is_copied_first() -> None:
    """Where there are several."""
    other = """<wsdl:binding name="First" type="t:LedgerPT"><other:binding transport="x"/>
      <wsdl:operation name="post"><other:operation soapAction="urn:first"/></wsdl:operation></wsdl:binding>"""
    after = added(wsdl11(head=other), soap_version=SoapVersion.SOAP_11)
    assert port_of(after).operation("post").soap_action == "urn:ledger:post"
    after = added(wsdl11(head=other), soap_version=SoapVersion.SOAP_12)
    assert port_of(after).operation("post").soap_action == "urn:first"


def test_actions_of_wsdl_20_are_repeated() -> None:
    """Those that bindings of the same interface say; an operation without one is not repeated."""
    other = """<interface name="Other"/><binding name="OtherB" interface="t:Other">
      <operation ref="t:post" wsoap:action="urn:wrong"/></binding>"""
    text = wsdl20(head=other, operations='<operation ref="t:post" wsoap:action="urn:right"/><operation ref="t:note"/>')
    after = added(text)
    assert port_of(after).operation("post").soap_action == "urn:right"
    assert after.count('ref="t:note"') == 1


def test_soap_version_by_default() -> None:
    """That of the service's other ports, else what the WSDL version has by default."""
    assert port_of(added(wsdl11(soap="soap12"))).soap_version is SoapVersion.SOAP_12
    assert port_of(added(wsdl20(attributes='wsoap:version="1.1"'))).soap_version is SoapVersion.SOAP_11
    space = "http://schemas.xmlsoap.org/wsdl/"
    alone = f'<definitions targetNamespace="u" xmlns="{space}"><portType name="P"/><service/></definitions>'
    assert port_of(added(alone, name="N"), "N").soap_version is SoapVersion.SOAP_11
    space = "http://www.w3.org/ns/wsdl"
    alone = f'<description targetNamespace="u" xmlns="{space}"><interface name="P"/><service/></description>'
    assert port_of(added(alone, name="N"), "N").soap_version is SoapVersion.SOAP_12


def test_prefixes_that_are_taken() -> None:
    """A prefix that means something else is not used; one that is declared already is."""
    text = f"""<w:definitions targetNamespace="urn:l" xmlns:w="http://schemas.xmlsoap.org/wsdl/"
        xmlns:soap="urn:not-soap" xmlns:tns="urn:other" xmlns:soapjms="urn:x" xmlns:soapjms2="urn:y">
      <w:portType name="P"/><w:service name="S" xmlns:mine="{REC}"/></w:definitions>"""
    properties = {Origin.BINDING: {"priority": 1}, Origin.PORT: {"priority": 2}}
    after = added(text, properties=properties)
    assert "<soapjms3:priority>1" in after
    assert "<mine:priority>2" in after
    assert 'xmlns:soap2="http://schemas.xmlsoap.org/wsdl/soap/"' in after
    assert 'type="tns2:P"' in after
    assert "</w:service>" in after
    assert port_of(after, "SJms").effective()["priority"] == (2, Origin.PORT)


def test_port_types_and_bindings_in_other_documents() -> None:
    """Operations are copied from what is imported, too."""
    whole = wsdl11(transport=HTTP, address="http://example/")
    other = whole.split("  <wsdl:service")[0] + "</wsdl:definitions>"
    start = whole.index("  <wsdl:message")
    first = whole[:start] + '<wsdl:import location="b"/>\n' + whole[whole.index("  <wsdl:service") :]
    documents = {"b": other.encode()}
    after = add_port(
        first.encode(), NewPort(address="jms:queue:q"), "a", lambda location, _: Loaded(location, documents[location])
    )
    found = read(after, "a", lambda location, _: Loaded(location, documents[location])).port("LedgerServiceJms")
    assert found.operation("post").soap_action == "urn:ledger:post"


# Refusals


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("new", "error", "said"),
    [
        ({"address": "jms:queue:a/b"}, InvalidUriError, "slashInDestination"),
        ({"address": "http://example/"}, InvalidUriError, "wrongScheme"),
        ({"service": "Other"}, UsageError, "must be one of those in WSDL .LedgerService., got 'Other'"),
        ({"interface": "Other"}, UsageError, "interface must be one of LedgerPT, got 'Other'"),
        ({"name": "Ledger"}, UsageError, "'Ledger' already; choose another name"),
        ({"name": "a b"}, UsageError, "a name must have letters, .* got 'a b'"),
        ({"name": "a:b"}, UsageError, "a name must have letters"),
        ({"binding": "1"}, UsageError, "a name must have letters, .* got '1'"),
        ({"binding": "LedgerJms", "properties": {Origin.BINDING: {"priority": 1}}}, UsageError, "exists already"),
        ({"binding": "LedgerJms", "profile": CR_2009}, UsageError, "choose another name for a new binding"),
        ({"properties": {Origin.PORT: {"priority": 11}}}, InvalidPropertyError, "priority is '11' in port"),
        ({"properties": {Origin.PORT: {"priority": True}}}, InvalidPropertyError, "priority is 'True'"),
        ({"properties": {Origin.SERVICE: {"targetService": "x"}}}, InvalidPropertyError, "may be set in: "),
        ({"properties": {Origin.BINDING: {"prority": "x"}}}, InvalidPropertyError, "unknown binding property"),
        ({"properties": {Origin.PORT: {"replyToName": " x"}}}, InvalidPropertyError, "no white space around a value"),
        ({"properties": {Origin.PORT: {"replyToName": "a\x01b"}}}, InvalidPropertyError, "no control characters"),
        ({"properties": {Origin.PORT: {"jndi-a\x01": "x"}}}, InvalidPropertyError, "no control characters"),
        (
            {"properties": {Origin.SERVICE: {"replyToName": "a", "topicReplyToName": "b"}}},
            InvalidPropertyError,
            "replyToName is 'a' and topicReplyToName is 'b' in one service",
        ),
        ({"properties": {Origin.PORT: {"jndi-": "x"}}}, InvalidPropertyError, "without a name"),
    ],
)
def test_what_is_refused(version: str, new: dict[str, Any], error: type[Exception], said: str) -> None:
    """The message says what would be accepted."""
    with pytest.raises(error, match=said):
        added(wsdl(version), **new)


HERE: dict[str, Any] = {
    "service": "<j:priority>3</j:priority><j:jndiURL>tcp://a:1</j:jndiURL><j:replyToName>r</j:replyToName>",
    "binding": "<j:timeToLive>60</j:timeToLive><j:deliveryMode>PERSISTENT</j:deliveryMode>",
    "port": '<j:jndiContextParameter name="own" value="1"/>',
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        (
            {"priority": 4},
            UsageError,
            "priority of the service 'LedgerService' cannot be set to 4, as priority is 3 there",
        ),
        (
            {"jndi-java.naming.provider.url": "tcp://b:1"},
            UsageError,
            "cannot be set to 'tcp://b:1', as jndiURL is 'tcp://a:1' there already .*; omit it, or set it on",
        ),
        ({"topicReplyToName": "t"}, InvalidPropertyError, "replyToName is 'r' and topicReplyToName is 't' in one"),
        (
            {"timeToLive": 5},
            UsageError,
            "timeToLive 5 of the service would override timeToLive 60 of the binding for the (port|endpoint) 'Ledg",
        ),
        ({"deliveryMode": "NON_PERSISTENT"}, UsageError, "would override deliveryMode 'PERSISTENT' of the binding"),
    ],
)
def test_a_property_of_the_service_that_contradicts_what_is_there(
    version: str, values: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The service has another value, or a port that is there already would have another than before."""
    with pytest.raises(error, match=said):
        added(wsdl(version, **HERE), properties={Origin.SERVICE: values})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_property_of_the_service_that_is_there_already_is_not_repeated(version: str) -> None:
    """The same value, however it is written; what a port has of its own stays in force for that port."""
    before = wsdl(version, **HERE)
    values = {"priority": "03", "replyToName": "r", "jndi-java.naming.provider.url": "tcp://a:1"}
    after = added(before, properties={Origin.SERVICE: {**values, "timeToLive": 60, "jndi-own": "2", "jndi-new": "3"}})
    assert after.count("priority>") == before.count("priority>")
    assert after.count("jndiURL>") == before.count("jndiURL>")
    assert "provider.url" not in after
    old, new = port_of(after, "Ledger").effective(), port_of(after).effective()
    assert (old["jndi-own"].value, new["jndi-own"].value) == ("1", "2")
    assert (old["jndi-new"].value, new["timeToLive"].value) == ("3", 60)
    assert (old["priority"].value, new["priority"].value) == (3, 3)


def test_ports_that_cannot_be_used_do_not_count() -> None:
    """What becomes of a port with an error, or of another transport, nobody can tell."""
    for parts in ({"address": None}, {"transport": "urn:other", "address": "http://example/"}):
        before = wsdl(WSDL_11, binding="<j:timeToLive>60</j:timeToLive>", **parts)
        after = added(before, properties={Origin.SERVICE: {"timeToLive": 5}}, binding="New")
        assert port_of(after).effective()["timeToLive"].value == 5


def test_another_soap_version_of_a_binding_is_refused() -> None:
    """A binding has one."""
    with pytest.raises(UsageError, match="exists already, and other ports may use it"):
        added(wsdl11(), binding="LedgerJms", soap_version=SoapVersion.SOAP_12)


def test_default_names_that_are_taken() -> None:
    """A second port needs names of its own."""
    once = added(wsdl11())
    with pytest.raises(UsageError, match="'LedgerPTJms' already: set binding to use it, or to another name"):
        added(once, name="Second")
    with pytest.raises(UsageError, match="'LedgerServiceJms' already"):
        added(once, binding="Second")
    assert port_of(added(once, name="Second", binding="SecondJms"), "Second").binding_name == "{urn:ledger}SecondJms"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_chosen(version: str) -> None:
    """More than one service; no service; no interface; no namespace to name things in."""
    prefix = "wsdl:" if version == WSDL_11 else ""
    two = wsdl(version, head=f'<{prefix}service name="Other" interface="t:x"/>')
    with pytest.raises(UsageError, match="Other, LedgerService"):
        added(two)
    assert port_of(added(two, service="LedgerService"), "LedgerServiceJms").address == "jms:queue:new"
    root = "definitions" if version == WSDL_11 else "description"
    space = "http://schemas.xmlsoap.org/wsdl/" if version == WSDL_11 else "http://www.w3.org/ns/wsdl"
    with pytest.raises(UsageError, match=r"must be one of those in WSDL \(none\), got None"):
        added(f'<{root} targetNamespace="u" xmlns="{space}"/>')
    with pytest.raises(UsageError, match="must be one of none, got None"):
        added(f'<{root} targetNamespace="u" xmlns="{space}"><service name="S"/></{root}>')
    with pytest.raises(InvalidWsdlError, match="no targetNamespace"):
        added(f'<{root} xmlns="{space}"><service name="S"/></{root}>')


def test_what_is_no_wsdl_is_refused() -> None:
    """As in reading; and what would be none with the port, as its names are in no namespace that XML allows."""
    space = "http://schemas.xmlsoap.org/wsdl/"
    text = f'<definitions targetNamespace=":" xmlns="{space}"><portType name="P"/><service/></definitions>'
    with pytest.raises(InvalidWsdlError, match="with the port it would be not well-formed XML"):
        added(text, name="N")
    with pytest.raises(InvalidWsdlError, match="not well-formed"):
        added("nonsense")


def test_versions_are_strings() -> None:
    """The kit's versions are those of the model."""
    assert [read(wsdl(each).encode()).version for each in (WSDL_11, WSDL_20)] == [WSDL_11, WSDL_20]


ADDRESSES = """<definitions targetNamespace="u" xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:t="u"
    xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/"><!-- <port name="P"/> -->
  <service name="O"><port name="P" binding="t:B"><soap:address location="jms:queue:o"/></port></service>
  <service name="S"><port name="N" binding="t:B"/>
    <port name="E" binding="t:B"><soap:address/></port>
    <port name="P" binding="t:B"><soap:address alt=' location="x"'
        location = 'jms:queue:a?priority=1&amp;timeToLive=2'/></port>
  </service></definitions>"""


class TestAddress:
    """Another address for a port."""

    def test_written(self) -> None:
        """It is read back; nothing else changes."""
        port = read(ADDRESSES.encode()).port("S/P")
        made = with_address(ADDRESSES.encode(), port, "jms:queue:b?priority=3&timeToLive=4").decode()
        assert made == ADDRESSES.replace(
            "'jms:queue:a?priority=1&amp;timeToLive=2'", '"jms:queue:b?priority=3&amp;timeToLive=4"'
        )
        assert port_of(made, "S/P").address == "jms:queue:b?priority=3&timeToLive=4"

    @pytest.mark.parametrize("name", ["N", "E"])
    def test_no_address(self, name: str) -> None:
        """A port without an address, or of another document, gets none."""
        port = read(ADDRESSES.encode()).port(name)
        with pytest.raises(InvalidWsdlError, match=f"S/{name} has no address in this document"):
            with_address(ADDRESSES.encode(), port, "jms:queue:b")

    def test_no_uri(self) -> None:
        """What is no `jms:` URI is refused."""
        port = read(ADDRESSES.encode()).port("S/P")
        with pytest.raises(InvalidUriError):
            with_address(ADDRESSES.encode(), port, "queue:b")
