"""The files made from a summary: summary.json, report.json, report.html, junit.xml.

All content of a log is untrusted: `page.py` says how it stays plain text. Control characters that a terminal, a browser
or an XML parser would act on are shown as escapes.
"""

from __future__ import annotations

from soapjms.replay.report.comparison import Comparison, check_comparable, compare
from soapjms.replay.report.files import load, rewrite, write
from soapjms.replay.report.junit import junit
from soapjms.replay.report.page import html, live
from soapjms.replay.report.tables import Row, rows
from soapjms.replay.report.texts import visible
from soapjms.replay.report.trend import trend

__all__ = [
    "Comparison",
    "Row",
    "check_comparable",
    "compare",
    "html",
    "junit",
    "live",
    "load",
    "rewrite",
    "rows",
    "trend",
    "visible",
    "write",
]
