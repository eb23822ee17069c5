"""Normalisations and norms as sums, roots and quotients; LogSoftmax and Hardmax.

Source: ONNX, the operators by their names.
"""

from __future__ import annotations

import numpy as np

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []


@expansion("LogSoftmax")
def log_softmax(w: Writer) -> None:
    """LogSoftmax: x minus the logarithm of the sum of e^x along an axis."""
    source = w.call.operand()
    axis = w.call.axis(w.call.integer("axis", -1), source.rank)
    total = w.add("ReduceLogSumExp", [source.name, w.integers([axis])])
    w.result("Sub", [source.name, total])


@expansion("Hardmax")
def hardmax(w: Writer) -> None:
    """Hardmax: 1 at the first of the greatest elements along an axis, 0 elsewhere."""
    source = w.call.operand()
    axis = w.call.axis(w.call.integer("axis", -1), source.rank)
    first = w.add("ArgMax", [source.name], axis=axis)
    along = [source.shape[axis] if i == axis else 1 for i in range(source.rank)]
    numbers = w.constant(np.arange(source.shape[axis]).reshape(along), "int64")
    hot = w.add("Equal", [first, numbers])
    w.result("CastLike", [hot, source.name])


@expansion("MeanVarianceNormalization")
def mean_variance(w: Writer) -> None:
    """MeanVarianceNormalization: (x - mean) / (deviation + 1e-9)."""
    source = w.call.operand()
    given = w.call.integers("axes")
    axes = w.integers(w.call.axes((0, 2, 3) if given is None else given, source.rank))
    centred = w.add("Sub", [source.name, w.add("ReduceMean", [source.name, axes])])
    variance = w.add("ReduceMean", [w.add("Mul", [centred, centred]), axes])
    deviation = w.add("Add", [w.add("Sqrt", [variance]), w.number(float(np.float32(1e-9)), source)])
    w.result("Div", [centred, deviation])


@expansion("GlobalLpPool")
def global_norm(w: Writer) -> None:
    """GlobalLpPool: the norm of each channel."""
    source, p = w.call.operand(), w.call.integer("p", 2)
    if source.rank < 3 or p not in (1, 2):
        raise w.call.refuse(
            f"a norm of order {p} over {list(source.shape)} is not computed", "use p 1 or 2, and at least one axis"
        )
    w.result(f"ReduceL{p}", [source.name, w.integers(range(2, source.rank))])
