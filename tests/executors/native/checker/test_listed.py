"""Lists of steps: the weights of products that saturate, two steps together where 16 bits hold their sums.

AVX2 clips the sum of two products at 16 bits. These tests need no processor that has it, but for the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvm.executors.native.checker import Unproven, unproven
from cvm.executors.native.checker.packed import listed_of, saturates, weights_of
from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32, Format
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.kernels import packing
from cvm.executors.native.kernels.packing import packed_weights, passes
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan import saturation
from cvm.executors.native.plan.saturation import Listed, excess, listed, often_exceeded
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output as Result
from cvm.program import ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.selection import mostly_long

Array = Any
AVX2 = next(machine for machine in MACHINES if machine.name == "avx2")
IN_OTHER_ORDER = replace(AVX2, name="avx2 in the order of LLVM", in_order=None)
BYTES = st.integers(-128, 127) | st.sampled_from((-128, -65, -64, 64, 65, 127))


def kernel_of(
    weights: Array, per_image: int, taps: tuple[tuple[int, int], ...], shifts: tuple[int, ...]
) -> Contraction:
    """A contraction of ``weights`` (channels, taps, run) on AVX2."""
    pixels = Pixels(0, 0, 64, 1)
    output = Output(INT32, Pixels(0, 0, 512, 1))
    made = Contraction(
        1, 1, per_image, len(weights), 4, taps, weights.shape[2], shifts, Format(8, False), pixels, output, (),
        Formula(1), starts=False, listed=True,
    )  # fmt: skip
    return replace(made, segments=segments(len(weights), per_image, False, AVX2, True))


def read(data: bytes, kernel: Contraction) -> list[Array]:
    return listed_of(memoryview(data), kernel)


def within(*parts: Array) -> bool:
    """Whether bytes times the elements at one place of each array add up to 16 bits, by Python's integers."""
    columns = [part.reshape(-1).tolist() for part in parts]
    return all(
        255 * sum(w for w in several if w > 0) < 2**15 and 255 * sum(w for w in several if w < 0) >= -(2**15)
        for several in zip(*columns, strict=True)
    )


@given(hnp.arrays(np.int8, (7, 2), elements=BYTES), hnp.arrays(np.int8, (7, 2), elements=BYTES))
def test_products_saturate_where_their_bounds_leave_16_bits(one: Array, other: Array) -> None:
    assert saturates(one) is not within(one)
    assert saturates(one, other) is not within(one, other)
    assert saturates(one[:, 0], one[:, 1], other[:, 0], other[:, 1]) is not within(*one.T, *other.T)
    assert not saturates(one[:0], other[:0])


@given(
    hnp.arrays(np.int8, st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5), st.just(4)), elements=BYTES)
)
def test_every_step_is_listed_and_no_product_of_the_list_saturates(weights: Array) -> None:
    for block, found in zip(weights, listed(weights), strict=True):
        total = np.zeros(block.shape, int)
        np.add.at(total, found.steps, found.weights.astype(int))
        np.testing.assert_array_equal(total, block)
        both, alone = found.weights[: 2 * found.pairs], found.weights[2 * found.pairs :]
        assert within(*(both[first::2, :, even::2] for first in (0, 1) for even in (0, 1)))
        assert within(alone[..., ::2], alone[..., 1::2])
        paired = found.steps[: 2 * found.pairs].tolist()
        assert len(set(paired)) == len(paired)
        exceeding = np.count_nonzero(excess(block).any(axis=(1, 2)))
        assert len(found.steps) == len(block) + exceeding


def test_steps_of_small_weights_are_all_multiplied_in_pairs() -> None:
    for steps in range(1, 12):
        (found,) = listed(np.full((1, steps, 3, 4), 32, np.int8))
        assert found.pairs == steps // 2
        assert sorted(found.steps.tolist()) == list(range(steps))
        (found,) = listed(np.full((1, steps, 3, 4), 33, np.int8))
        assert found.pairs == 0


def test_most_steps_of_trained_weights_find_a_partner() -> None:
    """Weights with a standard deviation of a fourth of their largest value."""
    random = np.random.default_rng(5)
    weights = np.rint(random.normal(0, 30, (8, 144, 16, 4))).clip(-127, 127).astype(np.int8)
    for found in listed(weights):
        assert 2 * found.pairs > 0.7 * 144
        assert len(found.steps) < 1.15 * 144


@given(hnp.arrays(np.int8, (5, 3, 8), elements=BYTES))
def test_no_pair_saturates_without_its_excess_and_the_excess_does_not_either(weights: Array) -> None:
    more = excess(weights)
    kept = weights.astype(int) - more
    for part in (kept, more.astype(int)):
        assert part.min() >= -128
        assert part.max() <= 127
        for highest in (0, 1, 254, 255):
            pairs = part.reshape(-1, 2)
            assert (np.maximum(pairs, 0).sum(axis=1) * highest < 2**15).all()
            assert (np.minimum(pairs, 0).sum(axis=1) * highest >= -(2**15)).all()
    small = abs(weights.astype(int).reshape(-1, 2).sum(axis=1)) <= 128
    assert not more.reshape(-1, 2)[small].any()


@given(
    data=st.data(), channels=st.integers(1, 45), run=st.integers(1, 13), count=st.integers(1, 3),
    pixels=st.sampled_from((1, 50)), wide=st.booleans(),
)  # fmt: skip
def test_the_checker_reads_back_all_weights(
    data: Any, channels: int, run: int, count: int, pixels: int, wide: bool
) -> None:
    elements = st.integers(-30_000, 30_000) if wide else BYTES
    weights = data.draw(hnp.arrays(np.int32, (channels, count, run), elements=elements, fill=st.just(100)))
    digits = passes(weights, 4)
    shifts = tuple(shift for _, shift in digits)
    kernel = kernel_of(weights, pixels, ((count, 64),), shifts)
    packed = packed_weights([digit for digit, _ in digits], kernel)
    restored = weights_of(read(packed, kernel), kernel)[..., :run].astype(np.uint32)
    np.testing.assert_array_equal(restored, weights.astype(np.uint32))


def weights_with_excess() -> Array:
    """Weights (20, 2, 8), so four steps. The first block has an excess in steps 1 and 3, and step 2 is as large as a
    step may be; the second one has an excess in step 0.
    """
    weights = np.full((20, 2, 8), 3, np.int8)
    weights[0, 0, 4:6], weights[3, 1, 2:4], weights[15, 1, 4:6], weights[17, 0, :2] = 100, (-64, -64), 110, 90
    return weights


LISTS = 2
HEADS, STEPS = slice(0, 4 * LISTS), slice(4 * LISTS, 4 * LISTS + 6 + 5)
WEIGHTS = 128
"""Where the weights begin: behind two heads of 16 bytes and eleven steps of four, at a multiple of 64."""


def listed_weights() -> tuple[Contraction, bytes, Array]:
    """The kernel of these weights, its packed weights, and the numbers before the weights."""
    weights = weights_with_excess()
    kernel = kernel_of(weights, 50, ((2, 32),), (0,))
    packed = packed_weights([weights], kernel)
    return kernel, packed, np.frombuffer(packed, "<i4", STEPS.stop).copy()


def test_the_lists_lie_in_the_constant_as_they_are_described() -> None:
    kernel, packed, numbers = listed_weights()
    assert [one.channels for one in kernel.segments] == [16, 8]
    heads = numbers[HEADS].reshape(LISTS, 4)
    assert heads[:, 0].tolist() == [32, 32 + 4 * 6]
    assert heads[:, 1].tolist() == [WEIGHTS, WEIGHTS + 6 * 64]
    assert heads[:, 2].tolist() == [2, 2]
    assert heads[:, 3].tolist() == [2, 1]
    assert sorted(numbers[STEPS][:6].tolist()) == [0, 4, 4, 32, 36, 36]
    assert numbers[STEPS][4:6].tolist() == [4, 36]
    assert sorted(numbers[STEPS][6:].tolist()) == [0, 0, 4, 32, 36]
    assert len(packed) == WEIGHTS + 6 * 64 + 5 * 32
    rest = np.frombuffer(packed, np.int8, 2 * 64, WEIGHTS + 4 * 64)  # the two steps alone, of the first block
    assert sorted(rest[rest != 3].tolist()) == [18, 28, 100, 110]


def _changed(numbers: Array, index: int, value: int) -> Array:
    numbers[index] = value
    return numbers


DAMAGES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "steps before the constant": (lambda n: _changed(n, 0, -4), "a negative number"),
    "steps behind the constant": (lambda n: _changed(n, 0, 2**30), "ends behind the constants"),
    "weights before the constant": (lambda n: _changed(n, 1, -64), "a negative number"),
    "weights behind the constant": (lambda n: _changed(n, 5, WEIGHTS + 6 * 64 + 1), "ends behind the constants"),
    "less than no pairs": (lambda n: _changed(n, 2, -1), "a negative number"),
    "more pairs than there are bytes": (lambda n: _changed(n, 2, 2**30), "ends behind the constants"),
    "less than no steps alone": (lambda n: _changed(n, 7, -1), "a negative number"),
    "more steps than there are weights": (lambda n: _changed(n, 7, 2), "ends behind the constants"),
    "a step between two steps": (lambda n: _changed(n, 8, 5), "no step of the kernel"),
    "a step behind the run": (lambda n: _changed(n, 8, 8), "no step of the kernel"),
    "a step before the window": (lambda n: _changed(n, 8, -4), "no step of the kernel"),
    "a step far away": (lambda n: _changed(n, 8, 2**31 - 1), "no step of the kernel"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_list_is_not_proven(name: str) -> None:
    kernel, packed, numbers = listed_weights()
    read(packed, kernel)
    change, reason = DAMAGES[name]
    damaged = change(numbers).tobytes() + packed[4 * numbers.size :]
    with pytest.raises(Unproven, match=reason):
        read(damaged, kernel)


def test_a_list_that_is_cut_off_is_not_proven() -> None:
    kernel, packed, _ = listed_weights()
    for length in range(len(packed)):
        with pytest.raises(Unproven, match="ends behind the constants"):
            read(packed[:length], kernel)


def test_steps_that_could_saturate_are_not_proven() -> None:
    """The steps alone become a pair, and pairs of larger weights."""
    kernel, packed, numbers = listed_weights()
    numbers[2:4] = 3, 0
    with pytest.raises(Unproven, match="products of two steps could saturate"):
        read(numbers.tobytes() + packed[4 * numbers.size :], kernel)
    damaged = bytearray(packed)
    damaged[WEIGHTS + 4 * 64 : WEIGHTS + 6 * 64] = bytes([65]) * 128
    with pytest.raises(Unproven, match="pairs of products could saturate"):
        read(bytes(damaged), kernel)


def test_digits_that_no_byte_holds_are_not_proven() -> None:
    """The weights of a step alone are added to those of another one, and the sum does not fit."""
    kernel, packed, numbers = listed_weights()
    damaged = bytearray(packed)
    damaged[WEIGHTS : WEIGHTS + 4 * 64] = bytes([20]) * 256
    damaged[WEIGHTS + 4 * 64 : WEIGHTS + 6 * 64] = bytes([64]) * 128
    numbers[STEPS][4:6] = numbers[STEPS][0]
    with pytest.raises(Unproven, match="a byte does not hold a digit"):
        read(numbers.tobytes() + bytes(damaged[4 * numbers.size :]), kernel)


def test_a_step_that_is_listed_very_often_is_not_proven() -> None:
    kernel, packed, numbers = listed_weights()
    numbers[0:4] = len(packed), len(packed) + 4 * 200, 0, 200
    more = bytes(4 * 200) + bytes(200 * 64)
    with pytest.raises(Unproven, match="listed too often"):
        read(numbers.tobytes() + packed[4 * numbers.size :] + more, kernel)


# Plans --------------------------------------------------------------------------------------------------------------


def seldom_large(groups: int = 1, largest: int = 128, seed: int = 1) -> VerifiedProgram:
    """A convolution whose weights have few pairs beyond what a saturating product takes."""
    random = np.random.default_rng(seed)
    build = ProgramBuilder()
    x = build.input("x", (1, 40, 6, 7), -128, 127)
    weights = random.integers(-60, 60, (40, 40 // groups, 3, 3))
    rare = random.random(weights.shape) < 0.003
    weights[rare] = random.choice([-largest, largest - 1], int(rare.sum()))
    weights[3, :4, 1, 1], weights[20, 4:8, 0, 2], weights[39, :4, 2, 0] = largest - 1, -largest, largest - 1
    inputs = [x, build.constant(weights), build.constant(random.integers(-900, 900, 40))]
    (sums,) = build.add("conv2d", inputs, {"padding": (1, 1), "groups": groups})
    return verify(build.build([Result("y", sums)]))


def _wrong(change: Callable[[Listed], Listed]) -> Any:
    return lambda weights: [change(one) for one in listed(weights)]


DEFECTS: dict[str, tuple[object, str, Any]] = {
    "no excess is taken out": (saturation, "excess", np.zeros_like),
    "the excess of other numbers": (saturation, "excess", lambda weights: excess(weights) // 2),
    "the sums of two steps are not looked at": (saturation, "MOST", 200),
    "the last step is lost": (packing, "listed", _wrong(lambda one: replace(one, weights=one.weights * _last(one)))),
    "a step counts twice": (packing, "listed", _wrong(lambda one: _twice(one))),
    "other steps": (packing, "listed", _wrong(lambda one: replace(one, steps=np.roll(one.steps, 1)))),
    "other weights": (packing, "listed", _wrong(lambda one: replace(one, weights=np.roll(one.weights, 1, axis=0)))),
    "other channels": (packing, "listed", _wrong(lambda one: replace(one, weights=np.roll(one.weights, 1, axis=1)))),
}  # fmt: skip


def _twice(one: Listed) -> Listed:
    steps, weights = np.append(one.steps, one.steps[:1]), np.append(one.weights, one.weights[:1], axis=0)
    return replace(one, steps=steps, weights=weights)


def _last(one: Listed) -> Array:
    kept = np.ones((len(one.steps), 1, 1), np.int8)
    kept[-1] = 0
    return kept


def test_a_plan_lists_its_steps_and_is_proven() -> None:
    for groups, largest in ((1, 128), (2, 128), (2, 1893)):
        verified = seldom_large(groups, largest)
        made = plan(verified, AVX2, frozenset({"conv2d"}))
        kernels = [one for one in made.functions.values() if isinstance(one, Contraction)]
        assert [(one.per, one.listed) for one in kernels] == [(4, True)]
        assert unproven(verified, made, AVX2) == {}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_list_is_never_proven(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = seldom_large()
    monkeypatch.setattr(*DEFECTS[name])
    assert unproven(verified, plan(verified, AVX2, frozenset({"conv2d"})), AVX2) != {}


def test_a_machine_whose_products_do_not_saturate_takes_no_lists() -> None:
    verified = seldom_large()
    made = plan(verified, AVX2, frozenset({"conv2d"}))
    found = unproven(verified, made, replace(AVX2, saturates=False))
    assert found == {"conv2d": "only the weights of products that saturate are listed"}


@given(st.sampled_from([(16, 4, 1, 1), (40, 9, 3, 3), (7, 30), (3, 1, 5, 2), (500, 3)]), st.integers(0, 2**32 - 1))
def test_few_large_pairs_are_multiplied_in_bytes_and_many_in_words(shape: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    channels = np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    assert not often_exceeded(random.integers(-64, 65, shape))
    assert often_exceeded(np.broadcast_to(np.where(channels % 2, -128, 127), shape))
    assert often_exceeded(np.broadcast_to(np.where(channels == 0, 128, 0), shape))


@pytest.mark.sweep
@pytest.mark.skipif(all(one.name != "avx2" for one in available()), reason="this processor has no AVX2")
@pytest.mark.parametrize(("groups", "largest"), [(1, 128), (2, 128), (4, 128), (2, 1893), (5, 30_565)])
@pytest.mark.parametrize("seed", mostly_long(range(8), [0]))
@pytest.mark.parametrize("machine", [AVX2, IN_OTHER_ORDER], ids=lambda machine: machine.name)
def test_machine_code_multiplies_what_is_listed(
    machine: Machine, groups: int, largest: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    verified = seldom_large(groups, largest, seed)
    native = NativeExecutor(verified, 1, machine)
    assert any("of pairs of steps" in line for line in native.explain())
    for values in (np.full((1, 40, 6, 7), -128), np.full((1, 40, 6, 7), 127),
                   np.random.default_rng(seed).integers(-128, 128, (1, 40, 6, 7))):  # fmt: skip
        feed = {"x": values.astype(np.int32)}
        expected = NumpyExecutor(verified).run(feed, {}).values
        np.testing.assert_array_equal(native.run(feed, {}).values["conv2d"], expected["conv2d"])
