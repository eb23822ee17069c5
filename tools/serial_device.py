"""A device that runs kernels on this processor: thread after thread, at the speed of machine code.

It finds wrong results, and nothing else: races, stray accesses and missing barriers are what the emulator is for. The
elements of a kernel are shared among any number of threads, so it launches few, and only one where they meet at
barriers.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from cvm.executors.cuda.device.protocol import ALIGNMENT, Copied, Prepared

_NAMES = ("tid.x", "ntid.x", "ctaid.x", "nctaid.x", "ctaid.z")
_REGISTERS = "\n".join(
    f"@{name} = global i32 0\ndefine internal i32 @sreg.{name}() alwaysinline {{\n"
    f"  %value = load i32, ptr @{name}\n  ret i32 %value\n}}"
    for name in _NAMES
)


class SerialDevice:
    """See the module. ``grid`` (blocks, threads) is what kernels without barriers are launched with."""

    name, capability, available = "a serial device", (9, 0), 2**32

    def __init__(self, grid: tuple[int, int] = (1, 1)) -> None:
        self.grid = grid
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}

    @property
    def identity(self) -> str:
        """See `Device.identity`."""
        return self.name

    def allocate(self, size: int) -> int:
        """See `Device.allocate`. Bytes that nobody has written are 0xa5."""
        raw = np.full(size + ALIGNMENT, 0xA5, np.uint8)
        address = int(raw.ctypes.data) + -int(raw.ctypes.data) % ALIGNMENT
        self._memory[address] = raw
        return address

    def free(self, address: int) -> None:
        """See `Device.free`."""
        del self._memory[address]

    def upload(self, address: int, data: npt.NDArray[Any], constant: bool = False) -> None:
        """See `Device.upload`."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, address: int, target: npt.NDArray[Any]) -> None:
        """See `Device.download`."""
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def load(self, ir: str) -> _Code:
        """See `Device.load`."""
        return _Code(ir)

    def unload(self, code: _Code) -> None:
        """See `Device.unload`."""
        code.engine.close()

    def host(self, size: int) -> npt.NDArray[np.uint8]:
        """See `Device.host`."""
        return np.full(size, 0xA5, np.uint8)

    def free_host(self, array: npt.NDArray[np.uint8]) -> None:
        """See `Device.free_host`."""

    def prepare(
        self,
        code: _Code,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied] = (),
        downloads: Sequence[Copied] = (),
    ) -> _Run:
        """See `Device.prepare`."""
        return _Run(self, code, launches, uploads, downloads)


class _Code:
    def __init__(self, ir: str) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        kernels = re.finditer(r"define ptx_kernel void @(\w+).*?\n}", ir, re.DOTALL)
        self.barriers = {match[1] for match in kernels if "barrier" in match[0]}
        text = ir.replace("ptr addrspace(1)", "ptr").replace("ptx_kernel ", "")
        text = re.sub(r"target triple = .*", "", text)
        text = re.sub(r"declare .*@llvm\.nvvm\..*", "", text).replace("@llvm.nvvm.read.ptx.sreg.", "@sreg.")
        text = re.sub(r".*call void @llvm\.nvvm\.barrier0\(\)", "", text)
        module = llvm.parse_assembly(text + _REGISTERS)
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=1)
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self._registers = {
            name: ctypes.c_int32.from_address(self.engine.get_global_value_address(name)) for name in _NAMES
        }

    def launch(self, one: Prepared, blocks: int, threads: int) -> None:
        """Run a kernel with so many blocks and threads."""
        numbers = (*one.addresses, *one.every_step)
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(numbers))(
            self.engine.get_function_address(one.function)
        )
        registers = self._registers
        registers["ntid.x"].value, registers["nctaid.x"].value = threads, blocks
        for sample, block, thread in product(range(one.grid[2]), range(blocks), range(threads)):
            registers["ctaid.z"].value, registers["ctaid.x"].value, registers["tid.x"].value = sample, block, thread
            function(*numbers)


class _Run:
    def __init__(
        self,
        device: SerialDevice,
        code: _Code,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied],
        downloads: Sequence[Copied],
    ) -> None:
        self._device, self._code, self._launches = device, code, launches
        self._uploads, self._downloads = uploads, downloads

    def start(self) -> None:
        """See `Run.start`."""
        for address, data in self._uploads:
            self._device.upload(address, data)
        for one in self._launches:
            self._code.launch(one, *((1, 1) if one.function in self._code.barriers else self._device.grid))
        for address, data in self._downloads:
            self._device.download(address, data)

    def wait(self) -> None:
        """See `Run.wait`."""

    def close(self) -> None:
        """See `Run.close`."""
