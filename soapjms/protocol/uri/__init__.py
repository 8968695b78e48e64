"""`jms:` URIs: parse, judge, compare and write, in the modes strict (RFC 6167), draft-03 and lenient.

Read in this order: `redact.py` hides secrets of a URI that is shown, `findings.py` has every kind of finding once,
`model.py` has a parsed URI and the parameters that the specifications name, `parser.py` reads, `write.py` builds and
compares, `iri.py` converts from and to IRIs. Nothing here looks names up or connects.

Spec: RFC 6167; draft-merrick-jms-uri-03; RFC 3986; RFC 3987.
"""

from brokers.redaction import visible
from soapjms.protocol.uri.findings import FINDINGS, Finding, Mode, Severity
from soapjms.protocol.uri.iri import from_iri, to_iri
from soapjms.protocol.uri.model import KNOWN_VARIANTS, JmsUri, Parameter, fits_long
from soapjms.protocol.uri.parser import KEPT, parse, read
from soapjms.protocol.uri.redact import REDACTED
from soapjms.protocol.uri.write import build, canonical, checked, equivalent_destination, escape, rewrite

__all__ = [
    "FINDINGS",
    "KEPT",
    "KNOWN_VARIANTS",
    "REDACTED",
    "Finding",
    "JmsUri",
    "Mode",
    "Parameter",
    "Severity",
    "build",
    "canonical",
    "checked",
    "equivalent_destination",
    "escape",
    "fits_long",
    "from_iri",
    "parse",
    "read",
    "rewrite",
    "to_iri",
    "visible",
]
