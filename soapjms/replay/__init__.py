"""Replay: judge every exchange in capture logs, on this machine or on Spark.

The names here are imported when they are first used: importing the package needs none of the extra `replay`.

Spec: capture record, version 1.
"""

from typing import TYPE_CHECKING

from brokers.public_names import import_when_used

if TYPE_CHECKING:
    from soapjms.replay.engines import ENGINES, EngineChoice
    from soapjms.replay.errors import (
        NoInputError,
        ProcessLostError,
        SparkFailedError,
        SparkMissingError,
        StoreFailedError,
    )
    from soapjms.replay.run import replay
    from soapjms.replay.summary import Summary
    from soapjms.replay.terms import Progress
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "soapjms.replay.engines": "ENGINES EngineChoice",
            "soapjms.replay.errors": "NoInputError ProcessLostError SparkFailedError "
            "SparkMissingError StoreFailedError",
            "soapjms.replay.run": "replay",
            "soapjms.replay.summary": "Summary",
            "soapjms.replay.terms": "Progress",
        },
    )

__all__ = [
    "ENGINES",
    "EngineChoice",
    "NoInputError",
    "ProcessLostError",
    "Progress",
    "SparkFailedError",
    "SparkMissingError",
    "StoreFailedError",
    "Summary",
    "replay",
]
