"""The arithmetic of TFLite's reference kernels, instead of the exact meaning: `REFERENCE`, a rule for each operator.

Every rule says what the kernel computes as an exact expression of integers that is rounded where the kernel rounds,
so that lowering proves the program as it does for other graphs.
"""

from cvm.frontends.tflite.compat import elementwise, moves, recurrent, reductions, windows
from cvm.frontends.tflite.compat.registry import REFERENCE

__all__ = ["REFERENCE"]

_MODULES = (elementwise, moves, recurrent, reductions, windows)
