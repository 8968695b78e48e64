"""The environment variables that connections read, with the names that they had before: one table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from brokers import events

USER: Final = "SOAPJMS_USER"
PASSWORD: Final = "SOAPJMS_PASSWORD"  # noqa: S105  # a name
PASSWORD_FILE: Final = "SOAPJMS_PASSWORD_FILE"  # noqa: S105  # a name
CA_FILE: Final = "SOAPJMS_CA_FILE"
CERT_FILE: Final = "SOAPJMS_CERT_FILE"
KEY_FILE: Final = "SOAPJMS_KEY_FILE"
KEY_PASSWORD_FILE: Final = "SOAPJMS_KEY_PASSWORD_FILE"  # noqa: S105  # a name

OLD_NAMES: Final[Mapping[str, str]] = {
    USER: "BROKERS_USER",
    PASSWORD: "BROKERS_PASSWORD",
    PASSWORD_FILE: "BROKERS_PASSWORD_FILE",
    CA_FILE: "BROKERS_CA_FILE",
    CERT_FILE: "BROKERS_CERT_FILE",
    KEY_FILE: "BROKERS_KEY_FILE",
    KEY_PASSWORD_FILE: "BROKERS_KEY_PASSWORD_FILE",
}
"""All variables, each with its old name, which is still read."""


def variable(environment: Mapping[str, str], name: str) -> str | None:
    """Return the value of a variable of `OLD_NAMES`, by its old name if it is not set; None if neither is.

    The first use of an old name is logged as a warning, which tells all old names that are set.
    """
    used = name_in(environment, name)
    if used is None:
        return None
    if used != name:
        told = [each for each, old in OLD_NAMES.items() if name_in(environment, each) == old]
        _warn(", ".join(OLD_NAMES[each] for each in told), ", ".join(told))
    return environment[used]


def name_in(environment: Mapping[str, str], name: str) -> str | None:
    """Return the name by which a variable is set: this one or its old one; None if it is not set."""
    return next((each for each in (name, OLD_NAMES[name]) if each in environment), None)


@cache
def _warn(old: str, new: str) -> None:
    """Log once that names are old."""
    events.ENVIRONMENT_OLD_NAME.log(old, new)
