"""`jms:` URIs: parse, judge, compare and write, in the modes strict (RFC 6167), draft-03 and lenient.

Read in this order: `showing.py` says what of a URI may be shown, `findings.py` holds every kind of finding once,
`model.py` is a URI as it was read, `known.py` has the parameters that the specifications name, `reading.py` parses,
`writing.py` builds and compares, `iri.py` converts from and to IRIs. Nothing here looks a name up or connects.

Spec: RFC 6167; draft-merrick-jms-uri-03; RFC 3986; RFC 3987.
"""

from soapjms.protocol.uri.findings import FINDINGS, Finding, Mode, Severity
from soapjms.protocol.uri.iri import from_iri, to_iri
from soapjms.protocol.uri.known import KNOWN_VARIANTS, fits_long
from soapjms.protocol.uri.model import JmsUri, Parameter
from soapjms.protocol.uri.reading import KEPT, parse, read
from soapjms.protocol.uri.showing import REDACTED, visible
from soapjms.protocol.uri.writing import build, canonical, checked, equivalent_destination, escape, rewrite

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
