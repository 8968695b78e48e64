"""Typed services, `soapjms.Service.from_wsdl("greeter.wsdl")`: zeep reads and writes, libxml2 checks.

Read in this order: `schema.py` describes a port and makes one schema of all schemas of its WSDL, `signature.py` works
out the arguments of functions, `values.py` reads requests and writes answers, `service.py` has the operations and the
service.
"""

import soapjms.zeep  # noqa: F401  # first, as its ImportError names the missing extra
from soapjms.service.typed.service import TypedService

__all__ = ["TypedService"]
