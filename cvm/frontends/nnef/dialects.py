"""Dialects: what a document needs beyond NNEF 1.0.1, and whether it may use it.

The dialect "khronos" is what the current Khronos tools read and write: operations and attributes of ``khronos.nnef``,
two quantisation algorithms, four item types of tensor files. It contains 1.0.1, so a document is checked against the
declarations of both; this module then refuses every addition where only 1.0.1 is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import khronos_library, standard_library
from cvm.frontends.nnef.faults import invalid
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.values import Array, Dialect, NeededDialect, Value
from cvm.graph.shapes import Results

__all__ = ["additions", "required_dialect", "standard_form"]

_LEAVES = (syntax.Identifier, syntax.Literal, PlainArray)


def required_dialect(document: syntax.Document, allowed: Dialect = "auto") -> NeededDialect:
    """The dialect that a document is written in.

    Raises `Invalid` where ``allowed`` excludes it: an addition under "1.0.1", or, under "khronos", a fragment with the
    name of an operation of the dialect.
    """
    if allowed == "khronos":
        for fragment in document.fragments:
            if fragment.name in khronos_library():
                message = f"{fragment.name!r} is the name of an operation of the dialect khronos"
                raise invalid("fragment-definition.duplicate", message, fragment)
    for node, what in additions(document):
        if allowed == "1.0.1":
            rule = "unknown-operation" if isinstance(node, syntax.Invocation) else "unknown-parameter"
            message = f"{what} is not of NNEF 1.0.1; the dialect khronos has it"
            raise invalid(f"invocation.{rule}", message, node)
        return "khronos"
    return "1.0.1"


def additions(document: syntax.Document) -> Iterator[tuple[syntax.SyntaxNode, str]]:
    """Each use of the dialect "khronos" in the text: the invocation or the argument, and its name for messages."""
    standard, khronos = standard_library(), khronos_library()
    own = {fragment.name for fragment in document.fragments}
    for invocation in _invocations(document):
        declared = khronos.get(invocation.name)
        if declared is None or invocation.name in own or declared is standard.get(invocation.name):
            continue
        if invocation.name not in standard:
            yield invocation, f"operation {invocation.name!r}"
            continue
        known = {parameter.name for parameter in standard[invocation.name].parameters}
        added = {parameter.name for parameter in declared.parameters} - known
        for argument in invocation.arguments:
            if argument.name in added:
                yield argument, f"attribute {argument.name!r} of {invocation.name}"


def _invocations(document: syntax.Document) -> Iterator[syntax.Invocation]:
    """All invocations in the order of the text, with those in fragments first."""
    bodies = [*(fragment.body or () for fragment in document.fragments), document.graph.body]
    for body in bodies:
        for assignment in body:
            pending: list[syntax.Expression] = [assignment.value]
            while pending:
                node = pending.pop()
                if isinstance(node, syntax.Invocation):
                    yield node
                pending.extend(child for child in reversed(_children(node)) if not isinstance(child, _LEAVES))


def _children(node: syntax.Expression) -> list[syntax.Expression]:
    match node:
        case syntax.Invocation(arguments=arguments):
            return [argument.value for argument in arguments]
        case PlainArray():
            return []
        case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
            return list(items)
        case syntax.Paren(operand=operand) | syntax.Unary(operand=operand):
            return [operand]
        case syntax.Chain(first=first, rest=rest):
            return [first, *(operand for _, operand in rest)]
        case syntax.IfElse():
            return [node.consequence, node.condition, node.alternative]
        case syntax.Comprehension():
            arrays = [array for _, array in node.iterators]
            return [*arrays, *_present([node.condition]), node.item]
        case syntax.Subscript():
            return [node.sequence, node.index]
        case syntax.RangeSubscript():
            return [node.sequence, *_present([node.begin, node.end])]
        case syntax.Builtin(argument=argument):
            return [argument]
    return []


def _present(nodes: Iterable[syntax.Expression | None]) -> list[syntax.Expression]:
    return [node for node in nodes if node is not None]


def standard_form(
    declaration: syntax.Fragment, arguments: Mapping[str, Value], shapes: Results | tuple[Any, ...]
) -> tuple[syntax.Fragment, Mapping[str, Value]]:
    """The same operation in terms of 1.0.1 where that is possible: with additional attributes at their defaults, or a
    reshape.

    ``shapes`` holds the shapes of the results. An operation that 1.0.1 cannot express is returned unchanged.
    """
    standard = standard_library().get(declaration.name)
    if standard is None or standard is declaration:
        return declaration, arguments
    kept = {parameter.name: arguments[parameter.name] for parameter in standard.parameters}
    match declaration.name:
        case "reshape":
            if (arguments["axis_start"], arguments["axis_count"]) != (0, -1):
                if shapes[0] is None:
                    return declaration, arguments
                kept["shape"] = Array(shapes[0])
        case "slice":
            stride = arguments["stride"]
            if isinstance(stride, tuple) and any(step != 1 for step in stride):
                return declaration, arguments
        case "elu":
            if arguments["alpha"] != 1:
                return declaration, arguments
    return standard, kept
