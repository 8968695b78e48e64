"""Who can reach an address that is listened at: the one rule for listeners that ask nobody for a login.

At an address of this machine alone they may listen as they are. At any other somebody has to have said that they may.
"""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address


def is_here_only(address: str) -> bool:
    """Say whether only this machine reaches an IP address."""
    found = ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def check_reach(listening: socket.socket, otherwise: str) -> None:
    """Close a socket that other machines reach, and say what would be accepted there.

    Args:
        listening: a socket that listens for clients of which none needs a login.
        otherwise: what else is accepted than another address.

    Raises:
        ValueError: other machines reach it.
    """
    address = listening.getsockname()[0]
    if not is_here_only(address):
        listening.close()
        raise ValueError(
            f"other machines reach {address}, and whoever reaches it is let in; accepted are addresses of this"
            f" machine alone, such as 127.0.0.1, {otherwise}"
        )
