"""Where a STOMP broker is and who asks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Where a broker is and who asks. User and password are in no repr and in no log."""

    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    heartbeat: int
    """Milliseconds between two heart-beats, each way; 0 for none."""

    def __str__(self) -> str:
        return f"stomp://{self.host}:{self.port}"

    def headers(self) -> dict[str, str]:
        """Return the headers of the CONNECT frame, which STOMP leaves unescaped.

        Raises:
            ValueError: a line break or NUL in the host, user or password.
        """
        headers = {"accept-version": "1.2", "host": self.host, "heart-beat": f"{self.heartbeat},{self.heartbeat}"}
        if self.user is not None:
            headers["login"] = self.user
        if self.password is not None:
            headers["passcode"] = self.password
        if any(character in value for value in headers.values() for character in "\r\n\0"):
            raise ValueError("host, user and password cannot hold line breaks or NUL")
        return headers
