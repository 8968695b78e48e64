"""UsernameTokens under attack: a token that was recorded, made into others without knowing the password."""

from __future__ import annotations

from base64 import b64encode

import pytest
from test_security import PASSWORDS, at, digest, secured, service, token, tokens
from test_security import ask as asked

from soapjms.protocol.envelope import Fault
from soapjms.security import DIGEST, UsernameTokens

NONCE = b"0123456789ab \t\n "


def made_of(nonce: bytes, created: str, user: str = "ann") -> bytes:
    """Write the token that was recorded, with the octets of Nonce and Created split at another place."""
    more = f"<s:Nonce>{b64encode(nonce).decode()}</s:Nonce><u:Created>{created}</u:Created>"
    return secured(token(user, digest("secret", NONCE, at()), DIGEST, more))


@pytest.mark.parametrize("moved", [1, 2, 3, 4])
def test_octets_moved_from_the_nonce_to_created(moved: int) -> None:
    """White space at the end of the nonce, moved to the front of Created, makes the same digest: it was used."""
    made = service(tokens())
    assert asked(made, made_of(NONCE, at())) == "ann"
    again = asked(made, made_of(NONCE[:-moved], NONCE[-moved:].decode() + at()))
    assert isinstance(again, Fault)
    assert again.reason == "the nonce was used before"


@pytest.mark.parametrize("kind", ["digest", "text"])
def test_another_spelling_of_the_name(kind: str) -> None:
    """Where passwords are looked up without regard to case, the same token under another spelling was used."""
    made = service(UsernameTokens(lambda user: PASSWORDS.get(user.lower()), clock=lambda: 1_700_000_000.0))
    for user, is_new in (("ann", True), ("Ann", False), ("ANN", False)):
        body = made_of(NONCE, at(), user)
        if kind == "text":
            more = f"<s:Nonce>AAAA</s:Nonce><u:Created>{at()}</u:Created>"
            body = secured(token(user, "secret", more=more))
        assert isinstance(asked(made, body), str) is is_new
