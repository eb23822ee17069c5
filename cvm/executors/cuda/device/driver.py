"""GPUs of NVIDIA, through the driver API as the package ``cuda-bindings`` gives it (the extra ``cuda``).

Only the driver is needed, no toolkit: it translates PTX itself. A `Driver` holds everything that it has made and gives
all of it back when it is closed. The context is the primary one of the GPU, which other libraries of the process share;
it is current during a call only.

Source: CUDA Driver API, sections 6.5 to 6.24 (contexts, modules, memory, streams, execution, graphs).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.executors.cuda.device.protocol import Code, Copied, Prepared, contiguous

__all__ = ["Assembler", "Driver", "Found", "found"]

Assembler = Callable[[str, tuple[int, int]], bytes]
"""Makes PTX from the text of a module, for a GPU of a compute capability."""

OLDEST = 12_000
"""The least version of the driver, as it states it: 1000 * major + 10 * minor of CUDA."""
STATIC = 48 * 1024
"""A kernel that asks for more dynamic shared memory than this many bytes needs an attribute for it."""
LOG = 2**14
"""The bytes for what the driver says about code that it refuses."""
ADVICE = "run the program with the executor native, which needs no GPU"


def _bindings() -> Any:
    """The functions of the driver. Raises `Unsupported` (``cuda.package``, ``cuda.driver``)."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        message = f"the CUDA executor needs the package cuda-bindings: pip install 'cvm[cuda]' ({error})"
        raise Unsupported("cuda.package", message) from error
    try:
        (status,) = driver.cuInit(0)
    except (RuntimeError, OSError) as error:  # the library of the driver is not on this machine
        message = f"there is no NVIDIA driver on this machine ({str(error).splitlines()[0]}); {ADVICE}"
        raise Unsupported("cuda.driver", message) from error
    if status == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise Unsupported("cuda.device", f"the NVIDIA driver finds no GPU; {ADVICE}, or see CUDA_VISIBLE_DEVICES")
    if status != driver.CUresult.CUDA_SUCCESS:
        message = f"the NVIDIA driver cannot be used ({_said(driver, status)}); nvidia-smi says more, or {ADVICE}"
        raise Unsupported("cuda.driver", message)
    version = _checked(driver, "cuDriverGetVersion")
    if version < OLDEST:
        had, needed = map(_words, (version, OLDEST))
        message = f"the NVIDIA driver supports CUDA {had}; update it: the CUDA executor needs one for {needed} or later"
        raise Unsupported("cuda.driver", message)
    return driver


def _words(version: int) -> str:
    """A version as the driver states it, as major.minor."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _said(driver: Any, status: Any) -> str:
    """The name and the sentence of the driver for an error."""
    words = [driver.cuGetErrorName(status)[1], driver.cuGetErrorString(status)[1]]
    return ": ".join(word.decode(errors="replace") for word in words if isinstance(word, bytes))


def _checked(driver: Any, function: str, *arguments: Any, what: str = "", place: str = "") -> Any:
    """Call a function of the driver, and return its result, if it has one.

    Raises `LimitExceeded` (``cuda.memory``) if there is too little memory, and `Unsupported` (``cuda.call``) for any
    other failure. ``what`` says what the call is for, ``place`` on which GPU.
    """
    status, *results = getattr(driver, function)(*arguments)
    if status == driver.CUresult.CUDA_SUCCESS:
        return results[0] if len(results) == 1 else tuple(results)
    where = " ".join(word for word in (what, place) if word)
    message = f"{function} failed{where and ' ' + where}: {_said(driver, status)}"
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        advice = "use a smaller batch, end other programs that use this GPU, or choose another one"
        raise LimitExceeded("cuda.memory", f"{message}; {advice}")
    raise Unsupported("cuda.call", f"{message}; a GPU that has failed once needs a new process, or {ADVICE}")


@dataclass(frozen=True, slots=True)
class Found:
    """A GPU that the driver offers: its index, name, compute capability and bytes of memory."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int
    version: str
    """The CUDA version that the driver supports."""

    @property
    def words(self) -> str:
        """The GPU in words."""
        major, minor = self.capability
        return f"{self.name} (device {self.index}, compute capability {major}.{minor}, driver for CUDA {self.version})"


def found() -> tuple[Found, ...]:
    """All GPUs that the driver offers. Raises `Unsupported` if there is none, or no driver, or no package for it."""
    driver = _bindings()
    count = _checked(driver, "cuDeviceGetCount")
    if not count:
        raise Unsupported("cuda.device", f"the NVIDIA driver finds no GPU; {ADVICE}, or see CUDA_VISIBLE_DEVICES")
    return tuple(_described(driver, index) for index in range(count))


def _described(driver: Any, index: int) -> Found:
    device = _checked(driver, "cuDeviceGet", index)
    name = _checked(driver, "cuDeviceGetName", 128, device).split(b"\0")[0].decode(errors="replace")
    kinds = driver.CUdevice_attribute
    major, minor = (
        _checked(driver, "cuDeviceGetAttribute", kind, device)
        for kind in (
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    version = _words(_checked(driver, "cuDriverGetVersion"))
    return Found(index, name, (int(major), int(minor)), int(_checked(driver, "cuDeviceTotalMem", device)), version)


def _chosen(driver: Any, index: int) -> Found:
    """One GPU. Raises `Invalid` (``cuda.device``) for an index that no GPU has."""
    count = _checked(driver, "cuDeviceGetCount")
    if not count:
        raise Unsupported("cuda.device", f"the NVIDIA driver finds no GPU; {ADVICE}, or see CUDA_VISIBLE_DEVICES")
    if not 0 <= index < count:
        offered = "0" if count == 1 else f"0 to {count - 1}"
        raise Invalid("cuda.device", f"there is no GPU {index}: the driver numbers them {offered} (`cvm doctor`)")
    return _described(driver, index)


@dataclass(eq=False, slots=True)
class _Loaded:
    """A module, and those of its functions that were asked for, by name."""

    module: Any
    functions: dict[str, Any] = field(default_factory=dict)


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
    open: bool = True

    def close(self) -> None:
        """Give everything back. Errors are ignored: after some, the driver refuses all further calls."""
        if not self.open:
            return
        self.open = False
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
        self._driver, self._assembled = _bindings(), assembled
        self.found = _chosen(self._driver, index)
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
        return _checked(self._driver, function, *arguments, what=what, place=self._place)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current, and afterwards the one that was."""
        if not self._held.open:
            raise Unsupported("cuda.call", f"the use of a GPU was ended before {self._place}: make another session")
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
                module = self._call("cuModuleLoadDataEx", ctypes.addressof(text), 2, options, [log, LOG])
            except LimitExceeded:
                raise
            except CvmError as error:
                said = log.split(b"\0")[0].decode(errors="replace").strip()
                message = f"{error.message}{said and f' The log says: {said}'}"
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
        if name not in code.functions:
            code.functions[name] = self._call("cuModuleGetFunction", code.module, name.encode(), what=f"for {name}")
        function = code.functions[name]
        if shared > STATIC:
            kind = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, kind, shared, what=f"for {shared} bytes of {name}")
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
        """The executable graph of copies and launches, which are recorded, not run."""
        self._call("cuStreamBeginCapture", stream, self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
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

    def close(self) -> None:
        """See `Run.close`."""
        self._device._forget(self._number)
