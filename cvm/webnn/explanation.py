"""Errors of lowering, rewritten for the author of the graph: in calls, operands and labels of the builder."""

from __future__ import annotations

import re

from cvm.errors import CvmError
from cvm.frontends.common.data_types import is_float
from cvm.frontends.webnn.errors import NotSupportedError
from cvm.frontends.webnn.operand import MLOperand
from cvm.frontends.webnn.rounding import MOVING
from cvm.frontends.webnn.translation import Translated, refusal

__all__ = ["explained"]

_ADVICE = {
    "lowering.overflow": "promise a value_range for the inputs, or cast to a wider data type first",
    "lowering.range": "quantise its operands to fewer bits, or promise a value_range for the inputs",
    "lowering.unprovable": "quantise its operands",
    "lowering.rounding": "quantise its operands",
    "lowering.undefined": "clamp its operand to where it has a value, or leave such numbers out by the zero point",
}


def explained(error: CvmError, translated: Translated) -> NotSupportedError:
    """Rewrite an error of lowering in the terms of the builder."""
    names = _Names(translated)
    operand = translated.operands.get(error.location.tensor or "")
    message = error.message.split("; `cvm quantize")[0].replace(" in graph.quant", "")
    if operand is None:
        advice = _ADVICE.get(error.code, "")
        text = names.said(message)
        return NotSupportedError(error.code, f"{text}; {advice}" if advice else text, error.location)
    if error.code == "lowering.unquantized":
        return refusal(operand, *_unrounded(operand, names.said(message, operand), translated))
    advice = _ADVICE.get(error.code, "")
    if "must be constant" in message:
        advice = "give it as a constant, or give build(.., calibration=[..]) representative inputs"
    return refusal(operand, names.said(message, operand), advice)


def _unrounded(operand: MLOperand, message: str, translated: Translated) -> tuple[str, str]:
    """The reason and the advice where a call needs codes: which of its operands no quantizeLinear rounds."""
    node = operand.node
    inside = [item for item in node.operands.values() if _is_sum(item)] if node else []
    if translated.open:
        return message, "build with fewer bits, or put quantizeLinear and dequantizeLinear before and after it"
    if node is None or not inside:
        return message, (
            "a float value would stay inside the graph: put quantizeLinear and dequantizeLinear after it, or give "
            "build(.., calibration=[..]) representative inputs"
        )
    whom = " and ".join(dict.fromkeys(_described(item) for item in inside))
    table, _, _ = message.partition(": give the operands")
    reason = f"{table}, and" if "combinations of codes" in table else "it reads codes, but"
    return f"{reason} nothing rounds {whom}", (
        f"put quantizeLinear and dequantizeLinear between it and {node.op}, or give build(.., calibration=[..]) "
        "representative inputs"
    )


def _is_sum(operand: MLOperand) -> bool:
    """Whether an operand is real and computed, and not only a move of what dequantizeLinear gives."""
    node = operand.node
    if node is None or not is_float(operand.data_type) or node.op in ("dequantizeLinear", "cast"):
        return False
    return node.op not in MOVING or any(map(_is_sum, node.operands.values()))


def _described(operand: MLOperand) -> str:
    """An operand in messages: an input, a constant, or the result of a call."""
    node = operand.node
    if node is None:
        return f"the {'input' if operand.values is None else 'constant'} {operand.name!r}"
    return f"the result {operand.name!r} of " + (f"[{node.label}] {node.op}" if node.label else node.op)


class _Names:
    """The names in messages for tensors of a graph: those of the operands that they are, or are parts of."""

    def __init__(self, translated: Translated) -> None:
        self._translated = translated
        self._made_by = {name: item for item in translated.graph.operations for name in item.outputs}

    def said(self, message: str, operand: MLOperand | None = None) -> str:
        """The message with operands in place of tensors, and without a leading name of a graph operation."""
        operations = {item.name for item in self._translated.graph.operations}
        first, colon, rest = message.partition(": ")
        if colon and first in operations:
            message = rest
        head, space, rest = message.partition(" ")
        if operand is not None and operand.node and head in operations and space:
            message = f"{operand.node.op} {rest}"
        message = re.sub(r"'([^']+)'", lambda found: self._quoted(found[1]), message)
        # The names of values of programs begin with an operand; what is appended to it is removed.
        return re.sub(r"\b([A-Za-z_]\w*)(\.[A-Za-z_0-9]+)+(?= =)", r"\1", message)

    def _quoted(self, name: str) -> str:
        if name not in self._translated.graph.tensors:
            return f"'{name}'"
        while name in self._made_by and name not in self._translated.named:
            maker = self._made_by[name]
            source = maker.inputs.get("input" if maker.name in ("reshape", "transpose") else "")
            if not isinstance(source, str):
                break
            name = source
        found = self._translated.named.get(name)
        if found is not None:
            return _described(found)
        part = self._translated.operands.get(name)
        if part is None or part.node is None:
            return "a constant" if name not in self._made_by else "a number in between"
        return f"a number inside of {part.node.op}"
