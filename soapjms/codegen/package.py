"""`generate_package`: a Python package for a port of a WSDL, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from soapjms.codegen.package_source import MARKER, modules
from soapjms.codegen.port_model import PortModel, port_model
from soapjms.protocol.errors import UsageError
from soapjms.zeep.description import described

_COMPILED: Final = "__pycache__"

IMPORTED: Final = sys.stdlib_module_names | {"brokers", "lxml", "soapjms", "xsdata", "zeep"}
"""Modules and packages that programs with generated code import; a package of that name would be found instead."""


@dataclass(frozen=True, slots=True)
class GeneratedPackage:
    """A package that was written.

    Attributes:
        path: its folder.
        files: the names of its files.
        model: what it was written from: the port with its operations, and the names of its classes.
    """

    path: Path
    files: tuple[str, ...]
    model: PortModel


def generate_package(
    wsdl: str | Path,
    package: str,
    *,
    out: str | Path = ".",
    port: str | None = None,
    allow: Iterable[str | Path] = (),
    validate: bool = True,
) -> GeneratedPackage:
    """Write a package with dataclasses, clients and a service class for a port of a WSDL 1.1.

    The same WSDL gives the same octets. A package that was generated before is replaced as a whole.

    Args:
        wsdl: the path of the WSDL file. Its imports are read as `soapjms.Service.from_wsdl` reads them.
        package: the name of the package.
        out: the folder that gets the package.
        port: the name of the port, or SERVICE/PORT; None for the only SOAP/JMS port.
        allow: folders that imports may be read from, beside that of the WSDL.
        validate: refuse schemas that are not valid XML Schema.

    Raises:
        InvalidWsdlError: the WSDL or a schema cannot be read or used, or would become other code than intended.
        UsageError: there is no such port, or more than one; `package` is no name for one, or that of a module in `out`
            or of `IMPORTED`; or its folder holds files that were not generated.
        OSError: the package cannot be written.
    """
    if not package.isidentifier() or iskeyword(package):
        *outer, name = package.split(".")
        within = f"; write {name}, and the folder {'/'.join(outer)} of out" if all([*outer, name]) and outer else ""
        raise UsageError(f"package must be a Python identifier, such as bank_client, got {package!r}{within}")
    folder = Path(out)
    if not folder.is_dir():
        raise UsageError(f"out must be a folder that exists, got {str(out)!r}")
    if package in IMPORTED and not (folder / "__init__.py").exists():
        raise UsageError(
            f"package must not be the name of a package that Python or generated code imports, got {package!r}; give "
            f"another, such as {package}_client, or as out the folder of a package"
        )
    target = folder / package
    _refuse_foreign(target)
    found = described(wsdl, port, validate=validate, loader=None, allow=allow)
    if found.port.profile is not None:
        found.port.effective()
    model = port_model(found)
    sources = modules(model)
    _write(target, sources)
    return GeneratedPackage(target, tuple(sources), model)


def _refuse_foreign(target: Path) -> None:
    """Refuse a target that holds anything that was not generated, or that would hide a module.

    Raises:
        UsageError: the message names the first such file.
    """
    module = target.with_name(f"{target.name}.py")
    if os.path.lexists(module):
        raise UsageError(
            f"{module} is a module of the same name, which Python would no longer find beside a package {target.name}; "
            "give another package or out, or move it away"
        )
    if not target.is_symlink() and not target.exists():
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError(f"{target} must be a folder that was generated before, or not exist; it is something else")
    for each in sorted(target.iterdir()):
        if each.name != _COMPILED and not _is_generated(each):
            raise UsageError(
                f"{each} was not generated, so {target} is not replaced; move it away, or give another package or out"
            )


def _is_generated(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MARKER)) == MARKER.encode()


def _write(target: Path, sources: Mapping[str, str]) -> None:
    """Write the files into a new folder beside the target, and put it into the target's place."""
    unfinished = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    old = unfinished / "old"
    new = unfinished / "new"
    try:
        new.mkdir()
        for name, source in sources.items():
            (new / name).write_bytes(source.encode())
        if target.exists():
            os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            if old.exists():
                os.rename(old, target)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
