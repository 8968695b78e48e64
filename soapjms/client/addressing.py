"""WS-Addressing at a client: the headers of its requests.

The headers themselves are defined in `soapjms.protocol.wsa`.
"""

from __future__ import annotations

from uuid import uuid4

from lxml import etree

from soapjms.client.call import CallContent
from soapjms.protocol.envelope import as_envelope, header_of
from soapjms.protocol.errors import UsageError
from soapjms.protocol.requesting import Endpoint
from soapjms.protocol.wsa import (
    EDITIONS,
    WSA_2005,
    request_headers,
    stated_action,
)


def addressed(content: CallContent, endpoint: Endpoint, *, one_way: bool) -> tuple[CallContent, str]:
    """Add the missing addressing headers to a request; return its content and its MessageID.

    Raises:
        InvalidEnvelopeError: the content is not a SOAP envelope.
        UsageError: neither the envelope, the content nor the endpoint gives an action.
    """
    root = content.own_envelope(endpoint.limits)
    envelope = as_envelope(root)
    action = stated_action(envelope) or content.action or endpoint.soap_action
    if not action:
        raise UsageError("WS-Addressing needs an action: give soap_action=, or an operation of a WSDL that has one")
    add_headers(root, endpoint, action, one_way=one_way)
    ids = [each for edition in EDITIONS for each in header_of(root).iterchildren(edition.tag("MessageID"))]
    return content._replace(envelope=root), (ids[0].text or "").strip()


def add_headers(root: etree._Element, endpoint: Endpoint, action: str, *, one_way: bool) -> None:
    """Add the addressing headers that the envelope of a request does not have yet."""
    made = request_headers(as_envelope(root), action, uuid4().urn, endpoint.request_uri, one_way=one_way)
    header_of(root).extend(made)


def add_action(root: etree._Element, action: str) -> None:
    """Add the Action header of a request, unless it has one; `addressed` adds the other headers."""
    if stated_action(as_envelope(root)) is None:
        header_of(root).append(WSA_2005.block("Action", action))
