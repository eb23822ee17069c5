"""The native executor: a program compiled to one function of machine code."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.executors.base import Capture, Int32Array, RunResult, feeds, returned
from cvm.executors.native import cache
from cvm.executors.native.ir import Module
from cvm.executors.native.jit import Loaded, compiled
from cvm.executors.native.machine import Machine
from cvm.executors.native.plan import plan
from cvm.executors.native.runtime import CLAIM_BYTES, HEAD_BYTES, emit_network
from cvm.executors.native.select import choice
from cvm.executors.native.steps import Plan
from cvm.executors.native.threads import workers

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["NativeExecutor"]

WORTH = 200_000
"""Estimated nanoseconds on one core from which on a run is shared between threads."""


class _Memory:
    """What one run at a time needs: the arena, and the job with its claims."""

    def __init__(self, network: Network) -> None:
        self.arena = _aligned(network.plan.arena + 64)
        self.job = _aligned(HEAD_BYTES + CLAIM_BYTES * len(network.plan.calls)).view(np.int64)
        self.arrays = np.zeros(len(network.plan.arrays), np.int64)
        head = (network.address, self.arena.ctypes.data, network.constants, self.arrays.ctypes.data)
        self.job[1:6] = (*head, network.threads - 1)
        self.claims = self.job.ctypes.data + HEAD_BYTES
        self.epoch = 0


class Network:
    """A plan with its code and its constants; runs in as many threads at once as call it."""

    def __init__(self, made: Plan, machine: Machine, threads: int, name: str) -> None:
        cost = sum(call.cost for call in made.calls)
        self.plan, self.machine = made, machine
        self.threads = threads if cost >= WORTH else 1
        self.cached = True
        code = cache.read(cache.key(machine, (name, str(self.threads))))
        if code is None:
            self.cached = False
            code = compiled(self.text(), machine)
            cache.write(cache.key(machine, (name, str(self.threads))), code)
        self._loaded = Loaded(code, machine)
        self.address = self._loaded.address("network")
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(self.address)
        self._constants = _aligned(len(made.constants) + 64)
        self._constants[: len(made.constants)] = np.frombuffer(made.constants, np.uint8)
        self.constants = self._constants.ctypes.data
        self._free: list[_Memory] = [_Memory(self)]
        self._lock = threading.Lock()

    def text(self) -> str:
        """The IR of the network."""
        module = Module()
        for name, emit in self.plan.functions.items():
            emit(module, name)
        emit_network(module, self.plan, self.machine, self.threads)
        return str(module)

    def run(self, arrays: Sequence[Int32Array]) -> None:
        """Run on the arrays of the plan."""
        with self._lock:
            memory = self._free.pop() if self._free else None
        memory = memory or _Memory(self)
        try:
            memory.arrays[:] = [array.ctypes.data for array in arrays]
            memory.epoch += 1
            arena, table = memory.arena.ctypes.data, memory.arrays.ctypes.data
            pool = workers(self.machine) if self.threads > 1 else None
            if pool is not None and pool.acquire(self.threads - 1):
                try:
                    pool.publish(memory.job.ctypes.data, memory.epoch, self.threads - 1)
                    self._function(arena, self.constants, table, memory.claims, memory.epoch)
                finally:
                    pool.release()
            else:
                self._function(arena, self.constants, table, memory.claims, memory.epoch)
        finally:
            with self._lock:
                self._free.append(memory)


class NativeExecutor:
    """A verified program as machine code. ``threads`` is the number of threads at most (None: one per core).

    Tensors that are captured are compiled as results of their own; each set of names once.
    """

    name = "native"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None, machine: Machine | None = None) -> None:
        self._verified = verified
        self._machine = machine or _chosen()
        self._threads = threads or _cores()
        self._program = verified.program
        self._updates = {kept.value.name: kept.update for kept in self._program.state}
        self._networks: dict[frozenset[str], Network] = {}
        self._lock = threading.Lock()
        self._network(returned(self._program, frozenset()))

    @property
    def machine(self) -> Machine:
        """The instruction set in use."""
        return self._machine

    def _network(self, names: frozenset[str]) -> Network:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._networks:
                name = "\n".join((self._program.digest, *sorted(wanted)))
                made = plan(self._verified, self._machine, wanted)
                self._networks[wanted] = Network(made, self._machine, self._threads, name)
            return self._networks[wanted]

    def run(
        self, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array], capture: Capture = frozenset()
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        fed = feeds(self._program, inputs, state)
        names = returned(self._program, capture)
        network = self._network(names)
        shapes = self._verified.shapes
        given, left = network.plan.arrays[: network.plan.written], network.plan.arrays[network.plan.written :]
        results = {name: np.empty(shapes[name], np.int32) for name in left}
        network.run([*(fed[name] for name in given), *(results[name] for name in left)])
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


def _chosen() -> Machine:
    """The machine to compile for. Raises `Unsupported` (``executors.native``) where none passes its trial."""
    found = choice()
    if found.machine is None:
        raise Unsupported("executors.native", f"no machine code can be trusted here: {found.reason}")
    return found.machine


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes from a multiple of 64 on."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
