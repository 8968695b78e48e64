"""The records that were read and are not judged yet: a database in the checkpoint.

It also has the state after the last step. Both change in one transaction, which ends the step: one that the database
does not know was not done, whatever files there are of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from soapjms import __version__
from soapjms.protocol.errors import UsageError
from soapjms.replay import plan
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.contents import CONTENTS
from soapjms.replay.facts import FACTS, LINE_BITS, MARKUPS, found, seen
from soapjms.replay.flat_records import microseconds
from soapjms.replay.follower.results import FollowResults
from soapjms.replay.output import sync
from soapjms.replay.parquet import to_batch
from soapjms.replay.shapes import READ_NAMES, short_digest

MEMORY_LIMIT: Final = "512MB"
"""Memory of each of the two databases of a run."""
HELD: Final = pa.schema([*CONTENTS, ("log", pa.string())])
"""A record with its number and the name of its log."""
POSITIONED: Final = pa.schema([*HELD, ("position", pa.int64())])
"""The same with a number in the order of the logs."""
ROWS: Final = pa.schema([("row", pa.int64())])
STATE: Final = pa.schema([("state", pa.string()), ("facts", pa.string())])
"""The state after the last step, and what the facts were computed by: `FACTS_DIGEST`."""
FORMAT: Final = "held records"
"""The name of the term of a checkpoint that says in which form it holds records."""
_QUERIES: Final = (seen(with_markup=True), MARKUPS, found(with_shapes=True, by_destination=True))
FACTS_DIGEST: Final = short_digest(repr([__version__, FACTS, sorted(READ_NAMES), _QUERIES]))
"""Differs if facts are found in another way by the queries; the version of this program tells the rest."""
TABLES: Final = {"held_facts": FACTS, "held_contents": HELD, "state": STATE}

FORMER: Final = "SELECT row, key, by_alias, announces, false AS is_plain, time FROM held_facts"
FACTS_HERE: Final = "FROM held_facts UNION ALL FROM new_facts"
CONTENTS_HERE: Final = "FROM held_contents UNION ALL FROM new_contents"
PLACED_HERE: Final = f"""
WITH facts AS MATERIALIZED (SELECT row, key, by_alias, announces, time FROM ({FACTS_HERE}) AS here),
aliases AS MATERIALIZED ({plan.ALIASES}), placed AS MATERIALIZED ({plan.PLACED})
"""
LARGE: Final = "SELECT record_file FROM held_contents WHERE record_file IS NOT NULL"
WANTED: Final = f"""
WITH found AS (SELECT here.* FROM ({CONTENTS_HERE}) AS here SEMI JOIN wanted USING (row)),
-- In the order of a replay: files in the order of their paths, a folder's name before longer names.
logs AS (
    SELECT log, row_number() OVER (ORDER BY translate(log, '/', chr(1))) AS number
    FROM (SELECT DISTINCT log FROM ({CONTENTS_HERE}) AS here)
)
SELECT found.*, (number << {LINE_BITS}) + line AS position FROM found JOIN logs USING (log)
"""


class HeldRecords:
    """The records, of steps that were done, and those that are new.

    Args:
        folder: the folder of the database; made if it does not exist.

    Attributes:
        large: the folder of large records; see `contents.py`.

    Raises:
        UsageError: the database cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.large = folder / "large"
        self.large.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("columns-*"):  # by a killed run
            shutil.rmtree(left)
        try:
            self._store = ColumnStore(folder, memory=MEMORY_LIMIT)
        except duckdb.Error as error:
            raise UsageError(
                f"the records in {folder} cannot be read: {error}; name another --checkpoint to begin anew"
            ) from None
        if not self._store.fetch("SELECT table_name FROM duckdb_tables() WHERE table_name = 'state'"):
            with self._store.transaction():
                for name, columns in TABLES.items():
                    self._store.create(name, columns)
        self._distrust_facts()
        self.forget_new()

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def _distrust_facts(self) -> None:
        """Have the records judged by themselves whose facts another version of this program computed."""
        if self._store.fetch("SELECT facts FROM state") not in ([], [(FACTS_DIGEST,)]):
            with self._store.transaction():
                self._store.define("former", FORMER)
                self._store.create("held_facts", FACTS)
                self._store.insert_from("held_facts", "BY NAME FROM former")
                self._store.drop("former")

    def done(self) -> FollowResults:
        """Return the state after the last step."""
        found = self._store.fetch("SELECT state FROM state")
        return FollowResults.from_json(found[0][0]) if found else FollowResults()

    def parts(self) -> set[int]:
        """Return the numbers of the parts of logs that records are held of."""
        return {part for (part,) in self._store.fetch(f"SELECT DISTINCT row >> {LINE_BITS} FROM held_facts")}

    def add(self, facts: pa.Table, contents: pa.Table) -> None:
        """Add new records, until they are forgotten, or the end of the step.

        Args:
            facts: their facts.
            contents: themselves, rows of `HELD`, among others.
        """
        self._store.lend("new_facts", facts)
        self._store.lend("new_contents", contents)

    def forget_new(self) -> None:
        """Forget the records that were added and are not held."""
        self.add(FACTS.empty_table(), HELD.empty_table())
        held = {name for (name,) in self._store.fetch(LARGE)}
        for each in self.large.iterdir():
            if each.name not in held:
                each.unlink()

    # What there is

    def number(self) -> int:
        """Return how many records there are."""
        ((number,),) = self._store.fetch(plan.number_of(FACTS_HERE))
        return int(number)

    def over(self, limit: datetime | None) -> pa.Table:
        """Return the numbers of the records of places without one from a time on, as rows of `ROWS`."""
        if limit is None:
            return ROWS.empty_table()
        query = f"""
{PLACED_HERE}, places AS (SELECT place FROM placed GROUP BY place HAVING max(time) < {microseconds(limit)})
SELECT row FROM placed SEMI JOIN places USING (place)
"""
        return self._store.table(query, ROWS)

    def crowded(self, limit: datetime, until: datetime, at_least: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield the places that have many records from before a time, and not more since.

        Args:
            limit: the time.
            until: records of this time or later are left out.
            at_least: the number of records that are many.

        Yields:
            the place, and the numbers of its records, rows of `ROWS`.
        """
        old, end = microseconds(limit), microseconds(until)
        query = f"""
{PLACED_HERE}, places AS (
    SELECT place FROM placed GROUP BY place
    HAVING max(time) >= {old} AND count(*) FILTER (time < {old})
        >= greatest({at_least}, count(*) FILTER (time >= {old} AND time < {end}))
)
SELECT place, row FROM placed SEMI JOIN places USING (place) WHERE time < {end} ORDER BY place
"""
        for place, rows in groupby(self._store.fetch(query), key=itemgetter(0)):
            yield place, pa.table([pa.array((row for _, row in rows), pa.int64())], ROWS)

    def facts(self, rows: pa.Table | None) -> Iterator[pa.RecordBatch]:
        """Yield the facts of some records, rows of `ROWS`, or of all."""
        if rows is None:
            return self._store.batches(FACTS_HERE, FACTS)
        self._store.lend("wanted", rows)
        return self._store.batches(f"SELECT here.* FROM ({FACTS_HERE}) AS here SEMI JOIN wanted USING (row)", FACTS)

    def contents(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield some records, rows of `ROWS`, as rows of `POSITIONED`."""
        self._store.lend("wanted", rows)
        return self._store.batches(WANTED, POSITIONED)

    def commit(self, over: pa.Table, done: FollowResults) -> None:
        """End a step: hold the new records too, but none that are over.

        Args:
            over: the numbers of these, rows of `ROWS`.
            done: the state after the step.
        """
        sync(self.large)
        store = self._store
        store.lend("over", over)
        with store.transaction():
            for name in ("held_facts", "held_contents"):
                store.delete(name, "row IN (FROM over)")
            store.insert_from("held_facts", "FROM new_facts ANTI JOIN over USING (row)")
            store.insert_from(
                "held_contents", "FROM new_contents SEMI JOIN new_facts USING (row) ANTI JOIN over USING (row)"
            )
            store.delete("state", "true")
            store.insert("state", to_batch([(done.to_json(), FACTS_DIGEST)], STATE))
        sync(self.large.parent)
        self.forget_new()
