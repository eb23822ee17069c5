"""Expansions: operators that are rewritten as nodes of other operators, one function per operator."""

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.expansions import (  # noqa: F401  (enter the expansions)
    attention,
    classical,
    contrib,
    control,
    ensembles,
    normalization,
    products,
    quantised,
    recurrent,
    rotary,
    suppression,
)
from cvm.frontends.onnx.expansions.quantised import of_numbers
from cvm.frontends.onnx.expansions.registry import EXPANDED, Expansion
from cvm.frontends.onnx.expansions.scatters import of_computed_indices
from cvm.frontends.onnx.expansions.versions import OLDER, older_form

__all__ = ["EXPANDED", "OLDER", "older_form", "other_form"]


def other_form(call: OnnxCall) -> Expansion | None:
    """The expansion of a node whose operands need another form than its operator has; None for any other node."""
    return of_numbers(call) or of_computed_indices(call)
