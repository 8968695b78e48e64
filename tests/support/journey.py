"""The journey of a new user: install the wheel with one extra alone, and do what that extra is for.

python tests/support/journey.py               all extras; prints what each weighs
python tests/support/journey.py cli zeep      only these
python tests/support/journey.py --write       all extras, and writes the table into docs/install.md

Packages come from where pip gets them, in the versions of requirements.lock. What was downloaded or compiled before is
taken from pip's cache, so the times say what an installation costs, not what the network does.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import trustme
from distribution_kit import build
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import DATA, ROOT
from real_brokers import RealBroker, start_activemq

PAGE: Final = ROOT / "docs" / "install.md"
NONE: Final = "none"
"""Stands for soapjms without any extra."""

PROGRAM_SECONDS: Final = 120


class Leg(NamedTuple):
    """One extra: its use, and the program that makes use of it.

    Attributes:
        purpose: what it is for, for the documentation.
        program: the name of a file in tests/data/journey.
        broker: the attribute of a real broker that is the program's URL; empty if it needs no broker.
        engine: the engine of a replay.
        along: packages of other extras that its own packages need.
    """

    purpose: str
    program: str
    broker: str = ""
    engine: str = ""
    along: frozenset[str] = frozenset()


LEGS: Final[Mapping[str, Leg]] = {
    NONE: Leg("call, serve, capture; the embedded broker, SMQP", "greet"),
    "stomp": Leg("brokers over STOMP", "over_a_network", broker="stomp_url"),
    "amqp": Leg("brokers over AMQP 1.0; a listener", "over_a_network", broker="amqp_url"),
    "cli": Leg("the command `soapjms`", "command_line"),
    "parquet": Leg("generated logs in Parquet", "write_parquet"),
    "replay": Leg("replay on this machine, without Java", "report", engine="local"),
    "spark": Leg("replay on Spark; needs Java 17", "report", engine="spark"),
    "zeep": Leg("clients and services from a WSDL", "from_a_wsdl"),
    "codegen": Leg("typed clients and services, generated from a WSDL", "generated"),
    "bridge": Leg("HTTP clients, WSGI applications", "over_http", along=frozenset({"click"})),
    "wsse": Leg("signatures of WS-Security", "signed"),
    "prometheus": Leg("metrics", "metrics"),
    "opentelemetry": Leg("traces", "traces"),
    "testing": Leg("fixtures for pytest", "stubbed"),
}
"""By extra."""

COLLECTIONS: Final = frozenset({"all", "test", "dev"})
"""Extras that are made of others, or for the work on soapjms itself."""


class Visit(NamedTuple):
    """What one leg came to.

    Attributes:
        extra: the extra, or `NONE`.
        seconds: how long the installation took.
        packages: the names of what was installed, besides soapjms.
        megabytes: what it takes on the disk.
        steps: what the program did, and how many seconds after its start it was done.
    """

    extra: str
    seconds: float
    packages: frozenset[str]
    megabytes: float
    steps: tuple[tuple[str, float], ...]


class JourneyError(Exception):
    """A program of a leg failed."""


def extras() -> Mapping[str, list[Requirement]]:
    """Return the requirements of each extra, and of soapjms alone, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {NONE: project["dependencies"], **project["optional-dependencies"]}
    return {name: [*map(Requirement, words)] for name, words in named.items()}


def invited(extra: str) -> frozenset[str]:
    """Return the packages that an extra names, itself or by way of others."""
    found = set[str]()
    for each in extras()[extra]:
        if each.name == "soapjms":
            found.update(*map(invited, each.extras))
        else:
            found.add(canonicalize_name(each.name))
    return frozenset(found)


def uninvited(visit: Visit) -> frozenset[str]:
    """Return the packages of other extras that came with this one."""
    others = frozenset().union(*map(invited, LEGS))
    return visit.packages & others - invited(visit.extra) - invited(NONE) - LEGS[visit.extra].along


def write_pins(path: Path) -> Path:
    """Write what requirements.lock pins, without its hashes, as the wheel itself has none there."""
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    path.write_text("\n".join(re.findall(r"^([a-z][^\\\n]+?) *\\$", lock, re.MULTILINE)), "utf-8")
    return path


def install(wheel: Path, extra: str, pins: Path, folder: Path) -> Path:
    """Make an environment with the wheel, and with an extra unless that is `NONE`; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python), "install"]
    words += ["--constraint", str(pins), str(wheel) if extra == NONE else f"{wheel}[{extra}]"]
    subprocess.run(words, check=True, timeout=900)
    return python


def run(python: Path, leg: Leg, folder: Path, url: str) -> Iterator[tuple[str, float]]:
    """Run a leg's program in a folder, and yield each step with the seconds since its start.

    Raises:
        JourneyError: the program failed; the error has what it wrote.
    """
    shutil.copyfile(ROOT / "examples" / "greeter.wsdl", folder / "greeter.wsdl")
    ann = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert("ann.example", key_type=trustme.KeyType.RSA)
    ann.private_key_pem.write_to_path(folder / "key.pem")
    ann.cert_chain_pems[0].write_to_path(folder / "ann.pem")
    program = Path(shutil.copy(DATA / "journey" / f"{leg.program}.py", folder))
    words = [str(python), "-P", str(program), str(folder), url, leg.engine]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    began = time.monotonic()
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as ran,
    ):
        assert ran.stdout is not None
        for line in filter(None, map(str.strip, ran.stdout)):
            yield line, time.monotonic() - began
        status = ran.wait(PROGRAM_SECONDS)
        errors.seek(0)
        if status:
            raise JourneyError(f"{program.name} ended with {status}: {errors.read()}")


def octets(folder: Path) -> int:
    """Return what the files below a folder take."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())


def travel(extra: str, wheel: Path, folder: Path, url: str = "") -> Visit:
    """Install an extra alone into a new folder, and do what it is for.

    Raises:
        JourneyError: its program failed.
    """
    folder.mkdir()
    pins = write_pins(folder / "pins.txt")
    began = time.monotonic()
    python = install(wheel, extra, pins, folder / "environment")
    seconds = time.monotonic() - began
    (site,) = (folder / "environment").glob("lib/python*/site-packages")
    packages = {canonicalize_name(each.name) for each in distributions(path=[str(site)])} - {"soapjms"}
    megabytes = octets(site) / 1e6
    (folder / "work").mkdir()
    steps = tuple(run(python, LEGS[extra], folder / "work", url))
    return Visit(extra, seconds, frozenset(packages), megabytes, steps)


def rows(visits: Iterable[Visit]) -> list[str]:
    """Write a table of what each extra is for and what it weighs."""
    lines = [
        "| extra | for | packages | MB on disk | seconds to install | seconds from start to |",
        "|---|---|--:|--:|--:|---|",
    ]
    for each in visits:
        name = each.extra if each.extra == NONE else f"`{each.extra}`"
        done = ", ".join(f"{step} {seconds:.1f}" for step, seconds in each.steps)
        cells = (
            name,
            LEGS[each.extra].purpose,
            f"{len(each.packages) + 1}",
            f"{each.megabytes:.0f}",
            f"{each.seconds:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} | {done} |")
    return lines


def write_page(visits: Iterable[Visit]) -> None:
    """Put the table in the place of the one in docs/install.md."""
    text = PAGE.read_text("utf-8")
    table = "\n".join(rows(visits)) + "\n"
    PAGE.write_text(re.sub(r"\| extra \|.*\n(?:\|.*\n)+", lambda _: table, text, count=1), "utf-8")


def main() -> int:
    """Travel, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"of {', '.join(LEGS)}; all unless given")
    parser.add_argument("--write", action="store_true", help="write the table into docs/install.md")
    options = parser.parse_args()
    if unknown := set(options.extras) - LEGS.keys():
        parser.error(f"EXTRA must be one of {', '.join(LEGS)}, got {', '.join(sorted(unknown))}")
    if options.write and options.extras:
        parser.error("--write is for all extras together")
    chosen = options.extras or [*LEGS]
    visits = list[Visit]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="journey-")))
        (folder / "built").mkdir()
        wheel, _ = build(folder / "built")
        broker: RealBroker | None = None
        if any(LEGS[each].broker for each in chosen):
            broker = stack.enter_context(start_activemq())
        for extra in chosen:
            at = folder / extra
            url = getattr(broker, LEGS[extra].broker) if LEGS[extra].broker else ""
            visits.append(travel(extra, wheel, at, url))
            shutil.rmtree(at)
            print(rows(visits)[-1], flush=True)
            if strange := uninvited(visits[-1]):
                print(f"{extra} must not bring {', '.join(sorted(strange))}", file=sys.stderr)
                return 1
    print("\n".join(rows(visits)))
    if options.write:
        write_page(visits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
