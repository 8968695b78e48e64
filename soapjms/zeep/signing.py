"""A `wsse` for zeep that signs what goes out together with the time, and asks nothing of what comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lxml import etree
from zeep import ns
from zeep.wsse.utils import get_security_header

LIFETIME = 300.0


class Signing:
    """A Timestamp before one of zeep's signatures, which signs both: what `soapjms.signatures.Signatures` looks for.

    Body and Timestamp are all that zeep signs: header blocks, such as those of WS-Addressing, are not.
    zeep's signatures alone want answers that are signed too, with the client's own key, and add no Timestamp.

    Args:
        signature: `zeep.wsse.Signature`, `BinarySignature`, `MemorySignature`, or what has their `apply`.
        lifetime: seconds after which the message has expired.
        clock: tells the time in epoch seconds.
    """

    def __init__(self, signature: Any, *, lifetime: float = LIFETIME, clock: Callable[[], float] = time.time) -> None:
        self._signature = signature
        self._lifetime = lifetime
        self._clock = clock

    def apply(self, envelope: etree._Element, headers: Any) -> Any:
        """Add the Timestamp and the signature."""
        now = self._clock()
        stamp = etree.SubElement(get_security_header(envelope), f"{{{ns.WSU}}}Timestamp")
        for name, at in (("Created", now), ("Expires", now + self._lifetime)):
            said = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            etree.SubElement(stamp, f"{{{ns.WSU}}}{name}").text = said
        return self._signature.apply(envelope, headers)

    def verify(self, envelope: etree._Element) -> etree._Element:
        """Take what comes as it is."""
        return envelope
