"""Arguments that name logs and results: which are URIs, who opens these, and how they are shown."""

from __future__ import annotations

import os
import re
from typing import Final

from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri.redact import without_user_info

URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
HERE: Final = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
"""How URIs of files on this machine begin, before the path."""
WEB: Final = re.compile(r"https?://", re.IGNORECASE)
HADOOP_SCHEMES: Final = frozenset({"hdfs", "viewfs", "s3a", "s3n", "wasb", "wasbs", "ofs", "o3fs"})
"""Schemes that Hadoop made: who uses them has it. fsspec knows some of them too."""
BUCKET_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs"})
"""Schemes of URIs that have the name of a bucket or container, and no login."""


def is_elsewhere(argument: str) -> bool:
    """Say whether an argument is a URI, and not a file name."""
    return URI.match(argument) is not None


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in small letters."""
    found = URI.match(uri)
    return "" if found is None else found[1].lower()


def is_hadoops(argument: str) -> bool:
    """Say whether an argument is a URI of Hadoop's own."""
    return scheme_of(argument) in HADOOP_SCHEMES


def without_here(argument: str) -> str:
    """Return the path of a file or folder of this machine that is named by URI; other arguments as they are.

    Raises:
        UsageError: the URI has no whole path.
    """
    if scheme_of(argument) == "file" and not HERE.match(argument):
        raise UsageError(f"{shown(argument)}: a URI of a file on this machine begins with file:/// and its whole path")
    return HERE.sub("", argument, count=1) if HERE.match(argument) else argument


def without_query(name: str) -> str:
    """Return a name, without the query if it is an address of the web: a signed one has its login there."""
    return name.partition("?")[0] if WEB.match(name) else name


def shown(name: str) -> str:
    """Return an argument, or the name of a file, for display, without the login of a URI.

    Octets that are not UTF-8 become backslash escapes.
    """
    text = os.fsencode(without_query(name)).decode("utf-8", "backslashreplace")
    authority = text.partition("://")[2].partition("/")[0]
    return text if scheme_of(text) in BUCKET_SCHEMES and ":" not in authority else without_user_info(text)
