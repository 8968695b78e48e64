"""The errors of calls through zeep, which can be caught as errors of soapjms or of zeep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import zeep.exceptions
from lxml import etree

from soapjms.client.call import Response
from soapjms.protocol.envelope import Fault
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SoapJmsError, UsageError
from soapjms.protocol.names import SoapVersion


class JmsTransportError(CallFailedError, zeep.exceptions.TransportError):
    """A call ended without a usable response; for `reason` and `outcome` see `CallFailedError`."""


class JmsTimeoutError(JmsTransportError, CallTimeoutError):
    """No correlated response came in time."""


class ArgumentsError(UsageError, TypeError):
    """The arguments of an operation do not fit its types; the message has the signature."""


_TOO_MANY: Final = re.compile(r"__init__\(\) takes at most (\d+) positional arguments? \((\d+) given\)")


def reason_of(error: Exception) -> str:
    """Return why zeep could not make a message of values, without the names of its own functions."""
    found = _TOO_MANY.fullmatch(str(error))
    return f"it takes at most {found[1]} values by position, got {found[2]}" if found else str(error)


def failure(error: CallFailedError) -> JmsTransportError:
    """Return the error of a call as one that is also an error of zeep."""
    kind = JmsTimeoutError if isinstance(error, CallTimeoutError) else JmsTransportError
    return kind(error.text, error.reason, error.outcome, error.retry, error.trace)


class JmsFaultError(SoapJmsError, zeep.exceptions.Fault):
    """The response is a SOAP fault. It has all attributes of zeep's Fault, for both SOAP versions, and more.

    Attributes:
        message: the text for people.
        code: the fault code as it is written, with its prefix.
        actor: the faultactor, or the Role of SOAP 1.2.
        detail: the detail element; `client.wsdl.types.deserialize(detail[0])` makes an object of a declared fault.
        subcodes: qualified names: the Subcodes of SOAP 1.2, or in SOAP 1.1 the subcode of the binding.
        subcode: the local name of the subcode of SOAP over JMS, such as `missingContentType`; None for other faults.
        response: the response with the fault.
    """

    def __init__(self, fault: Fault, response: Response) -> None:
        paths = _PATHS[fault.version]
        super().__init__(  # type: ignore[no-untyped-call]
            message=fault.reason,
            code=_text(fault, paths.code),
            actor=_text(fault, paths.actor),
            detail=fault.detail,
            subcodes=list(_subcodes(fault)),
        )
        self.subcode = fault.subcode
        self.response = response


class _Paths:
    """The paths of the parts of a fault in one SOAP version."""

    def __init__(self, code: str, actor: str) -> None:
        self.code = code
        self.actor = actor


_SOAP_12: Final = f"{{{SoapVersion.SOAP_12.namespace}}}"
_PATHS: Final[Mapping[SoapVersion, _Paths]] = {
    SoapVersion.SOAP_11: _Paths("faultcode", "faultactor"),
    SoapVersion.SOAP_12: _Paths(f"{_SOAP_12}Code/{_SOAP_12}Value", f"{_SOAP_12}Role"),
}


def _text(fault: Fault, path: str) -> str | None:
    text = fault.element.findtext(path)
    return None if text is None else text.strip()


def _subcodes(fault: Fault) -> Iterator[etree.QName]:
    """Yield the subcodes of a fault, the outermost first.

    Spec: SOAP 1.2 Part 1 5.4.1.3; SOAP/JMS 2.8.
    """
    if fault.version is SoapVersion.SOAP_11:
        if fault.subcode is not None:
            yield etree.QName(fault.namespace, fault.subcode)
        return
    for value in fault.element.iterfind(f"{_SOAP_12}Code//{_SOAP_12}Subcode/{_SOAP_12}Value"):
        prefix, colon, local = (value.text or "").strip().rpartition(":")
        try:
            yield etree.QName(value.nsmap.get(prefix if colon else None), local)
        except ValueError:  # a peer may write anything there; an invalid name is not a subcode
            continue
