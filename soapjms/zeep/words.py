"""Turns operation arguments as people type them, `item.article=A1 item.pieces=2`, into values of the WSDL's types, and
results into JSON's types.

It serves the command line, and any program that has texts instead of the values that a call needs.
"""

from __future__ import annotations

import json
import mimetypes
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, Final

from zeep.xsd import AnySimpleType, ComplexType, CompoundValue
from zeep.xsd.elements.indicators import Indicator
from zeep.xsd.types.builtins import Base64Binary, Boolean
from zeep.xsd.types.collection import ListType

from soapjms.protocol.attachments import Attachment
from soapjms.protocol.errors import UsageError
from soapjms.protocol.simple_types import items_of, text_of
from soapjms.zeep.particles import CONTENT, has_content, member_names
from soapjms.zeep.simple_types import LISTS, has_form_of, name_of, written

FORMS: Final = "NAME=VALUE, NAME:=JSON or NAME=@FILE; NAME is a path such as item.article or item.1.article"
BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "1": True, "false": False, "0": False}
MAX_DEPTH: Final = 100
"""Maximum levels of lists and objects in a value; an XML parser accepts some 250 levels of elements."""


def read_words(words: Iterable[str], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Combine words into nested values.

    A repeated path makes a list, and so does a number in it. `=@FILE` is an attachment, read when it is sent.

    Args:
        words: the words, in the forms of `FORMS`.
        given: values to add to; they are not changed, and words do not replace them.

    Raises:
        UsageError: a word has none of the forms, or contradicts another, or values are nested too deep.
    """
    found: dict[str, Any] = _copied(_shallow(given or {}, "the given value", MAX_DEPTH + 1))
    for word in words:
        path, value = _read(word)
        try:
            _put(found, path.split("."), value)
        except (TypeError, AttributeError):
            raise UsageError(f"{word!r} contradicts an earlier argument: there {path} has another shape") from None
    return {name: _listed(value) for name, value in _shallow(found, "the value of the words", MAX_DEPTH + 1).items()}


def _copied(value: Any) -> Any:
    """Copy the dicts and lists that words are put into."""
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _read(word: str) -> tuple[str, Any]:
    path, equals, text = word.partition("=")
    is_json = path.endswith(":")
    path = path.removesuffix(":")
    if not equals or not all(path.split(".")):
        raise UsageError(f"an argument must be {FORMS}; got {word!r}")
    if is_json:
        return path, read_json(text, f"the value of {path}")
    if text.startswith("@"):
        file = Path(text[1:])
        if not file.is_file():
            raise UsageError(f"{path}: there is no file {text[1:]!r}; write a text that begins with @ as {path}:='...'")
        return path, Attachment(file, mimetypes.guess_type(file)[0] or "application/octet-stream")
    return path, text


def read_json(text: str | bytes, what: str) -> Any:
    """Read JSON, with numbers exactly as they are written.

    Raises:
        UsageError: the text is not JSON, or is nested too deep.
    """
    try:
        return _shallow(json.loads(text, parse_float=Decimal), f"{what} is JSON that")
    except RecursionError:
        raise UsageError(_too_deep(f"{what} is JSON that")) from None
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}") from None


def _shallow(value: Any, what: str, levels: int = MAX_DEPTH) -> Any:
    """Return the value, after checking that it is not nested too deep for recursive functions.

    Raises:
        UsageError: the value is nested too deep.
    """
    level = [value]
    for _ in range(levels + 1):
        level = [each for holder in level if isinstance(holder, Mapping | list) for each in _within(holder)]
        if not level:
            return value
    raise UsageError(_too_deep(what))


def _within(holder: Mapping[str, Any] | list[Any]) -> Iterable[Any]:
    return holder.values() if isinstance(holder, Mapping) else holder


def _too_deep(what: str) -> str:
    return f"{what} is nested too deep: accepted are {MAX_DEPTH} levels of lists and objects"


def _put(holder: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        holder = holder.setdefault(name, {})
        if not isinstance(holder, dict):
            raise TypeError(name)
    if last not in holder:
        holder[last] = value
    elif isinstance(holder[last], dict) is not isinstance(value, dict):
        raise TypeError(last)
    elif isinstance(holder[last], list):
        holder[last].append(value)
    else:
        holder[last] = [holder[last], value]


def _listed(value: Any) -> Any:
    """Turn dicts whose names are all numbers into lists, in the order of the numbers."""
    if isinstance(value, list):
        return [_listed(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {name: _listed(each) for name, each in value.items()}
    if made and all(name.isascii() and name.isdigit() for name in made):
        return [made[name] for name in sorted(made, key=int)]
    return made


# Types


def arguments_of(operation: Any, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a call through zeep; texts become values of the WSDL's types.

    Args:
        operation: an operation of a binding in zeep.
        values: values by name; names that begin with an underscore are zeep's, and their values stay as they are.

    Raises:
        UsageError: a name is unknown, or a text does not fit its type; the message has the signature.
    """
    body = None if operation.input is None else operation.input.body
    own = {name: value for name, value in values.items() if name.startswith("_")}
    rest = {name: value for name, value in values.items() if name not in own}
    try:
        if body is None or isinstance(body.type, ComplexType):
            return [], {**(_typed(None if body is None else body.type, rest, "") or {}), **own}
        (name, value), *more = rest.items() or [("", None)]
        if more or name != body.name:
            raise UsageError(f"the only argument must be {body.name}=VALUE")
        return [_typed(body.type, value, name)], own
    except UsageError as error:
        takes = "nothing" if operation.input is None else operation.input.signature() or "nothing"
        raise UsageError(f"{operation.name}: {error}; it takes: {takes}") from None


def _typed(type_: Any, value: Any, path: str) -> Any:
    if isinstance(type_, ComplexType) and isinstance(value, dict):
        return {name: _member(type_, name, each, f"{path}.{name}".lstrip(".")) for name, each in value.items()}
    if isinstance(type_, ComplexType) and isinstance(value, list) and not type_._array_type:
        raise UsageError(f"{path} must be one value, got a list of {len(value)}")
    if isinstance(type_, ComplexType) and isinstance(value, str | int | Decimal):
        if not has_content(type_):
            names = ", ".join(f"{path}.{each}" for each in member_names(type_)) or "nothing"
            raise UsageError(f"{path} must have the members {names}, got {value!r}")
        return {CONTENT: _member(type_, CONTENT, value, path)}
    if type_ is None and value:
        raise UsageError(f"there is no {next(iter(value))!r}")
    if isinstance(type_, LISTS) and isinstance(value, list):
        return value
    if isinstance(type_, AnySimpleType) and isinstance(value, dict | list):
        raise UsageError(f"{path} must be a single value, got {value!r}")
    return _simple(type_, value, path) if isinstance(type_, AnySimpleType) and isinstance(value, str) else value


def _member(type_: ComplexType, name: str, value: Any, path: str) -> Any:
    """Return the value of an element or attribute of a type."""
    members = {known: each for known, each in (*type_.elements, *type_.attributes) if known}
    member: Any = members.get(name)
    if not hasattr(member, "type"):  # a repeated group, a wildcard, or unknown
        if name.startswith("_"):
            return value
        raise UsageError(f"there is no {path!r}; there are: {', '.join(members) or 'none'}")
    if not member.accepts_multiple:
        return _typed(member.type, value, path)
    items = value if isinstance(value, list) else [value]
    return [_typed(member.type, each, f"{path}.{number}") for number, each in enumerate(items)]


def _simple(type_: Any, text: str, path: str) -> Any:
    if not has_form_of(text, type_):
        raise UsageError(f"{path} must be of type {name_of(type_)}, got {text!r}")
    if isinstance(type_, Boolean):
        return BOOLEANS[text.strip()]
    if isinstance(type_, Base64Binary):
        return type_.pythonvalue("".join(items_of(text)))
    return type_.pythonvalue(text)


# Results


def plain_result(operation: Any, result: Any) -> Any:
    """Return the result of a call through zeep in JSON's types, so that `arguments_of` takes its values again.

    Texts, integers, booleans and finite floating-point numbers stay as they are; other values become the texts that
    they have in XML, such as `2026-01-01T12:30:00Z`, and decimal numbers too, as JSON would change them.

    Args:
        operation: an operation of a binding in zeep.
        result: what zeep returned, which is the value within for an element that has a single one.
    """
    member: Any = None if operation.output is None else operation.output.body
    for _ in range(2):  # as far as zeep looks for a single value
        if isinstance(getattr(member, "type", None), ComplexType) and len(member.type.elements) == 1:
            member = member.type.elements[0][1]
    return _plain(result, member)


def _plain(value: Any, member: Any) -> Any:
    """Return the value of an element, attribute or group of a type; None for one that is unknown."""
    if isinstance(value, CompoundValue):
        known = dict((*value._xsd_type.elements, *value._xsd_type.attributes))
        return {name: _plain(each, known.get(name)) for name, each in value.__values__.items()}
    if isinstance(value, dict):
        known = dict(member.elements) if isinstance(member, Indicator) else {}
        return {name: _plain(each, known.get(name)) for name, each in value.items()}
    if isinstance(value, list) and not isinstance(getattr(member, "type", None), ListType):
        return [_plain(each, member) for each in value]
    return _plain_simple(value, getattr(member, "type", None))


def _plain_simple(value: Any, type_: Any) -> Any:
    if isinstance(value, list):
        return [_plain_simple(each, getattr(type_, "item_type", type_)) for each in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(type_, AnySimpleType):
        return written(value, type_)
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else text_of(value) or str(value)
