"""A driver of GPUs without GPUs: what `cvm.executors.cuda.device.driver` calls, on memory of this process.

Each function has the parameters of the one in ``cuda.bindings.driver`` and checks what a driver may assume: that the
driver is initialised and a context is current, that addresses and sizes lie in allocations, that handles exist and
are in the state that the call needs. A wrong use raises AssertionError at once. Copies move bytes; launches are
recorded in ``launched`` with their parameters, as often as a graph runs. ``failures`` names functions and the error
that they return.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
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
    pending: int = 0


@dataclass
class FakeDriver:
    """See the module. ``parameters`` says how many parameters each kernel has, ``memory`` what a device has."""

    parameters: dict[str, int] = field(default_factory=dict)
    gpus: int = 1
    memory: int = 2**24
    version: int = 12_080
    capability: tuple[int, int] = (9, 0)
    failures: dict[str, CUresult] = field(default_factory=dict)
    log: bytes = b""
    """What the driver writes to the error log of code that it refuses."""
    calls: list[str] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)

    ENUMS: ClassVar[tuple[type[IntEnum], ...]] = (
        CUresult, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstream_flags, CUstreamCaptureMode,
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._handles = itertools.count(1000)
        self._ready = False
        self.stack: list[int] = []
        self.retained = 0
        self.allocations: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.streams: dict[int, _Stream] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.executables: dict[int, list[Callable[[], None]]] = {}
        self.modules: dict[int, bytes] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.attributes: dict[int, int] = {}

    @property
    def left(self) -> dict[str, int]:
        """What was made and not given back."""
        counts = {
            "contexts": self.retained, "current": len(self.stack), "allocations": len(self.allocations),
            "pinned": len(self.pinned), "streams": len(self.streams), "graphs": len(self.graphs),
            "executables": len(self.executables), "modules": len(self.modules),
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
            assert self.stack or name.startswith(free), f"{name} without a current context"
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
        self._ready = True
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
        used = sum(map(len, self.allocations.values()))
        return self.memory - used, self.memory

    def cuMemAlloc(self, bytesize: int) -> tuple[int]:  # noqa: N802
        assert bytesize > 0
        made = (ctypes.c_uint8 * bytesize)()
        self.allocations[ctypes.addressof(made)] = made
        return (ctypes.addressof(made),)

    def cuMemFree(self, dptr: int) -> tuple[()]:  # noqa: N802
        assert not any(stream.pending for stream in self.streams.values()), "memory is freed while a run uses it"
        del self.allocations[dptr]
        return ()

    def cuMemHostAlloc(self, bytesize: int, Flags: int) -> tuple[int]:  # noqa: N802
        made = (ctypes.c_uint8 * bytesize)()
        self.pinned[ctypes.addressof(made)] = made
        return (ctypes.addressof(made),)

    def cuMemFreeHost(self, p: int) -> tuple[()]:  # noqa: N802
        del self.pinned[p]
        return ()

    def _require(self, address: int, size: int, where: dict[int, Any]) -> None:
        inside = any(start <= address and address + size <= start + len(made) for start, made in where.items())
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
        assert mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        assert self.streams[hStream].captured is None
        self.streams[hStream].captured = []
        return ()

    def cuStreamEndCapture(self, hStream: int) -> tuple[int]:  # noqa: N802
        captured, self.streams[hStream].captured = self.streams[hStream].captured, None
        assert captured is not None
        handle = self._handle()
        self.graphs[handle] = captured
        return (handle,)

    def cuGraphInstantiate(self, hGraph: int, flags: int) -> tuple[int]:  # noqa: N802
        handle = self._handle()
        self.executables[handle] = list(self.graphs[hGraph])
        return (handle,)

    def cuGraphDestroy(self, hGraph: int) -> tuple[()]:  # noqa: N802
        del self.graphs[hGraph]
        return ()

    def cuGraphExecDestroy(self, hGraphExec: int) -> tuple[()]:  # noqa: N802
        del self.executables[hGraphExec]
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
        self.attributes[hfunc] = value
        return ()

    def cuLaunchKernel(  # noqa: N802
        self, f: int, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
    ) -> tuple[()]:  # fmt: skip
        module, name = self.functions[f]
        assert module in self.modules
        assert extra == 0
        assert sharedMemBytes <= max(48 * 1024, self.attributes.get(f, 0)), "too much shared memory"
        count = self.parameters[name]
        pointers = (ctypes.c_void_p * count).from_address(kernelParams) if count else ()
        values = tuple(ctypes.c_uint64.from_address(pointer or 0).value for pointer in pointers)
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        one = Launched(name, grid, block, sharedMemBytes, values)

        def work() -> None:
            assert module in self.modules, "a graph runs code that was unloaded"
            self.launched.append(one)

        self._operation(hStream, work)
        return ()
