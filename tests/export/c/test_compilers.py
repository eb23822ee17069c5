"""Exported C suits compilers: steps stay functions of their own, and a compiler without end is ended and named."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cvm.export.c import exported
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.api import small
from tools import check_c
from tools.c_driver import STRICT, Member, build_all
from tools.c_targets import TARGETS, Target
from tools.fuzz.c_programs import Feeds, case, compared, computed

STEPS = 6


def of_many_steps() -> VerifiedProgram:
    """A program whose steps cannot be one loop nest: each is a sum over all elements of the step before it."""
    builder = ProgramBuilder()
    y = builder.input("x", (4, 4), -9, 9)
    for number in range(STEPS):
        (y,) = builder.add("dense", [y, builder.constant(np.arange(16).reshape(4, 4) % (number + 2) - 1)])
        (y,) = builder.add("clip", [y], {"a_min": -100, "a_max": 100})
    return verify(builder.build([Output("y", y)]))


@pytest.mark.skipif(bool(TARGETS["clang"].missing()), reason="clang is not installed")
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
@pytest.mark.parametrize(("defined", "functions"), [((), STEPS), (("-DCVM_NOINLINE=",), 0)])
def test_clang_keeps_each_step_a_function_of_its_own(defined: tuple[str, ...], functions: int, tmp_path: Path) -> None:
    """And not those of a build that defines the macro as nothing, which shows that clang would otherwise join them."""
    for file, data in exported(of_many_steps()).files.items():
        (tmp_path / file).write_bytes(data)
    subprocess.run(["clang", *STRICT, "-O2", *defined, "-c", "model.c"], cwd=tmp_path, check=True)
    named = subprocess.run(["nm", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert named.count(" t step_") == functions
    assert named.count(" T model_run") == 1


@pytest.mark.parametrize("options", [("-O2",), ("-O2", "-DCVM_NOINLINE=")])
@pytest.mark.skipif(bool(TARGETS["gcc"].missing()), reason="gcc is not installed")
def test_a_build_may_define_the_macro(options: tuple[str, ...], tmp_path: Path) -> None:
    verified = of_many_steps()
    runs = [{"x": np.arange(16, dtype=np.int32).reshape(4, 4) - 7}]
    (found,) = build_all([Member(verified)], tmp_path, TARGETS["gcc"], options).run([runs])
    assert compared(Member(verified), found, computed(verified, runs)) == []


@pytest.mark.parametrize("options", ["-O0", "-O1", "-O2", "-Os"])
@pytest.mark.skipif(bool(TARGETS["gcc"].missing()), reason="gcc is not installed")
def test_gcc_leaves_out_no_step(options: str, tmp_path: Path) -> None:
    """gcc 12 takes this program's last step for a function that writes nothing, unless it is told to conclude nothing.

    The step reads integers of 16 bits and writes the same byte everywhere.
    """
    builder = ProgramBuilder()
    x = builder.input("x", (1, 6, 1, 5), -2000, 2000)
    (largest,) = builder.add("max", [x], {"axes": (), "keepdims": True, "exclude": False})
    (total,) = builder.add("broadcast_add", [x, largest])
    numbers = [builder.parameter(np.array([number])) for number in (244567, 2**20, 917905, 115157683, 1)]
    attributes = {"axes": (0, 1, 2), "statistic": "square_sum", "shift": 3, "rounding": "half_even"}
    (y,) = builder.add("normalize", [total, *numbers], {**attributes, "lo": -128, "hi": -128})
    verified = verify(builder.build([Output("y", y)]))
    runs = [{"x": (np.arange(30, dtype=np.int32) * 37 % 900 - 400).reshape(1, 6, 1, 5)}]
    (found,) = build_all([Member(verified)], tmp_path, TARGETS["gcc"], (options,)).run([runs])
    assert compared(Member(verified), found, computed(verified, runs)) == []


@pytest.mark.slow
def test_a_compiler_without_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """A driver of a compiler starts the compiler as a process, which would go on alone."""
    started = tmp_path / "started"
    target = Target("slow", ("sh", "-c", f'sleep 600 & echo $! > "{started}"; wait'))
    with pytest.raises(RuntimeError, match=r"^the compiler took more than 5 seconds$"):
        build_all([Member(verify(small.negated()))], tmp_path / "c", target, seconds=5)
    number = int(started.read_text())
    end = time.monotonic() + 20
    while _runs(number) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _runs(number)


def _runs(number: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


class Right:
    """Programs that compute what NumPy computes, without a compiler."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def run(self, feeds: Sequence[Feeds]) -> list[list[dict[str, npt.NDArray[np.int32]]]]:
        found = []
        for member, runs in zip(self._members, feeds, strict=True):
            tensors = [dict(run) for run in computed(member.verified, runs)]
            outputs = member.verified.program.outputs
            found.append(
                tensors if member.traced else [{one.name: run[one.value] for one in outputs} for run in tensors]
            )
        return found


@pytest.mark.skipif(bool(TARGETS["gcc"].missing()), reason="gcc is not installed")
def test_the_program_that_takes_too_long_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler that has no end for one program of a batch."""
    slow = case(5, 3)[0].digest

    def build(members: Sequence[Member], *given: object) -> Right:
        assert given[-1] == 7.5
        if any(member.verified.program.digest == slow for member in members):
            raise RuntimeError("the compiler took more than 7.5 seconds")
        return Right(members)

    monkeypatch.setattr(check_c, "build_all", build)
    arguments = ["random", "--seed", "5", "--begin", "1", "--count", "3", "--options=-O0", "--seconds", "7.5"]
    assert check_c.main(arguments) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(": random 5:3: the compiler took more than 7.5 seconds")
    assert second.endswith(", 1 differences")
