"""WSDL 1.1 and 2.0 for SOAP over JMS: reading, judging, writing. Nothing here opens a file or a connection.

Read in this order: `findings.py` has every kind of finding once, `documents.py` parses documents and follows imports,
`elements.py` has the soapjms elements, `schemas.py` schemas that are not fetched, `model.py` the content of a WSDL and
the ways for a program to name a service, `lint.py` judges a WSDL and finds missing components, `wsdl11.py`, `wsdl20.py`
and `reader.py` read it, `as_json.py` shows it in JSON, `markup.py` and `write.py` add a port.

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
