"""Banks of shared memory: what the tensor cores multiply is read without conflicts, as the emulator sees the addresses.

Shared memory has 32 banks of 4 bytes. Accesses of 16 bytes are served for 8 threads at a time, of 8 bytes for 16
threads, of 4 bytes for a warp (CUDA programming guide, section "Shared Memory"). ldmatrix reads eight rows of 16 bytes
at a time, which the emulator reads as the words of its threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cvm.executors.cuda.emit import tensor_cores
from cvm.executors.cuda.emit.tiling import MOST_SHARED, candidates
from tests.executors.cuda.test_tensor_cores import LAYERS, kernels, numbered, require_numpy
from tests.executors.native.test_tiles import convolution
from tools.cuda_emulator import access
from tools.cuda_emulator.module import SHARED

WARP, BANKS, WORD = 32, 32, 4
EVERY = 40
"""Every so many tilings are tried."""


def served(addresses: npt.NDArray[np.int64], size: int) -> tuple[int, int]:
    """How often the banks are used for addresses by warp and lane, and how often they would be without conflicts."""
    together = min(WARP, WARP * WORD // size)
    phases = addresses.reshape(-1, together)
    words = (phases[:, :, None] // WORD + np.arange(size // WORD)).reshape(len(phases), -1)
    found = 0
    for phase in words:
        every = np.unique(phase)  # threads that read the same word are served together
        found += int(np.bincount(every % BANKS).max())
    return found, len(phases)


def test_conflicts_are_counted() -> None:
    lanes = np.arange(WARP, dtype=np.int64)
    assert served(lanes[None] * 4, 4) == (1, 1)
    assert served(lanes[None] * 8, 4) == (2, 1)
    assert served(lanes[None] * 0, 4) == (1, 1)
    assert served(lanes[None] * 16, 16) == (4, 4)
    assert served(lanes[None] * 64, 16) == (16, 4)


@pytest.mark.parametrize("name", ["wide", "deep"])
def test_the_operands_of_tensor_cores_are_read_without_conflicts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, weights, attributes = LAYERS[name]
    program = convolution(shape, weights, name == "wide", **attributes)
    (kernel,) = kernels(program)
    every = [one for one in candidates(kernel) if one.shared <= MOST_SHARED]
    counts, read = [0, 0], access.read_bytes

    def counted(machine: Any, group: Any, addresses: npt.NDArray[np.int64], *rest: Any) -> Any:
        if int(addresses[0]) >> 60 == SHARED and len(group) % WARP == 0 and rest[0] % WORD == 0:
            found = served(group.full(addresses).reshape(-1, WARP), rest[0])
            counts[:] = [a + b for a, b in zip(counts, found, strict=True)]
        return read(machine, group, addresses, *rest)

    for module in ("access", "warps"):
        monkeypatch.setattr(f"tools.cuda_emulator.{module}.read_bytes", counted)
    for number in range(0, len(every), EVERY):
        monkeypatch.setattr(tensor_cores, "tiling", partial(numbered, number))
        require_numpy(program, 1)
    assert counts[1] > 500
    assert counts[0] == counts[1]
