"""`soapjms call WSDL OPERATION NAME=VALUE…`: a call through zeep, with arguments and result as text."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import zeep
import zeep.exceptions
from zeep.wsdl.attachments import MessagePack

from brokers.message import MessageType
from soapjms.bridge.wsdl import port_of
from soapjms.cli.connection import check_reachable, opened, read_names
from soapjms.cli.terminal import visible_json
from soapjms.client.call import Response
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.names import AUTO, ProfileName
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Description, Finding, Port
from soapjms.protocol.wsdl.documents import MAX_DOCUMENTS_OCTETS
from soapjms.wsdl import read_wsdl
from soapjms.zeep.bindings import ANY_BINDING_CLASSES, BINDING_CLASSES
from soapjms.zeep.client import Client as ZeepClient
from soapjms.zeep.client import JmsTransport, read_document
from soapjms.zeep.clients import OutgoingRequest
from soapjms.zeep.errors import JmsFaultError
from soapjms.zeep.loader import DocumentLoader
from soapjms.zeep.words import arguments_of, plain_result, read_json, read_words


class KeepingTransport(JmsTransport):
    """A transport that keeps the last response, to show it beside zeep's result."""

    response: Response | None = None

    def call(self, outgoing: OutgoingRequest) -> Response | None:
        """Send a request, and keep the response."""
        self.response = super().call(outgoing)
        return self.response


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that is ready to be made.

    Attributes:
        document: zeep's document of the WSDL.
        port: the port of the WSDL.
        binding: zeep's binding of the port.
        operation: the name of the operation.
        arguments, values: zeep's positional and keyword arguments.
    """

    document: Any
    port: Port
    binding: Any
    operation: str
    arguments: Sequence[Any]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TypedOutcome:
    """The outcome of a call.

    Attributes:
        response: the response; None for a one-way message.
        result: the result in JSON's types, see `soapjms.zeep.words.plain_result`; None for a fault.
    """

    response: Response | None
    result: Any


def plan(
    words: Sequence[str], read_from: Any, *, port: str | None, uri: str | None, allow: Sequence[str]
) -> PlannedCall:
    """Read WSDL, operation and arguments, so that their errors are reported before connecting.

    Args:
        words: a WSDL, an operation, and arguments in the form of `soapjms.zeep.words`.
        read_from: an open file with a JSON object of arguments, or None.
        port: name of the port; None for the first that is SOAP over JMS, as in zeep, or else the first with SOAP.
        uri: an address to call instead of the WSDL's.
        allow: other folders that imports may be read from.

    Raises:
        UsageError: there is no such port or operation, or the arguments do not fit it.
        InvalidWsdlError: the WSDL cannot be read.
    """
    path, name, *rest = words
    found, document, binding = _port(path, port, uri, allow)
    operations = binding.all()
    if name not in operations:
        raise UsageError(f"{path} has no operation {name!r}; it has: {'; '.join(_signatures(binding)) or 'none'}")
    given = {} if read_from is None else read_json(read_from.read(MAX_DOCUMENTS_OCTETS), "--input")
    if not isinstance(given, dict):
        raise UsageError(f"--input must be a JSON object of arguments by name, got {given!r}")
    arguments, values = arguments_of(operations[name], read_words(rest, given))
    return PlannedCall(document, found, binding, name, arguments, values)


def list_operations(path: str, *, port: str | None, uri: str | None, allow: Sequence[str]) -> Iterator[str]:
    """Yield the operations of a WSDL with their parameters.

    Raises:
        UsageError: there is no such port.
        InvalidWsdlError: the WSDL cannot be read.
    """
    yield from _signatures(_port(path, port, uri, allow)[2])


def _signatures(binding: Any) -> Iterator[str]:
    yield from (f"{visible(name)}({_takes(each)})" for name, each in binding.all().items())


def _port(path: str, port: str | None, uri: str | None, allow: Sequence[str]) -> tuple[Port, Any, Any]:
    """Return a port, zeep's document of the WSDL, and zeep's binding of the port."""
    described = read_wsdl(path, allow=allow)
    found = _first_port(described) if port is None else port_of(described, port)
    if found.soap_version is None:
        raise _uncallable(path, described, found, "it has no SOAP binding")
    if found.profile is None and uri is None:
        raise UsageError(f"{path}: the port {found.name!r} is not SOAP over JMS; give its address with --uri jms:…")
    classes = ANY_BINDING_CLASSES if found.profile is None else BINDING_CLASSES
    document = _document(path, classes, described.missing, allow)
    ports = document.services[found.service.name].ports if found.service.name in document.services else {}
    if found.name not in ports:
        raise _uncallable(path, described, found, "zeep cannot use its binding")
    return found, document, ports[found.name].binding


def _first_port(described: Description) -> Port:
    """Return the first port that is SOAP over JMS, or else the first that has a SOAP binding."""
    jms = [each for each in described.ports if each.profile is not None]
    soap = [each for each in described.ports if each.soap_version is not None]
    return next(iter(jms + soap), None) or port_of(described, None)


def _uncallable(path: str, described: Description, port: Port, why: str) -> UsageError:
    others = [f"{each.service.name}/{each.name}" for each in described.ports if each.soap_version and each != port]
    choice = f"give another with --port: {', '.join(others)}" if others else "the file has no other SOAP port"
    return UsageError(f"{path}: the port {port.name!r} cannot be called: {why}; {choice}")


def _document(path: str, classes: Sequence[type], missing: Sequence[Finding], allow: Sequence[str]) -> Any:
    """Let zeep read a WSDL; explain its errors, and what it leaves out, by missing definitions if there are any."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", UserWarning)
        try:
            document = read_document(path, DocumentLoader(classes, None, allow), zeep.Settings())
        except (zeep.exceptions.Error, InvalidWsdlError) as error:
            if isinstance(error, InvalidWsdlError) and not missing:
                raise
            raise UsageError(f"{path} cannot be used: {missing[0] if missing else error}") from error
    known = [str(each) for each in missing] if noted else []
    for line in known or [f"{path}: {each.message}" for each in noted]:
        click.echo(f"Warning: parts with missing definitions are left out: {visible(line)}", err=True)
    return document


def _takes(operation: Any) -> str:
    return visible(operation.input.signature() if operation.input is not None else "")


def perform(
    planned: PlannedCall,
    *,
    connection: str | None,
    uri: str | None,
    names: str | None,
    properties: Mapping[str, str],
    timeout: float,
    profile: ProfileName | None,
    text: bool,
    attachments: Sequence[Attachment],
) -> TypedOutcome:
    """Make the call.

    Raises:
        UsageError: the arguments do not fit the types of the WSDL.
        CallFailedError: no usable answer came.
    """
    known, values = read_names(names), dict(planned.values)
    check_reachable(connection)
    if attachments:
        values["_attachments"] = list(attachments)
    with opened(connection, uri or planned.port, known, properties, timeout) as open_connection:
        transport = KeepingTransport(
            open_connection,
            operation_timeout=timeout,
            properties=properties,
            profile=profile or AUTO,
            message_type=MessageType.TEXT if text else MessageType.BYTES,
            names=known,
        )
        with ZeepClient(planned.document, transport=transport) as client:
            try:
                service = _service(client, planned, uri)
                result = service[planned.operation](*planned.arguments, **values)
            except JmsFaultError as fault:
                return TypedOutcome(fault.response, None)
            except zeep.exceptions.ValidationError as error:
                takes = _takes(planned.binding.get(planned.operation))
                raise UsageError(f"{planned.operation}: {error}; it takes: {takes}") from error
            value = result.root if isinstance(result, MessagePack) else result
            return TypedOutcome(transport.response, plain_result(planned.binding.get(planned.operation), value))


def _service(client: ZeepClient, planned: PlannedCall, uri: str | None) -> Any:
    if uri is not None:
        return client.create_service(str(planned.binding.name), uri)
    return client.bind(planned.port.service.name, planned.port.name)


def show_result(plain: Any) -> None:
    """Print a result: a string as it is, anything else as JSON."""
    if isinstance(plain, str):
        click.echo(visible(plain))
    elif plain is not None:
        click.echo(visible_json(json.dumps(plain, indent=2, ensure_ascii=False)))
