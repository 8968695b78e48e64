"""Signatures of WS-Security: what zeep signs is taken, from those who are known; what somebody moved about is not."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import xmlsec
from calling_kit import NS, PATIENCE, SOAP_11, OnEachBroker, element, envelope
from lxml import etree
from places import ROOT
from security_kit import NOW, ask, refusal, service
from signature_kit import ANN, ELLIPTIC, EVE, KNOWN, SHA_256, XPATH, Signer, signatures
from zeep.wsse import BinarySignature, Signature
from zeep.wsse.signature import MemorySignature
from zeep.wsse.utils import get_security_header
from zeep_kit import gallery, gallery_wsdl, written

import soapjms
import soapjms.zeep
from brokers import Connection
from brokers.embedded import Broker
from soapjms import Attachment, Dispatcher, SoapVersion
from soapjms.protocol.envelope import as_envelope
from soapjms.security import WSSE, WSU
from soapjms.signatures import DS, EXCLUSIVE, Signatures
from soapjms.zeep import Signing

WSDL = ROOT / "examples" / "greeter.wsdl"
ID = f"{{{WSU}}}Id"
WSA = "http://www.w3.org/2005/08/addressing"


def asked(root: etree._Element, version: SoapVersion = SOAP_11, **options: Any) -> Any:
    """Return what a service answers to a message: who it thinks sent it, or a fault."""
    return ask(service(signatures(**options)), etree.tostring(root), version)


def refused(root: etree._Element, **options: Any) -> tuple[str, str]:
    """Return the code and the text of the fault."""
    return refusal(service(signatures(**options)), etree.tostring(root))


class TestTaken:
    """What is signed as it must be."""

    @pytest.mark.parametrize("version", SoapVersion)
    def test_who_it_is(self, version: SoapVersion) -> None:
        """The name under which the certificate was given, in both SOAP versions; RSA and elliptic curves."""
        assert asked(ANN.sign(envelope("x", version)), version) == "ann"
        elliptic = (xmlsec.Transform.ECDSA_SHA256, xmlsec.Transform.SHA512)
        assert asked(ELLIPTIC.sign(envelope("x", version), elliptic), version) == "bob"

    @pytest.mark.parametrize("prefixes", ["", "s", "#default", "xsi #default s", "unknown", "ds wsu s xsi"])
    @pytest.mark.parametrize("signer", [ANN, ELLIPTIC])
    def test_prefixes_that_are_signed(self, signer: Signer, prefixes: str) -> None:
        """The canonical form may be told of prefixes that count although they are only within values."""
        method = xmlsec.Transform.RSA_SHA256 if signer is ANN else xmlsec.Transform.ECDSA_SHA384
        root = etree.fromstring(
            f'<s:Envelope xmlns:s="{SOAP_11.namespace}" xmlns="urn:default" xmlns:xsi="urn:instance" xmlns:ds="{DS}">'
            f'<s:Header/><s:Body><greetMe xmlns="{NS}" xml:lang="el"> x&#13;</greetMe></s:Body></s:Envelope>'
        )

        def told(info: etree._Element) -> None:
            etree.SubElement(info[0], f"{{{EXCLUSIVE}}}InclusiveNamespaces", PrefixList=prefixes)

        signer.sign_more(root, method=method, change=told)
        assert asked(root) == ("ann" if signer is ANN else "bob")
        value = next(root.iter(f"{{{DS}}}SignatureValue"))
        value.text = base64.b64encode(b"x" * 256).decode()
        assert refused(root)[0] == "FailedCheck"
        value.text = "no base64"
        assert refused(root)[0] == "FailedCheck"

    def test_large_content_is_digested_for_one_signer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who signed is found by the signature alone, so a large Body costs the same for one known signer or many."""
        verified: list[str] = []

        class Counting(xmlsec.SignatureContext):  # type: ignore[misc]  # no types there
            def verify(self, node: etree._Element) -> None:
                verified.append(node.tag)
                super().verify(node)

        monkeypatch.setattr(xmlsec, "SignatureContext", Counting)
        root, many = ANN.sign(envelope()), {f"eve {number}": EVE.certificate for number in range(9)}
        assert (
            ask(service(Signatures({**many, "ann": ANN.certificate}, clock=lambda: NOW)), etree.tostring(root)) == "ann"
        )
        assert len(verified) == 1
        assert refusal(service(Signatures(many, clock=lambda: NOW)), etree.tostring(root))[0] == "FailedCheck"
        assert len(verified) == 1

    def test_files(self, tmp_path: Path) -> None:
        """Certificates are paths as well; zeep's other signature refers to its certificate elsewhere."""
        key, certificate = tmp_path / "key.pem", tmp_path / "ann.pem"
        key.write_bytes(ANN.key)
        certificate.write_bytes(ANN.certificate)
        for kind in (Signature, BinarySignature):
            root = etree.fromstring(envelope())
            Signing(kind(str(key), str(certificate), None, *SHA_256), clock=lambda: NOW).apply(root, {})
            made = service(Signatures({"ann": certificate}, clock=lambda: NOW))
            assert ask(made, etree.tostring(root)) == "ann"

    def test_sha1(self) -> None:
        """What zeep does unless told otherwise is taken only if that is wanted."""
        root = ANN.sign(envelope(), ())
        code, text = refused(root)
        assert (code, "rsa-sha1" in text) == ("UnsupportedAlgorithm", True)
        assert asked(root, sha1=True) == "ann"

    def test_again(self) -> None:
        """A message counts once, unless the broker delivers the very same one again; without Timestamps always."""
        body = etree.tostring(ANN.sign(envelope()))
        made = service(signatures())
        for again in (False, True):
            assert ask(made, body, named=lambda: b"1", redelivered=again) == "ann"
        copied = ask(made, body, named=lambda: b"1")
        assert not isinstance(copied, str)
        assert refusal(made, body) == ("FailedAuthentication", "the signature was used before")
        root = etree.fromstring(envelope())
        MemorySignature(ANN.key, ANN.certificate, None, *SHA_256).apply(root, {})
        assert refused(root) == ("InvalidSecurity", "there is no Timestamp that is signed")
        made = service(signatures(timestamp=False))
        assert [ask(made, etree.tostring(root)) for _ in range(2)] == ["ann", "ann"]

    @pytest.mark.parametrize(
        ("at", "code"), [(-299, None), (59, None), (-301, "MessageExpired"), (61, "InvalidSecurity")]
    )
    def test_time(self, at: float, code: str | None) -> None:
        """Neither too old nor from the future."""
        root = ANN.sign(envelope(), at=NOW + at)
        assert asked(root) == "ann" if code is None else refused(root)[0] == code

    def test_expired(self) -> None:
        """A message that its signer wanted no longer taken is not, however young it is."""
        root = etree.fromstring(envelope())
        signature = MemorySignature(ANN.key, ANN.certificate, None, *SHA_256)
        Signing(signature, lifetime=10, clock=lambda: NOW - 100).apply(root, {})
        assert refused(root) == ("MessageExpired", "the message has expired")

    def test_headers(self) -> None:
        """Blocks that have to be signed are, if they come."""
        root = ANN.sign(envelope())
        assert asked(root, headers=[f"{{{WSA}}}*"]) == "ann"
        etree.SubElement(root[0], f"{{{WSA}}}To").text = "urn:elsewhere"
        assert asked(root) == "ann"
        for name in (f"{{{WSA}}}*", f"{{{WSA}}}To"):
            assert refused(root, headers=[name]) == ("InvalidSecurity", f"the header block {{{WSA}}}To is not signed")

    @pytest.mark.parametrize("name", [f"{{{WSA}}}*", f"{{{WSA}}}To"])
    def test_signed_headers(self, name: str) -> None:
        """Blocks that their sender signed are taken, as they were signed."""
        root = etree.fromstring(envelope())
        get_security_header(root)
        block = etree.SubElement(root[0], f"{{{WSA}}}To")
        block.text = "urn:here"
        ANN.sign_more(root, block)
        assert asked(root, headers=[name]) == "ann"
        block.text = "urn:elsewhere"
        assert refused(root, headers=[name])[0] == "FailedCheck"

    @pytest.mark.parametrize("name", [f"{{{WSA}}}*", f"{{{WSA}}}To", f"{{{WSA}}}Action"])
    def test_hidden_headers(self, name: str) -> None:
        """A block that was signed and is moved where no function sees it makes the signature invalid."""
        root = etree.fromstring(envelope())
        get_security_header(root)
        block = etree.SubElement(root[0], f"{{{WSA}}}To")
        ANN.sign_more(root, block)
        assert asked(root, headers=[name]) == "ann"
        security_of(root).append(block)
        assert refused(root, headers=[name]) == (
            "InvalidSecurity",
            "what is signed is neither the Body nor a block of the header, nor a token",
        )

    @pytest.mark.parametrize("kind", [Signature, BinarySignature])
    @pytest.mark.parametrize("name", [f"{{{WSA}}}*", f"{{{WSA}}}To", etree.QName(WSA, "To")])
    def test_headers_that_our_client_signs(self, name: Any, kind: Any, tmp_path: Path) -> None:
        """Signing(headers=...) covers them, whichever signature of zeep's it has: one that is changed is refused."""
        key, certificate = tmp_path / "key.pem", tmp_path / "ann.pem"
        key.write_bytes(ANN.key)
        certificate.write_bytes(ANN.certificate)
        root = etree.fromstring(envelope())
        get_security_header(root)
        block, other = (etree.SubElement(root[0], f"{{{each}}}To") for each in (WSA, "urn:other"))
        block.text = other.text = "urn:here"
        Signing(kind(str(key), str(certificate), None, *SHA_256), headers=[name], clock=lambda: NOW).apply(root, {})
        assert asked(root, headers=[f"{{{WSA}}}To"]) == "ann"
        assert refused(root, headers=["{urn:other}To"])[1] == "the header block {urn:other}To is not signed"
        other.text = "urn:elsewhere"
        assert asked(root, headers=[f"{{{WSA}}}To"]) == "ann"
        block.text = "urn:elsewhere"
        assert refused(root, headers=[f"{{{WSA}}}To"])[0] == "FailedCheck"
        root[0].remove(block)
        assert refused(root, headers=[f"{{{WSA}}}To"])[0] == "InvalidSecurity"

    @pytest.mark.parametrize(
        ("headers", "signature", "why"),
        [
            (f"{{{WSA}}}To", None, "a list of names"),
            ([None], None, "a list of names"),
            ([f"{{{WSSE}}}*"], None, "must not have the wsse:Security header"),
            ([f"{{{WSA}}}*"], object(), "got object"),
            (["wsa:To"], None, "names of header blocks such as .*, got 'wsa:To'"),
        ],
    )
    def test_headers_that_cannot_be_signed(self, headers: Any, signature: Any, why: str) -> None:
        """That is said when it is made."""
        with pytest.raises(soapjms.UsageError, match=why):
            Signing(signature or MemorySignature(ANN.key, ANN.certificate), headers=headers)

    def test_what_cannot_sign(self) -> None:
        """It is refused when it is given, not at the first call, and not shown."""
        with pytest.raises(
            soapjms.UsageError, match="signature must be one of zeep's, such as BinarySignature, got str"
        ):
            Signing("key.pem")

    def test_our_own_addressing(self) -> None:
        """Our client writes WS-Addressing before it signs, and signs it if it is told to; one on the way that changes a
        header of it is found out."""
        signature = MemorySignature(ANN.key, ANN.certificate, None, *SHA_256)
        everything = [f"{{{WSA}}}*"]

        def change(call: Any, following: Any) -> Any:
            to = call.envelope.find(f".//{{{WSA}}}To") if isinstance(call.envelope, etree._Element) else None
            assert to is not None
            to.text = "jms:queue:elsewhere"
            return following(call)

        for signed, needed, middleware, said in (
            ([], [], [], "Hello x"),
            ([], everything, [], "is not signed"),
            (everything, everything, [], "Hello x"),
            (everything, everything, [change], "signature or decryption was invalid"),
        ):
            options: dict[str, Any] = {"port": "GreeterPort", "addressing": "required"}
            made = soapjms.Service.from_wsdl(WSDL, verify=Signatures(KNOWN, headers=needed), **options)
            made.operation("greetMe")(lambda name: f"Hello {name}")
            with (
                Broker().connect() as connection,
                Dispatcher(connection, "jms:queue:greeter", made),
                soapjms.zeep.Client(
                    WSDL,
                    connection=connection,
                    port_name="GreeterPort",
                    wsse=Signing(signature, headers=signed),
                    addressing=True,
                    middleware=middleware,
                ) as client,
            ):
                try:
                    answer = client.service.greetMe("x")
                except soapjms.zeep.JmsFaultError as error:
                    answer = str(error)
            assert said in answer


# Attacks, which change a message that Ann signed


def body_of(root: etree._Element) -> etree._Element:
    return as_envelope(root).body


def security_of(root: etree._Element) -> etree._Element:
    return next(root.iter(f"{{{WSSE}}}Security"))


def signature_of(root: etree._Element) -> etree._Element:
    return next(root.iter(f"{{{DS}}}Signature"))


def of_eve(root: etree._Element, **attributes: str) -> etree._Element:
    """Put a Body of the attacker in the place of the signed one, and return that."""
    signed = body_of(root)
    forged = etree.Element(signed.tag, attributes)
    forged.append(element("greetMe", "Eve"))
    root.replace(signed, forged)
    return signed


def within_a_header(root: etree._Element, signed: etree._Element) -> None:
    etree.SubElement(root[0], "{urn:x}wrapper").append(signed)


def changed_text(root: etree._Element) -> None:
    body_of(root)[0].text = "Eve"


def changed_timestamp(root: etree._Element) -> None:
    next(root.iter(f"{{{WSU}}}Created")).text = "2023-11-14T22:13:21.000Z"


def unsigned_body(root: etree._Element) -> None:
    of_eve(root)


def moved_body(root: etree._Element) -> None:
    within_a_header(root, of_eve(root))


def moved_body_other_id(root: etree._Element) -> None:
    signed = of_eve(root, **{ID: "mine"})
    within_a_header(root, signed)


def moved_body_same_id(root: etree._Element) -> None:
    signed = body_of(root)
    within_a_header(root, of_eve(root, **{ID: signed.get(ID) or ""}))


def moved_body_same_xml_id(root: etree._Element) -> None:
    signed = body_of(root)
    within_a_header(root, of_eve(root, **{"{http://www.w3.org/XML/1998/namespace}id": signed.get(ID) or ""}))


def moved_to_the_header(root: etree._Element) -> None:
    root[0].append(of_eve(root))


def moved_behind_the_body(root: etree._Element) -> None:
    etree.SubElement(root, "{urn:other}rest").append(of_eve(root))


def moved_to_security(root: etree._Element) -> None:
    security_of(root).append(of_eve(root))


def moved_timestamp(root: etree._Element) -> None:
    """The Timestamp that is read is another than the signed one."""
    stamp = next(root.iter(f"{{{WSU}}}Timestamp"))
    forged = deepcopy(stamp)
    del forged.attrib[ID]
    security_of(root).replace(stamp, forged)
    root[0].append(stamp)


def second_timestamp(root: etree._Element) -> None:
    stamp = next(root.iter(f"{{{WSU}}}Timestamp"))
    forged = deepcopy(stamp)
    del forged.attrib[ID]
    stamp.addprevious(forged)


def comment(root: etree._Element) -> None:
    """The signature does not see it, and what reads the text ends there."""
    said = body_of(root)[0]
    said.text, rest = "A", (said.text or "")[1:]
    said.append(etree.Comment("x"))
    said[0].tail = rest


def second_signature(root: etree._Element) -> None:
    signature_of(root).addnext(deepcopy(signature_of(root)))


def no_signature(root: etree._Element) -> None:
    security_of(root).remove(signature_of(root))


def no_security(root: etree._Element) -> None:
    root[0].remove(security_of(root))


def object_in_it(root: etree._Element) -> None:
    etree.SubElement(signature_of(root), f"{{{DS}}}Object")


def with_a_secret_of_all(root: etree._Element) -> None:
    next(root.iter(f"{{{DS}}}SignatureMethod")).set("Algorithm", f"{DS}hmac-sha1")


def with_xpath(root: etree._Element) -> None:
    next(root.iter(f"{{{DS}}}Transform")).set("Algorithm", XPATH)


def with_two_transforms(root: etree._Element) -> None:
    transform = next(root.iter(f"{{{DS}}}Transform"))
    transform.addnext(deepcopy(transform))


def with_inclusive_form(root: etree._Element) -> None:
    found = next(root.iter(f"{{{DS}}}CanonicalizationMethod"))
    found.set("Algorithm", "http://www.w3.org/TR/2001/REC-xml-c14n-20010315")


def refers(uri: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        next(root.iter(f"{{{DS}}}Reference")).set("URI", uri)

    change.__name__ = f"refers-to-{uri[:20] or 'all'}"
    return change


def many_references(root: etree._Element) -> None:
    reference = next(root.iter(f"{{{DS}}}Reference"))
    for _ in range(50):
        reference.addnext(deepcopy(reference))


def twice_referred(root: etree._Element) -> None:
    reference = next(root.iter(f"{{{DS}}}Reference"))
    reference.addnext(deepcopy(reference))


def comment_in_signature(root: etree._Element) -> None:
    signature_of(root).insert(0, etree.Comment("x"))


def instruction_in_signature(root: etree._Element) -> None:
    signature_of(root).insert(0, etree.ProcessingInstruction("x"))


def comment_in_signed_info(root: etree._Element) -> None:
    signature_of(root)[0].insert(0, etree.Comment("x"))


def instruction_in_signed_info(root: etree._Element) -> None:
    signature_of(root)[0].append(etree.ProcessingInstruction("x"))


ATTACKS: list[tuple[Callable[[etree._Element], None], str, str]] = [
    (changed_text, "FailedCheck", "invalid"),
    (changed_timestamp, "FailedCheck", "invalid"),
    (unsigned_body, "InvalidSecurity", "0 elements have the id"),
    (moved_body, "InvalidSecurity", "neither the Body nor a block"),
    (moved_body_other_id, "InvalidSecurity", "neither the Body nor a block"),
    (moved_body_same_id, "InvalidSecurity", "2 elements have the id"),
    (moved_body_same_xml_id, "InvalidSecurity", "2 elements have the id"),
    (moved_to_the_header, "InvalidSecurity", "the Body is not signed"),
    (moved_behind_the_body, "InvalidSecurity", "neither the Body nor a block"),
    (moved_to_security, "InvalidSecurity", "neither the Body nor a block"),
    (moved_timestamp, "InvalidSecurity", "no Timestamp that is signed"),
    (second_timestamp, "InvalidSecurityToken", "there are 2 elements Timestamp"),
    (comment, "InvalidSecurity", "a comment is within"),
    (second_signature, "InvalidSecurityToken", "there are 2 elements Signature"),
    (no_signature, "InvalidSecurity", "there is no signature"),
    (no_security, "InvalidSecurity", "a signature is needed"),
    (object_in_it, "InvalidSecurity", "Signature is not as it must be"),
    (with_a_secret_of_all, "UnsupportedAlgorithm", "hmac-sha1"),
    (with_xpath, "UnsupportedAlgorithm", XPATH),
    (with_two_transforms, "InvalidSecurity", "Transforms is not as it must be"),
    (with_inclusive_form, "UnsupportedAlgorithm", "REC-xml-c14n-20010315"),
    (refers(""), "InvalidSecurity", "has to be # and an id"),
    (refers("http://127.0.0.1:1/secret"), "InvalidSecurity", "has to be # and an id"),
    (refers("#xpointer(id('x'))"), "InvalidSecurity", "has to be # and an id"),
    (many_references, "InvalidSecurity", "more than 50 references"),
    (twice_referred, "InvalidSecurity", "refers to an id more than once"),
    (comment_in_signature, "InvalidSecurity", "a comment or processing instruction is within the signature"),
    (instruction_in_signature, "InvalidSecurity", "a comment or processing instruction is within the signature"),
    (comment_in_signed_info, "InvalidSecurity", "a comment or processing instruction is within the signature"),
    (instruction_in_signed_info, "InvalidSecurity", "a comment or processing instruction is within the signature"),
]


class TestAttacks:
    """What somebody made of a signed message, or signed who is nobody."""

    @pytest.mark.parametrize(("attack", "code", "text"), ATTACKS, ids=[each[0].__name__ for each in ATTACKS])
    def test_a_message_that_was_changed(self, attack: Callable[[etree._Element], None], code: str, text: str) -> None:
        """No function runs; the fault says why."""
        root = ANN.sign(envelope("Ann"))
        attack(root)
        assert refused(root)[0] == code
        assert text in refused(root)[1]

    def test_a_key_that_is_not_known(self) -> None:
        """The certificate that a message brings along makes nobody trusted."""
        assert refused(EVE.sign(envelope()))[0] == "FailedCheck"

    def test_somebody_else_with_a_known_name(self) -> None:
        """Bob's key does not make Ann of Bob, and each is told from the other."""
        body = etree.tostring(ELLIPTIC.sign(envelope(), (xmlsec.Transform.ECDSA_SHA256, xmlsec.Transform.SHA256)))
        made = service(Signatures({"ann": ANN.certificate}, clock=lambda: NOW))
        assert refusal(made, body)[0] == "FailedCheck"


def replaced(parent: etree._Element) -> Attachment:
    """Have a part stand for the base64 text of an element."""
    part = Attachment(base64.b64decode(parent.text or ""), "application/octet-stream", "part@x")
    parent.text = None
    parent.append(part.include())
    return part


class TestIncluded:
    """Parts that are put in the place of text in a message that Ann signed."""

    @pytest.fixture
    def call(self) -> Iterator[Callable[..., Any]]:
        """Call a service whose function says what it reads, and get that, or the fault's text."""
        made = soapjms.Service(verify=signatures(attachments=True))

        @made.operation(f"{{{NS}}}greetMe")
        def greet(request: soapjms.Request) -> etree._Element:
            return element("said", f"{request.element.text or ''} {len(request.element)}")

        def call(root: etree._Element, part: Attachment | None = None) -> str | None:
            response = client.call(root, attachments=[] if part is None else [part])
            return response.fault.reason if response.fault is not None else response.element.text

        uri = "jms:queue:included"
        with (
            Broker().connect() as connection,
            Dispatcher(connection, uri, made),
            soapjms.Client(connection, uri, timeout=PATIENCE) as client,
        ):
            yield call

    @pytest.mark.parametrize("text", ["1000", "Anna", ""])
    def test_for_text(self, call: Callable[..., Any], text: str) -> None:
        """The function reads the text that was signed, however it was sent."""
        root = ANN.sign(envelope(text))
        part = replaced(body_of(root)[0])
        assert call(root, part) == f"{text} 0"

    def test_with_children(self, call: Callable[..., Any]) -> None:
        """What stands within an Include is not signed, and does not get to the function."""
        root = ANN.sign(envelope("1000"))
        part = replaced(body_of(root)[0])
        include = body_of(root)[0][0]
        include.text = "9"
        etree.SubElement(include, "{urn:x}more").text = "9"
        assert call(root, part) == "1000 0"

    def test_as_the_body(self, call: Callable[..., Any]) -> None:
        """An Include is no content of a Body."""
        root = ANN.sign(envelope("1000"))
        part = Attachment(b"123", "application/octet-stream", "part@x")
        body_of(root).replace(body_of(root)[0], part.include())
        assert "an xop:Include is the content of the Body" in (call(root, part) or "")

    @pytest.mark.parametrize("name", ["DigestValue", "SignatureValue"])
    def test_again(self, call: Callable[..., Any], name: str) -> None:
        """A message counts once, also if somebody packs its signature otherwise."""
        root = ANN.sign(envelope("Ann"))
        again = deepcopy(root)
        assert call(root) == "Ann 0"
        part = replaced(next(again.iter(f"{{{DS}}}{name}")))
        assert call(again, part) == "the signature was used before"


@pytest.mark.parametrize(
    ("certificates", "options", "said"),
    [
        ({}, {}, "certificates must map owners' names"),
        ("ann.pem", {}, "certificates must map owners' names"),
        ({"ann": b"no PEM"}, {}, "the certificate of 'ann' cannot be read"),
        ({"ann": "nowhere.pem"}, {}, "nowhere.pem"),
        ({"ann": 7}, {}, "the certificate of 'ann' cannot be read"),
        (KNOWN, {"headers": "{urn:x}a"}, "headers must be a list of names"),
        (KNOWN, {"headers": [5]}, "headers must be a list of names, got"),
        *(
            (KNOWN, {"headers": [f"{{{WSA}}}*", wrong]}, f"headers must be names of header blocks .*, got '{wrong}'")
            for wrong in ("wsa:To", "To", "{urn:x}")
        ),
        *((KNOWN, {name: "no"}, f"{name} must be") for name in ("timestamp", "attachments", "sha1")),
        (KNOWN, {"max_age": -1}, "max_age must be a positive number, got -1"),
    ],
)
def test_options(certificates: Any, options: dict[str, Any], said: str) -> None:
    """What makes no sense is refused at once."""
    with pytest.raises(soapjms.UsageError, match=said):
        Signatures(certificates, **options)


class TestZeep(OnEachBroker):
    """A zeep client that signs, over brokers."""

    def test_attachments(self, connection: Connection, other: Connection, name: str, uri: str, tmp_path: Path) -> None:
        """What is included is signed with the Body, and cannot be exchanged; what is only attached is refused."""
        path = written(tmp_path, gallery_wsdl(uri))
        wsse = Signing(MemorySignature(ANN.key, ANN.certificate, None, *SHA_256))

        def meddling(call: soapjms.OutgoingCall, call_next: Any) -> Any:
            if call.element is not None and call.element.findtext("{urn:gallery}title") == "Night":
                call.attachments[:] = [Attachment(b"forged", "image/png", each.content_id) for each in call.attachments]
            return call_next(call)

        with (
            Dispatcher(other, uri, gallery(), verify=Signatures(KNOWN)),
            soapjms.zeep.Client(
                path, connection=connection, wsse=wsse, operation_timeout=PATIENCE, middleware=[meddling]
            ) as client,
        ):
            said = client.service.frame("Dusk", Attachment(b"photo", "image/png"))
            assert said.body.picture == b"[photo]"
            with pytest.raises(soapjms.zeep.JmsFaultError, match="the signature or decryption was invalid"):
                client.service.frame("Night", Attachment(b"photo", "image/png"))
            with pytest.raises(soapjms.zeep.JmsFaultError, match="an attachment is not signed"):
                client.service.frame("Dusk", _attachments=[Attachment(b"more", "text/plain")])
