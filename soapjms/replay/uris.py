"""URIs of logs and results: which arguments are URIs, and who opens them."""

from __future__ import annotations

import re
from typing import Final

URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
HERE: Final = "file://"
"""How URIs of files on this machine begin."""
HADOOP_SCHEMES: Final = frozenset({"hdfs", "viewfs", "s3a", "s3n", "wasb", "wasbs", "ofs", "o3fs"})
"""Schemes that Hadoop made: who uses them has it. fsspec knows some of them too."""


def is_elsewhere(argument: str) -> bool:
    """Say whether an argument is a URI, and not a file name."""
    return URI.match(argument) is not None


def is_hadoops(argument: str) -> bool:
    """Say whether an argument is a URI of Hadoop's own."""
    scheme = URI.match(argument)
    return scheme is not None and scheme[1].lower() in HADOOP_SCHEMES


def without_query(name: str) -> str:
    """Return a name, without the query if it is an address of the web: a signed one has its login there."""
    return name.partition("?")[0] if name.startswith(("http://", "https://")) else name
