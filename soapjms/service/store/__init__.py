"""The store of a service: it remembers requests and their answers, so that no request is run twice.

The interface is in `base.py`; the store to use is in `sqlite.py`, with its tables, its clock and the transactions of
services in the files beside it. Nothing here connects to a broker.
"""

from soapjms.service.store.base import Store
from soapjms.service.store.sqlite import SqliteStore

__all__ = ["SqliteStore", "Store"]
