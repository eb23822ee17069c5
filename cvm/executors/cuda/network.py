"""A network on a device: its memory, its code, and one run of it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cvm.errors import LimitExceeded
from cvm.executors.base import Int32Array
from cvm.executors.cuda.device.protocol import ALIGNMENT, Code, Device, Prepared, Run, contiguous
from cvm.executors.cuda.emit.registry import kernels_of
from cvm.executors.cuda.launch import Kernels
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.runtime.proven import proven

if TYPE_CHECKING:
    from cvm.executors.native.plan.homes import Buffer
    from cvm.executors.native.plan.steps import Plan
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Network"]


class Network:
    """A proven plan whose kernels are loaded on a device, with all memory that one run needs.

    ``wanted`` are the values that a run returns. Kernels of the kinds in ``plain`` are written in their plain form.
    With ``apart``, every tensor of the arena is an allocation of its own, so that a stray access meets no other tensor.
    Raises `Distrusted` if no plan is proven, and `LimitExceeded` (``limit.device_memory``) where the device has too
    little memory. `close` gives everything back; so does the garbage collector.
    """

    def __init__(
        self,
        verified: VerifiedProgram,
        device: Device,
        wanted: frozenset[str],
        plain: frozenset[type] = frozenset(),
        apart: bool = False,
    ) -> None:
        self.wanted, self._device = wanted, device
        self.plan, kernels = proven(verified, CUDA, wanted, lambda made: kernels_of(made, plain))
        self._shapes = {name: verified.shapes[name] for name in self.plan.arrays}
        sizes = _sizes(self.plan, self._shapes, apart)
        self.bytes = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values())
        if self.bytes > device.available:
            message = f"the program needs {self.bytes} bytes on {device.name}, which has {device.available} bytes left"
            raise LimitExceeded("limit.device_memory", message)
        held = _Held(device)
        self.close = weakref.finalize(self, held.close)
        self.close.atexit = False
        for part, size in sizes.items():
            held.memory[part] = device.allocate(max(1, size))
        self._arrays = {name: held.memory[name] for name in self.plan.arrays}
        constants = np.frombuffer(self.plan.constants, np.uint8)
        if constants.size:
            device.upload(held.memory["constants"], constants, constant=True)
        held.code = device.load(kernels.ir)
        held.run = self._run = device.prepare(held.code, self._prepared(kernels, held.memory))

    def _prepared(self, kernels: Kernels, memory: Mapping[object, int]) -> list[Prepared]:
        """The launches with their addresses."""

        def address(buffer: Buffer, offset: int) -> int:
            if buffer.kind == "array":
                return memory[self.plan.arrays[buffer.index]] + offset
            if buffer.kind == "constants":
                return memory["constants"] + offset
            own = memory.get(buffer)
            return memory["arena"] + self.plan.offsets[buffer] + offset if own is None else own + offset

        return [
            Prepared(one.function, one.grid, one.block, one.shared, tuple(address(*each) for each in one.arguments))
            for one in kernels.launches
        ]

    def run(self, fed: Mapping[str, Int32Array]) -> None:
        """Run once on inputs and state that are as the program declares them."""
        for name in self.plan.arrays[: self.plan.written]:
            self._device.upload(self._arrays[name], contiguous(fed[name]))
        self._run.start()
        self._run.wait()

    def results(self, names: Iterable[str]) -> dict[str, Int32Array]:
        """Values of the last run, among those that are wanted."""
        found = {}
        for name in names:
            found[name] = np.empty(self._shapes[name], np.int32)
            self._device.download(self._arrays[name], contiguous(found[name]))
        return found


class _Held:
    """What a network holds of its device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.memory: dict[object, int] = {}
        self.code: Code | None = None
        self.run: Run | None = None

    def close(self) -> None:
        """Give it back."""
        if self.run is not None:
            self.run.close()
        if self.code is not None:
            self._device.unload(self.code)
        for address in self.memory.values():
            self._device.free(address)


def _sizes(plan: Plan, shapes: Mapping[str, tuple[int, ...]], apart: bool) -> dict[object, int]:
    """The bytes of each allocation: constants, arena (or each of its buffers), and arrays by the name of the value."""
    sizes: dict[object, int] = {"constants": len(plan.constants)}
    sizes |= {buffer: buffer.size for buffer in plan.offsets} if apart else {"arena": plan.arena}
    return sizes | {name: 4 * math.prod(shapes[name]) for name in plan.arrays}
