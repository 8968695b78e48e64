"""The content of a WSDL about SOAP over JMS: services, ports (endpoints), bindings, operations, extension elements.

The model is the same for WSDL 1.1 and 2.0. Reading is tolerant, so that all mistakes can be shown; a port is usable if
`problems` finds no error, and `uri` and `effective` refuse it otherwise.

A program may name a service by a `jms:` URI, as text or parsed, or by the port of a WSDL; `read_uri` takes all of
these.

Spec: SOAP/JMS 2.2.1, 3.4, 3.4.4, 3.4.5, 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from soapjms.protocol.errors import InvalidUriError, InvalidWsdlError, UsageError
from soapjms.protocol.names import (
    CR_NAMESPACE,
    DEFAULT_PROFILE,
    EDITION_OF_NAMESPACE,
    REC_NAMESPACE,
    Mep,
    Profile,
    SoapVersion,
)
from soapjms.protocol.properties import BINDING_PROPERTIES, Effective, Origin, resolve
from soapjms.protocol.uri import JmsUri, Mode, checked, parse
from soapjms.protocol.uri import Severity as UriSeverity
from soapjms.protocol.uri.redact import without_user_info
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.elements import Extension
from soapjms.protocol.wsdl.findings import Finding, Place, Severity, finding
from soapjms.protocol.wsdl.schemas import RemoteSchema

FOREIGN_TRANSPORTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "http://www.soapjms.org/2007/08/soap/bindings/JMS": "that of the member submission of 2007",
        "http://schemas.xmlsoap.org/soap/jms": "an older id for JMS that no specification defines",
        "http://www.tibco.com/namespaces/ws/2004/soap/binding/JMS": "that of TIBCO's own binding",
        "http://cxf.apache.org/transports/jms": "that of Apache CXF's own binding",
        CR_NAMESPACE.rstrip("/"): "that of the Candidate Recommendation of 2009 without its last slash",
        REC_NAMESPACE.rstrip("/"): "that of the Recommendation of 2012 without its last slash",
    }
)
"""Other transports for JMS that occur in practice, without a last slash, with their descriptions."""

_REFUSED_IN_URI: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        name: (f"SOAP/JMS {row.section}, RFC 6167 {section}", f"as {name} {row.type.accepted}")
        for name, section in (("deliveryMode", "4.1.1"), ("timeToLive", "4.1.2"), ("priority", "4.1.3"))
        for row in (BINDING_PROPERTIES[name],)
    }
    | {"bothReplyNames": ("SOAP/JMS 2.2.2, RFC 6167 4.3.1", "replyToName or topicReplyToName, not both")}
)
"""Findings that are notes in lenient reading, but prevent the use of the URI: the rule, and the remedy."""
_GRAMMAR: Final = ("RFC 6167 3", "a URI as RFC 6167 has it")


def _both_reply_names(extensions: tuple[Extension, ...]) -> Iterator[Finding]:
    last = {each.name: each for each in extensions}
    if "replyToName" in last and "topicReplyToName" in last:
        name, topic = last["replyToName"], last["topicReplyToName"]
        place = max(name.place, topic.place)
        yield finding("replyNamesTogether", place, inside=name.inside, name=name.value, topic=topic.value)


class WsdlVersion(StrEnum):
    """WSDL 1.1 and 2.0, which have different names for some things."""

    WSDL_11 = "1.1"
    WSDL_20 = "2.0"

    @property
    def port(self) -> str:
        """The name for a port."""
        return "port" if self is WsdlVersion.WSDL_11 else "endpoint"

    @property
    def transport(self) -> str:
        """The attribute that names the transport."""
        return "transport" if self is WsdlVersion.WSDL_11 else "wsoap:protocol"

    @property
    def address(self) -> str:
        """The remedy for a missing address."""
        return '<soap:address location="jms:…"/> into it' if self is WsdlVersion.WSDL_11 else 'address="jms:…" into it'


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a port.

    Attributes:
        name: its name.
        soap_action: the action of its SOAP binding, or None.
        mep: request-response or one-way; None for any other pattern, which SOAP over JMS does not have.
        place: the place of the operation in its binding, or in its interface.
    """

    name: str
    soap_action: str | None
    mep: Mep | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding.

    Attributes:
        name: its name, in Clark notation.
        transport: the transport or protocol URI; None if it is not a SOAP binding.
        soap_version: the SOAP version; None if it is not a SOAP binding, or of an unknown version.
        interface: the port type or interface in Clark notation; empty if it names none.
        extensions: its soapjms elements.
        place, transport_place: the places of the binding and of its transport.
        problems: findings about its own attributes.
    """

    name: str
    transport: str | None
    soap_version: SoapVersion | None
    interface: str
    extensions: tuple[Extension, ...]
    place: Place
    transport_place: Place
    problems: tuple[Finding, ...] = ()

    @property
    def profile(self) -> Profile | None:
        """The edition of SOAP over JMS that its transport names; None for any other transport."""
        return None if self.transport is None else EDITION_OF_NAMESPACE.get(self.transport)


@dataclass(frozen=True, slots=True)
class Service:
    """A service, with its local name, its soapjms elements and its place."""

    name: str
    extensions: tuple[Extension, ...]
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of WSDL 1.1 or endpoint of WSDL 2.0.

    Attributes:
        name: its local name.
        service: its service.
        binding_name: the name of its binding, in Clark notation.
        binding: its binding; None if the WSDL does not have it.
        address: the address as written, without white space around it; None if there is none.
        address_version: the SOAP version of its address element; None in WSDL 2.0.
        extensions: its soapjms elements.
        operations: its operations.
        wsdl: the version of its document.
        place, address_place: the places of the port and of its address.
    """

    name: str
    service: Service
    binding_name: str
    binding: Binding | None
    address: str | None
    address_version: SoapVersion | None
    extensions: tuple[Extension, ...]
    operations: tuple[Operation, ...]
    wsdl: WsdlVersion
    place: Place
    address_place: Place

    @property
    def profile(self) -> Profile | None:
        """The edition of SOAP over JMS that the port follows; None if it is not SOAP over JMS."""
        return None if self.binding is None else self.binding.profile

    @property
    def soap_version(self) -> SoapVersion | None:
        """The SOAP version; None if it is not a SOAP port."""
        return None if self.binding is None else self.binding.soap_version

    def levels(self) -> Iterator[tuple[Origin, tuple[Extension, ...]]]:
        """Yield the soapjms elements that apply to this port, level by level (WSDLUsage-3001)."""
        yield Origin.PORT, self.extensions
        yield Origin.SERVICE, self.service.extensions
        yield Origin.BINDING, () if self.binding is None else self.binding.extensions

    def problems(self) -> Iterator[Finding]:
        """Yield the findings about this port: about its binding, its address, and the elements that apply to it."""
        if self.binding is None:
            yield finding("missingBinding", self.place, port=self.name, seen=self.binding_name)
            return
        yield from self.binding.problems
        if self.binding.profile is None:
            yield from self._other_transport(self.binding)
            return
        yield from self._address_problems()
        for origin, extensions in self.levels():
            yield from (problem for each in extensions if (problem := each.problem(origin)))
            yield from _both_reply_names(extensions)

    def foreign_transport(self) -> Finding | None:
        """Return the finding that the transport is a known one other than SOAP over JMS, or None."""
        return next((each for each in self.problems() if each.code == "foreignTransport"), None)

    def _other_transport(self, binding: Binding) -> Iterator[Finding]:
        write = {"attribute": self.wsdl.transport, "namespace": DEFAULT_PROFILE.namespace}
        what = FOREIGN_TRANSPORTS.get((binding.transport or "").rstrip("/"))
        if what is not None:
            seen = {"transport": binding.transport, "what": what}
            yield finding("foreignTransport", binding.transport_place, **seen, **write)
        elif self.address is not None and self.address[:4].lower() == "jms:":
            seen = {"port": self.name, "seen": self.address, "transport": binding.transport}
            yield finding("jmsAddressElsewhere", self.address_place, **seen, **write)

    def _address_problems(self) -> Iterator[Finding]:
        if not self.address:
            yield finding("missingAddress", self.place, port=self.name, write=self.wsdl.address)
            return
        lenient = parse(self.address)
        if any(each.code == "wrongScheme" for each in lenient.findings):
            yield finding("notJmsAddress", self.address_place, port=self.name, seen=without_user_info(self.address))
            return
        broken = {
            each.code for each in lenient.findings if each.severity is not UriSeverity.NOTE
        } | _REFUSED_IN_URI.keys()
        for each in parse(self.address, Mode.STRICT).findings:
            loose = "uriNote" if each.severity is UriSeverity.NOTE else "looseUri"
            code = "badUri" if each.code in broken else loose
            rule, write = _REFUSED_IN_URI.get(each.code, _GRAMMAR)
            seen = {"port": self.name, "at": each.position, "seen": each.text, "code": each.code}
            yield finding(code, self.address_place, **seen, rule=rule, write=write)

    def _usable(self) -> None:
        for each in self.problems():
            if each.severity is Severity.ERROR:
                raise InvalidWsdlError(str(each))
        if self.profile is None:
            transport = None if self.binding is None else self.binding.transport
            raise InvalidWsdlError(
                f"{self.place}: {self.wsdl.port} {self.name!r} is not SOAP over JMS: its transport is {transport!r}; "
                f"accepted are {' and '.join(EDITION_OF_NAMESPACE)} (SOAP/JMS 3.4.2)"
            )

    def uri(self) -> JmsUri:
        """Return the address, read leniently.

        Raises:
            InvalidWsdlError: the port has an error, or is not SOAP over JMS; the message has line, rule and remedy.
        """
        self._usable()
        return parse(str(self.address))

    def effective(self, environment: Mapping[str, Value] = MappingProxyType({})) -> Effective:
        """Work out the effective properties, each with its origin.

        Args:
            environment: the properties that the program sets, by name; they take precedence over the WSDL.

        Raises:
            InvalidWsdlError: see `uri`.
            InvalidPropertyError: a value in the environment is not valid.

        Spec: SOAP/JMS 2.2, 3.4.4, 3.4.5; Protocol-2001, WSDLUsage-3001 to 3003.
        """
        uri = self.uri()
        return resolve(
            uri,
            environment,
            {origin: {each.name: each.value or "" for each in extensions} for origin, extensions in self.levels()},
        )

    def operation(self, name: str) -> Operation:
        """Return the operation called `name`.

        Raises:
            UsageError: there is no such operation, or more than one; the message lists the operations.
        """
        found = [each for each in self.operations if each.name == name]
        if len(found) != 1:
            known = ", ".join(dict.fromkeys(each.name for each in self.operations)) or "none"
            number = "no operation" if not found else f"{len(found)} operations"
            raise UsageError(f"{self.wsdl.port} {self.name!r} has {number} {name!r}; there are: {known}")
        return found[0]


@dataclass(frozen=True, slots=True)
class Description:
    """A WSDL with all documents that it imports.

    Attributes:
        version: the version of WSDL.
        services: all services, including those without ports.
        bindings: the bindings by name in Clark notation.
        ports: the ports of all services, in order, including those of other transports.
        misplaced: soapjms elements in places where they have no effect.
        remote_schemas: schemas that are on a network, and are not fetched.
        missing: findings for references to missing components; ports themselves report their missing bindings.
    """

    version: WsdlVersion
    services: tuple[Service, ...]
    bindings: Mapping[str, Binding]
    ports: tuple[Port, ...]
    misplaced: tuple[Extension, ...]
    remote_schemas: tuple[RemoteSchema, ...]
    missing: tuple[Finding, ...]

    def port(self, name: str | None = None, *, option: str = 'port="SERVICE/PORT"') -> Port:
        """Return a port by its name, or by SERVICE/PORT; without a name the only SOAP/JMS port.

        Args:
            name: the name.
            option: how the user gives a name, for the error if there are several ports.

        Raises:
            UsageError: there is no such port, or more than one; the message lists the ports.
        """
        word = self.version.port
        if name is None:
            found = [each for each in self.ports if each.profile is not None]
            what = f"{word} with a SOAP/JMS transport"
        else:
            found = [each for each in self.ports if name in (each.name, f"{each.service.name}/{each.name}")]
            what = f"{word} {name!r}"
        if len(found) == 1:
            return found[0]
        how = f" ({option})" if name is None and len(found) > 1 else ""
        raise UsageError(f"{'more than one' if found else 'no'} {what}; {self._choice(found or self.ports)}{how}")

    def _choice(self, ports: Iterable[Port]) -> str:
        """Say which ports can be chosen, without those of other transports; or why there are none."""
        offered = ", ".join(f"{each.service.name}/{each.name}" for each in ports if each.profile is not None)
        if offered:
            return f"choose one of: {offered}"
        reasons = (str(reason) for each in ports if (reason := each.foreign_transport()))
        return next(reasons, "`soapjms wsdl add-port` adds one")


def read_uri(uri: str | JmsUri | Port, environment: Mapping[str, Value]) -> tuple[JmsUri, Effective]:
    """Read a URI that the caller wants to use, or the port of a WSDL, and work out the effective properties.

    Raises:
        InvalidUriError, InvalidPropertyError: the URI or a property is not valid.
        InvalidWsdlError: the port cannot be used.
    """
    if isinstance(uri, Port):
        return uri.uri(), uri.effective(environment)
    if not isinstance(uri, str | JmsUri):
        raise InvalidUriError(  # without its value, which may hold a secret
            f"uri must be a jms: URI as text or parsed, or the port of a WSDL, got {type(uri).__name__}"
        )
    parsed = checked(uri.text, uri.mode) if isinstance(uri, JmsUri) else checked(uri)
    return parsed, resolve(parsed, environment)
