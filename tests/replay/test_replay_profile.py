"""`profile="auto"`: which edition a run judges by, told by WSDLs or by the faults in its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from replay_logs import CXF, TO_CLIENT, at, fault, request, response, rows, summary, write_log

from brokers.message import MessageType, properties
from soapjms.cli.commands import soapjms
from soapjms.protocol.content import gzipped
from soapjms.protocol.envelope import build_fault, serialize
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import CR_2009, CR_NAMESPACE, REC_2012, REC_NAMESPACE, Profile, SoapVersion, Subcode
from soapjms.protocol.record import Direction, Record, capture
from soapjms.replay import replay
from soapjms.wsdl import read_wsdl

WSDL = CXF.parent / "wsdl" / "echo-soap11.wsdl"


def wsdl_of(profile: Profile, folder: Path) -> Path:
    """Write a WSDL that follows an edition."""
    path = folder / f"{profile.name}.wsdl"
    path.write_text(WSDL.read_text("utf-8").replace(REC_NAMESPACE, profile.namespace), "utf-8")
    return path


def chosen(folder: Path, *records: Record, **options: Any) -> tuple[str, Any]:
    """Replay and return the profile, with what chose it."""
    log = write_log(folder / "log.jsonl", *records)
    log.write_text(log.read_text("utf-8") or "\n", "utf-8")  # an empty file is no log
    replay(log, folder / "out", "auto", "local", **options)
    members = summary(folder / "out")
    return members["profile"], members["profileChosen"]


GZIPPED = {"body": gzipped(serialize(build_fault(SoapVersion.SOAP_11, "no", subcode=Subcode.MISSING_CONTENT_TYPE)))}


@pytest.mark.parametrize(
    ("records", "profile", "by", "of_2009", "of_2012"),
    [
        ([fault(1, CR_2009)], "cr-2009", "faults", 1, 0),
        ([fault(1, REC_2012)], "rec-2012", "faults", 0, 1),
        ([fault(1, CR_2009, SoapVersion.SOAP_12)], "cr-2009", "faults", 1, 0),
        ([fault(1, REC_2012), fault(2, CR_2009), fault(3, CR_2009)], "cr-2009", "faults", 2, 1),
        ([fault(1, REC_2012), fault(2, CR_2009)], "rec-2012", "default", 1, 1),
        ([capture(request(1), at(1)), capture(response(1), at(2))], "rec-2012", "default", 0, 0),
        ([], "rec-2012", "default", 0, 0),
        # what it takes to see the fault: a body that may be packed, of any kind; nothing of a request
        ([fault(1, REC_2012, **GZIPPED, more={"SOAPJMS_contentEncoding": "gzip"})], "rec-2012", "faults", 0, 1),
        ([fault(1, CR_2009, body="<e/>", message_type=MessageType.TEXT)], "rec-2012", "default", 0, 0),
        ([fault(1, CR_2009, body=b"\xff" * 100)], "rec-2012", "default", 0, 0),
        ([capture(fault(1, CR_2009).message, at(1), Direction.REQUEST)], "rec-2012", "default", 0, 0),
        ([capture(fault(1, CR_2009).message, at(1), Direction.ONE_WAY)], "rec-2012", "default", 0, 0),
    ],
)
def test_faults_tell(tmp_path: Path, records: list[Record], profile: str, by: str, of_2009: int, of_2012: int) -> None:
    """The edition that more faults are of; the default where the logs do not tell."""
    name, how = chosen(tmp_path, *records)
    assert name == profile
    assert (how["by"], how["faults"]) == (by, {"cr-2009": of_2009, "rec-2012": of_2012})
    assert how["text"] in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_what_is_chosen_is_judged_by(tmp_path: Path) -> None:
    """The whole log is: a call is correlated as of 2009, and a fault of the other edition has the wrong shape."""
    calls = [(request(n), response(n, correlation_id=f"ID:client-{n}")) for n in range(3)]
    records = [capture(each, at(n)) for n, call in enumerate(calls) for each in call]
    records += [fault(7, CR_2009), fault(8, CR_2009), fault(9, REC_2012)]
    chosen(tmp_path, *records)
    found = [(row["assertion"], row["message_id"]) for row in rows(tmp_path / "out", "verdicts") if row["reason"]]
    assert summary(tmp_path / "out")["assertions"]["Protocol-2038"]["passed"] == 3
    assert [name for name, message in found if message == "ID:service-9" and name == "Local-2.8-shape"]
    assert not [name for name, message in found if message == "ID:service-8" and name == "Local-2.8-shape"]


def test_a_wsdl_tells_before_faults_do(tmp_path: Path) -> None:
    """What senders were given is better known than what came back."""
    senders = read_wsdl(wsdl_of(CR_2009, tmp_path))
    assert CR_NAMESPACE in wsdl_of(CR_2009, tmp_path).read_text("utf-8")
    name, how = chosen(tmp_path, fault(1, REC_2012), senders=[senders, "jms:queue:a"])
    assert (name, how["by"]) == ("cr-2009", "WSDL")
    assert "the edition of the WSDL" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_wsdls_of_both_editions_are_a_mistake(tmp_path: Path) -> None:
    """Nobody but the user can tell then."""
    senders = [read_wsdl(wsdl_of(each, tmp_path)).port() for each in (CR_2009, REC_2012)]
    with pytest.raises(UsageError, match=r"the WSDLs follow cr-2009 and rec-2012; name the profile to judge by"):
        chosen(tmp_path, senders=senders)


def test_who_names_a_profile_gets_it(tmp_path: Path) -> None:
    """Whatever the faults say; and nothing is said of a choice."""
    log = write_log(tmp_path / "log.jsonl", fault(1, CR_2009))
    replay(log, tmp_path / "out", "rec-2012", "local")
    members = summary(tmp_path / "out")
    assert (members["profile"], members["profileChosen"]) == ("rec-2012", None)


def test_the_command_line(tmp_path: Path) -> None:
    """It says which profile was chosen, and why."""
    log = write_log(tmp_path / "log.jsonl", fault(1, CR_2009))
    arguments = ["replay", str(log), "--out", str(tmp_path / "out"), "--local", "--profile", "auto"]
    done = CliRunner().invoke(soapjms, arguments, env={"COLUMNS": "200"})
    assert "by profile cr-2009 (the edition of most faults in the logs)" in done.stdout


# Lookup variants

BARE = {"SOAPJMS_bindingVersion": "1.0", "SOAPJMS_contentType": "text/xml"}


def test_variants_that_services_support(tmp_path: Path) -> None:
    """A vendor's lookup variant that is served breaks Protocol-2071, unless the services are said to support it."""
    uri = {"SOAPJMS_requestURI": "jms:vnd.example:greeter"}
    records = [
        capture(request(1, properties=properties({**BARE, **uri})), at(1)),
        capture(response(1, properties=properties({**TO_CLIENT, **uri})), at(2)),
    ]
    log = write_log(tmp_path / "log.jsonl", *records)
    arguments = ["replay", str(log), "--out", str(tmp_path / "out"), "--local"]
    assert CliRunner().invoke(soapjms, arguments).exit_code == 1
    members = summary(tmp_path / "out")
    assert (members["assertions"]["Protocol-2071"]["failed"], members["reactions"]["disagree"]) == (1, 1)
    assert members["assertions"]["Protocol-2071"]["level"] == "MUST"
    assert CliRunner().invoke(soapjms, [*arguments, "--variant", "vnd.example"]).exit_code == 0
    members = summary(tmp_path / "out")
    assert (members["assertions"]["Local-2.2.1-supported"]["passed"], members["reactions"]["agree"]) == (1, 1)
    replay(log, tmp_path / "out", engine="local", variants="vnd.example")
    assert summary(tmp_path / "out") == members


@pytest.mark.parametrize("given", ["", "a b:", ["queue", "a:b"], ["a/b"], [None]])
def test_what_is_no_variant(tmp_path: Path, given: Any) -> None:
    """A variant is what may stand there in a URI."""
    with pytest.raises(UsageError, match="a lookup variant must be a name that can follow jms:"):
        replay(CXF, tmp_path / "out", engine="local", variants=given)
