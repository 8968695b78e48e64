"""JNDI names without network JNDI: from `jndi.properties` as Java clients have it, from TOML, or from code.

No name is ever looked up over a network, and no file is read but the one that the caller names. A broker is reached
only if the caller's allow-list has it.

Where to read: `properties_file.py` reads both file formats, `dialects.py` says what the entries mean to each Java
client, `allowed.py` turns the URLs of Java clients into ours, `registry.py` has `Names`, which brings them together.
"""

from brokers.naming.allow_list import AllowedBrokers
from brokers.naming.dialects import INITIAL, PROVIDER_URL
from brokers.naming.errors import SECRET, NameNotFoundError, NamingError
from brokers.naming.registry import Names

__all__ = ["INITIAL", "PROVIDER_URL", "SECRET", "AllowedBrokers", "NameNotFoundError", "Names", "NamingError"]
