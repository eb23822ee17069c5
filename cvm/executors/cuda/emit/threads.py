"""Kernels of independent elements: each thread computes some of them, far apart, so that neighbours stay together.

A kernel is written for any number of blocks and threads. Thread t of n computes the elements t, t + n, t + 2 n, ..
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cvm.executors.native.emit.ir import Code, Module, Scalar, V, element
from cvm.records import dataclass

__all__ = ["GLOBAL", "MOST_BLOCKS", "SHARED", "THREADS", "Emitter", "Kernel", "Shape", "Shapes", "covering", "digits"]

GLOBAL = "ptr addrspace(1)"
"""The type of an address in global memory."""
SHARED = "ptr addrspace(3)"
"""The type of an address in the memory that a block shares."""
THREADS = 256
"""The threads of a block that needs no certain number of them."""
MOST_BLOCKS = 2**15
"""The most blocks of a kernel of independent elements: several times as many as any GPU runs at the same time."""
_REGISTERS = {"tid": "thread", "ntid": "threads of a block", "ctaid": "block", "nctaid": "blocks"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A kernel and how it is launched: see `cvm.executors.cuda.launch.Launch`."""

    function: str
    grid: tuple[int, int, int]
    block: int
    shared: int = 0
    crowded: Shape | None = None
    """Another kernel that computes the same, for many samples."""


Shapes: TypeAlias = tuple[Shape, ...]
Emitter: TypeAlias = "Callable[[Module, str, Any, Sequence[int]], Shapes | None]"
"""Writes the kernels of a description into a module: (module, name, description, alignments).

Each call of the description launches them one after the other, with all its arguments. ``alignments`` has for each
argument a power of two that divides the address in every call. The result is None where the emitter has no kernel for
this description.
"""


class Kernel(Code):
    """The body of a kernel. ``arguments`` are its pointers.

    Addresses of elements are multiples of their size, as a GPU requires.
    """

    def __init__(self, module: Module, name: str, count: int) -> None:
        self.arguments = [V(GLOBAL, f"%a{number}") for number in range(count)]
        super().__init__(module, name, self.arguments, "ptx_kernel void")

    def load(self, type_: str, pointer: V, align: int = 0) -> V:
        """Load the value at an address, which is a multiple of ``align`` bytes (0: of the size of an element)."""
        return super().load(type_, pointer, align or _size(type_))

    def store(self, a: V, pointer: V, align: int = 0) -> None:
        """Store a value at an address, which is a multiple of ``align`` bytes (0: of the size of an element)."""
        super().store(a, pointer, align or _size(a.type))

    def register(self, name: str, axis: str = "x") -> V:
        """The number of this ``tid`` or ``ctaid``, or how many there are (``ntid``, ``nctaid``), in i32."""
        assert name in _REGISTERS
        return self.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}.{axis}")

    def shared(self, size: int) -> V:
        """The address of ``size`` bytes, at most 48 KiB, that the threads of a block share."""
        memory = f"{self._name}_shared"
        self._module.declarations.add(f"@{memory} = internal addrspace(3) global [{size} x i8] undef, align 16")
        return V(SHARED, f"@{memory}")

    def barrier(self) -> None:
        """Wait for all threads of the block; what they have written to memory can be read then."""
        self.call("void", "llvm.nvvm.barrier0")

    def elements(self, count: Scalar, body: Callable[[V], None]) -> None:
        """Write ``body(index)`` for the elements 0 .. count - 1 that belong to this thread."""
        threads = self.cast("zext", self.register("ntid"), 64)
        block = self.cast("zext", self.register("ctaid"), 64)
        first = self.binary("add", self.binary("mul", block, threads), self.cast("zext", self.register("tid"), 64))
        step = self.binary("mul", self.cast("zext", self.register("nctaid"), 64), threads)

        def once(index: V, _: list[V]) -> list[V]:
            body(index)
            return []

        self.loop(first, count, step, once)

    def single(self, count: int, body: Callable[[V], None]) -> Shape:
        """Write ``body(index)`` for the one of the indices 0 .. count - 1 < 2^31 that is this thread's, in i32, and end
        the kernel. Returns its launch: one thread for each index.
        """
        index = self.binary("add", self.binary("mul", self.register("ctaid"), THREADS), self.register("tid"))
        self.when(self.compare("ult", index, count), lambda: body(index))
        self.finish()
        return Shape(self._name, (-(-count // THREADS), 1, 1), THREADS)

    def mine(self, count: Scalar, body: Callable[[V], None]) -> None:
        """Write ``body(index)`` for the elements 0 .. count - 1 that belong to this thread in a kernel of one block."""
        first, step = (self.cast("zext", self.register(name), 64) for name in ("tid", "ntid"))

        def once(index: V, _: list[V]) -> list[V]:
            body(index)
            return []

        self.loop(first, count, step, once)


def _size(type_: str) -> int:
    lane = element(type_)
    return 8 if lane == "double" else max(1, int(lane[1:]) // 8)


def covering(name: str, count: int) -> Shape:
    """The launch of a kernel of ``count`` independent elements."""
    return Shape(name, (max(1, min(-(-count // THREADS), MOST_BLOCKS)), 1, 1), THREADS)


def digits(code: Code, index: V, extents: Sequence[int]) -> list[Scalar]:
    """The index along each of some loops, the innermost last, of the element ``index`` of all of them.

    Divisions by constants take fewer instructions in 32 bits.
    """
    bits = 32 if math.prod(extents) < 2**31 else 64
    left = code.cast("trunc", index, bits)
    found: list[Scalar] = []
    real = [place for place, extent in enumerate(extents) if extent > 1]
    for place in reversed(range(len(extents))):
        extent = extents[place]
        if extent == 1:
            found.append(0)
        elif place == real[0]:
            found.append(code.cast("zext", left, 64))
        else:
            found.append(code.cast("zext", code.binary("urem", left, extent), 64))
            left = code.binary("udiv", left, extent)
    return found[::-1]
