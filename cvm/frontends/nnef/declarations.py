"""Declarations of operations: the standard library, the fragments of a document, and the rules for both.

Source: NNEF 1.0.1 section 3.3.2 (Declarations); chapter 4 for the standard library, in ``stdlib.nnef``; the current
Khronos tools for the additions in ``khronos.nnef``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.faults import invalid
from cvm.frontends.nnef.parser import parse_library
from cvm.frontends.nnef.types import (
    ArrayType,
    Primitive,
    TensorType,
    TupleType,
    Type,
    castable,
    common_type,
    has_tensor,
    is_attribute,
    is_generic,
    is_unbound,
)
from cvm.graph.declaration import text_of

__all__ = [
    "check_declaration",
    "compound_operations",
    "declare",
    "is_library",
    "khronos_library",
    "literal_expression_type",
    "literal_type",
    "sections",
    "standard_library",
]


def _read(name: str) -> Mapping[str, syntax.Fragment]:
    return {fragment.name: fragment for fragment in parse_library(text_of(name))}


@lru_cache(maxsize=1)
def standard_library() -> Mapping[str, syntax.Fragment]:
    """The declarations of all operations of chapter 4, by name; compound operations have a body."""
    return MappingProxyType(_read("stdlib.nnef"))


@lru_cache(maxsize=1)
def khronos_library() -> Mapping[str, syntax.Fragment]:
    """The standard library with the additions of the dialect "khronos": operations, and attributes with defaults."""
    return MappingProxyType({**standard_library(), **_read("khronos.nnef")})


@lru_cache(maxsize=1)
def sections() -> Mapping[str, str]:
    """The section of chapter 4 that each operation of `khronos_library` belongs to, e.g. "4.3.1", from the library
    files.
    """
    found: dict[str, str] = {}
    for name in ("stdlib.nnef", "khronos.nnef"):
        section = "4.1"
        for line in text_of(name).splitlines():
            if heading := re.match(r"# (4(?:\.\d+)+) ", line):
                section = heading[1]
            elif declared := re.match(r"fragment (\w+)", line):
                found.setdefault(declared[1], section)
    return MappingProxyType(found)


def is_library(declaration: syntax.Fragment) -> bool:
    """Whether a declaration belongs to one of the libraries, and not to a document."""
    name = declaration.name
    return khronos_library().get(name) is declaration or standard_library().get(name) is declaration


def compound_operations() -> tuple[str, ...]:
    """The operations of the libraries that can be expanded into other operations, in alphabetical order."""
    return tuple(sorted(name for name, declared in khronos_library().items() if declared.body is not None))


def declare(fragments: Sequence[syntax.Fragment]) -> Mapping[str, syntax.Fragment]:
    """The libraries together with a document's own fragments; each declaration is checked and unique.

    A document may have a fragment under a name that only the dialect "khronos" defines; then the fragment applies.
    `cvm.frontends.nnef.dialects` decides which additions of the dialect a document uses, and whether it may use them.
    """
    declarations = dict(khronos_library())
    own: set[str] = set()
    for fragment in fragments:
        if fragment.name in standard_library() or fragment.name in own:
            known = "another fragment" if fragment.name in own else "an operation of the standard"
            raise invalid("fragment-definition.duplicate", f"{fragment.name!r} is the name of {known}", fragment)
        check_declaration(fragment)
        own.add(fragment.name)
        declarations[fragment.name] = fragment
    return MappingProxyType(declarations)


def literal_type(value: int | object) -> Type:
    """The type of the value of a literal."""
    if isinstance(value, bool):
        return Primitive("logical")
    if isinstance(value, int):
        return Primitive("integer")
    return Primitive("string" if isinstance(value, str) else "scalar")


def literal_expression_type(expression: syntax.Expression) -> Type:
    """The type of a default value."""
    match expression:
        case syntax.ArrayExpression(items=items):
            item: Type | None = None
            for child in items:
                child_type = literal_expression_type(child)
                item = child_type if item is None else common_type(item, child_type)
                if item is None:
                    raise invalid("fragment-definition.default", "array items have no common type", child)
            return ArrayType(item)
        case syntax.TupleExpression(items=items):
            return TupleType(tuple(literal_expression_type(child) for child in items))
        case syntax.Unary(operand=operand):
            return literal_expression_type(operand)
        case syntax.Literal(value=value):
            return literal_type(value)
    raise AssertionError(expression)  # the grammar admits literals only


def _check_type(type_: Type, where: syntax.SyntaxNode) -> None:
    match type_:
        case TupleType(items):
            if any(map(has_tensor, items)) and any(map(is_attribute, items)):
                message = f"the tuple type {type_} mixes tensors and attributes"
                raise invalid("fragment-definition.mixed-tuple", message, where)
            for item in items:
                _check_type(item, where)
        case ArrayType(item) if item is not None:
            _check_type(item, where)


def check_declaration(fragment: syntax.Fragment) -> None:
    """Check the criteria of a valid declaration. Raises `Invalid` with the one that is broken."""
    names: set[str] = set()
    attributes = False
    formals: tuple[syntax.Parameter | syntax.Result, ...] = (*fragment.parameters, *fragment.results)
    for formal in formals:
        if formal.name in names:
            message = f"{formal.name!r} names two parameters or results of {fragment.name!r}"
            raise invalid("fragment-definition.unique-names", message, formal)
        names.add(formal.name)
        _check_type(formal.type, formal)
    for parameter in fragment.parameters:
        if attributes and has_tensor(parameter.type):
            message = f"tensor parameter {parameter.name!r} follows an attribute"
            raise invalid("fragment-definition.tensors-first", message, parameter)
        attributes = attributes or is_attribute(parameter.type)
        _check_default(parameter)
    for result in fragment.results:
        if is_attribute(result.type):
            message = f"result {result.name!r} is of type {result.type}, not a tensor"
            raise invalid("fragment-definition.tensor-results", message, result)
        if is_unbound(result.type):
            message = f"result {result.name!r} is an unbound tensor"
            raise invalid("types.unbound-result", message, result)
    generic = any(is_generic(formal.type) for formal in formals)
    if generic and not fragment.generic:
        message = f"{fragment.name!r} has generic types but is not declared generic with <?>"
        raise invalid("fragment-definition.generic", message, fragment)
    if fragment.generic and not generic:
        message = f"{fragment.name!r} is declared generic but has no generic type"
        raise invalid("fragment-definition.generic", message, fragment)
    if fragment.generic_default == "?":
        raise invalid("fragment-definition.generic", "the default of a generic type must be a type name", fragment)


def _check_default(parameter: syntax.Parameter) -> None:
    if parameter.default is None:
        return
    found = literal_expression_type(parameter.default)
    if is_generic(parameter.type):
        matches = not has_tensor(found) and _generic_default_matches(found, parameter.type)
    else:
        matches = castable(found, parameter.type)
    if not matches:
        message = f"the default value of {parameter.name!r} is of type {found}, not {parameter.type}"
        raise invalid("fragment-definition.default", message, parameter.default)


def _generic_default_matches(found: Type, formal: Type) -> bool:
    """Whether a default value fits a type with ``?``, which accepts all primitive types.
    Invocations are checked later.
    """
    match formal, found:
        case Primitive("?") | TensorType("?"), Primitive():
            return True
        case ArrayType(item), ArrayType(found_item) if item is not None:
            return found_item is None or _generic_default_matches(found_item, item)
        case TupleType(items), TupleType(found_items):
            return len(items) == len(found_items) and all(map(_generic_default_matches, found_items, items))
    return castable(found, formal)
