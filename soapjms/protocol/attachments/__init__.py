"""Bodies of several parts: SOAP with Attachments and MTOM/XOP, read and written.

`parts.py` reads a body, `package.py` writes one.

Spec: SOAP/JMS 2.4; SOAP Messages with Attachments; MTOM; XOP; RFC 2045, 2046, 2387, 2392.
"""

from soapjms.protocol.attachments.package import (
    Attachment,
    Content,
    ReadsBytes,
    attachments_given,
    optimize,
    packaged,
)
from soapjms.protocol.attachments.parts import XOP_INCLUDE, Attachments, Multipart, Part, read_multipart

__all__ = [
    "XOP_INCLUDE",
    "Attachment",
    "Attachments",
    "Content",
    "Multipart",
    "Part",
    "ReadsBytes",
    "attachments_given",
    "optimize",
    "packaged",
    "read_multipart",
]
