"""The native executor: a program compiled to one function of machine code."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.executors.base import Capture, Int32Array, RunResult, cores, feeds, returned
from cvm.executors.native import cache
from cvm.executors.native.ir import Module
from cvm.executors.native.jit import Loaded, compiled
from cvm.executors.native.machine import Machine
from cvm.executors.native.plan import plan
from cvm.executors.native.runtime import CLAIM_BYTES, DIRECT, HEAD_BYTES, emit_network, emit_start
from cvm.executors.native.select import choice
from cvm.executors.native.steps import Plan
from cvm.executors.native.threads import settled, workers

if TYPE_CHECKING:
    from cvm.program.model import Program
    from cvm.program.verifier import VerifiedProgram

__all__ = ["SLACK", "NativeExecutor", "network_text", "read_bounds"]

SLACK = 64 * 8
"""Bytes behind the arena and the constants: kernels read, but never use, up to 64 elements behind a tensor."""
WORTH = 200_000
"""Estimated nanoseconds on one core from which on a run is shared between threads."""


class _Memory:
    """What one run at a time needs: the arena, and the job with its claims.

    It goes when no worker is in the job; until then the code and the constants stay, too.
    """

    head = 0

    def __init__(self, network: Network) -> None:
        self.needs = (network._loaded, network.packed)
        self.arena = _aligned(network.plan.arena + SLACK)
        self.job = _aligned(HEAD_BYTES + CLAIM_BYTES * len(network.plan.calls)).view(np.int64)
        self.arrays = (ctypes.c_int64 * len(network.plan.arrays))()
        self.table = ctypes.addressof(self.arrays)
        self.base = self.arena.ctypes.data
        self.job[1:6] = (network.address, self.base, network.constants, self.table, network.threads - 1)
        self.head = self.job.ctypes.data
        self.claims = self.head + HEAD_BYTES

    def __del__(self) -> None:
        if self.head and self.job[5]:
            settled(self.head)


def read_bounds(program: Program) -> list[tuple[int, int, int]]:
    """(elements, least, largest) of the arrays that a network of the program reads: inputs, then state."""
    fed = [*(one.value for one in program.inputs), *(one.value for one in program.state)]
    return [(math.prod(value.shape), value.lo, value.hi) for value in fed]


def network_text(made: Plan, machine: Machine, threads: int, bounds: Sequence[tuple[int, int, int]]) -> str:
    """The IR of a plan: ``network`` and ``start`` (see `runtime`), for so many threads."""
    module = Module()
    for name, emit in made.functions.items():
        emit(module, name)
    emit_network(module, made, machine, threads)
    emit_start(module, len(made.arrays), bounds, machine, threads == 1)
    return str(module)


class Network:
    """A plan with its code and its constants; runs in as many threads at once as call it.

    ``bounds`` are (elements, least, largest) of the arrays that are read, ``shapes`` the shapes of all arrays.
    """

    def __init__(
        self,
        made: Plan,
        machine: Machine,
        threads: int,
        name: str,
        bounds: Sequence[tuple[int, int, int]],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        cost = sum(call.cost for call in made.calls)
        self.plan, self.machine, self.bounds = made, machine, bounds
        self.threads = threads if cost >= WORTH else 1
        self.given = list(zip(made.arrays[: made.written], shapes[: made.written], strict=True))
        self.left = list(zip(made.arrays[made.written :], shapes[made.written :], strict=True))
        self.cached = True
        key = cache.key(machine, (name, str(self.threads)))
        code = cache.read(key)
        if code is None:
            self.cached = False
            code = compiled(self.text(), machine)
            cache.write(key, code)
        self._loaded = Loaded(code, machine)
        self.address = self._loaded.address("network")
        self._direct = len(made.arrays) <= DIRECT
        pointers = [ctypes.c_void_p] * (4 + 1 + (len(made.arrays) if self._direct else 1))
        self._start = ctypes.CFUNCTYPE(ctypes.c_int64, *pointers)(self._loaded.address("start"))
        self.packed = _aligned(len(made.constants) + SLACK)[: len(made.constants)]
        self.packed[:] = np.frombuffer(made.constants, np.uint8)
        self.constants = self.packed.ctypes.data
        self.plan = replace(made, constants=b"")  # they are in ``packed``
        self._free: list[_Memory] = [_Memory(self)]

    def __del__(self) -> None:
        getattr(self, "_free", []).clear()  # workers leave the jobs before the code goes

    def text(self) -> str:
        """The IR of the network."""
        return network_text(self.plan, self.machine, self.threads, self.bounds)

    def run(self, arrays: Sequence[Int32Array]) -> bool:
        """Run on the arrays of the plan; False, and nothing is done, where an element is outside its bounds."""
        try:
            memory = self._free.pop()  # one instruction of the interpreter: no lock is needed
        except IndexError:
            memory = _Memory(self)
        try:
            head = (memory.base, self.constants, memory.table, memory.claims, 1)
            addresses: Sequence[Any] = [array.__array_interface__["data"][0] for array in arrays]
            if not self._direct:
                addresses = [(ctypes.c_void_p * len(addresses))(*addresses)]
            if self._start(*head, *addresses) >= 0:
                return False
            if self.threads > 1:
                workers(self.machine).run(memory.head, self.threads - 1)
            return True
        finally:
            self._free.append(memory)


class NativeExecutor:
    """A verified program as machine code. ``threads`` is the number of threads at most (None: one per core).

    Tensors that are captured are compiled as results of their own; each set of names once.
    """

    name = "native"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None, machine: Machine | None = None) -> None:
        self._verified = verified.slim()
        self._machine = machine or _chosen()
        self._threads = threads or cores()
        self._program = verified.program
        self._updates = {kept.value.name: kept.update for kept in self._program.state}
        self._networks: dict[frozenset[str], Network] = {}
        self._lock = threading.Lock()
        self._outputs = returned(self._program, frozenset())
        self._main = self._network(self._outputs)
        self._unused = True

    @property
    def machine(self) -> Machine:
        """The instruction set in use."""
        return self._machine

    def _network(self, names: frozenset[str]) -> Network:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._networks:
                self._networks[wanted] = self._made(wanted)
            return self._networks[wanted]

    def _made(self, wanted: frozenset[str]) -> Network:
        name = "\n".join((self._program.digest, *sorted(wanted)))
        made = plan(self._verified, self._machine, wanted)
        bounds = read_bounds(self._program)
        shapes = [self._verified.shapes[name] for name in made.arrays]
        return Network(made, self._machine, self._threads, name, bounds, shapes)

    def run(
        self, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array], capture: Capture = frozenset()
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        if self._unused:
            self._unused = False
            _give_back()
        names = returned(self._program, capture) if capture else self._outputs
        network = self._network(names) if capture else self._main
        arrays = _plain(network, len(self._program.inputs), inputs, state)
        if arrays is None:
            fed = feeds(self._program, inputs, state)
            arrays = [fed[name] for name, _ in network.given]
        results = {name: np.empty(shape, np.int32) for name, shape in network.left}
        if not network.run([*arrays, *results.values()]):
            feeds(self._program, inputs, state)  # says what is wrong
            raise AssertionError("the check of the inputs contradicts itself")
        if not self._updates:
            return RunResult(results, {})
        values = {name: results[name] for name in sorted(names)}
        taken: set[str] = set(names)
        following = {}
        for name, update in self._updates.items():
            following[name] = results[update].copy() if update in taken else results[update]
            taken.add(update)
        return RunResult(values, following)

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        network = self._network(returned(self._program, frozenset()))
        return tuple(explained(self._verified, network.plan))


def _plain(
    network: Network, count: int, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
) -> list[Int32Array] | None:
    """The arrays to read, ``count`` of them inputs, if all is what the network takes as it is: names, types, shapes,
    layouts.
    """
    if len(inputs) != count or len(state) != len(network.given) - count:
        return None
    arrays = []
    for place, (name, shape) in enumerate(network.given):
        array = (inputs if place < count else state).get(name)
        if array is None or array.dtype != np.int32 or array.shape != shape or not array.flags.c_contiguous:
            return None
        arrays.append(array)
    return arrays


def explained(verified: VerifiedProgram, made: Plan) -> list[str]:
    """One line per node: its kernels, or where it went."""
    notes: dict[str, list[str]] = {}
    for call in made.calls:
        notes.setdefault(call.what, []).append(call.note)
    lines = []
    for node in verified.program.nodes:
        names = [value.name for value in node.outputs]
        found = [note for name in names for note in dict.fromkeys(notes.get(name, ()))]
        if not found:
            root = made.joined.get(names[0])
            found = [f"computed inside the kernel of {root}" if root else "no code: another view of its input"]
        lines.append(f"{', '.join(names)} = {node.op}: {'; '.join(found)}")
    return lines


def _give_back() -> None:
    """Let the C library return what verifying and planning took and freed, several times the size of the constants."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)


def _chosen() -> Machine:
    """The machine to compile for. Raises `Unsupported` (``executors.native``) where none passes its trial."""
    found = choice()
    if found.machine is None:
        raise Unsupported("executors.native", f"no machine code can be trusted here: {found.reason}")
    return found.machine


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes from a multiple of 64 on."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
