"""A quantiser that rounds toward zero, and one that wraps: every code is that of the exact number."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tests.lowering.test_half_even import DENOMINATORS, FACTORS, codes_of, graph
from tests.selection import examples

PAIRS = list(product(range(-9, 10), repeat=2))
A, B = (np.array([pair[i] for pair in PAIRS]) for i in (0, 1))
POWERS = st.sampled_from([Fraction(1, 2**k) for k in range(9)])


def weighted(f: Fraction, g: Fraction, c: Fraction, last: str = "add") -> list[GraphOperation]:
    """F * a + g * b + c."""
    return [
        GraphOperation("mul", {"x": "a", "y": f}, {}, ("p",)),
        GraphOperation("mul", {"x": "b", "y": g}, {}, ("q",)),
        GraphOperation("add", {"x": "p", "y": "q"}, {}, ("r",)),
        GraphOperation("add", {"x": "r", "y": c}, {}, ("y" if last == "add" else "s",)),
    ]


@settings(max_examples=examples(80), deadline=None)
@given(FACTORS, FACTORS, st.builds(Fraction, st.integers(-99, 99), DENOMINATORS), st.integers(-9, 3))
def test_sums_of_two_tensors_are_truncated(f: Fraction, g: Fraction, c: Fraction, lo: int) -> None:
    quantizer = LinearQuantizer((Fraction(1),), (Fraction(0),), lo, lo + 7, rounding="toward_zero")
    expected = [min(max(math.trunc(f * x + g * y + c), lo), lo + 7) for x, y in PAIRS]
    assert codes_of(graph(weighted(f, g, c), quantizer, (len(PAIRS),)), A, B).tolist() == expected


@pytest.mark.parametrize("denominator", [1, 2, 3, 4, 7, 2**16, 3 * 2**16])
@pytest.mark.parametrize(("lo", "hi"), [(-4, 4), (0, 5), (1, 4), (-4, -1), (-6, 0)])
def test_every_bound(denominator: int, lo: int, hi: int) -> None:
    quantizer = LinearQuantizer((Fraction(denominator, 2),), (Fraction(0),), lo, hi, rounding="toward_zero")
    expected = [min(max(math.trunc(Fraction(2 * int(x), denominator)), lo), hi) for x in A]
    steps = [GraphOperation("copy", {"x": "a"}, {}, ("y",))]
    assert codes_of(graph(steps, quantizer, (len(PAIRS),)), A, B).tolist() == expected


@settings(max_examples=examples(80), deadline=None)
@given(
    st.integers(-40, 40).filter(bool), st.integers(-4000, 4000), st.integers(-99, 99), POWERS,
    st.sampled_from(["half_up", "half_even", "toward_zero"]), st.integers(1, 6), st.booleans(),
)  # fmt: skip
def test_codes_wrap_as_twos_complement(
    f: int, g: int, c: int, unit: Fraction, rounding: str, bits: int, signed: bool
) -> None:
    lo = -(2 ** (bits - 1)) if signed and bits > 1 else 0
    hi = lo + 2**bits - 1
    quantizer = LinearQuantizer((Fraction(1),), (Fraction(0),), lo, hi)
    attributes = {"scale": Fraction(1), "lo": lo, "hi": hi, "rounding": rounding}
    steps = weighted(f * unit, g * unit, c * unit, last="wrap")
    steps.append(GraphOperation("wrapping_quantize", {"x": "s"}, attributes, ("y",)))
    how = {"half_up": lambda v: math.floor(v + Fraction(1, 2)), "half_even": round, "toward_zero": math.trunc}[rounding]
    exact = [how((f * x + g * y + c) * unit) for x, y in PAIRS]
    expected = [(item - lo) % 2**bits + lo for item in exact]
    assert codes_of(graph(steps, quantizer, (len(PAIRS),)), A, B).tolist() == expected


def test_sums_beyond_32_bits_wrap() -> None:
    """Eight products of the least integers of 16 bits: 2^33 steps of 2^-8."""
    q = LinearQuantizer((Fraction(1, 256),), (Fraction(0),), -(2**15), 2**15 - 1)
    weights = np.array([[-(2**15)] * 8], np.int64)
    tensors = {
        "x": GraphTensor("x", (3, 8), "external", quantizer=q),
        "s": GraphTensor("s", (3, 1), "computed"),
        "y": GraphTensor("y", (3, 1), "computed", quantizer=q),
    }
    tensors["w"] = GraphTensor("w", (1, 8), "constant", data=TensorData(weights, q))
    attributes = {"scale": Fraction(1, 256), "lo": -(2**15), "hi": 2**15 - 1, "rounding": "half_even"}
    operations = (
        GraphOperation("linear", {"input": "x", "filter": "w", "bias": Fraction(1, 512)}, {}, ("s",)),
        GraphOperation("wrapping_quantize", {"x": "s"}, attributes, ("y",)),
    )
    program = lower(QuantizedGraph("g", ("x",), ("y",), tensors, operations))
    x = np.array([[-(2**15)] * 8, [2**15 - 1] * 8, [1, 2, 3, 4, 5, 6, 7, 8]])
    exact = [round(Fraction(int(item), 256) + Fraction(1, 2)) for item in (x * weights).sum(axis=1)]
    expected = [(item + 2**15) % 2**16 - 2**15 for item in exact]
    for executor in ("formal", "numpy"):
        assert Session(program, executor=executor).run({"x": x}, codes=True)["y"].ravel().tolist() == expected
