"""Programs whose constants lie at the edges of 64 bits, and whose sums are counted from 16-bit codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors.base import returned
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime.select import available
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import compare

pytestmark = pytest.mark.usefixtures("ways")


def requantized(builder: ProgramBuilder, x: str, m: Any, c: Any, s: Any, lo: int, hi: int) -> Program:
    parameters = [builder.parameter(np.array(value)) for value in (m, c, s)]
    (y,) = builder.add("requantize", [x, *parameters], {"rounding": "half_up", "lo": lo, "hi": hi})
    return builder.build([Output("y", y)])


@pytest.mark.sweep
@pytest.mark.parametrize("bits", [14, 15, 16])
@pytest.mark.parametrize("weight", [-17, -33, 17, 100, -127])
def test_sums_of_unsigned_16_bit_codes_are_counted_from_their_bounds(bits: int, weight: int) -> None:
    """Sums of 20 to 23 bits, whose fused form needs their true bounds, from codes that bytes do not hold."""
    most = 2**bits - 1
    codes = np.array([0, 1, 100, 1000, most // 3, most // 2, most - 5535 % most, most], np.int32)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 1, 1, 8), 0, most)
    (sums,) = builder.add("conv2d", [x, builder.constant(np.full((1, 1, 1, 1), weight))], {})
    shift = 30
    multiplier = max(1, 3 * 2**shift // (most * abs(weight)))
    c = 0 if weight > 0 else 3 << shift
    program = requantized(builder, sums, [[[[multiplier]]]], [[[[c]]]], [shift], 0, 3)
    compare(program, [{"x": codes.reshape(1, 1, 1, 8)}, {"x": codes[::-1].reshape(1, 1, 1, 8).copy()}])


@pytest.mark.parametrize("kernel", ["dense", "depthwise"])
def test_products_and_depthwise_sums_of_unsigned_16_bit_codes(kernel: str) -> None:
    random = np.random.default_rng(3)
    builder = ProgramBuilder()
    if kernel == "dense":
        x = builder.input("x", (3, 9), 0, 2**16 - 1)
        (sums,) = builder.add("dense", [x, builder.constant(random.integers(-9, 9, (20, 9)))])
        shape: tuple[int, ...] = (1, 20)
    else:
        x = builder.input("x", (1, 20, 5, 5), 0, 2**16 - 1)
        weights = builder.constant(random.integers(-9, 9, (20, 1, 3, 3)))
        (sums,) = builder.add("conv2d", [x, weights], {"groups": 20, "padding": (1, 1)})
        shape = (1, 20, 1, 1)
    m = random.integers(2**20, 2**21, shape)
    compare(requantized(builder, sums, m, np.full(shape, 2**40), np.full(shape, 40), -8, 7))


def test_a_bias_joins_an_offset_near_2_to_63() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2, 1, 1), 0, 255)
    weights = builder.constant(np.array([[1, -1], [-1, 1]]).reshape(2, 2, 1, 1))
    (sums,) = builder.add("conv2d", [x, weights], {})
    c = np.array([9 * 10**18, -2 * 10**18]).reshape(1, 2, 1, 1)
    program = requantized(builder, sums, np.full((1, 2, 1, 1), 2**20), c, [54], -128, 127)
    compare(program, [{"x": np.full((1, 2, 1, 1), value, np.int32)} for value in (0, 1, 255)])


@pytest.mark.sweep
@pytest.mark.parametrize("shift", [1, 2, 31, 32, 55])
@pytest.mark.parametrize("magnitude", [1, 3, 127, 256])
@pytest.mark.parametrize("sign", [1, -1])
def test_multipliers_as_large_as_the_verifier_admits(magnitude: int, shift: int, sign: int) -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 64), -magnitude, magnitude)
    largest = min((2**63 - 1 - 2 ** (shift - 1)) // magnitude, 2**62 - 1)
    codes = np.resize(np.arange(-magnitude, magnitude + 1), (1, 64)).astype(np.int32)
    per_channel = [[sign * (largest - k % 2) for k in range(64)]]
    compare(requantized(builder, x, per_channel, [[0]], [[shift]], -128, 127), [{"x": codes}], threads=[1])


def test_the_verifier_refuses_what_64_bits_do_not_hold() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4), -2, 2)
    with pytest.raises(Invalid):
        requantized(builder, x, [2**62 - 1], [2], [1], -128, 127)


@pytest.mark.parametrize("op", ["tile", "repeat"])
def test_counts_that_are_one_element_repeated(op: str) -> None:
    """Every batch has its own count, wherever the elements of the counts lie."""
    builder = ProgramBuilder()
    x, count = builder.input("x", (3, 4, 6), -9, 9), builder.input("count", (1,), 0, 4)
    attributes: dict[str, Any] = {"reps": (3,)} if op == "tile" else {"repeats": 3, "axis": 0}
    (counts,) = builder.add(op, [count], attributes)
    limits = {"iou_threshold": 50, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    (y,) = builder.add("non_max_suppression", [x, counts], limits)
    random = np.random.default_rng(0)
    runs = [
        {"x": random.integers(-9, 10, (3, 4, 6)).astype(np.int32), "count": np.array([n], np.int32)} for n in (4, 2, 0)
    ]
    compare(builder.build([Output("y", y)]), runs)


@pytest.mark.parametrize(("op", "attributes"), [
    ("relu", {}), ("clip", {"a_min": -5, "a_max": 90}), ("clip", {"a_min": 20, "a_max": 300}),
    ("clip", {"a_min": 60, "a_max": 61}), ("cvm_clip", {"precision": 4}),
])  # fmt: skip
def test_a_clip_after_the_codes_of_sums_is_left_to_the_store(op: str, attributes: dict[str, int]) -> None:
    builder = ProgramBuilder()
    random = np.random.default_rng(4)
    x = builder.input("x", (1, 9, 6, 6), 0, 255)
    weights = builder.constant(random.integers(-128, 128, (70, 9, 1, 1)))
    (sums,) = builder.add("conv2d", [x, weights], {})
    m = builder.parameter(random.integers(2**20, 2**21, (1, 70, 1, 1)))
    parameters = [m, *(builder.parameter(np.array([number])) for number in (2**30, 31))]
    (codes,) = builder.add("requantize", [sums, *parameters], {"rounding": "half_up", "lo": -90, "hi": 100})
    program = builder.build([Output("y", builder.add(op, [codes], attributes)[0])])
    verified = verify(program)
    made = plan(verified, available()[0], returned(verified.program, frozenset()))
    (kernel,) = [one for one in made.functions.values() if isinstance(one, Contraction)]
    assert [step.op for step in kernel.formula.steps].count("clip") == 0
    assert kernel.output.clamp is not None
    compare(program)
