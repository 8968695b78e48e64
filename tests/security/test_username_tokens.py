"""UsernameTokens under attack: a token that was recorded, made into others without knowing the password."""

from __future__ import annotations

import logging
from base64 import b64encode
from dataclasses import replace

import pytest
from calling_kit import eventually
from security_kit import PASSWORDS, at, digest, secured, service, token, tokens
from security_kit import ask as asked
from service_kit import accepted

from brokers import properties
from brokers.listeners.guesses import FREE_LOGINS, MAX_KNOWN_LANES
from soapjms import Service
from soapjms.protocol.envelope import Fault, as_envelope, read_fault
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


def sent(made: Service, password: str, user: str = "ann", sender: str | None = None) -> bool:
    """Send a token, under a JMSXUserID; say whether it is taken."""
    found = accepted(body=secured(token(user, password)))
    if sender is not None:
        found = found._replace(message=replace(found.message, properties=properties({"JMSXUserID": sender})))
    return read_fault(as_envelope(made.answer(found).envelope)) is None


def test_guesses_are_paced_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Ten wrong passwords for a name are free, then one token is looked at now and then: also of names that there are
    not, and however they are capitalised. Others are let in."""
    made = service(tokens())
    for name in ("ann", "nobody"):
        guesses = [
            sent(made, f"guess {number}", name.upper() if number % 2 else name) for number in range(FREE_LOGINS + 5)
        ]
        assert guesses == [False] * (FREE_LOGINS + 5)
        assert not sent(made, "secret", name)
        assert caplog.text.count(f"a UsernameToken of '{name}' was refused") == FREE_LOGINS
        assert f"UsernameTokens of '{name}' are refused unseen" in caplog.text
    assert sent(made, "Grüße", "bob")
    eventually(lambda: sent(made, "secret"), "the right one is looked at again")
    assert "guess 1" not in caplog.text


def test_guesses_of_others_keep_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    """Who was let in under a JMSXUserID is on, whoever guesses under other ones; its own guesses are counted, too."""
    caplog.set_level(logging.WARNING)
    made = service(tokens())
    assert sent(made, "secret", sender="client of ann")
    for number in range(50):
        assert not sent(made, f"guess {number}", sender=f"somebody {number}")
    assert caplog.text.count("was refused") == FREE_LOGINS
    assert sent(made, "secret", sender="client of ann")
    assert not sent(made, "secret", sender="somebody else")
    assert [sent(made, "guess", sender="client of ann") for _ in range(FREE_LOGINS)] == [False] * FREE_LOGINS
    assert not sent(made, "secret", sender="client of ann")


def test_guesses_take_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Of names that somebody makes up so many are remembered; a name breaks out of no line of the log."""
    caplog.set_level(logging.CRITICAL)
    hook = tokens()
    made = service(hook)
    for number in range(MAX_KNOWN_LANES + 50):
        assert not sent(made, "x", f"nobody {number}")
    assert len(hook._guesses._refused) <= MAX_KNOWN_LANES
    caplog.set_level(logging.WARNING)
    assert not sent(made, "x", "line\nbreak" + "x" * 500)
    (record,) = [each for each in caplog.records if "UsernameToken" in each.getMessage()]
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 300
