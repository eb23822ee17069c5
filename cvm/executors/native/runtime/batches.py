"""Batches: the samples of one call, dealt out to threads by machine code.

Each thread claims groups of samples and computes them alone, in memory of its own; so a thread never waits for another
one before the batch is done. Within a group, the calls of a network are divided into *segments*: every sample of the
group goes through a segment before the first sample begins the next one. So the weights of a segment stay in a cache
from sample to sample, at the price that the tensors between two segments must be kept for every sample of the group.
`segments` weighs the two by their bytes. One segment alone means sample after sample.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cvm.executors.native.emit.ir import Code, Module, Scalar, V
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import ARENA, ARRAYS, CONSTANTS, COUNTER, HEAD_BYTES, emit_claim, emit_wait
from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.calls import GRAIN, arguments_of, emit_call
from cvm.executors.native.runtime.jit import Loaded
from cvm.executors.native.runtime.threads import settled, workers
from cvm.records import dataclass

__all__ = ["GROUP", "MOST", "BatchCode", "Batches", "Segment", "emit_batch", "segments", "slot_bytes"]

GROUP = 8
"""The most samples of a group if there are several segments."""
NEAR = 2**20
"""The bytes that a core's own cache is assumed to hold. They decide about time alone."""
REACH = 64
"""The most calls of a segment, unless there is only one."""
MOST = 2**15
"""The most samples of one run. The counter of groups has 16 bits."""
SHARES = 16
"""How many groups a thread gets if groups may be small."""
SHARED = 50_000
"""Threads share a batch if its estimated time on one core is at least this many nanoseconds."""
SAMPLES, GROUPS, SLOTS, BAD, TABLES = range(5)
"""The integers that describe a batch: its samples, its groups, the number of arenas, the number of the first sample
that was refused, and the address of the addresses of all arrays, sample by sample."""
FINISHED, SLOTS_CLAIMED = COUNTER, 2 * COUNTER
"""Where a job counts the groups that are done and the arenas that are taken, behind the groups that are claimed."""
NONE_BAD = 2**62
EVERY = 2**16
"""What all groups of a batch together add to the counter of finished groups. So its goal depends on the epoch alone."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The calls from ``first`` to ``end``. A single call may be computed in several ``parts`` of its units."""

    first: int
    end: int
    parts: int = 1


# Which segments -----------------------------------------------------------------------------------------------------


def segments(plan: Plan) -> tuple[Segment, ...]:
    """The segments for which the fewest bytes come from beyond a core's own cache, for each sample of a full group.

    The weights of a segment that fit into the cache are read once for a group, others once for each sample. What is
    alive between two segments is written and read for each sample.
    """
    weights, alive = _weights(plan), _alive(plan)
    count = len(plan.calls)
    if sum(weights) + plan.arena <= NEAR or not count:
        return (Segment(0, count),)
    best: list[tuple[float, int, int]] = [(0.0, 0, 1)]  # for each end: bytes, first call of the last segment, its parts
    for end in range(1, count + 1):
        found = []
        bytes_, largest = 0, 0
        for first in range(end - 1, max(-1, end - 1 - REACH), -1):
            bytes_ += weights[first]
            largest = max(largest, alive[first], alive[first + 1])
            room = max(NEAR - largest, NEAR // 4)
            parts = 1 if end - first > 1 else min(plan.calls[first].units, -(-bytes_ // room)) or 1
            kept = bytes_ / parts <= room
            read = bytes_ / GROUP if kept else bytes_
            edges = alive[first] * parts + alive[end]
            found.append((best[first][0] + read + edges, first, parts))
        best.append(min(found))
    if best[-1][0] >= sum(weights):
        return (Segment(0, count),)
    made, end = [], count
    while end:
        _, first, parts = best[end]
        made.append(Segment(first, end, parts))
        end = first
    return tuple(reversed(made))


def _weights(plan: Plan) -> list[int]:
    """For each call, the bytes of the constants that it reads; each constant ends where the next one begins."""
    offsets = [[at for buffer, at in call.arguments if buffer.kind == "constants"] for call in plan.calls]
    starts = sorted({at for many in offsets for at in many})
    ends = dict(pairwise([*starts, len(plan.constants)]))
    return [sum(ends[at] - at for at in set(many)) for many in offsets]


def _alive(plan: Plan) -> list[int]:
    """The bytes of the arena that hold something between two calls, before the first one and after the last one too."""
    return [
        sum(buffer.size for buffer in plan.offsets if buffer.first < number <= buffer.last)
        for number in range(len(plan.calls) + 1)
    ]


def stride(plan: Plan, made: Sequence[Segment]) -> int:
    """The bytes from the arena of one sample of a group to that of the next: 0 if they use one arena in turn."""
    return 0 if len(made) == 1 else -(-(plan.arena + SLACK) // 4096) * 4096 + 64 * 5  # not at equal offsets in pages


# Code ---------------------------------------------------------------------------------------------------------------


def emit_batch(module: Module, plan: Plan, made: Sequence[Segment], machine: Machine) -> None:
    """Write the functions that compute a batch.

    * ``group(arena, constants, tables, count)`` computes ``count`` samples; ``tables`` has the addresses of the arrays
      of each. It stops at a sample with an element outside its bounds and returns its index, else -1.
    * ``batch(arenas, constants, batch, claims, epoch, thread)`` is the function of a job (`emit.sharing`): it takes an
      arena, then claims groups until none is left. It records the number of the first refused sample.
    * ``deal(job)`` runs a batch on the calling thread alone.
    """
    if "claim" not in module.functions:
        emit_claim(module)
        emit_wait(module, machine)
    _emit_group(module, plan, made)
    arenas, constants, batch, claims = (V("ptr", f"%{name}") for name in ("arenas", "constants", "batch", "claims"))
    epoch = V("i64", "%epoch")
    code = Code(module, "batch", [arenas, constants, batch, claims, epoch, V("i64", "%thread")])
    samples, groups, slots = (code.load("i64", code.at(batch, 8 * index), 8) for index in (SAMPLES, GROUPS, SLOTS))
    tables = code.load("ptr", code.at(batch, 8 * TABLES), 8)
    again, work, done, taken = (code.fresh() for _ in range(4))
    slot = code.value("i64", f"call i64 @claim({code.at(claims, SLOTS_CLAIMED)}, {epoch}, {slots})")
    arena = code.at(arenas, code.mul(slot, slot_bytes(plan, made)))
    code.line(f"br {code.compare('sge', slot, 0)}, label %{again}, label %{done}")
    code.label(again)
    group = code.value("i64", f"call i64 @claim({claims}, {epoch}, {groups})")
    code.line(f"br {code.compare('sge', group, 0)}, label %{work}, label %{done}")
    code.label(work)
    low = code.binary("udiv", code.binary("mul", group, samples), groups)
    high = code.binary("udiv", code.binary("mul", code.binary("add", group, 1), samples), groups)
    first = code.at(tables, code.mul(low, 8 * len(plan.arrays)))
    given = (arena, constants, first, code.binary("sub", high, low))
    refused = code.value("i64", f"call i64 @group({', '.join(map(str, given))})")
    bad = code.fresh()
    code.line(f"br {code.compare('sge', refused, 0)}, label %{bad}, label %{taken}")
    code.label(bad)
    number = code.binary("add", low, refused)
    code.line(f"{code.unused()} = atomicrmw umin {code.at(batch, 8 * BAD)}, {number} acq_rel")
    code.line(f"br label %{taken}")
    code.label(taken)
    rest = code.binary("sub", V("i64", str(EVERY + 1)), groups)
    counted = code.select(code.compare("eq", group, 0), rest, 1)  # all groups of an epoch count `EVERY` together
    code.line(f"{code.unused()} = atomicrmw add {code.at(claims, FINISHED)}, {counted} acq_rel")
    code.line(f"br label %{again}")
    code.label(done)
    _end(code, claims, epoch)
    code.finish()
    _emit_deal(module)


def slot_bytes(plan: Plan, made: Sequence[Segment]) -> int:
    """The bytes of the arenas of one thread."""
    step = stride(plan, made)
    return GROUP * step if step else -(-(plan.arena + SLACK) // 64) * 64


def _end(code: Code, claims: V, epoch: V) -> None:
    """Wait until all groups are done. Then leave no group of this epoch to claim.

    A worker that comes late could otherwise claim a group of this epoch when the next batch, with more groups, is
    already described.
    """
    code.line(f"call void @await({code.at(claims, FINISHED)}, {code.mul(epoch, EVERY)})")
    none_left = code.binary("or", code.binary("shl", epoch, 16), EVERY - 1)
    code.line(f"{code.unused()} = atomicrmw umax ptr {claims.text}, {none_left} acq_rel")


def _emit_deal(module: Module) -> None:
    job = V("ptr", "%job")
    code = Code(module, "deal", [job])
    epoch = code.binary("add", code.load("i64", job, 8), 1)
    code.line(f"store atomic {epoch}, {job} release, align 8")
    arena, constants, batch = (code.load("ptr", code.at(job, offset), 8) for offset in (ARENA, CONSTANTS, ARRAYS))
    code.line(f"call void @batch({arena}, {constants}, {batch}, {code.at(job, HEAD_BYTES)}, {epoch}, i64 0)")
    code.finish()


def _emit_group(module: Module, plan: Plan, made: Sequence[Segment]) -> None:
    arena, constants, tables = (V("ptr", f"%{name}") for name in ("arena", "constants", "tables"))
    code = Code(module, "group", [arena, constants, tables, V("i64", "%count")], result="i64")
    step = stride(plan, made)
    for number, segment in enumerate(made):
        for part in range(segment.parts):

            def body(index: Scalar, number: int = number, segment: Segment = segment, part: int = part) -> None:
                own = code.at(arena, code.mul(index, step))
                table = code.at(tables, code.mul(index, 8 * len(plan.arrays)))
                if number == part == 0:
                    _check(code, table, index)
                for call in plan.calls[segment.first : segment.end]:
                    low, high = (call.units * k // segment.parts for k in (part, part + 1))
                    given = arguments_of(code, plan, call, own, constants, table)
                    emit_call(code, call.function, given, V("i64", str(low)), V("i64", str(high)))

            code.each(V("i64", "0"), V("i64", "%count"), body)
    code.finish("i64 -1")


def _check(code: Code, table: V, index: Scalar) -> None:
    """Return the index of a sample that has an element outside its bounds."""
    found = code.value("i64", f"call i64 @check({table})")
    bad, fine = code.fresh(), code.fresh()
    code.line(f"br {code.compare('sge', found, 0)}, label %{bad}, label %{fine}")
    code.label(bad)
    code.line(f"ret {index}")
    code.label(fine)


# Runs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchCode:
    """The code and the constants of a network, the bytes of memory of a thread, whether there are several segments, and
    the estimated time of a sample in nanoseconds.
    """

    loaded: Loaded
    constants: npt.NDArray[np.uint8]
    machine: Machine
    room: int
    grouped: bool
    cost: float


class _Memory:
    """The memory of one batch at a time: an arena for each thread and the job with its claims. Later batches reuse it.

    It is freed only when no worker is in the job. It also keeps the code and the constants alive until then.
    """

    def __init__(self, code: BatchCode, threads: int) -> None:
        self._code, self.threads = code, threads
        self._arenas = aligned(code.room * threads)
        self._batch = np.zeros(5, np.int64)
        self._batch[SLOTS] = threads
        self._job = aligned(HEAD_BYTES + 3 * COUNTER).view(np.int64)
        loaded = code.loaded
        addresses = (loaded.address("batch"), self._arenas.ctypes.data, code.constants.ctypes.data)
        self._job[1:6] = (*addresses, self._batch.ctypes.data, threads - 1)
        self._head = self._job.ctypes.data
        self._deal = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("deal"))

    def __del__(self) -> None:
        if self.threads > 1 and hasattr(self, "_head"):
            settled(self._head)

    def run(self, tables: npt.NDArray[np.int64]) -> int | None:
        """Compute a sample for each row of addresses, at most `MOST`.

        Returns the number of the first refused sample, or None.
        """
        samples, cost = len(tables), self._code.cost
        count = groups(samples, self._code.grouped, cost, self.threads)
        self._batch[[SAMPLES, GROUPS, BAD, TABLES]] = samples, count, NONE_BAD, tables.ctypes.data
        if min(self.threads, count) > 1 and samples * cost >= SHARED:
            workers(self._code.machine).run(self._head, min(self.threads, count) - 1)
        else:
            self._deal(self._head)
        bad = int(self._batch[BAD])
        return None if bad == NONE_BAD else bad


class Batches:
    """Runs batches on at most ``threads`` threads. Any number of threads may call `run` at the same time."""

    def __init__(self, code: BatchCode, threads: int) -> None:
        self._code, self._threads = code, threads
        self._free: list[_Memory] = []

    def of(self, constants: npt.NDArray[np.uint8]) -> Batches:
        """The same with the packed constants in other memory."""
        return Batches(replace(self._code, constants=constants), self._threads)

    def run(self, tables: npt.NDArray[np.int64]) -> int | None:
        """Compute a sample for each row: the addresses of all arrays of the plan. The caller keeps the arrays alive.

        Returns the number of a row with an element outside its bounds, the first one that was found, or None. If there
        is one, the arrays that are written may hold anything.
        """
        threads = min(self._threads, len(tables))
        try:
            memory = self._free.pop()  # atomic in the interpreter, so no lock is needed
        except IndexError:
            memory = None
        if memory is None or memory.threads < threads:
            memory = _Memory(self._code, threads)
        try:
            for first in range(0, len(tables), MOST):
                bad = memory.run(tables[first : first + MOST])
                if bad is not None:
                    return first + bad
            return None
        finally:
            self._free.append(memory)


def groups(samples: int, grouped: bool, cost: float, threads: int) -> int:
    """Into how many groups a batch is divided; none is empty, and with several segments none exceeds `GROUP`.

    A thread gets several groups, so that no other thread waits long for its last one, unless that would divide what one
    thread does fastest.
    """
    if grouped:
        least, most = -(-samples // GROUP), samples
    else:
        least, most = 1, max(1, min(samples, int(samples * cost // GRAIN)))
    wanted = max(least, 1 if threads == 1 else threads if grouped else SHARES * threads)
    return max(least, min(most, -(-wanted // threads) * threads))
