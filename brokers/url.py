"""The URL of one broker, the environment, and what a program says beside them: what all adapters read alike.

What a program says wins over the URL, and the URL over the environment. User and password come from any of the
three, or from a file. Secrets are in no repr, log or pickle, and no error message repeats what may be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from brokers.tls import Tls


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; None for none. Neither is shown, and no copy is pickled."""

    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not pickled: they would be in a file or on a network in the clear")


Ask: TypeAlias = Callable[[], Credentials]
"""Called at every attempt to connect, so that secrets may change meanwhile; on the connecting thread."""

NOBODY: Final = Credentials()


def from_file(user: str | None, file: Path) -> Ask:
    """Take the password from a file, read at every attempt; one line end at its end is not part of it."""

    def ask() -> Credentials:
        text = file.read_text("utf-8")
        return Credentials(user, text.removesuffix("\n").removesuffix("\r"))

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlForm:
    """What the URLs of one adapter look like.

    Attributes:
        title: what an error calls such a URL, with its article.
        ports: by scheme, the port where the URL has none.
        secure: schemes that mean TLS, and what each is without it.
        with_path: schemes whose URLs may have a path.
        options: parameters of a URL, with and without TLS; `TLS_OPTIONS` come to them with it.
    """

    title: str
    ports: Mapping[str, int]
    secure: Mapping[str, str]
    with_path: frozenset[str] = frozenset()
    options: tuple[str, ...]

    @property
    def example(self) -> str:
        """Show what to write."""
        return "write " + " or ".join(f"{scheme}://USER:PASSWORD@HOST:PORT" for scheme in self.ports)

    @property
    def the_title(self) -> str:
        """Name the URL at hand."""
        return f"the {self.title.partition(' ')[2]}"


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value]


TLS_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object], str | None]]] = {
    "caFile": ("ca_file", Path, "BROKERS_CA_FILE"),
    "certFile": ("cert_file", Path, "BROKERS_CERT_FILE"),
    "keyFile": ("key_file", Path, "BROKERS_KEY_FILE"),
    "keyPasswordFile": ("key_password_file", Path, "BROKERS_KEY_PASSWORD_FILE"),
    "serverName": ("server_name", str, None),
    "verify": ("verify", _flag, None),
}
"""Parameters of a URL with TLS: the attribute of `Tls`, how the value is read, and the variable in the environment."""


def split(url: str, form: UrlForm) -> SplitResult:
    """Take a URL apart.

    Raises:
        ValueError: it cannot be read, has a path where none may be, a fragment, or no host.
    """
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None:  # outside, or the error would be kept beside ours, and it repeats what is before the host
        raise ValueError(f"{form.the_title} cannot be read, look at its host; {form.example}")
    has_path = parts.path not in ("", "/") and parts.scheme.lower() not in form.with_path
    if has_path or parts.fragment:  # not shown: it may be the end of a password
        raise ValueError(
            f"{form.title} ends with the port or with parameters; {form.example}, "
            "with /, ? and # in user and password percent-encoded"
        )
    if not parts.hostname:
        raise ValueError(f"{form.the_title} names no host; {form.example}")
    return parts


def port_of(parts: SplitResult, form: UrlForm) -> int:
    """Return the port of a URL, or that of its scheme.

    Raises:
        ValueError: it is no number, or none that there is.
    """
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:  # nobody listens there
        raise ValueError(f"the port in {form.the_title} is no number from 1 to 65535; {form.example}")
    return port or form.ports[parts.scheme.lower()]


def options_of(parts: SplitResult, form: UrlForm) -> dict[str, str]:
    """Read the parameters; `+` stands for itself, as in a path it may.

    Raises:
        ValueError: one that is not known, or without a value.
    """
    known = (*form.options, *(TLS_OPTIONS if parts.scheme.lower() in form.secure else ()))
    found: dict[str, str] = {}
    for each in filter(None, parts.query.split("&")):
        name, _, value = each.partition("=")
        if name not in known or not value:  # not shown: a ? in a password begins a query too
            raise ValueError(
                f"{form.title} has a parameter without value, or that is not known; known are: {', '.join(known)}. "
                "A ? in user and password is percent-encoded"
            )
        found[name] = unquote(value)
    return found


def ask_of(
    parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Credentials | Ask | None
) -> Ask:
    """Return what tells user and password: the program, the URL, or the environment.

    Raises:
        ValueError: more than one of them does.
    """
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if given is not None:
        if user is not None or password is not None or "passwordFile" in options:
            raise ValueError("credentials are given, and the URL has some too; leave them out there")
        who = given
        return (lambda: who) if isinstance(who, Credentials) else who
    if "passwordFile" in options:
        if password is not None:
            raise ValueError("the URL has a password and a passwordFile; leave one out")
        return from_file(user if user is not None else environment.get("BROKERS_USER"), Path(options["passwordFile"]))
    if user is None and password is None:
        return _of_environment(environment)
    found = Credentials(user, password)
    return lambda: found


def _of_environment(environment: Mapping[str, str]) -> Ask:
    user, file = environment.get("BROKERS_USER"), environment.get("BROKERS_PASSWORD_FILE")
    if file is not None:
        return from_file(user, Path(file))
    found = Credentials(user, environment.get("BROKERS_PASSWORD"))
    return (lambda: NOBODY) if found == NOBODY else lambda: found


def tls_of(
    parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Tls | None, form: UrlForm
) -> Tls | None:
    """Return how to make TLS, None for a scheme without.

    Raises:
        ValueError: `given` for a scheme without, or a value that cannot be.
    """
    scheme = parts.scheme.lower()
    if scheme not in form.secure:
        if given is not None:
            secure = next((each for each, plain in form.secure.items() if plain == scheme), "a scheme with TLS")
            raise ValueError(f"tls is given, and the URL begins with {scheme}://; write {secure}://")
        return None
    found: dict[str, Any] = {}
    for name, (attribute, read, variable) in TLS_OPTIONS.items():
        if name in options:
            try:
                found[attribute] = read(options[name])
            except KeyError:
                raise ValueError(f"{name} in {form.the_title} is true or false") from None
        elif given is None and variable is not None and environment.get(variable):
            found[attribute] = read(environment[variable])
    return replace(given or Tls(), **found)


def seconds_of(options: Mapping[str, str], name: str, given: float, form: UrlForm) -> float:
    """Return the parameter `name` in seconds, else what is given; in the URL it is milliseconds, as ActiveMQ's are.

    Raises:
        ValueError: it is no number.
    """
    value = options.get(name)
    if value is None:
        return given
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"{name} in {form.the_title} is a number of milliseconds, 0 for none")
    return int(value) / 1000


def octets_of(options: Mapping[str, str], name: str, given: int, form: UrlForm) -> int:
    """Return the parameter `name`, a number of octets, else what is given.

    Raises:
        ValueError: it is no positive integer.
    """
    value = options.get(name, str(given))
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f"{name} in {form.the_title} must be a positive number of octets, got {value}")
    return int(value)


def are_local(urls: Iterable[str]) -> bool:
    """Say whether brokers are on this machine, by the hosts of their URLs; no name is looked up."""
    hosts = [urlsplit(each).hostname or "" for each in urls]
    return all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL: an address of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
