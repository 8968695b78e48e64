"""Reading WSDL 1.1 and 2.0: ports, operations, properties with their origin."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import zeep
from wsdl_kit import CR, CXF, DATA, REC, VERSIONS, WSDL_11, WSDL_20, wsdl, wsdl11, wsdl20

import soapjms
from soapjms.protocol.errors import InvalidPropertyError, InvalidWsdlError, UsageError
from soapjms.protocol.names import CR_2009, REC_2012, Mep, SoapVersion
from soapjms.protocol.properties import Origin
from soapjms.protocol.wsdl import Description, Loaded, Port, read
from soapjms.protocol.wsdl.as_json import members, overridden_members


def described(text: str) -> Description:
    """Read a document."""
    return read(text.encode())


def port(text: str, name: str | None = "Ledger") -> Port:
    """Read one port of a document."""
    return described(text).port(name)


# What CXF wrote

GREETER = [
    {"name": "pingMe", "soap_action": "urn:soapjms:echo/pingMe", "mep": "one-way"},
    {"name": "greetMe", "soap_action": "urn:soapjms:echo/greetMe", "mep": "request-response"},
    {"name": "testFault", "soap_action": "urn:soapjms:echo/testFault", "mep": "request-response"},
    {"name": "pingCount", "soap_action": "urn:soapjms:echo/pingCount", "mep": "request-response"},
]


def inspected(name: str) -> list[dict[str, Any]]:
    """Read a file and return what there is of its ports, as JSON gives it back."""
    ports: list[dict[str, Any]] = json.loads(json.dumps(members(soapjms.read_wsdl(DATA / name))))["ports"]
    return ports


@pytest.mark.parametrize(
    ("name", "version", "port_name", "queue"),
    [("echo-soap11.wsdl", "1.1", "EchoPort", "CXF.ECHO"), ("echo-soap12.wsdl", "1.2", "EchoPort12", "CXF.ECHO.12")],
)
def test_plain_files_of_cxf(name: str, version: str, port_name: str, queue: str) -> None:
    """Both SOAP bindings: service, port, version, address, operations, and properties by default."""
    (found,) = inspected(name)
    properties = found.pop("properties")
    assert found == {
        "service": "EchoService",
        "port": port_name,
        "soap_version": version,
        "address": f"jms:queue:{queue}",
        "operations": GREETER,
    }
    assert properties["destinationName"] == {"value": queue, "origin": "uri"}
    assert properties["deliveryMode"] == {"value": "PERSISTENT", "origin": "default"}


JNDI = {"jndiConnectionFactoryName": "service", "jndiInitialContextFactory": "service", "jndiURL": "service"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BindingOnly", {"deliveryMode": ("NON_PERSISTENT", "binding"), "timeToLive": (7200000, "binding"),
                         "priority": (6, "binding"), "replyToName": ("CXF.PROPS.REPLY.BINDING", "binding")}),
        ("UriOverBinding", {"deliveryMode": ("PERSISTENT", "uri"), "timeToLive": (3600000, "uri"),
                            "priority": (1, "uri"), "replyToName": ("CXF.PROPS.REPLY.URI", "uri")}),
        ("PortOverBinding", {"deliveryMode": ("PERSISTENT", "port"), "timeToLive": (7200000, "binding"),
                             "priority": (3, "port")}),
        ("UriOverPort", {"priority": (5, "uri"), "targetService": ("EchoPort", "uri"),
                         "deliveryMode": ("PERSISTENT", "default")}),
        ("UriRepeated", {"deliveryMode": ("NON_PERSISTENT", "uri"), "timeToLive": (7200000, "uri"),
                         "priority": (2, "uri"), "replyToName": ("CXF.PROPS.REPLY.B", "uri")}),
        ("ServiceOverBinding", {"deliveryMode": ("NON_PERSISTENT", "service"), "priority": (8, "service"),
                                "timeToLive": (7200000, "binding")}),
        ("PortOverService", {"deliveryMode": ("PERSISTENT", "port"), "timeToLive": (3600000, "port"),
                             "priority": (8, "service")}),
    ],
)  # fmt: skip
def test_contradictions_of_cxf(name: str, expected: dict[str, tuple[object, str]]) -> None:
    """Each port of the file that contradicts itself has the values that count, with their origin."""
    (found,) = (each for each in inspected("echo-soap11-properties.wsdl") if each["port"] == name)
    values = {each: (value["value"], value["origin"]) for each, value in found["properties"].items()}
    assert values.items() >= expected.items()
    if found["service"] == "EchoService":
        assert {each: values[each][1] for each in JNDI} == JNDI
    assert found["operations"] == GREETER


@pytest.mark.parametrize("path", CXF, ids=lambda path: path.name)
def test_zeep_agrees_on_operations(path: Path) -> None:
    """zeep reads the same services, and for each binding of a port the same operations and actions."""
    other = zeep.wsdl.Document(str(path), zeep.Transport(), settings=zeep.Settings())
    assert set(other.services) == {each.service.name for each in soapjms.read_wsdl(path).ports}
    for each in soapjms.read_wsdl(path).ports:
        assert each.binding is not None
        theirs = next(iter(other.port_types.values())).operations
        patterns = {
            name: Mep.REQUEST_RESPONSE if operation.output_message is not None else Mep.ONE_WAY
            for name, operation in theirs.items()
        }
        assert {operation.name: operation.mep for operation in each.operations} == patterns
        if each.binding.name in other.bindings:
            actions = {
                name: operation.soapaction for name, operation in other.bindings[each.binding.name].all().items()
            }
            assert {operation.name: operation.soap_action for operation in each.operations} == actions


# Precedence, in both versions, from files

LEVELS = {
    Origin.ENVIRONMENT: "1",
    Origin.URI: "2",
    Origin.PORT: "3",
    Origin.SERVICE: "5",
    Origin.BINDING: "6",
}


def effective_from_file(tmp_path: Path, version: str, origins: tuple[Origin, ...]) -> Any:
    """Set the priority at each of `origins` in a file, and work out what counts."""
    markup = {
        part: f"<j:priority>{LEVELS[origin]}</j:priority>"
        for part, origin in (("port", Origin.PORT), ("service", Origin.SERVICE), ("binding", Origin.BINDING))
        if origin in origins
    }
    address = "jms:queue:q" + (f"?priority={LEVELS[Origin.URI]}" if Origin.URI in origins else "")
    path = tmp_path / "ledger.wsdl"
    path.write_text(wsdl(version, address=address, **markup))
    environment = {"priority": LEVELS[Origin.ENVIRONMENT]} if Origin.ENVIRONMENT in origins else {}
    return soapjms.read_wsdl(path).port().effective(environment)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("winner", "loser"), list(combinations(LEVELS, 2)))
def test_precedence_of_every_pair(tmp_path: Path, version: str, winner: Origin, loser: Origin) -> None:
    """WSDLUsage-3001 to 3003, Protocol-2001: environment, URI, port, service, binding; the loser stays visible."""
    effective = effective_from_file(tmp_path, version, (loser, winner))
    assert effective["priority"] == (int(LEVELS[winner]), winner)
    assert effective.overridden == {"priority": [(int(LEVELS[loser]), loser)]}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_levels_at_once_and_none(tmp_path: Path, version: str) -> None:
    """With a value everywhere the environment's counts; with none the default."""
    assert effective_from_file(tmp_path, version, tuple(LEVELS))["priority"] == (1, Origin.ENVIRONMENT)
    assert effective_from_file(tmp_path, version, ())["priority"] == (4, Origin.DEFAULT)


# Elements

EVERYTHING = """\
<j:jndiConnectionFactoryName>
  CF
</j:jndiConnectionFactoryName>
<j:jndiInitialContextFactory>com.example.Factory</j:jndiInitialContextFactory>
<j:jndiURL>tcp://example:1</j:jndiURL>
<j:jndiContextParameter name="a" value=" 1 "/>
<j:jndiContextParameter name="b.c" value="2"/>
<j:deliveryMode> NON_PERSISTENT<!-- for now -->
</j:deliveryMode>
<j:timeToLive>60000</j:timeToLive>
<j:priority>7</j:priority>
<j:replyToName>R</j:replyToName>"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["port", "service", "binding"])
@pytest.mark.parametrize("namespace", [CR, REC])
def test_every_element_on_every_level(version: str, level: str, namespace: str) -> None:
    """All elements are read on binding, service and port, in both namespaces; white space around values is dropped."""
    markup = EVERYTHING.replace("j:", "cr:") if namespace == CR else EVERYTHING
    found = port(wsdl(version, transport=namespace, **{level: markup}))
    assert {name: each.value for name, each in found.effective().items() if each.origin == level} == {
        "jndiConnectionFactoryName": "CF",
        "jndiInitialContextFactory": "com.example.Factory",
        "jndiURL": "tcp://example:1",
        "jndi-a": " 1 ",
        "jndi-b.c": "2",
        "deliveryMode": 1,
        "timeToLive": 60000,
        "priority": 7,
        "replyToName": "R",
    }
    assert found.profile is (CR_2009 if namespace == CR else REC_2012)


@pytest.mark.parametrize("version", VERSIONS)
def test_context_parameters_are_properties_by_name(version: str) -> None:
    """The same name on two levels is one property, other names are others; the environment and the URI win."""
    text = wsdl(
        version,
        address="jms:jndi:q?jndi-c=uri",
        port='<j:jndiContextParameter name="a" value="port"/><j:jndiContextParameter name="c" value="port"/>',
        binding='<j:jndiContextParameter name="a" value="binding"/><j:jndiContextParameter name="b" value="binding"/>',
    )
    effective = port(text).effective({"jndi-b": "environment"})
    values = {name: effective.value(name) for name in ("jndi-a", "jndi-b", "jndi-c")}
    assert values == {"jndi-a": "port", "jndi-b": "environment", "jndi-c": "uri"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_example_of_the_digest(version: str) -> None:
    """URI over binding, service over binding, targetService and action as they are."""
    text = wsdl(
        version,
        binding="<j:deliveryMode>NON_PERSISTENT</j:deliveryMode><j:priority>2</j:priority>",
        service="<j:jndiConnectionFactoryName>LedgerCF</j:jndiConnectionFactoryName><j:priority>3</j:priority>",
        port="<j:timeToLive>60000</j:timeToLive>",
        address="jms:jndi:LedgerQ?targetService=ledger&deliveryMode=PERSISTENT",
    )
    found = port(text)
    effective = found.effective()
    assert effective["deliveryMode"] == (2, Origin.URI)
    assert effective["priority"] == (3, Origin.SERVICE)
    assert effective["timeToLive"] == (60000, Origin.PORT)
    assert effective["targetService"] == ("ledger", Origin.URI)
    assert found.operation("post").soap_action == "urn:ledger:post"


# Operations


@pytest.mark.parametrize("version", VERSIONS)
def test_operations(version: str) -> None:
    """Name, action, pattern; an operation without action has none."""
    found = [(each.name, each.soap_action, each.mep) for each in port(wsdl(version)).operations]
    assert found == [("post", "urn:ledger:post", Mep.REQUEST_RESPONSE), ("note", None, Mep.ONE_WAY)]


@pytest.mark.parametrize(
    ("parts", "mep"),
    [
        ("<wsdl:input/><wsdl:output/>", Mep.REQUEST_RESPONSE),
        ("<wsdl:input/>", Mep.ONE_WAY),
        ("<wsdl:output/><wsdl:input/>", None),
        ("<wsdl:output/>", None),
        ("", None),
    ],
)
def test_patterns_of_wsdl_11(parts: str, mep: Mep | None) -> None:
    """Solicit-response and notification are patterns that SOAP over JMS does not have."""
    interface = f'<wsdl:portType name="LedgerPT"><wsdl:operation name="post">{parts}</wsdl:operation></wsdl:portType>'
    assert port(wsdl11(interface=interface)).operation("post").mep is mep


def test_overloaded_operations_of_wsdl_11() -> None:
    """Operations of one name are told apart by the names of their input and output, and cannot be chosen by name."""
    interface = """<wsdl:portType name="LedgerPT">
      <wsdl:operation name="post"><wsdl:input name="a"/><wsdl:output name="b"/></wsdl:operation>
      <wsdl:operation name="post"><wsdl:input name="c"/></wsdl:operation></wsdl:portType>"""
    operations = """<wsdl:operation name="post"><wsdl:input name="c"/></wsdl:operation>
      <wsdl:operation name="post"><wsdl:input name="a"/><wsdl:output name="b"/></wsdl:operation>"""
    found = port(wsdl11(interface=interface, operations=operations))
    assert [each.mep for each in found.operations] == [Mep.ONE_WAY, Mep.REQUEST_RESPONSE]
    with pytest.raises(UsageError, match="has 2 operations 'post'; there are: post"):
        found.operation("post")


def test_a_port_type_that_is_not_there() -> None:
    """The pattern is then what the binding says."""
    assert [each.mep for each in port(wsdl11(interface="")).operations] == [Mep.REQUEST_RESPONSE, Mep.ONE_WAY]


@pytest.mark.parametrize(
    ("attributes", "mep"),
    [
        ("", Mep.REQUEST_RESPONSE),
        ('pattern=" http://www.w3.org/ns/wsdl/in-out "', Mep.REQUEST_RESPONSE),
        ('pattern="http://www.w3.org/ns/wsdl/in-only"', Mep.ONE_WAY),
        ('pattern="http://www.w3.org/ns/wsdl/robust-in-only"', None),
    ],
)
def test_patterns_of_wsdl_20(attributes: str, mep: Mep | None) -> None:
    """A pattern that is not said is in-out; robust-in-only may answer with a fault and is neither of the two."""
    interface = f'<interface name="LedgerPT"><operation name="post" {attributes}/></interface>'
    assert port(wsdl20(interface=interface)).operation("post").mep is mep


@pytest.mark.parametrize(
    ("mep", "default", "kept"),
    [
        ("http://www.w3.org/2003/05/soap/mep/request-response/", None, True),
        ("http://www.w3.org/2003/05/soap/mep/soap-response/", None, False),
        (None, "http://www.w3.org/2003/05/soap/mep/soap-response/", False),
        ("http://www.w3.org/2003/05/soap/mep/request-response/", "urn:other", True),
    ],
)
def test_soap_patterns_of_wsdl_20(mep: str | None, default: str | None, kept: bool) -> None:
    """wsoap:mep, or else wsoap:mepDefault, may name a pattern that SOAP over JMS does not have."""
    operation = f'<operation ref="t:post" {f"wsoap:mep={mep!r}" if mep else ""}/>'
    text = wsdl20(operations=operation, attributes=f"wsoap:mepDefault={default!r}" if default else "")
    assert (port(text).operation("post").mep is not None) is kept


INHERITED = """
  <interface name="LedgerPT" extends="t:Base t:Other"><operation name="post"/></interface>
  <interface name="Base" extends="t:LedgerPT t:Missing">
    <operation name="post" pattern="http://www.w3.org/ns/wsdl/in-only"/><operation name="base"/></interface>
  <interface name="Other" extends="t:Base"><operation name="other"/></interface>"""


@pytest.mark.parametrize("of", ['interface="t:LedgerPT"', ""], ids=["binding's interface", "service's interface"])
def test_interfaces_of_wsdl_20(of: str) -> None:
    """Operations are inherited, the nearer ones first, loops or not; a binding may leave it to the service which."""
    found = port(wsdl20(interface=INHERITED, of=of))
    assert [each.name for each in found.operations] == ["post", "base", "other"]
    assert found.operation("post").mep is Mep.REQUEST_RESPONSE


@pytest.mark.parametrize(
    ("attributes", "version"),
    [("", SoapVersion.SOAP_12), ('wsoap:version="1.2"', SoapVersion.SOAP_12), ('wsoap:version=" 1.1"', "1.1")],
)
def test_soap_versions_of_wsdl_20(attributes: str, version: str) -> None:
    """wsoap:version, 1.2 if it is not there."""
    assert port(wsdl20(attributes=attributes)).soap_version == version


def test_soap_versions_of_wsdl_11() -> None:
    """The namespace of the SOAP binding tells."""
    assert port(wsdl11()).soap_version is SoapVersion.SOAP_11
    assert port(wsdl11(soap="soap12")).soap_version is SoapVersion.SOAP_12


# Ports

HTTP = "http://schemas.xmlsoap.org/soap/http"


@pytest.mark.parametrize("version", VERSIONS)
def test_ports_of_other_transports(version: str) -> None:
    """They are listed, without properties, and cannot be used."""
    text = wsdl(version, transport=HTTP, address="http://example/", port="<j:priority>77</j:priority>")
    (found,) = members(described(text))["ports"]
    assert (found["address"], found["properties"], len(found["operations"])) == ("http://example/", {}, 2)
    with pytest.raises(InvalidWsdlError, match=r"is not SOAP over JMS: its transport is .*soap/http'; accepted are"):
        port(text).effective()
    with pytest.raises(UsageError, match=r"no (port|endpoint) with a SOAP/JMS transport"):
        described(text).port()


def test_ports_that_are_not_soap() -> None:
    """A binding without SOAP has no version and no transport."""
    http = '<binding name="LedgerJms" interface="t:LedgerPT" type="http://www.w3.org/ns/wsdl/http"/>'
    text = wsdl20(transport=None, kind="http://www.w3.org/ns/wsdl/http", head=http, address="http://example/")
    assert port(text).soap_version is None
    text = wsdl11().replace("<s:binding ", "<t:binding ").replace("<s:address", "<t:address")
    found = port(text)
    assert (found.soap_version, found.address, found.binding and found.binding.transport) == (None, None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_choosing_a_port(version: str) -> None:
    """By name, by service and name, or the only one; what cannot be chosen is listed."""
    word = "port" if version == WSDL_11 else "endpoint"
    prefix = "wsdl:" if version == WSDL_11 else ""
    second = f'<{prefix}{word} name="Second" binding="t:LedgerJms"/>'
    both = described(wsdl(version, more=second))
    assert both.port("LedgerService/Second").name == "Second"
    assert described(wsdl(version)).port().name == "Ledger"
    with pytest.raises(
        UsageError, match=f"no {word} 'Third'; choose one of: LedgerService/Ledger, LedgerService/Second"
    ):
        both.port("Third")
    with pytest.raises(UsageError, match="more than one"):
        both.port()
    with pytest.raises(UsageError, match="more than one"):
        described(wsdl(version, more=second.replace("Second", "Ledger"))).port("Ledger")
    with pytest.raises(UsageError, match="has no operation 'get'; there are: post, note"):
        both.port("Second").operation("get")


def test_a_wsdl_without_services() -> None:
    """There is nothing to choose."""
    with pytest.raises(UsageError, match="no port 'x'; `soapjms wsdl add-port` adds one"):
        described('<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"/>').port("x")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"address": None}, "has no address"),
        ({"address": ""}, "has no address"),
        ({"address": "http://user:secret@example/q"}, r"the address 'http://\*\*\*@example/q'"),
        ({"address": "jms:queue"}, r"at .*\(noVariant\)"),
        ({"address": "jms:queue:q?priority=11"}, r"priority is '11'"),
        ({"address": "jms:queue:q?replyToName=a&topicReplyToName=b"}, r"bothReplyNames"),
        ({"port": "<j:priority>11</j:priority>"}, "priority of the (port|endpoint) is '11' .*; write an integer"),
        ({"service": "<j:deliveryMode>persistent</j:deliveryMode>"}, "of the service is 'persistent'"),
        ({"binding": "<j:timeToLive>1.5</j:timeToLive>"}, "timeToLive of the binding is '1.5'"),
        ({"port": "<j:targetService>t</j:targetService>"}, r"write it into the address: \?targetService=VALUE"),
        ({"port": "<j:prority>1</j:prority>"}, "prority is no element of SOAP over JMS; *|write one of: jndiConn"),
        ({"port": "<j:jndi-a>1</j:jndi-a>"}, "jndi-a is no element"),
        ({"port": '<j:jndiContextParameter name="a"/>'}, "without a value"),
        ({"port": '<j:jndiContextParameter value="a"/>'}, "without a name"),
        ({"port": "<j:priority><j:x/></j:priority>"}, "holds elements"),
    ],
)
def test_ports_that_cannot_be_used(version: str, parts: dict[str, str | None], said: str) -> None:
    """The first error says file and line, what was seen, the rule, and what to write."""
    found = port(wsdl(version, **parts))
    with pytest.raises(InvalidWsdlError, match=rf"^WSDL:\d+: .*{said}"):
        found.effective()
    with pytest.raises(InvalidWsdlError):
        found.uri()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_binding_that_is_not_there(version: str) -> None:
    """It is named as it was written, its prefix resolved."""
    text = wsdl(version).replace('binding="t:LedgerJms"', 'binding="t:Other"')
    found = port(text)
    assert (found.profile, found.soap_version) == (None, None)
    with pytest.raises(InvalidWsdlError, match=r"names the binding '\{urn:ledger\}Other', which is not there"):
        found.uri()


def test_bad_values_of_the_environment() -> None:
    """They are the caller's mistake."""
    with pytest.raises(InvalidPropertyError, match="priority is '11' in environment"):
        port(wsdl11()).effective({"priority": "11"})


@pytest.mark.parametrize("version", VERSIONS)
def test_secrets_are_not_shown(version: str) -> None:
    """A value that looks like a secret counts, and is shown as ***."""
    secret = '<j:jndiContextParameter name="java.naming.security.credentials" value="s3cret"/>'
    url = "<j:jndiURL>tcp://user:s3cret@example</j:jndiURL>"
    found = described(wsdl(version, port=secret + url, address="jms:queue:q?password=s3cret"))
    assert found.port().effective().value("jndi-java.naming.security.credentials") == "s3cret"
    said = json.dumps(members(found))
    assert "s3cret" not in said
    assert "***" in said


# Imports, as bytes


def loader(**documents: str) -> Any:
    """Return a `load` that knows documents by name."""
    return lambda location, base: Loaded(location, documents[location].encode())


def test_services_and_bindings_in_other_documents() -> None:
    """WSDL 1.1: the service may stand in one document, the binding in another, the port type in a third."""
    whole = wsdl11()
    binding = whole[whole.index("  <wsdl:binding") : whole.index("  <wsdl:service")]
    interface = whole[whole.index("  <wsdl:message") : whole.index("  <wsdl:binding")]
    frame = whole[: whole.index("  <wsdl:message")] + "{}</wsdl:definitions>"
    first = whole.replace(binding, "").replace(interface, '<wsdl:import location="b" namespace="urn:ledger"/>')
    documents = {
        "b": frame.format('<wsdl:import location="c"/><wsdl:import location="c"/><wsdl:import/>' + binding),
        "c": frame.format('<wsdl:import location="d"/>' + interface),
        "d": '<schema xmlns="http://www.w3.org/2001/XMLSchema"/>',
    }
    found = read(first.encode(), "a", loader(**documents)).port()
    assert [each.mep for each in found.operations] == [Mep.REQUEST_RESPONSE, Mep.ONE_WAY]
    assert found.operations[0].place.file == "b"


@pytest.mark.parametrize("tag", ["import", "include"])
def test_interfaces_in_other_documents(tag: str) -> None:
    """WSDL 2.0: imports and includes."""
    other = wsdl20().split("  <binding")[0] + "</description>"
    first = wsdl20(head=f'<{tag} location=" b "/>', interface="")
    assert read(first.encode(), "a", loader(b=other)).port().operation("post").mep is Mep.REQUEST_RESPONSE


def test_imports_are_refused_by_default() -> None:
    """Nothing is loaded where nobody says how."""
    with pytest.raises(InvalidWsdlError, match="WSDL:4: WSDL imports 'x', and nothing is loaded here"):
        read(wsdl11(head='<wsdl:import location="x"/>').encode())


def test_documents_of_another_version_are_refused() -> None:
    """WSDL 2.0 does not import WSDL 1.1."""
    with pytest.raises(InvalidWsdlError, match=r"^b: the root element is .*definitions; accepted is .*description"):
        read(wsdl20(head='<import location="b"/>').encode(), "a", loader(b=wsdl11()))


# Bounds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (wsdl11(more='<wsdl:port name="p" binding="t:x"/>' * 1000), "1001 elements such as port in one"),
        (wsdl11(port="<j:priority>1</j:priority>" * 101), "101 soapjms elements in one; accepted are 100"),
        (wsdl20(more='<endpoint name="p" binding="t:x"/>' * 999), "more than 500 ports"),
        (wsdl11().replace("xmlns:t=", " ".join(f'xmlns:p{each}="u"' for each in range(500)) + " xmlns:t="),
         "506 namespaces; accepted are 500"),
        (wsdl20(interface='<interface name="LedgerPT" extends="{}"/>'.format(
            " ".join(f"t:i{each}" for each in range(200)))), "inherits more than 100 interfaces"),
        (wsdl11(head=" " * (16 << 20)), "more than 16 MiB"),
    ],
    ids=["children", "elements", "ports", "namespaces", "interfaces", "octets"],
)  # fmt: skip
def test_more_than_any_real_wsdl_has(text: str, said: str) -> None:
    """Work on a port grows with what it has, so that is bounded."""
    with pytest.raises(InvalidWsdlError, match=said):
        read(text.encode())


def test_many_small_documents_are_refused() -> None:
    """No more than 100."""
    head = "".join(f'<wsdl:import location="{each}"/>' for each in range(200))
    small = '<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"/>'
    with pytest.raises(InvalidWsdlError, match="imports more than 100 documents"):
        read(wsdl11(head=head).encode(), "a", lambda location, base: Loaded(location, small.encode()))


def test_many_imports_are_refused() -> None:
    """No more than 1000 in all, of however few documents: here of 600 schemas each in two."""

    def importing(letter: str) -> str:
        imports = "".join(f'<import location="{letter}{each}"/>' for each in range(600))
        return f'<definitions xmlns="http://schemas.xmlsoap.org/wsdl/">{imports}</definitions>'

    schema = '<schema xmlns="http://www.w3.org/2001/XMLSchema"/>'
    with pytest.raises(InvalidWsdlError, match="more than 1000 imports in all its documents"):
        read(
            importing("b").encode(),
            "a",
            lambda location, base: Loaded(location, (importing("c") if location == "b0" else schema).encode()),
        )


def test_operations_inherited_from_everywhere_are_bounded() -> None:
    """As are those of one interface."""
    many = "".join(f'<operation name="o{{}}{each}"/>' for each in range(600))
    interface = "".join(
        f'<interface name="{name}" extends="{extends}">{many.format(*[name] * 600)}</interface>'
        for name, extends in (("LedgerPT", "t:B"), ("B", "t:LedgerPT"))
    )
    with pytest.raises(InvalidWsdlError, match="has more than 1000 operations"):
        read(wsdl20(interface=interface).encode())


def test_version_of_the_document() -> None:
    """A description says which WSDL it is, and its services and bindings in order."""
    assert [described(wsdl(each)).version for each in VERSIONS] == [WSDL_11, WSDL_20]
    found = described(wsdl11(head='<wsdl:binding name="First" type="t:LedgerPT"/>'))
    assert list(found.bindings) == ["{urn:ledger}First", "{urn:ledger}LedgerJms"]


def test_what_is_overridden_as_json() -> None:
    """Values that do not count are shown like those that do."""
    effective = port(wsdl11(binding="<j:deliveryMode>NON_PERSISTENT</j:deliveryMode>")).effective(
        {"deliveryMode": "PERSISTENT"}
    )
    assert overridden_members(effective, "deliveryMode") == [{"value": "NON_PERSISTENT", "origin": "binding"}]
    assert overridden_members(effective, "priority") == []
