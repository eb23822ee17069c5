"""SVDF and LSTM as TFLite's reference kernels compute them; their state is state of the program."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.windows import Windows, convolution
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.compat.codes import Grid, grid_of, integer, rescaled, rounded_twice, stepped, table
from cvm.frontends.tflite.compat.fixed_point import Multiplier
from cvm.frontends.tflite.compat.functions_16 import logistic_codes, tanh_codes
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.compat.windows import bias_codes, filter_codes
from cvm.frontends.tflite.floats import binary32
from cvm.frontends.tflite.rules.recurrent import (
    BIASES,
    CELL_STATE,
    OUTPUT_STATE,
    RECURRENT,
    WEIGHTS,
    over_time,
    require_filters,
)
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []

_INT16 = integer(-(2**15), 2**15 - 1)
_INT17 = integer(-(2**16), 2**16 - 1)
_GATE_BITS = 3
"""The integer bits of the arguments of sigmoid and tanh in gates."""
_CELL_GATE = 2


def _symmetric(call: TfliteCall, index: int) -> Grid:
    """The grid of a state of 16 bits. Raises `Unsupported` where its zero point is not 0."""
    grid = grid_of(call, call.operand(index).tensor, "int16")
    if grid.zero:
        raise call.refuse(f"its state {index} has the zero point {grid.zero}", "compile it without --compat")
    return grid


@rule("SVDF")
def svdf(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The products with the features, scaled to 16 bits, are the state; their sums over time give the result.

    The kernel clips to the codes of the result alone, whatever the fused activation is.
    """
    source, features, times, state = (call.operand(i) for i in (0, 1, 2, 4))
    batch, filters, memory, rank = require_filters(call)
    given, result, kept = grid_of(call, source.tensor, "int8"), grid_of(call, call.result, "int8"), _symmetric(call, 4)
    scales = [weights.quantizer.scale[0] for weights in (features, times) if weights.quantizer is not None]
    if len(scales) < 2:
        raise call.refuse("its weights have no scales", "compile it without --compat")
    product = translation.emit(
        "matmul",
        stepped(translation, translation.name(source), given),
        filter_codes(translation, call, features, (0, 1)),
        transposeA=False,
        transposeB=True,
    )
    first = Multiplier.of(binary32(binary32(given.scale * scales[0]) / kept.scale))
    newest = rescaled(translation, product, [first], kept, (kept.lo, kept.hi))
    newest = translation.emit("copy", newest, quantizer=kept.quantizer)
    window = translation.reshape(newest, (batch, filters, 1), quantizer=kept.quantizer)
    if memory > 1:
        before = translation.reshape(translation.variables.tensor(translation, call, state), (batch, filters, memory))
        older = translation.taken(before, np.arange(1, memory, dtype=np.int64), 2)
        window = translation.emit("concat", (older, window), axis=2)
    translation.variables.become(state, translation.reshape(window, (batch, filters * memory)))
    weights = translation.reshape(filter_codes(translation, call, times, (0, 1)), (filters // rank, rank, memory))
    bias, windows = bias_codes(translation, call, 3, filters // rank), Windows(((0, 0),), (1,), (1,))
    total = convolution(translation, stepped(translation, window, kept), weights, bias, windows, filters // rank)
    total = translation.reshape(total, (batch, filters // rank))
    second = Multiplier.of(binary32(binary32(kept.scale * scales[1]) / result.scale))
    return Made(rescaled(translation, total, [second], result, (result.lo, result.hi)))


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Gates of 16 bits from sums of products that are scaled to 2^-12; sigmoid and tanh of gates by tables."""
    cell = _symmetric(call, CELL_STATE)
    exponent = cell.scale.numerator.bit_length() - cell.scale.denominator.bit_length()
    if cell.scale != Fraction(2) ** exponent or not -15 <= exponent <= -9:
        raise call.refuse("its cell has a scale that is no power of two from 2^-15 to 2^-9", "compile without --compat")
    layer = _Lstm(translation, call, cell, exponent)
    return over_time(translation, call, layer.step)


class _Lstm:
    """One LSTM: the constants that all of its steps share."""

    def __init__(self, translation: TfliteTranslation, call: TfliteCall, cell: Grid, exponent: int) -> None:
        self.translation, self.call, self.cell, self.exponent = translation, call, cell, exponent
        self.given = grid_of(call, call.operand(0).tensor, "int8")
        self.state = grid_of(call, call.operand(OUTPUT_STATE).tensor, "int8")
        self.coupled = call.optional(WEIGHTS[0]) is None
        clip = call.number("CellClip")
        most = int(min(binary32(clip / cell.scale), Fraction(2**15 - 1)))
        self.clip = (-most, most) if clip > 0 else (cell.lo, cell.hi)
        self.constants = {number: self._constants(number) for number in range(self.coupled, 4)}
        hidden = call.intermediates[4] if len(call.intermediates) > 4 else None
        if hidden is None or grid_of(call, hidden, "int8") != self.state:
            raise call.refuse("its hidden state and its output have different scales", "compile it without --compat")

    def _constants(self, number: int) -> list[tuple[str, str | Fraction, Multiplier]]:
        """The weights of a gate for the input and for the previous output, each with its bias and multiplier."""
        found: list[tuple[str, str | Fraction, Multiplier]] = []
        for indices, grid in ((WEIGHTS, self.given), (RECURRENT, self.state)):
            weights = self.call.operand(indices[number])
            if weights.quantizer is None or len(weights.quantizer.scale) > 1:
                raise self.call.refuse(f"{weights.label} has no scale, or several", "compile it without --compat")
            scale = binary32(binary32(weights.quantizer.scale[0] * grid.scale) * 2**12)
            codes = filter_codes(self.translation, self.call, weights, (0, 1))
            bias = Fraction(0) if found else self._bias(number)
            found.append((codes, bias, Multiplier.of(scale)))
        return found

    def _bias(self, number: int) -> str | Fraction:
        units = self.call.operand(OUTPUT_STATE).shape[-1]
        bias = bias_codes(self.translation, self.call, BIASES[number], units)
        assert isinstance(bias, str | Fraction)
        return bias

    def step(self, x: str, hidden: str, memory: str) -> tuple[str, str]:
        """The output and the cell state after one step."""
        emit = self.translation.emit
        forget, candidate, exit_ = (self._gate(number, x, hidden) for number in (1, 2, 3))
        enter = emit("sub", Fraction(2**15 - 1), forget) if self.coupled else self._gate(0, x, hidden)
        kept = self._divided(emit("mul", forget, stepped(self.translation, memory, self.cell)), 15)
        added = self._divided(emit("mul", enter, candidate), 30 + self.exponent)
        total = emit("add", kept, added, quantizer=integer(*self.clip))
        cell = emit("mul", total, self.cell.scale, quantizer=self.cell.quantizer)
        codes = tanh_codes(15 + self.exponent)
        bounded = table(self.translation, total, self.clip, lambda code: codes[code + 2**15], _INT16)
        factor = Multiplier.of(binary32(binary32(Fraction(1, 2**15) / self.state.scale) * Fraction(1, 2**15)))
        product = emit("mul", exit_, bounded)
        output = rescaled(self.translation, product, [factor], self.state, (self.state.lo, self.state.hi))
        return emit("copy", output, quantizer=self.state.quantizer), cell

    def _gate(self, number: int, x: str, hidden: str) -> str:
        """One gate (0 to 3: input, forget, cell, output), as a multiple of 2^-15."""
        total = ""
        for name, grid, (weights, bias, factor) in zip(
            (x, hidden), (self.given, self.state), self.constants[number], strict=True
        ):
            product = self.translation.emit("linear", stepped(self.translation, name, grid), weights, bias)
            scaled = rounded_twice(self.translation, product, [factor])
            # A sum beyond 17 bits saturates to 16 bits whatever is added to it.
            scaled = self.translation.emit("copy", scaled, quantizer=_INT17)
            scaled = self.translation.emit("add", scaled, total) if total else scaled
            total = self.translation.emit("copy", scaled, quantizer=_INT16)
        codes = tanh_codes(_GATE_BITS) if number == _CELL_GATE else logistic_codes(_GATE_BITS)
        return table(self.translation, total, (-(2**15), 2**15 - 1), lambda code: codes[code + 2**15], _INT16)

    def _divided(self, product: str, bits: int) -> str:
        """A product over 2^bits, rounded to the nearest integer, ties away from 0.

        Products are integers, so subtracting 2^-(bits + 1) from a negative quotient changes only the rounding of a tie.
        """
        emit, tie = self.translation.emit, Fraction(1, 2 ** (bits + 1))
        not_negative = emit("select", emit("ge", product, Fraction(0)), tie, Fraction(0))
        scaled = emit("add", emit("mul", product, Fraction(1, 2**bits)), not_negative)
        return emit("copy", emit("add", scaled, -tie), quantizer=_INT16)
