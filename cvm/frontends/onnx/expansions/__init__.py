"""Operators that are written out as others: one function per operator, by its domain and name."""

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
from cvm.frontends.onnx.expansions.registry import EXPANDED
from cvm.frontends.onnx.expansions.versions import OLDER, older_form

__all__ = ["EXPANDED", "OLDER", "older_form"]
