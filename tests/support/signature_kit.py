"""What tests of signatures share: who signs, and who is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trustme
import xmlsec
from lxml import etree
from security_kit import NOW
from zeep.wsse.signature import MemorySignature
from zeep.wsse.utils import ensure_id, get_security_header

from soapjms.protocol.envelope import as_envelope
from soapjms.security import WSU
from soapjms.signatures import Signatures
from soapjms.zeep import Signing

SHA_256 = (xmlsec.Transform.RSA_SHA256, xmlsec.Transform.SHA256)


XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"


class Signer:
    """Somebody with a key, and its certificate."""

    def __init__(self, name: str, kind: trustme.KeyType = trustme.KeyType.RSA) -> None:
        made = trustme.CA(key_type=kind).issue_cert(name, key_type=kind)
        self.key, self.certificate = made.private_key_pem.bytes(), made.cert_chain_pems[0].bytes()

    def sign(self, body: bytes, algorithms: Any = SHA_256, at: float = NOW) -> etree._Element:
        """Sign an envelope, with the time."""
        root = etree.fromstring(body)
        Signing(MemorySignature(self.key, self.certificate, None, *algorithms), clock=lambda: at).apply(root, {})
        return root

    def sign_more(
        self,
        root: etree._Element,
        *blocks: etree._Element,
        method: Any = xmlsec.Transform.RSA_SHA256,
        change: Callable[[etree._Element], None] = lambda info: None,
    ) -> None:
        """Sign header blocks as well, which zeep does not; `change` gets the SignedInfo before."""
        security = get_security_header(root)
        signature = xmlsec.template.create(root, xmlsec.Transform.EXCL_C14N, method)
        stamp = etree.SubElement(security, f"{{{WSU}}}Timestamp")
        etree.SubElement(stamp, f"{{{WSU}}}Created").text = "2023-11-14T22:13:20Z"
        security.insert(0, signature)
        context = xmlsec.SignatureContext()
        context.key = xmlsec.Key.from_memory(self.key, xmlsec.constants.KeyDataFormatPem)
        for each in (as_envelope(root).body, stamp, *blocks):
            reference = xmlsec.template.add_reference(signature, xmlsec.Transform.SHA256, uri=f"#{ensure_id(each)}")
            xmlsec.template.add_transform(reference, xmlsec.Transform.EXCL_C14N)
            context.register_id(each, "Id", WSU)
        change(signature[0])
        context.sign(signature)


ANN, EVE, ELLIPTIC = Signer("ann.example"), Signer("eve.example"), Signer("bob.example", trustme.KeyType.ECDSA)


KNOWN = {"bob": ELLIPTIC.certificate, "ann": ANN.certificate}


def signatures(**options: Any) -> Signatures:
    return Signatures(KNOWN, **{"clock": lambda: NOW} | options)
