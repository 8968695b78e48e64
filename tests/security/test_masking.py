"""Secrets in forms that a mask might miss."""

from __future__ import annotations

import pytest

from brokers import Message, MessageType, properties
from soapjms.masking import Mask, looks_secret

SECRET = "s3cret"
ELEMENT = f"<e:Password Type='x'>{SECRET}</e:Password><Name>Ann</Name>"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "before", [b"", b"\n\x00", b"\x00\n", b"--b\r\nContent-Type: text/xml\r\n\r\n", b"--b\r\n\r\n.\r\n\r\n"]
)
def test_wide_parts(codec: str, before: bytes) -> None:
    """UTF-16 in a part of several, or behind a line break, as everywhere."""
    made = Mask().apply(Message(message_type=MessageType.BYTES, body=before + ELEMENT.encode(codec)))
    assert SECRET.encode(codec) not in bytes(made.message.body)  # type: ignore[arg-type]
    assert "Ann".encode(codec) in bytes(made.message.body)  # type: ignore[arg-type]
    assert made.what == ("element Password",)


@pytest.mark.parametrize("attributes", ["Type='a/>'", 'Type="a/>"', 'a="/" b="/>"', "a='it\"s' b='/>'"])
def test_attributes_that_look_like_an_end(attributes: str) -> None:
    """What is quoted ends no tag."""
    made = Mask().apply(Message(message_type=MessageType.TEXT, body=f"<Password {attributes}>{SECRET}</Password>"))
    assert made.message.body == f"<Password {attributes}>***</Password>"


def test_map_messages() -> None:
    """Entries by their names, and elements in the text of others."""
    body = properties({"password": SECRET, "Password": SECRET, "xml": ELEMENT, "name": "Ann", "number": 7})
    made = Mask().apply(Message(message_type=MessageType.MAP, body=body))
    assert SECRET not in str(made.message.body)
    assert made.message.body.lookup("name").value == "Ann"  # type: ignore[union-attr]
    assert made.what == ("entry password", "entry Password", "element Password")


@pytest.mark.parametrize(
    "name", ["Authorization", "Cookie", "apiKey", "api_key", "X-Api-Key", "jwt", "pwd", "Set-Cookie"]
)
def test_names_of_secrets(name: str) -> None:
    """These are called as secrets are."""
    assert looks_secret(name)
