"""How long the chunks of a network take, each by itself, on one core or on two that share the network.

Every call is split into chunks as for a number of threads. A *hand* is a thread that measures chunks. One hand measures
all chunks in turn; two hands have half of the chunks of each call, which is their range (`emit.sharing`), begin each
call together, and so read what the other core has written, as in a run. The time stamp counter of x86 is stored before
each chunk and after the last chunk of each call.

Passes over the network alternate with runs that are timed as a whole, since the clock of a processor changes. Of both,
the fastest tenth counts: the least time of each chunk by itself would add up to less than any pass has taken.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from cvm.executors.base import returned
from cvm.executors.native.emit.ir import Code, Module, V
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import HEAD_BYTES, claim_bytes, emit_wait
from cvm.executors.native.kernels.registry import emit, plan
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime.calls import arguments_of, chunks, emit_call, emit_network
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.threads import workers
from cvm.program.verifier import VerifiedProgram

__all__ = ["Chunked", "Hand", "Times", "job", "measure", "run_of"]

LEAST_PASSES = 10
Address = int


@dataclass(frozen=True, slots=True)
class Times:
    """The nanoseconds of every chunk of every call, and those of a whole run where so many threads were timed."""

    chunks: list[list[float]]
    run: float | None


@dataclass(frozen=True, slots=True)
class Hand:
    """The chunks that one thread measures: their bounds in units, how many each call has, the memory of ticks."""

    bounds: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    ticks: npt.NDArray[np.int64]

    @classmethod
    def of(cls, calls: Sequence[KernelCall], splits: Sequence[int], hand: int, hands: int) -> Hand:
        """Chunk k of n is in the range k * hands / n."""
        bounds, counts = [], []
        for call, count in zip(calls, splits, strict=True):
            first, end = (-(-count * part // hands) for part in (hand, hand + 1))
            bounds += [(call.units * at // count, call.units * (at + 1) // count) for at in range(first, end)]
            counts.append(end - first)
        ticks = np.zeros(len(bounds) + len(counts) + 2, np.int64)
        return cls(np.array(bounds, np.int64).reshape(-1, 2), np.array(counts, np.int64), ticks)


class Chunked:
    """A network whose chunks can be timed: its plan for a number of threads, its memory and its code."""

    def __init__(self, verified: VerifiedProgram, machine: Machine, threads: int) -> None:
        self.machine, self.threads = machine, threads
        self.plan = plan(verified, machine, returned(verified.program, frozenset()), threads=threads)
        self._memory = [_aligned(self.plan.arena), _aligned(len(self.plan.constants) + 4096)]
        self._memory[1][: len(self.plan.constants)] = np.frombuffer(self.plan.constants, np.uint8)
        self._arrays = _arrays(verified, self.plan)
        self._table = np.array([array.ctypes.data for array in self._arrays], np.int64)
        module = Module()
        for name, kernel in self.plan.functions.items():
            emit(module, name, kernel, machine)
        _emit_pass(module, self.plan, machine)
        if threads <= 2:
            emit_network(module, "run", self.plan, self.plan.calls, machine, threads)
        self._loaded = Loaded(compiled(str(module), machine), machine)
        self._heads = [memory.ctypes.data for memory in self._memory] + [self._table.ctypes.data]

    def splits(self) -> list[int]:
        """The number of chunks of each call."""
        if self.threads == 1:
            return [1] * len(self.plan.calls)
        return [chunks(call.units, call.cost, self.threads, call.per_thread) for call in self.plan.calls]

    def series(self, stack: ExitStack) -> _Series:
        """Passes on as many hands as threads, but at most two. They can be made until the stack is closed."""
        splits, hands = self.splits(), min(self.threads, 2, os.cpu_count() or 1)
        given = [Hand.of(self.plan.calls, splits, hand, hands) for hand in range(hands)]
        meetings = _Meetings(self._loaded, self._heads, len(self.plan.calls), given)
        return _Series(given, stack.enter_context(meetings), stack.enter_context(self._runs()))

    @contextmanager
    def _runs(self) -> Iterator[Callable[[], object] | None]:
        """A whole run on one or two threads, which takes as long as a caller waits for it."""
        if self.threads > 2:
            yield None
            return
        address = self._loaded.address("run")
        if self.threads == 1:
            yield partial(run_of(address), *self._heads, None, 1, 0)
            return
        made, pool = job(address, self._heads, len(self.plan.calls), self.threads), workers(self.machine)
        try:
            yield partial(pool.run, made.ctypes.data, self.threads - 1)
        finally:  # the memory of the job may be freed only when no worker is in it
            pool.settle(made.ctypes.data)


def measure(networks: Sequence[Chunked], seconds: float) -> list[Times]:
    """Measure the chunks of each network for ``seconds``, by turns."""
    with ExitStack() as stack:
        series = [network.series(stack) for network in networks]
        end, turns = time.perf_counter() + seconds * len(networks), 0
        while turns < LEAST_PASSES or time.perf_counter() < end:
            for one in series:
                one.turn()
            turns += 1
    return [one.times() for one in series]


class _Series:
    """Passes for one number of threads, and whole runs where there is a function for so many."""

    def __init__(self, hands: Sequence[Hand], meetings: _Meetings, run: Callable[[], object] | None) -> None:
        self._hands, self._meetings, self._run = hands, meetings, run
        self._passes: list[list[npt.NDArray[np.int64]]] = []
        self._runs: list[int] = []
        self._clocks: list[tuple[int, int]] = []

    def turn(self) -> None:
        """Pass over the network, and run it: both twice, since the networks of other turns have emptied the caches."""
        self._meetings.pass_over()
        self._meetings.pass_over()
        self._clocks.append((time.perf_counter_ns(), int(self._hands[0].ticks[-1])))
        self._passes.append([hand.ticks.copy() for hand in self._hands])
        if self._run is not None:
            self._run()  # wakes the worker, and may be of any length
            start = time.perf_counter_ns()
            self._run()
            self._runs.append(time.perf_counter_ns() - start)

    def times(self) -> Times:
        """The means of the fastest tenth."""
        (first, low), (last, high) = self._clocks[0], self._clocks[-1]
        tick = (last - first) / (high - low)  # the counter's rate is its own, whatever the clock of the core
        fastest = _fastest([int(found[0][-1] - found[0][0]) for found in self._passes])
        by_hand = []
        for at, hand in enumerate(self._hands):
            mean = np.mean([np.diff(self._passes[number][at]) for number in fastest], axis=0)
            by_hand.append(_by_call(np.maximum(mean - mean[-1], 0) * tick, hand))
        found = [[time for part in call for time in part] for call in zip(*by_hand, strict=True)]
        return Times(found, float(np.mean([self._runs[at] for at in _fastest(self._runs)])) if self._runs else None)


class _Meetings:
    """Threads that pass over the network together. The first hand belongs to the thread that asks for passes."""

    def __init__(self, loaded: Loaded, heads: Sequence[Address], calls: int, hands: Sequence[Hand]) -> None:
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7, ctypes.c_int64)(loaded.address("pass"))
        self._counters = np.zeros(8 * (calls + 1), np.int64)  # a cache line each
        self._heads, self._hands = heads, hands
        self._done = 0
        self._barrier = threading.Barrier(len(hands))
        self._threads = [threading.Thread(target=self._help, args=(hand,), daemon=True) for hand in hands[1:]]

    def __enter__(self) -> _Meetings:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._barrier.abort()
        for thread in self._threads:
            thread.join()

    def pass_over(self) -> None:
        """Let each hand measure its chunks once."""
        self._barrier.wait()
        self._measure(self._hands[0])
        self._barrier.wait()
        self._done += 1

    def _help(self, hand: Hand) -> None:
        with suppress(threading.BrokenBarrierError):
            while True:
                self._barrier.wait()
                self._measure(hand)
                self._barrier.wait()

    def _measure(self, hand: Hand) -> None:
        goal = (self._done + 1) * len(self._hands)
        places = (hand.ticks, hand.bounds, hand.counts, self._counters)
        self._function(*self._heads, *(place.ctypes.data for place in places), goal)


def _emit_pass(module: Module, made: Plan, machine: Machine) -> None:
    """``pass(arena, constants, arrays, ticks, bounds, counts, counters, goal)``: the chunks that one hand has.

    Before each call, the hands meet: each adds one to the counter of the call and waits until it reaches the goal.
    """
    names = ("arena", "constants", "arrays", "ticks", "bounds", "counts", "counters")
    arena, constants, arrays, ticks, bounds, counts, counters = (V("ptr", f"%{name}") for name in names)
    goal = V("i64", "%goal")
    code = Code(module, "pass", [arena, constants, arrays, ticks, bounds, counts, counters, goal])
    emit_wait(module, machine)
    tick_room, bound_room = code.alloca("ptr", 1), code.alloca("ptr", 1)

    def look() -> None:
        at = code.load("ptr", tick_room)
        code.store(code.call("i64", "llvm.readcyclecounter"), at)
        code.store(code.at(at, 8), tick_room)

    def meet(number: int) -> None:
        counter = code.at(counters, 64 * number)
        code.value("i64", f"atomicrmw add ptr {counter.text}, i64 1 acq_rel")
        code.line(f"call void @await({counter}, {goal})")

    code.store(ticks, tick_room)
    code.store(bounds, bound_room)
    for number, call in enumerate(made.calls):
        places = tuple(arguments_of(code, made, call, arena, constants, arrays))
        meet(number)

        def chunk(_: object, call: KernelCall = call, places: Sequence[V] = places) -> None:
            look()
            at = code.load("ptr", bound_room)
            low, high = (code.load("i64", code.at(at, offset)) for offset in (0, 8))
            code.store(code.at(at, 16), bound_room)
            emit_call(code, call.function, places, low, high)

        code.each(0, code.load("i64", code.at(counts, 8 * number)), chunk)
        look()
    meet(len(made.calls))
    look()
    look()
    code.finish()


def _fastest(times: Sequence[int]) -> list[int]:
    """Where the least tenth of the times stands."""
    return sorted(range(len(times)), key=times.__getitem__)[: -(-len(times) // 10)]


def _by_call(stretches: npt.NDArray[np.float64], hand: Hand) -> list[list[float]]:
    """The chunks of each call. Between two calls lies a stretch in which the hands meet."""
    found, at, times = [], 0, stretches.tolist()
    for count in hand.counts.tolist():
        found.append(times[at : at + count])
        at += count + 1
    return found


def run_of(address: Address) -> Callable[..., None]:
    """The function of a network (`calls.emit_network`) on one thread."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)(address)


def job(function: Address, heads: Sequence[Address], calls: int, threads: int) -> npt.NDArray[np.int64]:
    """The memory of a job (`emit.sharing`) of a network for so many threads, with which one worker may help."""
    raw = np.zeros((HEAD_BYTES + calls * claim_bytes(threads) + 64) // 8, np.int64)
    made = raw[(-raw.ctypes.data % 64) // 8 :]
    made[1:6] = [function, *heads, 1]
    return made


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
