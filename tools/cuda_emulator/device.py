"""The emulator as a device: see `cvm.executors.cuda.device.protocol.Device`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, LimitExceeded
from cvm.executors.cuda.device.protocol import Copied, Prepared, contiguous
from tools.cuda_emulator.defects import KernelDefect
from tools.cuda_emulator.machine import OFFSET, Machine
from tools.cuda_emulator.memory import Memory
from tools.cuda_emulator.module import GLOBAL, Module
from tools.cuda_emulator.parser import parse
from tools.cuda_emulator.program import Program, prepared
from tools.cuda_emulator.shadows import BLOCK, Shadows

__all__ = ["EmulatedDevice", "Loaded"]

THREADS, SHARED_BYTES = 1 << 15, 1 << 22
"""How many threads run at a time, and with how much shared memory."""
STEPS = 1 << 24
"""The most segments that the threads that run at a time may take."""
BLOCKS = 1 << 30
"""The most blocks before the memory of who touched what is cleared."""


class Loaded:
    """The kernels of a module, prepared when they are first launched."""

    def __init__(self, ir: str) -> None:
        self.module: Module = parse(ir)
        self.constants: dict[int, Memory] = {}
        self._programs: dict[str, Program] = {}
        for variable in self.module.variables.values():
            if variable.content is not None:
                memory = Memory(f"constant {variable.name}", variable.size)
                memory.fill(0, np.frombuffer(variable.content, np.uint8), constant=True)
                self.constants[variable.address >> OFFSET] = memory

    def program(self, name: str) -> Program:
        """A kernel. Raises `Invalid` if there is none of that name."""
        if name not in self.module.functions:
            raise Invalid("emulator.function", f"the module has no kernel {name}")
        if name not in self._programs:
            self._programs[name] = prepared(self.module.functions[name])
        return self._programs[name]

    def shared(self, dynamic: int) -> dict[int, tuple[str, int]]:
        """The shared variables by the upper bits of their addresses: name and bytes."""
        return {
            variable.address >> OFFSET: (variable.name, dynamic if variable.dynamic else variable.size)
            for variable in self.module.variables.values()
            if variable.content is None
        }


class EmulatedRun:
    """Copies and launches in order, which run when they are started."""

    def __init__(
        self,
        device: EmulatedDevice,
        code: Loaded,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied],
        downloads: Sequence[Copied],
    ) -> None:
        self._device, self._code, self._launches = device, code, tuple(launches)
        self._uploads, self._downloads = tuple(uploads), tuple(downloads)
        for one in self._launches:
            code.program(one.function)

    def start(self) -> None:
        """Run everything. Raises `KernelDefect`."""
        for address, array in self._uploads:
            self._device.upload(address, array)
        for one in self._launches:
            self._device.launch(self._code, one)
        for address, array in self._downloads:
            self._device.download(address, array)

    def wait(self) -> None:
        """Nothing is left to wait for."""

    def close(self) -> None:
        """Forget the launches and the arrays."""
        self._launches, self._uploads, self._downloads = (), (), ()


class EmulatedDevice:
    """A device on the CPU that checks every access of every thread. ``memory`` is how many bytes it has."""

    def __init__(self, memory: int = 1 << 32, threads: int = THREADS) -> None:
        self._memories: dict[int, Memory] = {}
        self._count, self._blocks, self._free, self._threads = 0, 0, memory, threads

    @property
    def name(self) -> str:
        """The device in words."""
        return "emulator"

    @property
    def identity(self) -> str:
        """See `Device.identity`."""
        return self.name

    @property
    def capability(self) -> tuple[int, int]:
        """Kernels for any compute capability from 8.0 on run."""
        return 8, 0

    @property
    def available(self) -> int:
        """The bytes that can be allocated now."""
        return self._free

    def allocate(self, size: int) -> int:
        """Allocate bytes that nobody has written."""
        if not 0 < size <= self._free:
            raise LimitExceeded("emulator.memory", f"the device has {self._free} bytes left, not {size}")
        self._count += 1
        top = GLOBAL << 20 | 2 * self._count
        self._memories[top] = Memory(f"allocation {self._count}", size)
        self._free -= size
        return top << OFFSET

    def free(self, address: int) -> None:
        """Give back an allocation."""
        memory, offset = self._found(address)
        if offset:
            raise Invalid("emulator.address", f"{address:#x} is not where an allocation begins")
        self._free += memory.size
        del self._memories[address >> OFFSET]

    def upload(self, address: int, data: npt.NDArray[Any], constant: bool = False) -> None:
        """Write bytes. With ``constant``, a kernel that writes them has a defect."""
        memory, offset = self._found(address, data.nbytes)
        memory.fill(offset, contiguous(data), constant)

    def download(self, address: int, target: npt.NDArray[Any]) -> None:
        """Read bytes. Raises `KernelDefect` if some were never written."""
        memory, offset = self._found(address, target.nbytes)
        end = offset + target.nbytes
        missing = memory.written[offset:end] == 0
        if missing.any():
            where = memory.place(offset + int(np.argmax(missing)))
            raise KernelDefect("unwritten", f"the host reads {where}, which has never been written")
        contiguous(target)[:] = memory.data[offset:end]

    def forget(self, address: int, size: int) -> None:
        """Make bytes unwritten again, as those of a new allocation are."""
        memory, offset = self._found(address, size)
        memory.written[offset : offset + size] = 0
        memory.complete = False

    def load(self, ir: str) -> Loaded:
        """Read the kernels of a module."""
        return Loaded(ir)

    def unload(self, code: Loaded) -> None:
        """Forget code."""
        code.module.functions.clear()

    def host(self, size: int) -> npt.NDArray[np.uint8]:
        """Any array serves as memory of the host."""
        return np.zeros(size, np.uint8)

    def free_host(self, array: npt.NDArray[np.uint8]) -> None:
        """Nothing is left to give back."""

    def prepare(
        self,
        code: Loaded,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied] = (),
        downloads: Sequence[Copied] = (),
    ) -> EmulatedRun:
        """A sequence of copies and launches, which can be started many times."""
        return EmulatedRun(self, code, launches, uploads, downloads)

    def launch(self, code: Loaded, one: Prepared) -> None:
        """Run one launch to its end."""
        program = code.program(one.function)
        numbers = self._numbers(program, one)
        self._check(program, one)
        shared = code.shared(one.shared)
        bytes_ = sum(size for _, size in shared.values())
        blocks = one.grid[0] * one.grid[1] * one.grid[2]
        if self._blocks + blocks >= BLOCKS:
            self._restart()
        floor = (self._blocks + 1) * BLOCK
        self._blocks += 1 + blocks
        per = max(1, min(self._threads // one.block, SHARED_BYTES // max(bytes_, 1)))
        memories = {**self._memories, **code.constants}
        with np.errstate(all="ignore"):
            for first in range(0, blocks, per):
                count = min(per, blocks - first)
                machine = Machine(program, one.grid, one.block, first, count, memories, shared, floor, STEPS)
                machine.run(numbers)

    @staticmethod
    def _numbers(program: Program, one: Prepared) -> tuple[int, ...]:
        """What a kernel takes: addresses, then steps. A kernel for one sample may leave the steps out."""
        count = len(program.function.parameters)
        if count == len(one.addresses) and not any(one.steps):
            return one.addresses
        if count != 2 * len(one.addresses):
            raise Invalid("emulator.launch", f"{one.function} takes {count} addresses and steps")
        return (*one.addresses, *one.every_step)

    def _check(self, program: Program, one: Prepared) -> None:
        """Refuse a launch that a driver would refuse, or whose addresses are not aligned as the kernel says."""
        limits = (2**31 - 1, 65535, 65535)
        wrong = [axis for axis, most in zip(one.grid, limits, strict=True) if not 0 < axis <= most]
        if wrong or not 0 < one.block <= 1024 or not 0 <= one.shared <= 227 * 1024:
            raise Invalid("emulator.launch", f"no device launches {one}")
        function = program.function
        for address, align in zip(one.addresses, function.aligned, strict=False):
            if address % align:
                raise KernelDefect("misaligned", f"{one.function} is called with {address:#x}, no multiple of {align}")

    def _restart(self) -> None:
        """Forget who touched what."""
        self._blocks = 0
        for memory in self._memories.values():
            memory.shadows = Shadows(memory.place, memory.data.size)

    def _found(self, address: int, size: int = 0) -> tuple[Memory, int]:
        """The allocation of an address, and the distance to its beginning."""
        memory, offset = self._memories.get(address >> OFFSET), address & (1 << OFFSET) - 1
        if memory is None or offset + size > memory.size:
            raise Invalid("emulator.address", f"{size} bytes at {address:#x} are not in an allocation")
        return memory, offset
