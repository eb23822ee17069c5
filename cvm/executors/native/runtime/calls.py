"""The functions that run the calls of a network in order, on one thread or on several.

Each call is split into chunks, which threads claim by the code of `emit.sharing`. Chunks write different elements, so
the result depends neither on the thread that computes a chunk nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cvm.executors.native.emit.ir import Code, Module, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import CLAIM_BYTES, emit_claim, emit_wait
from cvm.executors.native.plan.steps import KernelCall, Plan

__all__ = ["DIRECT", "chunks", "emit_network", "emit_start"]

DIRECT = 512
"""A network of at most this many arrays takes them as arguments: foreign functions have at most 1,024 arguments."""
CHUNKS = 4
"""The number of chunks of a call per thread. If a thread loses its core, the others wait for one chunk at most."""
GRAIN = 4_000
"""The least estimated time of a chunk, in nanoseconds."""


def chunks(units: int, cost: float, threads: int) -> int:
    """The number of chunks into which a call is split. The counter of a call has 16 bits for it."""
    return max(1, min(units, CHUNKS * threads, int(cost // GRAIN), 2**16 - 1))


def emit_network(
    module: Module, name: str, plan: Plan, calls: Sequence[KernelCall], machine: Machine, threads: int
) -> None:
    """Write the function ``name(arena, constants, arrays, claims, epoch)``, which runs the calls in order.

    ``claims`` is the memory of the counters of these calls.
    """
    names = ("arena", "constants", "arrays", "claims")
    memory, constants, arrays, claims = (V("ptr", f"%{name}") for name in names)
    epoch = V("i64", "%epoch")
    code = Code(module, name, [memory, constants, arrays, claims, epoch])
    used = {buffer.index for call in calls for buffer, _ in call.arguments if buffer.kind == "array"}
    given = {index: code.load("ptr", code.at(arrays, 8 * index)) for index in sorted(used)}
    if threads > 1:
        emit_claim(module)
        emit_wait(module, machine)
    mine = code.alloca("i64", 1)
    for number, call in enumerate(calls):
        arguments = []
        for buffer, offset in call.arguments:
            if buffer.kind == "arena":
                arguments.append(code.at(memory, plan.offsets[buffer] + offset))
            elif buffer.kind == "constants":
                arguments.append(code.at(constants, offset))
            else:
                arguments.append(code.at(given[buffer.index], offset))
        if threads == 1:
            _call(code, call.function, arguments, V("i64", "0"), V("i64", str(call.units)))
        else:
            count = chunks(call.units, call.cost, threads)
            claim = code.at(claims, number * CLAIM_BYTES)
            _shared(code, call.function, arguments, call.units, count, claim, epoch, mine)
    code.finish()


def emit_start(
    module: Module, arrays: int, bounds: Sequence[tuple[int, int, int]], machine: Machine, runs: str | None
) -> None:
    """Write the function ``start(arena, constants, table, claims, epoch, array..)``, which Python calls.

    More than `DIRECT` arrays are passed as one array of their addresses. The function writes the addresses of all
    arrays into the table, and checks the elements of those that the network reads; ``bounds`` has (elements, least,
    largest) of each. It returns the number of the first array with an element outside its bounds, or -1 if there is
    none. In the latter case it has also called the function ``runs``, unless that is None.
    """
    names = ("arena", "constants", "table", "claims")
    memory, constants, table, claims = (V("ptr", f"%{name}") for name in names)
    epoch = V("i64", "%epoch")
    direct = arrays <= DIRECT
    given = [V("ptr", f"%array{index}") for index in range(arrays if direct else 1)]
    code = Code(module, "start", [memory, constants, table, claims, epoch, *given], result="i64")
    if not direct:
        given = [code.load("ptr", code.at(given[0], 8 * index)) for index in range(arrays)]
    for index, (count, least, largest) in enumerate(bounds):
        bad = _outside(code, given[index], count, least, largest, machine.width)
        outside, inside = code.fresh(), code.fresh()
        code.line(f"br {bad}, label %{outside}, label %{inside}")
        code.label(outside)
        code.line(f"ret i64 {index}")
        code.label(inside)
    for index, array in enumerate(given):
        code.store(array, code.at(table, 8 * index), 8)
    if runs:
        code.line(f"call void @{runs}({memory}, {constants}, {table}, {claims}, {epoch})")
    code.finish("i64 -1")


def _outside(code: Code, array: V, count: int, least: int, largest: int, width: int) -> V:
    """Whether any element x is outside [least, largest], that is, x - least > largest - least as unsigned numbers."""
    whole = count // width * width

    def check(size: int) -> Callable[[V, list[V]], list[V]]:
        def body(index: V, found: list[V]) -> list[V]:
            values = code.load(vector(32, size), code.at(array, code.mul(index, 4)))
            moved = code.binary("sub", values, least)
            bad = code.cast("zext", code.compare("ugt", moved, (largest - least + 2**31) % 2**32 - 2**31), 32)
            return [code.binary("or", found[0], bad)]

        return body

    wide = code.loop(0, whole, width, check(width), [typed(vector(32, width), 0)])[0]
    single = code.loop(whole, count, 1, check(1), [typed("i32", 0)])[0]
    total = code.call("i32", f"llvm.vector.reduce.or.v{width}i32", wide)
    return code.compare("ne", code.binary("or", total, single), 0)


def _call(code: Code, function: str, arguments: Sequence[V], lo: V, hi: V) -> None:
    code.line(f"call void @{function}({', '.join(map(str, (*arguments, lo, hi)))})")


def _shared(
    code: Code, function: str, arguments: Sequence[V], units: int, count: int, claims: V, epoch: V, mine: V
) -> None:
    """Write the code that computes chunks until none is left to claim, then waits for the chunks of other threads.

    A thread counts its chunks in ``mine`` and adds their number once: all threads write this counter, one after the
    other.
    """
    finished = code.at(claims, 64)
    again, work, done = code.fresh(), code.fresh(), code.fresh()
    code.store(typed("i64", 0), mine)
    code.line(f"br label %{again}")
    code.label(again)
    claimed = code.value("i64", f"call i64 @claim({claims}, {epoch}, i64 {count})")
    some = code.compare("sge", claimed, 0)
    code.line(f"br {some}, label %{work}, label %{done}")
    code.label(work)
    low = code.binary("udiv", code.binary("mul", claimed, units), count)
    high = code.binary("udiv", code.binary("mul", code.binary("add", claimed, 1), units), count)
    _call(code, function, arguments, low, high)
    code.store(code.binary("add", code.load("i64", mine), 1), mine)
    code.line(f"br label %{again}")
    code.label(done)
    added = code.load("i64", mine)

    def add() -> None:
        code.line(f"{code.unused()} = atomicrmw add {finished}, {added} acq_rel")

    code.when(code.compare("sgt", added, 0), add)
    goal = code.binary("mul", epoch, count)
    code.line(f"call void @await({finished}, {goal})")
