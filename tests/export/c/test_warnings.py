"""Exported C compiles without warnings where compilers see that a comparison is always true, or a sum never read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvm.program import Output, ProgramBuilder, verify
from tools.c_driver import SANITIZED, Member, build_all
from tools.c_targets import TARGETS
from tools.fuzz.c_programs import compared, computed

pytestmark = pytest.mark.skipif(bool(TARGETS["gcc"].missing()), reason="gcc is not installed")
MOST = 2**31 - 1


def without(compiler: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(TARGETS[compiler].missing()), reason=f"{compiler} is not installed")


each_compiler = pytest.mark.parametrize(
    "compiler", [pytest.param(name, marks=without(name)) for name in ("gcc", "clang")]
)


def one(op: str, lo: int, hi: int, constant: int | None, attributes: dict[str, int]) -> Member:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 6), lo, hi)
    operands = [x] if constant is None else [x, builder.constant(np.full((1, 1, 1), constant))]
    results = builder.add(op, operands, attributes)
    return Member(verify(builder.build([Output(f"y{number}", name) for number, name in enumerate(results)])))


def suppressed(lo: int, hi: int) -> Member:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 6), lo, hi)
    attributes = {"iou_threshold": 50, "max_output_size": -1, "force_suppress": False, "top_k": -1}
    (y,) = builder.add("non_max_suppression", [x, builder.constant(np.array([3]))], attributes)
    return Member(verify(builder.build([Output("y", y)])))


def test_comparisons_at_the_ends_of_types(tmp_path: Path) -> None:
    members = []
    for lo, hi in ((-MOST, MOST), (0, 255), (-128, 127), (0, 65535)):
        for end in (-MOST, MOST, 0, 255, -1):
            members += [one("broadcast_greater", lo, hi, end, {}), one("broadcast_max", lo, hi, end, {})]
            members += [one("get_valid_count", lo, hi, None, {"score_threshold": end})]
        members.append(suppressed(lo, hi))
        for a_min, a_max in ((-MOST, MOST), (0, 255), (MOST, MOST), (-MOST, -MOST), (-1, 70000)):
            members += [one("clip", lo, hi, None, {"a_min": a_min, "a_max": a_max})]
    values = [member.verified.program.inputs[0].value for member in members]
    random = np.random.default_rng(1)
    runs = [[{"x": random.choice(np.array([one.lo, one.hi, 0], np.int32), one.shape)}] for one in values]
    batch = build_all(members, tmp_path, TARGETS["gcc"], ("-O1", *SANITIZED))
    for member, feeds, found in zip(members, runs, batch.run(runs), strict=True):
        assert compared(member, found, computed(member.verified, feeds)) == []


@each_compiler
def test_chains_that_do_not_read_their_sums(compiler: str, tmp_path: Path) -> None:
    members = []
    chains: tuple[tuple[str, dict[str, object]], ...] = (("dense", {}), ("sum", {"axes": [1]}), ("max", {"axes": [1]}))
    for op, attributes in chains:
        builder = ProgramBuilder()
        x = builder.input("x", (3, 6), -9, 9)
        operands = [x, builder.constant(np.arange(24).reshape(4, 6))] if op == "dense" else [x]
        (y,) = builder.add(op, operands, attributes)
        parameters = [builder.parameter([number]) for number in (0, 256, 1)]
        (z,) = builder.add("requantize", [y, *parameters], {"rounding": "half_up", "lo": -127, "hi": 127})
        members.append(Member(verify(builder.build([Output("z", z)]))))
    runs = [[{"x": np.arange(-9, 9, dtype=np.int32).reshape(3, 6)}] for _ in members]
    batch = build_all(members, tmp_path, TARGETS[compiler], ("-O1",))
    for member, feeds, found in zip(members, runs, batch.run(runs), strict=True):
        assert compared(member, found, computed(member.verified, feeds)) == []


@each_compiler
def test_a_program_whose_outputs_are_constants(compiler: str, tmp_path: Path) -> None:
    builder = ProgramBuilder()
    y = builder.constant(np.arange(6).reshape(2, 3))
    verified = verify(builder.build([Output("y", y)]))
    members = [Member(verified, traced) for traced in (False, True)]
    batch = build_all(members, tmp_path, TARGETS[compiler], ("-O1",))
    for member, found in zip(members, batch.run([[{}], [{}]]), strict=True):
        assert compared(member, found, computed(verified, [{}])) == []


def sums_modulo_2_32(channels: int, least: int, greatest: int) -> Member:
    """A convolution whose bound on sums exceeds 32 bits, over maps of narrow integers."""
    weights = np.zeros((2, channels, 1, 3), np.int64)
    weights[:, :2] = [[[-7, 5, 3]], [[1, 2, 2**30 // max(-least, greatest)]]]
    builder = ProgramBuilder()
    x = builder.input("x", (1, channels, 1, 13), least, greatest)
    attributes = {"padding": [0, 0], "stride": [1, 2], "dilation": [1, 1], "groups": 1}
    (y,) = builder.add("conv2d", [x, builder.constant(weights)], attributes)
    return Member(verify(builder.build([Output("y", y)])))


@each_compiler
def test_elements_of_narrow_maps_times_a_weight_in_sums_modulo_2_32(compiler: str, tmp_path: Path) -> None:
    intervals = ((-128, 127), (0, 255), (-20000, 20000), (0, 65535))
    members = [sums_modulo_2_32(channels, *interval) for channels in (3, 6) for interval in intervals]
    values = [member.verified.program.inputs[0].value for member in members]
    random = np.random.default_rng(2)
    runs = [[{"x": random.integers(one.lo, one.hi + 1, one.shape).astype(np.int32)}] for one in values]
    batch = build_all(members, tmp_path, TARGETS[compiler], ("-O1",))
    for number, (member, feeds, found) in enumerate(zip(members, runs, batch.run(runs), strict=True)):
        assert "sums[q] += (uint32_t)" in (tmp_path / f"m{number}.c").read_text()
        assert compared(member, found, computed(member.verified, feeds)) == []
