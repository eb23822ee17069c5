"""Roots and logarithms of sums: every code is that of the exact number, by models in rationals and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.lowering import lower
from cvm.program import Program
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tests.oracle import enclosures

SIZES = st.builds(Fraction, st.integers(1, 60), st.sampled_from([30, 64, 127, 200]))
Codes = np.ndarray[Any, Any]


def compiled(op: str, shape: tuple[int, ...], axes: tuple[int, ...], source: LinearQuantizer,
             result: LinearQuantizer) -> Program:  # fmt: skip
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    tensors = {
        "x": GraphTensor("x", shape, "external", quantizer=source),
        "y": GraphTensor("y", kept, "computed", quantizer=result),
    }
    operation = GraphOperation(op, {"input": "x"}, {"axes": axes}, ("y",))
    return lower(QuantizedGraph("g", ("x",), ("y",), tensors, (operation,)))


def by_steps(quantizer: LinearQuantizer, side: Callable[[Fraction], int]) -> int:
    """The code of a number from its sign against each step."""
    found = quantizer.lo
    for k in range(quantizer.lo + 1, quantizer.hi + 1):
        at = side(quantizer.offset[0] + (k - Fraction(1, 2)) * quantizer.scale[0])
        if at > 0 or (at == 0 and (quantizer.rounding == "half_up" or k % 2 == 0)):
            found = k
    return found


def of_root(square: Fraction) -> Callable[[Fraction], int]:
    """The sign of sqrt(square) - T."""
    return lambda at: 1 if at < 0 else (square > at * at) - (square < at * at)


def of_log(terms: list[Fraction], exponential: bool) -> Callable[[Fraction], int]:
    """The sign of ln(sum of terms), or of ln(sum of e^term), less T; by integer intervals."""

    @cache
    def total(bits: int) -> enclosures.Interval:
        parts = [enclosures.around(t, bits) for t in terms]
        parts = [enclosures.exp(part, bits) for part in parts] if exponential else parts
        return sum(part[0] for part in parts), sum(part[1] for part in parts)

    def side(at: Fraction) -> int:
        if exponential and len(terms) == 1:
            return (terms[0] > at) - (terms[0] < at)
        # e^x of distinct rationals x are independent (Lindemann and Weierstrass): a sum of several is no e^T.
        if not exponential and sum(terms) == 1 and at == 0:
            return 0
        if not exponential and sum(terms) == 0:
            return -1
        bits = 64
        while bits < 4096:
            low, high = total(bits)
            least, most = enclosures.exp(enclosures.around(at, bits), bits)
            if low > most:
                return 1
            if high < least:
                return -1
            bits *= 2
        raise AssertionError("undecided")

    return side


MODELS: dict[str, Callable[[list[Fraction]], Callable[[Fraction], int]]] = {
    "l2_reduce": lambda xs: of_root(sum((x * x for x in xs), Fraction(0))),
    "log_sum_reduce": lambda xs: of_log(xs, exponential=False),
    "log_sum_exp_reduce": lambda xs: of_log(xs, exponential=True),
}


def expected(op: str, codes: Codes, axes: tuple[int, ...], source: LinearQuantizer, result: LinearQuantizer) -> Codes:
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(codes.shape))
    found = np.empty(kept, np.int64)
    for at in product(*map(range, kept)):
        window = codes[tuple(slice(None) if axis in axes else i for axis, i in enumerate(at))]
        xs = [source.offset[0] + source.scale[0] * int(q) for q in window.ravel()]
        found[at] = by_steps(result, MODELS[op](xs))
    return found


@st.composite
def draws(draw: st.DrawFn) -> Any:
    op = draw(st.sampled_from(sorted(MODELS)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1)))))
    size, zero = draw(SIZES), draw(st.integers(-128, 127))
    source = LinearQuantizer((size,), (-size * zero,), -128, 127)
    if op == "log_sum_reduce":  # of what is not negative
        source = LinearQuantizer((size,), (Fraction(0),), 0, 255)
    step, low = draw(SIZES), draw(st.integers(-40, 20))
    result = LinearQuantizer((step,), (step * draw(st.integers(-3, 3)),), low, low + draw(st.integers(1, 60)),
                             rounding=draw(st.sampled_from(["half_up", "half_even"])))  # fmt: skip
    count = math.prod(shape)
    codes = draw(st.lists(st.integers(source.lo, source.hi), min_size=count, max_size=count))
    return op, np.array(codes).reshape(shape), axes, source, result


TIE_OF_ONE = (
    "log_sum_exp_reduce", np.array([1]), (), LinearQuantizer((Fraction(1, 30),), (Fraction(0),), -128, 127),
    LinearQuantizer((Fraction(1, 15),), (Fraction(0),), 0, 1),
)  # fmt: skip
"""ln(e^(1/30)) lies half way between two codes."""


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@example(TIE_OF_ONE)
@given(draws())
def test_every_code_is_that_of_the_exact_number(case: Any) -> None:
    check(case)


@pytest.mark.long
@settings(max_examples=1200, deadline=None)
@given(draws())
def test_every_code_is_that_of_the_exact_number_in_many_cases(case: Any) -> None:
    check(case)


def check(case: Any) -> None:
    op, codes, axes, source, result = case
    program = compiled(op, codes.shape, axes, source, result)
    found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(*case))


@pytest.mark.parametrize("rounding", ["half_up", "half_even"])
def test_ties_of_roots_and_of_the_logarithm_of_one(rounding: Any) -> None:
    """sqrt(9 + 16) = 5 = 2.5 steps of 2; ln 1 = 0 = -1/2 + 1/2."""
    whole = LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 255)
    for op, codes, step, offset in (("l2_reduce", [3, 4], 2, 0), ("log_sum_reduce", [0, 1], 1, Fraction(1, 2))):
        result = LinearQuantizer((Fraction(step),), (Fraction(offset),), -8, 8, rounding=rounding)
        case = (np.array(codes), (0,), whole, result)
        found = Session(compiled(op, (2,), *case[1:]), executor="numpy").run({"x": case[0]})["y"]
        np.testing.assert_array_equal(found, expected(op, *case))


@pytest.mark.parametrize("op", sorted(MODELS))
def test_long_sums_on_every_executor(op: str) -> None:
    codes = np.random.default_rng(4).integers(0, 256, (3, 700))
    source = LinearQuantizer((Fraction(1, 30),), (Fraction(0),), 0, 255)
    result = LinearQuantizer((Fraction(1, 10),), (Fraction(0),), -128, 127, rounding="half_even")
    program = compiled(op, codes.shape, (1,), source, result)
    wanted = expected(op, codes, (1,), source, result)
    for executor in ("numpy", "native", "formal"):
        np.testing.assert_array_equal(Session(program, executor=executor).run({"x": codes}, codes=True)["y"], wanted)


def test_logarithms_of_few_exponentials_are_proven_and_of_many_bounded() -> None:
    source = LinearQuantizer((Fraction(1, 30),), (Fraction(0),), -128, 127)
    result = LinearQuantizer((Fraction(1, 10),), (Fraction(0),), -128, 127, rounding="half_even")
    for count, bound in ((1, 0), (2, 0), (3, 0), (4, 0), (50, 1)):
        report = compiled("log_sum_exp_reduce", (count,), (0,), source, result).provenance.exactness
        assert [item.bound for item in report if item.tensor == "y"] == [bound]
