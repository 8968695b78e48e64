"""Dataclasses that xsdata generated, as XML elements: written, and read with every value checked for its type.

xsdata looks up the types that `xsi:type` and wildcards name among all classes of the program. Here only the module of
the expected class counts, as a peer chooses these names.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from functools import lru_cache
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, TypeVar

from lxml import etree

try:
    from xsdata.formats.dataclass.context import XmlContext
    from xsdata.formats.dataclass.parsers import XmlParser
    from xsdata.formats.dataclass.parsers.config import ParserConfig
    from xsdata.formats.dataclass.parsers.handlers import LxmlEventHandler
    from xsdata.formats.dataclass.serializers import TreeSerializer
except ImportError as _error:
    raise ImportError(f"generated code needs xsdata ({_error}): pip install 'soapjms[codegen]'") from _error

T = TypeVar("T")

_STRICT: Final = ParserConfig(
    fail_on_unknown_properties=True, fail_on_unknown_attributes=False, fail_on_converter_warnings=True
)


class _ModuleContext(XmlContext):
    """The classes of one module, which are looked up once: the module does not change any more."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self._module = module
        super().build_xsi_cache()

    def is_binding_model(self, clazz: type[Any]) -> bool:
        """Say whether a class is one of the module's dataclasses."""
        try:
            return attrgetter(clazz.__qualname__)(self._module) is clazz and super().is_binding_model(clazz)
        except AttributeError:
            return False

    def build_xsi_cache(self) -> None:
        """Do nothing."""


@lru_cache(maxsize=256)
def _module_context(module: ModuleType) -> _ModuleContext:
    return _ModuleContext(module)


def _context(kind: type[Any]) -> _ModuleContext:
    return _module_context(sys.modules[kind.__module__])


def element_name(kind: type[Any]) -> str:
    """Return the name of the element of a dataclass, in Clark notation."""
    return str(_context(kind).build(kind).qname)


def to_element(value: Any, kind: type[Any]) -> etree._Element:
    """Write a dataclass as an element.

    Args:
        value: the dataclass.
        kind: the class that it must be of.

    Raises:
        ValueError: the value is of another class, or holds what its fields do not allow.
    """
    if not isinstance(value, kind):
        raise ValueError(f"it must be {_article(kind)}, got {value!r}")
    try:
        root = TreeSerializer(context=_context(kind)).render(value).getroot()
    except Exception as error:  # xsdata's converters raise any Python error for a value of another type
        raise ValueError(_said(error)) from error
    from_element(root, kind)
    return root


def from_element(element: etree._Element, kind: type[T]) -> T:
    """Read an element, which is not changed, as a dataclass.

    Raises:
        ValueError: the element does not fit the class: it holds unknown elements or values of other types, or lacks
            elements. Facets, such as patterns, and unknown attributes are not checked.
    """
    copy = deepcopy(element)  # the parser clears what it has read
    etree.strip_tags(copy, etree.Comment, etree.ProcessingInstruction)
    parser = XmlParser(config=_STRICT, context=_context(kind), handler=LxmlEventHandler)
    try:
        found = parser.parse(copy, kind)
    except Exception as error:  # the constructor of a dataclass raises TypeError for a missing element
        raise ValueError(_said(error)) from error
    if not isinstance(found, kind):  # by xsi:type
        raise ValueError(f"it must be {_article(kind)}, got {type(found).__name__}")
    return found


def _article(kind: type[Any]) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, TypeError) and "__init__() missing" in text:
        kind, _, rest = text.partition(".__init__() missing ")
        return f"{kind} lacks {rest.partition(': ')[2] or rest}"
    return text or type(error).__name__
