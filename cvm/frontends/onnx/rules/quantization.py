"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from cvm.frontends.onnx.call import Made, OnnxCall
from cvm.frontends.onnx.grids import BIAS, data_type_of_codes, grid_of
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__: list[str] = []


@rule("QuantizeLinear")
def quantize_linear(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """QuantizeLinear: round once, at the operand where no other node reads it, else at a copy of it; then give the
    codes.
    """
    source = call.operand()
    grid = grid_of(call, source, data_type_of_codes(call))
    name, rounded = translation.name(source), translation.is_quantised(source)
    return Made(translation.quantized(name, source.shape, grid, rounded), source.shape, grid.data_type)


@rule("DequantizeLinear", BIAS)
def dequantize_linear(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """DequantizeLinear: (q - zero point) * scale, as a constant with its quantiser or as a scaling
    that lowering fuses.
    """
    source = call.operand()
    grid, shape = grid_of(call, source, source.data_type), source.shape
    if source.real:
        raise call.invalid("type", f"{source.name!r} is of {source.data_type}, which is no type of codes")
    real = "float32" if call.node.op == BIAS else call.operand(1).data_type
    if source.values is not None and source.values.size:
        stored = grid.stored(source.rank or 1)
        if stored is not None:
            return Made(translation.constant(source.values, shape, stored), shape, real)
    if call.node.op == BIAS:
        raise call.refuse(f"its bias {source.name!r} is no constant", "make it an initializer")
    return Made(translation.dequantized(translation.name(source), shape, grid), shape, real)
