"""Typed services, `soapjms.Service.from_wsdl("greeter.wsdl")`: zeep reads and writes, libxml2 checks.

`soapjms.zeep.description` describes the port. Read in this order: `signature.py` works out the arguments of functions,
`values.py` reads requests and writes answers, `service.py` has the operations and the service; `contract_operation.py`
runs the methods of generated service classes.
"""

import soapjms.zeep  # noqa: F401  # first, as its ImportError names the missing extra
from soapjms.service.typed.service import TypedService

__all__ = ["TypedService"]
