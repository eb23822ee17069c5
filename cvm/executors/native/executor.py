"""The native executor: a program compiled to one function of machine code."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.executors.base import Capture, Executor, Int32Array, RunResult, Watch, cores, feeds, returned, windows
from cvm.executors.native import cache
from cvm.executors.native.distrust import Distrusted
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.jit import Loaded, compiled
from cvm.executors.native.runtime import CLAIM_BYTES, DIRECT, HEAD_BYTES, emit_network, emit_start
from cvm.executors.native.select import choice
from cvm.executors.native.steps import Plan
from cvm.executors.native.stored import SLACK, Compiled, aligned, restore, store
from cvm.executors.native.threads import settled, workers
from cvm.executors.native.watched import Watched, stage_ends

if TYPE_CHECKING:
    from cvm.program.model import Program
    from cvm.program.verifier import VerifiedProgram

__all__ = ["SLACK", "NativeExecutor", "network_text", "read_bounds", "stage_name"]

Bytes = npt.NDArray[np.uint8]
Runs = Callable[[Sequence[Int32Array]], bool]
Planned = Callable[[Callable[[Plan], Any]], tuple[Plan, Any]]
"""Makes a plan that is proven, and what a function compiles it to."""
WORTH = 200_000
"""Estimated nanoseconds on one core from which on a run is shared between threads."""


class _Memory:
    """What one run at a time needs: the arena, and for each stage a job with its claims.

    It goes when no worker is in a job; until then the code and the constants stay, too.
    """

    heads: Sequence[int] = ()

    def __init__(self, network: Network) -> None:
        self.needs = (network._loaded, network.packed)
        self.arena = aligned(network.plan.arena + SLACK)
        self.arrays = (ctypes.c_int64 * len(network.plan.arrays))()
        self.table = ctypes.addressof(self.arrays)
        self.base = self.arena.ctypes.data
        self.workers = network.threads - 1
        sizes = [HEAD_BYTES + CLAIM_BYTES * (end - first) for first, end in network.stages]
        self.jobs = [aligned(size).view(np.int64) for size in sizes]
        for job, address in zip(self.jobs, network.addresses, strict=True):
            job[1:6] = (address, self.base, network.constants, self.table, self.workers)
        self.heads = [job.ctypes.data for job in self.jobs]
        self.claims = self.heads[0] + HEAD_BYTES

    def __del__(self) -> None:
        if self.heads and self.workers:
            for head in self.heads:
                settled(head)


def read_bounds(program: Program) -> list[tuple[int, int, int]]:
    """(elements, least, largest) of the arrays that a network of the program reads: inputs, then state."""
    fed = [*(one.value for one in program.inputs), *(one.value for one in program.state)]
    return [(math.prod(value.shape), value.lo, value.hi) for value in fed]


def network_text(
    made: Plan,
    machine: Machine,
    threads: int,
    bounds: Sequence[tuple[int, int, int]],
    stages: Sequence[tuple[int, int]] | None = None,
) -> str:
    """The IR of a plan for so many threads: a function for each stage (None: one, of all calls), and ``start``, which
    runs the only one if there is one thread (see `runtime`).
    """
    module = Module()
    for name, emit in made.functions.items():
        emit(module, name)
    for number, (first, end) in enumerate(stages or [(0, len(made.calls))]):
        emit_network(module, stage_name(number), made, made.calls[first:end], machine, threads)
    emit_start(module, len(made.arrays), bounds, machine, stage_name(0) if threads == 1 and stages is None else None)
    return str(module)


def stage_name(number: int) -> str:
    """The name of a stage's function."""
    return f"stage_{number}"


class Network:
    """A compiled network, loaded; runs in as many threads at once as call it.

    It is planned by ``planned`` and compiled where there is none under ``name`` on disk. ``bounds`` are (elements,
    least, largest) of the arrays that are read, ``shapes`` those of all arrays by name. ``tried`` tries new code and
    raises `Distrusted`. With ``ends`` the calls run in stages, each up to so many calls, and somebody may look at the
    arrays between them.
    """

    def __init__(
        self,
        planned: Planned,
        machine: Machine,
        threads: int,
        name: str,
        bounds: Sequence[tuple[int, int, int]],
        shapes: Mapping[str, tuple[int, ...]],
        tried: Callable[[Plan, Loaded, Bytes, Runs], None],
        ends: Callable[[Plan], Sequence[int]] | None = None,
    ) -> None:
        self._planned, self.machine, self.bounds, self._ends = planned, machine, bounds, ends
        key = cache.key(machine, (name, str(threads), str(WORTH), "whole" if ends is None else "in stages"))
        found = restore(key)
        self.cached, made = found is not None, None
        if found is None:
            made, found = planned(partial(self._compiled, threads=threads))
        self.plan, self.threads, self.stages, self.packed = found.plan, found.threads, found.stages, found.constants
        self._whole = self.threads == 1 and ends is None
        given = [(name, shapes[name]) for name in self.plan.arrays]
        self.given, self.left = given[: self.plan.written], given[self.plan.written :]
        self._loaded = Loaded(found.code, machine)
        self.addresses = [self._loaded.address(stage_name(number)) for number in range(len(self.stages))]
        self._direct = len(given) <= DIRECT
        pointers = [ctypes.c_void_p] * (4 + 1 + (len(given) if self._direct else 1))
        self._start = ctypes.CFUNCTYPE(ctypes.c_int64, *pointers)(self._loaded.address("start"))
        stage = ctypes.CFUNCTYPE(None, *pointers[:5])
        self._stage_functions = [stage(address) for address in self.addresses]
        self.constants = self.packed.ctypes.data
        self._free: list[_Memory] = [_Memory(self)]
        if made is not None:  # what is kept has been tried
            tried(made, self._loaded, self.packed, self.run)
            store(key, found)

    def __del__(self) -> None:
        getattr(self, "_free", []).clear()  # workers leave the jobs before the code goes

    def _compiled(self, made: Plan, threads: int) -> Compiled:
        threads = threads if sum(call.cost for call in made.calls) >= WORTH else 1
        ends = self._ends(made) if self._ends else ()
        stages = tuple(pairwise((0, *(ends or (len(made.calls),)))))
        constants = aligned(len(made.constants) + SLACK)[: len(made.constants)]
        constants[:] = np.frombuffer(made.constants, np.uint8)
        try:
            code = compiled(self._text(made, threads, stages), self.machine)
        except RuntimeError as error:
            raise Distrusted(f"the code generator refuses the code: {str(error).splitlines()[0]}") from error
        return Compiled(replace(made, constants=b""), threads, stages, code, constants)

    def _text(self, made: Plan, threads: int, stages: Sequence[tuple[int, int]]) -> str:
        return network_text(made, self.machine, threads, self.bounds, stages if self._ends else None)

    def text(self) -> str:
        """The IR of the network."""
        made, _ = self._planned(lambda made: None)
        return self._text(made, self.threads, self.stages)

    def run(self, arrays: Sequence[Int32Array], after: Callable[[int], None] | None = None) -> bool:
        """Run on the arrays of the plan; False, and nothing is done, where an element is outside its bounds.

        ``after`` is called with the number of stages done: before the first one, and after each.
        """
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
            if self._whole:
                return True
            if after is not None:
                after(0)
            for number in range(len(self.stages)):
                self._run_stage(memory, number)
                if after is not None:
                    after(number + 1)
            return True
        finally:
            self._free.append(memory)

    def _run_stage(self, memory: _Memory, number: int) -> None:
        if self.threads > 1:
            workers(self.machine).run(memory.heads[number], self.threads - 1)
        else:
            self._stage_functions[number](memory.base, self.constants, memory.table, memory.claims, 1)


class NativeExecutor:
    """A verified program as machine code. ``threads`` is the number of threads at most (None: one per core).

    Tensors that are captured are compiled as results of their own; each set of names once. A network whose machine code
    is `Distrusted` is run by the NumPy executor instead; `refusals` and `explain` say so.
    """

    name = "native"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None, machine: Machine | None = None) -> None:
        self._verified = verified
        self._machine = machine or _chosen()
        self._threads = threads or cores()
        self._program = verified.program
        self._updates = {kept.value.name: kept.update for kept in self._program.state}
        self._networks: dict[frozenset[str], Network | None] = {}
        self._watched_networks: dict[frozenset[str], tuple[Network, Watched] | None] = {}
        self.refusals: list[str] = []
        self._numpy: Executor | None = None
        self._lock = threading.Lock()
        self._outputs = returned(self._program, frozenset())
        self._main = self._network(self._outputs)
        self._unused = True

    @property
    def machine(self) -> Machine:
        """The instruction set in use."""
        return self._machine

    def _network(self, names: frozenset[str]) -> Network | None:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._networks:
                self._networks[wanted] = self._made(wanted)
            return self._networks[wanted]

    def _watched(self, names: frozenset[str]) -> tuple[Network, Watched] | None:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._watched_networks:
                network = self._made(wanted, watched=True)
                shows = network and Watched(network, self._program, network.plan, wanted)
                self._watched_networks[wanted] = (network, shows) if network and shows else None
            return self._watched_networks[wanted]

    def _made(self, wanted: frozenset[str], watched: bool = False) -> Network | None:
        """A network that is proven and tried, or None, and a refusal noted."""
        if watched:
            wanted |= {value.name for node in self._program.nodes for value in node.outputs}
        name = "\n".join(
            (self._program.digest, *sorted(wanted), *(map(str, windows(self._program)) if watched else ()))
        )

        def planned(compiled: Callable[[Plan], Any]) -> tuple[Plan, Any]:
            from cvm.executors.native.proven import proven  # only compiling needs the planner

            try:
                return proven(self._verified, self._machine, wanted, compiled)
            except (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
                raise Distrusted(f"the planner failed: {type(error).__name__}: {error}") from error

        def tried(made: Plan, loaded: Loaded, constants: Bytes, run: Runs) -> None:
            from cvm.executors.native.rehearsal import rehearse

            rehearse(self._verified, made, loaded, constants, run)

        ends = partial(stage_ends, self._program) if watched else None
        bounds, shapes = read_bounds(self._program), self._verified.shapes
        try:
            return Network(planned, self._machine, self._threads, name, bounds, shapes, tried, ends)
        except Distrusted as reason:
            self.refusals.append(str(reason))
            return None

    def _instead(self) -> Executor:
        """Who runs what machine code is not trusted with."""
        if self._numpy is None:
            from cvm.executors.numpy import NumpyExecutor

            self._numpy = NumpyExecutor(self._verified)
        return self._numpy

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        if self._unused:
            self._unused = False
            _give_back()
        names = returned(self._program, capture) if capture else self._outputs
        if watch is None:
            network = self._network(names) if capture else self._main
            if network is None:
                return self._instead().run(inputs, state, capture)
            arrays = self._arrays(network, inputs, state)
            results = {name: np.empty(shape, np.int32) for name, shape in network.left}
            done = network.run([*arrays, *results.values()])
        else:
            watched = self._watched(names)
            if watched is None:
                return self._instead().run(inputs, state, capture, watch)
            network, shows = watched
            arrays = self._arrays(network, inputs, state)
            fed = {name: array for (name, _), array in zip(network.given, arrays, strict=True)}
            results = {name: np.empty(shape, np.int32) for name, shape in network.left if name in shows.returned}
            done = shows.run(fed, results, watch)
        if not done:
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

    def _arrays(
        self, network: Network, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
    ) -> list[Int32Array]:
        """The arrays that a network reads. Raises `Invalid` for what is not as the program declares it."""
        arrays = _plain(network, len(self._program.inputs), inputs, state)
        if arrays is None:
            fed = feeds(self._program, inputs, state)
            arrays = [fed[name] for name, _ in network.given]
        return arrays

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        network = self._network(returned(self._program, frozenset()))
        if network is None:
            refusal = f"machine code is not used for this program: {self.refusals[0]}"
            return (refusal, *self._instead().explain())
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
