"""An SMQP client: synchronous and thread-safe, with callbacks for notifications.

```python
with Client("mq.example", account="bob", password="s3cret", inbox="bob.inbox") as client:
    client.subscribe("/stocks/*", lambda message: print(message.topic, message.data))
    published = client.publish("/stocks/acme", "24.567", receipt=True)
    published.receipt.result(timeout=10)  # a subscriber has it
```

Where to read: `client.py` and `commands.py` are the API for programs; `connection.py` has the command connection and
renews it, `listener.py` has the notify connection; `notifications.py` and `inbox.py` take messages to their
callbacks.
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
