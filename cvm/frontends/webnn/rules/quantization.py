"""quantizeLinear and dequantizeLinear (WebNN 8.9.16, 8.9.17), and cast."""

from __future__ import annotations

from cvm.frontends.common.data_types import is_float
from cvm.frontends.common.decompositions.arithmetic import truncated
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.scales import grid_of
from cvm.frontends.webnn.translation import WebnnTranslation, refusal

__all__: list[str] = []


@rule("quantizeLinear")
def quantize_linear(translation: WebnnTranslation, node: WebnnNode) -> str:
    """quantizeLinear: round once, at the operand where no other call reads it, else at a copy of it; then give the
    codes.
    """
    output, source = node.outputs[0], node.operands["input"]
    made = translation.done(output)
    if made is not None:  # the codes of an input: the host rounds them
        return made
    name, rounded = translation.name(source), translation.is_quantised(source)
    return translation.quantized(name, output.shape, grid_of(node), rounded)


@rule("dequantizeLinear")
def dequantize_linear(translation: WebnnTranslation, node: WebnnNode) -> str:
    """dequantizeLinear: (q - zero point) * scale, as a constant with its quantiser or as a scaling
    that lowering fuses.
    """
    source, grid = node.operands["input"], grid_of(node)
    shape = node.outputs[0].shape
    if source.values is not None:
        stored = grid.stored(source.rank or 1)
        if stored is not None:
            return translation.constant(source.values, shape, stored)
    return translation.dequantized(translation.name(source), shape, grid)


@rule("cast")
def cast(translation: WebnnTranslation, node: WebnnNode) -> str:
    """cast: to integers the low bits of integers; to real numbers an integer of 8 bits or a truth value."""
    source, output = node.operands["input"], node.outputs[0]
    name = translation.name(source)
    if is_float(output.data_type):
        if is_float(source.data_type) or source.data_type in ("int8", "uint8") or translation.calibrated:
            return name
        message = f"a cast of {source.data_type} to {output.data_type} would round"
        raise refusal(output, message, "use dequantizeLinear with scale 1")
    if is_float(source.data_type) and translation.calibrated:
        return truncated(translation, name, output.data_type)
    if is_float(source.data_type):
        message = "a cast of a float to integers is undefined out of range"
        raise refusal(output, message, "use quantizeLinear, which saturates")
    return translation.result(name, output.data_type)
