"""One class catches every error that users meet: soapjms.SoapJmsError."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from importlib import import_module

import pytest
from places import ROOT

import brokers
import soapjms
import soapjms.bridge.wsgi
import soapjms.codegen
import soapjms.replay
import soapjms.testing
import soapjms.zeep

sys.path.insert(0, str(ROOT / "tools/docs"))
import catalogue

NAMES = [*catalogue.table()["error"], *catalogue.table()["broker"]]
URL = "stomp://127.0.0.1:1"


@pytest.mark.parametrize("name", NAMES)
def test_every_error_has_the_root(name: str) -> None:
    """Each error of docs/errors.md; what users never see is listed there apart."""
    module, _, local = name.rpartition(".")
    assert issubclass(getattr(import_module(module), local), soapjms.SoapJmsError)


def test_errors_of_the_broker_are_exported() -> None:
    """Each error that `brokers` exports is one of `soapjms`, by the same name."""
    errors = [name for name in brokers.__all__ if name.endswith("Error")]
    assert len(errors) > 15
    assert [name for name in errors if getattr(brokers, name) is not getattr(soapjms, name, None)] == []
    assert set(errors) <= set(soapjms.__all__)


def test_the_root() -> None:
    """It is an exception of ours by its name, and travels between processes."""
    error = soapjms.SoapJmsError("why")
    assert repr(error) == "SoapJmsError('why')"
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (soapjms.SoapJmsError, "why")


@pytest.mark.parametrize(
    "use",
    [
        lambda: soapjms.connect(URL, reconnect=False),
        lambda: soapjms.connect("nothing://here"),
        lambda: soapjms.connect("nowhere"),
        lambda: soapjms.connect(URL, timeout=-1),
        lambda: soapjms.connect("stomp://localhost:port"),
        lambda: soapjms.connect("stomp://localhost?speed=1"),
        lambda: soapjms.connect("amqp://localhost?mechanism=shout"),
        lambda: soapjms.connect("smqp://localhost"),
        lambda: soapjms.connect("stomp://localhost?caFile=/nowhere"),
        lambda: soapjms.connect("failover:(stomp://a,amqp://b)"),
        lambda: soapjms.connect_uri("jms:jndi:a", soapjms.Names()),
        lambda: soapjms.Client(soapjms.connect("embedded:of-errors"), "jms:jndi:name"),
        lambda: soapjms.Client(soapjms.connect("embedded:of-errors"), "jms:queue:a", profile="rec-2021"),
        lambda: soapjms.read_wsdl(ROOT / "none.wsdl"),
        lambda: brokers.properties({"a": b"octets"}),  # type: ignore[dict-item] # the wrong type is the point
        lambda: brokers.connect("embedded:of-errors").consume(brokers.queue("a"), print, prefetch=0),
        lambda: brokers.connect("embedded:of-errors").consume(brokers.queue("a"), print, selector="a = = b"),
        lambda: brokers.connect("embedded:of-errors").temporary(brokers.DestinationKind.QUEUE),
    ],
)
def test_one_clause_catches_all(use: Callable[[], object]) -> None:
    """Mistakes and failures from connecting to calling, whichever package raises them."""
    with pytest.raises(soapjms.SoapJmsError):
        use()
