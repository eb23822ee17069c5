"""All independent errors of a document: static errors, then errors of arguments and shapes as far as these can be
evaluated.

Source: NNEF 1.0.1 chapter 6, steps 2 and 3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from cvm.errors import CvmError, LimitExceeded
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import Findings, TooMany, identifiers_of, survey
from cvm.frontends.nnef.dialects import required_dialect
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.values import Dialect, FlatGraph, NeededDialect
from cvm.frontends.nnef.walk import descendants
from cvm.limits import DEFAULT, Limits

__all__ = ["dependent", "evaluated", "propagate"]

_EVALUATIONS = 8  # how many times a document is evaluated in search of further errors


def propagate(
    document: syntax.Document, findings: Findings, limits: Limits = DEFAULT, dialect: Dialect = "auto"
) -> FlatGraph:
    """The flat form of the correct part of a document; errors are added to ``findings``.

    A wrong statement of the graph, and all statements that depend on it, are left out, and the rest is evaluated again.
    An error is raised only where no statement is the cause.
    """
    found = survey(document)
    skipped = dependent(document, found.skipped, found.unsound)
    empty = FlatGraph(document.graph.name, (), (), (), {}, allowed=dialect)
    needed: NeededDialect = "1.0.1"

    def flattened(body: tuple[syntax.Assignment, ...]) -> FlatGraph:
        right = replace(document, graph=replace(document.graph, body=body))
        return replace(flatten_document(right, found.declarations, limits), dialect=needed, allowed=dialect)

    try:
        for error in found.errors:
            findings.add(error)
        try:
            needed = required_dialect(document, dialect)
        except CvmError as error:
            findings.add(error)
        return evaluated(document.graph.body, skipped, findings, flattened) or empty
    except TooMany:
        return empty


Evaluation = TypeVar("Evaluation")


def evaluated(
    body: tuple[syntax.Assignment, ...],
    skipped: set[int],
    findings: Findings,
    evaluate: Callable[[tuple[syntax.Assignment, ...]], Evaluation],
) -> Evaluation | None:
    """The result of ``evaluate`` for the correct statements of a graph; None where none is left.

    ``skipped`` holds the indices of statements that are known to be wrong or to depend on a wrong one. Statements that
    prove wrong are left out as well, and their errors are added to ``findings``.
    """
    for _ in range(_EVALUATIONS):
        try:
            return evaluate(tuple(assignment for index, assignment in enumerate(body) if index not in skipped))
        except CvmError as error:
            if not any(_same(error, other) for other in findings):
                findings.add(error)
            index = _statement(body, error)
            if isinstance(error, LimitExceeded) or index is None or index in skipped:
                return None
            skipped.add(index)
            _add_dependents(body, skipped)
    return None


def _same(error: CvmError, other: CvmError) -> bool:
    """Whether two errors are the same error, reached through two invocations of a fragment."""
    same = error.location.line, error.location.column
    return error.code == other.code and same == (other.location.line, other.location.column)


def dependent(document: syntax.Document, skipped: Collection[int], unsound: Collection[str]) -> set[int]:
    """The indices of all statements of the graph that cannot be evaluated.

    These are the ``skipped`` ones, and those that need an ``unsound`` fragment, directly or indirectly.
    """
    unsound, skipped = set(unsound), set(skipped)
    invoked = {
        fragment.name: {name for assignment in fragment.body or () for name in _invocations(assignment)}
        for fragment in (document.fragments if unsound else ())
    }
    while added := {name for name, names in invoked.items() if name not in unsound and names & unsound}:
        unsound |= added
    if unsound:
        for index, assignment in enumerate(document.graph.body):
            if _invocations(assignment) & unsound:
                skipped.add(index)
    _add_dependents(document.graph.body, skipped)
    return skipped


def _invocations(assignment: syntax.Assignment) -> set[str]:
    return {node.name for node in descendants(assignment.value) if isinstance(node, syntax.Invocation)}


def _add_dependents(body: Collection[syntax.Assignment], skipped: set[int]) -> None:
    """Add the statements that use a result of a skipped one."""
    if not skipped:
        return
    missing: set[str] = set()
    for index, assignment in enumerate(body):
        if index not in skipped and missing:
            used = (node.name for node in descendants(assignment.value) if isinstance(node, syntax.Identifier))
            if any(name in missing for name in used):
                skipped.add(index)
        if index in skipped:
            missing.update(identifiers_of(assignment.target))


def _statement(body: tuple[syntax.Assignment, ...], error: CvmError) -> int | None:
    """The index of the statement of the graph whose evaluation led to an error; None where there is none."""
    where = error.trace[-1] if error.trace else error.location
    if where.line is None or where.column is None:
        return None
    index = bisect_right(body, (where.line, where.column), key=lambda a: (a.line, a.column)) - 1
    return index if index >= 0 else None
