"""Operators whose reference kernels compute the exact meaning: they move elements, compute integers or keep state."""

from __future__ import annotations

from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.compat.codes import grid_of, table
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.floats import binary32, round_away
from cvm.frontends.tflite.rules import RULES
from cvm.frontends.tflite.rules.movement import joined
from cvm.frontends.tflite.tensors import quantizer_of
from cvm.frontends.tflite.translation import Rule, TfliteTranslation

__all__: list[str] = []

_MOVES = (
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "TILE", "BROADCAST_TO",
    "SLICE", "STRIDED_SLICE", "REVERSE_V2", "GATHER", "GATHER_ND", "PAD", "PADV2", "MIRROR_PAD", "SPACE_TO_DEPTH",
    "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "RESIZE_NEAREST_NEIGHBOR", "REDUCE_MAX", "REDUCE_MIN",
    "MAXIMUM", "MINIMUM", "SELECT", "SELECT_V2",
)  # fmt: skip
_SAME = (
    "ARG_MAX", "ARG_MIN", "DEQUANTIZE", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "REDUCE_ANY", "REDUCE_ALL",
    "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CUSTOM.TFLite_Detection_PostProcess",
)  # fmt: skip
"""Operators whose results depend on codes alone, or that have no codes at all."""


def _on_one_grid(exact: Rule) -> Rule:
    """The exact rule, restricted to operands and results of one grid: then the kernel moves or compares codes."""

    def rule_(translation: TfliteTranslation, call: TfliteCall) -> Made | list[Made]:
        operands = [operand.tensor for operand in call.operands if operand is not None and operand.real]
        quantizers = {quantizer_of(tensor) for tensor in (*operands, *call.results)}
        if len(quantizers) > 1:
            message = "its operands and results have different scales or zero points"
            raise call.refuse(f"{message}, which its reference kernel does not convert", "compile it without --compat")
        if call.integer("FusedActivationFunction"):
            grid_of(call, call.result, "int8", "uint8", "int16")
        return exact(translation, call)

    return rule_


@rule("CONCATENATION")
def concatenation(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Codes joined along an axis; uint8 codes of other scales are converted by a
    table of 32-bit floats.
    """
    if not call.operand().real:
        return joined(translation, call, lambda part, name: name)
    result = grid_of(call, call.result, "int8", "uint8", "int16")

    def converted(part: Operand, name: str) -> str:
        given = grid_of(call, part.tensor, call.result.data_type)
        if (given.scale, given.zero) == (result.scale, result.zero):
            return name
        if call.result.data_type != "uint8" or part.values is not None:
            message = f"{part.label} and its result have different scales or zero points"
            raise call.refuse(f"{message}, which its reference kernel does not convert", "compile it without --compat")
        scale = binary32(given.scale * binary32(1 / result.scale))
        bias = binary32(-given.zero * scale)

        def code(item: int) -> int:
            number = round_away(binary32(binary32(item * scale) + bias)) + result.zero
            return min(max(number, result.lo), result.hi)

        return table(translation, name, (given.lo, given.hi), code, result.quantizer)

    made = joined(translation, call, converted)
    if not call.integer("FusedActivationFunction"):
        return made
    raise call.refuse("the reference kernel has no fused activation here", "compile it without --compat")


for _op in _MOVES:
    rule(_op)(_on_one_grid(RULES[_op]))
for _op in _SAME:
    rule(_op)(RULES[_op])
