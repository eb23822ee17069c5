"""How networks scale with threads: the scheduler simulated with measured chunk times and measured costs of sharing.

    python -m tools.bench.scaling [NETWORK..] [--threads 1,2,4,..,64] [--seconds S]

The chunks of each call are measured (`tools.bench.chunk_times`): for one thread on one core, for more threads on two
cores that work at the same time, so that a chunk reads what another core has written. Neighbouring calls of a single
chunk are one step (`calls.steps`). Two threads that share empty chunks tell what a claim and what a barrier cost. The
simulation gives the chunks of a step to threads in the order in which they become free, those of a thread's own range
first (`emit.sharing`). Claims from one range are served one after the other, since only one core at a time can own its
cache line, and so are the chunks of a range that are counted as done. The next step begins when the last one is seen.
With one and with two threads the network is also run and timed. All of this is done by turns. For the most threads, the
tool names the steps that lose most to an even division.
"""

from __future__ import annotations

import argparse
import heapq
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from cvm.executors.native.emit.ir import Code, Module, V
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import ranges
from cvm.executors.native.plan.steps import CHUNKS, KernelCall, Plan
from cvm.executors.native.runtime.calls import emit_network, steps
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import available
from cvm.executors.native.runtime.threads import workers
from cvm.program.verifier import verify
from tools.bench.chunk_times import Chunked, job, measure, run_of
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


def sharing_costs(machine: Machine, seconds: float) -> Costs:
    """What two threads need for claims and barriers, from runs of empty calls of few and of many chunks."""
    few, many = 2, 2 * CHUNKS
    found = {}
    for name, count, number in (("start", few, 1), ("few", few, EMPTY_CALLS), ("many", many, EMPTY_CALLS)):
        loaded = _empty_calls(machine, count, number, 2)  # as many chunks as parts
        made, pool = job(loaded.address("run"), [0, 0, 0], number, 2), workers(machine)
        found[name] = _typical(partial(pool.run, made.ctypes.data, 1), seconds)
        pool.settle(made.ctypes.data)
    by_chunk = max((found["many"] - found["few"]) / EMPTY_CALLS / (many - few) * 2, 0.0)  # each thread claims half
    barrier = max(found["few"] / EMPTY_CALLS - 2 * by_chunk, 0.0)  # of a chunk, a thread claims it and counts it
    one = _empty_calls(machine, 1, 1, 1)
    empty = run_of(one.address("run"))
    alone = _least(lambda: empty(None, None, None, None, 1, 0), seconds)
    return Costs(by_chunk, barrier, found["start"], alone)


def _empty_calls(machine: Machine, parts: int, number: int, threads: int) -> Loaded:
    """A network ``run`` of calls of so many parts that do nothing."""
    module = Module()
    Code(module, "empty", [V("i64", "%lo"), V("i64", "%hi")]).finish()
    calls = [KernelCall("empty", (), parts, "", "", 1e9)] * number
    emit_network(module, "run", Plan({}, (), {}, 0, b"", (), 0, {}, {}), calls, machine, threads)
    return Loaded(compiled(str(module), machine), machine)


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


def step_times(calls: Sequence[KernelCall], found: Sequence[Sequence[float]], threads: int) -> list[list[float]]:
    """The nanoseconds of the chunks of each step, from those of each call; calls in one chunk count together."""
    times, made = iter(found), []
    for step in steps(calls, threads):
        chunked = [next(times) for _ in step.calls]
        made.append(list(chunked[0]) if step.chunks > 1 else [sum(map(sum, chunked))])
    return made


def _print(name: str, machine: Machine, costs: Costs, counts: Sequence[int], seconds: float) -> None:
    verified = verify(program_of(NETWORKS[name]()))
    networks = {count: Chunked(verified, machine, count) for count in dict.fromkeys((1, *counts))}
    measured = dict(zip(networks, measure(list(networks.values()), seconds), strict=True))
    alone = sum(map(sum, measured[1].chunks))
    print(f"\n## {name}\n\n| threads | predicted us | measured us | faster | chunks | claims and barriers |")
    print("|---:|---:|---:|---:|---:|---:|")
    last: list[Spent] = []
    for threads in counts:
        found = measured[threads]
        times = step_times(networks[threads].plan.calls, found.chunks, threads)
        last = simulated(times, threads, costs)
        free = sum(call.elapsed for call in simulated(times, threads, Costs(0, 0, 0)))
        total = sum(call.elapsed for call in last) + (costs.start if threads > 1 else costs.alone)
        whole = "" if found.run is None else f"{found.run / 1e3:.1f}"
        share = f"{100 * (total - free) / total:.0f} %"
        print(f"| {threads} | {total / 1e3:.1f} | {whole} | {alone / total:.2f} | {sum(map(len, times))} | {share} |")
    made = steps(networks[counts[-1]].plan.calls, counts[-1])
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
        _print(name, machine, costs, counts, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
