"""Programs as object files: outputs equal on this processor and under emulation; every target gives an object."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.demo import MODEL
from cvm.errors import Invalid
from cvm.executors import create, initial_state
from cvm.executors.native.runtime.foreign import assembles
from cvm.executors.native.runtime.select import available
from cvm.export.object import exported, writing
from cvm.program import verify
from cvm.program.verifier import VerifiedProgram
from tests.api import small
from tools.fuzz.c_programs import case
from tools.object_driver import linked, ran

TARGETS = [
    ("x86_64-linux-gnu", "generic", b"\x7fELF"),
    ("x86_64-linux-gnu", "ifma512", b"\x7fELF"),
    ("aarch64-linux-gnu", "neon_dot", b"\x7fELF"),
    ("aarch64-linux-gnu", "neon_i8mm", b"\x7fELF"),
    ("aarch64-apple-darwin", "neon_dot", b"\xcf\xfa\xed\xfe"),
    ("x86_64-pc-windows-msvc", "avx2", b"\x64\x86"),
    ("riscv64-linux-gnu", "generic", b"\x7fELF"),
]
HERE = [one.name for one in available() if one.name in ("avx2", "vnni512", "ifma512", "generic")]
needs_linux = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on an x86-64 processor"
)
ZIG = (sys.executable, "-m", "ziglang", "cc")
needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang")
FOREIGN = {
    "aarch64-macos": ("aarch64-apple-darwin", "neon_dot", b"\xcf\xfa\xed\xfe"),
    "x86_64-macos": ("x86_64-apple-darwin", "avx2", b"\xcf\xfa\xed\xfe"),
    "x86_64-windows-gnu": ("x86_64-pc-windows-msvc", "avx2", b"MZ"),
    "aarch64-windows-gnu": ("aarch64-pc-windows-msvc", "generic", b"MZ"),
}
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
needs_emulation = pytest.mark.skipif(
    shutil.which(CROSS) is None or shutil.which(EMULATOR) is None, reason=f"needs {CROSS} and {EMULATOR}"
)


def agree(verified: VerifiedProgram, feeds: Sequence[Mapping[str, np.ndarray]], folder: Path, *how, **options) -> None:
    numpy, state = create("numpy", verified), initial_state(verified.program)
    for feed, outputs in zip(feeds, ran(verified, feeds, folder, *how, **options), strict=True):
        result = numpy.run(dict(feed), state, capture="all")
        known = {**feed, **state, **result.values}
        for output in verified.program.outputs:
            np.testing.assert_array_equal(outputs[output.name], known[output.value], err_msg=output.name, strict=True)
        state = result.state


@pytest.mark.parametrize(("triple", "machine", "magic"), TARGETS)
def test_every_target_gives_an_object_and_the_same_bytes_every_time(triple, machine, magic):
    first, again = (exported(verify(small.negated()), triple, machine).files for _ in range(2))
    assert first == again
    (code,) = (data for file, data in first.items() if not file.endswith(".h"))
    assert code.startswith(magic)


@needs_linux
@pytest.mark.parametrize("machine", HERE)
def test_the_demo_gives_its_probabilities(tmp_path, machine):
    random = np.random.default_rng(1)
    feeds = [{"image": random.integers(0, 256, (1, 1, 8, 8)).astype(np.int32)} for _ in range(3)]
    agree(verify(cvm.compile(MODEL)), feeds, tmp_path, "x86_64-linux-gnu", machine)


@needs_linux
@pytest.mark.skipif("avx2" not in HERE, reason="needs a processor with AVX2")
def test_code_without_text_for_the_assembler_gives_the_same(tmp_path, monkeypatch):
    verified = verify(cvm.compile(MODEL))
    with_text = exported(verified, "x86_64-linux-gnu", "avx2").files["model.o"]
    monkeypatch.setattr(writing, "assembles", lambda triple: False)
    assert exported(verified, "x86_64-linux-gnu", "avx2").files["model.o"] != with_text
    feeds = [{"image": np.random.default_rng(2).integers(0, 256, (1, 1, 8, 8)).astype(np.int32)}]
    agree(verified, feeds, tmp_path, "x86_64-linux-gnu", "avx2")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
def test_llvm_reads_text_for_the_assembler_of_its_own_kind_of_processor():
    assert assembles("x86_64-linux-gnu")
    assert assembles("x86_64-pc-windows-msvc")
    assert not assembles("aarch64-linux-gnu")
    assert not assembles("riscv64-linux-gnu")


@needs_linux
def test_state_goes_on_from_run_to_run(tmp_path):
    feeds = [{"step": np.array([[number, 9 - number]], np.int32)} for number in range(4)]
    agree(verify(small.counter()), feeds, tmp_path, "x86_64-linux-gnu", "generic")


@pytest.mark.long
@needs_linux
@pytest.mark.parametrize("number", range(8))
def test_random_programs_agree(tmp_path, number):
    program, feeds, _ = case(31, number)
    agree(verify(program), feeds, tmp_path, "x86_64-linux-gnu", HERE[number % len(HERE)])


@pytest.mark.long
@needs_emulation
@pytest.mark.parametrize("machine", ["generic", "neon_dot", "neon_i8mm"])
def test_random_programs_agree_under_emulation(tmp_path, machine):
    for number in (1, 2):
        program, feeds, _ = case(32, number)
        options = {"compiler": (CROSS, "-static"), "runner": (EMULATOR, "-cpu", "max")}
        agree(verify(program), feeds, tmp_path / str(number), "aarch64-linux-gnu", machine, **options)


@pytest.mark.long
@needs_zig
@pytest.mark.skipif(shutil.which("qemu-riscv64") is None, reason="needs qemu-riscv64")
def test_random_programs_agree_on_an_emulated_risc_v(tmp_path):
    options = {"compiler": (*ZIG, "-target", "riscv64-linux-musl"), "runner": ("qemu-riscv64",)}
    random = np.random.default_rng(1)
    feeds = [{"image": random.integers(0, 256, (1, 1, 8, 8)).astype(np.int32)} for _ in range(3)]
    agree(verify(cvm.compile(MODEL)), feeds, tmp_path / "demo", "riscv64-linux-gnu", "generic", **options)
    for number in range(4):
        program, feeds, _ = case(33, number)
        agree(verify(program), feeds, tmp_path / str(number), "riscv64-linux-gnu", "generic", **options)


@pytest.mark.long
@needs_zig
@pytest.mark.parametrize("target", FOREIGN)
def test_objects_are_linked_for_systems_that_are_not_here(tmp_path, target):
    """The linker finds every symbol and knows every relocation; nothing runs."""
    triple, machine, magic = FOREIGN[target]
    binary = linked(verify(cvm.compile(MODEL)), tmp_path, triple, machine, (*ZIG, "-target", target))
    (found,) = {path for path in (binary, binary.with_suffix(".exe")) if path.exists()}
    assert found.read_bytes().startswith(magic)


@needs_linux
def test_an_input_out_of_range_is_refused(tmp_path):
    feeds = [{"image": np.full((1, 1, 8, 8), 256, np.int32)}]
    with pytest.raises(RuntimeError, match="status 1"):
        ran(verify(cvm.compile(MODEL)), feeds, tmp_path, "x86_64-linux-gnu", "generic")


@needs_emulation
def test_a_processor_without_the_features_is_refused(tmp_path):
    options = {"compiler": (CROSS, "-static"), "runner": (EMULATOR, "-cpu", "cortex-a53")}
    feeds = [{"image": np.zeros((1, 1, 8, 8), np.int32)}]
    with pytest.raises(RuntimeError, match="status -1"):
        ran(verify(cvm.compile(MODEL)), feeds, tmp_path, "aarch64-linux-gnu", "neon_dot", **options)


@pytest.mark.parametrize(
    ("triple", "machine", "code"),
    [
        ("x86_64-linux-gnu", "neon_dot", r"export\.machine"),
        ("aarch64-linux-gnu", "avx2", r"export\.machine"),
        ("aarch64-pc-windows-msvc", "neon_dot", r"export\.machine"),
        ("x86_64-linux-gnu", "amx", r"export\.machine"),
        ("nowhere-linux-gnu", "generic", r"export\.target"),
    ],
)
def test_targets_and_machines_that_do_not_exist_are_refused(triple, machine, code):
    with pytest.raises(Invalid, match=code):
        exported(verify(small.negated()), triple, machine)
