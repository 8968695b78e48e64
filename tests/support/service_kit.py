"""What tests of services share: what a responding node accepted."""

from __future__ import annotations

from typing import Any

from calling_kit import NS, SOAP_11, envelope, request_message

from brokers import queue
from soapjms import SoapVersion
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting
from soapjms.protocol.responding import RequestAccepted, RespondingNode


def accepted(version: SoapVersion = SOAP_11, operation: str = "greetMe", **changes: Any) -> RequestAccepted:
    """Make the event of a request that a responding node accepted."""
    kind = f"{version.media_type}; charset=utf-8"
    changes["properties"] = {names.CONTENT_TYPE: kind} | changes.get("properties", {})
    reply_to = changes.pop("reply_to", queue("answers"))
    body = changes.pop("body", envelope("Ann", version, operation))
    event = RespondingNode(Setting()).receive(request_message("greeter", reply_to, body, **changes))
    assert isinstance(event, RequestAccepted), event
    return event


GREET = f"{{{NS}}}greetMe"
