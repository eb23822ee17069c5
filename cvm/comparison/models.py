"""Rounding models: how engines get the codes of a tensor from its operands. Each model names its source.

`MODELS` lists the models for each kind of region, in the order in which they are tried: of two that explain equally
many codes, the first is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cvm.comparison.additions import fixed_addition, float_addition, shifted_addition
from cvm.comparison.floats import average_of_reals, binary_of_reals, four_neighbours, product_of_codes
from cvm.comparison.functions import (
    average,
    float_softmax,
    mean,
    of_linear,
    rounded_float,
    short_multiplier,
    table_softmax,
    tied,
    two_multipliers,
)
from cvm.comparison.levels import average_with_padding, pair, shifted_sum, single, sum_of_codes
from cvm.comparison.numbers import Model, Numbers, Stages
from cvm.comparison.products import blocks_of_products, columns_of_products
from cvm.comparison.regions import Region
from cvm.comparison.sums import bfloat16_sum, float_sum, of_sum, saturating

__all__ = ["MODELS", "Model", "Numbers", "Stages", "models_for"]

_SUM: tuple[Model, ...] = (
    Model(
        "doubling high multiply and rounding shift",
        "gemmlowp, TFLite: MultiplyByQuantizedMultiplier (kernels/internal/common.h)",
        of_sum("double"),
    ),
    Model(
        "float32 scale, half to even",
        "ONNX Runtime: MlasRequantizeOutput (mlas/lib/quantize_common); XNNPACK: qs8 fp32 requantisation",
        of_sum("float32"),
    ),
    Model("fixed-point multiplier, rounded once", "TFLite with TFLITE_SINGLE_ROUNDING", of_sum("single")),
    Model(
        "multiplier of 15 bits, rounded once",
        "TFLite for 16-bit activations: MultiplyByQuantizedMultiplier with int64 (kernels/internal/common.h)",
        of_sum("reduced"),
    ),
    Model("float32 scale from float64, half to even", "XNNPACK with scales made in double", of_sum("float64")),
    Model("float32 scale by a reciprocal, half to even", "oneDNN", of_sum("reciprocal")),
    *(
        Model(
            f"float32 {'bfloat16 ' if cut else ''}result and bias, {by}{', zero point after rounding' if late else ''}",
            "OpenVINO, oneDNN: the bias and the output's scale are float32 post-operations",
            partial(float_sum, by=by, late=late, cut=cut),
        )
        for cut in (False, True)
        for by in ("division", "reciprocal", "merged")
        for late in (True, False)
        if not (cut and by == "merged")
    ),
)

_SUM += (
    Model(
        "pairs of products that saturate at 16 bits, float32 result",
        "vpmaddubsw, where the processor or its limit has no VNNI: oneDNN developer guide, int8 inference",
        saturating,
    ),
)

_SUM += tuple(
    Model(
        f"float32 products{words}, channels first, then the kernel",
        "ONNX Runtime: ConvTranspose<float> (cpu/nn/conv_transpose.cc) by MlasGemm and Col2im",
        partial(columns_of_products, fused=fused),
    )
    for fused, words in ((True, " by fused multiply-adds"), (False, ""))
)

_SUM += tuple(
    Model(
        f"bfloat16 operands, {words}",
        "OpenVINO with bfloat16 inference",
        partial(bfloat16_sum, whole=whole),
    )
    for whole, words in ((False, "float32 result"), (True, "bfloat16 result"))
)

_SUM += (
    Model(
        "float32 result and bias, quantiser by a product and a sum",
        "OpenVINO: FakeQuantize as a post-operation of oneDNN (plugins/intel_cpu/src/dnnl_postops_composer.cpp)",
        sum_of_codes,
    ),
    Model(
        "data quantised to 8 bits once more, by blocks of 32",
        "ONNX Runtime: MatMulNBits with accuracy level 4 (contrib_ops/cpu/quantization/matmul_nbits.cc, mlas/lib/"
        "qnbitgemm.cpp); OpenVINO: FullyConnected with DYNAMIC_QUANTIZATION_GROUP_SIZE",
        blocks_of_products,
    ),
    Model(
        "zero point of the data left out",
        "OpenVINO, where scales are 1e-14 or less: observed",
        partial(shifted_sum, flushed=False),
    ),
    Model(
        "product of scales flushed to zero, the bias alone",
        "OpenVINO: subnormal numbers are zero (property CPU_DENORMALS_OPTIMIZATION)",
        partial(shifted_sum, flushed=True),
    ),
)

_FAKE = "OpenVINO: FakeQuantize (plugins/intel_cpu/src/nodes/fake_quantize.cpp)"
_SIDES = (
    Model("two multipliers, two roundings", "TFLite: reference_ops::QuantizeLeakyRelu", two_multipliers),
    Model("multiplier of 8 fractional bits, rounded once", "XNNPACK: qs8-vcvt, qs8-vlrelu", short_multiplier),
)
_SINGLE = tuple(
    Model(f"quantiser on the operand's codes by a fused multiply-add{words}", _FAKE, partial(single, zero=zero))
    for zero, words in (("kept", ""), ("left out", ", zero point left out"))
)
_PAIR = tuple(
    Model(f"{words}{more}", f"{_FAKE} behind Add, Subtract or Multiply", partial(pair, form=form, zeros=zeros))
    for zeros, more in (
        (("kept", "kept"), ""),
        (("left out", "left out"), ", zero points left out"),
        (("left out", "unsigned"), ", zero points left out, the second operand unsigned"),
    )
    for form, words in (
        ("first", "codes in steps of the first operand, quantiser on them"),
        ("second", "codes in steps of the second operand, quantiser on them"),
        ("reals", "float32 operands, quantiser by a product and a sum"),
    )
)
_PADDED = Model(
    "average with the code 0 as padding",
    "OpenVINO: AvgPoolTransformation (common/low_precision_transformations/src/avg_pool.cpp)",
    average_with_padding,
)

_ADD = (
    Model("left shift 20, three rescalings", "TFLite: reference_ops::Add for int8 and uint8", shifted_addition),
    Model("integer multipliers of 21 bits, one shift", "XNNPACK: qs8-vadd, qu8-vadd", fixed_addition),
    *(
        Model(f"float32 addition, {form}", source, partial(float_addition, form=form))
        for form, source in (
            ("reals", "DequantizeLinear, Add, QuantizeLinear in float32"),
            ("reals reciprocal", "OpenVINO: Add in float32"),
            ("ratios", "ONNX Runtime: MlasQLinearAdd"),
            ("ratios fused", "ONNX Runtime: MlasQLinearAdd with fused multiply-add"),
        )
    ),
)

_LINEAR = (
    Model("doubling high multiply and rounding shift", "TFLite: MultiplyByQuantizedMultiplier", of_linear("double")),
    Model("float32 scale, half to even", "XNNPACK, ONNX Runtime", of_linear("float32")),
    Model("fixed-point multiplier, rounded once", "TFLite with TFLITE_SINGLE_ROUNDING", of_linear("single")),
    Model("float32 scale from float64, half to even", "XNNPACK", of_linear("float64")),
    Model("float32 scale by a reciprocal, half to even", "oneDNN", of_linear("reciprocal")),
)

_REALS = tuple(
    Model(
        f"float32 operands, result by {by}{'' if late else ', zero point before rounding'}",
        "DequantizeLinear, Sub, Mul or Div, QuantizeLinear in float32",
        partial(binary_of_reals, by=by, late=late),
    )
    for by in ("division", "reciprocal")
    for late in (True, False)
)
_PRODUCT = Model(
    "product of codes times a float32 ratio, zero point before rounding",
    "ONNX Runtime: MlasQLinearMul (mlas/lib/qlmul.cpp)",
    product_of_codes,
)

_MEAN = Model("multiplier divided by the count, two roundings", "TFLite: reference_integer_ops::Mean", mean)
_AVERAGE = (Model("average of codes, ties away from zero", "TFLite: reference_integer_ops::AveragePool", average),)
_WINDOW = Model(
    "float32 average of the window, row by row",
    "ONNX Runtime: QLinearAveragePool (contrib_ops/cpu/quantization/qlinear_pool.cc), AveragePool in float32",
    average_of_reals,
)
_RESIZE = tuple(
    Model(
        f"float32 sum of four neighbours{words}",
        "ONNX Runtime: UpsampleBilinear (core/providers/cpu/tensor/upsample.h)",
        partial(four_neighbours, halves=halves),
    )
    for halves, words in ((False, ""), (True, ", coordinates of centres"))
)

_SOFTMAX = (
    Model(
        "table of exponentials, scale as floor(1 / scale)",
        "ONNX Runtime: QLinearSoftmax (contrib_ops/cpu/quantization/qlinear_softmax.cc)",
        table_softmax,
    ),
    *(
        Model(f"float32 softmax, {form}", source, partial(float_softmax, form=form))
        for form, source in (
            ("table", "TFLite: optimized_ops::Softmax by a table"),
            ("division", "Softmax in float32"),
            ("reciprocal", "ONNX Runtime: MlasComputeSoftmax"),
        )
    ),
)

_TIES = (("even", "to even"), ("away", "away from zero"), ("up", "upward"), ("zero", "cut toward zero"))
_ALWAYS = (
    *(
        Model(f"exact result, ties {words}", "the exact meaning with another rule for ties", partial(tied, how=how))
        for how, words in _TIES
    ),
    *(
        Model(f"float32 result, {by}", "the operation in float32, then QuantizeLinear", partial(rounded_float, by=by))
        for by in ("division", "reciprocal")
    ),
)

MODELS: Mapping[str, Sequence[Model]] = {
    "sum": _SUM,
    "add": (*_ADD, *_PAIR),
    "avg_pool": (*_AVERAGE, *_LINEAR, _WINDOW, _PADDED),
    "mean_reduce": (_MEAN, *_AVERAGE, *_LINEAR),
    "softmax": _SOFTMAX,
    "mul": (*_LINEAR, *_REALS, _PRODUCT, *_PAIR),
    "sub": (*_REALS, *_PAIR, *_ADD),
    "div": _REALS,
    "resize": _RESIZE,
    "copy": (*_LINEAR, *_SINGLE, *_SIDES),
    "leaky_relu": (*_SINGLE, *_SIDES),
    "concat": _LINEAR,
}


def models_for(region: Region) -> list[Model]:
    """The models to try on a region: those of its kind, then those that only know the exact result."""
    known = MODELS.get(region.kind, ())
    coded = bool(region.operands) and all(item is not None for item in region.operands)
    return [*(known if coded else ()), *_ALWAYS]
