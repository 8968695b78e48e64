"""An SMQP server that stores everything in one SQLite file.

```python
with Server("smqp.db", Options(context="mq.example")) as server:
    server.administer(lambda admin: admin.create_account("bob", "s3cret"))
    server.administer(lambda admin: admin.grant("bob", "/", Right.ALL))
    host, port = server.listen("127.0.0.1", 0)
```

Where to read: `engine.py` is the server without sockets, with the table of commands, which the files in `commands/`
execute; `core.py` is the life of a message, `session.py` a client's dialogue and its notify connection; `driver.py`
adds the sockets, `links.py` links servers.
"""

from brokers.smqp.protocol.dialogue import CLIENT_PORT, SERVER_PORT
from brokers.smqp.server.admin import Administration
from brokers.smqp.server.driver import Server
from brokers.smqp.server.links import Peer
from brokers.smqp.server.options import Options
from brokers.smqp.server.rights import Right
from brokers.smqp.server.topics import TopicKind

__all__ = ["CLIENT_PORT", "SERVER_PORT", "Administration", "Options", "Peer", "Right", "Server", "TopicKind"]
