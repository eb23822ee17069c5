"""Compiled networks: the calls of a plan as loaded machine code, and the memory of their runs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors.base import windows
from cvm.executors.batching import address
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import HEAD_BYTES, claim_bytes
from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.batches import BatchCode, Batches, emit_batch, segments, slot_bytes
from cvm.executors.native.runtime.calls import emit_check, emit_network, emit_start, emit_together
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.preference import Preference
from cvm.executors.native.runtime.stored import Compiled, restore, store
from cvm.executors.native.runtime.threads import settled, workers
from cvm.executors.native.runtime.watched import stage_ends

if TYPE_CHECKING:
    from cvm.executors.native.runtime.ahead import Ahead
    from cvm.program.model import ProgramParts
    from cvm.program.verifier import VerifiedProgram

__all__ = ["SLACK", "Network", "network_of", "network_text", "read_bounds", "stage_name"]

Bytes = npt.NDArray[np.uint8]
Planned = Callable[[Callable[[Plan], Callable[[], Any]]], tuple[Plan, Any]]
"""A function that makes a proven plan and its code. It gets the function that writes the code of a plan, which returns
the function that compiles it.
"""
WORTH = 200_000
"""Threads share a run if its estimated time on one core is at least this many nanoseconds."""
SMALL = 10_000
"""A run of less time than this is never shared. Between the two, time decides (`preference`)."""
ALONE = "calls"
"""The function of all calls on one thread, where threads may share them."""


class _Memory:
    """The memory of a run: the arena, and for each stage a job with its claims. Later runs reuse it.

    It is freed only when no worker is in one of the jobs. It also keeps the code and the constants alive until then.
    """

    heads: Sequence[int] = ()

    def __init__(self, network: Network) -> None:
        self.needs = (network._loaded, network.packed)
        self.arena = aligned(network.plan.arena + SLACK)
        self.arrays = (ctypes.c_int64 * max(1, len(network.plan.arrays)))()
        self.table = ctypes.addressof(self.arrays)
        self.base = self.arena.ctypes.data
        self.workers = network.threads - 1
        sizes = [HEAD_BYTES + claim_bytes(network.threads) * (end - first) for first, end in network.stages]
        self.jobs = [aligned(size).view(np.int64) for size in sizes]
        for job, function in zip(self.jobs, network.addresses, strict=True):
            job[1:6] = (function, self.base, network.constants, self.table, self.workers)
        self.heads = [job.ctypes.data for job in self.jobs]
        self.head = self.heads[0]
        self.claims = self.heads[0] + HEAD_BYTES

    def __del__(self) -> None:
        if self.heads and self.workers:
            for head in self.heads:
                settled(head)


def read_bounds(program: ProgramParts) -> list[tuple[int, int, int]]:
    """(number of elements, least, largest element) of each array that a network reads: inputs first, then state."""
    fed = [*(one.value for one in program.inputs), *(one.value for one in program.state)]
    return [(math.prod(value.shape), value.lo, value.hi) for value in fed]


def network_text(
    made: Plan,
    machine: Machine,
    threads: int,
    bounds: Sequence[tuple[int, int, int]],
    stages: Sequence[tuple[int, int]] | None = None,
) -> str:
    """The IR of a plan for ``threads`` threads: a function for each stage, and ``start`` (see `calls`).

    Without ``stages`` there is one stage with all calls. If there is also only one thread, ``start`` runs the stage.
    If threads may share it or not, ``alone`` and ``together`` run it in these ways. If the caller's arrays hold no
    state, there are the functions of `batches`, too.
    """
    from cvm.executors.native.emit.merging import shared  # only compiling needs these
    from cvm.executors.native.kernels.registry import emit

    module = Module(machine.one_shift)
    for name, kernel in made.functions.items():
        emit(module, name, kernel, machine)
    module.functions = shared(module.functions, machine.spare)
    for number, (first, end) in enumerate(stages or [(0, len(made.calls))]):
        emit_network(module, stage_name(number), made, made.calls[first:end], machine, threads)
    emit_check(module, bounds, machine)
    emit_start(module, stage_name(0) if threads == 1 and stages is None else None)
    if stages is None and threads > 1 and _estimate(made) < WORTH:
        emit_network(module, ALONE, made, made.calls, machine, 1)
        emit_start(module, ALONE, "alone")
        emit_together(module)
    if stages is None and not made.kept:
        emit_batch(module, made, segments(made), machine)
    return str(module)


def _estimate(made: Plan) -> float:
    """The estimated time of a run on one core, in nanoseconds."""
    return sum(call.cost for call in made.calls)


def stage_name(number: int) -> str:
    """The name of a stage's function."""
    return f"stage_{number}"


class Network:
    """A compiled and loaded network. Any number of threads may call `run` at the same time.

    If a network is stored on disk under ``name``, it is loaded; otherwise ``planned`` plans it, and it is compiled.
    ``bounds`` are (elements, least, largest) of the arrays that are read, ``shapes`` the shapes of all arrays by name.
    ``tried`` tries new code and raises `Distrusted`. ``ends`` divides the calls into stages: it gives for each stage
    the number of calls after which it ends. Callers may read the arrays between stages.
    """

    def __init__(
        self,
        planned: Planned,
        machine: Machine,
        threads: int,
        name: str,
        bounds: Sequence[tuple[int, int, int]],
        shapes: Mapping[str, tuple[int, ...]],
        tried: Callable[[Plan, Loaded, Bytes, Network], None],
        ends: Callable[[Plan], Sequence[int]] | None = None,
    ) -> None:
        self._planned, self.machine, self.name, self.bounds, self._ends = planned, machine, name, bounds, ends
        key = cache.key(machine, (name, str(threads), str(WORTH), str(SMALL), "whole" if ends is None else "in stages"))
        found = restore(key)
        self.cached, made = found is not None, None
        if found is None:
            made, found = planned(partial(self._written, threads=threads))
            made = replace(made, constants=b"")  # ``found`` has them
        self.plan, self.threads, self.stages, self.packed = found.plan, found.threads, found.stages, found.constants
        self._whole = self.threads == 1 and ends is None
        given = [(name, shapes[name]) for name in self.plan.arrays]
        self.given, self.left = given[: self.plan.written], given[self.plan.written :]
        self._loaded = Loaded(found.code, machine)
        self.addresses = [self._loaded.address(stage_name(number)) for number in range(len(self.stages))]
        begin = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self._start = begin(self._loaded.address("start"))
        self._preference: Preference | None = None
        if self.threads > 1 and ends is None and _estimate(self.plan) < WORTH:
            self._alone = begin(self._loaded.address("alone"))
            together = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
            self._joint = together(self._loaded.address("together"))
            self._preference = Preference()
        stage = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_int64)
        self._stage_functions = [stage(address) for address in self.addresses]
        code = BatchCode(self._loaded, self.packed, machine, found.room, found.grouped, _estimate(self.plan))
        self.batches = Batches(code, threads) if found.room else None
        self.constants = self.packed.ctypes.data
        self._free: list[_Memory] = [_Memory(self)]
        if made is not None:  # new code is stored only after it has been tried
            tried(made, self._loaded, self.packed, self)
            self._share(store(key, found))

    def _share(self, constants: Bytes) -> None:
        """Read the packed constants from other memory from now on, which holds the same ones."""
        if constants is not self.packed:
            self._free.clear()
            self.packed, self.constants = constants, constants.ctypes.data
            self._free.append(_Memory(self))
        self.batches = self.batches and self.batches.of(constants)  # without the memory of the rehearsal

    def __del__(self) -> None:
        getattr(self, "_free", []).clear()  # workers must leave the jobs before the code is freed

    def _written(self, made: Plan, threads: int) -> Callable[[], Compiled]:
        threads = threads if _estimate(made) >= (WORTH if self._ends else min(SMALL, WORTH)) else 1
        ends = self._ends(made) if self._ends else ()
        stages = tuple(pairwise((0, *(ends or (len(made.calls),)))))
        return partial(self._compiled, made, threads, stages, self._text(made, threads, stages))

    def _compiled(self, made: Plan, threads: int, stages: tuple[tuple[int, int], ...], text: str) -> Compiled:
        constants = np.frombuffer(made.constants, np.uint8)  # the planner's memory (`Constants`), not a copy
        try:
            code = compiled(text, self.machine)
        except RuntimeError as error:
            raise Distrusted(f"the code generator refuses the code: {str(error).splitlines()[0]}") from error
        cut = () if self._ends or made.kept else segments(made)
        room = slot_bytes(made, cut) if cut else 0
        return Compiled(replace(made, constants=b""), threads, stages, code, constants, room, len(cut) > 1)

    def _text(self, made: Plan, threads: int, stages: Sequence[tuple[int, int]]) -> str:
        return network_text(made, self.machine, threads, self.bounds, stages if self._ends else None)

    def text(self) -> str:
        """The IR of the network."""
        made, _ = self._planned(lambda made: lambda: None)
        return self._text(made, self.threads, self.stages)

    def run(self, arrays: Sequence[npt.NDArray[Any]], after: Callable[[int], None] | None = None) -> bool:
        """Run on the arrays of the plan. Returns False, without running, if an element is outside its bounds.

        ``after`` is called with the number of finished stages: with 0 before the first one, then after each stage.
        """
        memory = self._taken()
        try:
            memory.arrays[: len(arrays)] = [address(array) for array in arrays]
            return self._run_in(memory, after)
        finally:
            self._free.append(memory)

    def ways(self) -> list[Callable[[Sequence[npt.NDArray[Any]]], bool]]:
        """`run` in each way in which the network may run: new code must be tried in all of them."""

        def forced(way: Callable[[int], int], arrays: Sequence[npt.NDArray[Any]]) -> bool:
            memory = self._taken()
            try:
                memory.arrays[: len(arrays)] = [address(array) for array in arrays]
                return way(memory.head) < 0
            finally:
                self._free.append(memory)

        if self._preference is None:
            return [self.run]
        return [partial(forced, self._alone), partial(forced, self._together)]

    def _taken(self) -> _Memory:
        """Memory that no other run uses."""
        try:
            return self._free.pop()  # atomic in the interpreter, so no lock is needed
        except IndexError:
            return _Memory(self)

    def _run_in(self, memory: _Memory, after: Callable[[int], None] | None) -> bool:
        """`run` on the arrays whose addresses are in the memory."""
        if self._preference is not None:
            return self._preference.run(self._alone, self._together, memory.head) < 0
        if self._start(memory.head) >= 0:
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

    def _together(self, head: int) -> int:
        """Check and run a job with the help of workers. Returns -1, or the number of an array outside its bounds."""
        pool = workers(self.machine)
        pool.rouse(self.threads - 1)
        found: int = self._joint(pool.address, head)
        return found

    def run_all(self, tables: npt.NDArray[np.int64]) -> int | None:
        """Run on each row of ``tables``, the addresses of all arrays of the plan. The caller keeps the arrays alive.

        Returns the number of a row with an element outside its bounds, or None. In the first case the arrays that are
        written may hold anything. Threads share the samples; they share each of the last samples if these are too few
        for all threads.
        """
        assert self.batches is not None
        samples, threads = len(tables), self.threads
        left = samples % threads
        dealt = samples if 2 * left > threads else samples - left
        bad = self.batches.run(tables[:dealt]) if dealt else None
        if bad is not None:
            return bad
        return next((number for number in range(dealt, samples) if not self.run_on(tables[number].tolist())), None)

    def run_on(self, addresses: list[int]) -> bool:
        """`run` on the arrays at these addresses."""
        memory = self._taken()
        try:
            memory.arrays[: len(addresses)] = addresses  # type: ignore[assignment]  # any sequence does
            return bool(self._start(memory.head) < 0) if self._whole else self._run_in(memory, None)
        finally:
            self._free.append(memory)

    def bound(self, arrays: Sequence[npt.NDArray[Any]]) -> Callable[[], bool]:
        """`run` on the same arrays every time, with the addresses looked up once. One thread at a time may call it.

        The result keeps the arrays alive, so that it never runs on freed memory.
        """
        memory = _Memory(self)
        memory.arrays[: len(arrays)] = [array.ctypes.data for array in arrays]
        kept, start, head = (self, memory, tuple(arrays)), self._start, memory.head

        def run(_: object = kept) -> bool:
            return bool(start(head) < 0)

        if self._preference is not None:
            choose, alone, together = self._preference.run, self._alone, self._together

            def either(_: object = kept) -> bool:
                return choose(alone, together, head) < 0

            return either

        def staged(_: object = kept) -> bool:
            return self._run_in(memory, None)

        return run if self._whole else staged

    def _run_stage(self, memory: _Memory, number: int) -> None:
        if self.threads > 1:
            workers(self.machine).run(memory.heads[number], self.threads - 1)
        else:
            self._stage_functions[number](memory.base, self.constants, memory.table, memory.claims, 1, 0)


def network_of(
    verified: VerifiedProgram,
    machine: Machine,
    threads: int,
    wanted: frozenset[str],
    watched: bool = False,
    require: Callable[[Machine, frozenset[str]], None] | None = None,
    resident: bool = False,
) -> Network:
    """A network that returns the ``wanted`` values, proven and tried. Raises `Distrusted` if there is no such network.

    A ``watched`` network returns every value, and stops after each window of nodes (`cvm.executors.base.windows`). A
    ``resident`` one changes the arrays of the state, which it does not check: they hold what it wrote, in its formats.
    ``require`` tries the machine in kinds of kernels (`select.require`); without it, the machine is trusted.
    Networks that were made with and without it are stored apart.
    """
    program = verified.program
    if watched:
        wanted |= {value.name for node in program.nodes for value in node.outputs}
    kind = map(str, windows(program)) if watched else ["resident"] if resident else []
    name = "\n".join((program.digest, *sorted(wanted), *kind, *(() if require is None else ("on trial",))))
    bounds = read_bounds(program)[: len(program.inputs) if resident else None]

    expected: list[Mapping[str, npt.NDArray[Any]]] = []

    def planned(written: Callable[[Plan], Callable[[], Any]]) -> tuple[Plan, Any]:
        from cvm.executors.native.runtime.ahead import Ahead  # only compiling needs the planner
        from cvm.executors.native.runtime.proven import proven

        ahead = Ahead(None if require is None else partial(require, machine))
        try:
            prepare = partial(_prepare, verified, ahead, expected)
            return proven(verified, machine, wanted, written, resident, prepare, seen=ahead.saw, threads=threads)
        except (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise Distrusted(f"the planner failed: {type(error).__name__}: {error}") from error
        finally:
            ahead.close()

    def tried(made: Plan, loaded: Loaded, constants: Bytes, network: Network) -> None:
        from cvm.executors.native.runtime.rehearsal import rehearse

        rehearse(verified, made, loaded, constants, network.ways(), network.batches, expected)
        expected.clear()

    ends = partial(stage_ends, program) if watched else None
    return Network(planned, machine, threads, name, bounds, verified.shapes, tried, ends)


def _prepare(
    verified: VerifiedProgram, ahead: Ahead, expected: list[Mapping[str, npt.NDArray[Any]]], made: Plan
) -> None:
    """What needs no code of a plan: the tensors that it must give, which are put into a list, and its trial."""
    from cvm.executors.native.runtime.rehearsal import expectations

    expected[:] = expectations(verified, made)
    ahead.rest(made)
