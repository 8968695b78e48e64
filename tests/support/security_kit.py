"""What tests of WS-Security share: tokens, envelopes with them, and a service that says who asked."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from hashlib import sha1
from typing import Any

from calling_kit import NS, SOAP_11, SOAP_12, element, envelope
from lxml import etree
from service_kit import accepted

from soapjms import Request, Service, SoapVersion
from soapjms.protocol.envelope import Fault, as_envelope, read_fault
from soapjms.security import DIGEST, TEXT, WSSE, WSU, UsernameTokens

NOW = 1_700_000_000.0


PASSWORDS = {"ann": "secret", "bob": "Grüße", "empty": ""}


def at(offset: float = 0.0) -> str:
    """Write a time some seconds from now."""
    return datetime.fromtimestamp(NOW + offset, UTC).isoformat().replace("+00:00", "Z")


def digest(password: str, nonce: bytes = b"n" * 16, created: str = "") -> str:
    return base64.b64encode(sha1(nonce + (created or at()).encode() + password.encode()).digest()).decode()


def token(user: str = "ann", password: str = "secret", kind: str = TEXT, more: str = "") -> str:
    """Write a UsernameToken."""
    return (
        f"<s:UsernameToken><s:Username>{user}</s:Username>"
        f'<s:Password Type="{kind}">{password}</s:Password>{more}</s:UsernameToken>'
    )


def digested(user: str = "ann", password: str = "secret", nonce: bytes = b"n" * 16, created: str = "") -> str:
    when = created or at()
    more = f"<s:Nonce>{base64.b64encode(nonce).decode()}</s:Nonce><u:Created>{when}</u:Created>"
    return token(user, digest(password, nonce, when), DIGEST, more)


def secured(inside: str, version: SoapVersion = SOAP_11, attributes: str = 'e:mustUnderstand="1"') -> bytes:
    """Write a request with a Security header."""
    header = f'<e:Header><s:Security xmlns:s="{WSSE}" xmlns:u="{WSU}" {attributes}>{inside}</s:Security></e:Header>'
    return envelope("Ann", version).replace(b"<e:Body>", header.encode() + b"<e:Body>")


def service(verify: Any, **options: Any) -> Service:
    """Make a service that says who asked."""
    made = Service(verify=verify, **options)

    @made.operation(f"{{{NS}}}greetMe")
    def greet(request: Request) -> etree._Element:
        return element("said", f"{request.identity}")

    return made


def tokens(**options: Any) -> UsernameTokens:
    return UsernameTokens(PASSWORDS, **{"clock": lambda: NOW} | options)


def ask(made: Service, body: bytes, version: SoapVersion = SOAP_11, **delivered: Any) -> str | Fault:
    """Return what a service answers: its text, or a fault."""
    found = as_envelope(made.perform(Request.of(accepted(version, body=body), **delivered)).prepared.envelope)
    fault = read_fault(found)
    assert found.content is not None
    return fault or found.content.text or ""


def refusal(made: Service, body: bytes, version: SoapVersion = SOAP_11) -> tuple[str, str]:
    """Return the code of WS-Security in a fault, and its text."""
    fault = ask(made, body, version)
    assert isinstance(fault, Fault)
    (code,) = fault.subcodes
    if version is SOAP_12:
        assert fault.code.endswith("}Sender")
    return code.rpartition("}")[2], fault.reason
