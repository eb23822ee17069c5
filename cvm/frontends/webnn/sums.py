"""Operators of the builder that sum: matrix products, reductions, normalisations (WebNN 8.9.5 to 8.9.39)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cvm.frontends.common.shapes import broadcast
from cvm.frontends.webnn.arguments import documented, snake_case
from cvm.frontends.webnn.operand import MLOperand
from cvm.frontends.webnn.recorder import RecordedCall, Recorder

__all__ = ["Sums"]

Axes = Sequence[int] | None
_REDUCTIONS = (
    "reduceL1", "reduceL2", "reduceLogSum", "reduceLogSumExp", "reduceMax", "reduceMean", "reduceMin", "reduceProduct",
    "reduceSum", "reduceSumSquare",
)  # fmt: skip
"""The reductions of section 8.9.39."""


def _reduction(op: str) -> Callable[..., MLOperand]:
    def method(
        self: Sums, input: MLOperand, *, axes: Axes = None, keep_dimensions: bool = False, label: str = ""
    ) -> MLOperand:
        call = RecordedCall(self, op, label, {"input": input})
        where = call.axes("axes", axes, input.rank)
        keep = call.flag("keepDimensions", keep_dimensions)
        shape = [1 if i in where else n for i, n in enumerate(input.shape) if keep or i not in where]
        return call.result(input.data_type, shape, axes=where)

    return documented(method, "Sums", op, f"The reduction {op} over axes, all of them for None.")


def _position(op: str, text: str) -> Callable[..., MLOperand]:
    def method(
        self: Sums,
        input: MLOperand,
        axis: int,
        *,
        keep_dimensions: bool = False,
        output_data_type: str = "int32",
        label: str = "",
    ) -> MLOperand:
        call = RecordedCall(self, op, label, {"input": input})
        axis = call.unsigned("axis", axis, below=input.rank)
        data_type = call.word("outputDataType", output_data_type, "int32", "int64")
        keep = call.flag("keepDimensions", keep_dimensions)
        shape = (*input.shape[:axis], *((1,) if keep else ()), *input.shape[axis + 1 :])
        return call.result(data_type, shape, axis=axis)

    return documented(method, "Sums", op, text)


class Sums(Recorder):
    """Matrix products, reductions and normalisations; every method takes ``label``."""

    def gemm(
        self,
        a: MLOperand,
        b: MLOperand,
        *,
        c: MLOperand | None = None,
        alpha: Any = 1,
        beta: Any = 1,
        a_transpose: bool = False,
        b_transpose: bool = False,
        label: str = "",
    ) -> MLOperand:
        """The sum alpha * A * B + beta * C."""
        call = RecordedCall(self, "gemm", label, {"a": a, "b": b, "c": c})
        call.same_type("a", "b", "c")
        left = a.shape[::-1] if call.flag("aTranspose", a_transpose) else a.shape
        right = b.shape[::-1] if call.flag("bTranspose", b_transpose) else b.shape
        if left[1] != right[0]:
            raise call.error("shape", f"{left[1]} columns of a meet {right[0]} rows of b")
        shape = (left[0], right[1])
        if c is not None and broadcast(c.shape, shape) != shape:
            raise call.error("shape", f"{list(c.shape)} does not broadcast to {list(shape)}", "c")
        return call.result(a.data_type, shape, alpha=call.number("alpha", alpha), beta=call.number("beta", beta),
                           a_transpose=bool(a_transpose), b_transpose=bool(b_transpose))  # fmt: skip

    def matmul(self, a: MLOperand, b: MLOperand, *, label: str = "") -> MLOperand:
        """The matrix product over the last two axes; the leading axes broadcast."""
        call = RecordedCall(self, "matmul", label, {"a": a, "b": b})
        call.same_type("a", "b")
        if a.shape[-1] != b.shape[-2]:
            raise call.error("shape", f"{a.shape[-1]} columns of a meet {b.shape[-2]} rows of b")
        batches = broadcast(a.shape[:-2], b.shape[:-2])
        if batches is None:
            message = f"the batches do not broadcast: {list(a.shape)} and {list(b.shape)}"
            raise call.error("broadcast", message)
        return call.result(a.data_type, (*batches, a.shape[-2], b.shape[-1]))

    # Reductions

    arg_max = _position("argMax", "The index of the greatest element along an axis, the first of equal elements.")
    arg_min = _position("argMin", "The index of the least element along an axis, the first of equal elements.")

    def cumulative_sum(
        self, input: MLOperand, axis: int, *, exclusive: bool = False, reversed: bool = False, label: str = ""
    ) -> MLOperand:
        """The sum of the elements up to each index of an axis."""
        call = RecordedCall(self, "cumulativeSum", label, {"input": input})
        axis = call.unsigned("axis", axis, below=input.rank)
        flags = {"exclusive": call.flag("exclusive", exclusive), "reversed": call.flag("reversed", reversed)}
        return call.result(input.data_type, input.shape, axis=axis, **flags)

    def softmax(self, input: MLOperand, axis: int | None = None, *, label: str = "") -> MLOperand:
        """e^x divided by the sum of all e^x along an axis; the default is the last axis, as in older graphs."""
        call = RecordedCall(self, "softmax", label, {"input": input})
        axis = input.rank - 1 if axis is None else axis
        return call.result(input.data_type, input.shape, axis=call.unsigned("axis", axis, below=input.rank))

    # Normalisations

    def batch_normalization(
        self,
        input: MLOperand,
        mean: MLOperand,
        variance: MLOperand,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        axis: int = 1,
        epsilon: Any = 1e-5,
        label: str = "",
    ) -> MLOperand:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias along an axis."""
        operands = {"input": input, "mean": mean, "variance": variance, "scale": scale, "bias": bias}
        call = RecordedCall(self, "batchNormalization", label, operands)
        call.same_type(*operands)
        axis = call.unsigned("axis", axis, below=input.rank)
        for name in ("mean", "variance", "scale", "bias"):
            call.shaped(name, (input.shape[axis],))
        return call.result(input.data_type, input.shape, axis=axis, epsilon=call.number("epsilon", epsilon))

    def instance_normalization(
        self,
        input: MLOperand,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        epsilon: Any = 1e-5,
        layout: str = "nchw",
        label: str = "",
    ) -> MLOperand:
        """Normalise each channel of each image by its own mean and variance."""
        call = RecordedCall(self, "instanceNormalization", label, {"input": input, "scale": scale, "bias": bias})
        call.same_type("input", "scale", "bias")
        layout = call.word("layout", layout, "nchw", "nhwc")
        for name in ("scale", "bias"):
            call.shaped(name, (input.shape[layout.index("c")],))
        return call.result(input.data_type, input.shape, layout=layout, epsilon=call.number("epsilon", epsilon))

    def layer_normalization(
        self,
        input: MLOperand,
        *,
        scale: MLOperand | None = None,
        bias: MLOperand | None = None,
        axes: Axes = None,
        epsilon: Any = 1e-5,
        label: str = "",
    ) -> MLOperand:
        """Normalise over axes by mean and variance; the default is all axes but the first."""
        call = RecordedCall(self, "layerNormalization", label, {"input": input, "scale": scale, "bias": bias})
        call.same_type("input", "scale", "bias")
        where = call.axes("axes", range(1, input.rank) if axes is None else axes, input.rank)
        for name in ("scale", "bias"):
            call.shaped(name, [input.shape[axis] for axis in where])
        return call.result(input.data_type, input.shape, axes=where, epsilon=call.number("epsilon", epsilon))


for _op in _REDUCTIONS:
    setattr(Sums, snake_case(_op), _reduction(_op))
