"""Devices: memory, code and runs. The driver of NVIDIA implements this, and so does the emulator of the tests.

An address is a number; ``address + n`` is n bytes further in the same allocation. A device works for one thread at a
time. Every call returns when its effect can be seen, except `Run.start`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["ALIGNMENT", "Code", "Copied", "Device", "Prepared", "Run", "contiguous"]

ALIGNMENT = 256
"""Every allocation starts at a multiple of this many bytes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One launch with its addresses: see `cvm.executors.cuda.launch.Launch`.

    The third direction of the grid counts the samples of a batch. ``steps`` has, for each address, the distance in
    bytes from one sample to the next: 0 where all samples read the same memory. Without ``steps``, all are 0. A kernel
    takes the addresses, then the steps as integers of 64 bits.
    """

    function: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    addresses: tuple[int, ...]
    steps: tuple[int, ...] = ()

    @property
    def every_step(self) -> tuple[int, ...]:
        """The steps, one for each address."""
        return self.steps or (0,) * len(self.addresses)


Copied: TypeAlias = tuple[int, npt.NDArray[np.uint8]]
"""An address on the device, and the bytes on the host that are copied there or from there."""


Code: TypeAlias = Any
"""Loaded code, in a form that its device knows. It stays loaded until `Device.unload`."""


class Run(Protocol):
    """A sequence of launches that is started as a whole, any number of times."""

    def start(self) -> None:
        """Start the launches in their order. They read and write memory until `wait` returns."""

    def wait(self) -> None:
        """Wait until what was started last has ended."""

    def close(self) -> None:
        """Give back what belongs to the sequence."""


class Device(Protocol):
    """A device. Errors are a class of `cvm.errors`, with a code and the next step."""

    @property
    def name(self) -> str:
        """The device in words."""

    @property
    def identity(self) -> str:
        """What a verdict about code on the device depends on: the device in words, and the build of its driver."""

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, major and minor."""

    @property
    def available(self) -> int:
        """The bytes of memory that can be allocated now."""

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes (at least 1), and return their address, a multiple of `ALIGNMENT`.

        Their content is arbitrary: the emulator refuses to read bytes that nobody has written.
        """

    def free(self, address: int) -> None:
        """Give back an allocation."""

    def upload(self, address: int, data: npt.NDArray[Any], constant: bool = False) -> None:
        """Copy the bytes of a C-contiguous array to the device. No kernel writes where ``constant`` bytes lie."""

    def download(self, address: int, target: npt.NDArray[Any]) -> None:
        """Fill a C-contiguous array from the device."""

    def load(self, ir: str) -> Code:
        """Load the kernels of a module, given as LLVM IR. A driver compiles it to PTX first."""

    def unload(self, code: Code) -> None:
        """Give back loaded code."""

    def host(self, size: int) -> npt.NDArray[np.uint8]:
        """Allocate ``size`` bytes (at least 1) on the host, from which and to which a `Run` may copy."""

    def free_host(self, array: npt.NDArray[np.uint8]) -> None:
        """Give back what `host` has allocated. No view of it may be used any more."""

    def prepare(
        self,
        code: Code,
        launches: Sequence[Prepared],
        uploads: Sequence[Copied] = (),
        downloads: Sequence[Copied] = (),
    ) -> Run:
        """Prepare a sequence of launches of loaded kernels, such as a CUDA graph.

        The run copies ``uploads`` to the device before the first launch, and ``downloads`` from it after the last one:
        arrays that `host` has allocated, or parts of them. Two runs that share no memory may run at the same time.
        """


def contiguous(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a C-contiguous array, not a copy."""
    return array.reshape(-1).view(np.uint8)
