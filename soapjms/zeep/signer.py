"""A `wsse` for zeep that signs requests with a Timestamp, and does not check responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, Final

from lxml import etree
from zeep import ns
from zeep.wsse.utils import ensure_id, get_security_header

from brokers.arguments import items
from soapjms.protocol.envelope import is_among
from soapjms.protocol.errors import UsageError
from soapjms.validation import block_names

LIFETIME_SECONDS = 300.0
SECURITY: Final = frozenset({f"{{{ns.WSSE}}}Security", f"{{{ns.WSSE}}}*"})


class Signing:
    """Adds a Timestamp, and then one of zeep's signatures over it, as `soapjms.signatures.Signatures` requires.

    zeep signs only Body and Timestamp; the header blocks of `headers` are added to its signature. Without this class
    zeep's signatures add no Timestamp, and require responses that are signed too, with the client's own key.

    Args:
        signature: `zeep.wsse.Signature`, `BinarySignature`, `MemorySignature`, or an object with the same `apply`.
        headers: names of header blocks to sign if a message has them: an `lxml.etree.QName`, or text in Clark
            notation; `{namespace}*` is any of a namespace. WS-Addressing (`addressing=True`) is written before.
        lifetime: seconds after which the message expires.
        clock: returns the time in epoch seconds.

    Raises:
        UsageError: `signature` has no `apply`; or `headers` is not a list of such names, has the Security header, or
            needs a signature of zeep's.
    """

    def __init__(
        self,
        signature: Any,
        *,
        headers: Collection[str | etree.QName] = (),
        lifetime: float = LIFETIME_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not callable(getattr(signature, "apply", None)):
            raise UsageError(
                f"signature must be one of zeep's, such as BinarySignature, got {type(signature).__name__}"
            )
        self._signature = signature
        self._names = _names(headers)
        if self._names and not hasattr(signature, "key_data"):
            raise UsageError(
                f"signature must be zeep's Signature, BinarySignature or MemorySignature if headers are signed, got"
                f" {type(signature).__name__}"
            )
        self._lifetime = lifetime
        self._clock = clock

    def apply(self, envelope: etree._Element, headers: Any) -> Any:
        """Add the Timestamp and the signature."""
        now = self._clock()
        stamp = etree.SubElement(get_security_header(envelope), f"{{{ns.WSU}}}Timestamp")
        for name, at in (("Created", now), ("Expires", now + self._lifetime)):
            said = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            etree.SubElement(stamp, f"{{{ns.WSU}}}{name}").text = said
        envelope, headers = self._signature.apply(envelope, headers)
        security = get_security_header(envelope)
        blocks = [each for each in security.getparent().iterchildren(etree.Element) if is_among(each, self._names)]
        if blocks:
            self._sign_again(envelope, security, blocks)
        return envelope, headers

    def verify(self, envelope: etree._Element) -> etree._Element:
        """Return the response unchecked."""
        return envelope

    def _sign_again(self, envelope: etree._Element, security: etree._Element, blocks: list[etree._Element]) -> None:
        """Add references to zeep's signature, and compute its digests and value again."""
        import xmlsec  # zeep has imported it by now

        zeeps = self._signature
        signature = security.find(f"{{{ns.DS}}}Signature")
        assert signature is not None, "zeep made one"
        context = xmlsec.SignatureContext()
        context.key = xmlsec.Key.from_memory(zeeps.key_data, xmlsec.constants.KeyDataFormatPem, zeeps.password)
        for block in blocks:
            reference = xmlsec.template.add_reference(
                signature, zeeps.digest_method or xmlsec.constants.TransformSha1, uri=f"#{ensure_id(block)}"
            )
            xmlsec.template.add_transform(reference, xmlsec.constants.TransformExclC14N)
        for each in (*envelope.iterchildren(etree.Element), *security.iterchildren(etree.Element), *blocks):
            if each.get(f"{{{ns.WSU}}}Id") is not None:
                context.register_id(each, "Id", ns.WSU)
        context.sign(signature)


def _names(headers: Collection[str | etree.QName]) -> frozenset[str]:
    given = items(headers, "headers", f"a list of names, as in ['{{{ns.WSA}}}*']", str | etree.QName)
    names = block_names((each.text if isinstance(each, etree.QName) else each for each in given), "headers")
    if names & SECURITY:
        raise UsageError("headers must not have the wsse:Security header, which holds the signature itself")
    return names
