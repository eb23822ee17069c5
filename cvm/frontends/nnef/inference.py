"""Types of expressions: NNEF 1.0.1 sections 3.3.1 (types), 3.3.2 (invocations) and 3.3.3 (expressions).

The check is static; a fragment is checked once, whether it is invoked or not, with ``?`` as a type of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import literal_expression_type, literal_type
from cvm.frontends.nnef.faults import Placed, invalid
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.types import (
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    DataType,
    Primitive,
    TensorType,
    TupleType,
    Type,
    candidates,
    castable,
    common_type,
    has_tensor,
    is_attribute,
    substitute,
)
from cvm.records import dataclass

__all__ = ["CURRENT", "OPERATORS", "Inference", "Language", "Tainted", "bind_arguments"]


@dataclass(frozen=True, slots=True)
class Language:
    """The rules in which editions of NNEF differ."""

    graph_only: Collection[str]
    """The operations that a fragment must not use."""
    mixed_tuples: bool = False
    """Whether a tuple may hold both tensors and attributes."""
    chaining: bool = False
    """Whether an invocation may pass on more than a single tensor to another one."""


CURRENT = Language(graph_only=("external", "variable", "update"))
"""The rules of NNEF 1.0.1, section 3.3.2."""


class Tainted(Exception):
    """Raised where an expression depends on something wrong that has been reported already."""


_SCALARS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "^": "pow"}
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_LOGICALS = {"&&": "and", "||": "or"}

OPERATORS: Mapping[str, tuple[str, DataType, DataType]] = MappingProxyType(
    {symbol: (name, "scalar", "scalar") for symbol, name in _SCALARS.items()}
    | {symbol: (name, "scalar", "logical") for symbol, name in _COMPARISONS.items()}
    | {symbol: (name, "logical", "logical") for symbol, name in _LOGICALS.items()}
)
"""Binary operators on tensors: the operation, the data type that it takes, and the one it gives (3.3.3, table 1)."""

_CASTS: Mapping[str, Type] = MappingProxyType(
    {"integer": INTEGER, "scalar": SCALAR, "logical": LOGICAL, "string": STRING}
)


def bind_arguments(
    declaration: syntax.Fragment, invocation: syntax.Invocation
) -> tuple[tuple[syntax.Parameter, syntax.Expression | None], ...]:
    """Each formal parameter with its argument, None where the default value applies (section 3.3.2, Invocations)."""
    parameters = declaration.parameters
    name = invocation.name
    if len(invocation.arguments) > len(parameters):
        message = f"{name} has {len(parameters)} parameters; {len(invocation.arguments)} arguments are given"
        raise invalid("invocation.count", message, invocation.arguments[len(parameters)], name)
    bound: dict[str, syntax.Expression] = {}
    named = False
    for index, argument in enumerate(invocation.arguments):
        if argument.name is None:
            if named:
                raise invalid("invocation.order", "a positional argument follows a named one", argument, name)
            parameter = parameters[index]
            if is_attribute(parameter.type):
                message = f"attribute {parameter.name!r} must be given by name"
                raise invalid("invocation.positional-attribute", message, argument, name)
            bound[parameter.name] = argument.value
            continue
        named = True
        if argument.name in bound:
            raise invalid("invocation.twice", f"parameter {argument.name!r} is given twice", argument, name)
        if all(argument.name != parameter.name for parameter in parameters):
            message = f"there is no parameter {argument.name!r}; it has {', '.join(p.name for p in parameters)}"
            raise invalid("invocation.unknown-parameter", message, argument, name)
        bound[argument.name] = argument.value
    for parameter in parameters:
        if parameter.name not in bound and parameter.default is None:
            raise invalid("invocation.missing", f"parameter {parameter.name!r} is not given", invocation, name)
    return tuple((parameter, bound.get(parameter.name)) for parameter in parameters)


class Inference:
    """Types of the expressions of one body; ``names`` maps each visible identifier to its type.

    The type is None where the definition of an identifier is wrong; ``broken`` holds the fragments whose declaration is
    wrong. What depends on either raises `Tainted`, so that no error is reported twice.
    """

    def __init__(
        self,
        declarations: Mapping[str, syntax.Fragment],
        fragment: syntax.Fragment | None,
        language: Language = CURRENT,
        broken: Collection[str] = (),
    ) -> None:
        self._declarations = declarations
        self._fragment = fragment
        self._language = language
        self._broken = broken
        self.names: dict[str, Type | None] = {}
        if fragment is not None:
            self.names.update((parameter.name, parameter.type) for parameter in fragment.parameters)

    def infer(self, node: syntax.Expression, tail: bool = False) -> Type:
        """The type of an expression.

        An invocation may give something other than a single tensor only in ``tail`` position, where it is assigned
        directly.
        """
        rule: Callable[[Inference, Any, bool], Type] = _RULES[type(node)]
        return rule(self, node, tail)

    def _identifier(self, node: syntax.Identifier, _: bool) -> Type:
        if node.name not in self.names:
            operation = " (it is the name of an operation)" if node.name in self._declarations else ""
            message = f"{node.name!r} is used before it is assigned{operation}"
            raise invalid("identifier-usage.undefined", message, node)
        found = self.names[node.name]
        if found is None:
            raise Tainted
        return found

    def _literal(self, node: syntax.Literal, _: bool) -> Type:
        return literal_type(node.value)

    def _array(self, node: syntax.ArrayExpression, _: bool) -> Type:
        item: Type | None = None
        for child in node.items:
            found = self.infer(child)
            common = found if item is None else common_type(item, found)
            if common is None:
                raise invalid(
                    "types.array-items", f"the items of an array must have one type, found {item} and {found}", child
                )
            item = common
        return ArrayType(item)

    def _tuple(self, node: syntax.TupleExpression, _: bool) -> Type:
        items = tuple(self.infer(child) for child in node.items)
        mixed = any(map(has_tensor, items)) and any(map(is_attribute, items)) and not all(map(_tensor_like, items))
        if mixed and not self._language.mixed_tuples:
            raise invalid("types.mixed-tuple", "a tuple mixes tensors and attributes", node)
        return TupleType(items)

    def _paren(self, node: syntax.Paren, tail: bool) -> Type:
        return self.infer(node.operand, tail)

    def _unary(self, node: syntax.Unary, _: bool) -> Type:
        found = self.infer(node.operand)
        wanted = (LOGICAL,) if node.operator == "!" else (INTEGER, SCALAR)
        if found in wanted or found == TensorType(wanted[-1].name):
            return found
        raise invalid("types.operator", f"operator {node.operator} does not apply to {found}", node)

    def _chain(self, node: syntax.Chain, _: bool) -> Type:
        left = self.infer(node.first)
        for symbol, operand in node.rest:
            right = self.infer(operand)
            result = _membership(left, right) if symbol == "in" else _binary(symbol, left, right)
            if result is None:
                raise invalid("types.operator", f"operator {symbol} does not apply to {left} and {right}", operand)
            left = result
        return left

    def _if_else(self, node: syntax.IfElse, tail: bool) -> Type:
        condition = self.infer(node.condition)
        if condition != LOGICAL:
            raise invalid("types.condition", f"a condition must be logical, found {condition}", node.condition)
        consequence, alternative = self.infer(node.consequence, tail), self.infer(node.alternative, tail)
        common = common_type(consequence, alternative)
        if common is None:
            message = f"the branches are of types {consequence} and {alternative}"
            raise invalid("types.branches", message, node.alternative)
        return common

    def _comprehension(self, node: syntax.Comprehension, _: bool) -> Type:
        scope = dict(self.names)
        empty = False
        items: dict[str, Type] = {}
        for iterator, array in node.iterators:
            found = self.infer(array)
            if not isinstance(found, ArrayType):
                raise invalid("types.iterable", f"only arrays can be iterated, found {found}", array)
            if iterator.name in scope or iterator.name in items:
                message = f"the loop iterator {iterator.name!r} is already defined"
                raise invalid("identifier-usage.iterator", message, iterator)
            empty = empty or found.item is None
            items[iterator.name] = found.item or Primitive("?")
        if empty:
            return ArrayType(None)
        self.names.update(items)
        try:
            if node.condition is not None and (found := self.infer(node.condition)) != LOGICAL:
                raise invalid("types.condition", f"a condition must be logical, found {found}", node.condition)
            return ArrayType(self.infer(node.item))
        finally:
            self.names = scope

    def _subscript(self, node: syntax.Subscript, _: bool) -> Type:
        sequence = self.infer(node.sequence)
        if isinstance(sequence, TupleType):
            if not isinstance(node.index, syntax.Literal) or literal_type(node.index.value) != INTEGER:
                raise invalid("types.tuple-subscript", "a tuple subscript must be an integer literal", node.index)
            index = int(node.index.value)
            if index >= len(sequence.items):
                message = f"subscript {index} is outside of a tuple of {len(sequence.items)} items"
                raise invalid("argument-validity.subscript", message, node.index)
            return sequence.items[index]
        self._integer(node.index)
        if sequence == STRING:
            return STRING
        if isinstance(sequence, ArrayType) and sequence.item is not None:
            return sequence.item
        raise invalid("types.subscript", f"a subscript does not apply to {sequence}", node)

    def _range(self, node: syntax.RangeSubscript, _: bool) -> Type:
        sequence = self.infer(node.sequence)
        for bound in (node.begin, node.end):
            if bound is not None:
                self._integer(bound)
        if sequence == STRING or isinstance(sequence, ArrayType):
            return sequence
        raise invalid("types.subscript", f"a range does not apply to {sequence}", node)

    def _integer(self, node: syntax.Expression) -> None:
        found = self.infer(node)
        if found != INTEGER:
            raise invalid("types.subscript", f"a subscript must be an integer, found {found}", node)

    def _builtin(self, node: syntax.Builtin, _: bool) -> Type:
        found = self.infer(node.argument)
        match node.name, found:
            case "shape_of", (TensorType() | Primitive()):
                return ArrayType(INTEGER)
            case "length_of", (ArrayType() | Primitive("string")):
                return INTEGER
            case "range_of", (ArrayType() | Primitive("string")):
                return ArrayType(INTEGER)
            case name, Primitive() if name in _CASTS:
                return _CASTS[name]
        raise invalid("types.builtin", f"{node.name} does not apply to {found}", node.argument)

    def _invocation(self, node: syntax.Invocation, tail: bool) -> Type:
        declaration = self._declarations.get(node.name)
        if declaration is None:
            raise invalid("invocation.unknown-operation", f"there is no operation {node.name!r}", node, node.name)
        if node.name in self._broken:
            raise Tainted
        if self._fragment is not None and node.name in self._language.graph_only:
            raise invalid("identifier-usage.graph-only", f"{node.name} must not be used in a fragment", node, node.name)
        bound = self.bind(node, declaration)
        types = {p.name: None if value is None else self.infer(value, self._language.chaining) for p, value in bound}
        declaration = self.specialise(node, declaration, types)
        generic = self._generic(node, declaration, types)
        for parameter, (_, value) in zip(declaration.parameters, bound, strict=True):
            formal = parameter.type if generic is None else substitute(parameter.type, generic)
            found = types[parameter.name]
            at: Placed = node if value is None else value
            if found is None and parameter.default is not None:
                found = literal_expression_type(parameter.default)
            if found is None or not castable(found, formal):
                message = f"parameter {parameter.name!r} of {node.name} is {formal}, found {found}"
                raise invalid("types.argument", message, at, node.name)
        results = tuple(r.type if generic is None else substitute(r.type, generic) for r in declaration.results)
        single = len(results) == 1 and (isinstance(results[0], TensorType) or self._language.chaining)
        if not tail and not single:
            message = f"{node.name} does not give a single tensor, so it cannot be used inside an expression"
            raise invalid("invocation.chaining", message, node, node.name)
        return results[0] if len(results) == 1 else TupleType(results)

    def bind(
        self, node: syntax.Invocation, declaration: syntax.Fragment
    ) -> tuple[tuple[syntax.Parameter, syntax.Expression | None], ...]:
        """Each formal parameter with its argument. Editions may override this."""
        return bind_arguments(declaration, node)

    def specialise(
        self, node: syntax.Invocation, declaration: syntax.Fragment, types: Mapping[str, Type | None]
    ) -> syntax.Fragment:
        """The declaration that an invocation with arguments of these types refers to. Editions may override this."""
        return declaration

    def declared(self, type_: Type, found: Type) -> Type:
        """The type of a declared result that gets a value of type ``found``. Editions may override this."""
        return type_

    def must_be_unpacked(self, type_: Type) -> bool:
        """Whether a result of an invocation must be assigned to an array or a tuple of identifiers."""
        if self._language.chaining:
            return isinstance(type_, TupleType)
        return not isinstance(type_, TensorType)

    def _generic(
        self, node: syntax.Invocation, declaration: syntax.Fragment, types: Mapping[str, Type | None]
    ) -> DataType | None:
        """The data type that ``?`` stands for in one invocation; None where the operation is not generic."""
        if not declaration.generic:
            if node.generic is not None:
                raise invalid("invocation.generic", f"{node.name} is not generic", node, node.name)
            return None
        if node.generic == "?" and not (self._fragment is not None and self._fragment.generic):
            raise invalid("invocation.generic", "<?> has no meaning outside of a generic fragment", node, node.name)
        if node.generic is not None:
            return node.generic
        if declaration.generic_default is not None:
            return declaration.generic_default
        found: set[DataType] = set()
        for parameter in declaration.parameters:
            actual = types[parameter.name]
            if actual is not None:
                found |= candidates(parameter.type, actual)
        if len(found) != 1:
            what = f"may be {' or '.join(sorted(found))}" if found else "cannot be deduced"
            raise invalid("types.generic", f"the generic type of {node.name} {what}", node, node.name)
        return found.pop()


def _tensor_like(type_: Type) -> bool:
    """Whether a type is a tensor or can be cast to one, so that a tuple may hold it together with tensors."""
    return isinstance(type_, TensorType | Primitive)


def _membership(item: Type, array: Type) -> Type | None:
    if not isinstance(array, ArrayType) or has_tensor(item) or has_tensor(array):
        return None
    return LOGICAL if array.item is None or common_type(item, array.item) is not None else None


def _binary(symbol: str, left: Type, right: Type) -> Type | None:
    """The type of ``left symbol right``; None where the operator does not apply."""
    _, takes, gives = OPERATORS[symbol]
    match left, right:
        case (TensorType(), (TensorType() | Primitive())) | (Primitive(), TensorType()):
            wanted = TensorType(takes)
            return TensorType(gives) if castable(left, wanted) and castable(right, wanted) else None
        case ArrayType(), ArrayType() if symbol == "+":
            return common_type(left, right)
        case ((ArrayType() | Primitive("string")), Primitive("integer")) if symbol == "*":
            return left
        case Primitive("string"), Primitive("string") if symbol == "+":
            return STRING
        case Primitive(), Primitive() if left == right:
            if symbol in ("==", "!="):
                return LOGICAL
            if takes == "logical":
                return LOGICAL if left == LOGICAL else None
            if left in (INTEGER, SCALAR):
                return LOGICAL if gives == "logical" else left
    return None


_RULES: Mapping[type[Any], Callable[..., Type]] = MappingProxyType(
    {
        syntax.Identifier: Inference._identifier,
        syntax.Literal: Inference._literal,
        syntax.ArrayExpression: Inference._array,
        PlainArray: lambda _, node, __: node.type,
        syntax.TupleExpression: Inference._tuple,
        syntax.Paren: Inference._paren,
        syntax.Unary: Inference._unary,
        syntax.Chain: Inference._chain,
        syntax.IfElse: Inference._if_else,
        syntax.Comprehension: Inference._comprehension,
        syntax.Subscript: Inference._subscript,
        syntax.RangeSubscript: Inference._range,
        syntax.Builtin: Inference._builtin,
        syntax.Invocation: Inference._invocation,
    }
)
