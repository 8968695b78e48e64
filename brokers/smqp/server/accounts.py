"""The accounts of a server. Passwords are stored as scrypt hashes.

Spec: SMQP 2.2.2, 3 (unique accounts), 4.1.6.3 (the fields that their owners may set).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import Final

from brokers.smqp.server.database import Database

SCRYPT_BLOCKS: Final = 8
SCRYPT_LANES: Final = 1
SALT_OCTETS: Final = 16
KEY_OCTETS: Final = 32
FIELDS: Final = {"NAME": "full_name", "EMAIL": "email", "ADDRESS": "address", "PHONE": "phone"}
"""The fields that an owner may set, and their columns."""


@dataclass(frozen=True, slots=True)
class Password:
    """The stored form of a password, which is never the text itself."""

    cost: int
    salt: bytes
    key: bytes

    def __str__(self) -> str:
        return f"scrypt${self.cost}${self.salt.hex()}${self.key.hex()}"

    @staticmethod
    def parse(text: str) -> Password:
        """Read the form that `str` writes."""
        _, cost, salt, key = text.split("$")
        return Password(int(cost), bytes.fromhex(salt), bytes.fromhex(key))

    @staticmethod
    def of(text: str, cost: int) -> Password:
        """Hash a password with a new salt. This takes a while, on purpose."""
        salt = os.urandom(SALT_OCTETS)
        return Password(cost, salt, derive(text, cost, salt))

    def matches(self, text: str) -> bool:
        """Say whether a text is this password. This takes as long as hashing it."""
        return hmac.compare_digest(self.key, derive(text, self.cost, self.salt))


def derive(text: str, cost: int, salt: bytes) -> bytes:
    """Hash a password."""
    memory = 2 * 128 * SCRYPT_BLOCKS * (cost + SCRYPT_LANES + 2)
    return hashlib.scrypt(
        text.encode(), salt=salt, n=cost, r=SCRYPT_BLOCKS, p=SCRYPT_LANES, maxmem=memory, dklen=KEY_OCTETS
    )


@dataclass(frozen=True, slots=True)
class Account:
    """One account.

    Attributes:
        number: its number in the store.
        name: its name as created; case is ignored.
        is_admin: whether it has every right everywhere.
        is_peer: whether it belongs to another server, and so may pass on messages of others (SM-232).
        topic: the number of its login topic.
    """

    number: int
    name: str
    is_admin: bool
    is_peer: bool
    topic: int


class Accounts:
    """The accounts of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, name: str) -> Account | None:
        """Find an account by its name."""
        return self._found("folded = ?", name.casefold())

    def get(self, number: int) -> Account | None:
        """Find an account by its number."""
        return self._found("id = ?", number)

    def _found(self, condition: str, value: object) -> Account | None:
        row = self._database.row(f"SELECT id, name, is_admin, is_peer, topic FROM accounts WHERE {condition}", value)  # noqa: S608 - the condition is one of two above
        return None if row is None else Account(row[0], row[1], bool(row[2]), bool(row[3]), row[4])

    def names(self) -> list[str]:
        """List the accounts by name."""
        return [name for (name,) in self._database.rows("SELECT name FROM accounts ORDER BY folded")]

    def add(self, name: str, password: Password, *, is_admin: bool, is_peer: bool) -> int:
        """Add an account, whose login topic must still be set; return its number."""
        return self._database.insert(
            "INSERT INTO accounts (name, folded, password, is_admin, is_peer) VALUES (?, ?, ?, ?, ?)",
            *(name, name.casefold(), str(password), is_admin, is_peer),
        )

    def set_topic(self, number: int, topic: int) -> None:
        """Set the login topic."""
        self._database.execute("UPDATE accounts SET topic = ? WHERE id = ?", topic, number)

    def password(self, number: int) -> Password:
        """Return the stored password."""
        return Password.parse(self._database.row("SELECT password FROM accounts WHERE id = ?", number)[0])

    def set_password(self, number: int, password: Password) -> None:
        """Replace the stored password."""
        self._database.execute("UPDATE accounts SET password = ? WHERE id = ?", str(password), number)

    def next_guid(self, account: Account) -> str:
        """Make the guid of a further login: the account's name and the number of its logins."""
        self._database.execute("UPDATE accounts SET logins = logins + 1 WHERE id = ?", account.number)
        logins = self._database.row("SELECT logins FROM accounts WHERE id = ?", account.number)[0]
        return f"{account.name}{logins:04d}"

    def set_field(self, number: int, field: str, value: str) -> None:
        """Set one of `FIELDS`."""
        self._database.execute(f"UPDATE accounts SET {FIELDS[field]} = ? WHERE id = ?", value, number)  # noqa: S608 - the column is from the table above

    def field(self, number: int, field: str) -> str | None:
        """Return one of `FIELDS`."""
        value: str | None = self._database.row(f"SELECT {FIELDS[field]} FROM accounts WHERE id = ?", number)[0]  # noqa: S608 - as above
        return value
