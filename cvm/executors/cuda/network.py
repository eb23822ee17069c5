"""A network on a device: its code and constants, and the memory of its runs."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, LimitExceeded
from cvm.executors.base import Int32Array
from cvm.executors.cuda.device.protocol import ALIGNMENT, Code, Device, Prepared, Run, contiguous
from cvm.executors.cuda.written import Written, written

if TYPE_CHECKING:
    from cvm.executors.native.plan.homes import Buffer
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Held", "Memory", "Network", "require_memory", "rounded"]

Part = object
"""A part of the memory of a sample: "arena", a buffer of the arena, or a value by the name under which it is given."""


def rounded(size: int) -> int:
    """The least multiple of `ALIGNMENT` that holds a number of bytes, at least one."""
    return -(-max(1, size) // ALIGNMENT) * ALIGNMENT


class Network:
    """A proven plan whose kernels and constants are on a device.

    ``wanted`` are the values that a run gives back, ``shown`` those that stay on the device and are fetched when they
    are asked for. Kernels of the kinds in ``plain`` are written in their plain form. With ``apart``, every tensor of
    the arena is an allocation of its own, so that a stray access meets no other tensor. ``made`` is the plan with its
    kernels, if it was restored; otherwise it is made here. Raises `Distrusted` if no plan is proven, and
    `LimitExceeded` (``limit.device_memory``) where the device has too little memory. `close` gives everything back; so
    does the garbage collector.
    """

    def __init__(
        self,
        verified: VerifiedProgram,
        device: Device,
        wanted: frozenset[str],
        shown: frozenset[str] = frozenset(),
        plain: frozenset[type] = frozenset(),
        apart: bool = False,
        made: Written | None = None,
    ) -> None:
        self.wanted, self.shown, self.device = wanted, shown, device
        self.written = made or written(verified, wanted | shown, plain)
        self.plan, self.kernels = self.written.plan, self.written.kernels
        self.shapes = {name: verified.shapes[name] for name in self.plan.arrays}
        self.sizes: dict[Part, int] = {buffer: buffer.size for buffer in self.plan.offsets} if apart else {}
        if not apart:
            self.sizes["arena"] = max(1, self.plan.arena)
        self.sizes |= {name: 4 * math.prod(shape) for name, shape in self.shapes.items()}
        constants = np.frombuffer(self.plan.constants, np.uint8)
        self.bytes = rounded(constants.size)
        require_memory(device, self.bytes, "the constants of the program need")
        held = Held(device)
        self.close = weakref.finalize(self, held.close)
        self.close.atexit = False
        self.constants = held.allocated(self.bytes)
        if constants.size:
            device.upload(self.constants, constants, constant=True)
        self.code = held.code = device.load(self.kernels.ir)

    @property
    def sample_bytes(self) -> int:
        """The bytes that a sample needs on the device."""
        return sum(map(rounded, self.sizes.values()))

    @property
    def copied_bytes(self) -> int:
        """The bytes of the host from which and to which a run copies a sample."""
        return sum(rounded(self.sizes[name]) for name in (*self.given, *self.wanted))

    @property
    def given(self) -> tuple[str, ...]:
        """The values that a run reads."""
        return self.plan.arrays[: self.plan.written]


class Memory:
    """The memory of one run at a time, on ``samples`` samples, and the run itself.

    Each part of a sample lies at a fixed distance from that of the sample before it. A run copies its inputs from the
    host and the values that are wanted back. Raises `LimitExceeded` as `Network` does. `close` gives everything back.
    """

    def __init__(self, network: Network, samples: int = 1) -> None:
        self._network, self.samples, self._device = network, samples, network.device
        self.bytes = samples * network.sample_bytes
        require_memory(self._device, self.bytes, f"{samples} samples of the program need")
        held = Held(self._device)
        self.close = weakref.finalize(self, held.close)
        self.close.atexit = False
        self.steps = {part: rounded(size) for part, size in network.sizes.items()}
        self._sizes = {part: (samples - 1) * step + max(1, network.sizes[part]) for part, step in self.steps.items()}
        self.starts = {part: held.allocated(size) for part, size in self._sizes.items()}
        back = sorted(network.wanted)
        host = {name: held.hosted(self._sizes[name]) for name in (*network.given, *back)}
        self._arrays = {name: self._typed(name, host[name]) for name in host}
        uploads = [(self.starts[name], host[name]) for name in network.given]
        downloads = [(self.starts[name], host[name]) for name in back if name not in network.given]
        for name in back:
            self._fill_gaps(name)
        held.run = self._run = self._device.prepare(network.code, self.prepared(), uploads, downloads)

    def _typed(self, name: str, bytes_: npt.NDArray[np.uint8]) -> Int32Array:
        """Bytes as the elements of all samples: (samples, elements of one)."""
        shape = self.samples, math.prod(self._network.shapes[name])
        return np.lib.stride_tricks.as_strided(bytes_.view(np.int32), shape, (self.steps[name], 4))

    def _fill_gaps(self, name: str) -> None:
        """Write zeros between the samples of a value, which are copied to the host with them."""
        size = self._network.sizes[name]
        zeros = np.zeros(self.steps[name] - size, np.uint8)
        for sample in range(self.samples - 1 if zeros.size else 0):
            self._device.upload(self.starts[name] + sample * self.steps[name] + size, zeros)

    def prepared(self) -> list[Prepared]:
        """The launches with their addresses."""
        network = self._network

        def place(buffer: Buffer, offset: int) -> tuple[int, int]:
            if buffer.kind == "constants":
                return network.constants + offset, 0
            part: Part = network.plan.arrays[buffer.index] if buffer.kind == "array" else buffer
            if part not in self.starts:
                part, offset = "arena", network.plan.offsets[buffer] + offset
            return self.starts[part] + offset, self.steps[part]

        made = []
        for one in (launch.of(self.samples) for launch in network.kernels.launches):
            assert one.grid[2] == 1, one.function
            places = [place(*argument) for argument in one.arguments]
            addresses, steps = (tuple(column) for column in zip(*places, strict=True)) if places else ((), ())
            grid = (*one.grid[:2], self.samples)
            made.append(Prepared(one.function, grid, one.block, one.shared, addresses, steps))
        return made

    def put(self, name: str, sample: int, codes: Int32Array) -> None:
        """Give neighbouring samples, from ``sample`` on, their codes: (samples, ..), of an input or a state."""
        count = len(codes)
        self._arrays[name][sample : sample + count] = codes.reshape(count, -1)

    def repeat(self, count: int) -> None:
        """Let all samples behind the first ``count`` be the last one of these, since every sample must be valid."""
        for name in self._network.given:
            self._arrays[name][count:] = self._arrays[name][count - 1]

    def start(self) -> None:
        """Start the run."""
        self._run.start()

    def wait(self) -> None:
        """Wait until the run has ended."""
        self._run.wait()

    def result(self, name: str, count: int) -> Int32Array:
        """A wanted value of the first ``count`` samples, as new elements (count, ..)."""
        return self._arrays[name][:count].reshape(count, *self._network.shapes[name]).copy()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value that lies on the device."""
        return self._network.shapes[name]

    def fetched(self, name: str) -> Int32Array:
        """A value of the first sample, fetched from the device."""
        found = np.empty(self._network.shapes[name], np.int32)
        self._device.download(self.starts[name], contiguous(found))
        return found


def require_memory(device: Device, size: int, what: str) -> None:
    """Raise `LimitExceeded` (``limit.device_memory``) if a device has less memory left than ``size`` bytes."""
    if size > device.available:
        message = f"{what} {size} bytes on {device.name}, which has {device.available} bytes left"
        raise LimitExceeded("limit.device_memory", message)


class Held:
    """What somebody holds of a device, to give back at once."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: list[int] = []
        self._host: list[npt.NDArray[np.uint8]] = []
        self.code: Code | None = None
        self.run: Run | None = None

    def allocated(self, size: int) -> int:
        """Allocate memory of the device."""
        self._memory.append(self._device.allocate(size))
        return self._memory[-1]

    def hosted(self, size: int) -> npt.NDArray[np.uint8]:
        """Allocate memory of the host from which the device copies."""
        self._host.append(self._device.host(size))
        return self._host[-1]

    def close(self) -> None:
        """Give everything back. After some failures a device refuses all further calls; that is no news then."""
        ends: list[Callable[[], None]] = [] if self.run is None else [self.run.close]
        if self.code is not None:
            ends.append(partial(self._device.unload, self.code))
        ends += [partial(self._device.free, address) for address in self._memory]
        ends += [partial(self._device.free_host, array) for array in self._host]
        for end in ends:
            with contextlib.suppress(CvmError):
                end()
