"""A response as zeep hands it out with `raw_response=True`, and as its plugins see the header fields."""

from __future__ import annotations

from requests import Response as HttpResponse
from requests.structures import CaseInsensitiveDict

from brokers.message import as_text
from soapjms.protocol import names
from soapjms.protocol.envelope import serialize
from soapjms.response import Response

OK, ACCEPTED, FAULT = 200, 202, 500


def headers_of(response: Response) -> CaseInsensitiveDict[str]:
    """Return the properties of the JMS message as HTTP header fields, the content type under its HTTP name too."""
    found = CaseInsensitiveDict[str]()
    for each in response.message.properties:
        found[each.name] = as_text(each.value) or ""
    if (content_type := response.message.properties.text(names.CONTENT_TYPE)) is not None:
        found["Content-Type"] = content_type
    return found


class RawResponse(HttpResponse):
    """A response that nobody has read: status, header fields and octets, as they would have been over HTTP.

    The status is 200, 500 for a fault, 202 for a one-way message, which has no response. The octets are the envelope in
    UTF-8, or the whole body if it has several parts.

    Attributes:
        jms: the response itself; None for a one-way message.
    """

    def __init__(self, response: Response | None) -> None:
        super().__init__()
        self.jms = response
        self.status_code = ACCEPTED
        self._content = b""
        self.encoding = "utf-8"
        if response is not None:
            self.status_code = OK if response.fault is None else FAULT
            self.headers = headers_of(response)
            self._content = _octets(response)


def _octets(response: Response) -> bytes:
    body = response.message.body
    if not response.attachments:
        return serialize(response.envelope.root)
    assert isinstance(body, bytes | str)
    return body.encode("utf-8") if isinstance(body, str) else body
