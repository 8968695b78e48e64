"""zeep's SOAP bindings over JMS: which bindings of a WSDL load, how a call is made, how a response is read.

zeep asks its transport for the binding classes (`binding_classes`); its own refuse all transports but HTTP, and drop
their ports silently. The test `test_zeep_facts.py` states what this file assumes about zeep. With `raw_response=True`
a call returns a response as zeep does over HTTP, and plugins see its header fields.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import zeep.exceptions
from lxml import etree
from requests import Response as HttpResponse
from requests.structures import CaseInsensitiveDict
from zeep import plugins
from zeep.wsdl.bindings import Soap11Binding, Soap12Binding

from brokers.message import as_text
from soapjms.client.addressing import add_action, add_headers
from soapjms.client.call import UNPARSED_HINT, Response
from soapjms.protocol import names
from soapjms.protocol.envelope import Fault, as_envelope, read_fault, serialize
from soapjms.protocol.errors import InvalidAttachmentError, UsageError
from soapjms.protocol.names import FailureReason, SoapVersion
from soapjms.protocol.text import with_article
from soapjms.protocol.wsa import stated_action
from soapjms.protocol.wsdl import Port
from soapjms.zeep.attachments import ARGUMENT, Enclosures, apart, packed
from soapjms.zeep.bare import is_bare, value_in
from soapjms.zeep.checks import keep_empty, misfit
from soapjms.zeep.clients import ClientEndpoints, OutgoingRequest
from soapjms.zeep.errors import ArgumentsError, JmsFaultError, JmsTransportError, reason_of
from soapjms.zeep.ports import PORT, BindingPlace, address_of, place_of
from soapjms.zeep.repairs import repair

OK, ACCEPTED, FAULT = 200, 202, 500


def headers_of(response: Response) -> CaseInsensitiveDict[str]:
    """Return the properties of the JMS message as HTTP header fields; the content type also has its HTTP name."""
    found = CaseInsensitiveDict[str]()
    for each in response.message.properties:
        found[each.name] = as_text(each.value) or ""
    if (content_type := response.message.properties.text(names.CONTENT_TYPE)) is not None:
        found["Content-Type"] = content_type
    return found


class RawResponse(HttpResponse):
    """An unparsed response: status, header fields and octets, as they would have been over HTTP.

    The status is 200, 500 for a fault, or 202 for a one-way message, which has no response. The octets are the
    envelope in UTF-8, or the whole body if it has several parts.

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


HTTP: Final = "http://schemas.xmlsoap.org/soap/http"
"""The transport that zeep's bindings require when they read a WSDL."""

RETRY_ARGUMENT: Final = "_retry_of"
"""The keyword argument of an operation for the error of the previous try, like `retry_of` of `soapjms.Client.call`."""


EXPIRY_ARGUMENT: Final = "_expires"
"""Likewise when the request expires, like `expires` of `soapjms.Client.call`."""


class JmsBinding:
    """A mixin for zeep's SOAP bindings, with what both SOAP versions share over JMS."""

    is_for_any: ClassVar[bool] = False
    version: SoapVersion
    standing: BindingPlace
    overloaded: frozenset[str]
    _places: dict[tuple[Any, Any], str | Port]

    @classmethod
    def match(cls, node: etree._Element) -> bool:
        """Take SOAP bindings over JMS; if a document has none, or `is_for_any`, those of other transports.

        So a WSDL with both kinds has only ports that can be called, and `create_service` finds the binding of a WSDL
        made for HTTP.
        """
        if not super().match(node):  # type: ignore[misc]
            return False
        siblings = [] if (parent := node.getparent()) is None else parent.iterchildren(str(node.tag))
        return cls.is_for_any or _is_jms(node) or not any(_is_jms(each) for each in siblings)

    @classmethod
    def parse(cls, definitions: Any, xmlelement: etree._Element) -> Any:
        """Let zeep read the binding as one over HTTP, the only transport it accepts."""
        soap = xmlelement.find("soap:binding", namespaces=cls.nsmap)  # type: ignore[attr-defined]
        assert soap is not None, "it matched"
        transport = soap.get("transport")
        soap.set("transport", HTTP)
        try:
            made = super().parse(definitions, xmlelement)  # type: ignore[misc]
        finally:
            soap.set("transport", transport or "")
        made.transport = transport
        made.standing, made._places = BindingPlace(str(definitions.location or "WSDL"), xmlelement), {}
        counts = Counter(each.get("name") for each in xmlelement.iterchildren("{*}operation"))
        made.overloaded = frozenset(name for name, count in counts.items() if count > 1)
        return made

    def resolve(self, definitions: Any) -> None:
        """Let zeep resolve the references of the binding, then repair the types, so that they lose no values."""
        super().resolve(definitions)  # type: ignore[misc]
        operations = self.all().values()  # type: ignore[attr-defined]
        messages = [message for each in operations for message in (each.input, each.output)]
        repair(definitions.types, messages, definitions.wsdl.transport.declarations)

    def process_service_port(self, xmlelement: etree._Element, force_https: bool = False) -> dict[str, Any]:
        """Return the options of a port's services: the address, and the element to read the rest from."""
        return {"address": address_of(xmlelement), PORT: xmlelement}

    def refuse_overload(self, name: str) -> None:
        """Refuse an operation whose name the binding has several times, of which zeep mixes up messages and actions.

        Raises:
            UsageError: it is one.

        Spec: WS-I Basic Profile 1.1 R2304.
        """
        if name in self.overloaded:
            raise UsageError(
                f"the operation {name} is overloaded: the binding has several of that name; give each a name of its "
                "own in the WSDL (WS-I Basic Profile R2304)"
            )

    def place_of(self, options: Mapping[str, Any]) -> str | Port:
        """Return where a call with these options goes; see `soapjms.zeep.ports`. It is read from the WSDL once."""
        key = options.get(PORT), options.get("address")
        if key not in self._places:
            self._places[key] = place_of(self.standing, options)
        return self._places[key]

    # Calling

    def send(self, client: Any, options: Mapping[str, Any], operation: str, args: Any, kwargs: Any) -> Any:
        """Call an operation; zeep's service proxy calls this.

        Raises:
            ArgumentsError, zeep.exceptions.ValidationError: the arguments do not fit the types of the WSDL.
            UsageError: the operation or an attachment cannot be sent, or the client has another kind of transport.
            JmsFaultError: the response is a fault.
            JmsTimeoutError, JmsTransportError: no usable response was received.
        """
        endpoints = _endpoints(client)
        outgoing = self._outgoing(endpoints, client, options, operation, args, kwargs)
        return self._result(client, operation, endpoints.call(outgoing))

    async def send_async(self, client: Any, options: Mapping[str, Any], operation: str, args: Any, kwargs: Any) -> Any:
        """Call an operation from asyncio; see `send`."""
        endpoints = _endpoints(client)
        outgoing = self._outgoing(endpoints, client, options, operation, args, kwargs)
        return self._result(client, operation, await endpoints.call_async(outgoing))

    def _outgoing(
        self, endpoints: ClientEndpoints, client: Any, options: Mapping[str, Any], name: str, args: Any, kwargs: Any
    ) -> OutgoingRequest:
        self.refuse_overload(name)
        to = endpoints.client_of(self.place_of(options))
        operation = self.get(name)  # type: ignore[attr-defined]
        given = dict(kwargs)
        retry_of, expires = given.pop(RETRY_ARGUMENT, None), given.pop(EXPIRY_ARGUMENT, "timeout")
        enclosed = Enclosures(given.pop(ARGUMENT, None) or ())
        envelope, headers = self._created(client, options, operation, enclosed.marked(args), enclosed.marked(given))
        enclosed.fill_in(envelope, spelled_out=bool(client.wsse))
        found = misfit(envelope, operation.input) if client.settings.strict else None
        if found is not None:
            raise _wrong_arguments(operation, found)
        envelope, headers = plugins.apply_egress(client, envelope, headers, operation, options)
        one_way = operation.abstract.output_message is None
        if one_way and expires != "timeout":
            raise UsageError(f"{name} is one-way and has no {EXPIRY_ARGUMENT}: its messages expire by timeToLive only")
        stated = to.endpoint.properties.stated("soapAction") is not None
        if endpoints.addressing:
            action = _action(headers, operation, stated=stated)
            if not action and not stated and operation.abstract.wsa_action:
                add_action(envelope, operation.abstract.wsa_action)
            said = stated_action(as_envelope(envelope)) or action or to.endpoint.soap_action
            if client.wsse and said:  # before the signature; without WS-Security `soapjms.Client` adds them
                add_headers(envelope, to.endpoint, said, one_way=one_way)
        for each in _security(client):
            envelope, headers = each.apply(envelope, headers)
        enclosed.include(envelope)
        action = _action(headers, operation, stated=stated)
        return OutgoingRequest(to, envelope, action, enclosed.attachments, one_way, operation.name, retry_of, expires)

    def _created(
        self, client: Any, options: Mapping[str, Any], operation: Any, args: Any, kwargs: Any
    ) -> tuple[etree._Element, dict[str, str]]:
        """Let zeep make the envelope without plugins and WS-Security, which need it with the attachments filled in."""
        if operation.input is None:
            raise UsageError(f"the operation {operation.name!r} cannot be called, as it has no input")
        plain = copy.copy(client)
        plain.plugins, plain.wsse = [], None
        try:
            envelope, headers = self._create(operation.name, args, kwargs, client=plain, options=options)  # type: ignore[attr-defined]
        except zeep.exceptions.Error:
            raise
        except Exception as error:  # zeep's types raise any error of Python for values that do not fit
            raise _wrong_arguments(operation, reason_of(error)) from error
        return envelope, headers

    # Responses

    def _result(self, client: Any, name: str, response: Response | None) -> Any:
        if client.settings.raw_response:
            return RawResponse(response)
        return None if response is None else self._read(client, self.get(name), response)  # type: ignore[attr-defined]

    def _read(self, client: Any, operation: Any, response: Response) -> Any:
        """Return the result of a response, in the types of the WSDL."""
        root = response.envelope.root
        etree.strip_elements(root, etree.Comment, etree.ProcessingInstruction, with_tail=False)  # zeep fails on them
        parts = apart(root, response.attachments)
        try:
            root = response.attachments.expand(root)
        except InvalidAttachmentError as error:
            raise _unfit(operation, str(error)) from error
        for each in _security(client):
            each.verify(root)
        given, _ = plugins.apply_ingress(client, root, headers_of(response), operation)
        is_theirs, root = given is root, given  # else a plugin replaced it, and errors of zeep are passed on
        fault = _fault_in(root)
        if fault is not None:
            fault_error = JmsFaultError(fault, response)
            if response.unparsed:
                fault_error.add_note(UNPARSED_HINT)
            raise fault_error
        version = response.envelope.version
        if is_theirs and version is not self.version:
            raise _unfit(operation, f"the envelope is SOAP {version}, but the binding is SOAP {self.version}")
        found = misfit(root, operation.output) if client.settings.strict else None
        if found is not None:
            raise _unfit(operation, found)
        keep_empty(root, operation.output)
        try:
            bare = is_bare(operation.output)
            return packed(value_in(root, operation.output) if bare else operation.process_reply(root), parts)
        except Exception as error:  # zeep's types raise any error of Python for XML of another type
            if isinstance(error, zeep.exceptions.Error) and not is_theirs:
                raise
            raise _unfit(operation, f"{type(error).__name__}: {error}") from error


class JmsSoap11Binding(JmsBinding, Soap11Binding):
    """SOAP 1.1 over JMS."""

    version = SoapVersion.SOAP_11


class JmsSoap12Binding(JmsBinding, Soap12Binding):
    """SOAP 1.2 over JMS."""

    version = SoapVersion.SOAP_12


class AnySoap11Binding(JmsSoap11Binding):
    """SOAP 1.1 over any transport, to be called over JMS."""

    is_for_any = True


class AnySoap12Binding(JmsSoap12Binding):
    """SOAP 1.2 over any transport, to be called over JMS."""

    is_for_any = True


BINDING_CLASSES: Final = (JmsSoap11Binding, JmsSoap12Binding)
ANY_BINDING_CLASSES: Final = (AnySoap11Binding, AnySoap12Binding)
"""For a port that was not made for JMS, in a document with others that were."""


def _is_jms(binding: etree._Element) -> bool:
    return BindingPlace("", binding).is_jms


def _endpoints(client: Any) -> ClientEndpoints:
    """Return the transport of a client.

    Raises:
        UsageError: it is not a JmsTransport, although the document was read for SOAP over JMS.
    """
    if not isinstance(client.transport, ClientEndpoints):
        kind = with_article(type(client.transport))
        raise UsageError(f"transport must be a JmsTransport, as the WSDL was read for SOAP over JMS, got {kind}")
    return client.transport


def _security(client: Any) -> Iterator[Any]:
    """Yield the WS-Security objects of a client, which may have one or a list."""
    found = client.wsse
    yield from found if isinstance(found, list) else [found] if found else []


def _action(headers: Mapping[str, str], operation: Any, *, stated: bool) -> str | None:
    """Return the action of one message, or None if that of the properties applies.

    The action of a plugin has precedence, then that of the properties, then that of the WSDL's operation.

    Spec: SOAP/JMS 2.2.3 soapAction, 3.4.3; Protocol-2001.
    """
    written = headers.get("SOAPAction", "").strip('"')
    if stated and written == (operation.soapaction or ""):
        return None
    return written or None


def _wrong_arguments(operation: Any, why: str) -> ArgumentsError:
    return ArgumentsError(f"{operation.name}: {why}; it takes: {operation.input.signature() or 'nothing'}")


def _unfit(operation: Any, why: str) -> JmsTransportError:
    text = f"the response to {operation.name} does not fit the WSDL: {why}"
    return JmsTransportError(text, FailureReason.RECEPTION_FAILURE)


def _fault_in(root: etree._Element) -> Fault | None:
    try:
        return read_fault(as_envelope(root))
    except ValueError:  # a plugin made something else of it; zeep reports the error
        return None
