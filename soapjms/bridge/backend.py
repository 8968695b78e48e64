"""One call of an HTTP client, as a call over JMS: reading what was posted, sending it, writing what came back.

Everything here may take a while, so it runs on threads beside the loop that serves HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import starlette.responses

from brokers.connection import Connection, ConnectionState
from soapjms.bridge.faults import RETRY, HttpRefusalError, soap_response, status_of, too_big
from soapjms.bridge.message import action_of, http_form, read_http, soap_version_of, taken
from soapjms.bridge.wsdl import PublishedWsdl, published
from soapjms.client.call import Response
from soapjms.client.client import Client
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.content import ContentType, gunzip, gzipped
from soapjms.protocol.envelope import Envelope
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.limits import LimitExceededError, Limits
from soapjms.protocol.names import DEFAULT_PROFILE, Profile, SoapVersion
from soapjms.protocol.received_message import without_quotes
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port

MIN_GZIP_OCTETS: Final = 1024
"""Octets from which a response is worth compressing."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What is behind a path.

    Attributes:
        to: where the service is: a `jms:` URI, or the port of a WSDL. None for the port of `wsdl`.
        wsdl: the path of the WSDL for HTTP clients, which GET ?wsdl tells; it says too which operations are one-way.
        port: its port, where it has several.
    """

    to: str | JmsUri | Port | None = None
    wsdl: str | Path | None = None
    port: str | None = None


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What the head of a request says.

    Attributes:
        content_type: as it stands.
        kind: the same, read.
        soap_action: the header SOAPAction, None if there is none.
        is_gzip: the body is compressed.
    """

    content_type: str
    kind: ContentType
    soap_action: str | None
    is_gzip: bool


@dataclass(frozen=True, slots=True)
class PathService:
    """A service behind a path.

    Attributes:
        connection: to the broker.
        client: of the service.
        published: its WSDL for HTTP clients, None if there is none.
        one_way: actions and elements that nobody answers.
        limits: how much is read.
        max_body: octets of a request once it is unpacked.
    """

    connection: Connection
    client: Client
    published: PublishedWsdl | None
    one_way: frozenset[str]
    limits: Limits
    max_body: int

    def submit(self, asked: RequestHead, octets: bytes) -> Future[Response] | None:
        """Read a request and send it; return what its response comes in, None for a one-way message.

        Raises:
            RefusedError: it is none that can be sent.
            CallFailedError: it could not be sent.
        """
        envelope, attachments, action = self._read(asked, octets)
        if self.connection.state is not ConnectionState.CONNECTED:
            text = "there is no connection to the broker now; nothing was sent"
            raise HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, text, RETRY)
        try:
            if self._is_one_way(envelope, action):
                self.client.send(envelope.root, soap_action=action, attachments=attachments)
                return None
            return self.client.submit(envelope.root, soap_action=action, attachments=attachments)
        except UsageError as error:
            raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"{error}") from error

    def _read(self, asked: RequestHead, octets: bytes) -> tuple[Envelope, tuple[Attachment, ...], str | None]:
        octets = self._unpacked(octets) if asked.is_gzip else octets
        reading = read_http(octets, asked.content_type, self.limits)
        if reading.envelope is None:
            raise too_big(reading.excess, f"the body is no SOAP envelope: {reading.envelope_problem}")
        envelope, version = reading.envelope, soap_version_of(asked.kind)
        if version is not None and version is not envelope.version:
            text = f"the media type is that of SOAP {version}, and the envelope is of SOAP {envelope.version}"
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
        content = envelope.content
        return bool({action, None if content is None else str(content.tag)} & self.one_way)


def serve(
    stack: ExitStack,
    connection: Connection,
    behind: str | JmsUri | Port | Behind,
    profile: Profile | str | None,
    one_way: frozenset[str],
    max_body: int,
    options: Mapping[str, Any],
) -> PathService:
    """Make what answers at a path; `stack` closes its client.

    Raises:
        UsageError: nothing says where the service is; and what `Client` raises.
    """
    behind = behind if isinstance(behind, Behind) else Behind(behind)
    port, told = (None, None) if behind.wsdl is None else published(behind.wsdl, behind.port)
    where = port if behind.to is None else behind.to
    if where is None:
        raise UsageError("nothing says where the service is; give a jms: URI, or a WSDL with a SOAP/JMS port")
    edition = profile or (where.profile if isinstance(where, Port) else None) or DEFAULT_PROFILE
    client = stack.enter_context(Client(connection, where, profile=edition, **options))
    all_one_way = one_way if told is None else one_way | told.one_way
    return PathService(connection, client, told, all_one_way, options["limits"], max_body)


def too_long(most: int) -> HttpRefusalError:
    """Make the refusal of a body that is too long, after which nobody reads what else comes."""
    text = f"the body has more than {most} octets"
    return HttpRefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, {"Connection": "close"})


def written_answer(answer: Response, *, accepts: str) -> starlette.responses.Response:
    """Make the HTTP response for what a service answered.

    Args:
        answer: it.
        accepts: the header Accept-Encoding of the request.

    Raises:
        RefusedError: it has attachments that cannot be read.
    """
    try:
        body, kind = http_form(answer.message, answer.envelope, answer.attachments)
    except (InvalidAttachmentError, UsageError) as error:
        raise HttpRefusalError(HTTPStatus.BAD_GATEWAY, f"the response cannot be passed on: {error}") from error
    headers = {"Vary": "Accept-Encoding"}
    if len(body) >= MIN_GZIP_OCTETS and _accepts_gzip(accepts):
        body, headers = gzipped(body), {**headers, "Content-Encoding": "gzip"}
    return soap_response(body, kind, status_of(answer.fault), headers)


def _accepts_gzip(header: str) -> bool:
    """Spec: RFC 9110 12.5.3."""
    for each in header.lower().split(",")[:20]:
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False
