"""Layers with state that the program keeps from run to run: SVDF and LSTM."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.windows import Windows, convolution
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.tensors import quantizer_of
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.quantization import LinearQuantizer

__all__ = ["BIASES", "CELL_STATE", "OUTPUT_STATE", "RECURRENT", "WEIGHTS", "over_time", "require_filters"]


@rule("SVDF")
def svdf(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Each filter keeps its last ``memory`` products with a feature vector as state, the oldest first.

    A result is the sum over time and over the ``rank`` filters that belong to it, plus a bias, then a fused activation.
    """
    source, features, times = (call.operand(i) for i in range(3))
    bias, state = call.optional(3), call.operand(4)
    batch, filters, memory, rank = require_filters(call)
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
    window = translation.reshape(product, (batch, filters, 1))
    if memory > 1:
        older = translation.taken(kept, np.arange(1, memory, dtype=np.int64), 2)
        window = translation.emit("concat", (older, window), axis=2)
    translation.variables.become(state, translation.reshape(window, (batch, filters * memory)))
    # Each result sums the products of its own filters: a convolution with one window, in groups.
    weights = translation.stored(times, (filters // rank, rank, memory))
    offset = Fraction(0) if bias is None else translation.stored(bias, (1, filters // rank))
    windows = Windows(((0, 0),), (1,), (1,))
    name = convolution(translation, window, weights, offset, windows, filters // rank)
    name = translation.reshape(name, (batch, filters // rank))
    return Made(translation.activated(call, name))


def require_filters(call: TfliteCall) -> tuple[int, int, int, int]:
    """The batch, the number of filters, the number of runs that each remembers, and the filters per result of an SVDF.

    Raises `Invalid` where the shapes of its operands do not fit each other.
    """
    source, features, times, state = (call.operand(i) for i in (0, 1, 2, 4))
    for operand in (source, features, times):
        call.require_rank(operand, 2)
    (batch, depth), (filters, memory), rank = source.shape, times.shape, call.integer("Rank", 1)
    if features.shape != (filters, depth) or rank < 1 or filters % rank or state.shape != (batch, filters * memory):
        raise call.invalid("shape", f"filters of {list(features.shape)} and {list(times.shape)} do not fit")
    return batch, filters, memory, rank


_PREACTIVATION = LinearQuantizer((Fraction(1, 2**12),), (Fraction(0),), -(2**15), 2**15 - 1)
_GATE = LinearQuantizer((Fraction(1, 2**15),), (Fraction(0),), -(2**15), 2**15 - 1)
"""The quantisers inside of a step, of 16 bits: sums before sigmoid and tanh, and the results of these."""

WEIGHTS, RECURRENT, _PEEPHOLES, BIASES = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11), (12, 13, 14, 15)
_PROJECTION, OUTPUT_STATE, CELL_STATE, _NORMS = (16, 17), 18, 19, (20, 21, 22, 23)
"""The operand indices of an LSTM for its gates (input, forget, cell, output) and its states."""
_TANH = 4


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Long short-term memory over a sequence; cell and output are state.

    The products with the input and with the previous output, and their sum, are rounded to 16-bit multiples of 2^-12;
    gates are rounded to multiples of 2^-15, as the kernels for 8-bit weights round. Without weights for the input gate,
    it is 1 minus the forget gate. Where the state has no scale, nothing is rounded inside of a step.
    """
    return over_time(translation, call, lambda x, hidden, memory: _step(translation, call, x, hidden, memory))


StepFunction = Callable[[str, str, str], tuple[str, str]]
"""A step function: from the input, the previous output and the previous cell to the output and the cell."""


def over_time(translation: TfliteTranslation, call: TfliteCall, after: StepFunction) -> Made:
    """The outputs of all steps of an LSTM; its states start from the program's state and are stored
    there at the end.
    """
    for index in (*_PEEPHOLES, *_PROJECTION, *_NORMS):
        if call.optional(index) is not None:
            raise call.refuse(f"its input {index} (of peepholes, a projection or layer normalisation) is not supported")
    if call.integer("FusedActivationFunction") != _TANH:
        raise call.refuse("its fused activation is not tanh")
    source, output, cell = call.operand(0), call.operand(OUTPUT_STATE), call.operand(CELL_STATE)
    call.require_rank(source, 3)
    axis = 0 if call.flag("TimeMajor") else 1
    batch, units = source.shape[1 - axis], output.shape[-1]
    hidden = translation.variables.tensor(translation, call, output)
    memory = translation.variables.tensor(translation, call, cell)
    results = []
    for step in range(source.shape[axis]):
        x = translation.taken(translation.name(source), np.array([step], np.int64), axis)
        x = translation.reshape(x, [extent for i, extent in enumerate(source.shape) if i != axis])
        hidden, memory = after(x, hidden, memory)
        results.append(translation.reshape(hidden, (1, batch, units) if axis == 0 else (batch, 1, units)))
    translation.variables.become(output, hidden)
    translation.variables.become(cell, memory)
    return Made(results[0] if len(results) == 1 else translation.emit("concat", tuple(results), axis=axis))


def _step(translation: TfliteTranslation, call: TfliteCall, x: str, hidden: str, memory: str) -> tuple[str, str]:
    """The output and the cell state after one step."""
    states = [quantizer_of(call.operand(index).tensor) for index in (OUTPUT_STATE, CELL_STATE)]
    forget, candidate, exit_ = (_gate(translation, call, number, x, hidden) for number in (1, 2, 3))
    if call.optional(WEIGHTS[0]) is None:
        enter = translation.emit("sub", Fraction(1), forget)
    else:
        enter = _gate(translation, call, 0, x, hidden)
    kept, added = translation.emit("mul", forget, memory), translation.emit("mul", enter, candidate)
    clip = call.number("CellClip")
    total = translation.emit("add", kept, added)
    if clip > 0:
        total = translation.emit("clamp", total, -clip, clip)
    cell = translation.emit("copy", total, quantizer=states[1])
    bounded = translation.emit("tanh", cell, quantizer=_inner(call, _GATE))
    return translation.emit("mul", exit_, bounded, quantizer=states[0]), cell


def _gate(translation: TfliteTranslation, call: TfliteCall, number: int, x: str, hidden: str) -> str:
    """One gate (0 to 3: input, forget, cell, output): sigmoid, or tanh for the cell, of the sum of two products."""
    bias = call.optional(BIASES[number])
    units = call.operand(OUTPUT_STATE).shape[-1]
    offset = Fraction(0) if bias is None else translation.stored(bias, (1, units))
    weights = [translation.stored(call.operand(index[number])) for index in (WEIGHTS, RECURRENT)]
    rounded = _inner(call, _PREACTIVATION)
    given = translation.emit("linear", x, weights[0], offset, quantizer=rounded)
    kept = translation.emit("linear", hidden, weights[1], Fraction(0), quantizer=rounded)
    total = translation.emit("add", given, kept, quantizer=rounded)
    return translation.emit("tanh" if number == 2 else "sigmoid", total, quantizer=_inner(call, _GATE))


def _inner(call: TfliteCall, quantizer: LinearQuantizer) -> LinearQuantizer | None:
    """The quantiser inside of a step, or None where the model is a float model."""
    return None if call.operand(OUTPUT_STATE).tensor.quantization is None else quantizer
