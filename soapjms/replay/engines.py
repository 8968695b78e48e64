"""The engines that can run a replay, and the choice among them.

Nothing here imports an engine, or a package that an extra installs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

from soapjms.replay.errors import missing_spark_package
from soapjms.replay.uris import is_hadoops, shown

SPARK: Final = "spark"
LOCAL: Final = "local"
EXACT: Final = "exact"
EngineName: TypeAlias = Literal["spark", "local", "exact"]
ENGINES: Final[tuple[EngineName, ...]] = (SPARK, LOCAL, EXACT)
"""What may run a replay, with equal results: Spark; this machine, without Spark or Java; or this machine, judging each
exchange by itself instead of one for all that no rule tells apart."""

MAX_LOCAL_OCTETS: Final = 32 << 30
"""Size of logs, uncompressed, up to which this machine replays them without Spark unless the user chooses:
docs/replay.md says why."""

PACKAGES: Final = ("pyarrow", "jinja2", "duckdb", "msgspec", "fsspec")
"""The packages that every engine needs."""

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable by which spark-submit, which chose the master and runs the JVM, tells a program so."""

INSTALL_JAVA: Final = "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"


class EngineChoice(str):
    """The line that says which engine a replay runs on, and why; `progress` of a replay is called with it.

    Attributes:
        engine: the name of the engine, one of `ENGINES`.
    """

    __slots__ = ("engine",)

    engine: str

    def __new__(cls, engine: str, why: str) -> Self:
        """Make a line from the name of the engine and the reason."""
        made = super().__new__(cls, f"engine {engine}: {why}")
        made.engine = engine
        return made


def why_spark(arguments: Iterable[str], *, has_settings: bool) -> EngineChoice | None:
    """Choose Spark for a replay for which the user named no engine, if Spark is set up, or what others use; else None.

    Args:
        arguments: the logs and the folder for the results.
        has_settings: whether settings of Spark are given.
    """
    if has_settings:
        return EngineChoice(SPARK, "settings of Spark are given")
    if is_spark_here():
        return EngineChoice(SPARK, "this program runs in Spark")
    uri = next((each for each in arguments if is_hadoops(each)), None)
    return None if uri is None else EngineChoice(SPARK, f"{shown(uri)} is a URI of Hadoop")


def choose_engine(octets: int) -> EngineChoice:
    """Choose the engine for a replay if nothing but the size decides: on one machine, Spark is slower.

    Args:
        octets: the size of the logs, uncompressed.
    """
    if octets <= MAX_LOCAL_OCTETS:
        return EngineChoice(LOCAL, f"{_size(octets)} to read; Spark is for clusters, and for more than {LIMIT}")
    problem = spark_problem()
    if problem is not None:
        return EngineChoice(LOCAL, f"{_size(octets)} to read; Spark is for more than {LIMIT}, but {problem}")
    return EngineChoice(SPARK, f"{_size(octets)} to read; more than {LIMIT} are for Spark")


def is_spark_here() -> bool:
    """Say whether a Spark runs in this process, or spark-submit has started it."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return SUBMITTED in os.environ or getattr(context, "_active_spark_context", None) is not None


def spark_problem() -> str | None:
    """Say what Spark lacks on this machine, and how to install it; None if nothing."""
    missing = missing_spark_package()
    if missing is not None:
        return f"{missing} is not installed: pip install 'soapjms[spark]'"
    return java_problem()


def install_line() -> str | None:
    """Return what to type before any replay can run on this machine; None if nothing is missing."""
    return None if all(map(find_spec, PACKAGES)) else "pip install 'soapjms[replay]'"


def java_problem() -> str | None:
    """Say where Java was looked for in vain, and how to install it; None if it is there."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java"):
        return None
    where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
    return f"{where}. {INSTALL_JAVA}"


def _size(octets: int) -> str:
    unit, name = next((each for each in UNITS if octets >= each[0]), (1, "octets"))
    return f"{octets / unit:.3g} {name}" if unit > 1 else f"{octets} {name}"


UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
LIMIT: Final = f"{MAX_LOCAL_OCTETS >> 30} GiB"
