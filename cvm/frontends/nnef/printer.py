"""The text of a flat document: NNEF 1.0.1 section 3.2.1, with every argument written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import FRAGMENTS, OPERATOR_EXPRESSIONS
from cvm.frontends.nnef.declarations import is_library
from cvm.frontends.nnef.exact import is_decimal, number_text
from cvm.frontends.nnef.types import has_tensor
from cvm.frontends.nnef.values import Array, FlatGraph, FlatOperation, FlatTensor, Value

__all__ = ["print_graph"]


def print_graph(graph: FlatGraph) -> str:
    """A complete document that denotes ``graph``, with tensors by position and all attributes by name.

    It is flat, with two exceptions that flat syntax cannot express: custom operations are declared, and a scalar
    without a finite decimal expansion is a quotient.
    """
    lines = [_operation(operation) for operation in graph.operations]
    extensions = []
    customs = {o.name: o.declaration for o in graph.operations if not is_library(o.declaration)}
    if customs:
        extensions.append(FRAGMENTS)
    if any(_has_quotient(value) for operation in graph.operations for value in operation.arguments.values()):
        extensions.append(OPERATOR_EXPRESSIONS)
    header = ["version 1.0;", *(f"extension {name};" for name in extensions), ""]
    for declaration in customs.values():
        header += [_declaration(declaration), ""]
    parameters, results = ", ".join(graph.inputs), ", ".join(graph.outputs)
    return "\n".join([*header, f"graph {graph.name}( {parameters} ) -> ( {results} )", "{", *lines, "}", ""])


def _operation(operation: FlatOperation) -> str:
    arguments = ", ".join(_arguments(operation.declaration, operation.arguments))
    generic = ""
    if operation.generic is not None and operation.declaration.generic:
        generic = f"<{operation.generic}>"
    results = ", ".join(map(_value, operation.results))
    return f"    {results} = {operation.name}{generic}({arguments});"


def _arguments(declaration: syntax.Fragment, arguments: Mapping[str, Value]) -> Iterator[str]:
    for parameter in declaration.parameters:
        text = _value(arguments[parameter.name])
        yield text if has_tensor(parameter.type) else f"{parameter.name} = {text}"


def _value(value: Value) -> str:
    match value:
        case FlatTensor(name=name):
            return name
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Fraction():
            return number_text(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case Array():
            return f"[{', '.join(map(_value, value))}]"
    return f"({', '.join(map(_value, value))})"


def _has_quotient(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_quotient, value))
    return isinstance(value, Fraction) and not is_decimal(value)


def _declaration(fragment: syntax.Fragment) -> str:
    default = "" if fragment.generic_default is None else f" = {fragment.generic_default}"
    generic = f"<?{default}>" if fragment.generic else ""
    parameters = ", ".join(f"{parameter.name}: {parameter.type}" for parameter in fragment.parameters)
    results = ", ".join(f"{result.name}: {result.type}" for result in fragment.results)
    return f"fragment {fragment.name}{generic}( {parameters} ) -> ( {results} );"
