"""A driver of GPUs without GPUs: what `cvm.executors.cuda.device.driver` calls, on memory of this process.

Each function has the parameters of the one in ``cuda.bindings.driver`` and checks what a driver may assume: that the
driver is initialised and a context is current, that addresses and sizes lie in allocations, that handles exist and
are in the state that the call needs, that launches are within the limits of the GPU, that the process is the one that
has initialised the driver, that no call frees or allocates memory while a stream is captured in a strict mode. A wrong
use raises AssertionError at once. Memory begins at multiples of 256 bytes and is full of arbitrary bytes. Copies move
bytes; launches are recorded in ``launched`` with their parameters, as often as a graph runs. ``failures`` names
functions and the error that they return, ``missing`` those that the driver does not have.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

__all__ = ["CUresult", "FakeDriver", "Launched"]


class CUresult(IntEnum):
    """The results of calls that the tests need."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_LAUNCH_FAILED = 719


class CUdevice_attribute(IntEnum):  # noqa: N801 - the names of the package
    """Attributes of devices."""

    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUfunction_attribute(IntEnum):  # noqa: N801
    """Attributes of kernels."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUjit_option(IntEnum):  # noqa: N801
    """Options of the translation of PTX."""

    CU_JIT_ERROR_LOG_BUFFER = 5
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6


class CUstream_flags(IntEnum):  # noqa: N801
    """Kinds of streams."""

    CU_STREAM_DEFAULT = 0
    CU_STREAM_NON_BLOCKING = 1


class CUstreamCaptureMode(IntEnum):
    """How a stream is captured."""

    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


SHARED = {(8, 0): 163 * 1024, (8, 6): 99 * 1024, (9, 0): 227 * 1024}
"""The most bytes of shared memory of a block that may be requested, by compute capability.

Source: CUDA C++ Programming Guide, table of technical specifications per compute capability.
"""
UNSAFE = frozenset({"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuModuleLoadDataEx",
                    "cuModuleUnload"})  # fmt: skip
"""The calls that may wait for the whole GPU: the driver refuses them while a stream is captured in a strict mode."""


def _memory(size: int) -> tuple[int, Any]:
    """Memory at a multiple of 256 bytes, full of arbitrary bytes: its address, and what keeps it."""
    made = (ctypes.c_uint8 * (size + 256))()
    ctypes.memset(made, 0xA5, size + 256)
    start = ctypes.addressof(made)
    return start + -start % 256, made


@dataclass(frozen=True)
class Launched:
    """A launch: the kernel, its grid, block and shared memory, and its parameters as numbers."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[int, ...]


@dataclass
class _Stream:
    """A stream: the operations of the graph that is being captured (None: none is), and those not waited for."""

    captured: list[Callable[[], None]] | None = None
    strict: bool = False
    pending: int = 0


@dataclass
class FakeDriver:
    """See the module.

    ``parameters`` says how many parameters each kernel has whose module is no text of LLVM, ``static`` how many bytes
    of shared memory it declares itself, ``memory`` what a device has. ``execute``, if it is given, runs a launch: it
    gets the image of the module.
    """

    parameters: dict[str, int] = field(default_factory=dict)
    static: dict[str, int] = field(default_factory=dict)
    gpus: int = 1
    memory: int = 2**24
    version: int = 12_080
    capability: tuple[int, int] = (9, 0)
    failures: dict[str, CUresult] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    execute: Callable[[bytes, Launched], None] | None = None
    log: bytes = b""
    """What the driver writes to the error log of code that it refuses."""
    calls: list[str] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)

    ENUMS: ClassVar[tuple[type[IntEnum], ...]] = (
        CUresult, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstream_flags,
        CUstreamCaptureMode,
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._handles = itertools.count(1000)
        self._ready = 0
        """The process that has initialised the driver."""
        self.stack: list[int] = []
        self.retained = 0
        self.allocations: dict[int, tuple[int, Any]] = {}
        """The size of each allocation, and what keeps it, by its address."""
        self.pinned: dict[int, tuple[int, Any]] = {}
        self.streams: dict[int, _Stream] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.executables: dict[int, list[Callable[[], None]]] = {}
        self.modules: dict[int, bytes] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.attributes: dict[int, int] = {}
        self.events: dict[int, bool] = {}
        """Whether each event was recorded."""

    @property
    def left(self) -> dict[str, int]:
        """What was made and not given back."""
        counts = {
            "contexts": self.retained, "current": len(self.stack), "allocations": len(self.allocations),
            "pinned": len(self.pinned), "streams": len(self.streams), "graphs": len(self.graphs),
            "executables": len(self.executables), "modules": len(self.modules),
            "events": len(self.events),
        }  # fmt: skip
        return {name: count for name, count in counts.items() if count}

    def __getattr__(self, name: str) -> Any:
        """The enumerations, by the names that the package gives them."""
        for one in self.ENUMS:
            if one.__name__ == name:
                return one
        raise AttributeError(name)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("cu") or name.startswith("cuGetError"):
            return found

        @functools.wraps(found)
        def called(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            free = ("cuInit", "cuDriverGetVersion", "cuDevice", "cuCtxPushCurrent")
            assert self._ready or name == "cuInit", f"{name} before cuInit"
            assert self._ready in (0, os.getpid()), f"{name} in a process that was forked"
            assert self.stack or name.startswith(free), f"{name} without a current context"
            strict = any(one.strict for one in self.streams.values() if one.captured is not None)
            assert not (strict and name in UNSAFE), f"{name} while a stream is captured"
            if name in self.missing:
                raise RuntimeError(f'Function "{name}" not found')
            failure = self.failures.get(name)
            if failure is None:
                return (CUresult.CUDA_SUCCESS, *found(*arguments))
            if name == "cuStreamEndCapture":  # a capture ends, whatever comes of it
                self.streams[arguments[0]].captured = None
            if name == "cuModuleLoadDataEx":
                arguments[3][0][: len(self.log)] = self.log
            results = found.__annotations__["return"]
            return (failure, *([None] * (0 if results == "tuple[()]" else results.count(",") + 1)))

        return called

    def _handle(self) -> int:
        return next(self._handles)

    # Devices and contexts -------------------------------------------------------------------------------------------

    def cuInit(self, Flags: int) -> tuple[()]:  # noqa: N802
        assert Flags == 0
        self._ready = os.getpid()
        return ()

    def cuGetErrorName(self, error: CUresult) -> tuple[CUresult, bytes]:  # noqa: N802
        return CUresult.CUDA_SUCCESS, error.name.encode()

    def cuGetErrorString(self, error: CUresult) -> tuple[CUresult, bytes]:  # noqa: N802
        return CUresult.CUDA_SUCCESS, error.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode()

    def cuDriverGetVersion(self) -> tuple[int]:  # noqa: N802
        return (self.version,)

    def cuDeviceGetCount(self) -> tuple[int]:  # noqa: N802
        return (self.gpus,)

    def cuDeviceGet(self, ordinal: int) -> tuple[int]:  # noqa: N802
        assert 0 <= ordinal < self.gpus
        return (ordinal,)

    def cuDeviceGetName(self, length: int, dev: int) -> tuple[bytes]:  # noqa: N802
        return (f"Fake {dev}".encode().ljust(length, b"\0"),)

    def cuDeviceTotalMem(self, dev: int) -> tuple[int]:  # noqa: N802
        return (self.memory,)

    def cuDeviceGetAttribute(self, attrib: CUdevice_attribute, dev: int) -> tuple[int]:  # noqa: N802
        return (self.capability[attrib - CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR],)

    def cuDevicePrimaryCtxRetain(self, dev: int) -> tuple[int]:  # noqa: N802
        self.retained += 1
        return (77,)

    def cuDevicePrimaryCtxRelease(self, dev: int) -> tuple[()]:  # noqa: N802
        assert self.retained
        self.retained -= 1
        return ()

    def cuCtxPushCurrent(self, ctx: int) -> tuple[()]:  # noqa: N802
        assert ctx == 77
        assert self.retained
        self.stack.append(ctx)
        return ()

    def cuCtxPopCurrent(self) -> tuple[int]:  # noqa: N802
        return (self.stack.pop(),)

    # Memory ---------------------------------------------------------------------------------------------------------

    def cuMemGetInfo(self) -> tuple[int, int]:  # noqa: N802
        used = sum(size for size, _ in self.allocations.values())
        return self.memory - used, self.memory

    def cuMemAlloc(self, bytesize: int) -> tuple[int]:  # noqa: N802
        assert bytesize > 0
        address, made = _memory(bytesize)
        self.allocations[address] = bytesize, made
        return (address,)

    def cuMemFree(self, dptr: int) -> tuple[()]:  # noqa: N802
        assert not any(stream.pending for stream in self.streams.values()), "memory is freed while a run uses it"
        del self.allocations[dptr]
        return ()

    def cuMemHostAlloc(self, bytesize: int, Flags: int) -> tuple[int]:  # noqa: N802
        assert bytesize > 0
        address, made = _memory(bytesize)
        self.pinned[address] = bytesize, made
        return (address,)

    def cuMemFreeHost(self, p: int) -> tuple[()]:  # noqa: N802
        assert not any(stream.pending for stream in self.streams.values()), "memory is freed while a run uses it"
        del self.pinned[p]
        return ()

    def _require(self, address: int, size: int, where: dict[int, tuple[int, Any]]) -> None:
        inside = any(start <= address and address + size <= start + room for start, (room, _) in where.items())
        assert inside, f"{size} bytes at {address} are in no allocation"

    def _operation(self, hStream: int, work: Callable[[], None]) -> None:
        stream = self.streams[hStream]
        if stream.captured is not None:
            stream.captured.append(work)
        else:
            work()
            stream.pending += 1

    def _copy(self, target: int, source: int, size: int, device: int, stream: int) -> None:
        host = source if device == target else target
        assert size > 0
        self._require(device, size, self.allocations)
        if self.streams[stream].captured is not None:
            self._require(host, size, self.pinned)

        def work() -> None:
            self._require(device, size, self.allocations)
            ctypes.memmove(target, source, size)

        self._operation(stream, work)

    def cuMemcpyHtoDAsync(self, dstDevice: int, srcHost: int, ByteCount: int, hStream: int) -> tuple[()]:  # noqa: N802
        self._copy(dstDevice, srcHost, ByteCount, dstDevice, hStream)
        return ()

    def cuMemcpyDtoHAsync(self, dstHost: int, srcDevice: int, ByteCount: int, hStream: int) -> tuple[()]:  # noqa: N802
        self._copy(dstHost, srcDevice, ByteCount, srcDevice, hStream)
        return ()

    # Streams and graphs ---------------------------------------------------------------------------------------------

    def cuStreamCreate(self, Flags: int) -> tuple[int]:  # noqa: N802
        assert Flags == CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = self._handle()
        self.streams[handle] = _Stream()
        return (handle,)

    def cuStreamDestroy(self, hStream: int) -> tuple[()]:  # noqa: N802
        assert self.streams[hStream].captured is None, "a stream is destroyed while it is captured"
        del self.streams[hStream]
        return ()

    def cuStreamSynchronize(self, hStream: int) -> tuple[()]:  # noqa: N802
        assert self.streams[hStream].captured is None
        self.streams[hStream].pending = 0
        return ()

    def cuStreamBeginCapture(self, hStream: int, mode: CUstreamCaptureMode) -> tuple[()]:  # noqa: N802
        assert self.streams[hStream].captured is None
        self.streams[hStream].captured = []
        self.streams[hStream].strict = mode != CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        return ()

    def cuStreamEndCapture(self, hStream: int) -> tuple[int]:  # noqa: N802
        captured, self.streams[hStream].captured = self.streams[hStream].captured, None
        assert captured is not None
        handle = self._handle()
        self.graphs[handle] = captured
        return (handle,)

    def cuGraphInstantiate(self, hGraph: int, flags: int) -> tuple[int]:  # noqa: N802
        assert flags == 0
        handle = self._handle()
        self.executables[handle] = list(self.graphs[hGraph])
        return (handle,)

    def cuGraphDestroy(self, hGraph: int) -> tuple[()]:  # noqa: N802
        del self.graphs[hGraph]
        return ()

    def cuGraphExecDestroy(self, hGraphExec: int) -> tuple[()]:  # noqa: N802
        del self.executables[hGraphExec]
        return ()

    def cuEventCreate(self, Flags: int) -> tuple[int]:  # noqa: N802
        assert Flags == 0
        handle = self._handle()
        self.events[handle] = False
        return (handle,)

    def cuEventRecord(self, hEvent: int, hStream: int) -> tuple[()]:  # noqa: N802
        assert hEvent in self.events
        assert self.streams[hStream].captured is None
        self.events[hEvent] = True
        self.streams[hStream].pending += 1
        return ()

    def cuEventElapsedTime(self, hStart: int, hEnd: int) -> tuple[float]:  # noqa: N802
        assert self.events[hStart]
        assert self.events[hEnd]
        assert not any(stream.pending for stream in self.streams.values()), "an event has not come yet"
        return (0.25,)

    def cuEventDestroy(self, hEvent: int) -> tuple[()]:  # noqa: N802
        del self.events[hEvent]
        return ()

    def cuGraphLaunch(self, hGraphExec: int, hStream: int) -> tuple[()]:  # noqa: N802
        for work in self.executables[hGraphExec]:
            work()
        self.streams[hStream].pending += 1
        return ()

    # Code -----------------------------------------------------------------------------------------------------------

    def cuModuleLoadDataEx(  # noqa: N802
        self,
        image: int,
        numOptions: int,
        options: list[CUjit_option],
        optionValues: list[Any],
    ) -> tuple[int]:
        assert numOptions == len(options) == len(optionValues)
        values = dict(zip(options, optionValues, strict=True))
        room = values[CUjit_option.CU_JIT_ERROR_LOG_BUFFER]
        assert len(room) == values[CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        handle = self._handle()
        self.modules[handle] = ctypes.string_at(image)
        return (handle,)

    def cuModuleUnload(self, hmod: int) -> tuple[()]:  # noqa: N802
        assert not any(stream.pending for stream in self.streams.values()), "code is unloaded while it runs"
        del self.modules[hmod]
        return ()

    def cuModuleGetFunction(self, hmod: int, name: bytes) -> tuple[int]:  # noqa: N802
        assert name in self.modules[hmod]
        handle = self._handle()
        self.functions[handle] = hmod, name.decode()
        return (handle,)

    def cuFuncSetAttribute(self, hfunc: int, attrib: CUfunction_attribute, value: int) -> tuple[()]:  # noqa: N802
        assert attrib == CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        static = self.static.get(self.functions[hfunc][1], 0)
        assert 0 <= value <= SHARED[self.capability] - static, "too much shared memory"
        self.attributes[hfunc] = value
        return ()

    def _count(self, module: int, name: str) -> int:
        """The number of parameters of a kernel: what was given, or else what its module says, a text of LLVM."""
        if name in self.parameters:
            return self.parameters[name]
        header = re.search(rf"define ptx_kernel void @{name}\(.*", self.modules[module].decode())
        assert header is not None, name
        return header[0].count("%")

    def cuLaunchKernel(  # noqa: N802
        self, f: int, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
    ) -> tuple[()]:  # fmt: skip
        module, name = self.functions[f]
        assert module in self.modules
        assert extra == 0
        assert sharedMemBytes <= self.attributes.get(f, 48 * 1024 - self.static.get(name, 0)), "too much shared memory"
        assert 1 <= gridDimX < 2**31, gridDimX
        assert min(gridDimY, gridDimZ) >= 1, (gridDimY, gridDimZ)
        assert max(gridDimY, gridDimZ) < 2**16, (gridDimY, gridDimZ)
        assert 1 <= blockDimX * blockDimY * blockDimZ <= 1024, (blockDimX, blockDimY, blockDimZ)
        count = self._count(module, name)
        pointers = (ctypes.c_void_p * count).from_address(kernelParams) if count else ()
        values = tuple(ctypes.c_uint64.from_address(pointer or 0).value for pointer in pointers)
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        one = Launched(name, grid, block, sharedMemBytes, values)

        def work() -> None:
            assert module in self.modules, "a graph runs code that was unloaded"
            self.launched.append(one)
            if self.execute is not None:
                self.execute(self.modules[module], one)

        self._operation(hStream, work)
        return ()
