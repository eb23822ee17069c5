"""Every operation of chapter 4, and those of the Khronos dialect, by its name in the document.

Arguments are bound by Python: tensors positionally or by name, attributes by name, defaults as declared. `external`,
`variable`, `update` and `cast` (which needs the type in angle brackets) are `exact`'s own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import (
    activations,
    convolution,
    elementwise,
    matrices,
    normalizations,
    pooling,
    quantization,
    reductions,
    regions,
    resampling,
    shapes,
)

_NAMES: Mapping[Any, str] = {
    elementwise: """constant copy neg rcp exp log sin cos tan asin acos atan sinh cosh asinh
        acosh atanh abs sign floor ceil round add sub mul div pow lt gt le ge eq
        ne select sqr sqrt rsqr rsqrt log2 min max clamp add_n copy_n""",
    convolution: "conv deconv separable_conv separable_deconv box debox",
    pooling: "argmax_pool sample desample max_pool_with_index max_pool avg_pool rms_pool",
    resampling: "nearest_downsample area_downsample nearest_upsample multilinear_upsample",
    reductions: """sum_reduce mean_reduce max_reduce min_reduce argmax_reduce argmin_reduce any_reduce all_reduce
        moments""",
    shapes: "reshape squeeze unsqueeze transpose split concat stack unstack slice pad tile gather",
    regions: "avg_roi_pool max_roi_pool roi_resample avg_roi_align max_roi_align",
    matrices: "matmul linear",
    activations: """sigmoid relu prelu leaky_relu elu tanh softmax softplus selu gelu silu softabs""",
    normalizations: """local_response_normalization local_mean_normalization local_variance_normalization
        local_contrast_normalization l1_normalization l2_normalization batch_normalization""",
    quantization: """linear_quantize logarithmic_quantize zero_point_linear_quantize min_max_linear_quantize""",
}

OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(module, name) for module, names in _NAMES.items() for name in names.split()},
    "not": elementwise.not_,
    "and": elementwise.and_,
    "or": elementwise.or_,
}
"""Results are a tensor, or a list or tuple of tensors where the document declares so."""
