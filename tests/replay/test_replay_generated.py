"""A generated log, of traffic as it really is, has the same results on Spark and without, in every form."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_logs import assert_equal, summary

from soapjms.generate import generate
from soapjms.replay import replay

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_spark")]


def compare(folder: Path, messages: int, forms: tuple[str, ...]) -> None:
    """Assert that both engines have the same rows and summary, of logs in each form."""
    for form in forms:
        generate(folder / form, messages, form=form, broken=0.1, rotation=messages * 300)
        for engine in ("local", "spark"):
            replay(folder / form / "logs", folder / f"{form}-{engine}", engine=engine)
        assert_equal(folder / f"{form}-local", folder / f"{form}-spark")
        assert_equal(folder / f"{form}-local", folder / f"{forms[0]}-local")
    assert summary(folder / f"{forms[0]}-spark")["messages"] == messages


def test_a_thousand_messages(tmp_path: Path) -> None:
    """In several files, of JSON Lines with gzip and of Parquet."""
    compare(tmp_path, 1000, ("gzip", "parquet"))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_messages(tmp_path: Path) -> None:
    """In all forms."""
    compare(tmp_path, 100_000, ("jsonl", "gzip", "parquet"))
