"""Responses to HTTP clients for calls that the service did not answer: a status, and a SOAP fault for SOAP clients."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.responses import PlainTextResponse, Response

from soapjms.bridge.message import written
from soapjms.protocol.envelope import Fault, build_fault
from soapjms.protocol.errors import Blame, CallFailedError, CallTimeoutError, SendOutcome
from soapjms.protocol.limits import Excess
from soapjms.protocol.names import SoapVersion

NO_STORE: Final = {"Cache-Control": "no-store"}
RETRY: Final = {"Retry-After": "1"}
TOO_BIG: Final = frozenset({"size", "unpacked", "ratio", "text"})
"""The limits that a body exceeds by its size rather than by its content."""


class HttpRefusalError(Exception):
    """A request that is refused instead of being answered by a service.

    Args:
        status: status of the HTTP response.
        text: the reason, for people.
        headers: headers of the HTTP response.
        is_soap: whether the client is assumed to read SOAP.
    """

    def __init__(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None, *, is_soap: bool = True
    ) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})
        self.is_soap = is_soap

    def response(self, version: SoapVersion | None) -> Response:
        """Make the response: a fault in the client's SOAP version, or a line of text if that is not known."""
        if version is None or not self.is_soap:
            return PlainTextResponse(f"{self}\n", self.status, {**NO_STORE, **self.headers})
        blame = Blame.SENDER if self.status < HTTPStatus.INTERNAL_SERVER_ERROR else Blame.RECEIVER
        return soap_response(*written_fault(version, f"{self}", blame), self.status, self.headers)


def written_fault(version: SoapVersion, text: str, blame: Blame) -> tuple[bytes, str]:
    """Return the body of a fault and its content type."""
    return written(build_fault(version, text, blame=blame))


def soap_response(
    body: bytes, content_type: str, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Make the response that carries an envelope."""
    return Response(body, status, {**NO_STORE, **(headers or {}), "Content-Type": content_type})


def too_big(excess: Excess | None, text: str) -> HttpRefusalError:
    """Make the refusal of a body that cannot be read."""
    is_size = excess is not None and excess.limit in TOO_BIG
    return HttpRefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_size else HTTPStatus.BAD_REQUEST, text)


def unsent(why: str) -> HttpRefusalError:
    """Make the refusal of a request that may be tried again, as nothing was sent."""
    return HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}; nothing was sent", RETRY)


def failed(error: CallFailedError) -> HttpRefusalError:
    """Make the refusal for a call without a usable response.

    A request that was not sent may be tried again; one that the broker refused would likely be refused again. In all
    other cases it is not known whether the service works on the request.
    """
    if error.is_known:
        is_unsent = error.outcome is SendOutcome.NOT_SENT
        return HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, error.text, RETRY if is_unsent else None)
    is_late = isinstance(error, CallTimeoutError)
    return HttpRefusalError(HTTPStatus.GATEWAY_TIMEOUT if is_late else HTTPStatus.BAD_GATEWAY, error.text)


def status_of(fault: Fault | None) -> HTTPStatus:
    """Return the HTTP status for a response of a service.

    Spec: SOAP 1.1 6.2; SOAP 1.2 Part 2 7.5.2.2 table 20.
    """
    if fault is None:
        return HTTPStatus.OK
    is_sender = fault.version is SoapVersion.SOAP_12 and fault.code == f"{{{fault.version.namespace}}}Sender"
    return HTTPStatus.BAD_REQUEST if is_sender else HTTPStatus.INTERNAL_SERVER_ERROR
