"""How networks scale with threads: the scheduler simulated with measured chunk times and measured costs of sharing.

    python -m tools.bench.scaling [NETWORK..] [--threads 1,2,4,..,64] [--seconds S]

Every call of a network is split into chunks as for so many threads, and one thread measures each chunk (the time stamp
counter of x86, least of many runs). Neighbouring calls of a single chunk are one step (`calls.steps`). Two threads that
share empty chunks tell what a claim and what a barrier cost. The simulation gives the chunks of a step to threads in
the order in which they become free, those of a thread's own range first (`emit.sharing`). Claims from one range are
served one after the other, since only one core at a time can own its cache line, and so are the chunks of a range that
are counted as done. The next step begins when the last one is seen. With one and with two threads the network is also
run and timed. For the most threads, the tool names the steps that lose most to an even division.
"""

from __future__ import annotations

import argparse
import ctypes
import heapq
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cvm.executors.base import returned
from cvm.executors.native.emit.ir import Code, Module, V
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import HEAD_BYTES, claim_bytes, ranges
from cvm.executors.native.kernels.registry import emit, plan
from cvm.executors.native.plan.homes import Buffer
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime.calls import CHUNKS, chunks, emit_network, steps
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import available
from cvm.executors.native.runtime.threads import workers
from cvm.program.verifier import VerifiedProgram, verify
from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of

__all__ = ["Costs", "Spent", "main", "simulated", "simulated_call"]

DEFAULT = ("lenet", "mobilenet_v1", "mobilenet_v2", "resnet18")
EMPTY_CALLS = 2000
WORST = 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds of sharing: of a claim, which also counts the chunk before it as done, of a barrier beside these, of
    the start of a run with several threads, and of one with one thread, which is a call from Python.
    """

    claim: float
    barrier: float
    start: float
    alone: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """The nanoseconds of one call with several threads, and of its chunks together."""

    elapsed: float
    work: float


def simulated_call(times: Sequence[float], threads: int, costs: Costs) -> Spent:
    """The time from the first claim of a step to the moment when all threads may begin the next one.

    A thread claims a chunk, computes it, and comes back, which counts the chunk as done. One core at a time owns the
    counters of a range.
    """
    if threads == 1:
        return Spent(sum(times), sum(times))
    free = [(0.0, thread, -1) for thread in range(threads)]
    most, ended = ranges(threads), 0.0
    bounds = [-(-len(times) * part // most) for part in range(most + 1)]
    left = [list(reversed(times[low:high])) for low, high in pairwise(bounds)]
    owned = [0.0] * most
    while free:
        now, thread, before = heapq.heappop(free)
        own = thread * most // threads
        if before >= 0:
            now = owned[before] = max(now, owned[before]) + costs.claim
            ended = max(ended, now)
        found = next((part for part in (*range(own, most), *range(own)) if left[part]), None)
        if found is not None:
            if found != before:
                now = owned[found] = max(now, owned[found]) + costs.claim
            heapq.heappush(free, (now + left[found].pop(), thread, found))
    return Spent(ended + costs.barrier, sum(times))


def simulated(calls: Sequence[Sequence[float]], threads: int, costs: Costs) -> list[Spent]:
    """All steps of a run: the chunk times of each one."""
    return [simulated_call(times, threads, costs) for times in calls]


class _Measured:
    """A network whose chunks can be timed: its plan, memory and code."""

    def __init__(self, verified: VerifiedProgram, machine: Machine) -> None:
        self.machine = machine
        self.plan = plan(verified, machine, returned(verified.program, frozenset()))
        self._memory = [_aligned(self.plan.arena), _aligned(len(self.plan.constants) + 4096)]
        self._memory[1][: len(self.plan.constants)] = np.frombuffer(self.plan.constants, np.uint8)
        self._arrays = _arrays(verified, self.plan)
        self._table = np.array([array.ctypes.data for array in self._arrays], np.int64)
        module = Module()
        for name, kernel in self.plan.functions.items():
            emit(module, name, kernel, machine)
        _emit_looking(module, self.plan)
        for threads in (1, 2):
            emit_network(module, f"run_{threads}", self.plan, self.plan.calls, machine, threads)
        self._loaded = Loaded(compiled(str(module), machine), machine)
        self._heads = [memory.ctypes.data for memory in self._memory] + [self._table.ctypes.data]

    def splits(self, threads: int) -> list[int]:
        """The number of chunks of each call."""
        if threads == 1:
            return [1] * len(self.plan.calls)
        return [chunks(call.units, call.cost, threads) for call in self.plan.calls]

    def step_times(self, threads: int, seconds: float) -> list[list[float]]:
        """The least nanoseconds of every chunk of every step; calls in one chunk count together."""
        times = iter(self.chunk_times(threads, seconds))
        made = []
        for step in steps(self.plan.calls, threads):
            chunked = [next(times) for _ in step.calls]
            made.append(chunked[0] if step.chunks > 1 else [sum(map(sum, chunked))])
        return made

    def chunk_times(self, threads: int, seconds: float) -> list[list[float]]:
        """The least nanoseconds of every chunk of every call, on one thread, one chunk after the other."""
        counts = self.splits(threads)
        bounds = [
            (call.units * chunk // count, call.units * (chunk + 1) // count)
            for call, count in zip(self.plan.calls, counts, strict=True)
            for chunk in range(count)
        ]
        table, sizes = np.array(bounds, np.int64), np.array(counts, np.int64)
        ticks = np.zeros(len(bounds) + len(counts) + 2, np.int64)
        look = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(self._loaded.address("looking"))
        arguments = (*self._heads, ticks.ctypes.data, table.ctypes.data, sizes.ctypes.data)
        best, ratio, end, runs = np.full(len(ticks) - 1, np.inf), np.inf, time.perf_counter() + seconds, 0
        while runs < 5 or time.perf_counter() < end:
            start = time.perf_counter_ns()
            look(*arguments)
            ratio = min(ratio, (time.perf_counter_ns() - start) / int(ticks[-1] - ticks[0]))
            best, runs = np.minimum(best, np.diff(ticks)), runs + 1
        times = (np.maximum(best - best[-1], 0) * ratio).tolist()
        found: list[list[float]] = []
        at = 0
        for count in counts:
            found.append(times[at : at + count])
            at += count + 1  # between two calls there is an empty stretch
        return found

    def run_time(self, threads: int, seconds: float) -> float:
        """The least nanoseconds of a run on one or two threads."""
        address = self._loaded.address(f"run_{threads}")
        if threads == 1:
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)(address)
            return _least(lambda: function(*self._heads, None, 1, 0), seconds)
        job = _job(address, self._heads, len(self.plan.calls), threads)
        pool = workers(self.machine)
        found = _least(lambda: pool.run(job.ctypes.data, threads - 1), seconds)
        pool.settle(job.ctypes.data)
        return found


def _emit_looking(module: Module, made: Plan) -> None:
    """``looking(arena, constants, arrays, ticks, bounds, counts)``: all chunks of all calls. The time stamp counter
    is stored before each chunk and after the last one of each call.
    """
    names = ("arena", "constants", "arrays", "ticks", "bounds", "counts")
    arena, constants, arrays, ticks, bounds, counts = parameters = [V("ptr", f"%{name}") for name in names]
    code = Code(module, "looking", parameters)
    rooms = [code.alloca("ptr", 1) for _ in range(2)]

    def moved(room: V, pointer: V, size: int) -> None:
        code.store(code.at(pointer, size), room)

    def look() -> None:
        at = code.load("ptr", rooms[0])
        code.store(code.call("i64", "llvm.readcyclecounter"), at)
        moved(rooms[0], at, 8)

    code.store(ticks, rooms[0])
    code.store(bounds, rooms[1])
    for number, call in enumerate(made.calls):
        places = _places(code, made, call, arena, constants, arrays)

        def chunk(_: object, call: KernelCall = call, places: Sequence[V] = tuple(places)) -> None:
            look()
            at = code.load("ptr", rooms[1])
            low, high = (code.load("i64", code.at(at, offset)) for offset in (0, 8))
            moved(rooms[1], at, 16)
            code.line(f"call void @{call.function}({', '.join(map(str, (*places, low, high)))})")

        code.each(0, code.load("i64", code.at(counts, 8 * number)), chunk)
        look()
    look()
    look()
    code.finish()


def _places(code: Code, made: Plan, call: KernelCall, arena: V, constants: V, arrays: V) -> list[V]:
    """The addresses that a call gets."""

    def at(buffer: Buffer, offset: int) -> V:
        if buffer.kind == "array":
            return code.at(code.load("ptr", code.at(arrays, 8 * buffer.index)), offset)
        return code.at(arena if buffer.kind == "arena" else constants, offset + made.offsets.get(buffer, 0))

    return [at(buffer, offset) for buffer, offset in call.arguments]


def sharing_costs(machine: Machine, seconds: float) -> Costs:
    """What two threads need for claims and barriers, from runs of empty calls of few and of many chunks."""
    few, many = 2, 2 * CHUNKS
    found = {}
    for name, count, number in (("start", few, 1), ("few", few, EMPTY_CALLS), ("many", many, EMPTY_CALLS)):
        loaded = _empty_calls(machine, count, number, 2)  # as many chunks as parts
        job, pool = _job(loaded.address("run"), [0, 0, 0], number, 2), workers(machine)
        found[name] = _typical(partial(pool.run, job.ctypes.data, 1), seconds)
        pool.settle(job.ctypes.data)
    by_chunk = max((found["many"] - found["few"]) / EMPTY_CALLS / (many - few) * 2, 0.0)  # each thread claims half
    barrier = max(found["few"] / EMPTY_CALLS - 2 * by_chunk, 0.0)  # of a chunk, a thread claims it and counts it
    one = _empty_calls(machine, 1, 1, 1)
    empty = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)(one.address("run"))
    alone = _least(lambda: empty(None, None, None, None, 1, 0), seconds)
    return Costs(by_chunk, barrier, found["start"], alone)


def _empty_calls(machine: Machine, parts: int, number: int, threads: int) -> Loaded:
    """A network ``run`` of calls of so many parts that do nothing."""
    module = Module()
    Code(module, "empty", [V("i64", "%lo"), V("i64", "%hi")]).finish()
    calls = [KernelCall("empty", (), parts, "", "", 1e9)] * number
    emit_network(module, "run", Plan({}, (), {}, 0, b"", (), 0, {}, {}), calls, machine, threads)
    return Loaded(compiled(str(module), machine), machine)


def _job(function: int, heads: Sequence[int], calls: int, threads: int) -> npt.NDArray[np.int64]:
    """The memory of a job (`emit.sharing`) of a network for so many threads, with which one worker may help."""
    raw = np.zeros((HEAD_BYTES + calls * claim_bytes(threads) + 64) // 8, np.int64)
    job = raw[(-raw.ctypes.data % 64) // 8 :]
    job[1:6] = [function, *heads, 1]
    return job


def _arrays(verified: VerifiedProgram, made: Plan) -> list[npt.NDArray[np.int32]]:
    random = np.random.default_rng(0)
    fed = {item.value.name: item.value for item in verified.program.inputs}
    fed |= {item.value.name: item.value for item in verified.program.state}
    return [
        random.integers(fed[name].lo, fed[name].hi, fed[name].shape, np.int32, endpoint=True)
        if name in fed
        else np.zeros(verified.shapes[name], np.int32)
        for name in made.arrays
    ]


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    raw = np.zeros(size + 192, np.uint8)
    return raw[-raw.ctypes.data % 64 :]


def _least(run: Callable[[], object], seconds: float) -> float:
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 5 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        best, runs = min(best, time.perf_counter_ns() - start), runs + 1
    return best


def _typical(run: Callable[[], object], seconds: float) -> float:
    """The median time: the least one may be that of a run in which no worker took part."""
    found: list[int] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        found.append(time.perf_counter_ns() - start)
    return float(np.median(found))


def _print(name: str, network: _Measured, costs: Costs, counts: Sequence[int], seconds: float) -> None:
    alone = sum(map(sum, network.chunk_times(1, seconds)))
    print(f"\n## {name}\n\n| threads | predicted us | measured us | faster | chunks | claims and barriers |")
    print("|---:|---:|---:|---:|---:|---:|")
    last: list[Spent] = []
    times: list[list[float]] = []
    for threads in counts:
        times = network.step_times(threads, seconds)
        last = simulated(times, threads, costs)
        free = sum(call.elapsed for call in simulated(times, threads, Costs(0, 0, 0)))
        total = sum(call.elapsed for call in last) + (costs.start if threads > 1 else costs.alone)
        measured = f"{network.run_time(threads, seconds) / 1e3:.1f}" if threads <= 2 else ""
        share = f"{100 * (total - free) / total:.0f} %"
        print(
            f"| {threads} | {total / 1e3:.1f} | {measured} | {alone / total:.2f} | {sum(map(len, times))} | {share} |"
        )
    made = steps(network.plan.calls, counts[-1])
    lost = [(spent.elapsed - spent.work / counts[-1], at) for at, spent in enumerate(last)]
    print(f"\nWith {counts[-1]} threads, most is lost in:\n")
    for loss, at in sorted(lost, reverse=True)[:WORST]:
        call, more = made[at].calls[0], len(made[at].calls) - 1
        others = f" and {more} more calls" if more else ""
        print(f"* {call.what}, {call.function}{others}: {loss / 1e3:.1f} us; {made[at].chunks} chunks of "
              f"{call.units} parts, {last[at].work / 1e3:.1f} us of work")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(DEFAULT))
    parser.add_argument("--threads", default="1,2,4,8,16,32,64")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    options = parser.parse_args(arguments)
    if platform.machine().lower() not in ("x86_64", "amd64"):
        print("scaling: reads the time stamp counter, which needs an x86 processor", file=sys.stderr)
        return 2
    counts = [int(count) for count in options.threads.split(",")]
    machine = available()[0]
    costs = sharing_costs(machine, options.seconds)
    print(f"{machine.name}: a claim takes {costs.claim:.0f} ns, a barrier {costs.barrier:.0f} ns, the start of a run "
          f"{costs.start:.0f} ns, measured with two threads.")  # fmt: skip
    for name in options.networks:
        _print(name, _Measured(verify(program_of(NETWORKS[name]())), machine), costs, counts, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
