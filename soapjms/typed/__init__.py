"""Typed services: `soapjms.Service.from_wsdl("greeter.wsdl")`. zeep's types read and write, libxml2's schemas check.

Read in this order: `schemas.py` makes one schema of a WSDL's, `description.py` has the port, `signature.py` says what
functions are called with, `reading.py` reads requests, `writing.py` writes answers, `operation.py`, `service.py`.
"""

import soapjms.zeep  # noqa: F401  # first, as it says which extra is missing
from soapjms.typed.service import TypedService

__all__ = ["TypedService"]
