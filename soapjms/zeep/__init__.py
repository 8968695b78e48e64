"""zeep over JMS: `soapjms.zeep.Client("greeter.wsdl", connection=…)`, or `zeep.Client(…, transport=JmsTransport(…))`.

Read in this order: `errors.py`, `groups.py` and `loading.py` have what zeep may load, `ports.py` what a WSDL says of
JMS, `enclosed.py` attachments, `checking.py` looks at what zeep does not, `bare.py` does what it does not well,
`threads.py`, `endpoints.py` sends and waits, `raw.py`, `bindings.py` is what zeep calls, `transport.py`, `client.py`.
"""

try:
    import zeep as _zeep  # noqa: F401  # a missing one is explained here
except ImportError as _error:
    raise ImportError(f"soapjms.zeep needs zeep ({_error}): pip install 'soapjms[zeep]'") from _error

from soapjms.zeep.client import AsyncClient, Client
from soapjms.zeep.errors import ArgumentsError, JmsFaultError, JmsTimeoutError, JmsTransportError
from soapjms.zeep.signing import Signing
from soapjms.zeep.transport import JmsTransport

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
