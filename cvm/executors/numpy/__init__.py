"""The NumPy executor: vectorised, portable, no compiler. One module of kernels per op family, and `normalize` alone."""

from cvm.executors.numpy import broadcast, computed, elemwise, extension, nn, normalize, reduce, transform, vision
from cvm.executors.numpy.executor import NumpyExecutor
from cvm.executors.numpy.step import KERNELS, Plan, PlannedNode

__all__ = [
    "KERNELS",
    "NumpyExecutor",
    "Plan",
    "PlannedNode",
    "broadcast",
    "computed",
    "elemwise",
    "extension",
    "nn",
    "normalize",
    "reduce",
    "transform",
    "vision",
]
