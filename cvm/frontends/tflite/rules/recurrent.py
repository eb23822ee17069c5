"""SVDF: a filter over features and one over time, with the products of earlier runs as state."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.windows import Windows, convolution
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.tensors import quantizer_of
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []


@rule("SVDF")
def svdf(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Each filter has ``memory`` products of a feature vector as state, the oldest first; the newest is of this run.

    A result is the sum over time and over the ``rank`` filters that belong to it, plus a bias, then a fused function.
    """
    source, features, times = (call.operand(i) for i in range(3))
    bias, state = call.optional(3), call.operand(4)
    for operand in (source, features, times):
        call.require_rank(operand, 2)
    (batch, depth), (filters, memory), rank = source.shape, times.shape, call.integer("Rank", 1)
    if features.shape != (filters, depth) or rank < 1 or filters % rank or state.shape != (batch, filters * memory):
        raise call.invalid("shape", f"filters of {list(features.shape)} and {list(times.shape)} do not fit")
    quantizer = quantizer_of(state.tensor)
    before = translation.variables.tensor(translation, call, state)
    kept = translation.reshape(before, (batch, filters, memory))
    product = translation.emit(
        "matmul",
        translation.name(source),
        translation.stored(features),
        transposeA=False,
        transposeB=True,
        quantizer=quantizer,
    )
    parts = [translation.reshape(product, (batch, filters, 1))]
    if memory > 1:
        parts.insert(0, translation.taken(kept, np.arange(1, memory, dtype=np.int64), 2))
    window = translation.emit("concat", tuple(parts), axis=2) if memory > 1 else parts[0]
    translation.variables.become(state, translation.reshape(window, (batch, filters * memory)))
    # Each result sums the products of its own filters: a convolution of one window, in groups.
    weights = translation.stored(times, (filters // rank, rank, memory))
    offset = Fraction(0) if bias is None else translation.stored(bias, (1, filters // rank))
    windows = Windows(((0, 0),), (1,), (1,))
    name = convolution(translation, window, weights, offset, windows, filters // rank)
    name = translation.reshape(name, (batch, filters // rank))
    return Made(translation.activated(call, name))
