"""softmax by tables of the exponential and one quotient: every code is that of the number to 60 digits."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.lowering import lower
from cvm.lowering.rules.exact_softmax import _proven_bits
from cvm.quantization import LinearQuantizer
from cvm.session import Session

EXACT = Context(prec=60)
NEAR = Decimal(10) ** -45


def decimal(number: Fraction) -> Decimal:
    return EXACT.divide(Decimal(number.numerator), Decimal(number.denominator))


def float32(number: float) -> Fraction:
    return Fraction(float(np.float32(number)))


def code(number: Decimal, quantizer: LinearQuantizer) -> int:
    """The code of a number; what lies within 10^-45 of a tie is one."""
    steps = EXACT.divide(EXACT.subtract(number, decimal(quantizer.offset[0])), decimal(quantizer.scale[0]))
    up = EXACT.add(steps, Decimal("0.5"))
    nearest = int(up.to_integral_value())
    found = math.floor(up)
    if abs(EXACT.subtract(up, Decimal(nearest))) < NEAR:
        found = nearest - (nearest % 2 if quantizer.rounding == "half_even" else 0)
    return max(quantizer.lo, min(found, quantizer.hi))


RESULTS = {
    "TFLite": LinearQuantizer((Fraction(1, 256),), (Fraction(1, 2),), -128, 127),
    "bytes": LinearQuantizer((Fraction(1, 255),), (Fraction(0),), 0, 255),
    "float32": LinearQuantizer((float32(1 / 255),), (Fraction(0),), 0, 255, rounding="half_even"),
    "odd zero": LinearQuantizer((float32(1 / 255),), (float32(1 / 255) * 127,), -127, 127, rounding="half_even"),
    "16 bits": LinearQuantizer((float32(1 / 65535),), (float32(1 / 65535) * 32768,), -32768, 32767),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_code_is_that_of_the_number(name: str) -> None:
    result, random = RESULTS[name], np.random.default_rng(len(name))
    for count, scale in ((9, float32(0.037)), (20, Fraction(1, 16)), (130, float32(0.09))):
        source = LinearQuantizer((scale,), (-scale * 5,), -128, 127)
        shape = (3, count)
        tensors = {
            "x": GraphTensor("x", shape, "external", quantizer=source),
            "y": GraphTensor("y", shape, "computed", quantizer=result),
        }
        attributes: dict[str, object] = {"axes": (1,), "accuracy": "default"}
        operation = GraphOperation("softmax", {"x": "x"}, attributes, ("y",))  # type: ignore[arg-type]
        program = lower(QuantizedGraph("g", ("x",), ("y",), tensors, (operation,)), op_set=2)
        assert [node.op for node in program.nodes].count("quotient") == 1
        assert len(program.nodes) <= 14
        codes = random.integers(-128, 128, shape)
        codes[0] = 7  # all equal: 1 / count, a tie where there is one
        found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]
        for row, line in zip(codes.tolist(), found.tolist(), strict=True):
            powers = [EXACT.exp(EXACT.multiply(decimal(scale), Decimal(q - max(row)))) for q in row]
            total = sum(powers, Decimal(0))
            assert line == [code(EXACT.divide(power, total), result) for power in powers]


def test_a_softmax_whose_steps_have_too_many_digits_has_no_proven_fixed_point() -> None:
    """The scale of a mutated file: e^scale has 10^14 digits."""
    assert _proven_bits(Fraction(228_876 * 10**9), 3, 4, [1.5, 2.0]) is None
