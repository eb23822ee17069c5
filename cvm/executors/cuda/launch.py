"""Launches: the kernels of a network as one LLVM module, and the order in which they run."""

from __future__ import annotations

from cvm.executors.native.plan.homes import Buffer
from cvm.records import dataclass

__all__ = ["CROWD", "MOST_ARGUMENTS", "TRIPLE", "Kernels", "Launch"]

TRIPLE = "nvptx64-nvidia-cuda"
"""The target of the modules. Their text names it."""

CROWD = 8
"""With this many samples there is enough work for large tiles, which read less for each product."""

MOST_ARGUMENTS = 64
"""The most addresses of a kernel. Each is a parameter of 8 bytes, and so is its step from sample to sample; a GPU takes
4352 bytes of them, and later ones more. A thread that reads more than a hundred operands has no registers for them.
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel: ``grid`` blocks in three directions, of ``block`` threads each.

    ``shared`` is the number of bytes of dynamic shared memory. ``arguments`` are addresses, an offset in bytes in a
    buffer, as those of a `KernelCall`: the kernel ``function`` takes one pointer to global memory for each of them.
    """

    function: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    arguments: tuple[tuple[Buffer, int], ...]
    crowded: Launch | None = None
    """What takes the place of this launch where there are at least `CROWD` samples: it computes the same."""

    def of(self, samples: int) -> Launch:
        """The launch for so many samples."""
        return self if self.crowded is None or samples < CROWD else self.crowded


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a network: the text of one LLVM module (``ir``), and the launches in their order.

    A launch begins when all launches before it have ended.
    """

    ir: str
    launches: tuple[Launch, ...]
    calls: tuple[int, ...]
    """For each launch, the number of the call of the plan that it belongs to: the first one, if it makes several."""
