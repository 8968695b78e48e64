"""What is known of the schemes of brokers' URLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.failover import read_failover
from brokers.naming.allowed import Endpoint, own_endpoint
from soapjms.doctor.model import Patient


class Way(NamedTuple):
    """What is known of a scheme: its port, the extra that it needs, whether the broker tells its time."""

    port: int
    extra: str | None
    tells_time: bool


IN_PROCESS: Final = "embedded"
WAYS: Final[Mapping[str, Way]] = {
    "amqp": Way(5672, "amqp", False),
    "amqp+ws": Way(80, "amqp", False),
    "amqp+wss": Way(443, "amqp", False),
    "amqps": Way(5671, "amqp", False),
    IN_PROCESS: Way(0, None, True),
    "smqp": Way(720, None, False),
    "smqps": Way(720, None, False),
    "stomp": Way(61613, "stomp", True),
    "stomp+ssl": Way(61612, "stomp", True),
}
"""By scheme. The time of a message is the broker's, or that of who sent it."""


CREATE_QUEUE: Final[Mapping[str, str]] = {
    "artemis": "artemis queue create --name {name} --address {name} --anycast --durable --auto-create-address",
    "qpid": "curl --user USER --request PUT --data '{{}}' http://HOST:8080/api/latest/queue/default/default/{name}",
}
"""What makes a queue, by the dialect of brokers that make none by themselves, or can be told not to."""


def endpoints_of(url: str) -> list[Endpoint]:
    """Return where the brokers of a URL are.

    Raises:
        ValueError: it is none, or lists something that is none.
    """
    endpoints = [own_endpoint(each) for each in read_failover(url, True).urls]
    for each in endpoints:
        if each.scheme not in WAYS:
            raise ValueError(f"{each.scheme}: is within a list of brokers, and names none")
    return endpoints


def schemes_of(patient: Patient) -> list[str]:
    """Return the schemes of the URL; nothing for one that is none, which is said elsewhere."""
    try:
        return [each.scheme for each in endpoints_of(patient.url or "")]
    except ValueError:
        return []
