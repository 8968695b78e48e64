"""junit.xml as the readers of CI servers take it: known elements and attributes only, and numbers that add up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from replay_logs import CXF, bad_logs, summary
from report_kit import attacks

from soapjms.protocol.assertions.model import assertion_of
from soapjms.replay import replay


class Kind(NamedTuple):
    """What Jenkins' schema (xunit-plugin, junit-10.xsd) lets stand in an element, of what we write."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()


def words(text: str) -> frozenset[str]:
    """Split a text."""
    return frozenset(text.split())


SCHEMA = {
    "testsuites": Kind(words(""), words("name time tests failures errors"), words("testsuite")),
    "testsuite": Kind(
        words("name tests failures errors"),
        words("group time skipped timestamp hostname id package file log url version"),
        words("properties testcase system-out system-err"),
    ),
    "testcase": Kind(
        words("name"), words("time classname group"), words("skipped error failure system-out system-err")
    ),
    "skipped": Kind(words(""), words("type message")),
    "error": Kind(words(""), words("type message")),
    "failure": Kind(words(""), words("type message")),
    "system-out": Kind(words("")),
    "system-err": Kind(words("")),
}


def assert_known(element: Element) -> None:
    """Assert that an element and all in it are as the schema says."""
    kind = SCHEMA[element.tag]
    assert kind.required <= element.attrib.keys() <= kind.required | kind.optional
    assert {child.tag for child in element} <= kind.children
    if kind.children:
        assert not (element.text or "").strip()
    for child in element:
        assert_known(child)


def cxf(folder: Path) -> Path:
    """Return the traffic of another stack."""
    return CXF


@pytest.mark.parametrize(("log", "errors"), [(cxf, 0), (bad_logs, 1), (attacks, 1)])
def test_the_file_is_as_ci_servers_have_it(
    tmp_path: Path, log: Callable[[Path], Path | list[Path]], errors: int
) -> None:
    """Whatever the logs hold: only what the schema knows, counts that are right, an error for rejected records."""
    done = replay(log(tmp_path), tmp_path / "out", engine="local")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert root.tag == "testsuites"
    assert_known(root)
    members = summary(tmp_path / "out")
    assert len(root) == len(members["parties"]) + 1
    for suite in root:
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.attrib[name] == str(len(list(suite.iter(tag))))
        names = [each.attrib["name"] for each in suite]
        assert len(set(names)) == len(names)
    assert {assertion_of(each.attrib["name"]) for each in root.iter("testcase")} == {
        *members["assertions"],
        "records can be read",
    }
    for name in ("tests", "failures", "errors"):
        assert int(root.attrib[name]) == sum(int(suite.attrib[name]) for suite in root)
    assert int(root.attrib["errors"]) == errors
    assert (int(root.attrib["failures"]) + errors > 0) is (done.exit_status == 1)
    for error in root.iter("error"):
        assert str(done.members["rejected"]) in error.attrib["message"]
        assert done.rejects[0].reason[:20] in (error.text or "")
