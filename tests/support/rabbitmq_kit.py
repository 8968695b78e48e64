"""RabbitMQ 4 as a child process, at free ports, and queues there, which it makes for nobody who only uses them.

It runs in a Debian of its own that `make rabbitmq` fetches, in a process namespace, so that nothing of it outlives the
test. `RABBITMQ_URL` names another one, which runs already.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from places import ROOT
from ports import free_ports
from server_kit import running_server

from brokers import connect
from brokers.amqp import AmqpConnection
from brokers.amqp.dialect import encoded

SYSTEM: Final = ROOT / "build" / "rabbitmq"
STARTED: Final = "Starting broker... completed"
SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
PATIENCE: Final = 60.0


@contextmanager
def start_rabbitmq() -> Iterator[str]:
    """Run one, and give its URL for `connect`."""
    if named := os.environ.get("RABBITMQ_URL"):
        yield named
        return
    assert (SYSTEM / SERVER[1:]).exists(), f"there is no {SYSTEM.relative_to(ROOT)}: run `make rabbitmq` first"
    amqp, nodes, names = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="rabbitmq-", dir=SYSTEM / "tmp") as folder:
        inside = f"/tmp/{Path(folder).name}"
        (Path(folder) / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{amqp}\n")
        (Path(folder) / "enabled_plugins").write_text("[].\n")
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={SYSTEM}", "--mount-proc", SERVER]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": inside,
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": f"{names}",
            "RABBITMQ_DIST_PORT": f"{nodes}",
            "RABBITMQ_NODENAME": "test@localhost",
            "RABBITMQ_CONFIG_FILE": f"{inside}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{inside}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{inside}/data",
            "RABBITMQ_LOG_BASE": f"{inside}/log",
        }
        with running_server(words, STARTED, Path(folder) / "said", environment):
            yield f"amqp://guest:guest@127.0.0.1:{amqp}"


def request_management(url: str, verb: str, path: str, body: Any) -> None:
    """Have RabbitMQ carry out a request."""
    with connect(url, timeout=PATIENCE) as connection:
        assert isinstance(connection, AmqpConnection)
        connection._current().management.request(verb, path, body, timeout=PATIENCE)


def make_queue(url: str, name: str) -> None:
    """Have RabbitMQ make a queue that counts deliveries, and one for its dead letters, `DLQ.` before its name."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"DLQ.{name}"}
    for each, more in ((f"DLQ.{name}", {}), (name, letters)):
        body: Any = {"durable": True, "exclusive": False, "auto_delete": False}
        body["arguments"] = {"x-queue-type": "quorum", **more}
        request_management(url, "PUT", f"/queues/{encoded(each)}", body)
