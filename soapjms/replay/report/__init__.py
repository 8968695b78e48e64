"""The files made of a summary: summary.json, report.json, report.html, junit.xml.

Everything that comes from a log is hostile: `page.py` says how it stays text. Characters that a terminal, a browser or
an XML parser would act on are shown as escapes.
"""

from __future__ import annotations

from pathlib import Path

from soapjms.replay.report.junit import junit
from soapjms.replay.report.page import html
from soapjms.replay.report.rows import Row, rows
from soapjms.replay.report.stored import load, to_json
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary

__all__ = ["Row", "html", "junit", "load", "rows", "visible", "write"]


def write(summary: Summary, folder: Path) -> None:
    """Write the four files into a folder."""
    (folder / "report.html").write_text(html(summary), "utf-8")
    junit(summary).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
    (folder / "report.json").write_text(to_json(summary), "utf-8")
    (folder / "summary.json").write_text(summary.to_json(), "utf-8")
