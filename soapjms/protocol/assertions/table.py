"""ASSERTIONS: every assertion of the specification once, and those of its requirements that carry no id.

The rows are in `of_messages.py`, `of_answers.py` and `unseen.py`; their order counts, see `of_messages.py`.

Spec: SOAP/JMS appendix E, and the sections named in the rows.
"""

from __future__ import annotations

from typing import Final

from soapjms.protocol.assertions.of_answers import REACTIONS, RESPONSE_ASSERTIONS
from soapjms.protocol.assertions.of_messages import (
    BODY_ASSERTIONS,
    HEADER_ASSERTIONS,
    PRECEDENCE_ASSERTIONS,
    PROPERTY_ASSERTIONS,
)
from soapjms.protocol.assertions.unseen import UNSEEN

REQUEST_FAULTS: Final = PROPERTY_ASSERTIONS + BODY_ASSERTIONS
"""The rows that a responding node looks at: those with a fault, and what they rest on."""

ASSERTIONS: Final = (
    *PROPERTY_ASSERTIONS,
    *BODY_ASSERTIONS,
    *HEADER_ASSERTIONS,
    *PRECEDENCE_ASSERTIONS,
    *RESPONSE_ASSERTIONS,
    *REACTIONS,
    *UNSEEN,
)
