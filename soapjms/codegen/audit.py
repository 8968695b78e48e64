"""Checks that a generated module of dataclasses can do nothing but define them, whatever the WSDL holds.

xsdata writes code with templates, and puts names, namespaces and defaults of the schema into them. A few of these
reach the code unescaped, so a hostile schema could add statements. The check reads the syntax tree of the module, and
accepts only what xsdata writes for a schema: imports of known names, classes, fields, and literals. Nothing is
executed before.

Annotations and forward references are code too: Python evaluates them when a class is first used.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Final

IMPORTS: Final = frozenset(
    "__future__.annotations dataclasses.dataclass dataclasses.field decimal.Decimal enum.Enum typing.Any "
    "typing.ForwardRef xml.etree.ElementTree.QName xsdata.models.datatype.XmlDate xsdata.models.datatype.XmlDateTime "
    "xsdata.models.datatype.XmlDuration xsdata.models.datatype.XmlPeriod xsdata.models.datatype.XmlTime".split()
)
BUILTINS: Final = frozenset({"bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple"})
CONSTRUCTORS: Final = frozenset(
    {"Decimal", "QName", "XmlDate", "XmlDateTime", "XmlDuration", "XmlPeriod", "XmlTime", "float"}
)
"""What a default value may call, with literals; they only make values."""

IMPORTED: Final = frozenset(each.rpartition(".")[2] for each in IMPORTS)
_DOTTED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def audit(source: str) -> frozenset[str]:
    """Check the source of a module, and return the names of its classes at the top.

    Raises:
        ValueError: the module holds anything but dataclasses and enumerations, or is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no Python: {error}") from None
    classes = [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
    inner = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    taken = inner & (IMPORTED | BUILTINS)
    if taken or len(set(classes)) < len(classes):
        raise ValueError(f"classes must have names of their own, got {', '.join(sorted(taken or set(classes)))}")
    checker = _Checker(inner | IMPORTED | BUILTINS)
    for each in tree.body:
        checker.statement(each)
    return frozenset(classes)


class _Checker:
    """Checks parts of a module.

    Args:
        names: all names that code may use.
    """

    def __init__(self, names: frozenset[str] | set[str]) -> None:
        self._names = names

    def statement(self, node: ast.stmt) -> None:
        """Check a statement at the top of the module."""
        match node:
            case ast.ImportFrom(module=str(module), level=0):
                for each in node.names:
                    _require(each.asname is None and f"{module}.{each.name}" in IMPORTS, each)
            case ast.Assign(targets=[ast.Name(id="__NAMESPACE__")], value=ast.Constant(value=str())):
                pass
            case ast.ClassDef():
                self.definition(node)
            case _:
                _refuse(node)

    def definition(self, node: ast.ClassDef) -> None:
        """Check a class: a dataclass, an enumeration, or the Meta of one."""
        _require(not node.keywords and not getattr(node, "type_params", ()) and not node.name.startswith("_"), node)
        for each in node.decorator_list:
            match each:
                case ast.Call(func=ast.Name(id="dataclass"), args=[]):
                    for keyword in each.keywords:
                        _require(isinstance(keyword.value, ast.Constant) and keyword.arg is not None, each)
                case _:
                    _refuse(each)
        for base in node.bases:
            self.reference(base)
        for statement in node.body:
            self.member(statement)

    def member(self, node: ast.stmt) -> None:
        """Check a statement in a class."""
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.ClassDef():
                self.definition(node)
            case ast.Assign(targets=[ast.Name(id=name)]):
                _require(not name.startswith("_"), node)
                self.value(node.value)
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=annotation,
                simple=1,
                value=ast.Call(func=ast.Name(id="field"), args=[], keywords=keywords),
            ):
                _require(not name.startswith("_"), node)
                self.annotation(annotation)
                for each in keywords:
                    _require(each.arg is not None, node)
                    self.value(each.value)
            case _:
                _refuse(node)

    def annotation(self, node: ast.expr) -> None:
        """Check the type of a field."""
        match node:
            case ast.Constant(value=None) | ast.Constant(value=builtins.Ellipsis):
                pass
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self.annotation(left)
                self.annotation(right)
            case ast.Subscript(value=ast.Name(), slice=inside):
                self.reference(node.value)
                for each in inside.elts if isinstance(inside, ast.Tuple) else (inside,):
                    self.annotation(each)
            case _:
                self.reference(node)

    def reference(self, node: ast.expr) -> None:
        """Check the name of a type, or of a class or member inside of it."""
        for each in _parts(node):
            _require(not each.startswith("_"), node)
        _require(next(iter(_parts(node)), "") in self._names, node)

    def value(self, node: ast.expr) -> None:
        """Check a value: a literal, a type, or a call that makes a value of literals."""
        match node:
            case ast.Constant():
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                pass
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for each in elements:
                    self.value(each)
            case ast.Dict(keys=keys, values=values):
                for key in keys:
                    _require(isinstance(key, ast.Constant), node)
                for each in values:
                    self.value(each)
            case ast.Lambda(args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], vararg=None, kwarg=None)):
                self.value(node.body)
            case ast.Call(func=ast.Name(id="ForwardRef"), args=[ast.Constant(value=str(text))], keywords=[]):
                _require(_DOTTED.fullmatch(text) is not None, node)
                self.reference(ast.parse(text, mode="eval").body)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in CONSTRUCTORS:
                for each in arguments:
                    self.value(each)
            case _:
                self.annotation(node)


def _parts(node: ast.expr) -> Iterator[str]:
    """Yield the parts of a dotted name; nothing for another expression."""
    if isinstance(node, ast.Attribute):
        before = list(_parts(node.value))
        yield from (*before, node.attr) if before else ()
    elif isinstance(node, ast.Name):
        yield node.id


def _require(condition: bool, node: ast.AST) -> None:
    if not condition:
        _refuse(node)


def _refuse(node: ast.AST) -> None:
    text = ast.unparse(node).partition("\n")[0]
    raise ValueError(f"line {getattr(node, 'lineno', '?')} holds what no schema needs: {text[:100]!r}")
