"""The arithmetic of TFLite's reference kernels, in place of the exact meaning: `REFERENCE` has a rule for each
operator.

Every rule expresses what the kernel computes as exact arithmetic on integers, rounded where the kernel rounds, so that
lowering proves the program as it does for other graphs.
"""

from cvm.frontends.tflite.compat import elementwise, moves, recurrent, reductions, windows
from cvm.frontends.tflite.compat.registry import REFERENCE

__all__ = ["REFERENCE"]

_MODULES = (elementwise, moves, recurrent, reductions, windows)
