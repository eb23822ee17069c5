"""What each operator becomes: the rules, entered into one table by the modules of this folder."""

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
