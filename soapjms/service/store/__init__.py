"""The memory of a service: which requests were worked on and with which answer, so that none is run twice.

What a store has to offer is in `base.py`; the store to use is in `sqlite.py`, with its tables, its time and what
services write through it. Nothing here connects to a broker.
"""

from soapjms.service.store.base import Store
from soapjms.service.store.sqlite import SqliteStore

__all__ = ["SqliteStore", "Store"]
