"""Sums of products by the machine's instructions for bytes: the same tensors as plain C, on every kind of machine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from cvm.export.c import exported
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tools.c_driver import SANITIZED, Member, build_all
from tools.c_targets import TARGETS, Target
from tools.fuzz.c_programs import compared, computed

CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
WAYS = [
    ("gcc", ("-O2", "-DCVM_PORTABLE", *SANITIZED)),
    ("gcc", ("-O2", *SANITIZED)),
    pytest.param("gcc", ("-O2", "-mavx512vnni", "-mavx512vl", *SANITIZED), marks=pytest.mark.long),
    pytest.param("clang", ("-O2", *SANITIZED), marks=pytest.mark.long),
    pytest.param("aarch64", ("-O2",), marks=pytest.mark.long),
    pytest.param("cortex_m4", ("-O2",), marks=pytest.mark.long),
]


def products(random: Random) -> VerifiedProgram:
    """A convolution over bytes with or without sign, and a dense layer after it, at the ends of their types."""
    builder = ProgramBuilder()
    lo, hi = random.choice([(-128, 127), (0, 255)])
    height, width, kernel, channels = (random.randint(*ends) for ends in ((1, 4), (4, 19), (1, 3), (4, 9)))
    padding = kernel // 2
    x = builder.input("x", (1, channels, height, width), lo, hi)
    numbers = np.random.default_rng(random.randint(0, 10**6))
    weights = numbers.choice([-128, -127, 0, 1, 127], (3, channels, kernel, kernel))
    attributes = {"padding": (padding, padding), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    (y,) = builder.add("conv2d", [x, builder.constant(weights)], attributes)
    parameters = [builder.parameter([number]) for number in (1, 0, 9)]
    (y,) = builder.add("requantize", [y, *parameters], {"rounding": "half_up", "lo": lo, "hi": hi})
    size = 3 * (height + 2 * padding - kernel + 1) * (width + 2 * padding - kernel + 1)
    (y,) = builder.add("reshape", [y], {"target_shape": (1, size)})
    rows = numbers.choice([-128, 5, 127], (2, size))
    (y,) = builder.add("dense", [y, builder.constant(rows)])
    return verify(builder.build([Output("y", y)]))


def feeds(verified: VerifiedProgram, seed: int) -> list[dict[str, np.ndarray]]:
    value = verified.program.inputs[0].value
    random = np.random.default_rng(seed)
    ends = random.choice(np.array([value.lo, value.hi], np.int32), value.shape)
    return [
        {"x": ends},
        {"x": np.full(value.shape, value.lo, np.int32)},
        {"x": random.integers(value.lo, value.hi, value.shape, np.int32, endpoint=True)},
    ]


def reason(target: Target, options: tuple[str, ...]) -> str:
    """Why a way cannot be tried here; empty if it can."""
    if "-mavx512vnni" in options and not {"avx512_vnni", "avx512vl"} <= set(CPU.split()):
        return "this processor has no AVX-512 VNNI"
    return target.missing()


@pytest.mark.parametrize(("name", "options"), WAYS, ids=["plain", "sse2", "vnni", "clang", "neon", "dsp"])
def test_every_machine_adds_the_same_products(tmp_path, name, options):
    target = TARGETS[name]
    if why := reason(target, options):
        pytest.skip(why)
    random = Random(3)
    subjects = [products(random) for _ in range(8)]
    runs = [feeds(verified, number) for number, verified in enumerate(subjects)]
    members = [Member(verified, traced=True, dots=True) for verified in subjects]
    batch = build_all(members, tmp_path, target, options)
    source = "".join((tmp_path / f"m{number}.c").read_text() for number in range(len(subjects)))
    for function in ("dot4_s8(", "dot4_u8(", "dot_s8(", "dot_u8("):
        assert f"+= {function}" in source or f"            {function}" in source
    for member, feed, found in zip(members, runs, batch.run(runs), strict=True):
        assert compared(member, found, computed(member.verified, feed)) == []


def test_products_of_wide_numbers_do_not_use_them():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 8), -300, 300)
    (y,) = builder.add("dense", [x, builder.constant(np.ones((4, 8), np.int32))])
    wide = exported(verify(builder.build([Output("y", y)])), dots=True).files["model.c"].decode()
    assert "dot_" not in wide
    builder = ProgramBuilder()
    x = builder.input("x", (1, 8), -128, 127)
    (y,) = builder.add("dense", [x, builder.constant(np.ones((4, 8), np.int32) + np.arange(8))])
    verified = verify(builder.build([Output("y", y)]))
    assert "dot_s8(" in exported(verified, dots=True).files["model.c"].decode()
    assert "dot_s8(" not in exported(verified).files["model.c"].decode()


def test_a_build_may_give_its_own_kernel(tmp_path):
    random = Random(5)
    verified = products(random)
    own = "-DCVM_DOT_{0}(x,w,n)=((void)(x),(void)(w),(int32_t)(n))"
    options = ("-O1", own.format("S8"), own.format("U8"))
    if TARGETS["gcc"].missing():
        pytest.skip("gcc is not installed")
    (found,) = build_all([Member(verified, dots=True)], tmp_path, TARGETS["gcc"], options).run([feeds(verified, 1)[:1]])
    size = verified.shapes[verified.program.nodes[-1].inputs[0]][1]
    assert found[0]["y"].tolist() == [[size, size]]
