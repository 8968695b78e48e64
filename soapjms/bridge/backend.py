"""The call of an HTTP client as a call over JMS: read the posted request, send it, write the response.

All of this may block, so it runs on threads beside the event loop that serves HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any, Final

import starlette.responses

from brokers.connection import Connection, ConnectionState
from soapjms.bridge.faults import HttpRefusalError, soap_response, status_of, too_big, unsent
from soapjms.bridge.message import action_of, http_form, read_http, soap_version_of, taken
from soapjms.bridge.wsdl import PublishedWsdl, published
from soapjms.client.call import Response
from soapjms.client.client import Client
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.content import ContentType, accepts_gzip, gunzip, gzipped
from soapjms.protocol.envelope import Envelope
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.limits import LimitExceededError, Limits
from soapjms.protocol.names import DEFAULT_PROFILE, Auto, Profile, ProfileName, SoapVersion
from soapjms.protocol.received_message import without_quotes
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port

NO_TIME_LEFT: Final = "earlier requests took all the time"

MIN_GZIP_OCTETS: Final = 1024
"""Size, in octets, from which a response is compressed."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The service behind a path.

    Attributes:
        to: where the service is: a `jms:` URI, or the port of a WSDL. None for the port of `wsdl`.
        wsdl: the file of the WSDL that `GET ?wsdl` returns; it also says which operations are one-way.
        port: the name of the WSDL's port, needed if it has several.
        allow: folders that imports of the WSDL may be read from, beside its own.
    """

    to: str | JmsUri | Port | None = None
    wsdl: str | Path | None = None
    port: str | None = None
    allow: Iterable[str | Path] = ()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The header fields of a request that matter for its call.

    Attributes:
        content_type: the Content-Type as it was sent.
        kind: the parsed Content-Type.
        soap_action: the SOAPAction, or None if it is absent.
        is_gzip: whether the body is compressed.
    """

    content_type: str
    kind: ContentType
    soap_action: str | None
    is_gzip: bool


@dataclass(frozen=True, slots=True)
class PathService:
    """A service behind a path.

    Attributes:
        connection: the connection to the broker.
        client: the client that calls the service.
        published: the WSDL for HTTP clients, or None.
        one_way: the actions and elements of one-way messages, beside those of `published`.
        limits: limits for reading requests.
        max_body: maximum size of a decompressed request, in octets.
    """

    connection: Connection
    client: Client
    published: PublishedWsdl | None
    one_way: frozenset[str]
    limits: Limits
    max_body: int

    def submit(self, asked: RequestHead, octets: bytes, until: float) -> Future[Response] | None:
        """Read a request and send it; return the future of its response, or None for a one-way message.

        Args:
            asked: the header fields of the request.
            octets: its body.
            until: the end of the call, by the monotonic clock.

        Raises:
            HttpRefusalError: the request cannot be read or sent as it is, the broker is not connected, or the time is
                over.
            CallFailedError: sending failed.
        """
        envelope, attachments, action = self._read(asked, octets)
        if self.connection.state is not ConnectionState.CONNECTED:
            raise unsent("there is currently no connection to the broker")
        seconds = until - monotonic()
        if seconds <= 0:
            raise unsent(NO_TIME_LEFT)
        send = self.client.send if self._is_one_way(envelope, action) else self.client.submit
        try:
            return send(envelope.root, soap_action=action, timeout=seconds, attachments=attachments)
        except UsageError as error:
            raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"{error}") from error

    def _read(self, asked: RequestHead, octets: bytes) -> tuple[Envelope, tuple[Attachment, ...], str | None]:
        octets = self._unpacked(octets) if asked.is_gzip else octets
        reading = read_http(octets, asked.content_type, self.limits)
        if reading.envelope is None:
            raise too_big(reading.excess, f"the body is not a SOAP envelope: {reading.envelope_problem}")
        envelope, version = reading.envelope, soap_version_of(asked.kind)
        if version is not None and version is not envelope.version:
            text = f"the media type is that of SOAP {version}, but the envelope is SOAP {envelope.version}"
            raise HttpRefusalError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        try:
            attachments = taken(envelope.root, reading.attachments)
        except (InvalidAttachmentError, UsageError) as error:
            raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"{error}") from error
        in_type = action_of(asked.kind, reading) if envelope.version is SoapVersion.SOAP_12 else None
        return envelope, attachments, in_type or without_quotes((asked.soap_action or "").strip()) or None

    def _unpacked(self, octets: bytes) -> bytes:
        try:
            unpacked = gunzip(octets, self.limits)
        except LimitExceededError as error:
            raise too_big(error.excess, f"{error}") from error
        except ValueError as error:
            raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"{error}") from error
        if len(unpacked) > self.max_body:
            raise too_long(self.max_body)
        return unpacked

    def _is_one_way(self, envelope: Envelope, action: str | None) -> bool:
        action = action or self.client.endpoint.soap_action
        names = {action, None if envelope.content is None else str(envelope.content.tag)}
        in_wsdl = self.published is not None and self.published.is_one_way(names)
        return in_wsdl or not self.one_way.isdisjoint(names)


def serve(
    stack: ExitStack,
    connection: Connection,
    behind: str | JmsUri | Port | Behind,
    profile: Profile | ProfileName | Auto | None,
    one_way: frozenset[str],
    max_body: int,
    options: Mapping[str, Any],
) -> PathService:
    """Make the service at a path; `stack` closes its client.

    Raises:
        UsageError: neither a URI nor a WSDL says where the service is.
        InvalidUriError, InvalidPropertyError, InvalidWsdlError, NameNotFoundError: see `Client`.
    """
    behind = behind if isinstance(behind, Behind) else Behind(behind)
    port, told = (None, None) if behind.wsdl is None else published(behind.wsdl, behind.port, behind.allow)
    where = port if behind.to is None else behind.to
    if where is None:
        raise UsageError("the address of the service is missing; give a jms: URI, or a WSDL with a SOAP/JMS port")
    edition = profile or (where.profile if isinstance(where, Port) else None) or DEFAULT_PROFILE
    client = stack.enter_context(Client(connection, where, profile=edition, **options))
    return PathService(connection, client, told, one_way, options["limits"], max_body)


def too_long(most: int) -> HttpRefusalError:
    """Make the refusal of a body that is too long; it closes the connection, as the rest of the body is not read."""
    text = f"the body has more than {most} octets"
    return HttpRefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, {"Connection": "close"})


def written_answer(answer: Response, *, accepts: str) -> starlette.responses.Response:
    """Make the HTTP response for the response of a service.

    Args:
        answer: the response of the service.
        accepts: the Accept-Encoding header of the request.

    Raises:
        HttpRefusalError: the response has attachments that cannot be read.
    """
    try:
        body, kind = http_form(answer.message, answer.envelope, answer.attachments)
    except (InvalidAttachmentError, UsageError) as error:
        raise HttpRefusalError(HTTPStatus.BAD_GATEWAY, f"the response cannot be passed on: {error}") from error
    headers = {"Vary": "Accept-Encoding"}
    if len(body) >= MIN_GZIP_OCTETS and accepts_gzip(accepts):
        body, headers = gzipped(body), {**headers, "Content-Encoding": "gzip"}
    return soap_response(body, kind, status_of(answer.fault), headers)
