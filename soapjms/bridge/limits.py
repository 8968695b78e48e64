"""The default limits of a bridge for HTTP clients. Importing them needs none of the extra `bridge`."""

from typing import Final

from soapjms.protocol.limits import MIB

MAX_BODY: Final = 16 * MIB
"""Maximum size of a request, in octets."""

MAX_CALLS: Final = 64
"""Maximum number of calls at a time."""

MAX_CONNECTIONS: Final = 500
"""Concurrent connections. With the backlog, fewer than the 1,024 files that a process may open by default."""

MAX_HELD: Final = 256 * MIB
"""Maximum size of unfinished requests and unread answers together, in octets."""
