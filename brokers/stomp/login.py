"""Where a STOMP broker is and who asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Where a broker is and who asks. User and password are in no repr and in no log."""

    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    heartbeat: int
    """Milliseconds between two heart-beats, each way; 0 for none."""
    client_id: str | None = None
    """What durable subscriptions belong to."""
    dialect: Dialect | None = None
    """How to speak with the broker whatever it calls itself; None to go by what it calls itself."""
    version: str = ACTIVEMQ_CLASSIC.version
    """Of STOMP, to ask for."""

    def __str__(self) -> str:
        return f"stomp://{self.host}:{self.port}"

    def speaking(self, version: str) -> Login:
        """Return a login with the same broker in another version of STOMP."""
        return replace(self, version=version)

    def headers(self) -> dict[str, str]:
        """Return the headers of the CONNECT frame, which STOMP leaves unescaped.

        Raises:
            ValueError: a line break or NUL in the host, client id, user or password.
        """
        headers = {
            "accept-version": self.version,
            "host": self.host,
            "heart-beat": f"{self.heartbeat},{self.heartbeat}",
        }
        if self.client_id is not None:
            headers["client-id"] = self.client_id
        if self.user is not None:
            headers["login"] = self.user
        if self.password is not None:
            headers["passcode"] = self.password
        if any(character in value for value in headers.values() for character in "\r\n\0"):
            raise ValueError("host, client id, user and password cannot hold line breaks or NUL")
        return headers
