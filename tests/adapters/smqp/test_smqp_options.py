"""brokers.smqp: the options of the server and of clients, which are checked when they are made."""

from __future__ import annotations

from math import inf, nan
from typing import Any, cast

import pytest
from smqp_kit import running

from brokers.errors import UsageError
from brokers.smqp.client import ClientOptions
from brokers.smqp.server import Options, Server


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"context": 5}, "context must be a name without blanks, such as mq.example, got 5"),
        ({"context": "a b"}, "context must be a name without blanks, such as mq.example, got 'a b'"),
        ({"software": "a\r\nb"}, "software must be a text in one line, got"),
        ({"dialect": "strict"}, "dialect must be an SmqpDialect, got 'strict'"),
        ({"limits": None}, "limits must be SmqpLimits, got None"),
        ({"default_timeout": -1.0}, "default_timeout must be a number of seconds, at least 0, or None, got -1.0"),
        ({"announces_timeout": "no"}, "announces_timeout must be True or False, got 'no'"),
        ({"default_priority": "high"}, "default_priority must be a whole number of at least 0, got 'high'"),
        ({"retry_timeout": "30"}, "retry_timeout must be a positive, finite number of seconds, got '30'"),
        ({"retry_pause": nan}, "retry_pause must be a finite number of seconds, at least 0, got nan"),
        ({"max_retries": -1}, "max_retries must be a whole number of at least 0, got -1"),
        ({"reconnect": 1.0}, "reconnect must be the shortest and the longest time, in seconds, got 1.0"),
        ({"reconnect": (2.0, 1.0)}, "reconnect must be the shortest and the longest time, in seconds, got"),
        ({"client_ports": 1024}, "client_ports must be a range of ports, got 1024"),
        ({"idle_timeout": 0}, "idle_timeout must be a positive, finite number of seconds, got 0"),
        ({"max_sessions": True}, "max_sessions must be a whole number of at least 1, got True"),
        ({"media_types": "text/plain"}, "media_types must be a set of strings, got 'text/plain'"),
        ({"scrypt_cost": 1000}, "scrypt_cost must be a power of 2, got 1000"),
    ],
    ids=lambda value: f"{value}",
)
def test_what_the_server_cannot_have(option: dict[str, Any], says: str) -> None:
    """It is refused with its name and what is accepted, also while the server runs, which goes on as before."""
    with pytest.raises(UsageError, match=says):
        Options(**option)
    with running() as server:
        with pytest.raises(UsageError, match=says):
            server.server.administer(lambda admin: admin.set_options(**option))
        server.accounts("alice")
        assert server.client("alice", listen=False).code("NOOP") == 200


def test_what_the_server_can_have() -> None:
    """Times without limit, and no pauses."""
    assert Options(default_timeout=inf, idle_timeout=None, retry_pause=0.0, max_retries=0).max_retries == 0
    assert Options(default_timeout=None, media_types=cast(Any, ["text/plain"])).media_types == {"text/plain"}


def test_the_servers_arguments() -> None:
    """What are no options, and what is no SSL context, is refused."""
    with pytest.raises(UsageError, match=r"options must be brokers\.smqp\.server\.Options, got 'fast'"):
        Server(":memory:", cast(Any, "fast"))
    with running() as server, pytest.raises(UsageError, match=r"tls must be an ssl\.SSLContext or None, got 'a\.pem'"):
        server.server.listen(port=0, tls=cast(Any, "a.pem"))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"timeout": "1"}, "timeout must be a positive, finite number of seconds, got '1'"),
        ({"keepalive": 0}, "keepalive must be a positive, finite number of seconds, got 0"),
        ({"renew": 1.0}, "renew must be the shortest and the longest pause, in seconds, got 1.0"),
        ({"notify_port": 70_000}, "notify_port must be a port from 0 to 65535, got 70000"),
    ],
    ids=lambda value: f"{value}",
)
def test_what_a_client_cannot_have(option: dict[str, Any], says: str) -> None:
    """It is refused with its name and what is accepted."""
    with pytest.raises(UsageError, match=says):
        ClientOptions(**option)
