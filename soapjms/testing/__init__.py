"""Tools for tests of programs that use soapjms: a stub of a service, a capture of the traffic, and its judgement.

`soapjms.testing.plugin` offers them as pytest fixtures, and is the only file here that knows pytest; the others work
with any test framework. See docs/testing.md.
"""

from soapjms.testing.broker import BrokerInUse, BrokerNotAvailableError
from soapjms.testing.stub import Expectation, StubService, UnmetExpectationsError
from soapjms.testing.traffic import ConformanceError, Traffic, assert_conforms

__all__ = [
    "BrokerInUse",
    "BrokerNotAvailableError",
    "ConformanceError",
    "Expectation",
    "StubService",
    "Traffic",
    "UnmetExpectationsError",
    "assert_conforms",
]
