"""Judging a WSDL: every rule with a file that breaks it and one that does not.

What is referred to and not there is in test_wsdl_references.py.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from wsdl_kit import CR, CXF, REC, VERSIONS, WSDL_11, WSDL_20, line_of, wsdl

import soapjms
from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import RULES, Finding, Severity, read
from soapjms.protocol.wsdl.as_json import finding_members
from soapjms.protocol.wsdl.elements import ELEMENTS
from soapjms.protocol.wsdl.lint import KINDS, lint


def found(text: str) -> list[Finding]:
    """Judge a document."""
    return list(lint(read(text.encode(), "ledger.wsdl")))


REFERENCE_CODES = {row.code for kind in KINDS.values() for row in kind.references}
INTERFACE = '<wsdl:message name="m"/><wsdl:portType name="LedgerPT"><wsdl:operation name="post">{}</wsdl:operation>\
</wsdl:portType>'
OUT_FIRST = INTERFACE.format('<wsdl:output message="t:m"/><wsdl:input message="t:m"/>')
IN_FIRST = INTERFACE.format('<wsdl:input message="t:m"/><wsdl:output message="t:m"/>')
ONE = '<wsdl:operation name="post"/>'
HTTP = "http://schemas.xmlsoap.org/soap/http"
IN_OUT = '<interface name="LedgerPT"><operation name="post" pattern="http://www.w3.org/ns/wsdl/in-out"/></interface>'
JNDI = "<j:jndiConnectionFactoryName>CF</j:jndiConnectionFactoryName>"

XSD = "http://www.w3.org/2001/XMLSchema"
SCHEMAS = f'<wsdl:types>\n<x:schema xmlns:x="{XSD}" targetNamespace="urn:types">\n{{refers}}</x:schema></wsdl:types>'

# code, versions, parts that break the rule, the text at whose line it is reported, what it says, parts that keep it
CASES = [
    ("missingAddress", VERSIONS, {"address": None}, 'name="Ledger" binding', "has no address; jms:…", {}),
    ("missingAddress", VERSIONS, {"address": " "}, 'name="Ledger" binding', "has no address", {}),
    ("notJmsAddress", VERSIONS, {"address": "http://example/"}, "http://example/", "http://example/", {}),
    ("badUri", VERSIONS, {"address": "jms:queue"}, "jms:queue", "noVariant", {}),
    ("badUri", VERSIONS, {"address": "jms:queue:q?priority=11"}, "jms:queue", "priority is '11'",
     {"address": "jms:queue:q?priority=9"}),
    ("badUri", VERSIONS, {"address": "jms:queue:q?deliveryMode=persistent"}, "jms:queue", "deliveryMode",
     {"address": "jms:queue:q?deliveryMode=PERSISTENT"}),
    ("badUri", VERSIONS, {"address": "jms:queue:q?timeToLive=1.5"}, "jms:queue", "timeToLive",
     {"address": "jms:queue:q?timeToLive=1"}),
    ("badUri", VERSIONS, {"address": "jms:queue:q?replyToName=a&topicReplyToName=b"}, "jms:queue", "bothReplyNames",
     {"address": "jms:queue:q?replyToName=a"}),
    ("looseUri", VERSIONS, {"address": "jms:queue:a/b"}, "jms:queue", "slashInDestination",
     {"address": "jms:queue:a%2Fb"}),
    ("uriNote", VERSIONS, {"address": "jms:queue:a?b=1&b=2"}, "jms:queue", "repeated", {"address": "jms:queue:a?b=1"}),
    ("jmsAddressElsewhere", VERSIONS, {"transport": HTTP}, "jms:queue", HTTP,
     {"transport": HTTP, "address": "http://example/"}),
    ("foreignTransport", VERSIONS, {"transport": "http://schemas.xmlsoap.org/soap/jms"}, "schemas.xmlsoap.org/soap/jms",
     "an older id for JMS", {}),
    ("foreignTransport", VERSIONS, {"transport": "http://www.soapjms.org/2007/08/soap/bindings/JMS/"},
     "http://www.soapjms.org", "member submission of 2007", {}),
    ("foreignTransport", VERSIONS, {"transport": REC[:-1]}, f'"{REC[:-1]}"', "without its last slash", {}),
    ("addressVersion", (WSDL_11,), {"address_element": '<other:address location="{}"/>'}, "<other:address",
     "for SOAP 1.2, and its binding is for SOAP 1.1", {}),
    ("missingFactory", VERSIONS, {"address": "jms:jndi:q"}, "jms:jndi", "nothing says jndiConnectionFactoryName",
     {"address": "jms:jndi:q", "service": JNDI}),
    ("missingFactory", VERSIONS, {"address": "jms:jndi:q"}, "jms:jndi", "'Ledger'",
     {"address": "jms:jndi:q?jndiConnectionFactoryName=CF"}),
    ("otherPattern", (WSDL_11,), {"interface": OUT_FIRST, "operations": ONE}, ONE, "'post'",
     {"interface": IN_FIRST, "operations": ONE}),
    ("otherPattern", (WSDL_20,), {"interface": IN_OUT.replace("in-out", "out-only"), "operations": ""}, "out-only",
     "'post'", {"interface": IN_OUT, "operations": ""}),
    ("overloaded", (WSDL_11,), {"interface": IN_FIRST, "operations": f"{ONE}{ONE}"}, ONE, "has 2 operations 'post'",
     {"interface": IN_FIRST, "operations": ONE}),
    ("bindingType", (WSDL_20,), {"kind": "http://www.w3.org/2006/01/wsdl/soap"}, "<binding", "2006/01", {}),
    ("soapVersion", (WSDL_20,), {"attributes": 'wsoap:version="1.3"'}, "<binding", "1.3",
     {"attributes": 'wsoap:version="1.1"'}),
    ("badValue", VERSIONS, {"port": "<j:priority>11</j:priority>"}, "<j:priority", "an integer from 0 to 9",
     {"port": "<j:priority>9</j:priority>"}),
    ("badValue", VERSIONS, {"service": "<j:deliveryMode>persistent</j:deliveryMode>"}, "<j:deliveryMode",
     "PERSISTENT or NON_PERSISTENT", {"service": "<j:deliveryMode>PERSISTENT</j:deliveryMode>"}),
    ("badValue", VERSIONS, {"binding": "<j:timeToLive>1.5</j:timeToLive>"}, "<j:timeToLive", "milliseconds",
     {"binding": "<j:timeToLive>1</j:timeToLive>"}),
    ("badContextParameter", VERSIONS, {"port": '<j:jndiContextParameter name="a"/>'}, "<j:jndi", "without a value",
     {"port": '<j:jndiContextParameter name="a" value=""/>'}),
    ("badContextParameter", VERSIONS, {"port": '<j:jndiContextParameter value="a"/>'}, "<j:jndi", "without a name", {}),
    ("nestedElements", VERSIONS, {"port": "<j:replyToName><j:x/></j:replyToName>"}, "<j:replyToName", "as text",
     {"port": "<j:replyToName>x</j:replyToName>"}),
    ("notDeclarable", VERSIONS, {"port": "<j:targetService>x</j:targetService>"}, "<j:targetService",
     "write it into the address: ?targetService=VALUE", {"address": "jms:queue:q?targetService=x"}),
    ("notDeclarable", VERSIONS, {"service": "<j:lookupVariant>x</j:lookupVariant>"}, "<j:lookup", "part of the address",
     {}),
    ("notDeclarable", VERSIONS, {"binding": "<j:destinationName>x</j:destinationName>"}, "<j:dest", "jms:VARIANT:DEST",
     {}),
    ("notDeclarable", VERSIONS, {"binding": "<j:soapAction>x</j:soapAction>"}, "<j:soapAction",
     "as attribute soapAction of the SOAP operation", {}),
    ("notDeclarable", VERSIONS, {"port": "<j:bindingVersion>1.0</j:bindingVersion>"}, "<j:bindingVersion",
     "the binding itself sets it", {}),
    ("unknownElement", VERSIONS, {"port": "<j:prority>1</j:prority>"}, "<j:prority", "one of: jndiConnectionFactory",
     {"port": "<j:priority>1</j:priority>"}),
    ("repeatedElement", VERSIONS, {"port": "<j:priority>1</j:priority>\n<j:priority>2</j:priority>"}, "<j:priority",
     "2 times", {"port": '<j:jndiContextParameter name="a" value="1"/><j:jndiContextParameter name="b" value="1"/>'}),
    ("mixedNamespaces", VERSIONS, {"port": "<cr:priority>1</cr:priority>"}, "<cr:priority", "two editions",
     {"port": "<cr:priority>1</cr:priority>", "transport": CR}),
    ("unusedElement", VERSIONS,
     {"port": "<j:priority>1</j:priority>", "transport": HTTP, "address": "http://example/"}, "<j:priority",
     "counts for no port", {"transport": HTTP, "address": "http://example/"}),
    ("secret", VERSIONS, {"port": '<j:jndiContextParameter name="java.naming.security.credentials" value="x"/>'},
     "<j:jndi", "leave it to the environment", {"port": '<j:jndiContextParameter name="a.b" value="x"/>'}),
    ("secret", VERSIONS, {"service": "<j:jndiURL>tcp://u:p@h</j:jndiURL>"}, "<j:jndiURL", "looks like a secret",
     {"service": "<j:jndiURL>tcp://h</j:jndiURL>"}),
    ("overriddenByUri", VERSIONS, {"port": "<j:priority>1</j:priority>", "address": "jms:queue:q?priority=2"},
     "<j:priority", "by 2 in its address",
     {"port": "<j:priority>2</j:priority>", "address": "jms:queue:q?priority=2"}),
    ("overridden", VERSIONS,
     {"port": "<j:deliveryMode>PERSISTENT</j:deliveryMode>",
      "binding": "<j:deliveryMode>NON_PERSISTENT</j:deliveryMode>"},
     "<j:deliveryMode>NON", "'NON_PERSISTENT' of the binding is overridden for port 'Ledger' by 'PERSISTENT' of the",
     {"port": "<j:deliveryMode>PERSISTENT</j:deliveryMode>", "binding": "<j:timeToLive>1</j:timeToLive>"}),
    ("bothReplyNames", VERSIONS,
     {"port": "<j:replyToName>a</j:replyToName>", "binding": "<j:topicReplyToName>b</j:topicReplyToName>"},
     "<j:topicReply", "write one of them", {"binding": "<j:topicReplyToName>b</j:topicReplyToName>"}),
    ("bothReplyNames", VERSIONS,
     {"port": "<j:replyToName>a</j:replyToName>", "address": "jms:queue:q?topicReplyToName=b"},
     "jms:queue", "is ignored then", {"address": "jms:queue:q?topicReplyToName=b"}),
    *(
        ("replyNamesTogether", VERSIONS, {level: "<j:replyToName>a</j:replyToName>\n<j:topicReplyToName>b</j:topicReply"
         "ToName>"}, "<j:topicReply", "replyToName is 'a' and topicReplyToName is 'b' in one",
         {level: "<j:replyToName>a</j:replyToName>"})
        for level in ("port", "service", "binding")
    ),
    ("topicReplyWithJndi", VERSIONS,
     {"port": JNDI, "service": "<j:topicReplyToName>b</j:topicReplyToName>", "address": "jms:jndi:q"},
     "<j:topicReply", "variant jndi", {"service": "<j:topicReplyToName>b</j:topicReplyToName>"}),
    *(
        ("badUri", VERSIONS, {"address": f"jms:queue:q?{query}"}, "jms:queue", f"(SOAP/JMS 2.2.2, RFC 6167 {rule}",
         {})
        for query, rule in (
            ("deliveryMode=persistent", "4.1.1); write as deliveryMode PERSISTENT or NON_PERSISTENT"),
            ("timeToLive=1.5", "4.1.2); write as timeToLive milliseconds, digits only"),
            ("priority=11", "4.1.3); write as priority an integer from 0 to 9"),
            ("replyToName=a&topicReplyToName=b", "4.3.1); write replyToName or topicReplyToName, not both"),
        )
    ),
    ("badUri", VERSIONS, {"address": "jms:queue"}, "jms:queue", "(RFC 6167 3); write a URI as RFC 6167 has it", {}),
    *(
        ("remoteSchema", VERSIONS, {"head": SCHEMAS.format(refers=f'<x:{refers}/>')}, f"<x:{refers[:6]}", said,
         {"head": SCHEMAS.format(refers=f'<x:{local}/>')})
        for refers, said, local in (
            ('import namespace="urn:a" schemaLocation="http://example/a.xsd"',
             "the import of a schema for 'urn:a' from 'http://example/a.xsd' is passed over: nothing is fetched; save",
             'import namespace="urn:a" schemaLocation="a.xsd"'),
            ('include schemaLocation=" HTTPS://user:secret@example/a.xsd "',
             "the include of a schema for 'urn:types' from 'HTTPS://***@example/a.xsd'",
             'include schemaLocation="types/a.xsd"'),
            ('redefine schemaLocation="//example/a.xsd"', "redefine of a schema", 'redefine schemaLocation="/a.xsd"'),
            ('import schemaLocation="file://example/a.xsd"', "file://example", 'import schemaLocation="file:///a.xsd"'),
            ('import schemaLocation="urn:a"', "urn:a", 'import schemaLocation="file://localhost/a.xsd"'),
            ('import schemaLocation="ftp:a"', "ftp:a", 'import schemaLocation="file:a.xsd"'),
            ('import schemaLocation="jar:y"', "jar:y", 'import schemaLocation="c:\\a.xsd"'),
            ('import namespace="" schemaLocation="ftp:b"', "ftp:b", 'import namespace="urn:a"'),
        )
    ),
    ("remoteSchema", [WSDL_20],
     {"head": f'<types><x:import xmlns:x="{XSD}" namespace="urn:a" schemaLocation="http://example/a.xsd"/></types>'},
     "<types", "'urn:a' from 'http://example/a.xsd'", {}),
    ("repeatedElement", VERSIONS, {"port": '<j:jndiContextParameter name="a.b" value="1"/>\n' * 2}, "<j:jndi",
     "jndiContextParameter 'a.b' is given 2 times", {}),
    ("overridden", VERSIONS,
     {"port": '<j:jndiContextParameter name="a.b" value="1"/>',
      "binding": '<j:jndiContextParameter name="a.b"  value="2"/>'},
     '<j:jndiContextParameter name="a.b"  value', "jndiContextParameter 'a.b' '2' of the binding is overridden", {}),
    ("overridden", VERSIONS,
     {"port": '<j:jndiContextParameter name="java.naming.provider.url" value="tcp://a:1"/>',
      "service": "<j:jndiURL>tcp://b:1</j:jndiURL>"},
     "<j:jndiURL", "jndiURL 'tcp://b:1' of the service is overridden for port 'Ledger' by 'tcp://a:1' of the port", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "code", "breaking", "at", "said", "keeping"),
    [
        pytest.param(version, code, *rest, id=f"{code}-{version}-{number}")
        for number, (code, versions, *rest) in enumerate(CASES)
        for version in versions
    ],
)
def test_every_rule(
    version: str, code: str, breaking: dict[str, str], at: str, said: str, keeping: dict[str, str]
) -> None:
    """What breaks a rule is found on its line, with the rule and what to write; what keeps it is not reported."""
    text = wsdl(version, **breaking)
    reported = [each for each in found(text) if each.code == code]
    assert reported, found(text)
    assert reported[0].place == ("ledger.wsdl", line_of(text, at))
    for part in said.split("; "):
        assert part in str(reported[0])
    assert reported[0].rule in str(reported[0])
    assert {each.code for each in found(text)} <= {code, "unusedElement", "missingFactory"}
    assert found(wsdl(version, **keeping)) == []


def test_a_binding_that_is_not_there() -> None:
    """The name is shown with its namespace."""
    for version in VERSIONS:
        text = wsdl(version).replace('binding="t:LedgerJms"', 'binding="t:Other"')
        (reported,) = found(text)
        assert (reported.code, reported.place.line) == ("missingBinding", line_of(text, 'binding="t:Other"'))
        assert "'{urn:ledger}Other'" in reported.text


MISPLACED = {
    "in the SOAP binding element": lambda text: text.replace(
        f'transport="{REC}"/>', f'transport="{REC}">\n<j:priority>1</j:priority></s:binding>'
    ),
    "in an operation": lambda text: text.replace(
        '<wsdl:operation name="note">\n', '<wsdl:operation name="note">\n<j:priority>1</j:priority>'
    ),
    "at the top": lambda text: text.replace("<wsdl:message", "<j:priority>1</j:priority><wsdl:message"),
}


@pytest.mark.parametrize("where", MISPLACED)
def test_elements_in_the_wrong_place(where: str) -> None:
    """They count for nothing, and are reported where they stand."""
    text = MISPLACED[where](wsdl(WSDL_11))
    (reported,) = found(text)
    assert (reported.code, reported.place.line) == ("wrongPlace", line_of(text, "<j:priority>"))
    assert "priority" not in read(text.encode()).port().effective().overridden


def test_elements_in_documentation_mean_nothing() -> None:
    """Examples in documentation and schemas are left alone."""
    for tag in ("documentation", "types"):
        assert found(wsdl(WSDL_11, head=f"<wsdl:{tag}><j:priority>1</j:priority></wsdl:{tag}>")) == []


def test_every_rule_has_a_case() -> None:
    """The table of rules and the cases above are about the same."""
    elsewhere = {"missingBinding", "wrongPlace", *REFERENCE_CODES}
    assert {code for code, *_ in CASES} | elsewhere == set(RULES)


def test_elements_that_reach_no_port() -> None:
    """On a service without SOAP/JMS ports and on a binding that no port has."""
    unused = '<wsdl:binding name="Unused" type="t:LedgerPT">\n<j:priority>1</j:priority></wsdl:binding>'
    empty = '<wsdl:service name="Empty">\n<j:priority>1</j:priority></wsdl:service>'
    text = wsdl(WSDL_11, head=unused + empty)
    assert [each.code for each in found(text)] == ["unusedElement", "unusedElement"]
    assert [each.text.split(" counts")[0] for each in found(text)] == [
        "priority in the binding 'Unused'",
        "priority in the service 'Empty'",
    ]


def test_a_finding_is_reported_once() -> None:
    """What is wrong with a binding is one thing, however many ports have it; the findings are in order of lines."""
    second = '<wsdl:port name="Second" binding="t:LedgerJms"><s:address location="jms:queue:q"/></wsdl:port>'
    text = wsdl(WSDL_11, binding="<j:priority>11</j:priority>", port="<j:prority>1</j:prority>", more=second)
    assert [each.code for each in found(text)] == ["badValue", "unknownElement"]


def test_a_service_of_two_editions() -> None:
    """Elements of a service may be of the edition of any of its ports."""
    other = f"""<wsdl:binding name="Old" type="t:LedgerPT"><s:binding transport="{CR}"/></wsdl:binding>"""
    second = '<wsdl:port name="Second" binding="t:Old"><s:address location="jms:queue:q"/></wsdl:port>'
    service = "<j:priority>1</j:priority><cr:timeToLive>1</cr:timeToLive>"
    assert found(wsdl(WSDL_11, head=other, more=second, service=service)) == []


def test_findings_as_json() -> None:
    """File, line, code, severity, rule, what was seen, what to write."""
    (reported,) = found(wsdl(WSDL_11, port="<j:priority>11</j:priority>"))
    assert finding_members(reported) == {
        "file": "ledger.wsdl",
        "line": reported.place.line,
        "code": "badValue",
        "severity": "error",
        "rule": "SOAP/JMS 2.2.2",
        "text": "priority of the port is '11'",
        "write": "write an integer from 0 to 9",
    }


def test_secrets_are_not_repeated() -> None:
    """A contradiction between secrets is shown without them."""
    element = '<j:jndiContextParameter name="java.naming.security.credentials" value="{}"/>'
    text = wsdl(WSDL_11, port=element.format("hunter2"), service=element.format("hunter3"))
    assert {each.code for each in found(text)} == {"secret", "overridden"}
    assert not any("hunter" in str(each) for each in found(text))


@pytest.mark.parametrize("path", CXF, ids=lambda path: path.name)
def test_files_of_cxf(path: Path) -> None:
    """The plain ones are right; what contradicts itself on purpose is reported, all of it as warnings."""
    reported = lint(soapjms.read_wsdl(path))
    expected = {
        "echo-soap11-properties.wsdl": {
            ("overridden", 137), ("overridden", 139), ("overridden", 203), ("overriddenByUri", 137),
            ("overriddenByUri", 138), ("overriddenByUri", 139), ("overriddenByUri", 140), ("overriddenByUri", 195),
            ("uriNote", 199),
        }
    }  # fmt: skip
    assert {(each.code, each.place.line) for each in reported} == expected.get(path.name, set())
    assert {each.severity for each in reported} <= {Severity.WARNING}


# Documents that nobody would write

EVERYWHERE = """<j:priority>{0}</j:priority><j:jndiContextParameter name="a" value="{0}"/>
<j:topicReplyToName>t</j:topicReplyToName>"""
TEXTS = [
    "", "t:LedgerJms", ":", "1.5", "9" * 30, REC, CR, HTTP, "jms:queue:q", "jms:queue:ä?priority=99&jndi-=x&jndi-a",
    "jms:jndi:a/b?replyToName=x&topicReplyToName=y", "http://u:p@x/", "JMS:topic:%00%FF",
]  # fmt: skip


def changed(text: str, random: Random) -> bytes:
    """Take elements and attributes out of a document, copy elements elsewhere, write other texts and new elements."""
    root = xml.parse(text.encode())
    for _ in range(random.randint(1, 6)):
        element, other = (random.choice(list(root.iter("*"))) for _ in range(2))
        what, parent = random.randrange(5), element.getparent()
        if what == 0:
            element.text = random.choice(TEXTS)
        elif what == 1 and element.attrib:
            element.set(random.choice(element.keys()), random.choice(TEXTS))
        elif what == 2 and element.attrib:
            del element.attrib[random.choice(element.keys())]
        elif what == 3:
            other.append(deepcopy(element))
        elif what == 4 and parent is not None:
            parent.remove(element)
        name = random.choice([*ELEMENTS, "targetService", "other"])
        etree.SubElement(other, f"{{{random.choice([CR, REC])}}}{name}").text = random.choice(TEXTS)
    return etree.tostring(root)


@given(st.sampled_from(VERSIONS), st.sampled_from(TEXTS[-5:]), st.randoms(use_true_random=False))
def test_whatever_a_document_says(version: str, address: str, random: Random) -> None:
    """It is judged; a port can be used exactly if nothing that is found about it is an error."""
    text = wsdl(version, address=address, port=EVERYWHERE.format(1), service=EVERYWHERE.format(2))
    described = read(changed(text, random))
    lint(described)
    for port in described.ports:
        usable = port.profile is not None and all(each.severity is not Severity.ERROR for each in port.problems())
        try:
            port.effective()
        except InvalidWsdlError:
            assert not usable
        else:
            assert usable
