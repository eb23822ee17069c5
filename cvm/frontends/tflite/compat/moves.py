"""Operators that the reference kernels compute as their exact meaning: moved elements, integers, state."""

from __future__ import annotations

from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.compat.codes import grid_of
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.rules import RULES
from cvm.frontends.tflite.tensors import quantizer_of
from cvm.frontends.tflite.translation import Rule, TfliteTranslation

__all__: list[str] = []

_MOVES = (
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "TILE", "BROADCAST_TO",
    "SLICE", "STRIDED_SLICE", "REVERSE_V2", "GATHER", "GATHER_ND", "PAD", "PADV2", "MIRROR_PAD", "SPACE_TO_DEPTH",
    "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "RESIZE_NEAREST_NEIGHBOR", "REDUCE_MAX", "REDUCE_MIN",
    "MAXIMUM", "MINIMUM", "CONCATENATION", "SELECT", "SELECT_V2",
)  # fmt: skip
_SAME = (
    "ARG_MAX", "ARG_MIN", "DEQUANTIZE", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "REDUCE_ANY", "REDUCE_ALL",
    "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE",
)  # fmt: skip
"""Operators whose result depends on codes alone, or which say nothing of codes."""


def _on_one_grid(exact: Rule) -> Rule:
    """A rule of the exact meaning, for operands and results of one grid: then the kernel moves or compares codes."""

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


for _op in _MOVES:
    rule(_op)(_on_one_grid(RULES[_op]))
for _op in _SAME:
    rule(_op)(RULES[_op])
