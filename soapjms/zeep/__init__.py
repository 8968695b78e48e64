"""zeep over JMS: `soapjms.zeep.Client("greeter.wsdl", connection=…)`, or zeep's own client with `JmsTransport(…)`.

Read in this order: `errors.py`; `loader.py` has what zeep may load, `ports.py` what a WSDL says of JMS,
`attachments.py` attachments; `checks.py` looks at what zeep does not, `bare.py` and `repairs.py` do what zeep does not
do well; `clients.py` sends and waits, `bindings.py` is what zeep calls, `client.py` has transport and clients. Beside
the way of a call, `signer.py` signs and `words.py` makes values of words.
"""

try:
    import zeep as _zeep  # noqa: F401  # a missing one is explained here
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
