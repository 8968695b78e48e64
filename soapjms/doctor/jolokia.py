"""The number of consumers of a destination, as a broker's Jolokia (JMX over HTTP) tells it.

ActiveMQ Classic has it in its web console at `/api/jolokia`, Artemis at `/console/jolokia`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from brokers.errors import BrokerError
from brokers.message import Destination
from brokers.redaction import shown

MAX_ANSWER_OCTETS: Final = 32 << 20
ORIGIN: Final = "http://localhost"
"""The origin that the default policy of both brokers' consoles demands, wherever they are."""


class Mbeans(NamedTuple):
    """The MBeans of the queues of a product: their pattern, and the attribute with the name of the destination."""

    pattern: str
    name: str


CLASSIC: Final = "org.apache.activemq:type=Broker,brokerName=*,destinationType={},destinationName=*"
ARTEMIS: Final = Mbeans("org.apache.activemq.artemis:component=addresses,subcomponent=queues,*", "Address")
COUNT: Final = "ConsumerCount"
FOUND, MISSING = 200, 404


def consumers_by_jolokia(url: str, destination: Destination, timeout: float) -> int:
    """Return the number of consumers of a destination.

    Raises:
        BrokerError: the URL is invalid, or nothing there knows destinations of a broker; the text has no password.
    """
    kind = "Topic" if destination.kind.is_topic else "Queue"
    asked = Mbeans(CLASSIC.format(kind), "Name"), ARTEMIS
    answers = _ask(url, [_question(each) for each in asked], timeout)
    if len(answers) != len(asked) or not all(isinstance(each, dict) for each in answers):
        raise BrokerError(f"{shown(url)} gave an answer that is not Jolokia's")
    known = [each for each in answers if each.get("status") == FOUND]
    if not known:
        why = next((each["error"] for each in answers if each.get("status") != MISSING and "error" in each), None)
        raise BrokerError(f"{shown(url)} knows no destinations of a broker{'' if why is None else f': {why}'[:200]}")
    return sum(_count(each, destination.name or "") for each in known)


def _question(mbeans: Mbeans) -> dict[str, Any]:
    return {"type": "read", "mbean": mbeans.pattern, "attribute": [mbeans.name, COUNT]}


def _count(answer: dict[str, Any], name: str) -> int:
    values = answer.get("value")
    found = [each for each in values.values() if isinstance(each, dict)] if isinstance(values, dict) else []
    counts = [each.get(COUNT) for each in found if name in (each.get("Name"), each.get("Address"))]
    return sum(each for each in counts if isinstance(each, int))


def _ask(url: str, question: Any, timeout: float) -> list[Any]:
    """Post a question, and return the answers. Redirects are not followed: they would get the password."""
    parts = _parts_of(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    headers = {"Content-Type": "application/json", "Origin": ORIGIN}
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode("utf-8", "surrogateescape")
        headers["Authorization"] = f"Basic {b64encode(secret).decode('ascii')}"
    connection = connect(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request("POST", f"{parts.path.rstrip('/')}/", json.dumps(question), headers)
        response = connection.getresponse()
        octets = response.read(MAX_ANSWER_OCTETS + 1)
        if response.status != FOUND:
            raise BrokerError(f"{shown(url)} answered HTTP {response.status} {response.reason[:100]}")
        answers = json.loads(octets) if len(octets) <= MAX_ANSWER_OCTETS else None
    except (OSError, HTTPException) as error:
        raise BrokerError(f"{shown(url)} did not answer: {str(error) or type(error).__name__}") from error
    except (ValueError, RecursionError) as error:
        raise BrokerError(f"{shown(url)} gave an answer that is not JSON") from error
    finally:
        connection.close()
    return answers if isinstance(answers, list) else []


def _parts_of(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BrokerError("the URL of Jolokia must be http://USER:PASSWORD@HOST:PORT/PATH, or begin with https://")
    return parts
