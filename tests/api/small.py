"""Small programs for the tests of the public surface."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.program import Output, Program, ProgramBuilder
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer

UNIT = LinearQuantizer.linear(Fraction(0), Fraction(1), 8)
"""Codes 0..255 for [0, 1]."""


def negated() -> Program:
    """image [1, 2, 3], codes 0..255 -> y = 255 - image, which stands for 1 - x; and total [1]."""
    builder = ProgramBuilder()
    image = builder.input("image", (1, 2, 3), quantizer=UNIT)
    (y,) = builder.add("broadcast_sub", [builder.constant(np.array([255])), image], name="difference")
    (total,) = builder.add("sum", [y], {"axes": ()}, name="total")
    return builder.build([Output("y", y, UNIT), Output("total", total)])


def channels() -> Program:
    """x [1, 3, 2] with a quantiser per channel -> the same codes."""
    quantizer = LinearQuantizer((Fraction(1, 10), Fraction(1, 7), Fraction(3)), (Fraction(0),) * 3, -128, 127, 1)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 2), quantizer=quantizer)
    (y,) = builder.add("clip", [x], {"a_min": -128, "a_max": 127})
    return builder.build([Output("y", y, quantizer)])


def pair() -> Program:
    """a [1, 4] of reals in [0, 1] and b [4] of integers -> their sum."""
    builder = ProgramBuilder()
    a = builder.input("a", (1, 4), quantizer=UNIT)
    b = builder.input("b", (4,), -10, 10)
    (y,) = builder.add("broadcast_add", [a, b], name="y")
    return builder.build([Output("y", y)])


def counter() -> Program:
    """step [1, 2] in 0..9 -> count = state + step, which is the next state; at most 1000."""
    builder = ProgramBuilder()
    step = builder.input("step", (1, 2), 0, 9)
    memory = builder.state("memory", builder.constant(np.array([[100, 200]])), 0, 1000)
    (raised,) = builder.add("elemwise_add", [memory, step])
    (count,) = builder.add("clip", [raised], {"a_min": 0, "a_max": 1000}, name="count")
    builder.update(memory, count)
    return builder.build([Output("count", count)])


def powers() -> Program:
    """An input (1, 3) under powers of two from 1/4 to 2, and the same codes as an output under powers from 1 to 8."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), quantizer=LogarithmicQuantizer(1, 2))
    (y,) = builder.add("negative", [x], {}, "y")
    return builder.build([Output("y", y, LogarithmicQuantizer(3, 2))])
