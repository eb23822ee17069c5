"""How threads share the calls of a network: claims of chunks, waiting, and the workers.

The chunks of a call are divided into as many ranges as there are threads, but at most `RANGES`. A thread claims the
chunks of its own range first, then those that are left in others. So a thread computes the same part of each tensor,
which stays in its core's cache, and hardly anybody else writes the counter that it claims from.

A thread claims the next chunk of a range with a compare-and-swap on the range's counter. The counter also holds the
epoch, the number of the run. So nothing has to be reset between runs, and a thread that comes late finds no chunk left
to claim. Beside it, in the same cache line, lies the number of chunks of the range that are done. A call is done when
all chunks of all ranges are. A thread without a chunk pauses, then yields its core. So where two threads share a call,
each of them waits for one line of the other, which it has to look into anyway.

Workers and the threads that run networks share a control block: a cache line of (ticket, stop), which idle workers
watch, one of (job, busy), then one per worker: (whether it sleeps, the job that it is in). A job is ``HEAD_BYTES`` of
(epoch, function, arena, constants, arrays, workers), then its claims. The control block shows a job for as long as it
runs. A worker first writes the job that it enters into its own line, then checks that the control block still shows
this job, and only then reads the job. So a job may be freed when it is no longer shown and no worker's line names it.
"""

from __future__ import annotations

import os

from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine

__all__ = ["ARENA", "ARRAYS", "BUSY", "CONSTANTS", "COUNTER", "FINISHED", "HEAD_BYTES", "JOB", "LINE", "LINES",
           "RANGES", "STOP", "TICKET", "claim_bytes", "emit_begin", "emit_claim", "emit_next", "emit_wait",
           "emit_worker", "ranges"]  # fmt: skip

RANGES = 8
"""The most ranges of a call. Neighbouring threads share one if there are more threads."""
COUNTER = 64
"""The bytes of a range's counters: a cache line of their own."""
FINISHED = 8
"""The offset of the counter of finished chunks behind that of claimed ones, in bytes."""
HEAD_BYTES = 64
"""Bytes of a job before its claims: epoch, function, arena, constants, arrays, number of workers that may help."""
ARENA, CONSTANTS, ARRAYS = 16, 24, 32
"""Offsets in a job, in bytes."""
TICKET, STOP, JOB, BUSY = 0, 8, 64, 72
"""Offsets in the control block, in bytes. A run writes its job and that it is busy where no idle worker looks."""
LINES, LINE = 128, 64
"""The offset of the first worker's line, and the number of bytes from one line to the next."""
SPINS = 2000
"""How often a waiting thread pauses before it yields its core."""


def ranges(threads: int) -> int:
    """The number of ranges into which the chunks of a call are divided."""
    return min(threads, RANGES)


def claim_bytes(threads: int) -> int:
    """Bytes per call: for each range, a counter of claimed chunks and one of finished chunks."""
    return COUNTER * ranges(threads)


def emit_claim(module: Module) -> None:
    """Write ``claim(counter, epoch, count)``, which returns the next chunk of this epoch, or -1 if none is left.

    The counter is (epoch << 16) + the number of chunks claimed in that epoch. If it holds an older epoch, no chunk of
    this epoch is claimed yet; if it holds a newer one, all are.
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


def emit_next(module: Module, threads: int) -> None:
    """Write ``next(counters, epoch, count, thread, last)``, which claims one of ``count`` chunks for a thread.

    ``last`` is the chunk that the thread has just computed, which counts as done from now on, or -1. The ranges are
    tried in turn, from the thread's own on. If no chunk is left in any, the function waits until all are done, and
    returns -1.
    """
    most, arguments = ranges(threads), "ptr %counters, i64 %epoch, i64 %count, i64 %thread, i64 %last"
    module.functions["next"] = f"""define i64 @next({arguments}) nounwind noinline {{
entry:
  %new = icmp slt i64 %last, 0
  br i1 %new, label %begin, label %finish
finish:
  %last.scaled = mul i64 %last, {most}
  %last.range = udiv i64 %last.scaled, %count
  %last.offset = mul i64 %last.range, {COUNTER}
  %last.finished = add i64 %last.offset, {FINISHED}
  %last.at = getelementptr i8, ptr %counters, i64 %last.finished
  %before = atomicrmw add ptr %last.at, i64 1 acq_rel
  br label %begin
begin:
  %scaled = mul i64 %thread, {most}
  %home = udiv i64 %scaled, {threads}
  %own = urem i64 %home, {most}
  br label %try
try:
  %range = phi i64 [%own, %begin], [%following, %left]
  %tried = phi i64 [0, %begin], [%more, %left]
  %first = call i64 @first(i64 %range, i64 %count)
  %end = add i64 %range, 1
  %limit = call i64 @first(i64 %end, i64 %count)
  %size = sub i64 %limit, %first
  %offset = mul i64 %range, {COUNTER}
  %counter = getelementptr i8, ptr %counters, i64 %offset
  %claimed = call i64 @claim(ptr %counter, i64 %epoch, i64 %size)
  %none = icmp slt i64 %claimed, 0
  br i1 %none, label %left, label %got
left:
  %more = add i64 %tried, 1
  %wraps = icmp eq i64 %end, {most}
  %following = select i1 %wraps, i64 0, i64 %end
  %all = icmp eq i64 %more, {most}
  br i1 %all, label %wait, label %try
got:
  %chunk = add i64 %first, %claimed
  ret i64 %chunk
{_awaited(most)}
}}"""
    module.functions["first"] = _first(most)


def _awaited(most: int) -> str:
    """The blocks of ``next`` that wait until the chunks of all ranges are done, and return -1."""
    return f"""wait:
  %part = phi i64 [0, %left], [%part.end, %wait]
  %part.first = call i64 @first(i64 %part, i64 %count)
  %part.end = add i64 %part, 1
  %part.limit = call i64 @first(i64 %part.end, i64 %count)
  %part.size = sub i64 %part.limit, %part.first
  %goal = mul i64 %epoch, %part.size
  %part.offset = mul i64 %part, {COUNTER}
  %part.finished = add i64 %part.offset, {FINISHED}
  %part.at = getelementptr i8, ptr %counters, i64 %part.finished
  call void @await(ptr %part.at, i64 %goal)
  %complete = icmp eq i64 %part.end, {most}
  br i1 %complete, label %nothing, label %wait
nothing:
  ret i64 -1"""


def _first(most: int) -> str:
    """The function ``first(range, count)``, the first of ``count`` chunks in a range.

    A single chunk is in the range of the thread that starts a run. Chunk k is in the range k * ranges / count.
    """
    return f"""define internal i64 @first(i64 %range, i64 %count) nounwind alwaysinline {{
entry:
  %scaled = mul i64 %range, %count
  %up = add i64 %scaled, {most - 1}
  %chunk = udiv i64 %up, {most}
  ret i64 %chunk
}}"""


def emit_wait(module: Module, machine: Machine) -> None:
    """Write ``await(counter, goal)``, which returns when the counter has reached the goal."""
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
    """Write ``worker``, ``start`` and ``settle``.

    * ``worker(control, index, seen, budget)`` runs jobs as they are shown. After ``budget`` looks without a new job it
      returns the last ticket that it has seen.
    * ``start(control, job)`` runs a job as thread 0, and shows it to the workers unless another job has them. One call
      is a whole run: whatever happens to the caller before or after it, epochs and claims agree.
    * ``settle(control, lines, job)`` returns when none of the ``lines`` workers is in the job.
    """
    pause, yields = _pauses(module, machine)
    module.functions |= {"worker": _worker(pause), "start": _start("void @start"), "run": _RUN}
    module.functions["settle"] = _settle(yields)


def emit_begin(module: Module) -> None:
    """Write ``begin(control, job)``, which is ``start`` of `emit_worker` for the functions of the same module."""
    module.functions |= {"begin": _start("internal void @begin"), "run": _RUN}


def _worker(pause: str) -> str:
    return f"""define i64 @worker(ptr %control, i64 %index, i64 %seen, i64 %budget) nounwind {{
entry:
  %stop.at = getelementptr i8, ptr %control, i64 {STOP}
  %job.at = getelementptr i8, ptr %control, i64 {JOB}
  %thread = add i64 %index, 1
  %lines = getelementptr i8, ptr %control, i64 {LINES + 8}
  %in.at = getelementptr [{LINE} x i8], ptr %lines, i64 %index
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
  call void @run(ptr %job, i64 %epoch, i64 %thread)
  br label %ran
ran:
  store atomic i64 0, ptr %in.at seq_cst, align 8
  br label %look
done:
  ret i64 %last
}}"""


def _start(head: str) -> str:
    return f"""define {head}(ptr %control, ptr %job) nounwind {{
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
  call void @run(ptr %job, i64 %epoch, i64 0)
  store atomic i64 0, ptr %job.at seq_cst, align 8
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
alone:
  call void @run(ptr %job, i64 %epoch, i64 0)
  ret void
}}"""


_RUN = f"""define internal void @run(ptr %job, i64 %epoch, i64 %thread) nounwind noinline {{
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
  call void %function(ptr %arena, ptr %constants, ptr %arrays, ptr %claims, i64 %epoch, i64 %thread)
  ret void
}}"""


def _settle(yields: str) -> str:
    return f"""define void @settle(ptr %control, i64 %lines, ptr %job) nounwind {{
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
    """The instruction that pauses for a moment, and the one that yields the core."""
    if machine.pause:
        module.declarations.add(f"declare void @{machine.pause}()")
    pause = f"call void @{machine.pause}()" if machine.pause else "fence acquire"
    if os.name != "posix":
        return pause, pause
    module.declarations.add("declare i32 @sched_yield()")
    return pause, "%ignored = call i32 @sched_yield()"
