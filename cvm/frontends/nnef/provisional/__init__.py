"""Documents of the provisional specification of NNEF 1.0: recognised, checked, and made documents of 1.0.1.

Source: chapter 3 of the provisional specification, in its Chinese translation.
"""

from __future__ import annotations

from collections.abc import Mapping

from cvm.frontends.nnef.checker import Findings, identifiers_of
from cvm.frontends.nnef.faults import collected
from cvm.frontends.nnef.parser import is_provisional
from cvm.frontends.nnef.provisional.checker import Checked, check_provisional
from cvm.frontends.nnef.provisional.evaluation import evaluate, unknown_extents
from cvm.frontends.nnef.provisional.parser import parse_provisional
from cvm.frontends.nnef.provisional.rewriting import Rewriter
from cvm.frontends.nnef.provisional.upgrade import upgrade_document
from cvm.frontends.nnef.values import FlatGraph
from cvm.limits import DEFAULT, Limits

__all__ = ["check_text", "flat_form", "is_provisional", "upgrade_text"]


def check_text(text: str, limits: Limits = DEFAULT) -> Mapping[str, tuple[int, ...]]:
    """Check a provisional document, and return the shapes of the tensors of its graph.

    Where an external tensor has an extent of 0, which means that it is not known, shapes are neither checked nor
    returned. Raises the error of what is wrong, which knows the other independent ones.
    """
    checked = _check(text, limits)
    if unknown_extents(checked.document) is not None:
        return {}
    rewriter = Rewriter(checked.document)
    exported = evaluate(checked.document, rewriter, limits).flat.exported
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _assigned(checked):
        shape = exported[rewriter.name(name)].shape
        if shape is not None:
            shapes[name] = shape
    return shapes


def _assigned(checked: Checked) -> list[str]:
    return [name for assignment in checked.document.graph.body for name in identifiers_of(assignment.target)]


def flat_form(text: str, limits: Limits = DEFAULT) -> FlatGraph:
    """The operations of a provisional document, as 1.0.1 says them. Raises as `upgrade_text`."""
    checked = _check(text, limits)
    return evaluate(checked.document, Rewriter(checked.document), limits).flat


def upgrade_text(text: str, limits: Limits = DEFAULT) -> str:
    """The text of a document of 1.0.1 that means the same as a provisional one.

    Raises the errors of `check_text`, and `Unsupported` for what 1.0.1 cannot say.
    """
    return upgrade_document(_check(text, limits), limits)


def _check(text: str, limits: Limits) -> Checked:
    findings = Findings()
    checked = check_provisional(parse_provisional(text, limits), findings)
    if findings:
        raise collected(findings)
    return checked
