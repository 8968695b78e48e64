"""The arguments of a typed function: the elements of the request by name, as a zeep client passes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from keyword import iskeyword
from typing import Any, Final

from zeep.xsd import ComplexType
from zeep.xsd.elements.indicators import Indicator

from soapjms.protocol.errors import UsageError

REQUEST: Final = "_request"
HEADERS: Final = "_soapheaders"
ATTACHMENTS: Final = "_attachments"
RESERVED: Final = (REQUEST, HEADERS, ATTACHMENTS)
"""Parameters that a function may have beside those of the WSDL; a zeep client takes the last two as well."""

_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_VARIABLE: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)

OPEN: Final = "_attr_"
"""Start of zeep's name for attributes that a schema leaves open; a function need not take them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called.

    Attributes:
        names: the parameter for each element or attribute of a request, by its name; None if the request is a single
            value of a simple type.
        extras: the reserved parameters that the function has.
        named: its other parameters.
        takes_all: True if it has `**values`, for everything it has no parameter for.
    """

    names: Mapping[str, str] | None
    extras: frozenset[str]
    named: frozenset[str]
    takes_all: bool

    def arguments(self, value: Any, extras: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments for the value that zeep read.

        Raises:
            UsageError: the request holds an element that the function does not take, in a repeated nested group.
        """
        given = {name: extras[name] for name in self.extras}
        if self.names is None:
            return [value], given
        read = {} if value is None else {parameter_for(name): each for name, each in value.__values__.items()}
        values = dict.fromkeys(self.names.values()) | read
        if self.takes_all:
            return [], values | given
        lost = [name for name, each in values.items() if name not in self.named and not name.startswith(OPEN)]
        if lost:
            raise UsageError(f"the request holds {', '.join(lost)}, which the function does not take; give it **values")
        return [], {name: each for name, each in values.items() if name in self.named} | given


def parameter_for(name: str) -> str:
    """Return the parameter for a name: a Python keyword gets an underscore appended, as in `from_`."""
    return f"{name}_" if iskeyword(name) else name


def element_names(type_: Any) -> list[str]:
    """Return the names of the elements of a zeep type; a repeatable group has the name that zeep gives it."""
    found: list[str] = []
    for name, each in type_.elements_nested:
        is_group = isinstance(each, Indicator) and not each.accepts_multiple
        found += [inner for inner, _ in each.elements] if is_group else [name]
    return found


def names_of(body: Any) -> Mapping[str, str] | None:
    """Return the parameter for each element and attribute of a message; None for a single value of a simple type."""
    if body is None:
        return {}
    if not isinstance(body.type, ComplexType):
        return None
    names = [*element_names(body.type), *(name for name, _ in body.type.attributes)]
    return {name: parameter_for(name) for name in names}


def signature_of(function: Callable[..., Any], name: str, message: Any) -> Signature:
    """Work out how a function is called.

    Args:
        function: the function, as it was registered.
        name: the name of the operation.
        message: zeep's input of the operation.

    Raises:
        UsageError: the function does not fit the WSDL; the error names its missing or superfluous parameters.
    """
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in RESERVED]
    extras = frozenset(inspect.signature(function).parameters.keys() & set(RESERVED))
    named = frozenset(each.name for each in parameters if each.kind in _NAMED)
    needed = [each for each in parameters if each.default is Parameter.empty and each.kind not in _VARIABLE]
    takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    says = f"the operation {name} takes, by the WSDL, ({message.signature() or ''}); the function {function!r}"
    names = names_of(message.body)
    if names is None:
        if not any(each.kind in _POSITIONAL for each in parameters) or len(needed) > 1:
            raise UsageError(f"{says} has {inspect.signature(function)}, and is called with one value")
        return Signature(None, extras, named, takes_all)
    wanted = set(names.values())
    lacking = [each for each in names.values() if each not in named and not each.startswith(OPEN)]
    if lacking and not takes_all:
        raise UsageError(f"{says} has no parameter {', '.join(lacking)}; add it, or **values for all missing ones")
    unknown = [each.name for each in needed if each.name not in wanted or each.kind not in _NAMED]
    if unknown:
        raise UsageError(
            f"{says} has {', '.join(unknown)}, which no request holds; also allowed: {', '.join(RESERVED)}"
        )
    return Signature(names, extras, named, takes_all)
