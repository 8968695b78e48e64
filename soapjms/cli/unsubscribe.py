"""`soapjms unsubscribe`: delete a durable subscription."""

from __future__ import annotations

from typing import Any

import click

from brokers.message import Destination
from brokers.naming import Names
from soapjms.cli.connection import (
    CONNECTION_OPTION,
    TIMEOUT_OPTION,
    check_reachable,
    opened,
    place_of,
    place_options,
    read_names,
)
from soapjms.cli.terminal import announce
from soapjms.destinations import destination_of
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.model import read_uri
from soapjms.validation import durable_on


@click.command("unsubscribe")
@click.argument("durable", metavar="NAME")
@CONNECTION_OPTION
@place_options
@TIMEOUT_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    durable: str, connection: str | None, names: str | None, timeout: float, as_json: bool, **place: Any
) -> None:
    """Delete the durable subscription NAME of a service that was served with --durable NAME.

    The broker drops the messages that it keeps for it, and keeps no more. --uri (or --wsdl) names the topic, and the
    URL has the clientId of the service, which must have ended.

    Exit status: 0, or 2 for usage, or if the broker refuses: the subscription is in use or, with some brokers, does not
    exist.
    """
    where, known = place_of(**place), read_names(names)
    instead = "unsubscribe in the program that serves, with the method unsubscribe of its connection"
    check_reachable(connection, missing="durable subscription", instead=instead)
    with opened(connection, where, known, {}, timeout) as broker:
        topic = _destination(where, known)
        durable_on(broker, topic, durable)
        broker.unsubscribe(topic, durable)
        called = broker.capabilities.broker
    text = f"the durable subscription {durable!r} to {topic} at {called} no longer exists"
    announce(visible(text), {"unsubscribed": durable, "destination": f"{topic}", "broker": called}, as_json=as_json)


def _destination(where: str | Port, names: Names | None) -> Destination:
    uri, effective = read_uri(where, {})
    return destination_of(uri, names or Names(), effective)
