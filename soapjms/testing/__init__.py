"""What the tests of those who use soapjms need: a stub of a service, a record of what passed, and its judgement.

pytest gets it as fixtures through `soapjms.testing.plugin`, which is the only file here that knows pytest; the rest
serves any test framework. See docs/testing.md.
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
