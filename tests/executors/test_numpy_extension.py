from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cvm import ops
from cvm.executors.numpy import extension
from tests.selection import examples

from .kernels import LARGEST, agree, call_of, int32, parameter, shapes, tensors

ROUNDINGS = ("half_up", "half_even", "toward_zero")


@st.composite
def parameters(draw: st.DrawFn, shape: tuple[int, ...], elements: st.SearchStrategy[int]) -> np.ndarray:
    """A parameter that broadcasts to the shape."""
    own = tuple(1 if draw(st.booleans()) else n for n in shape)[draw(st.integers(0, len(shape))) :]
    own = own or (1,)
    size = math.prod(own)
    return parameter(draw(st.lists(elements, min_size=size, max_size=size))).reshape(own)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
@settings(max_examples=examples(150))
@given(shape=shapes, terms=st.integers(1, 3), bits=st.integers(0, 62), block=st.integers(1, 9), data=st.data())
def test_requantize_equals_formal(
    rounding: str, shape: tuple[int, ...], terms: int, bits: int, block: int, data: st.DataObject
) -> None:
    wide = st.integers(-(2**bits) + 1, 2**bits - 1)
    arrays = [
        data.draw(tensors(shape, st.one_of(st.integers(-3, 3), st.integers(-LARGEST, LARGEST)))) for _ in range(terms)
    ]
    arrays += [data.draw(parameters(shape, st.one_of(wide, st.integers(-2, 2), st.just(1)))) for _ in range(terms)]
    arrays += [data.draw(parameters(shape, wide)), data.draw(parameters(shape, st.integers(0, 62)))]
    lo, hi = sorted(data.draw(st.tuples(st.integers(-LARGEST, LARGEST), st.integers(-LARGEST, LARGEST))))
    attributes = {"rounding": rounding, "lo": lo, "hi": hi}
    assume(provable(arrays, attributes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extension, "BLOCK_ELEMENTS", block)
        agree("requantize", arrays, attributes)


def provable(arrays: list[np.ndarray], attributes: dict[str, object]) -> bool:
    """Whether the verifier admits the call: its sums fit in int64."""
    return all(rule.holds(call_of("requantize", arrays, attributes)) for rule in ops.get("requantize").constraints)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_requantize_rounds_every_small_sum_as_formal(rounding: str, shift: int) -> None:
    X = int32(np.arange(-40, 41))
    attributes = {"rounding": rounding, "lo": -100, "hi": 100}
    agree("requantize", [X, parameter([1]), parameter([0]), parameter([shift])], attributes)
    agree("requantize", [X, parameter([3]), parameter([-1]), parameter([shift])], attributes)


def proven_and_equal(arrays: list[np.ndarray], attributes: dict[str, object]) -> None:
    assert provable(arrays, attributes)
    agree("requantize", arrays, attributes)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", [0, 1, 61, 62])
def test_requantize_equals_formal_at_the_ends_of_int64(rounding: str, shift: int) -> None:
    # |m * x| <= 2^62 - 1, |c| as large as leaves room for the sum and 2^(shift - 1).
    room = 2**63 - 1 - (2**62 - 1) - (2**shift >> 1)
    multiplier = (2**62 - 1) // LARGEST
    for c in (room, -room, 0, 1, -1):
        arrays = [int32([-LARGEST, -1, 0, 1, LARGEST]), parameter([multiplier]), parameter([c]), parameter([shift])]
        proven_and_equal(arrays, {"rounding": rounding, "lo": -LARGEST, "hi": LARGEST})
    proven_and_equal(
        [int32([-1, 0, 1]), parameter([2**62 - 1]), parameter([0]), parameter([shift])],
        {"rounding": rounding, "lo": -5, "hi": 5},
    )
