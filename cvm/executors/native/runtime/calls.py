"""The functions that run the calls of a network in order, on one thread or on several.

Each call is split into chunks, which threads claim by the code of `emit.sharing`. Chunks write different elements, so
the result depends neither on the thread that computes a chunk nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.emit.ir import Code, Module, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import (
    ARENA,
    ARRAYS,
    CONSTANTS,
    claim_bytes,
    emit_begin,
    emit_claim,
    emit_next,
    emit_wait,
)
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.records import dataclass

__all__ = ["arguments_of", "chunks", "emit_call", "emit_check", "emit_network", "emit_start",
           "emit_together", "steps"]  # fmt: skip

GRAIN = 4_000
"""The least estimated time of a chunk, in nanoseconds, if a call has more chunks than there are threads."""
LEAST = 500
"""The least estimated time of a chunk, in nanoseconds."""
TOGETHER = 4
"""The vectors of an input that are checked at a time: as many additions and comparisons do not wait for one another."""


def chunks(units: int, cost: float, threads: int, per_thread: int) -> int:
    """The number of chunks into which a call is split. A counter has 16 bits for it.

    A call gets one chunk for each thread even if these are smaller than others may be. If it has more, all threads get
    equally many: if one of two threads has one chunk and the other two, a third of the work waits for nothing.
    """
    count = min(units, per_thread * threads, int(cost // GRAIN)) // threads * threads
    return max(1, min(count or min(units, threads, int(cost // LEAST)), 2**16 - 1))


@dataclass(frozen=True, slots=True)
class Step:
    """Calls between two barriers: one call in several chunks, or some calls that one thread makes one after the other,
    in a single chunk.
    """

    calls: tuple[KernelCall, ...]
    chunks: int


def steps(calls: Sequence[KernelCall], threads: int) -> list[Step]:
    """The steps of a run: no barrier separates neighbouring calls that are not split."""
    made: list[Step] = []
    for call in calls:
        count = chunks(call.units, call.cost, threads, call.per_thread)
        if count == 1 and made and made[-1].chunks == 1:
            made[-1] = Step((*made[-1].calls, call), 1)
        else:
            made.append(Step((call,), count))
    return made


def emit_network(
    module: Module, name: str, plan: Plan, calls: Sequence[KernelCall], machine: Machine, threads: int
) -> None:
    """Write the function ``name(arena, constants, arrays, claims, epoch, thread)``, which runs the calls in order.

    ``claims`` is the memory of the counters of these calls, ``thread`` the number of the thread that calls it.
    """
    names = ("arena", "constants", "arrays", "claims")
    memory, constants, arrays, claims = (V("ptr", f"%{name}") for name in names)
    epoch, thread = V("i64", "%epoch"), V("i64", "%thread")
    code = Code(module, name, [memory, constants, arrays, claims, epoch, thread])
    if threads > 1:
        emit_claim(module)
        emit_next(module, threads)
        emit_wait(module, machine)
    for number, step in enumerate(steps(calls, threads)):
        counters = None if threads == 1 else code.at(claims, number * claim_bytes(threads))
        every = [(call, arguments_of(code, plan, call, memory, constants, arrays)) for call in step.calls]
        if counters is None:
            for call, arguments in every:
                emit_call(code, call.function, arguments, V("i64", "0"), V("i64", str(call.units)))
        else:
            _shared(code, every, step.chunks, _Turn(counters, epoch, thread))
    code.finish()


def arguments_of(code: Code, plan: Plan, call: KernelCall, arena: V, constants: V, arrays: V) -> list[V]:
    """The addresses that a call gets. ``arrays`` is the address of those of the caller's arrays."""
    found = []
    for buffer, offset in call.arguments:
        if buffer.kind == "arena":
            found.append(code.at(arena, plan.offsets[buffer] + offset))
        elif buffer.kind == "constants":
            found.append(code.at(constants, offset))
        else:
            found.append(code.at(code.load("ptr", code.at(arrays, 8 * buffer.index), 8), offset))
    return found


def emit_check(module: Module, bounds: Sequence[tuple[int, int, int]], machine: Machine) -> None:
    """Write the function ``check(arrays)``, which checks the elements of the arrays that a network reads.

    ``arrays`` are their addresses, ``bounds`` has (elements, least, largest) of each. The result is the number of the
    first array with an element outside its bounds, or -1 if there is none.
    """
    arrays = V("ptr", "%arrays")
    code = Code(module, "check", [arrays], result="i64")
    for index, (count, least, largest) in enumerate(bounds):
        array = code.load("ptr", code.at(arrays, 8 * index))
        bad = _outside(code, array, count, least, largest, machine.width)
        outside, inside = code.fresh(), code.fresh()
        code.line(f"br {bad}, label %{outside}, label %{inside}")
        code.label(outside)
        code.line(f"ret i64 {index}")
        code.label(inside)
    code.finish("i64 -1")


def emit_start(module: Module, runs: str | None, name: str = "start") -> None:
    """Write the function ``name(job)``, which Python calls; `emit.sharing` says what a job is.

    It returns the result of ``check`` for the arrays of the job. If that is -1, it has also called the function
    ``runs`` with the arena, the constants and the arrays of the job, and without claims, unless ``runs`` is None.
    """
    job = V("ptr", "%job")
    code = Code(module, name, [job], result="i64")
    arena, constants, arrays = (code.load("ptr", code.at(job, offset), 8) for offset in (ARENA, CONSTANTS, ARRAYS))
    _checked(code, arrays)
    if runs:
        code.line(f"call void @{runs}({arena}, {constants}, {arrays}, ptr null, i64 0, i64 0)")
    code.finish("i64 -1")


def emit_together(module: Module) -> None:
    """Write the function ``together(control, job)``: as ``start``, but workers help to run the job."""
    emit_begin(module)
    control, job = V("ptr", "%control"), V("ptr", "%job")
    code = Code(module, "together", [control, job], result="i64")
    _checked(code, code.load("ptr", code.at(job, ARRAYS), 8))
    code.line(f"call void @begin({control}, {job})")
    code.finish("i64 -1")


def _checked(code: Code, arrays: V) -> None:
    """Return the result of ``check`` unless that is -1."""
    found = code.value("i64", f"call i64 @check({arrays})")
    refused, fine = code.fresh(), code.fresh()
    code.line(f"br {code.compare('sge', found, 0)}, label %{refused}, label %{fine}")
    code.label(refused)
    code.line(f"ret {found}")
    code.label(fine)


def _outside(code: Code, array: V, count: int, least: int, largest: int, width: int) -> V:
    """Whether any element x is outside [least, largest], that is, x - least > largest - least as unsigned numbers."""
    bad, done = typed("i1", 0), 0
    for size in (TOGETHER * width, width, 1):
        end = done + (count - done) // size * size
        if end == done:
            continue

        def further(index: V, found: list[V], size: int = size) -> list[V]:
            values = code.load(vector(32, size), code.at(array, code.mul(index, 4)))
            return [code.intrinsic("umax", found[0], code.binary("sub", values, least))]

        (most,) = code.loop(done, end, size, further, [typed(vector(32, size), 0)])
        if size > 1:
            most = code.call("i32", f"llvm.vector.reduce.umax.v{size}i32", most)
        bad = code.binary("or", bad, code.compare("ugt", most, (largest - least + 2**31) % 2**32 - 2**31))
        done = end
    return bad


def emit_call(code: Code, function: str, arguments: Sequence[V], lo: V, hi: V) -> None:
    """Write the call of a kernel for the units from ``lo`` to ``hi``."""
    code.line(f"call void @{function}({', '.join(map(str, (*arguments, lo, hi)))})")


@dataclass(frozen=True, slots=True)
class _Turn:
    """How a thread shares a step: the counters of its chunks, the epoch, and the thread."""

    counters: V
    epoch: V
    thread: V


def _shared(code: Code, calls: Sequence[tuple[KernelCall, Sequence[V]]], count: int, turn: _Turn) -> None:
    """Write the code that computes chunks of a step until all are done, by this thread or by others."""
    again, work, done = code.fresh(), code.fresh(), code.fresh()
    before, last = code.block, code.unused()
    code.line(f"br label %{again}")
    code.label(again)
    code.line(f"{last} = phi i64 [-1, %{before}], [{last}.claimed, %{work}]")
    given = (turn.counters, turn.epoch, f"i64 {count}", turn.thread, f"i64 {last}")
    code.line(f"{last}.claimed = call i64 @next({', '.join(map(str, given))})")
    claimed = V("i64", f"{last}.claimed")
    code.line(f"br {code.compare('sge', claimed, 0)}, label %{work}, label %{done}")
    code.label(work)
    for call, arguments in calls:
        low, high = V("i64", "0"), V("i64", str(call.units))
        if count > 1:
            low = code.binary("udiv", code.binary("mul", claimed, call.units), count)
            high = code.binary("udiv", code.binary("mul", code.binary("add", claimed, 1), call.units), count)
        emit_call(code, call.function, arguments, low, high)
    code.line(f"br label %{again}")
    code.label(done)
