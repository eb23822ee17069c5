"""The NumPy kernels of op-set 2 give what FORMAL gives: drawn operands, ties, the ends of every width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cvm import ops
from cvm.errors import Invalid
from cvm.executors.numpy import KERNELS, computed, normalize

from .kernels import LARGEST, agree, call_of, formal_results, int32, parameter, run_step, shapes, tensors

ROUNDINGS = ("half_up", "half_even", "toward_zero")
STATISTICS = ("variance", "mean_square", "square_sum")


def integers_of(bits: int) -> st.SearchStrategy[int]:
    """Integers of up to so many bits, small ones and the ends among them."""
    most = 2**bits - 1
    return st.one_of(st.integers(-most, most), st.integers(-3, 3), st.sampled_from([-most, most]))


@st.composite
def parameters(draw: st.DrawFn, shape: tuple[int, ...], elements: st.SearchStrategy[int]) -> np.ndarray:
    """A parameter that broadcasts to the shape."""
    own = tuple(1 if draw(st.booleans()) else n for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    size = math.prod(own)
    return parameter(draw(st.lists(elements, min_size=size, max_size=size))).reshape(own)


def admitted(op: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> bool:
    """Whether the verifier admits the call."""
    try:
        ops.get(op).prove(call_of(op, arrays, attributes))
    except Invalid:
        return False
    return True


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
@settings(max_examples=150, deadline=None)
@given(
    shape=shapes, terms=st.integers(1, 6), divisors=st.integers(1, 3), bits=st.integers(1, 62), block=st.integers(1, 9),
    data=st.data(),
)  # fmt: skip
def test_quotient_equals_formal(
    rounding: str, shape: tuple[int, ...], terms: int, divisors: int, bits: int, block: int, data: st.DataObject
) -> None:
    arrays = [data.draw(tensors(shape, integers_of(31))) for _ in range(terms)]
    arrays += [np.abs(data.draw(tensors(shape, integers_of(31)))) for _ in range(divisors)]
    arrays += [data.draw(parameters(shape, integers_of(bits))) for _ in range(terms)]
    arrays += [parameter([abs(data.draw(integers_of(bits)))]) for _ in range(divisors)]
    arrays += [data.draw(parameters(shape, integers_of(62))), parameter([abs(data.draw(integers_of(bits))) + 1])]
    lo, hi = sorted(data.draw(st.tuples(integers_of(31), integers_of(31))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computed, "BLOCK_ELEMENTS", block)
        agree("quotient", arrays, {"terms": terms, "rounding": rounding, "lo": lo, "hi": hi})


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("factor", [1, 2**58 + 1, 2**62 - 1])
def test_quotients_are_rounded_as_formal_in_either_width(rounding: str, factor: int) -> None:
    """Numerators around all multiples of half the divisor, exactly as they are and scaled beyond 64 bits."""
    x = int32(np.arange(-40, 41))
    for y in (1, 2, 3, 4, 7, 12):
        arrays = [x, int32([y]), parameter([factor]), parameter([factor]), parameter([0]), parameter([0])]
        attributes = {"terms": 1, "rounding": rounding, "lo": -100, "hi": 100}
        note = agree("quotient", arrays, attributes)
        assert note.startswith("int64" if factor == 1 else "limbs")
        for nudge in (-1, 1):
            agree("quotient", [*arrays[:4], parameter([nudge]), arrays[5]], attributes)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_wide_quotients_at_the_ends_of_32_bits(rounding: str) -> None:
    """Quotients within 2 of +-(2^31 - 1) and far beyond, whose bounds are those or nearer."""
    x = int32([LARGEST, -LARGEST, LARGEST - 1, 1 - LARGEST, 1, -1, 0])
    for m, w, c, e in ((2**62, 2**62, 0, 0), (2**62, 2**62, 2**61, 0), (2**62, 2**62, -(2**61), 0),
                       (2**63 - 1, 1, 0, 0), (2**62, 2**62 - 1, 0, 0), (2**62 + 1, 2**62, 1, 0)):  # fmt: skip
        arrays = [x, int32([1]), *map(parameter, ([m], [w], [c], [e]))]
        for lo, hi in ((-LARGEST, LARGEST), (-LARGEST, -LARGEST), (LARGEST, LARGEST), (-5, 5)):
            agree("quotient", arrays, {"terms": 1, "rounding": rounding, "lo": lo, "hi": hi})


@pytest.mark.sweep
@pytest.mark.parametrize("statistic", STATISTICS)
@settings(max_examples=200, deadline=None)
@given(
    shape=shapes, rounding=st.sampled_from(ROUNDINGS[:2]), bits=st.integers(1, 29), shift=st.integers(0, 62),
    block=st.integers(1, 9), data=st.data(),
)  # fmt: skip
def test_normalize_equals_formal(
    statistic: str, shape: tuple[int, ...], rounding: str, bits: int, shift: int, block: int, data: st.DataObject
) -> None:
    axes = tuple(data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True)))
    of_k, of_m, of_r, of_e = (data.draw(st.integers(1, most)) for most in (40, 62, 31, 62))
    arrays = [data.draw(tensors(shape, integers_of(bits))), data.draw(parameters(shape, integers_of(of_m)))]
    arrays.append(data.draw(parameters(shape, integers_of(data.draw(st.integers(1, 62))))))
    arrays.append(np.maximum(np.abs(data.draw(parameters(shape, integers_of(of_k)))), 1))
    arrays += [parameter([max(1, abs(data.draw(integers_of(width))))]) for width in (of_r, of_e)]
    lo, hi = sorted(data.draw(st.tuples(integers_of(17), integers_of(9))))
    attributes = {"axes": axes, "statistic": statistic, "shift": shift, "rounding": rounding, "lo": lo, "hi": hi}
    assume(admitted("normalize", arrays, attributes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "BLOCK_ELEMENTS", block)
        agree("normalize", arrays, attributes)


@pytest.mark.parametrize("rounding", ROUNDINGS[:2])
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(("r", "shift"), [(1, 0), (12345, 0), (2**20 + 1, 0), (4, 4)])
def test_ties_of_normalize_are_decided_as_formal_decides_them(
    rounding: str, statistic: str, r: int, shift: int
) -> None:
    """Rows whose V is a square: every code has a tie, by m and by c, and elements next to ties."""
    row = int32([-3, -1, 1, 3, 4, 0, -6, 2])
    n, S_1, S_2 = len(row), int(row.sum()), int((row.astype(object) ** 2).sum())
    Q = {"variance": n * S_2 - S_1 * S_1, "mean_square": n * S_2, "square_sum": S_2}[statistic]
    root = math.isqrt(Q) + 1
    e = (root * root - Q) * r * r // 2**shift
    assert e * 2**shift == (root * root - Q) * r * r
    attributes = {"axes": (0,), "statistic": statistic, "shift": shift, "rounding": rounding, "lo": -40, "hi": 40}
    for k in (1, 2, 3, 2**40):
        for step in (0, 1, -1):
            m = [root * k * half // 2 + step for half in (1, 1, 3, 5, 7, 9, 11, 1)]
            for c in (0, k // 2, -k, 3 * k // 2 + step):
                agree("normalize", [row, parameter(m), parameter([c]), *map(parameter, ([k], [r], [e]))], attributes)


def test_normalize_where_no_estimate_is_possible() -> None:
    """An offset so wide, or a factor so large, that no bit is left for the estimate."""
    x = int32([1, -1, 5, 0])
    attributes = {"axes": (0,), "statistic": "square_sum", "rounding": "half_even", "lo": 0, "hi": 0}
    for m, c in ((1, 2**63 - 2), (1, -(2**63) + 2), (2**62 - 1, 0), (2**62 - 1, -(2**62))):
        agree("normalize", [x, *map(parameter, ([m], [c], [1], [1], [1]))], attributes)
    agree("normalize", [x, *map(parameter, ([2**62 - 1], [0], [1], [1], [1]))], {**attributes, "lo": -9, "hi": 9})


def test_the_estimate_of_normalize_leaves_few_elements_to_exact_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 768 codes of 16 bits: less than one element in 300 is near a threshold."""
    left: list[int] = []
    true = normalize.Exact.decide

    def counted(self: Any, least: Any, largest: Any, *rest: Any) -> None:
        left.append(int((least != largest).sum()))
        true(self, least, largest, *rest)

    monkeypatch.setattr(normalize.Exact, "decide", counted)
    x = np.random.default_rng(1).normal(0, 9000, (4, 768)).clip(-32767, 32767).astype(np.int32)
    m = np.random.default_rng(2).integers(2**29, 2**30, 768)
    arrays = [x, m, parameter([12345]), parameter([2**17]), parameter([1000]), parameter([10**9])]
    attributes = {"axes": (1,), "statistic": "variance", "rounding": "half_up", "lo": -32768, "hi": 32767}
    call = call_of("normalize", arrays, attributes)
    (found,) = run_step(KERNELS["normalize"](call), call, arrays)
    assert sum(left) < x.size / 300
    (expected,) = formal_results("normalize", [x[:1, :16], m[:16], *arrays[2:]], dict(call.attributes))
    assert expected.shape == (1, 16)
    assert len(np.unique(found)) > 2500


@settings(max_examples=100, deadline=None)
@given(shape=shapes, index=st.integers(-LARGEST, LARGEST), small=st.integers(-2, 5), data=st.data())
def test_update_slice_equals_formal(shape: tuple[int, ...], index: int, small: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    at = axis % len(shape)
    own = (*shape[:at], data.draw(st.integers(1, shape[at])), *shape[at + 1 :])
    x, u = data.draw(tensors(shape)), data.draw(tensors(own))
    for start in (index, small):
        agree("update_slice", [x, u, int32([start])], {"axis": axis})
