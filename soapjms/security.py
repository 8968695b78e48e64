"""WS-Security at a service: the `verify` hook, which identifies the sender of a request, and one for UsernameTokens.

A hook gets the request, and the `wsse:Security` header that is for this service, or None without one. It returns the
identity of the sender, which becomes `request.identity`, or raises a fault, such as those that `refused` makes. It runs
before middleware and functions, once for each delivery of a request, and before a stored answer is given to anybody.
At a client, zeep's `wsse` writes the header. A hook for signatures is in `soapjms.signatures`.

Spec: Web Services Security: SOAP Message Security 1.1.1, 12; UsernameToken Profile 1.1.1.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha1, sha256
from heapq import heappop, heappush
from math import inf, isfinite
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeAlias

from lxml import etree

from brokers.arguments import is_coroutine, is_number, is_plain_function, plain_answer, switch
from brokers.listeners.guesses import Guesses
from soapjms.middleware import takes
from soapjms.protocol.envelope import blocks_for
from soapjms.protocol.errors import Blame, SoapFaultError, UsageError
from soapjms.protocol.text import named
from soapjms.reply import Prepared
from soapjms.service.request import Request

_WSS: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
WSSE: Final = f"{_WSS}wssecurity-secext-1.0.xsd"
WSU: Final = f"{_WSS}wssecurity-utility-1.0.xsd"
SECURITY: Final = f"{{{WSSE}}}Security"
TEXT: Final = f"{_WSS}username-token-profile-1.0#PasswordText"
DIGEST: Final = f"{_WSS}username-token-profile-1.0#PasswordDigest"

CODES: Final[Mapping[str, str]] = {
    "InvalidSecurity": "the wsse:Security header is not as it must be",
    "UnsupportedSecurityToken": "a security token of a kind that is not supported",
    "UnsupportedAlgorithm": "a signature or encryption algorithm that is not supported",
    "InvalidSecurityToken": "an invalid security token",
    "FailedAuthentication": "the security token could not be authenticated",
    "FailedCheck": "the signature or decryption was invalid",
    "SecurityTokenUnavailable": "the referenced security token could not be retrieved",
    "MessageExpired": "the message has expired",
}
"""The default reason by fault code of WS-Security."""

MAX_TEXT_CHARACTERS: Final = 1024
"""Maximum length of a username, password, nonce or time, in characters; longer ones are refused unread."""

COPIED: Final = "the message was received before, with another reply destination"

Verify: TypeAlias = Callable[[Request, etree._Element | None], Any]

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def refused(code: str, reason: str = "") -> SoapFaultError:
    """Make a fault of WS-Security to raise: `raise refused("FailedAuthentication")`.

    Args:
        code: one of `CODES`.
        reason: a text for people; do not say which of user and password was wrong.

    Raises:
        UsageError: there is no such code.
    """
    if code not in CODES:
        raise UsageError(f"code must be one of {', '.join(CODES)}, got {code!r}")
    space = WSU if code == "MessageExpired" else WSSE
    return SoapFaultError(reason or CODES[code], blame=Blame.SENDER, subcodes=[f"{{{space}}}{code}"])


class VerifyMiddleware:
    """Middleware that asks a `verify` hook, and counts the Security header as understood.

    Args:
        verify: the hook. Returning None or False is a failure, so that a hook without a `return` lets nobody in.
        roles: the SOAP roles that the service acts in; see `Service`.

    Raises:
        UsageError: `verify` is not a plain function.
    """

    def __init__(self, verify: Verify, roles: Collection[str]) -> None:
        if is_coroutine(verify) or not takes(verify, 2):
            raise UsageError(
                f"verify must be a plain function (request, security) that returns the identity, got {verify!r}"
            )
        self._verify = verify
        self._roles = roles

    def __call__(self, request: Request, call_next: Callable[[Request], Prepared]) -> Prepared:
        """Pass the request on if the hook returns an identity.

        Raises:
            SoapFaultError: the hook raised it; or there are several Security headers, or the hook returned no identity.
        """
        memo = request.delivery
        if self not in memo:  # a request that is run again was verified before
            memo[self] = self._identity(request)
        if request.copied:
            raise refused("FailedAuthentication", COPIED)
        understood = request.understood | {SECURITY}
        return call_next(replace(request, identity=memo[self], understood=understood))

    def _identity(self, request: Request) -> Any:
        found = blocks_for(request.envelope, SECURITY, self._roles)
        if len(found) > 1:
            raise refused("InvalidSecurity", f"{len(found)} wsse:Security headers are for this node; there may be one")
        identity = plain_answer(self._verify(request, found[0] if found else None), "verify")
        if identity is None or identity is False:
            raise refused("FailedAuthentication")
        return identity


# Shared by tokens and signatures


def check_positive(**values: object) -> None:
    """Refuse an argument that is not a positive number.

    Raises:
        UsageError: a value is not a positive number; the error names the argument.
    """
    for name, value in values.items():
        if not is_number(value) or not isfinite(value) or value <= 0:
            raise UsageError(f"{name} must be a positive number, got {value!r}")


def check_timestamp(security: etree._Element, now: float, skew: float) -> float | None:
    """Return the creation time in the Timestamp of a Security header, in epoch seconds, or None if it has none.

    Raises:
        SoapFaultError: the Timestamp has expired, or was created ahead of the clock here.

    Spec: SOAP Message Security 1.1.1, 10.
    """
    timestamp = only_child(security, WSU, "Timestamp")
    if timestamp is None:
        return None
    expires, created = (text_of(only_child(timestamp, WSU, each)) for each in ("Expires", "Created"))
    at = None if created is None else seconds_of(created)
    if at is not None and at > now + skew:
        raise refused("InvalidSecurity", "the Timestamp was created ahead of the clock here")
    if expires is not None and seconds_of(expires) < now - skew:
        raise refused("MessageExpired")
    return at


class Nonces:
    """Used nonces, kept so that none is accepted twice. Thread-safe, in memory, bounded.

    The oldest nonces are dropped when they are too old or there is no room. From then on, a nonce that was created
    before them is refused. So memory stays bounded and no replay passes, even if the clock is set back; slow messages
    may be refused then.

    Args:
        most: how many nonces are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._seen: dict[bytes, bytes | None] = {}
        self._by_age: list[tuple[float, bytes]] = []
        self._floor = -inf

    def take(
        self, nonce: bytes, created: float, oldest: float, key: bytes | None, *, redelivered: bool = False
    ) -> bool:
        """Note a nonce; return False if it was used before, unless by an earlier delivery of the same message.

        A sender chooses the key of a message, so a copy may have the same key: only a message that the broker or the
        store reports as delivered before counts as the same message.

        Args:
            nonce: identifies the nonce together with its user.
            created: creation time in epoch seconds, as the sender states it.
            oldest: epoch seconds; nonces created before are no longer accepted by the caller.
            key: identifies the message, the same for each delivery; None if nothing identifies it.
            redelivered: whether the broker or the store says that it was delivered before.
        """
        with self._lock:
            while self._by_age and self._by_age[0][0] < oldest:  # by a clock that may be set back again
                self._floor, gone = heappop(self._by_age)
                del self._seen[gone]
            if nonce in self._seen:
                return redelivered and key is not None and self._seen[nonce] == key
            if created <= self._floor or self._is_oldest(created):
                return False
            if len(self._seen) >= self._most:
                self._floor, gone = heappop(self._by_age)
                del self._seen[gone]
            self._seen[nonce] = key
            heappush(self._by_age, (created, nonce))
            return True

    def _is_oldest(self, created: float) -> bool:
        """Say whether a nonce of this creation time would be the first to be dropped."""
        return len(self._seen) >= self._most and created <= self._by_age[0][0]

    def __len__(self) -> int:
        """Return the number of nonces that are remembered."""
        return len(self._seen)


# UsernameTokens


class UsernameTokens:
    """A `verify` hook for UsernameTokens, with text or digest passwords. The identity is the user's name.

    Wrong passwords are logged. After ten for one user, only one token is checked every two seconds, and those between
    are refused as if they were wrong.

    Args:
        passwords: the passwords by user, or a function that returns a user's password, or None for an unknown user.
        check: for passwords that cannot be read: a function of user and password that returns whether they match.
            It is never asked about an empty password, which is wrong. Tokens with digests are refused then.
        digest_only: refuse passwords in plain text.
        max_age: seconds after its Created at which a token is too old; nonces are remembered as long.
        skew: seconds that a sender's clock may be ahead, or that a Timestamp may have expired.
        max_nonces: how many nonces this process remembers; see `Nonces`.
        clock: returns the time in epoch seconds.

    Raises:
        UsageError: an argument is invalid.

    Spec: UsernameToken Profile 1.1.1, 3; SOAP Message Security 1.1.1, 10.
    """

    def __init__(
        self,
        passwords: Mapping[str, str] | Callable[[str], str | None] | None = None,
        *,
        check: Callable[[str, str], object] | None = None,
        digest_only: bool = False,
        max_age: float = 300.0,
        skew: float = 60.0,
        max_nonces: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if (passwords is None) is (check is None):
            raise UsageError("UsernameTokens must get either passwords or check=function(user, password)")
        if switch(digest_only, "digest_only") and check is not None:
            raise UsageError("digest_only needs passwords: a digest can only be made from the password itself")
        check_positive(max_age=max_age, skew=skew, max_nonces=max_nonces)
        self._password_of = passwords.get if isinstance(passwords, Mapping) else passwords
        if check is None and not is_plain_function(self._password_of):
            raise UsageError(f"passwords must be a mapping or a plain function (user), got {type(passwords).__name__}")
        if check is not None and not is_plain_function(check):
            raise UsageError(f"check must be a plain function (user, password), got {type(check).__name__}")
        self._check = check
        self._digest_only = digest_only
        self._max_age, self._skew, self._clock = max_age, skew, clock
        self._nonces = Nonces(int(max_nonces) or 1)
        self._guesses = Guesses(what="UsernameToken of")

    def __call__(self, request: Request, security: etree._Element | None) -> str:
        """Return the user's name.

        Raises:
            SoapFaultError: the token is missing, malformed, too old, used before, or wrong.
        """
        if security is None:
            raise refused("InvalidSecurity", "there is no wsse:Security header; a UsernameToken is needed")
        now = self._clock()
        if not request.finished:
            check_timestamp(security, now, self._skew)
        token = only_child(security, WSSE, "UsernameToken")
        if token is None:
            raise refused("InvalidSecurityToken", "there is no UsernameToken")
        user, password, kind = _said(token, "Username"), only_child(token, WSSE, "Password"), TEXT
        if password is not None:
            kind = password.get("Type", TEXT)
        nonce, created = _said(token, "Nonce"), text_of(only_child(token, WSU, "Created"))
        age = None if created is None or request.finished else self._created(created, now)
        octets = None if nonce is None else _octets(nonce)
        if user is None:
            raise refused("FailedAuthentication")
        self._check_password(request, kind, user, text_of(password), octets, created)
        if age is not None and octets is not None:
            oldest = now - self._max_age
            if not self._nonces.take(
                _proof(kind, user, text_of(password), octets), age, oldest, request.key, redelivered=request.redelivered
            ):
                raise refused("FailedAuthentication", "the nonce was used before")
        return user

    def _check_password(
        self, request: Request, kind: str, user: str, password: str | None, nonce: bytes | None, created: str | None
    ) -> None:
        """Check a password, unless too many for that user were wrong.

        A JMSXUserID that has sent right passwords for the user is counted separately, so that, where the broker says
        who sends, others cannot lock it out.
        """
        sender = request.message.properties.text("JMSXUserID") or ""
        lane = self._guesses.lane(repr(user.casefold()), sender[:MAX_TEXT_CHARACTERS])
        if not request.finished and not self._guesses.allows(lane):
            raise refused("FailedAuthentication")
        if not self._is_right(kind, user, password, nonce, created):
            self._guesses.wrong(lane, sender)
            raise refused("FailedAuthentication")
        self._guesses.right(lane.place, sender[:MAX_TEXT_CHARACTERS])

    def _is_right(self, kind: str, user: str, password: str | None, nonce: bytes | None, created: str | None) -> bool:
        if kind not in (TEXT, DIGEST) or (kind == TEXT and self._digest_only) or (kind == DIGEST and self._check):
            raise refused("UnsupportedSecurityToken", f"this kind of password is not taken: {named(kind)}")
        if kind == TEXT:  # never an empty password, with which a directory takes a login as one of nobody
            return self._is_password(user, password) if password else False
        if nonce is None or created is None:
            raise refused("InvalidSecurityToken", "a password digest needs a Nonce and a Created")
        known = self._known(user)
        made = sha1(nonce + created.encode() + (known or token_hex()).encode("utf-8", "surrogatepass"))  # noqa: S324
        return _same(base64.b64encode(made.digest()), (password or "").encode("utf-8", "surrogatepass")) and bool(known)

    def _is_password(self, user: str, password: str) -> bool:
        if self._check is not None:
            return bool(plain_answer(self._check(user, password), "check"))
        known = self._known(user)
        given, wanted = (each.encode("utf-8", "surrogatepass") for each in (password, known or token_hex()))
        return _same(given, wanted) and bool(known)

    def _known(self, user: str) -> str | None:
        assert self._password_of is not None
        return self._password_of(user)

    def _created(self, text: str, now: float) -> float:
        created = seconds_of(text)
        if not now - self._max_age <= created <= now + self._skew:
            raise refused("FailedAuthentication", "the Created of the token is too old, or ahead of the clock here")
        return created


def _proof(kind: str, user: str, password: str | None, nonce: bytes) -> bytes:
    """Identify the proof in a token: the same for all tokens that can be made from it without knowing the password.

    A digest covers the octets of Nonce and Created in sequence, and not the Username: neither the boundary between the
    two nor the spelling of the name is proved.
    """
    if kind == DIGEST:
        return sha256((password or "").encode("utf-8", "surrogatepass")).digest()
    return sha256(nonce + b"\0" + user.casefold().encode("utf-8", "surrogatepass")).digest()


def _same(one: bytes, other: bytes) -> bool:
    """Compare in a time that reveals neither content nor length."""
    return hmac.compare_digest(sha256(one).digest(), sha256(other).digest())


def only_child(parent: etree._Element, space: str, name: str) -> etree._Element | None:
    """Return the child of this name, or None.

    Raises:
        SoapFaultError: there are several, so that other readers might pick another one.
    """
    found = parent.findall(f"{{{space}}}{name}")
    if len(found) > 1:
        raise refused("InvalidSecurityToken", f"there are {len(found)} elements {name}; there may be one")
    return found[0] if found else None


def _said(parent: etree._Element, name: str) -> str | None:
    return text_of(only_child(parent, WSSE, name))


def text_of(element: etree._Element | None) -> str | None:
    """Return the text of an element.

    Raises:
        SoapFaultError: the element has child elements or too long a text.
    """
    if element is None:
        return None
    text = "".join(element.itertext(etree.Element))
    if len(element) or len(text) > MAX_TEXT_CHARACTERS:
        name = etree.QName(element).localname
        raise refused("InvalidSecurityToken", f"{name} is no text, or has more than {MAX_TEXT_CHARACTERS} characters")
    return text


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise refused("InvalidSecurityToken", "the Nonce is not in base64") from None


def seconds_of(text: str) -> float:
    """Read a time with its zone. Spec: XML Schema Part 2, 3.2.7."""
    try:
        if _TIME.fullmatch(text.strip()):
            return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        pass
    raise refused("InvalidSecurityToken", "a time is not as in 2026-07-01T12:00:00Z")
