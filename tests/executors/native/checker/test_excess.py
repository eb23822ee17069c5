"""The excess of weights: what a saturating product does not take is listed, and the checker reads it back.

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
from cvm.executors.native.checker.packed import saturates, segments_of, weights_of, with_excess
from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32, Format
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels import contractions, packing
from cvm.executors.native.kernels.packing import packed_weights, passes
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.saturation import excess, often_exceeded
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output as Result
from cvm.program import ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.selection import mostly_long

Array = Any
AVX2 = next(machine for machine in MACHINES if machine.name == "avx2")
BYTES = st.integers(-128, 127) | st.sampled_from((-128, -65, -64, 64, 65, 127))


def kernel_of(
    weights: Array, per_image: int, taps: tuple[tuple[int, int], ...], shifts: tuple[int, ...]
) -> Contraction:
    """A contraction of ``weights`` (channels, taps, run) on AVX2."""
    pixels = Pixels(0, 0, 64, 1)
    output = Output(INT32, Pixels(0, 0, 512, 1))
    made = Contraction(
        1, 1, per_image, len(weights), 4, taps, weights.shape[2], shifts, Format(8, False), pixels, output, (),
        Formula(1), starts=False, excess=True,
    )  # fmt: skip
    return replace(made, segments=segments(len(weights), per_image, False, AVX2))


def read(data: bytes, kernel: Contraction) -> tuple[list[Array], list[Array]]:
    return with_excess(memoryview(data), kernel, segments_of(memoryview(data), kernel))


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
    main = segments_of(memoryview(packed), kernel)
    found, listed = read(packed, kernel)
    assert not saturates(main)
    assert not saturates(listed)
    restored = weights_of(found, kernel)[..., :run].astype(np.uint32)
    np.testing.assert_array_equal(restored, weights.astype(np.uint32))
    assert sum(map(len, listed)) == 0 or any(map(np.any, listed))


def weights_with_excess() -> Array:
    """Weights (20, 2, 8) of which four steps have an excess: in the first block (0, 1), (1, 0) and (1, 1), in the
    second one (0, 0).
    """
    weights = np.full((20, 2, 8), 3, np.int8)
    weights[0, 0, 4:6], weights[3, 1, 2:4], weights[15, 1, 4:6], weights[17, 0, :2] = 127, -128, 100, 90
    return weights


FIRST = slice(0, 3)  # of the list: the numbers of the first entries of both blocks, and the number of all
STEPS, PLACES = slice(3, 11, 2), slice(4, 11, 2)


def listed() -> tuple[Contraction, bytes, Array]:
    """The kernel of these weights, its packed weights, and the numbers at the beginning of the list."""
    weights = weights_with_excess()
    kernel = kernel_of(weights, 50, ((2, 32),), (0,))
    packed = packed_weights([weights], kernel)
    return kernel, packed, np.frombuffer(packed, "<i4", 11, kernel.weight_bytes).copy()


def test_the_list_says_which_steps_have_an_excess() -> None:
    kernel, packed, numbers = listed()
    assert [one.channels for one in kernel.segments] == [16, 8]
    assert numbers[FIRST].tolist() == [0, 3, 4]
    assert numbers[STEPS].tolist() == [4, 32, 36, 0]
    assert numbers[PLACES].tolist() == [44, 108, 172, 236]
    assert len(packed) == kernel.weight_bytes + 236 + 32
    rest = np.frombuffer(packed, np.int8, offset=kernel.weight_bytes + 44)
    assert sorted(rest[rest != 0].tolist()) == [-128, 52, 72, 126]


def _changed(numbers: Array, at: slice, index: int, value: int) -> Array:
    numbers[at][index] = value
    return numbers


DAMAGES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "the first entry is not 0": (lambda n: _changed(n, FIRST, 0, 1), "not in order"),
    "the entries of a block end before they begin": (lambda n: _changed(n, FIRST, 1, 5), "not in order"),
    "less than no entries": (lambda n: _changed(n, FIRST, 2, -1), "not in order"),
    "more entries than there are bytes": (lambda n: _changed(n, FIRST, 2, 2**30), "ends behind the constants"),
    "a step between two steps": (lambda n: _changed(n, STEPS, 0, 5), "no step of the kernel"),
    "a step behind the run": (lambda n: _changed(n, STEPS, 0, 8), "no step of the kernel"),
    "a step before the window": (lambda n: _changed(n, STEPS, 0, -4), "no step of the kernel"),
    "a step far away": (lambda n: _changed(n, STEPS, 0, 2**31 - 1), "no step of the kernel"),
    "a step twice": (lambda n: _changed(n, STEPS, 0, 32), "an excess twice"),
    "weights before the list": (lambda n: _changed(n, PLACES, 0, -4), "outside the constants"),
    "weights behind the constants": (lambda n: _changed(n, PLACES, 3, 237), "outside the constants"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_list_is_not_proven(name: str) -> None:
    kernel, packed, numbers = listed()
    read(packed, kernel)
    change, reason = DAMAGES[name]
    damaged = bytearray(packed)
    damaged[kernel.weight_bytes : kernel.weight_bytes + 44] = change(numbers).tobytes()
    with pytest.raises(Unproven, match=reason):
        read(bytes(damaged), kernel)


def test_a_list_that_is_cut_off_is_not_proven() -> None:
    kernel, packed, _ = listed()
    for length in range(kernel.weight_bytes, len(packed)):
        with pytest.raises(Unproven):
            read(packed[:length], kernel)


def test_digits_that_no_byte_holds_are_not_proven() -> None:
    """The excess of one step is added to other weights, and the sum does not fit."""
    kernel, packed, _ = listed()
    damaged = bytearray(packed)
    main = np.frombuffer(packed, np.int8, kernel.weight_bytes).copy()
    main[main == 2] = 127  # 127 - 126 + .. is no longer what is left of a pair of 127
    main[main == 1] = 127
    damaged[: kernel.weight_bytes] = main.tobytes()
    with pytest.raises(Unproven, match="a byte does not hold a digit"):
        read(bytes(damaged), kernel)


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


def _wrong(change: Callable[[Array, Contraction], None]) -> Any:
    def packed(digits: Any, kernel: Contraction) -> bytes:
        found = bytearray(packed_weights(digits, kernel))
        first = np.frombuffer(bytes(found), "<i4", kernel.blocks + 1, kernel.weight_bytes)
        begin = kernel.weight_bytes + 4 * first.size
        entries = np.frombuffer(found, "<i4", 2 * int(first[-1]), begin).reshape(-1, 2)
        change(entries, kernel)
        return bytes(found)

    return packed


def _other_steps(entries: Array, kernel: Contraction) -> None:
    entries[:, 0] = np.roll(entries[:, 0], 1)


def _other_weights(entries: Array, kernel: Contraction) -> None:
    entries[:, 1] = np.roll(entries[:, 1], 1)


DEFECTS: dict[str, tuple[object, str, Any]] = {
    "no excess is taken out": (packing, "excess", np.zeros_like),
    "the excess is lost": (packing._Excess, "without", lambda self, weights: _listed_without(self, weights, 0)),
    "the excess is added twice": (packing._Excess, "without", lambda self, weights: _listed_without(self, weights, 2)),
    "the excess of other steps": (contractions, "packed_weights", _wrong(_other_steps)),
    "other weights": (contractions, "packed_weights", _wrong(_other_weights)),
}

WITHOUT = packing._Excess.without


def _listed_without(self: Any, weights: Array, factor: int) -> Array:
    kept = WITHOUT(self, weights)
    self._weights = [np.array(part * factor, np.int8) for part in self._weights]
    return kept


def test_a_plan_lists_the_excess_and_is_proven() -> None:
    for groups, largest in ((1, 128), (2, 128), (2, 1893)):
        verified = seldom_large(groups, largest)
        made = plan(verified, AVX2, frozenset({"conv2d"}))
        kernels = [one for one in made.functions.values() if isinstance(one, Contraction)]
        assert [(one.per, one.excess) for one in kernels] == [(4, True)]
        assert unproven(verified, made, AVX2) == {}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_list_is_never_proven(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = seldom_large()
    monkeypatch.setattr(*DEFECTS[name])
    assert unproven(verified, plan(verified, AVX2, frozenset({"conv2d"})), AVX2) != {}


def test_a_machine_whose_products_do_not_saturate_takes_no_excess() -> None:
    verified = seldom_large()
    made = plan(verified, AVX2, frozenset({"conv2d"}))
    found = unproven(verified, made, replace(AVX2, saturates=False))
    assert found == {"conv2d": "only products that saturate leave an excess"}


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
def test_machine_code_adds_the_excess(groups: int, largest: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    verified = seldom_large(groups, largest, seed)
    native = NativeExecutor(verified, 1, AVX2)
    assert any("and their excess" in line for line in native.explain())
    for values in (np.full((1, 40, 6, 7), -128), np.full((1, 40, 6, 7), 127),
                   np.random.default_rng(seed).integers(-128, 128, (1, 40, 6, 7))):  # fmt: skip
        feed = {"x": values.astype(np.int32)}
        expected = NumpyExecutor(verified).run(feed, {}).values
        np.testing.assert_array_equal(native.run(feed, {}).values["conv2d"], expected["conv2d"])
