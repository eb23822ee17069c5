"""Documents of the provisional specification of NNEF 1.0: recognition, checks, and conversion to documents of 1.0.1.

Source: chapter 3 of the provisional specification, in its Chinese translation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import Findings, TooMany, identifiers_of
from cvm.frontends.nnef.comments import attached
from cvm.frontends.nnef.faults import collected
from cvm.frontends.nnef.parser import is_provisional
from cvm.frontends.nnef.propagation import dependent, evaluated
from cvm.frontends.nnef.provisional.checker import Checked, check_provisional
from cvm.frontends.nnef.provisional.evaluation import evaluate, unknown_extents
from cvm.frontends.nnef.provisional.parser import parse_provisional
from cvm.frontends.nnef.provisional.rewriting import Rewriter
from cvm.frontends.nnef.provisional.upgrade import upgrade_document
from cvm.frontends.nnef.values import FlatGraph
from cvm.limits import DEFAULT, Limits

__all__ = ["check_text", "examine_text", "flat_form", "is_provisional", "upgrade_text"]


def check_text(text: str, limits: Limits = DEFAULT) -> Mapping[str, tuple[int, ...]]:
    """Check a provisional document, and return the shapes of the tensors of its graph.

    Raises the first error, which carries the other independent errors; apart from that it works as `examine_text`.
    """
    findings = Findings()
    shapes = examine_text(text, findings, limits)
    if findings:
        raise collected(findings)
    return shapes


def examine_text(text: str, findings: Findings, limits: Limits = DEFAULT) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the tensors of the correct part of the graph; errors are added to ``findings``.

    Where an external tensor has an extent of 0, which means an unknown extent, shapes are neither checked nor returned.
    An error is raised only where no statement is the cause.
    """
    checked = check_provisional(parse_provisional(text, limits), findings)
    document = checked.document
    if unknown_extents(document) is not None:
        return {}
    sound = tuple(fragment for fragment in document.fragments if fragment.name not in checked.unsound)
    rewriter = Rewriter(document)

    def evaluation(body: tuple[syntax.Assignment, ...]) -> FlatGraph:
        right = replace(document, fragments=sound, graph=replace(document.graph, body=body))
        return evaluate(right, rewriter, limits).flat

    skipped = dependent(document, checked.skipped, checked.unsound)
    try:
        flat = evaluated(document.graph.body, skipped, findings, evaluation)
    except TooMany:
        return {}
    exported = {} if flat is None else flat.exported
    named = ((name, exported.get(rewriter.name(name))) for name in _assigned(checked))
    return {name: tensor.shape for name, tensor in named if tensor is not None and tensor.shape is not None}


def _assigned(checked: Checked) -> list[str]:
    return [name for assignment in checked.document.graph.body for name in identifiers_of(assignment.target)]


def flat_form(text: str, limits: Limits = DEFAULT) -> FlatGraph:
    """The operations of a provisional document in terms of 1.0.1. Raises what `upgrade_text` raises."""
    checked = _check(text, limits)
    return evaluate(checked.document, Rewriter(checked.document), limits).flat


def upgrade_text(text: str, limits: Limits = DEFAULT) -> str:
    """The text of a document of 1.0.1 that means the same as a provisional one, with its comments.

    Raises the errors of `check_text`, and `Unsupported` for a document that 1.0.1 cannot express.
    """
    checked = _check(text, limits)
    return upgrade_document(checked, attached(text, checked.document), limits)


def _check(text: str, limits: Limits) -> Checked:
    findings = Findings()
    checked = check_provisional(parse_provisional(text, limits), findings)
    if findings:
        raise collected(findings)
    return checked
