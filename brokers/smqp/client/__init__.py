"""An SMQP client: synchronous, thread-safe, notified by callbacks.

```python
with Client("mq.example", account="bob", password="s3cret", inbox="bob.inbox") as client:
    client.subscribe("/stocks/*", lambda message: print(message.topic, message.data))
    published = client.publish("/stocks/acme", "24.567", receipt=True)
    published.receipt.result(timeout=10)  # a subscriber has it
```

Where to read: `client.py` is what programs use, with `commands.py`; `connection.py` is the command connection and
renews it, `listener.py` the notify connection; `notifications.py` and `inbox.py` are the way of a message to its
callback.
"""

from brokers.smqp.client.client import Client, Published
from brokers.smqp.client.inbox import DefaultTimeout, Goodbye, Received, SubscriberCount, TopicChange
from brokers.smqp.client.options import ClientOptions

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
