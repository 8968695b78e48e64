"""Signatures of WS-Security at a service: a `verify` hook that trusts only what a known certificate signed.

Needs the extra `wsse`. A signature refers by id to the elements it covers, wherever in the message they are. So these
elements are found first, and must be the very Body that is processed and the very header blocks that are read; only
then are octets and key checked. `docs/security.md` lists the parts of a JMS message that are never signed.

Spec: SOAP Message Security 1.1.1, 8; XML Signature Syntax and Processing 1.1.
"""

from __future__ import annotations

import re
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final

from lxml import etree

try:
    import xmlsec
except ImportError as _error:
    raise ImportError(f"soapjms.signatures needs xmlsec ({_error}): pip install 'soapjms[wsse]'") from _error

from brokers.arguments import items, switch
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.envelope import Envelope, is_among
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.text import named, reason_of
from soapjms.protocol.xml import parse_canonical
from soapjms.security import WSSE, WSU, Nonces, check_positive, check_timestamp, only_child, refused
from soapjms.service.request import Request
from soapjms.validation import block_names

DS: Final = "http://www.w3.org/2000/09/xmldsig#"
_MORE: Final = "http://www.w3.org/2001/04/xmldsig-more#"
_XMLENC: Final = "http://www.w3.org/2001/04/xmlenc#"
EXCLUSIVE: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
"""The only accepted transform and canonical form: any other could sign other content, or only a part of it."""

METHODS: Final = frozenset(f"{_MORE}{key}-sha{size}" for key in ("rsa", "ecdsa") for size in (256, 384, 512))
DIGESTS: Final = frozenset({f"{_XMLENC}sha256", f"{_MORE}sha384", f"{_XMLENC}sha512"})
SHA1: Final = frozenset({f"{DS}rsa-sha1", f"{DS}sha1"})
"""The algorithms that zeep signs with by default; SHA-1 no longer prevents forgeries."""

TRANSFORMS: Final[Mapping[str, Any]] = {
    each.href: each
    for each in (
        xmlsec.constants.TransformRsaSha1,
        *(
            getattr(xmlsec.constants, f"Transform{key}Sha{size}")
            for key in ("Rsa", "Ecdsa")
            for size in (256, 384, 512)
        ),
    )
}
"""What xmlsec calls the algorithms of signatures."""

ID: Final = f"{{{WSU}}}Id"
IDS: Final = (ID, "Id", "ID", "id", "{http://www.w3.org/XML/1998/namespace}id")
"""Attributes that other software may read as an id: a signed id must be unique over all of them."""

REFERENCE: Final = re.compile(r"#[\w.-]{1,256}")
MAX_REFERENCES: Final = 50


class Signatures:
    """A `verify` hook for signatures. The identity is the name under which the signer's certificate was given.

    The signature must cover the Body, a Timestamp, and those header blocks of `headers` that the message has.

    Args:
        certificates: the certificates by their owners' names, in PEM: paths or octets. Nobody else is trusted,
            whatever certificate a message carries. Validity dates are not checked: remove owners who are no longer
            trusted.
        headers: names of header blocks that must be signed if present, in Clark notation; `{namespace}*` is any block
            of a namespace.
        timestamp: demand a signed Timestamp, and accept a message only once. Without it, anybody who recorded a message
            can send it again at any time.
        attachments: accept parts that the signed elements do not include; such parts are not signed.
        sha1: accept SHA-1 as well.
        max_age: seconds after its Created at which a message is too old, and for which signatures are remembered.
        skew: seconds that a sender's clock may be ahead, or that a Timestamp may have expired.
        max_nonces: how many signatures this process remembers; see `Nonces`.
        clock: returns the time in epoch seconds.

    Raises:
        UsageError: an argument is invalid, or a certificate cannot be read.
    """

    def __init__(
        self,
        certificates: Mapping[str, str | PathLike[str] | bytes],
        *,
        headers: Collection[str] = (),
        timestamp: bool = True,
        attachments: bool = False,
        sha1: bool = False,
        max_age: float = 300.0,
        skew: float = 60.0,
        max_nonces: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(certificates, Mapping) or not certificates:
            raise UsageError(f"certificates must map owners' names to their certificates, got {certificates!r}")
        check_positive(max_age=max_age, skew=skew, max_nonces=max_nonces)
        self._keys = {name: _key(name, each) for name, each in certificates.items()}
        self._headers = block_names(items(headers, "headers", "a list of names"), "headers")
        self._needs_timestamp = switch(timestamp, "timestamp")
        self._lets_attachments = switch(attachments, "attachments")
        self._algorithms = METHODS | DIGESTS | (SHA1 if switch(sha1, "sha1") else frozenset())
        self._max_age, self._skew, self._clock = max_age, skew, clock
        self._nonces = Nonces(int(max_nonces) or 1)

    def __call__(self, request: Request, security: etree._Element | None) -> str:
        """Return the signer's name.

        Raises:
            SoapFaultError: the signature is missing, does not cover all required elements, is from an unknown signer,
                or is too old.
        """
        if security is None:
            raise refused("InvalidSecurity", "there is no wsse:Security header; a signature is needed")
        signature = only_child(security, DS, "Signature")
        if signature is None:
            raise refused("InvalidSecurity", "there is no signature")
        now = self._clock()
        signed = signed_elements(signature, request.envelope, security, self._algorithms)
        self._check_covered(request, security, signed)
        created = None if request.finished else check_timestamp(security, now, self._skew)
        is_new = self._needs_timestamp and not request.finished  # a finished one was checked when it was new
        if is_new and (created is None or created < now - self._max_age):
            raise refused("MessageExpired", "the Timestamp has no Created, or one that is too old")
        who = self._signer(request, signature, signed)
        if is_new and created is not None:
            said, oldest = sha256(octets_signed(signature)).digest(), now - self._max_age
            if not self._nonces.take(said, created, oldest, request.key, redelivered=request.redelivered):
                raise refused("FailedAuthentication", "the signature was used before")
        return who

    def _check_covered(self, request: Request, security: etree._Element, signed: Sequence[etree._Element]) -> None:
        envelope, covered = request.envelope, set(signed)
        if envelope.body not in covered:
            raise refused("InvalidSecurity", "the Body is not signed")
        timestamp = only_child(security, WSU, "Timestamp")
        if self._needs_timestamp and timestamp not in covered:
            raise refused("InvalidSecurity", "there is no Timestamp that is signed")
        for block in () if envelope.header is None else envelope.header.iterchildren(etree.Element):
            if is_among(block, self._headers) and block not in covered:
                raise refused("InvalidSecurity", f"the header block {named(block.tag)} is not signed")
        if any(True for each in signed for _ in each.iter(etree.Comment)):  # comments split texts, and are not signed
            raise refused("InvalidSecurity", "a comment is within what is signed")
        if request.element.tag == XOP_INCLUDE:
            raise refused("InvalidSecurity", "an xop:Include is the content of the Body; it stands within an element")
        if not self._lets_attachments:
            found = (
                request.attachments.find(each.get("href", "")) for part in signed for each in part.iter(XOP_INCLUDE)
            )
            included = {id(each) for each in found}
            if any(id(part) not in included for part in request.attachments):
                raise refused("InvalidSecurity", "an attachment is not signed: what is signed does not include it")

    def _signer(self, request: Request, signature: etree._Element, signed: Sequence[etree._Element]) -> str:
        """Check octets and key, and return the signer's name.

        Included attachments become base64 first, as they were signed, and stay so: later steps read what was signed.
        """
        try:
            request.attachments.expand(request.envelope.root)
        except InvalidAttachmentError as error:
            raise refused("InvalidSecurity", f"{error}") from None
        octets, value, transform = octets_signed(signature), _value_of(signature), _transform_of(signature)
        for name, key in self._keys.items():
            if not _fits(key, octets, value, transform):  # first, as what is signed may be large
                continue
            context = xmlsec.SignatureContext()
            context.key = key
            for each in signed:
                context.register_id(each, "Id", WSU)
            try:
                context.verify(signature)
            except xmlsec.Error:  # xmlsec gives no further details
                break
            return name
        raise refused("FailedCheck")


def signed_elements(
    signature: etree._Element, envelope: Envelope, security: etree._Element, algorithms: Collection[str]
) -> list[etree._Element]:
    """Find the elements that a signature covers: the Body, header blocks, and tokens of the Security header.

    Args:
        signature: a ds:Signature whose octets and key have not been checked yet.
        envelope: the envelope of the message.
        security: the Security header block that holds the signature.
        algorithms: the accepted algorithms.

    Raises:
        SoapFaultError: the signature has another form, covers an element elsewhere, or refers to an id that occurs
            twice.
    """
    if any(True for _ in signature.iter(etree.Comment, etree.ProcessingInstruction)):
        raise refused("InvalidSecurity", "a comment or processing instruction is within the signature")
    info = _children(signature, "SignedInfo", "SignatureValue", "KeyInfo?")[0]
    canonical, method, *references = _children(info, "CanonicalizationMethod", "SignatureMethod", "Reference+")
    _check_algorithm(canonical, {EXCLUSIVE})
    _check_algorithm(method, algorithms)
    if len(references) > MAX_REFERENCES:
        raise refused("InvalidSecurity", f"the signature has more than {MAX_REFERENCES} references")
    wanted: dict[str, list[etree._Element]] = {_referred(each, algorithms): [] for each in references}
    if len(wanted) < len(references):  # each reference would be digested
        raise refused("InvalidSecurity", "the signature refers to an id more than once")
    for element in envelope.root.iter(etree.Element):
        for name in IDS:
            if (found := wanted.get(element.get(name, ""))) is not None:
                found.append(element)
    return [_only(name, found, envelope, security) for name, found in wanted.items()]


def _referred(reference: etree._Element, algorithms: Collection[str]) -> str:
    transforms, digest, _ = _children(reference, "Transforms", "DigestMethod", "DigestValue")
    for each in _children(transforms, "Transform"):
        _check_algorithm(each, {EXCLUSIVE})
    _check_algorithm(digest, algorithms)
    uri = reference.get("URI", "")
    if not REFERENCE.fullmatch(uri):
        raise refused("InvalidSecurity", f"the signature refers to {named(uri)}; it has to be # and an id")
    return uri[1:]


def _only(name: str, found: Sequence[etree._Element], envelope: Envelope, security: etree._Element) -> etree._Element:
    """Return the element with an id, if it is the only one and stands where the service reads it."""
    if len(found) != 1 or found[0].get(ID) != name:
        raise refused("InvalidSecurity", f"{len(found)} elements have the id {named(name)}; one has to, as wsu:Id")
    element = found[0]
    parent = element.getparent()
    is_token = parent is security and etree.QName(element).namespace in (WSSE, WSU)  # a block would be hidden there
    if element is not envelope.body and not is_token and (parent is None or parent is not envelope.header):
        raise refused("InvalidSecurity", "what is signed is neither the Body nor a block of the header, nor a token")
    return element


def _children(parent: etree._Element, *wanted: str) -> list[etree._Element]:
    """Return the children of a part of a signature; `?` after a name allows one or none, `+` one or more."""
    found = list(parent.iterchildren(etree.Element))
    names = [etree.QName(each) for each in found]
    spelled = "".join(f"{each.localname} " if each.namespace == DS else "- " for each in names)
    form = "".join(f"({each.rstrip('?+')} ){each[-1] if each[-1] in '?+' else ''}" for each in wanted)
    if not re.fullmatch(form, spelled):
        raise refused("InvalidSecurity", f"{named(parent.tag)} is not as it must be: {', '.join(wanted)}")
    return found


def _check_algorithm(element: etree._Element, known: Collection[str]) -> None:
    said = element.get("Algorithm", "")
    if said not in known:
        raise refused("UnsupportedAlgorithm", f"this algorithm is not taken: {named(said)}")


def octets_signed(signature: etree._Element) -> bytes:
    """Return the octets that a key signed; a message with a valid signature cannot have other octets.

    Spec: Exclusive XML Canonicalization 3, InclusiveNamespaces.
    """
    info = signature.find(f"{{{DS}}}SignedInfo")
    assert info is not None
    alone = parse_canonical(etree.tostring(info, with_tail=False))  # with the namespaces of all its ancestors
    given = alone.find(f"{{{DS}}}CanonicalizationMethod/{{{EXCLUSIVE}}}InclusiveNamespaces")
    prefixes = [] if given is None else given.get("PrefixList", "").split()
    return etree.tostring(alone, method="c14n", exclusive=True, with_comments=False, inclusive_ns_prefixes=prefixes)


def _value_of(signature: etree._Element) -> bytes:
    try:
        return b64decode("".join(signature.findtext(f"{{{DS}}}SignatureValue", "").split()), validate=True)
    except ValueError:
        raise refused("FailedCheck") from None


def _transform_of(signature: etree._Element) -> Any:
    method = signature.find(f"{{{DS}}}SignedInfo/{{{DS}}}SignatureMethod")
    assert method is not None
    return TRANSFORMS.get(method.get("Algorithm", ""))


def _fits(key: Any, octets: bytes, value: bytes, transform: Any) -> bool:
    """Say whether a key made a signature, without a look at what its references cover."""
    context = xmlsec.SignatureContext()
    context.key = key
    try:
        context.verify_binary(octets, transform, value)
    except (xmlsec.Error, TypeError):  # a TypeError if that is no algorithm of signatures
        return False
    return True


def _key(name: str, certificate: str | PathLike[str] | bytes) -> Any:
    try:
        octets = certificate if isinstance(certificate, bytes) else Path(certificate).read_bytes()
        return xmlsec.Key.from_memory(octets, xmlsec.constants.KeyDataFormatCertPem, None)
    except (OSError, TypeError, xmlsec.Error) as error:
        where = "" if isinstance(certificate, bytes) else f": {certificate}"
        raise UsageError(f"the certificate of {name!r} cannot be read as PEM: {reason_of(error)}{where}") from None
