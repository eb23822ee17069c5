"""Kernels on tensor cores without one of their copies, waits or barriers: the emulator names each defect."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tools.cuda_emulator import EmulatedDevice, KernelDefect
from tools.cuda_emulator.device import Loaded

CALLS = ("cp.async.cg.shared", "cp.async.commit.group", "cp.async.wait.group", "barrier")


class Changed(EmulatedDevice):
    """A device that leaves out one line of a module."""

    def __init__(self, left_out: int | None = None) -> None:
        super().__init__()
        self.left_out, self.lines = left_out, list[str]()

    def load(self, ir: str) -> Loaded:
        self.lines = ir.splitlines()
        return super().load("\n".join(line for number, line in enumerate(self.lines) if number != self.left_out))


def convolution() -> VerifiedProgram:
    """A convolution whose kernel uses every stage of its shared memory."""
    random, builder = np.random.default_rng(1), ProgramBuilder()
    x = builder.input("x", (1, 128, 8, 8), 0, 255)
    weights = builder.constant(random.integers(-127, 128, (64, 128, 3, 3)).astype(np.int32))
    bias = builder.constant(random.integers(-999, 999, 64).astype(np.int32))
    (y,) = builder.add("conv2d", [x, weights, bias], {"padding": (1, 1)})
    (y,) = builder.add("cvm_right_shift", [y], {"shift_bit": 8, "precision": 8})
    return verify(builder.build([Output("y", y)]))


def calls(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The calls that order memory: the line, and which of `CALLS` it is. Kernels for many samples do not run here."""
    runs = True
    for number, line in enumerate(lines):
        runs = "_many(" not in line if line.startswith("define") else runs
        if not runs:
            continue
        for word in CALLS:
            if "call void" in line and word in line:
                yield number, word


@pytest.mark.slow
def test_no_call_that_orders_memory_can_be_left_out_unnoticed() -> None:
    verified = convolution()
    x = np.random.default_rng(2).integers(0, 256, (1, 128, 8, 8)).astype(np.int32)
    expected = NumpyExecutor(verified).run({"x": x}, {}).values

    def run(device: EmulatedDevice) -> None:
        found = CudaExecutor(verified, device=device, apart=True).run({"x": x}, {}).values
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found[name], tensor)

    device = Changed()
    run(device)
    kinds = {"cp.async.cg.shared": "unwritten", "cp.async.commit.group": "pending copy",
             "cp.async.wait.group": "pending copy", "barrier": "race"}  # fmt: skip
    tried = list(calls(device.lines))
    assert {word for _, word in tried} == set(CALLS)
    found = set()
    for number, word in tried:
        try:
            run(Changed(number))  # right bytes: these sizes do not need the call
        except KernelDefect as defect:
            found.add((word, defect.kind))
    assert found == set(kinds.items())
