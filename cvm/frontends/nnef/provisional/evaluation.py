"""The operations that a checked provisional document stands for, statement by statement.

The document is rewritten, together with its fragments, which may contain what 1.0.1 forbids there; the evaluator of
1.0.1 flattens it, since it does not check these rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from cvm.errors import Invalid
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import declare
from cvm.frontends.nnef.faults import unsupported
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.provisional.operations import definitions
from cvm.frontends.nnef.provisional.rewriting import Rewriter
from cvm.frontends.nnef.values import FlatGraph, FlatOperation
from cvm.limits import DEFAULT, Limits
from cvm.records import dataclass

__all__ = ["Evaluated", "evaluate", "unknown_extents"]


_WINDOW_RULES = tuple(f"nnef.argument-validity.{name}" for name in ("size", "stride", "dilation", "padding"))


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A flattened document, and the operations of each statement of its graph."""

    flat: FlatGraph
    graph: syntax.Graph
    """The graph in terms of 1.0.1, with all external tensors among its parameters."""
    statements: tuple[tuple[FlatOperation, ...], ...]


def unknown_extents(document: syntax.Document) -> syntax.Expression | None:
    """The shape of an external tensor with an unknown extent, as the provisional specification allows; None if there is
    none.
    """
    for assignment in document.graph.body:
        value = assignment.value
        if isinstance(value, syntax.Invocation) and value.name == "external":
            for argument in value.arguments:
                if isinstance(argument.value, PlainArray) and 0 in argument.value.value:
                    return argument.value
    return None


def evaluate(document: syntax.Document, rewriter: Rewriter, limits: Limits = DEFAULT) -> Evaluated:
    """The operations, in terms of 1.0.1 and with shapes, of a document that `check_provisional` has found valid.

    Raises `Invalid` for arguments and shapes, `LimitExceeded` for expansions, and `Unsupported` for an external tensor
    with an unknown extent, which 1.0.1 does not have.
    """
    unknown = unknown_extents(document)
    if unknown is not None:
        message = "an extent of 0 means an unknown extent, which 1.0.1 does not have; give it a value"
        raise unsupported("extension.unknown-extent", message, unknown)
    while True:
        try:
            graph, flat = _flatten(document, rewriter, limits)
            break
        except Invalid as error:
            position = error.location.line, error.location.column
            if error.code not in _WINDOW_RULES or position in rewriter.short_windows:
                raise
            rewriter.short_windows.add(position)
    statements: list[tuple[FlatOperation, ...]] = []
    operations: list[FlatOperation] = []
    exported = dict(flat.exported)
    for operation in flat.operations:
        if operation.results and exported.get(_mark(len(statements))) is operation.results[0]:
            del exported[_mark(len(statements))]
            statements.append(tuple(operations))
            operations = []
        else:
            operations.append(operation)
    kept = tuple(operation for statement in statements for operation in statement)
    return Evaluated(replace(flat, operations=kept, exported=exported), graph, tuple(statements))


def _flatten(document: syntax.Document, rewriter: Rewriter, limits: Limits) -> tuple[syntax.Graph, FlatGraph]:
    """The rewritten graph, and the document flattened with a constant after each statement of the graph."""
    graph = _graph(document.graph, rewriter)
    marked = replace(graph, body=tuple(_with_marks(graph.body)))
    fragments = [rewriter.fragment(f, rewriter.fragments[f.name]) for f in document.fragments]
    fragments += [rewriter.definition(name) for name in definitions()]
    declarations = {**declare(()), **{fragment.name: fragment for fragment in fragments}}
    return graph, flatten_document(
        replace(document, graph=marked), declarations, limits, supplied=rewriter.definitions.values()
    )


def _mark(index: int) -> str:
    """The name of the constant that follows a statement; no document can contain it."""
    return f"end of {index}"


def _with_marks(body: tuple[syntax.Assignment, ...]) -> Iterator[syntax.Assignment]:
    for index, assignment in enumerate(body):
        yield assignment
        at = assignment.line, assignment.column
        yield syntax.Assignment(*at, syntax.Identifier(*at, _mark(index)), syntax.Literal(*at, Fraction(0)))


def _graph(graph: syntax.Graph, rewriter: Rewriter) -> syntax.Graph:
    """The graph in terms of 1.0.1. Its parameters are all external tensors; a provisional graph may
    have more of these.
    """
    body = rewriter.assignments(graph.body)
    parameters = [replace(i, name=rewriter.name(i.name)) for i in graph.parameters]
    known = {parameter.name for parameter in parameters}
    for assignment in body:
        match assignment.target, assignment.value:
            case syntax.Identifier(name=name) as target, syntax.Invocation(name="external") if name not in known:
                parameters.append(target)
    return replace(
        graph,
        name=rewriter.name(graph.name),
        parameters=tuple(parameters),
        results=tuple(replace(i, name=rewriter.name(i.name)) for i in graph.results),
        body=body,
    )
