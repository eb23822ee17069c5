"""Operators of com.microsoft that ONNX Runtime's optimiser writes, expanded to the operators of ONNX that they replace.

Source: ONNX Runtime, "Contrib operators" (com.microsoft).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import MICROSOFT, Attribute
from cvm.frontends.onnx.tensors import unpacked
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []


@expansion("BiasGelu", "FastGelu", domain=MICROSOFT)
def gelu(w: Writer) -> None:
    """BiasGelu and FastGelu: Gelu of X + bias; FastGelu approximates it by tanh and may have no bias."""
    name = w.add("Add", w.required(0, 1)) if w.input(1) else w.required(0)[0]
    w.result("Gelu", [name], approximate="none" if w.node.op == "BiasGelu" else "tanh")


@expansion("QuickGelu", domain=MICROSOFT)
def quick_gelu(w: Writer) -> None:
    """QuickGelu: X * sigmoid(alpha * X)."""
    w.result("Swish", w.required(0), {"alpha": float(np.float32(1.702)), **w.attributes()})


@expansion("FusedMatMul", domain=MICROSOFT)
def fused_matmul(w: Writer) -> None:
    """FusedMatMul: alpha times the matrix product. ``transA`` and ``transB`` transpose the matrices; ``transBatchA``
    and ``transBatchB`` move axis 0 to the axis before the last.
    """
    names = []
    for index, side in ((0, "A"), (1, "B")):
        operand, batched = w.call.operand(index), w.call.flag(f"transBatch{side}", False)
        name, rank = operand.name, operand.rank
        order = list(range(rank))
        if batched and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if w.call.flag(f"trans{side}", False) and rank > 1:
            order[-2:] = order[:-3:-1]
        names.append(name if order == sorted(order) else w.add("Transpose", [name], perm=tuple(order)))
    alpha = w.call.number("alpha", None) if w.call.has("alpha") else 1
    if alpha == 1:
        w.result("MatMul", names)
    else:
        w.result("Mul", [w.add("MatMul", names), w.number(float(alpha), w.call.operand(0))])


_PARAMETERS = {
    "LeakyRelu": ("alpha",), "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",),
}  # fmt: skip


@expansion("FusedConv", "FusedGemm", domain=MICROSOFT)
def fused(w: Writer) -> None:
    """FusedConv and FusedGemm: a convolution plus an optional tensor, or a Gemm, followed by an activation."""
    op = w.node.op.removeprefix("Fused")
    kind = w.call.text("activation", "")
    names = _PARAMETERS.get(kind, ())
    given: dict[str, Attribute] = {}
    if op == "Conv":
        parameters = w.call.numbers("activation_params") or ()
        given.update(zip(names, parameters, strict=False))
    else:
        given.update({name: w.node.attributes[key] for name in names if w.call.has(key := f"activation_{name}")})
    own = [key for key in w.node.attributes if key.startswith("activation")]
    w.call.ignore(*own)
    count = 3 if op == "Conv" else len(w.node.inputs)
    inputs = [*w.required(0, 1), *(w.input(index) for index in range(2, count))]
    steps: list[tuple[str, list[str], dict[str, Attribute], int | None]] = [(op, inputs, w.attributes(*own), None)]
    if op == "Conv" and w.input(3):
        steps.append(("Add", w.required(3), {}, None))
    if kind:
        steps.append((kind, [], given, 6 if kind == "Clip" else None))
    name = ""
    for index, (item, operands, attributes, opset) in enumerate(steps):
        output = w.node.outputs[0] if index == len(steps) - 1 else ""
        version = {} if opset is None else {"opset": opset}
        name = w.add(item, [*([name] if name else []), *operands], output, given=attributes, **version)


@expansion("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_normalization(w: Writer) -> None:
    """SkipLayerNormalization: normalise the sum of the input, the skip and the bias; the sum is a further result."""
    simple = w.node.op.startswith("SkipS")
    bias = 3 if simple else 4
    total = w.node.outputs[3] if len(w.node.outputs) > 3 else ""
    first = w.add("Add", w.required(0, 1), "" if w.input(bias) else total)
    if w.input(bias):
        first = w.add("Add", [first, w.input(bias)], total)
    given = {**w.attributes(), "axis": -1}
    given.setdefault("epsilon", float(np.float32(1e-12)))
    offset = [] if simple else w.given(3)
    op = "SimplifiedLayerNormalization" if simple else "LayerNormalization"
    w.result(op, [first, *w.required(2), *offset], given)


@expansion("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(w: Writer) -> None:
    """MatMulNBits: weights of 2, 4 or 8 bits in blocks of columns: W[n, k] = (code - zero point) * scale."""
    call = w.call
    k, n, bits, block = (call.integer(name, default) for name, default in _SIZES)
    call.ignore("accuracy_level")
    if bits not in (2, 4, 8) or block < 1 or k < 1 or n < 1:
        raise call.refuse(f"weights of {bits} bits in blocks of {block} are not supported", "use 2, 4 or 8 bits")
    if call.optional(4) is not None:
        raise call.refuse("weights whose blocks are in another order (g_idx) are not supported", "leave g_idx out")
    blocks = -(-k // block)
    stored = _bytes(w, 1, n * blocks * -(-block * bits // 8))
    codes = _unpacked(stored.reshape(n * blocks, -1), bits, block).reshape(n, blocks * block)[:, :k]
    scales = call.constant(2, "the scales")
    if scales.size != n * blocks:
        raise call.invalid("shape", f"there are {scales.size} scales, not {n * blocks}")
    zeros = _zeros(w, n, blocks, bits)
    whole = f"uint{bits}"
    inputs = [
        w.constant(codes.T, whole), w.constant(scales.reshape(n, blocks).T, call.operand(2).data_type),
        w.constant(zeros.T, whole),
    ]  # fmt: skip
    weights = w.add("DequantizeLinear", inputs, axis=0, block_size=block)
    product = w.add("MatMul", [*w.required(0), weights], "" if w.input(5) else w.node.outputs[0])
    if w.input(5):
        w.result("Add", [product, w.input(5)])


_SIZES = (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))


def _bytes(w: Writer, index: int, count: int) -> npt.NDArray[np.uint8]:
    found = w.call.constant(index, "the weights")
    if found.dtype != np.uint8 or found.size != count:
        raise w.call.invalid("shape", f"input {index} has {found.size} items of {found.dtype}, not {count} bytes")
    return found.ravel()


def _zeros(w: Writer, n: int, blocks: int, bits: int) -> npt.NDArray[Any]:
    operand = w.call.optional(3)
    if operand is None:
        return np.full((n, blocks), 2 ** (bits - 1), np.uint8)
    if operand.data_type != "uint8":
        raise w.call.refuse(f"zero points of {operand.data_type} are not read", "store them as packed uint8")
    packed = _bytes(w, 3, n * -(-blocks * bits // 8)).reshape(n, -1)
    return _unpacked(packed, bits, blocks)


def _unpacked(rows: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[Any]:
    """Elements of ``bits`` bits, unpacked from bytes: the first ``count`` of each row."""
    if bits == 8:
        return rows[:, :count]
    items = unpacked(rows.ravel(), f"uint{bits}", rows.size * 8 // bits)
    return items.reshape(rows.shape[0], -1)[:, :count]
