"""Operations of a flat graph as statements of a document: NNEF 1.0.1 section 3.2.1."""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.exact import decimal_text
from cvm.frontends.nnef.types import has_tensor
from cvm.frontends.nnef.unparse import unparse_expression
from cvm.frontends.nnef.values import Array, FlatOperation, FlatTensor, Value

__all__ = ["assignment_of"]

_AT = (1, 1)


def assignment_of(operation: FlatOperation) -> syntax.Assignment:
    """An operation as an assignment: tensors by position, attributes by name unless they have their default value."""
    declaration = operation.declaration
    arguments: list[syntax.Argument] = []
    for parameter in declaration.parameters:
        value = _expression(operation.arguments[parameter.name])
        default = None if parameter.default is None else unparse_expression(parameter.default)
        if default == unparse_expression(value):
            continue
        skipped = len(arguments) < declaration.parameters.index(parameter)
        positional = has_tensor(parameter.type) and not skipped
        arguments.append(syntax.Argument(*_AT, None if positional else parameter.name, value))
    generic = operation.generic if declaration.generic_default not in (None, operation.generic) else None
    results = tuple(map(_expression, operation.results))
    target = results[0] if len(results) == 1 else syntax.TupleExpression(*_AT, results)
    return syntax.Assignment(*_AT, target, syntax.Invocation(*_AT, declaration.name, generic, tuple(arguments)))


def _expression(value: Value) -> syntax.Expression:
    match value:
        case FlatTensor(name=name):
            return syntax.Identifier(*_AT, name)
        case bool() | str():
            return syntax.Literal(*_AT, value)
        case Array():
            return syntax.ArrayExpression(*_AT, tuple(map(_expression, value)))
        case tuple():
            return syntax.TupleExpression(*_AT, tuple(map(_expression, value)))
    if value < 0:
        return syntax.Unary(*_AT, "-", _expression(-value))
    if isinstance(value, Fraction) and decimal_text(value) is None:
        numerator, denominator = (syntax.Literal(*_AT, Fraction(part)) for part in (value.numerator, value.denominator))
        return syntax.Chain(*_AT, numerator, (("/", denominator),))
    return syntax.Literal(*_AT, value)
