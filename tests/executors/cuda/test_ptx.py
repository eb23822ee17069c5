"""Kernels as PTX: the capabilities that LLVM knows, and what the assembler of NVIDIA makes of every class."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from cvm.errors import Unsupported
from cvm.executors.base import returned
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.bindings import OLDEST
from cvm.executors.cuda.emit.registry import PLAIN, kernels_of
from cvm.executors.cuda.emit.sha256 import module_text
from cvm.executors.cuda.launch import TRIPLE
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime.trial_programs import CLASSES
from tests.selection import mostly_long

TARGETS = ((8, 0), (9, 0), (10, 0))
BY_NAME = {one.name: one for one in CLASSES}
FEW = {"8-bit convolution", "detections", "ops of op-set 2", "windows"}
SMALL = f'target triple = "{TRIPLE}"\ndefine ptx_kernel void @nothing() {{\n  ret void\n}}\n'
"""A module with one kernel."""
REGISTERS = 2**16
"""The registers of a multiprocessor, of which a warp takes multiples of 8 for each thread."""
SHARED = {(8, 0): 163 * 1024, (9, 0): 227 * 1024, (10, 0): 227 * 1024}
"""The most bytes of shared memory of a block. Source: CUDA C++ Programming Guide, technical specifications."""
SPILLED = 0
"""The most bytes of a thread that the assembler may move from registers to memory."""


@cache
def assembler() -> str:
    """The path of ptxas: of the extra cuda-dev, or on the path."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or []]
    found = [path for folder in folders for path in folder.glob("*/bin/ptxas")]
    path = str(found[0]) if found else shutil.which("ptxas")
    if path is None:
        pytest.skip("ptxas is not installed (the extra cuda-dev)")
    return path


@dataclass(frozen=True)
class Used:
    """What a kernel uses: bytes of a thread moved from registers to memory, registers, bytes of shared memory."""

    spilled: int
    registers: int
    shared: int


def used(text: bytes, capability: tuple[int, int], folder: Path) -> dict[str, Used]:
    """What each kernel uses, by its name; the assembler must take the text."""
    file, target = folder / "kernels.ptx", f"sm_{capability[0]}{capability[1]}"
    file.write_bytes(text)
    command = [assembler(), f"-arch={target}", "-v", "-o", str(folder / "kernels.cubin"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "kernels.cubin").stat().st_size
    found = {}
    for part in done.stderr.split("Compiling entry function '")[1:]:
        spills, registers = re.search(r"(\d+) bytes spill stores", part), re.search(r"Used (\d+) registers", part)
        assert spills is not None
        assert registers is not None
        shared = re.search(r"(\d+) bytes smem", part)
        found[part.split("'")[0]] = Used(int(spills[1]), int(registers[1]), int(shared[1]) if shared else 0)
    return found


def test_the_fields_of_the_assembler_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = """ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 36 registers, used 1 barriers, 512 bytes smem, 352 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers"""
    (tmp_path / "kernels.cubin").write_bytes(b"code")
    monkeypatch.setitem(globals(), "assembler", lambda: "")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **named: SimpleNamespace(returncode=0, stderr=said))
    assert used(b"", (9, 0), tmp_path) == {"one": Used(4, 36, 512), "two": Used(0, 8, 0)}


def test_a_gpu_gets_the_nearest_capability_that_llvm_knows() -> None:
    for capability in ptx.CAPABILITIES:
        assert ptx.nearest(capability) == capability
    assert ptx.nearest((8, 8)) == (8, 7)
    assert ptx.nearest((9, 9)) == (9, 0)
    assert ptx.nearest((10, 3)) == (10, 0)
    assert ptx.nearest((99, 0)) == ptx.CAPABILITIES[-1]
    for old in ((7, 5), (5, 0)):
        with pytest.raises(Unsupported, match="Ampere") as raised:
            ptx.nearest(old)
        assert raised.value.code == "cuda.capability"


@pytest.mark.parametrize("capability", ptx.CAPABILITIES)
def test_llvm_knows_every_capability_of_the_list(capability: tuple[int, int]) -> None:
    assert f".target sm_{capability[0]}{capability[1]}\n" in ptx.assembled(SMALL, capability).decode()


@pytest.mark.parametrize("capability", ptx.CAPABILITIES)
def test_every_driver_that_knows_a_gpu_takes_its_ptx(capability: tuple[int, int]) -> None:
    """PTX 8.0 came with CUDA 12.0, the oldest driver that is used. GPUs since Blackwell came with later drivers."""
    assert OLDEST == 12_000
    newest = {(10, 0): (8, 6), (12, 0): (8, 7)}.get(capability, (8, 0))
    version = re.search(r"^\.version (\d+)\.(\d+)$", ptx.assembled(SMALL, capability).decode(), re.MULTILINE)
    assert version is not None
    assert (int(version[1]), int(version[2])) <= newest


def test_a_module_that_llvm_refuses_and_a_capability_that_it_lacks_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="LLVM refuses") as raised:
        ptx.assembled("no module", (9, 0))
    assert raised.value.code == "cuda.code"
    monkeypatch.setenv("CVM_CACHE", "")
    monkeypatch.setattr(ptx, "assembly_for", lambda *arguments: ".target sm_30\n")
    with pytest.raises(Unsupported, match="no code for sm_90"):
        ptx.assembled(SMALL, (9, 0))


def test_ptx_is_kept_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    first = ptx.assembled(SMALL, (8, 0))
    monkeypatch.setattr(ptx, "assembly_for", None)
    assert ptx.assembled(SMALL, (8, 0)) == first
    with pytest.raises(TypeError):
        ptx.assembled(SMALL, (9, 0))


@pytest.mark.parametrize("capability", TARGETS, ids=str)
@pytest.mark.parametrize("name", mostly_long(BY_NAME, FEW))
def test_every_class_of_kernels_assembles_without_spills_and_can_be_launched(
    name: str, capability: tuple[int, int], tmp_path: Path
) -> None:
    assembler()
    verified = BY_NAME[name].program()
    made = plan(verified, CUDA, returned(verified.program, frozenset()))
    for plain in (frozenset[type](), frozenset[type](PLAIN)):
        kernels = kernels_of(made, plain)
        found = used(ptx.assembled(kernels.ir, capability), capability, tmp_path)
        launches = [one for launch in kernels.launches for one in (launch, launch.crowded) if one is not None]
        assert found.keys() == {launch.function for launch in launches}
        assert {kernel: one.spilled for kernel, one in found.items() if one.spilled > SPILLED} == {}
        for launch in launches:
            one = found[launch.function]
            assert -(-one.registers // 8) * 8 * launch.block <= REGISTERS, launch.function
            assert one.shared + launch.shared <= SHARED[capability], launch.function


@pytest.mark.parametrize("capability", mostly_long(TARGETS, {TARGETS[1]}), ids=str)
def test_the_hash_of_leaves_assembles_without_spills(capability: tuple[int, int], tmp_path: Path) -> None:
    assembler()
    (one,) = used(ptx.assembled(module_text(), capability), capability, tmp_path).values()
    assert one.spilled == 0
