"""zeep over JMS: `soapjms.zeep.Client("greeter.wsdl", connection=…)`, or zeep's own client with `JmsTransport(…)`.

Read in this order: `errors.py`; `loader.py` decides what zeep may load, `ports.py` reads what a WSDL says about JMS,
`attachments.py` handles attachments; `simple_types.py` writes values, `checks.py` checks what zeep does not, `bare.py`
and `repairs.py` repair what zeep does badly; `clients.py` sends and waits, zeep calls `bindings.py`, `client.py` has
the transport and the clients. Apart from these, `signer.py` signs and `words.py` turns words into values.
"""

try:
    import zeep as _zeep  # noqa: F401  # to explain here that it is missing
except ImportError as _error:
    raise ImportError(f"soapjms.zeep needs zeep ({_error}): pip install 'soapjms[zeep]'") from _error

from soapjms.zeep.client import AsyncClient, Client, JmsTransport
from soapjms.zeep.errors import ArgumentsError, JmsFaultError, JmsTimeoutError, JmsTransportError
from soapjms.zeep.signer import Signing

__all__ = [
    "ArgumentsError",
    "AsyncClient",
    "Client",
    "JmsFaultError",
    "JmsTimeoutError",
    "JmsTransport",
    "JmsTransportError",
    "Signing",
]
