"""The rules of the operators: one function per operator of ONNX emits its operations to a `QuantizedGraph`."""

from cvm.frontends.onnx.rules import (  # noqa: F401  (enter the rules)
    arithmetic,
    bits,
    functions,
    indices,
    movement,
    normalization,
    ordering,
    quantization,
    reductions,
    resampling,
    windows,
)
from cvm.frontends.onnx.rules.registry import RULES

__all__ = ["RULES"]
