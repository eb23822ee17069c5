"""What each operator becomes in a `QuantizedGraph`: one function per operator, by its name in ONNX."""

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
