"""GPUs of NVIDIA, through the driver API as the package ``cuda-bindings`` gives it (the extra ``cuda``).

Only the driver is needed, no toolkit: it translates PTX itself. A `Driver` holds everything that it has made and gives
all of it back when it is closed. The context is the primary one of the GPU, which other libraries of the process share;
it is current during a call only.

Source: CUDA Driver API, sections 6.5 to 6.24 (contexts, modules, memory, streams, events, execution, graphs).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, LimitExceeded, Unsupported
from cvm.executors.cuda.device.bindings import bindings, checked, chosen
from cvm.executors.cuda.device.protocol import Code, Copied, Prepared, contiguous
from cvm.records import dataclass

__all__ = ["Assembler", "Driver", "GraphRun"]

Assembler = Callable[[str, tuple[int, int]], bytes]
"""Makes PTX from the text of a module, for a GPU of a compute capability."""
LOG = 2**14
"""The bytes for what the driver says about code that it refuses."""


@dataclass(eq=False, slots=True)
class _Loaded:
    """A module, those of its functions that were asked for, by name, and the shared memory that each may request."""

    module: Any
    functions: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Held:
    """What a `Driver` has made and not given back yet. It closes everything, in an order in which nothing is used."""

    driver: Any
    device: Any
    context: Any
    graphs: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """The executable graph and the stream of each run, by the run's number."""
    modules: list[Any] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    """The size of each allocation by its address."""
    host: dict[int, int] = field(default_factory=dict)
    streams: list[Any] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)
    """The process that has made all this. One that is forked from it cannot use the driver."""
    open: bool = True

    def close(self) -> None:
        """Give everything back. Errors are ignored: after some, the driver refuses all further calls."""
        if not self.open:
            return
        self.open = False
        if self.process != os.getpid():
            return
        driver = self.driver
        driver.cuCtxPushCurrent(self.context)
        for stream in self.streams:
            driver.cuStreamSynchronize(stream)
        for graph, stream in self.graphs.values():
            driver.cuStreamSynchronize(stream)
            driver.cuGraphExecDestroy(graph)
            driver.cuStreamDestroy(stream)
        for module in self.modules:
            driver.cuModuleUnload(module)
        for address in self.memory:
            driver.cuMemFree(address)
        for address in self.host:
            driver.cuMemFreeHost(address)
        for stream in self.streams:
            driver.cuStreamDestroy(stream)
        driver.cuCtxPopCurrent()
        driver.cuDevicePrimaryCtxRelease(self.device)


class Driver:
    """One GPU: see `cvm.executors.cuda.device.protocol.Device`.

    ``index`` is the driver's number of the GPU, which CUDA_VISIBLE_DEVICES may change. Raises `Unsupported`
    (``cuda.package``, ``cuda.driver``, ``cuda.device``) if there is none, and `Invalid` (``cuda.device``) for an index
    that no GPU has.
    """

    def __init__(self, index: int, assembled: Assembler) -> None:
        self._driver, self._assembled = bindings(), assembled
        self.found = chosen(self._driver, index)
        self._place = f"on GPU {index} ({self.found.name})"
        device = self._call("cuDeviceGet", index)
        context = self._call("cuDevicePrimaryCtxRetain", device)
        self._held = _Held(self._driver, device, context)
        self._end = weakref.finalize(self, self._held.close)
        with self.current():
            self._stream = self._stream_of_its_own()
        self._held.streams.append(self._stream)
        self._numbers = 0

    # Words ----------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The GPU in words."""
        return self.found.words

    @property
    def identity(self) -> str:
        """See `Device.identity`."""
        return f"{self.found.words}, {self.found.build}"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, major and minor."""
        return self.found.capability

    @property
    def available(self) -> int:
        """The bytes of memory that can be allocated now."""
        with self.current():
            free, _ = self._call("cuMemGetInfo")
        return int(free)

    # Calls ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back everything that this object has made."""
        self._end()

    def _call(self, function: str, *arguments: Any, what: str = "") -> Any:
        return checked(self._driver, function, *arguments, what=what, place=self._place)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current, and afterwards the one that was."""
        if not self._held.open:
            raise Unsupported("cuda.call", f"the use of a GPU was ended before {self._place}: make another session")
        if self._held.process != os.getpid():
            message = f"this process was forked from one that runs programs {self._place}, and cannot use the GPU"
            raise Unsupported("cuda.call", f'{message}; start processes afresh: multiprocessing.get_context("spawn")')
        self._call("cuCtxPushCurrent", self._held.context)
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent()

    def attribute(self, name: str) -> int:
        """A number of the GPU, by the name of the driver behind ``CU_DEVICE_ATTRIBUTE_``."""
        kind = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", kind, self._held.device))

    @property
    def stream(self) -> int:
        """The handle of the stream on which `upload` and `download` copy, for libraries that take one."""
        return int(self._stream)

    def _stream_of_its_own(self) -> Any:
        return self._call("cuStreamCreate", self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING)

    # Memory ---------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """See `Device.allocate`. The driver aligns to 256 bytes at least."""
        with self.current():
            address = int(self._call("cuMemAlloc", size, what=f"for {size} bytes"))
        self._held.memory[address] = size
        return address

    def free(self, address: int) -> None:
        """See `Device.free`."""
        del self._held.memory[address]
        with self.current():
            self._call("cuMemFree", address)

    def upload(self, address: int, data: npt.NDArray[Any], constant: bool = False) -> None:
        """See `Device.upload`."""
        bytes_ = contiguous(data)
        with self.current():  # a copy from other than pinned memory may still be under way when the call returns
            self._call("cuMemcpyHtoDAsync", address, bytes_.ctypes.data, bytes_.size, self._stream)
            self._call("cuStreamSynchronize", self._stream, what=f"after a copy of {bytes_.size} bytes to the GPU")

    def download(self, address: int, target: npt.NDArray[Any]) -> None:
        """See `Device.download`."""
        bytes_ = contiguous(target)
        with self.current():
            self._call("cuMemcpyDtoHAsync", bytes_.ctypes.data, address, bytes_.size, self._stream)
            self._call("cuStreamSynchronize", self._stream, what=f"after a copy of {bytes_.size} bytes from the GPU")

    def host(self, size: int) -> npt.NDArray[np.uint8]:
        """See `Device.host`. The memory is pinned, so that copies do not occupy the processor."""
        with self.current():
            address = int(self._call("cuMemHostAlloc", size, 0, what=f"for {size} bytes of pinned memory"))
        self._held.host[address] = size
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def free_host(self, array: npt.NDArray[np.uint8]) -> None:
        """See `Device.free_host`."""
        address = int(array.ctypes.data)
        del self._held.host[address]
        with self.current():
            self._call("cuMemFreeHost", address)

    # Code -----------------------------------------------------------------------------------------------------------

    def load(self, ir: str) -> Code:
        """See `Device.load`. Raises `Unsupported` (``cuda.code``) with the driver's log for code that it refuses."""
        text = ctypes.create_string_buffer(self._assembled(ir, self.capability))
        log, option = bytearray(LOG), self._driver.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        with self.current():
            try:
                module = self._call("cuModuleLoadDataEx", ctypes.addressof(text), len(options), options, [log, LOG])
            except LimitExceeded:
                raise
            except CvmError as error:
                said = log.split(b"\0")[0].decode(errors="replace").strip()
                message = f"{error.message}{said and f'. The log says: {said}'}"
                raise Unsupported("cuda.code", message) from error
        self._held.modules.append(module)
        return _Loaded(module)

    def unload(self, code: Code) -> None:
        """See `Device.unload`."""
        assert isinstance(code, _Loaded)
        self._held.modules.remove(code.module)
        with self.current():
            self._call("cuModuleUnload", code.module)

    def _function(self, code: _Loaded, name: str, shared: int) -> Any:
        """A kernel that may have so many bytes of dynamic shared memory.

        The usual bound is 48 KiB less what the kernel declares itself, so every request is stated. It is never lowered:
        graphs that were made before may ask for more.
        """
        if name not in code.functions:
            code.functions[name] = self._call("cuModuleGetFunction", code.module, name.encode(), what=f"for {name}")
        function = code.functions[name]
        if shared > code.shared.get(name, 0):
            kind = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, kind, shared, what=f"for {shared} bytes of {name}")
            code.shared[name] = shared
        return function

    # Runs -----------------------------------------------------------------------------------------------------------

    def prepare(
        self,
        code: Code,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied] = (),
        downloads: Sequence[Copied] = (),
    ) -> GraphRun:
        """See `Device.prepare`: a CUDA graph, and a stream of its own on which it runs."""
        assert isinstance(code, _Loaded)
        with self.current():
            functions = [self._function(code, launch.function, launch.shared) for launch in launches]
            stream = self._stream_of_its_own()
            try:
                graph = self._captured(stream, list(zip(launches, functions, strict=True)), uploads, downloads)
            except BaseException:
                self._driver.cuStreamDestroy(stream)
                raise
        self._numbers += 1
        self._held.graphs[self._numbers] = graph, stream
        return GraphRun(self, self._numbers)

    def _captured(
        self,
        stream: Any,
        launches: Sequence[tuple[Prepared, Any]],
        uploads: Sequence[Copied],
        downloads: Sequence[Copied],
    ) -> Any:
        """The executable graph of copies and launches, which are recorded, not run.

        In the strict modes of capture, the driver refuses to free memory meanwhile, and the capture fails. But the
        garbage collector may free memory of another run at any moment, in this thread too.
        """
        self._call("cuStreamBeginCapture", stream, self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            for address, array in uploads:
                self._call("cuMemcpyHtoDAsync", address, array.ctypes.data, array.size, stream)
            for launch, function in launches:
                self._launch(launch, function, stream)
            for address, array in downloads:
                self._call("cuMemcpyDtoHAsync", array.ctypes.data, address, array.size, stream)
        except BaseException:
            status, unfinished = self._driver.cuStreamEndCapture(stream)
            if status == self._driver.CUresult.CUDA_SUCCESS:
                self._driver.cuGraphDestroy(unfinished)
            raise
        graph = self._call("cuStreamEndCapture", stream)
        try:
            return self._call("cuGraphInstantiate", graph, 0, what=f"for {len(launches)} launches")
        finally:
            self._driver.cuGraphDestroy(graph)

    def _launch(self, launch: Prepared, function: Any, stream: Any) -> None:
        """Launch a kernel on a stream. The driver copies the parameters before it returns."""
        numbers = (*launch.addresses, *launch.every_step)
        values = (ctypes.c_uint64 * len(numbers))(*numbers)
        first, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
        pointers = (ctypes.c_void_p * len(numbers))(*(first + size * number for number in range(len(numbers))))
        grid, block = launch.grid, (launch.block, 1, 1)
        parameters = ctypes.addressof(pointers) if numbers else 0
        what = f"for {launch.function} with {grid} blocks of {launch.block} threads"
        self._call("cuLaunchKernel", function, *grid, *block, launch.shared, stream, parameters, 0, what=what)

    def _start(self, number: int) -> None:
        graph, stream = self._held.graphs[number]
        with self.current():
            self._call("cuGraphLaunch", graph, stream)

    def _wait(self, number: int) -> None:
        with self.current():
            self._call("cuStreamSynchronize", self._held.graphs[number][1], what="at the end of a run")

    def _timed(self, number: int) -> float:
        graph, stream = self._held.graphs[number]
        with self.current():
            events = [self._call("cuEventCreate", 0) for _ in range(2)]
            try:
                self._call("cuEventRecord", events[0], stream)
                self._call("cuGraphLaunch", graph, stream)
                self._call("cuEventRecord", events[1], stream)
                self._call("cuStreamSynchronize", stream, what="at the end of a run")
                return float(self._call("cuEventElapsedTime", *events)) / 1e3
            finally:
                for event in events:
                    self._driver.cuEventDestroy(event)

    def _forget(self, number: int) -> None:
        if number not in self._held.graphs or not self._held.open:
            return
        graph, stream = self._held.graphs.pop(number)
        with self.current():
            self._driver.cuStreamSynchronize(stream)
            self._call("cuGraphExecDestroy", graph)
            self._call("cuStreamDestroy", stream)


class GraphRun:
    """A run as a CUDA graph: see `cvm.executors.cuda.device.protocol.Run`."""

    def __init__(self, device: Driver, number: int) -> None:
        self._device, self._number = device, number

    def start(self) -> None:
        """See `Run.start`."""
        self._device._start(self._number)

    def wait(self) -> None:
        """See `Run.wait`."""
        self._device._wait(self._number)

    def timed(self) -> float:
        """Start the run and wait until it has ended. Returns the seconds that it took by the clock of the GPU."""
        return self._device._timed(self._number)

    def close(self) -> None:
        """See `Run.close`."""
        self._device._forget(self._number)
