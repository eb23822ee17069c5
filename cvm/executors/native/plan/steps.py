"""Plans: the kernels of a network, their calls in order, and the memory that they work in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cvm.records import dataclass

if TYPE_CHECKING:  # a network from the cache has a plan, but no claims and no homes
    from cvm.executors.native.plan.claims import Claim
    from cvm.executors.native.plan.homes import Buffer

__all__ = ["CHUNKS", "KernelCall", "Plan"]


CHUNKS = 4
"""The number of chunks of most calls per thread. If a thread loses its core, the others wait for one chunk at most."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel's function. Its arguments are offsets in buffers; its work has ``units`` independent parts.

    ``what`` names the value that the call computes, ``note`` says how. ``cost`` is the estimated time on one core, in
    nanoseconds; it only decides into how many chunks the work is divided among threads. ``per_thread`` is the largest
    number of chunks for each thread. It is small where neighbouring parts read the same weights.
    """

    function: str
    arguments: tuple[tuple[Buffer, int], ...]
    units: int
    what: str
    note: str
    cost: float
    per_thread: int = CHUNKS


@dataclass(frozen=True, slots=True)
class Plan:
    """A network ready for compilation: the kernel of each function by name, its calls in order, and its memory.

    ``arrays`` are the values that the caller's arrays hold: first those that the network reads, then (from index
    ``written`` on) those that it writes. ``ready`` gives, for each written value, the number of calls after which its
    array holds it. ``joined`` gives, for each value that exists inside a kernel only, the value that this kernel
    computes. ``claims`` say what the calls and homes are meant to do. ``kept`` names the state if its arrays hold it
    from run to run: then the network reads and writes them, in the format `residence.state_format`.
    """

    functions: dict[str, object]
    calls: tuple[KernelCall, ...]
    offsets: dict[Buffer, int]
    arena: int
    constants: bytes | bytearray | memoryview
    arrays: tuple[str, ...]
    written: int
    joined: dict[str, str]
    ready: dict[str, int]
    claims: tuple[Claim, ...] = ()
    kept: tuple[str, ...] = ()
