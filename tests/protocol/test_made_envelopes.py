"""Envelopes that are made of elements, the trace of a call that failed, and what a profile shows."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from lxml import etree

from soapjms.protocol.envelope import envelope
from soapjms.protocol.errors import CallFailedError, CallTrace, UsageError
from soapjms.protocol.names import CR_2009


def test_envelope() -> None:
    """Body and headers are copied; without them there is an empty Body."""
    made = envelope(etree.Element("{urn:a}b"), headers=[etree.Element("{urn:a}h")], version="1.2")
    assert [etree.QName(each).localname for each in made] == ["Header", "Body"]
    assert [len(each) for each in made] == [1, 1]
    assert [len(each) for each in envelope(None)] == [0]


def test_mistakes() -> None:
    """Another version, and what is no element, are refused."""
    wrong: Any = "<a/>"
    with pytest.raises(UsageError, match="version must be"):
        envelope(None, version="2")
    with pytest.raises(UsageError, match="must be lxml elements, got str"):
        envelope(wrong)


@pytest.mark.parametrize(
    ("confirmed", "lost", "ending"),
    [
        (None, False, "after 1.5 s)"),
        (True, False, "; the broker confirmed the message)"),
        (False, True, "; the broker did not confirm the message; the connection was lost or closed meanwhile)"),
    ],
)
def test_trace(confirmed: bool | None, lost: bool, ending: str) -> None:
    """It is part of the error's text, and survives pickling."""
    error = CallFailedError("no", "receptionFailure", trace=CallTrace("queue:a", "id", 1.5, confirmed, lost))
    assert str(error).startswith("no (queue:a, JMSCorrelationID 'id', after 1.5 s")
    assert str(error).endswith(ending)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.text, again.trace) == (str(error), "no", error.trace)
    own = (error.destination, error.correlation_id, error.waited, error.is_confirmed, error.connection_lost)
    assert own == ("queue:a", "id", 1.5, confirmed, lost)


def test_no_trace() -> None:
    """Of a message that was never made nothing is known."""
    error = CallFailedError("no", "receptionFailure")
    assert {error.destination, error.correlation_id, error.waited, error.is_confirmed, error.connection_lost} == {None}


def test_profile() -> None:
    """It shows its name."""
    assert repr(CR_2009) == "<soapjms profile cr-2009>"
