"""What a network does besides computing: several threads share its calls.

Every call is cut into chunks. A thread claims the next chunk with a compare-and-swap on the call's counter, which also
holds the epoch - the number of the run - so that nothing must be reset and a thread that comes late finds nothing left.
A call is done when all its chunks are; who has nothing to do waits with a pause, then yields. Chunks write different
elements, so the result does not depend on who computes them, nor on how many do.

Workers and those who run networks meet in a control block: (ticket, stop, job, busy), then one cache line per worker:
(sleeps, job that it is in). A job is ``HEAD_BYTES`` of (epoch, function, arena, constants, arrays, workers), then its
claims. A job is shown for as long as it runs; a worker notes that it is in a job and looks whether it is still shown
before it touches it, so a job that is shown no more and that nobody is in may be freed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cvm.executors.native.emit.ir import Code, Module, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.steps import Call, Plan

__all__ = ["BUSY", "CLAIM_BYTES", "DIRECT", "HEAD_BYTES", "JOB", "LINE", "LINES", "STOP", "TICKET", "chunks",
           "emit_network", "emit_start", "emit_worker"]  # fmt: skip

CLAIM_BYTES = 128
"""Bytes per call: the claimed chunks in one cache line, the finished ones in the next."""
HEAD_BYTES = 64
"""Bytes of a job before its claims: epoch, function, arena, constants, arrays, workers wanted."""
TICKET, STOP, JOB, BUSY = 0, 8, 16, 24
"""Places in the control block."""
LINES, LINE = 64, 64
"""Where the lines of the workers begin, and how far they are apart."""
DIRECT = 512
"""Arrays that a call takes one by one: foreign functions have 1,024 arguments at most."""
CHUNKS = 4
"""Chunks of a call for each thread: a thread that loses its core costs at most one of them."""
SPINS = 2000
"""Pauses before a waiting thread yields its core."""
GRAIN = 4_000
"""Nanoseconds (as estimated) that a chunk should take at least."""


def chunks(units: int, cost: float, threads: int) -> int:
    """Into how many chunks a call is cut: no more than 16 bits of its counter hold."""
    return max(1, min(units, CHUNKS * threads, int(cost // GRAIN), 2**16 - 1))


def emit_network(module: Module, name: str, plan: Plan, calls: Sequence[Call], machine: Machine, threads: int) -> None:
    """The function ``name(arena, constants, arrays, claims, epoch)``: these calls in order, by one thread or several.

    ``claims`` are for these calls alone.
    """
    names = ("arena", "constants", "arrays", "claims")
    memory, constants, arrays, claims = (V("ptr", f"%{name}") for name in names)
    epoch = V("i64", "%epoch")
    code = Code(module, name, [memory, constants, arrays, claims, epoch])
    used = {buffer.place for call in calls for buffer, _ in call.arguments if buffer.kind == "array"}
    given = {place: code.load("ptr", code.at(arrays, 8 * place)) for place in sorted(used)}
    if threads > 1:
        _emit_claim(module)
        _emit_wait(module, machine)
    for number, call in enumerate(calls):
        arguments = []
        for buffer, offset in call.arguments:
            if buffer.kind == "arena":
                arguments.append(code.at(memory, plan.offsets[buffer] + offset))
            elif buffer.kind == "constants":
                arguments.append(code.at(constants, offset))
            else:
                arguments.append(code.at(given[buffer.place], offset))
        if threads == 1:
            _call(code, call.function, arguments, V("i64", "0"), V("i64", str(call.units)))
        else:
            count = chunks(call.units, call.cost, threads)
            _shared(code, call.function, arguments, call.units, count, code.at(claims, number * CLAIM_BYTES), epoch)
    code.finish()


def emit_start(
    module: Module, arrays: int, bounds: Sequence[tuple[int, int, int]], machine: Machine, runs: str | None
) -> None:
    """The function ``start(arena, constants, table, claims, epoch, array..)``: what a caller calls. More than `DIRECT`
    arrays come as one, of their addresses.

    It checks the arrays that are read - ``bounds`` are (elements, least, largest) of each - and writes the addresses of
    all into the table. The result is the number of the first one with an element outside, or -1; in the latter case the
    network called ``runs`` has run, if there is one.
    """
    names = ("arena", "constants", "table", "claims")
    memory, constants, table, claims = (V("ptr", f"%{name}") for name in names)
    epoch = V("i64", "%epoch")
    direct = arrays <= DIRECT
    given = [V("ptr", f"%array{place}") for place in range(arrays if direct else 1)]
    code = Code(module, "start", [memory, constants, table, claims, epoch, *given], result="i64")
    if not direct:
        given = [code.load("ptr", code.at(given[0], 8 * place)) for place in range(arrays)]
    for place, (count, least, largest) in enumerate(bounds):
        bad = _outside(code, given[place], count, least, largest, machine.width)
        outside, inside = code.fresh(), code.fresh()
        code.line(f"br {bad}, label %{outside}, label %{inside}")
        code.label(outside)
        code.line(f"ret i64 {place}")
        code.label(inside)
    for place, array in enumerate(given):
        code.store(array, code.at(table, 8 * place), 8)
    if runs:
        code.line(f"call void @{runs}({memory}, {constants}, {table}, {claims}, {epoch})")
    code.finish("i64 -1")


def _outside(code: Code, array: V, count: int, least: int, largest: int, width: int) -> V:
    """Whether any element is outside [least, largest]: as unsigned numbers, x - least > largest - least."""
    whole = count // width * width

    def some(size: int) -> Callable[[V, list[V]], list[V]]:
        def body(index: V, found: list[V]) -> list[V]:
            values = code.load(vector(32, size), code.at(array, code.mul(index, 4)))
            moved = code.binary("sub", values, least)
            bad = code.cast("zext", code.compare("ugt", moved, (largest - least + 2**31) % 2**32 - 2**31), 32)
            return [code.binary("or", found[0], bad)]

        return body

    wide = code.loop(0, whole, width, some(width), [typed(vector(32, width), 0)])[0]
    single = code.loop(whole, count, 1, some(1), [typed("i32", 0)])[0]
    total = code.call("i32", f"llvm.vector.reduce.or.v{width}i32", wide)
    return code.compare("ne", code.binary("or", total, single), 0)


def _call(code: Code, function: str, arguments: Sequence[V], lo: V, hi: V) -> None:
    code.line(f"call void @{function}({', '.join(map(str, (*arguments, lo, hi)))})")


def _shared(code: Code, function: str, arguments: Sequence[V], units: int, count: int, claims: V, epoch: V) -> None:
    """Claim chunks until none is left, then wait for those of others."""
    finished = code.at(claims, 64)
    again, work, done = code.fresh(), code.fresh(), code.fresh()
    code.line(f"br label %{again}")
    code.label(again)
    claimed = code.value("i64", f"call i64 @claim({claims}, {epoch}, i64 {count})")
    some = code.compare("sge", claimed, 0)
    code.line(f"br {some}, label %{work}, label %{done}")
    code.label(work)
    low = code.binary("udiv", code.binary("mul", claimed, units), count)
    high = code.binary("udiv", code.binary("mul", code.binary("add", claimed, 1), units), count)
    _call(code, function, arguments, low, high)
    code.line(f"{code.unused()} = atomicrmw add {finished}, i64 1 acq_rel")
    code.line(f"br label %{again}")
    code.label(done)
    goal = code.binary("mul", epoch, count)
    code.line(f"call void @await({finished}, {goal})")


def _emit_claim(module: Module) -> None:
    """``claim(counter, epoch, count)``: the next chunk of this epoch, or -1.

    The counter is (epoch << 16) + chunks claimed in it; an older epoch counts as none, a newer one as all.
    """
    module.functions["claim"] = """define i64 @claim(ptr %counter, i64 %epoch, i64 %count) nounwind noinline {
entry:
  %mine = shl i64 %epoch, 16
  br label %look
look:
  %found = load atomic i64, ptr %counter acquire, align 8
  %theirs = lshr i64 %found, 16
  %late = icmp ugt i64 %theirs, %epoch
  br i1 %late, label %none, label %count_them
count_them:
  %same = icmp eq i64 %theirs, %epoch
  %low = and i64 %found, 65535
  %taken = select i1 %same, i64 %low, i64 0
  %all = icmp sge i64 %taken, %count
  br i1 %all, label %none, label %try
try:
  %more = add i64 %taken, 1
  %next = or i64 %mine, %more
  %pair = cmpxchg ptr %counter, i64 %found, i64 %next acq_rel acquire
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %got, label %look
got:
  ret i64 %taken
none:
  ret i64 -1
}"""


def _emit_wait(module: Module, machine: Machine) -> None:
    """``await(counter, goal)``: return when the counter has reached the goal."""
    pause, yields = _pauses(module, machine)
    module.functions["await"] = f"""define void @await(ptr %counter, i64 %goal) nounwind noinline {{
entry:
  br label %look
look:
  %spins = phi i64 [0, %entry], [%more, %rest], [0, %leave]
  %found = load atomic i64, ptr %counter acquire, align 8
  %reached = icmp sge i64 %found, %goal
  br i1 %reached, label %done, label %count
count:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, {SPINS}
  br i1 %long, label %leave, label %rest
rest:
  {pause}
  br label %look
leave:
  {yields}
  br label %look
done:
  ret void
}}"""


def emit_worker(module: Module, machine: Machine) -> None:
    """``worker``, ``start`` and ``settle``.

    * ``worker(control, index, seen, budget)``: run jobs as they come; return the last ticket seen after ``budget`` idle
      looks.
    * ``start(control, job)``: run a job, and show it to the workers where no other job has them. It is all that a run
      needs: whatever happens to the caller before or after, epochs and claims agree.
    * ``settle(control, lines, job)``: return when none of so many workers is in the job.
    """
    pause, yields = _pauses(module, machine)
    module.functions["worker"] = f"""define i64 @worker(ptr %control, i64 %index, i64 %seen, i64 %budget) nounwind {{
entry:
  %stop.at = getelementptr i8, ptr %control, i64 {STOP}
  %job.at = getelementptr i8, ptr %control, i64 {JOB}
  %line = mul i64 %index, {LINE}
  %in = add i64 %line, {LINES + 8}
  %in.at = getelementptr i8, ptr %control, i64 %in
  br label %look
look:
  %last = phi i64 [%seen, %entry], [%last, %rest], [%ticket, %ran]
  %spins = phi i64 [0, %entry], [%more, %rest], [0, %ran]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %done, label %ask
ask:
  %ticket = load atomic i64, ptr %control acquire, align 8
  %same = icmp eq i64 %ticket, %last
  br i1 %same, label %idle, label %fetch
idle:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, %budget
  br i1 %long, label %done, label %rest
rest:
  {pause}
  br label %look
fetch:
  %job.int = load atomic i64, ptr %job.at seq_cst, align 8
  store atomic i64 %job.int, ptr %in.at seq_cst, align 8
  %shown = load atomic i64, ptr %job.at seq_cst, align 8
  %kept = icmp eq i64 %job.int, %shown
  %some = icmp ne i64 %job.int, 0
  %safe = and i1 %kept, %some
  br i1 %safe, label %enter, label %ran
enter:
  %job = inttoptr i64 %job.int to ptr
  %epoch = load atomic i64, ptr %job acquire, align 8
  %workers.at = getelementptr i8, ptr %job, i64 40
  %workers = load i64, ptr %workers.at, align 8
  %wanted = icmp slt i64 %index, %workers
  br i1 %wanted, label %work, label %ran
work:
  call void @run(ptr %job, i64 %epoch)
  br label %ran
ran:
  store atomic i64 0, ptr %in.at seq_cst, align 8
  br label %look
done:
  ret i64 %last
}}"""
    module.functions["start"] = f"""define void @start(ptr %control, ptr %job) nounwind {{
entry:
  %before = load atomic i64, ptr %job acquire, align 8
  %epoch = add i64 %before, 1
  store atomic i64 %epoch, ptr %job release, align 8
  %busy.at = getelementptr i8, ptr %control, i64 {BUSY}
  %pair = cmpxchg ptr %busy.at, i64 0, i64 1 acq_rel acquire
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %show, label %alone
show:
  %job.at = getelementptr i8, ptr %control, i64 {JOB}
  %job.int = ptrtoint ptr %job to i64
  store atomic i64 %job.int, ptr %job.at seq_cst, align 8
  %ticket = atomicrmw add ptr %control, i64 1 seq_cst
  call void @run(ptr %job, i64 %epoch)
  store atomic i64 0, ptr %job.at seq_cst, align 8
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
alone:
  call void @run(ptr %job, i64 %epoch)
  ret void
}}"""
    module.functions["run"] = f"""define void @run(ptr %job, i64 %epoch) nounwind noinline {{
entry:
  %function.at = getelementptr i8, ptr %job, i64 8
  %function = load ptr, ptr %function.at, align 8
  %arena.at = getelementptr i8, ptr %job, i64 16
  %arena = load ptr, ptr %arena.at, align 8
  %constants.at = getelementptr i8, ptr %job, i64 24
  %constants = load ptr, ptr %constants.at, align 8
  %arrays.at = getelementptr i8, ptr %job, i64 32
  %arrays = load ptr, ptr %arrays.at, align 8
  %claims = getelementptr i8, ptr %job, i64 {HEAD_BYTES}
  call void %function(ptr %arena, ptr %constants, ptr %arrays, ptr %claims, i64 %epoch)
  ret void
}}"""
    module.functions["settle"] = f"""define void @settle(ptr %control, i64 %lines, ptr %job) nounwind {{
entry:
  %mine = ptrtoint ptr %job to i64
  br label %next
next:
  %index = phi i64 [0, %entry], [%following, %clear]
  %more = icmp slt i64 %index, %lines
  br i1 %more, label %enter, label %done
enter:
  %line = mul i64 %index, {LINE}
  %in = add i64 %line, {LINES + 8}
  %in.at = getelementptr i8, ptr %control, i64 %in
  br label %look
look:
  %job.int = load atomic i64, ptr %in.at seq_cst, align 8
  %inside = icmp eq i64 %job.int, %mine
  br i1 %inside, label %rest, label %clear
rest:
  {yields}
  br label %look
clear:
  %following = add i64 %index, 1
  br label %next
done:
  ret void
}}"""


def _pauses(module: Module, machine: Machine) -> tuple[str, str]:
    """A short rest, and giving the core away."""
    if machine.pause:
        module.declarations.add(f"declare void @{machine.pause}()")
    pause = f"call void @{machine.pause}()" if machine.pause else "fence acquire"
    if os.name != "posix":
        return pause, pause
    module.declarations.add("declare i32 @sched_yield()")
    return pause, "%ignored = call i32 @sched_yield()"
