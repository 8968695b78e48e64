"""The rule for the addresses of listeners that require no login.

They may listen at an address that only this machine reaches; any other address must be allowed explicitly.
"""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address

from brokers.errors import UsageError


def is_here_only(address: str) -> bool:
    """Return whether an IP address can be reached only from this machine."""
    found = ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def check_reach(listening: socket.socket, otherwise: str) -> None:
    """Refuse, and close, a socket that other machines can reach.

    Args:
        listening: a socket that listens for clients without login.
        otherwise: the alternatives to another address, for the error text.

    Raises:
        UsageError: other machines can reach the socket.
    """
    address = listening.getsockname()[0]
    if not is_here_only(address):
        listening.close()
        raise UsageError(
            f"other machines reach {address}, and every client is let in there; accepted are addresses that only this"
            f" machine reaches, such as 127.0.0.1, {otherwise}"
        )
