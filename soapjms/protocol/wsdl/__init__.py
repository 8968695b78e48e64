"""WSDL 1.1 and 2.0 for SOAP over JMS: reading, judging, writing. Nothing here opens a file or a connection.

Read in this order: `findings.py` has every kind of finding once, `documents.py` parses and follows imports,
`elements.py` is about the soapjms elements, `schemas.py` about schemas that nobody fetches, `model.py` is what a
WSDL says and what a program may name a service by, `lint.py` judges and sees what is referred to and not there,
`wsdl11.py`, `wsdl20.py` and `read.py` read it, `as_json.py` says a WSDL as JSON would, `markup.py` and `write.py`
add a port.

Spec: SOAP/JMS 3; WSDLUsage-3001 to 3004.
"""

from soapjms.protocol.wsdl.documents import Load, Loaded
from soapjms.protocol.wsdl.elements import Extension
from soapjms.protocol.wsdl.findings import RULES, Finding, Place, Severity
from soapjms.protocol.wsdl.model import Binding, Description, Operation, Port, Service, WsdlVersion
from soapjms.protocol.wsdl.reader import read

__all__ = [
    "RULES",
    "Binding",
    "Description",
    "Extension",
    "Finding",
    "Load",
    "Loaded",
    "Operation",
    "Place",
    "Port",
    "Service",
    "Severity",
    "WsdlVersion",
    "read",
]
