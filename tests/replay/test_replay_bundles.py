"""Records travel in bundles: all arrive, in order, whatever the memory, and answers where their requests are."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from soapjms.replay import bundles
from soapjms.replay.bundles import Bundler, Entry, bucket_of, in_order, pack_aliases, rekeyed, used_aliases

BUCKETS = 7


def entries(number: int) -> list[Entry]:
    """Make records of a few keys, with a key that no encoding has, in no order."""
    found = [(f"c-{n % 11}", n // 3, 0, n % 2, n, bytes(n % 50)) for n in range(number)]
    found.append(("\ud800", 0, 1, 0, 1, b"x"))
    random.Random(4).shuffle(found)
    return found


def bundled(bundler: Bundler) -> dict[int, list[bytes]]:
    """Take out the bundles of records by their buckets."""
    found = defaultdict(list)
    for each in bundler.take():
        if each.records is not None:
            found[each.bucket].append(each.records)
    return found


def test_the_records_of_a_bucket_come_out_in_order() -> None:
    """Those of a key are together, in order of time and place; all buckets together have all of them."""
    bundler, given = Bundler(BUCKETS), entries(500)
    for number, entry in enumerate(given):
        bundler.add(entry, answers=number % 3 == 0)
    found = bundled(bundler)
    ordered = {bucket: list(in_order(each)) for bucket, each in found.items()}
    assert sorted(entry for each in ordered.values() for entry in each) == sorted(given)
    for bucket, each in ordered.items():
        assert each == sorted(each)
        assert {bucket_of(entry[0], BUCKETS) for entry in each} == {bucket}
    assert bundled(bundler) == {}


def test_a_bucket_beyond_the_memory_is_put_in_order_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key on all messages gives one bucket with all of them: they come out the same."""
    given = [("one", n % 97, n % 3, n % 2, n, bytes(20)) for n in range(2000)]
    bundler = Bundler(BUCKETS)
    octets = []
    for number, entry in enumerate(given):
        bundler.add(entry, answers=False)
        if number % 100 == 99:
            octets += bundled(bundler)[bucket_of("one", BUCKETS)]
    assert len(octets) == 20
    monkeypatch.setattr(bundles, "MAX_SORTED_OCTETS", 5000)
    assert list(in_order(octets)) == sorted(given)


def test_a_bundler_says_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded by its octets."""
    monkeypatch.setattr(bundles, "MAX_HELD_OCTETS", 100)
    bundler = Bundler(BUCKETS)
    bundler.add(("a", 0, 0, 0, 1, bytes(99)), answers=False)
    assert not bundler.is_full
    bundler.add(("a", 0, 0, 0, 2, bytes(1)), answers=False)
    assert bundler.is_full
    list(bundler.take())
    assert not bundler.is_full


def test_an_answer_that_names_a_message_id_goes_to_its_request() -> None:
    """Only ids that some answer has are aliases; of several requests that announce one the smallest key counts."""
    bundler = Bundler(1)
    bundler.add(("c-2", 0, 0, 0, 1, b"request"), answers=False, announces="ID:1")
    bundler.add(("c-1", 1, 0, 0, 2, b"again"), answers=False, announces="ID:1")
    bundler.add(("c-3", 2, 0, 0, 3, b"other"), answers=False, announces="ID:2")
    bundler.add(("ID:1", 3, 0, 0, 4, b"answer"), answers=True)
    bundler.add(("c-3", 4, 0, 0, 5, b"usual"), answers=True)
    taken = list(bundler.take())
    used = used_aliases((each.answers, each.ids) for each in taken if each.ids is not None)
    assert used == {"ID:1": "c-1"}
    answers = [(each.bucket, each.records, pack_aliases(used)) for each in taken if each.answers and each.records]
    found = [entry for _, octets in rekeyed(answers, BUCKETS) for entry in in_order([octets])]
    assert {(entry[0], entry[-1]) for entry in found} == {("c-1", b"answer"), ("c-3", b"usual")}
    assert list(rekeyed([(bucket, octets, None) for bucket, octets, _ in answers], BUCKETS)) == [
        (bucket, octets) for bucket, octets, _ in answers
    ]
