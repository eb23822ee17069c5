"""The operations of NNEF 1.0.1 chapter 4 in float64, one module per section, and those that the Khronos tools and
other formats add.

Importing it fills the table.
"""

from cvm.reference.operations import (  # noqa: F401  (imported for their operations)
    activations,
    elementwise,
    filters,
    integers,
    khronos,
    linear,
    miscellaneous,
    normalization,
    pooling,
    quantization,
    reduction,
    resampling,
    reshaping,
    roi,
    sampling,
    suppression,
    variables,
)
