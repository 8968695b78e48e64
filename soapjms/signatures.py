"""Signatures of WS-Security at a service: a `verify` hook that trusts what a known certificate signed, and no more.

Needs the extra `wsse`. A signature says by their ids which elements it covers, wherever in the message they are. So
what it covers is found first, and has to be the very Body that is worked on and the very header blocks that are read;
only then are octets and key looked at. `docs/security.md` says what is not signed in any message of JMS.

Spec: SOAP Message Security 1.1.1, 8; XML Signature Syntax and Processing 1.1.
"""

from __future__ import annotations

import re
import time
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

from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.envelope import Envelope, is_among
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.text import named
from soapjms.security import WSSE, WSU, Nonces, check_positive, check_timestamp, only_child, refused
from soapjms.service.request import Request

DS: Final = "http://www.w3.org/2000/09/xmldsig#"
_MORE: Final = "http://www.w3.org/2001/04/xmldsig-more#"
_XMLENC: Final = "http://www.w3.org/2001/04/xmlenc#"
EXCLUSIVE: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
"""The one transform and canonical form that is taken: any other could sign what is not there, or only a part of it."""

METHODS: Final = frozenset(f"{_MORE}{key}-sha{size}" for key in ("rsa", "ecdsa") for size in (256, 384, 512))
DIGESTS: Final = frozenset({f"{_XMLENC}sha256", f"{_MORE}sha384", f"{_XMLENC}sha512"})
SHA1: Final = frozenset({f"{DS}rsa-sha1", f"{DS}sha1"})
"""What zeep signs with unless told otherwise; it no longer keeps anybody from forging."""

ID: Final = f"{{{WSU}}}Id"
IDS: Final = (ID, "Id", "ID", "id", "{http://www.w3.org/XML/1998/namespace}id")
"""What others may take for an id: none that is signed may be there twice, under whichever of these names."""

REFERENCE: Final = re.compile(r"#[\w.-]{1,256}")
MAX_REFERENCES: Final = 50


class Signatures:
    """A `verify` hook for signatures. The identity is the name under which the signer's certificate was given.

    What has to be signed: the Body, a Timestamp, and the header blocks of `headers` that came.

    Args:
        certificates: by the names of who has them, in PEM: a path, or octets. Nobody else is trusted, whatever a
            message brings along; their dates are not looked at: who is no longer trusted is taken out.
        headers: names of header blocks that have to be signed if they come, in Clark notation; `{namespace}*` is any of
            a namespace.
        timestamp: a signed Timestamp is needed, and a message counts once. Without it whoever recorded a message may
            send it again, at any time.
        attachments: let parts pass that the signed elements do not include; nothing signs those.
        sha1: take SHA-1 as well.
        max_age: seconds after its Created at which a message is too old, and for which signatures are remembered.
        skew: seconds that the clock of a sender may be ahead, or a Timestamp expired.
        max_nonces: how many signatures are remembered; see `Nonces`. They are those of this process.
        clock: tells the time in epoch seconds.

    Raises:
        UsageError: an argument is not as it must be; a certificate cannot be read.
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
            raise UsageError(f"certificates is {certificates!r}; it has a certificate, by the name of who has it")
        if isinstance(headers, str):
            raise UsageError(f"headers is {headers!r}; it is a list of names")
        check_positive(max_age=max_age, skew=skew, max_nonces=max_nonces)
        self._keys = {name: _key(name, each) for name, each in certificates.items()}
        self._headers = frozenset(headers)
        self._needs_timestamp, self._lets_attachments = timestamp, attachments
        self._algorithms = METHODS | DIGESTS | (SHA1 if sha1 else frozenset())
        self._max_age, self._skew, self._clock = max_age, skew, clock
        self._nonces = Nonces(int(max_nonces) or 1)

    def __call__(self, request: Request, security: etree._Element | None) -> str:
        """Return the name of who signed.

        Raises:
            SoapFaultError: there is no signature, it does not cover what it has to, is of nobody known, or too old.
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
        is_new = self._needs_timestamp and not request.finished  # else it was new when it was verified first
        if is_new and (created is None or created < now - self._max_age):
            raise refused("MessageExpired", "the Timestamp has no Created, or one that is too old")
        who = self._signer(request, signature, signed)
        if is_new and created is not None:
            said, oldest = _octets_signed(signature), now - self._max_age
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
        if any(True for each in signed for _ in each.iter(etree.Comment)):  # it splits texts, and nothing signs it
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
        """Check octets and key.

        What is included becomes base64 first, as it was signed, and stays so: what comes after reads what was signed.
        """
        try:
            request.attachments.expand(request.envelope.root)
        except InvalidAttachmentError as error:
            raise refused("InvalidSecurity", f"{error}") from None
        for name, key in self._keys.items():
            context = xmlsec.SignatureContext()
            context.key = key
            for each in signed:
                context.register_id(each, "Id", WSU)
            try:
                context.verify(signature)
            except xmlsec.Error:  # it says no more than that
                continue
            return name
        raise refused("FailedCheck")


def signed_elements(
    signature: etree._Element, envelope: Envelope, security: etree._Element, algorithms: Collection[str]
) -> list[etree._Element]:
    """Find what a signature says it covers: the Body, blocks of the header, and tokens of the Security header.

    Args:
        signature: a ds:Signature, of which octets and key have not been looked at.
        envelope: the message that is worked on.
        security: the header block that it stands in.
        algorithms: those that are taken.

    Raises:
        SoapFaultError: the signature is of another form; it covers what stands elsewhere, or an id that is there twice.
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
    if len(wanted) < len(references):  # each of them would be digested
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
    """Return the element of an id, if it is the only one and one that counts where it stands."""
    if len(found) != 1 or found[0].get(ID) != name:
        raise refused("InvalidSecurity", f"{len(found)} elements have the id {named(name)}; one has to, as wsu:Id")
    element = found[0]
    parent = element.getparent()
    is_token = parent is security and etree.QName(element).namespace in (WSSE, WSU)  # a block would be hidden there
    if element is not envelope.body and not is_token and (parent is None or parent is not envelope.header):
        raise refused("InvalidSecurity", "what is signed is neither the Body nor a block of the header, nor a token")
    return element


def _children(parent: etree._Element, *wanted: str) -> list[etree._Element]:
    """Return the children of a part of a signature; `?` stands for one or none, `+` for one or more of a name."""
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


def _octets_signed(signature: etree._Element) -> bytes:
    """Return a digest of the octets that a key signed; nothing can change about them while the signature is right."""
    info = signature.find(f"{{{DS}}}SignedInfo")
    assert info is not None
    return sha256(etree.tostring(info, method="c14n", exclusive=True, with_comments=False)).digest()


def _key(name: str, certificate: str | PathLike[str] | bytes) -> Any:
    try:
        octets = certificate if isinstance(certificate, bytes) else Path(certificate).read_bytes()
        return xmlsec.Key.from_memory(octets, xmlsec.constants.KeyDataFormatCertPem, None)
    except (OSError, TypeError, xmlsec.Error) as error:
        raise UsageError(f"the certificate of {name!r} cannot be read, as PEM: {error}") from None
