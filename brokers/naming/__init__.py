"""JNDI names without network JNDI: from a Java client's `jndi.properties`, from TOML, or from code.

No name is ever looked up over a network, and only the file that the caller names is read. A broker can be reached
only if it is in the caller's allow-list.

Where to read: `properties_file.py` reads both file formats, `dialects.py` defines what the entries mean to each Java
client, `allow_list.py` maps the URLs of Java clients to ours, and `registry.py` combines them in `Names`.
"""

from brokers.naming.allow_list import AllowedBrokers
from brokers.naming.dialects import INITIAL, PROVIDER_URL
from brokers.naming.errors import NameNotFoundError, NamingError
from brokers.naming.registry import Names
from brokers.redaction import SECRET

__all__ = ["INITIAL", "PROVIDER_URL", "SECRET", "AllowedBrokers", "NameNotFoundError", "Names", "NamingError"]
