"""The test vectors as the tests read them: exchanges in capture-log form, with what each profile calls for.

A record of a case is a record of `base.json` with a patch over it (RFC 7386: null removes). An expected verdict is the
outcome of an assertion; a list of them, in the order request, response, both together, where it is judged more than
once; null where the edition has no such assertion.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from places import VECTORS as VECTORS_FOLDER

from soapjms.protocol.assertions import ASSERTIONS, Assertion, Setting
from soapjms.protocol.exchange import Exchange, exchanges_of
from soapjms.protocol.names import EDITIONS, Mep
from soapjms.protocol.properties import Effective, Origin, resolve
from soapjms.protocol.record import from_members
from soapjms.protocol.uri import parse

FOLDER = VECTORS_FOLDER
BASE = json.loads((FOLDER / "base.json").read_text("utf-8"))
VECTORS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json")) if "-" in path.stem}
MEPS = {"request-response": Mep.REQUEST_RESPONSE, "one-way": Mep.ONE_WAY}


def patched(value: Any, patch: Any) -> Any:
    """Put a patch over a value: members of objects one by one, null removes, anything else replaces."""
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    merged = {name: patched(value.get(name), each) for name, each in patch.items() if each is not None}
    return {name: each for name, each in value.items() if name not in patch} | merged


def members_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the whole record that a case's patch stands for."""
    patch = {name: each for name, each in record.items() if name != "base"}
    members: dict[str, Any] = patched(BASE[record["base"]], patch)
    return members


def setting_of(case: dict[str, Any], profile: str) -> Setting:
    """Make the setting of a case: strict, mep, variants, and what the sender was given.

    That is the URI, the elements of a WSDL by level, and as `properties` what the environment sets.
    """
    given = case.get("setting", {})
    return Setting(
        profile=EDITIONS[profile],
        strict=given.get("strict", False),
        mep=MEPS.get(given.get("mep")),
        properties=given_properties(given) if given.keys() & {"properties", "uri", "wsdl"} else None,
        **({"variants": frozenset(given["variants"])} if "variants" in given else {}),
    )


def given_properties(given: dict[str, Any]) -> Effective:
    """Work out what a sender's URI, WSDL and environment come to."""
    uri = parse(given["uri"]) if "uri" in given else None
    wsdl = {Origin(level): elements for level, elements in given.get("wsdl", {}).items()}
    return resolve(uri, given.get("properties", {}), wsdl)


def exchange_of(case: dict[str, Any]) -> Exchange:
    """Pair the records of a case, as an engine does; they are one exchange."""
    return paired([members_of(each) for each in case["records"]])


def paired(members: list[dict[str, Any]]) -> Exchange:
    """Pair whole records that are one exchange."""
    (exchange,) = exchanges_of(from_members(each) for each in members)
    return exchange


def cases_of(vector: str) -> list[tuple[dict[str, Any], str]]:
    """Return every case of a vector, with each profile."""
    return [(case, profile) for case in VECTORS[vector]["cases"] for profile in EDITIONS]


CASES = [each for vector in VECTORS for each in cases_of(vector)]


def of_each_case(check: Callable[[dict[str, Any], str], None]) -> Callable[[str], None]:
    """Make a test for each vector of a check of one case; a failure names the case.

    A test for each case would take longer to collect and report than to run.
    """

    @pytest.mark.parametrize("vector", VECTORS)
    def test(vector: str) -> None:
        for case, profile in cases_of(vector):
            try:
                check(case, profile)
            except BaseException as error:
                error.add_note(f"{vector}: {case['description']} ({profile})")
                raise

    test.__doc__ = check.__doc__
    return test


OWNERS = {
    profile.name: Counter(profile.assertion_id(row.id) for row in ASSERTIONS if row.check is not None)
    for profile in EDITIONS.values()
}


def shows(row: Assertion, case: dict[str, Any]) -> set[str]:
    """Return how an assertion ends in a case, in the editions where it has an id of its own."""
    outcomes = set()
    for profile in EDITIONS.values():
        name = profile.assertion_id(row.id)
        if name is not None and OWNERS[profile.name][name] == 1:
            named = case["expected"][profile.name]["verdicts"][name]
            outcomes.update(named if isinstance(named, list) else [named])
    return outcomes
