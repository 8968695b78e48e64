"""Writing the files of a report into a folder: a new one, or one that holds the results of a replay already."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree.ElementTree import tostring

from soapjms.replay.report.junit import junit
from soapjms.replay.report.page import html
from soapjms.replay.report.stored import as_written, load, to_json
from soapjms.replay.summary import Summary


def write(summary: Summary, folder: Path) -> None:
    """Write all files that are made of a summary."""
    for name, text in _made(summary).items():
        (folder / name).write_text(text, "utf-8")
    (folder / "report.json").write_text(to_json(summary), "utf-8")
    (folder / "summary.json").write_text(summary.to_json(), "utf-8")


def rewrite(folder: Path) -> Summary:
    """Make the page and the JUnit file of a result folder again; each takes the place of the one before as a whole.

    Raises:
        UsageError: the folder holds no whole results of a replay.
        OSError: it cannot be written.
    """
    summary = load(folder)
    with as_written(folder):
        made = _made(summary)
    for name, text in made.items():
        beside = folder / f".{name}.new"
        try:
            beside.write_text(text, "utf-8")
            os.replace(beside, folder / name)
        finally:
            beside.unlink(missing_ok=True)
    return summary


def _made(summary: Summary) -> dict[str, str]:
    root = junit(summary).getroot()
    assert root is not None
    return {
        "report.html": html(summary),
        "junit.xml": '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, "unicode") + "\n",
    }
