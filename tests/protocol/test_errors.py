"""The tree of exceptions: what a caller can catch, and what travels between processes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from soapjms.protocol import errors


@pytest.mark.parametrize(
    "kind",
    [
        errors.InvalidUriError,
        errors.InvalidPropertyError,
        errors.InvalidWsdlError,
        errors.InvalidEnvelopeError,
        errors.InvalidRecordError,
    ],
)
def test_mistakes_in_values(kind: type[Exception]) -> None:
    """A value that is not allowed is a ValueError, and one of soapjms's own."""
    assert issubclass(kind, ValueError)
    assert issubclass(kind, errors.SoapJmsError)


@pytest.mark.parametrize("kind", [errors.CallFailedError, errors.CallTimeoutError])
def test_failed_calls_travel(kind: type[errors.CallFailedError]) -> None:
    """A failed call keeps its text and failure reason when it is pickled."""
    error = pickle.loads(pickle.dumps(kind("no response", "receptionFailure")))
    assert type(error) is kind
    assert (str(error), error.reason) == ("no response", "receptionFailure")


def test_a_call_that_took_too_long() -> None:
    """A call without a response in time is a TimeoutError, as everywhere in Python."""
    assert issubclass(errors.CallTimeoutError, TimeoutError)


def test_faults_travel() -> None:
    """A SOAP fault keeps what it says when it is pickled; nothing said, it blames the receiver."""
    error = pickle.loads(pickle.dumps(errors.SoapFaultError("why", subcode="missingContentType", code="{urn:x}y")))
    assert (str(error), error.reason, error.blame) == ("why", "why", "Receiver")
    assert (error.subcode, error.code, error.detail) == ("missingContentType", "{urn:x}y", None)


@pytest.mark.parametrize(("reason", "text"), [("why", "why"), (ValueError("why"), "why"), (None, "no reason given")])
def test_reasons_are_text(reason: object, text: str) -> None:
    """The reason of a fault is text, of whatever it was made."""
    error = errors.SoapFaultError(reason)
    assert (str(error), error.reason) == (text, text)


@pytest.mark.parametrize("blame", ["nobody", "sender", None, ["Sender"]])
def test_blame_is_a_word_of_soap(blame: Any) -> None:
    """A fault that blames what SOAP has no word for is refused when it is made."""
    with pytest.raises(errors.UsageError, match="must be one of Sender, Receiver, MustUnderstand, VersionMismatch, Cl"):
        errors.SoapFaultError("no", blame=blame)


@pytest.mark.parametrize("subcode", ["x", "{}x", "{urn:x}", "{urn:x}a b", "{urn:x}1", "{urn:x}a:b", 7])
def test_subcodes_have_namespaces(subcode: Any) -> None:
    """A subcode that no envelope could hold is refused when the fault is made."""
    with pytest.raises(errors.UsageError, match=r"must be written \{namespace\}local"):
        errors.SoapFaultError("no", subcodes=[subcode])


def test_subcodes_travel() -> None:
    """They are kept when the fault is pickled."""
    assert pickle.loads(pickle.dumps(errors.SoapFaultError("no", subcodes=["{urn:x}a"]))).subcodes == ("{urn:x}a",)


@pytest.mark.parametrize(("outcome", "is_known"), [("NOT_SENT", True), ("REFUSED", True), ("UNKNOWN", False)])
def test_what_is_known_of_a_failed_call(outcome: str, is_known: bool) -> None:
    """Whether the service may have the request: not if it was not sent, or refused."""
    error = errors.CallFailedError("no", "transmissionFailure", errors.SendOutcome[outcome])
    assert error.is_known is is_known
