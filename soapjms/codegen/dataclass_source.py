"""The module of dataclasses for the schemas of a WSDL: xsdata maps the schemas to classes, and writes these.

xsdata gets schemas as octets, without references to other documents, so it opens no file and no connection; it does
not format, import or write anything either. What it writes is audited before it is used.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lxml import etree

from soapjms.codegen.audit import audit
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.text import named
from soapjms.protocol.xml import XSD

try:
    from xsdata.codegen.models import Attr, Class
    from xsdata.codegen.parsers.schema import SchemaParser
    from xsdata.codegen.resolver import DependenciesResolver
    from xsdata.codegen.transformer import ResourceTransformer
    from xsdata.formats.dataclass.filters import Filters
    from xsdata.formats.dataclass.generator import DataclassGenerator
    from xsdata.models.config import (
        DocstringStyle,
        GeneratorConfig,
        GeneratorSubstitution,
        ObjectType,
        StructureStyle,
    )
    from xsdata.models.xsd import Schema

    from soapjms.codegen.choices import analyzed, has_empty_groups
except ImportError as _error:
    raise ImportError(f"code is generated with xsdata ({_error}): pip install 'soapjms[codegen]'") from _error

logging.getLogger("xsdata").addHandler(logging.NullHandler())  # its warnings repeat texts of the schema on the terminal

MODULE: Final = "types"
"""The name of the module of dataclasses."""

LINE_LENGTH: Final = 120

_TAKEN: Final = r"^(XmlDate|XmlDateTime|XmlDuration|XmlPeriod|XmlTime|ForwardRef)$"
"""Names that the module imports and xsdata does not keep for itself; a class of the schema gets another one."""

_REFUSED: Final = ("redefine", "override")
_CLASS: Final = re.compile(r"\n+(?=@dataclass|class \w+\(Enum\):)")


@dataclass(frozen=True, slots=True)
class DataclassSource:
    """The module of dataclasses.

    Attributes:
        source: its source, without a header.
        elements: the classes of global elements, by the names of the elements in Clark notation.
        classes: the names of all classes at its top.
    """

    source: str
    elements: Mapping[str, str]
    classes: frozenset[str]


class _Filters(Filters):
    """What xsdata writes of a field."""

    def field_metadata(self, obj: Class, attr: Attr, parent_namespace: str | None) -> dict[str, Any]:
        """Return the metadata of a field; that of a required list type says so, or an empty one would be left out."""
        metadata: dict[str, Any] = super().field_metadata(obj, attr, parent_namespace)
        if attr.is_tokens and attr.restrictions.min_occurs:
            metadata["min_occurs"] = attr.restrictions.min_occurs
        return metadata


class _Generator(DataclassGenerator):
    """Writes dataclasses."""

    @classmethod
    def init_filters(cls, config: GeneratorConfig) -> Filters:
        """Return what writes fields."""
        return _Filters(config)


def dataclass_source(schemas: Iterable[tuple[etree._Element, str]], name: str) -> DataclassSource:
    """Write the module of dataclasses for schemas.

    Args:
        schemas: each schema, without its imports and includes, and its namespace.
        name: the name of the WSDL, for errors.

    Raises:
        InvalidWsdlError: the schemas cannot be mapped to dataclasses.
    """
    transformer = ResourceTransformer(_config())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of xsdata, about its own options
            has_empty = False
            for number, (schema, namespace) in enumerate(schemas):
                has_empty |= has_empty_groups(schema)
                _refuse_redefinitions(schema, name)
                parser = SchemaParser(location=f"schema:{number}", target_namespace=namespace or None)
                read = parser.from_bytes(etree.tostring(schema), Schema)
                read.imports.clear()  # of xsdata's own copies of common schemas
                transformer.convert_schema(read)
            return _written(transformer, name, any_is_required=not has_empty)
    except (InvalidWsdlError, MemoryError):
        raise
    except RecursionError as error:
        raise InvalidWsdlError(f"{name}: its types refer to themselves, or are nested too deep") from error
    except Exception as error:  # xsdata assumes valid schemas, and fails on others in many ways
        said = named(f"{type(error).__name__}: {error}")
        raise InvalidWsdlError(f"{name}: xsdata cannot map its schemas to dataclasses: {said}") from error


def _config() -> GeneratorConfig:
    config = GeneratorConfig()
    output = config.output
    output.package = MODULE
    output.structure_style = StructureStyle.SINGLE_PACKAGE
    output.docstring_style = DocstringStyle.GOOGLE
    output.compound_fields.enabled = True  # or the order of repeated choices would be lost
    output.ignore_patterns = True  # nothing checks them, and xsdata writes some as broken code
    output.max_line_length = LINE_LENGTH
    config.substitutions.substitution.append(GeneratorSubstitution(ObjectType.CLASS, _TAKEN, r"\1Type"))
    return config


def _refuse_redefinitions(schema: etree._Element, name: str) -> None:
    for each in schema.iterchildren(*(f"{{{XSD}}}{each}" for each in _REFUSED)):
        what = etree.QName(each).localname
        raise InvalidWsdlError(f"{name}: xs:{what} is not supported; write the definitions as they are meant to be")


def _written(transformer: ResourceTransformer, name: str, *, any_is_required: bool) -> DataclassSource:
    classes = analyzed(transformer.classes, transformer.config, any_is_required=any_is_required)
    if not classes:
        return DataclassSource("", {}, frozenset())
    generator = _Generator(transformer.config)
    generator.normalize_packages(classes)
    elements = {
        str(etree.QName(each.target_namespace or None, each.meta_name or each.name)): generator.filters.class_name(
            each.name
        )
        for each in sorted(classes, key=lambda each: each.is_element)  # a type may have the name of an element
    }
    resolver = DependenciesResolver(registry={each.qname: each.target_module for each in classes})
    source = generator.render_module(resolver, classes)
    try:
        top = audit(source)
    except ValueError as error:
        raise InvalidWsdlError(
            f"{name}: names, namespaces or defaults in its schemas would become other code than dataclasses: {error}"
        ) from None
    return DataclassSource(_CLASS.sub("\n\n\n", source).strip() + "\n", elements, top)
