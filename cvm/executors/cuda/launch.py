"""Launches: the kernels of a network as one LLVM module, and the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

from cvm.executors.native.plan.homes import Buffer

__all__ = ["TRIPLE", "Kernels", "Launch"]

TRIPLE = "nvptx64-nvidia-cuda"
"""The target of the modules. Their text names it."""


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


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a network: the text of one LLVM module (``ir``), and the launches in their order.

    A launch begins when all launches before it have ended.
    """

    ir: str
    launches: tuple[Launch, ...]
