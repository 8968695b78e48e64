"""Code from a WSDL: `soapjms wsdl generate bank.wsdl --package bank_client`, and what the generated code runs on.

At run time: `contract.py` has the tables of generated packages and their faults, `codec.py` turns dataclasses into XML
and back, `client.py` has the base classes of their clients; services are in `soapjms.service.typed`.

The generator, in the order to read: `package.py` writes a package, `port_model.py` names all that a port has,
`dataclass_source.py` lets xsdata write the dataclasses, `audit.py` checks these, `package_source.py` writes the other
modules, `python_text.py` makes Python of names and texts.
"""

from typing import TYPE_CHECKING

from brokers.public_names import import_when_used

if TYPE_CHECKING:
    from soapjms.client.call import Expiry
    from soapjms.codegen.client import AsyncContractClient, ContractClient
    from soapjms.codegen.codec import NIL
    from soapjms.codegen.contract import DeclaredFaultError, OperationContract, PortContract, ServiceInterface
    from soapjms.codegen.package import GeneratedPackage, generate_package
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "soapjms.client.call": "Expiry",
            "soapjms.codegen.client": "AsyncContractClient ContractClient",
            "soapjms.codegen.codec": "NIL",
            "soapjms.codegen.contract": "DeclaredFaultError OperationContract PortContract ServiceInterface",
            "soapjms.codegen.package": "GeneratedPackage generate_package",
        },
    )

__all__ = [
    "NIL",
    "AsyncContractClient",
    "ContractClient",
    "DeclaredFaultError",
    "Expiry",
    "GeneratedPackage",
    "OperationContract",
    "PortContract",
    "ServiceInterface",
    "generate_package",
]
