"""The rules of the operators, which the modules of this folder enter into one table."""

from cvm.frontends.tflite.rules import (
    detection,
    elementwise,
    movement,
    quantization,
    recurrent,
    reductions,
    resampling,
    state,
    windows,
)
from cvm.frontends.tflite.rules.registry import RULES

__all__ = ["RULES"]

_MODULES = (detection, elementwise, movement, quantization, recurrent, reductions, resampling, state, windows)
