"""Operators that are written out as others: one function per operator, by its domain and name."""

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.expansions import (  # noqa: F401  (enter the expansions)
    classical,
    contrib,
    control,
    ensembles,
    normalization,
    products,
    quantised,
    recurrent,
)
from cvm.frontends.onnx.expansions.quantised import of_numbers
from cvm.frontends.onnx.expansions.registry import EXPANDED, Expansion
from cvm.frontends.onnx.expansions.scatters import of_computed_indices
from cvm.frontends.onnx.expansions.versions import OLDER, older_form

__all__ = ["EXPANDED", "OLDER", "older_form", "other_form"]


def other_form(call: OnnxCall) -> Expansion | None:
    """How a node is written out whose operands ask for another form than its operator has; None for any other node."""
    return of_numbers(call) or of_computed_indices(call)
