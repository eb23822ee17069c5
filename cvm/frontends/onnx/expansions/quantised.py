"""Operators on quantised tensors, expanded to DequantizeLinear, the operator on real numbers and QuantizeLinear.

Source: ONNX, QLinearConv and QLinearMatMul; ONNX Runtime, "Contrib operators" (com.microsoft).
"""

from __future__ import annotations

import numpy as np

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.declarations import OPERATORS
from cvm.frontends.onnx.expansions.registry import Expansion, expansion
from cvm.frontends.onnx.grids import BIAS
from cvm.frontends.onnx.model import MICROSOFT, invalid, refusal
from cvm.frontends.onnx.writing import Writer

__all__ = ["of_numbers"]


@expansion("QLinearConv")
def conv(w: Writer) -> None:
    """QLinearConv: a convolution; the scale of its bias is the product of the scales of input and filter."""
    parts = [w.real(0, 1, 2), w.real(3, 4, 5, axis=0)]
    if w.input(8):
        parts.append(w.add(BIAS, [w.input(8), w.input(1), w.input(4)], axis=0))
    w.codes(w.add("Conv", parts, given=w.attributes()), 6, 7)


@expansion("QLinearMatMul")
def matmul(w: Writer) -> None:
    """QLinearMatMul: a matrix product with scales per row of A and per column of B."""
    parts = [w.real(0, 1, 2, axis=-2), w.real(3, 4, 5, axis=-1)]
    w.codes(w.add("MatMul", parts), 6, 7)


@expansion("QGemm", domain=MICROSOFT)
def gemm(w: Writer) -> None:
    """QGemm: a Gemm of dequantised operands; without a quantiser for the result, the result is a real number."""
    if w.node.attributes.get("alpha", 1.0) != 1.0 and w.input(6):
        raise refusal(
            w.node, "it has a bias and an alpha other than 1, which is not computed", "fold alpha into the scale of A"
        )
    columns = -2 if w.node.attributes.get("transB", 0) else -1
    parts = [w.real(0, 1, 2), w.real(3, 4, 5, axis=columns)]
    if w.input(6):
        parts.append(w.add(BIAS, [w.input(6), w.input(1), w.input(4)], axis=-1))
    if not w.input(7):
        w.add("Gemm", parts, w.node.outputs[0], given=w.attributes())
        return
    w.codes(w.add("Gemm", parts, given=w.attributes()), 7, 8)


_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearReduceMean": "ReduceMean"}
_POOLS = {"QLinearAveragePool": "AveragePool", "QLinearGlobalAveragePool": "GlobalAveragePool"}


@expansion(*_BINARY, domain=MICROSOFT)
def binary(w: Writer) -> None:
    """QLinearAdd and QLinearMul: a sum or product of dequantised operands."""
    w.codes(w.add(_BINARY[w.node.op], [w.real(0, 1, 2), w.real(3, 4, 5)], given=w.attributes()), 6, 7)


@expansion(*_UNARY, domain=MICROSOFT)
def unary(w: Writer) -> None:
    """QLinear functions and means of one dequantised operand."""
    w.codes(w.add(_UNARY[w.node.op], [w.real(0, 1, 2)], given=w.attributes("opset")), 3, 4)


@expansion(*_POOLS, domain=MICROSOFT)
def pool(w: Writer) -> None:
    """QLinear average pooling; with ``channels_last``, the channels are transposed to axis 1 before
    and back after it.
    """
    op, last = _POOLS[w.node.op], w.call.flag("channels_last", False)
    real = w.real(0, 1, 2)
    rank = w.call.operand(0).rank
    if last and rank < 3:
        raise w.call.invalid("shape", f"expected batch, channels and an axis more, found {rank} axes")
    if last:
        real = w.add("Transpose", [real], perm=(0, rank - 1, *range(1, rank - 1)))
    real = w.add(op, [real], given=w.attributes("channels_last"))
    if last:
        real = w.add("Transpose", [real], perm=(0, *range(2, rank), 1))
    w.codes(real, 3, 4)


@expansion("QLinearSoftmax", domain=MICROSOFT)
def softmax(w: Writer) -> None:
    """QLinearSoftmax: Softmax as the version ``opset`` defines it."""
    opset = w.call.integer("opset", 13)
    w.codes(w.add("Softmax", [w.real(0, 1, 2)], given=w.attributes("opset"), opset=opset), 3, 4)


@expansion("QLinearConcat", domain=MICROSOFT)
def concat(w: Writer) -> None:
    """QLinearConcat: parts, each with its own quantiser."""
    parts = [w.real(index, index + 1, index + 2) for index in range(2, len(w.node.inputs), 3)]
    if not parts:
        raise invalid(w.node, "inputs", "there is nothing to concatenate")
    w.codes(w.add("Concat", parts, given=w.attributes()), 0, 1)


@expansion("DynamicQuantizeLinear")
def dynamic(w: Writer) -> None:
    """DynamicQuantizeLinear as the real numbers themselves, with scale 1.

    They are rounded where they are read, on the fixed grid that calibration finds. An operator that would multiply the
    codes multiplies the real numbers instead (`of_numbers`), and the scale contributes the factor 1.
    """
    if not w.floats:
        raise w.call.refuse("its scales depend on the data", OPERATORS["", "DynamicQuantizeLinear"].note.split(": ")[1])
    w.add("Identity", w.required(0), w.node.outputs[0])
    results = zip(w.node.outputs[1:], ((np.float32(1), "float32"), (np.uint8(0), "uint8")), strict=False)
    for name, (value, data_type) in results:
        if name:
            w.add("Identity", [w.constant(value, data_type)], name)


def of_numbers(call: OnnxCall) -> Expansion | None:
    """The expansion of an integer product whose first operand comes from a DynamicQuantizeLinear;
    None for other nodes.
    """
    integers = call.node.op in ("MatMulInteger", "ConvInteger") and not call.node.domain
    first = call.optional(0)
    return _product_of_numbers if integers and first is not None and first.real else None


def _product_of_numbers(w: Writer) -> None:
    sides, axis = w.required(0, 1), 0 if w.node.op == "ConvInteger" else max(w.call.operand(1).rank - 1, 0)
    if not w.call.operand(1).real:
        zero = w.call.optional(3)
        ones = np.ones(zero.shape if zero is not None else (), np.float32)
        scale = w.constant(ones, "float32")
        sides[1] = w.add("DequantizeLinear", [sides[1], scale, *w.given(3)], axis=axis if ones.ndim == 1 else None)
    w.add(w.node.op.removesuffix("Integer"), sides, w.node.outputs[0], given=w.attributes())


@expansion("QLinearWhere", domain=MICROSOFT)
def where(w: Writer) -> None:
    """QLinearWhere: a choice between dequantised operands."""
    w.codes(w.add("Where", [*w.required(0), w.real(1, 2, 3), w.real(4, 5, 6)]), 7, 8)
