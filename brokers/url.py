"""The settings that all adapters read alike: from the URL of one broker, the environment, and the program's arguments.

What the program passes overrides the URL, which overrides the environment. An argument that is None or empty, or a
field of `tls` or `reconnect` that has its default, does not count as passed. User and password come from any of the
three, or from a file. No secret appears in a repr, log or pickle, and no error text repeats what may be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from brokers.arguments import is_number
from brokers.environment import (
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    KEY_PASSWORD_FILE,
    PASSWORD,
    PASSWORD_FILE,
    USER,
    variable,
)
from brokers.errors import UsageError
from brokers.network_schemes import NETWORK_SCHEMES, scheme_of
from brokers.tls import Tls

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password, each None if there is none. They are not shown in a repr and cannot be pickled."""

    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials cannot be pickled: they would be in a file or on a network in plain text")


Ask: TypeAlias = Callable[[], Credentials]
"""Returns the credentials; called on the connecting thread at every attempt, so that secrets may change."""

NOBODY: Final = Credentials()


def from_file(user: str | None, file: Path) -> Ask:
    """Return a function that reads the password from a file at every attempt, without one trailing line end."""

    def ask() -> Credentials:
        try:
            text = file.read_text("utf-8", "surrogateescape")  # which `credentials_of` refuses
        except OSError as error:
            said = f"the file of the password (passwordFile, {PASSWORD_FILE}) cannot be read: {error.strerror}"
            raise OSError(error.errno, said, error.filename) from None
        return Credentials(user, text.removesuffix("\n").removesuffix("\r"))

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlForm:
    """The form of the URLs of one adapter.

    Attributes:
        title: what an error text calls such a URL, with its article.
        schemes: the schemes; see `brokers.network_schemes`.
        with_path: schemes whose URLs may have a path.
        options: names of the parameters; with TLS also `TLS_OPTIONS`.
        list_options: names of those that hold for a list of brokers, and are read before its URLs are.
    """

    title: str
    schemes: tuple[str, ...]
    with_path: frozenset[str] = frozenset()
    options: tuple[str, ...]
    list_options: tuple[str, ...] = ()

    @property
    def example(self) -> str:
        """The advice of error texts: what to write."""
        return "write " + " or ".join(f"{scheme}://USER:PASSWORD@HOST:PORT" for scheme in self.schemes)

    @property
    def the_title(self) -> str:
        """The title with the definite article."""
        return f"the {self.title.partition(' ')[2]}"


def flag(value: str) -> bool:
    """Parse `true` or `false`; raise KeyError for anything else."""
    return {"true": True, "false": False}[value]


TLS_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object], str | None]]] = {
    "caFile": ("ca_file", Path, CA_FILE),
    "certFile": ("cert_file", Path, CERT_FILE),
    "keyFile": ("key_file", Path, KEY_FILE),
    "keyPasswordFile": ("key_password_file", Path, KEY_PASSWORD_FILE),
    "serverName": ("server_name", str, None),
    "verify": ("verify", flag, None),
}
"""Parameters of a URL with TLS: attribute of `Tls`, parser of the value, and environment variable if there is one."""


def split(url: str, form: UrlForm) -> SplitResult:
    """Split a URL into its parts.

    Raises:
        UsageError: it cannot be parsed, has a path that is not allowed, a fragment, or no host.
    """
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None:  # raised outside the block, without the context, which repeats the part before the host
        raise UsageError(f"{form.the_title} cannot be parsed, check its host; {form.example}")
    has_path = parts.path not in ("", "/") and parts.scheme.lower() not in form.with_path
    if has_path or parts.fragment:  # not shown: it may be the end of a password
        raise UsageError(
            f"{form.title} must end with the port or with parameters; {form.example}, "
            "with /, ? and # in user and password percent-encoded"
        )
    if not parts.hostname:
        raise UsageError(f"{form.the_title} must name a host; {form.example}")
    return parts


def port_of(parts: SplitResult, form: UrlForm) -> int:
    """Return the port of a URL, or that of its scheme.

    Raises:
        UsageError: it is not a number from 1 to 65535.
    """
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:  # nothing listens there
        raise UsageError(f"the port in {form.the_title} must be a number from 1 to 65535; {form.example}")
    return port or NETWORK_SCHEMES[parts.scheme.lower()].port


LEAST_LIKENESS: Final = 0.8
"""Share of its characters that an unknown parameter has in common with a known one, from which on it is shown."""


def options_of(parts: SplitResult, form: UrlForm) -> dict[str, str]:
    """Parse the parameters; `+` stands for itself, not for a blank.

    Raises:
        UsageError: a parameter is unknown or has no value.
    """
    known = (*form.options, *(TLS_OPTIONS if NETWORK_SCHEMES[parts.scheme.lower()].is_secure else ()))
    found: dict[str, str] = {}
    for each in filter(None, parts.query.split("&")):
        name, _, value = each.partition("=")
        if name not in known or not value:
            raise UsageError(
                f"{form.title} has {_mistake(name, known, form)}; known are: "
                f"{', '.join((*known, *form.list_options))}. "
                "A ? in user and password must be percent-encoded"
            )
        found[name] = unquote(value)
    return found


def _mistake(name: str, known: Sequence[str], form: UrlForm) -> str:
    """Say what is wrong with a parameter, whose name is shown only if it is like a known one.

    Any other may be the end of a password, since a ? there begins a query too.
    """
    if name in known:
        return f"no value for {name}"
    if name in form.list_options:
        return f"the parameter {name} within a list, to which it belongs, as in failover:(…)?{name}=…"
    near = get_close_matches(name, (*known, *form.list_options), n=1, cutoff=LEAST_LIKENESS)
    return f"an unknown parameter {name!r} (did you mean {near[0]}?)" if near else "an unknown parameter"


SettingsT = TypeVar("SettingsT", bound="DataclassInstance")


def completed(given: SettingsT, found: Mapping[str, Any]) -> SettingsT:
    """Return the program's settings, with values from the URL in the fields that have their default."""
    usual = type(given)()
    return replace(
        given, **{name: each for name, each in found.items() if getattr(given, name) == getattr(usual, name)}
    )


def ask_of(
    parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Credentials | Ask | None
) -> Ask:
    """Return the source of user and password: the program, the URL, or the environment.

    Raises:
        UsageError: the program and the URL both give credentials, the URL has two passwords, or `given` is neither
            credentials nor a function; the text does not repeat it.
    """
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if given is not None:
        if user is not None or password is not None or "passwordFile" in options:
            raise UsageError("credentials must be either given or in the URL, got both")
        if not isinstance(given, Credentials) and not callable(given):
            raise UsageError(
                "credentials must be brokers.stomp.Credentials(USER, PASSWORD), or a function that returns them, got "
                f"an object of the class {type(given).__name__}"
            )
        who = given
        return (lambda: who) if isinstance(who, Credentials) else who
    if "passwordFile" in options:
        if password is not None:
            raise UsageError("the URL must have either a password or a passwordFile, got both")
        return from_file(user if user is not None else variable(environment, USER), Path(options["passwordFile"]))
    if user is None and password is None:
        return _of_environment(environment)
    found = Credentials(user, password)
    return lambda: found


def _of_environment(environment: Mapping[str, str]) -> Ask:
    user, file = variable(environment, USER), variable(environment, PASSWORD_FILE)
    if file is not None:
        return from_file(user, Path(file))
    found = Credentials(user, variable(environment, PASSWORD))
    return (lambda: NOBODY) if found == NOBODY else lambda: found


def tls_of(
    parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Tls | None, form: UrlForm
) -> Tls | None:
    """Return the TLS settings, or None for a scheme without TLS.

    Raises:
        UsageError: `given` is set for a scheme without TLS, or is something else than settings, or a parameter is
            invalid.
    """
    if given is not None and not isinstance(given, Tls):
        raise UsageError(
            f"tls must be brokers.stomp.Tls(…), such as Tls(ca_file=FILE), or an ssl.SSLContext, got {given!r}"
        )
    scheme = parts.scheme.lower()
    if not NETWORK_SCHEMES[scheme].is_secure:
        if given is not None:
            secure = scheme_of(NETWORK_SCHEMES[scheme].family, is_secure=True)
            raise UsageError(f"a URL with tls must begin with {secure}://, got {scheme}://")
        return None
    found: dict[str, Any] = {}
    for name, (attribute, read, its_variable) in TLS_OPTIONS.items():
        if name in options:
            try:
                found[attribute] = read(options[name])
            except KeyError:
                raise UsageError(f"{name} in {form.the_title} must be true or false") from None
        elif given is None and its_variable is not None and (value := variable(environment, its_variable)):
            found[attribute] = read(value)
    return completed(given or Tls(), found)


MAX_IDLE_SECONDS: Final = 604_800
"""Maximum time without traffic, in seconds: a week. Protocols have 32 bits, or nine digits, for its milliseconds."""

MAX_DIGITS: Final = 20
"""Maximum number of digits of a number in a URL."""


def seconds_of(options: Mapping[str, str], name: str, given: float | None, default: float, form: UrlForm) -> float:
    """Return `given`, or else the parameter `name`, in seconds; the URL has milliseconds, as ActiveMQ's do.

    Raises:
        UsageError: it is not a number, or not from 0 to `MAX_IDLE_SECONDS`.
    """
    value = options.get(name)
    if given is not None:
        if not is_number(given) or not 0 <= given <= MAX_IDLE_SECONDS:
            raise UsageError(f"{name} must be a number of seconds from 0 to {MAX_IDLE_SECONDS:,}, got {given!r}")
        return given
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"{name} in {form.the_title} must be a number of milliseconds, or 0 for none")
    if len(value) > MAX_DIGITS or int(value) > MAX_IDLE_SECONDS * 1000:
        raise UsageError(f"{name} in {form.the_title} must be at most {MAX_IDLE_SECONDS * 1000} milliseconds")
    return int(value) / 1000


def octets_of(options: Mapping[str, str], name: str, given: int | None, default: int, form: UrlForm) -> int:
    """Return `given`, or else the parameter `name`, a number of octets.

    Raises:
        UsageError: it is not a positive integer.
    """
    value = options.get(name, str(default)) if given is None else str(given)
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and int(value)):
        where = f"{name} in {form.the_title}" if given is None else "max_message"
        raise UsageError(f"{where} must be a positive number of octets, got {value}")
    return int(value)


def are_local(urls: Iterable[str]) -> bool:
    """Return whether all brokers are on this machine, by the hosts of their URLs; no name is looked up."""
    hosts = [urlsplit(each).hostname or "" for each in urls]
    return all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)


def bracketed(host: str) -> str:
    """Return a host in the form for URLs: an IPv6 address is put in brackets."""
    return f"[{host}]" if ":" in host else host
