"""Typed services, `soapjms.Service.from_wsdl("greeter.wsdl")`: zeep reads and writes, libxml2 checks.

Read in this order: `schema.py` describes a port and makes one schema of all that its WSDL has, `signature.py` says
what functions are called with, `values.py` reads requests and writes answers, `service.py` has the operations and
the service.
"""

import soapjms.zeep  # noqa: F401  # first, as it says which extra is missing
from soapjms.service.typed.service import TypedService

__all__ = ["TypedService"]
