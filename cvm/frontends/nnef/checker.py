"""Static semantics of a document: extensions, definitions, and the use of identifiers.

Source: NNEF 1.0.1 sections 3.2 (extensions) and 3.3.2 (Assignments; Identifier Usage in the Graph and Fragment Body).
"""

from __future__ import annotations

from collections.abc import Mapping

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import declare
from cvm.frontends.nnef.faults import invalid, too_large, unsupported
from cvm.frontends.nnef.inference import Inference
from cvm.frontends.nnef.types import ArrayType, TensorType, TupleType, Type, castable, depth_of
from cvm.limits import DEFAULT

__all__ = ["FRAGMENTS", "OPERATOR_EXPRESSIONS", "check_document"]

FRAGMENTS = "KHR_enable_fragment_definitions"
OPERATOR_EXPRESSIONS = "KHR_enable_operator_expressions"


def check_document(document: syntax.Document) -> Mapping[str, syntax.Fragment]:
    """Check all of a document that does not need values or shapes, and return all declarations in force.

    Raises `Invalid` with the rule that is broken, `Unsupported` for an extension that is not known.
    """
    enabled = {extension.name for extension in document.extensions}
    for extension in document.extensions:
        if extension.name not in (FRAGMENTS, OPERATOR_EXPRESSIONS):
            raise unsupported("extension.unknown", f"extension {extension.name} is not known", extension)
    if document.fragments and FRAGMENTS not in enabled:
        message = f"a fragment definition needs 'extension {FRAGMENTS};'"
        raise invalid("extension.fragments", message, document.fragments[0])
    declarations = declare(document.fragments)
    flat = OPERATOR_EXPRESSIONS not in enabled
    for fragment in document.fragments:
        if fragment.body is not None:
            _Body(declarations, fragment, flat).check(fragment.body)
    _check_graph(document.graph, declarations, flat)
    return declarations


def _check_graph(graph: syntax.Graph, declarations: Mapping[str, syntax.Fragment], flat: bool) -> None:
    for kind, identifiers in (("parameter", graph.parameters), ("result", graph.results)):
        seen: set[str] = set()
        for identifier in identifiers:
            if identifier.name in seen:
                message = f"{kind} {identifier.name!r} of the graph is listed twice"
                raise invalid("identifier-usage.duplicate", message, identifier)
            seen.add(identifier.name)
    body = _Body(declarations, None, flat)
    body.check(graph.body)
    for kind, identifiers in (("parameter", graph.parameters), ("result", graph.results)):
        for identifier in identifiers:
            if identifier.name not in body.assigned:
                message = f"{kind} {identifier.name!r} of the graph is never assigned"
                raise invalid("identifier-usage.unassigned", message, identifier)


class _Body:
    """The assignments of one fragment, or of the graph when ``fragment`` is None."""

    def __init__(
        self, declarations: Mapping[str, syntax.Fragment], fragment: syntax.Fragment | None, flat: bool
    ) -> None:
        self._inference = Inference(declarations, fragment)
        self._fragment = fragment
        self._flat = flat
        self._results = {} if fragment is None else {result.name: result.type for result in fragment.results}
        self._parameters = set() if fragment is None else {parameter.name for parameter in fragment.parameters}
        self.assigned: set[str] = set()

    def check(self, body: tuple[syntax.Assignment, ...]) -> None:
        for assignment in body:
            if self._flat:
                _check_flat(assignment)
            type_ = self._inference.infer(assignment.value, tail=True)
            self._assign(assignment.target, type_, assignment.value)
        if self._fragment is not None:
            for result in self._fragment.results:
                if result.name not in self.assigned:
                    message = f"result {result.name!r} of fragment {self._fragment.name!r} is never assigned"
                    raise invalid("identifier-usage.unassigned", message, result)

    def _assign(self, target: syntax.Expression, type_: Type, value: syntax.Expression) -> None:
        match target, type_:
            case syntax.Identifier(), _:
                self._define(target, type_, value)
            case syntax.ArrayExpression(items=items), ArrayType(item):
                for child in items:
                    if item is None:
                        raise invalid("identifier-usage.structure", "the array on the right is empty", child)
                    self._assign(child, item, value)
            case syntax.TupleExpression(items=items), TupleType(types) if len(items) == len(types):
                for child, child_type in zip(items, types, strict=True):
                    self._assign(child, child_type, value)
            case _:
                message = f"a value of type {type_} cannot be assigned to this {_shape(target)}"
                raise invalid("identifier-usage.structure", message, target)

    def _define(self, target: syntax.Identifier, type_: Type, value: syntax.Expression) -> None:
        name = target.name
        if name in self._parameters:
            raise invalid("identifier-usage.parameter", f"parameter {name!r} is assigned", target)
        if name in self.assigned:
            raise invalid("identifier-usage.twice", f"{name!r} is assigned twice", target)
        if self._fragment is None and not isinstance(type_, TensorType):
            message = f"identifiers of a graph must be tensors; {name!r} would be {type_}"
            raise invalid("identifier-usage.graph-tensors", message, target)
        if name in self._results:
            declared = self._results[name]
            if not castable(type_, declared):
                raise invalid("types.result", f"result {name!r} is {declared}, found {type_}", target)
            type_ = declared
        if not isinstance(type_, TensorType) and _invokes(value):
            message = f"{name!r} would be {type_}; the left side must have the structure of the result"
            raise invalid("identifier-usage.structure", message, target)
        if depth_of(type_) > DEFAULT.nesting:
            raise too_large("nesting", f"the type of {name!r} is nested deeper than {DEFAULT.nesting}", target)
        self.assigned.add(name)
        self._inference.names[name] = type_


def _shape(target: syntax.Expression) -> str:
    return "array" if isinstance(target, syntax.ArrayExpression) else "tuple"


def _invokes(value: syntax.Expression) -> bool:
    """Whether the value of an expression is what an invocation gives, as it is."""
    while True:
        match value:
            case syntax.Invocation():
                return True
            case syntax.Paren(operand=operand):
                value = operand
            case syntax.IfElse(consequence=consequence, alternative=alternative):
                if _invokes(consequence):
                    return True
                value = alternative
            case _:
                return False


def _check_flat(assignment: syntax.Assignment) -> None:
    """Section 3.2.1: without operator expressions the right side is one invocation on flat arguments."""
    value = assignment.value
    if isinstance(value, syntax.Invocation):
        for argument in value.arguments:
            _check_flat_argument(argument.value)
        return
    if isinstance(value, syntax.Identifier | syntax.Literal | syntax.ArrayExpression | syntax.TupleExpression):
        message = f"the right side must be an invocation without 'extension {OPERATOR_EXPRESSIONS};'"
        raise invalid("syntax.assignment", message, value)
    _check_flat_argument(value)


def _check_flat_argument(root: syntax.Expression) -> None:
    pending = [root]
    while pending:
        node = pending.pop()
        match node:
            case syntax.Identifier() | syntax.Literal():
                continue
            case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
                pending.extend(reversed(items))
                continue
            case syntax.Unary(operator=operator, operand=syntax.Literal(value=value)) if _is_number(value):
                if operator == "-":
                    continue
                if operator == "+":
                    raise invalid("lexical.plus", "a numeric literal has no plus sign in flat syntax", node)
        message = f"this expression needs 'extension {OPERATOR_EXPRESSIONS};'"
        raise invalid("extension.operator-expressions", message, node)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool | str)
