"""An SMQP client: synchronous, thread-safe, notified by callbacks.

```python
with Client("mq.example", account="bob", password="s3cret", inbox="bob.inbox") as client:
    client.subscribe("/stocks/*", lambda message: print(message.topic, message.data))
    published = client.publish("/stocks/acme", "24.567", receipt=True)
    published.receipt.result(timeout=10)  # a subscriber has it
```

Where to read: `client.py` is what programs use, with `questions.py`; `keeping.py` renews the connection, `line.py` is
the command connection, `listener.py` the notify connection; `hearing.py`, `inbox.py` and `handing.py` are the way of a
message to its callback.
"""

from brokers.smqp.client.client import Client, Published
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.client.received import DefaultTimeout, Goodbye, Received, SubscriberCount, TopicChange

__all__ = [
    "Client",
    "ClientOptions",
    "DefaultTimeout",
    "Goodbye",
    "Published",
    "Received",
    "SubscriberCount",
    "TopicChange",
]
