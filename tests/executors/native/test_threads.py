"""Threads: the same bytes from any number of them; nothing hangs, and nothing is freed too early."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import cvm
from cvm.executors import initial_state
from cvm.executors.native import NativeExecutor
from cvm.executors.native.emit import sharing
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.plan.steps import CHUNKS
from cvm.executors.native.runtime import calls, networks, threads
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.threads import Workers
from cvm.program import Output, Program, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.executors.native.comparison import MACHINES, compare, expected, require_equal
from tools.feeds import Feed, feeds
from tools.planted.networks import network

ROOT = Path(__file__).parents[3]
GENERIC = MACHINES[-1]
posix = pytest.mark.skipif(os.name != "posix", reason="fork and signals are POSIX'")


def small(channels: int = 32) -> Program:
    """A convolution, a pool and a sum, each split into chunks."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 8, 9, 9), -9, 9)
    weights = builder.constant(np.arange(72 * channels).reshape(channels, 8, 3, 3) % 7 - 3)
    (y,) = builder.add("conv2d", [x, weights], {"padding": (1, 1)})
    (z,) = builder.add("max_pool2d", [y], {"pool_size": (2, 2), "strides": (1, 1)})
    (s,) = builder.add("sum", [z], {"axes": (2, 3)})
    return builder.build([Output("y", y), Output("s", s)])


def ready(program: Program, count: int) -> tuple[VerifiedProgram, list[Feed], NativeExecutor, Callable[[int], None]]:
    """The verified program, inputs, an executor, and a run of one input that compares."""
    verified = verify(program)
    runs = feeds(program, 4)
    known = expected(verified, runs)
    native = NativeExecutor(verified, count, GENERIC)

    def run(index: int) -> None:
        found = native.run(runs[index % 4], initial_state(program)).values
        for name, tensor in found.items():
            np.testing.assert_array_equal(tensor, known[index % 4].values[name])

    return verified, runs, native, run


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    for aim, seed in (("convolutions", 11), ("depthwise convolutions", 12), ("reductions", 13), ("movement", 14)):
        compare(network(aim, seed), machines=MACHINES[:1], threads=(1, 2, 3, 7), captures=[frozenset()])
    compare(small(), machines=MACHINES, threads=(3, 7), captures=[frozenset()])


def test_calls_are_really_split() -> None:
    """What the tests of this folder share is shared: the calls of a small network have several chunks."""
    made = NativeExecutor(verify(small()), 2, GENERIC)._main
    counts = [calls.chunks(call.units, call.cost, 2, call.per_thread) for call in made.plan.calls]
    assert made.threads == 2
    assert max(counts) == 2 * CHUNKS


Next = Callable[[int, int, int, int, int], int]


def claims(count: int) -> tuple[Next, npt.NDArray[np.int64], Loaded]:
    """``next`` for so many threads, counters of one step at an address that is a multiple of 64, and the code."""
    module = Module()
    sharing.emit_claim(module)
    sharing.emit_wait(module, GENERIC)
    sharing.emit_next(module, count)
    loaded = Loaded(compiled(str(module), GENERIC), GENERIC)
    claim = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)(loaded.address("next"))
    room = np.zeros(sharing.claim_bytes(count) // 8 + 8, np.int64)
    return claim, room[(-room.ctypes.data % 64) // 8 :], loaded


@pytest.mark.parametrize("count", [2, 3, 8, 11])
@pytest.mark.parametrize("parts", [1, 2, 5, 37])
def test_a_thread_claims_its_own_range_first_and_every_chunk_is_claimed_once(count: int, parts: int) -> None:
    claim, room, _loaded = claims(count)
    counters, most = room.ctypes.data, sharing.ranges(count)
    for epoch, thread in enumerate([*range(count)] * 2, 1):
        home = thread * most // count
        own = list(range(-(-parts * home // most), -(-parts * (home + 1) // most)))
        found = [-1]
        for _ in range(parts + 1):
            found.append(claim(counters, epoch, parts, thread, found[-1]))
        assert found[1 : len(own) + 1] == own
        assert sorted(found[1:-1]) == list(range(parts))
        assert found[-1] == claim(counters, epoch, parts, (thread + 1) % count, -1) == -1
        if epoch > 1:
            assert claim(counters, epoch - 1, parts, thread, -1) == -1  # a thread that comes late finds nothing


@pytest.mark.parametrize("count", [2, 11])
def test_a_thread_waits_until_the_chunks_of_others_are_done(count: int) -> None:
    """A chunk is done when the thread that claimed it asks for the next one, whichever range it is of."""
    claim, room, _loaded = claims(count)
    counters, parts = room.ctypes.data, 5
    for epoch in (1, 2):
        held = [claim(counters, epoch, parts, 0, -1) for _ in range(parts)]
        assert sorted(held) == list(range(parts))
        ended = threading.Event()

        def wait(epoch: int = epoch, ended: threading.Event = ended) -> None:
            assert claim(counters, epoch, parts, count - 1, -1) == -1
            ended.set()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        for chunk in held[1:]:  # all but one are done
            before = int(room[1::8].sum())
            count_done(room, chunk, parts, count)
            assert int(room[1::8].sum()) == before + 1
        assert not ended.wait(0.05)
        assert claim(counters, epoch, parts, 0, held[0]) == -1
        assert ended.wait(60)
        waiting.join()


def count_done(room: npt.NDArray[np.int64], chunk: int, parts: int, count: int) -> None:
    """Count a chunk as done, as ``next`` would: beside the counter of the range that it was claimed from."""
    most = sharing.ranges(count)
    (found,) = (k for k in range(most) if -(-parts * k // most) <= chunk < -(-parts * (k + 1) // most))
    room[(found * sharing.COUNTER + sharing.FINISHED) // 8] += 1


@pytest.mark.skipif(threads._core() is None, reason="the system does not say on which core a thread runs")
def test_a_worker_wakes_on_another_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that wakes it goes on at once, so the two would take turns on one core."""
    moved: list[tuple[int, set[int]]] = []
    may = {0, 3, 5}
    monkeypatch.setattr(threads, "_core", lambda: 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: may)
    monkeypatch.setattr(os, "sched_setaffinity", lambda who, cores: moved.append((who, set(cores))))
    pool = Workers(GENERIC)
    try:
        pool._grow(1)
        worker = pool._threads[0]
        worker.wake(3)
        worker.wake(3)  # nothing has changed: the system is not asked again
        may = {3}
        worker.wake(3)  # there is no other core
        worker.wake(None)
        assert moved == [(worker.native_id, {0, 5})]
    finally:
        pool.stop()


@pytest.mark.slow
def test_small_work_is_not_shared_and_one_thread_starts_none() -> None:
    script = """
import threading
import numpy as np
from cvm.executors.native import NativeExecutor
from cvm.executors.native.runtime.select import available
from cvm.program import verify
from tests.executors.native.test_threads import small
executor = NativeExecutor(verify(small()), {threads}, available()[-1])
for _ in range(50):
    executor.run({{"x": np.ones((1, 8, 9, 9), np.int32)}}, {{}})
print(sorted(thread.name for thread in threading.enumerate()), executor._main.threads)
"""
    assert process(script.format(threads=2)) == "['MainThread'] 1"
    patched = "from cvm.executors.native.runtime import networks as one\none.WORTH = 0\n"
    assert process(patched + script.format(threads=1)) == "['MainThread'] 1"
    assert process(patched + script.format(threads=3)) == "['MainThread', 'cvm-worker-0', 'cvm-worker-1'] 3"


def process(script: str, seconds: float = 120) -> str:
    """The last line that a Python process prints, which must end well and in time."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=dict(os.environ)
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stderr == ""
    return done.stdout.splitlines()[-1]


def test_one_executor_serves_many_threads() -> None:
    _, _, _, run = ready(small(), 3)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(run, range(400)))) == 400


def test_one_session_serves_many_threads() -> None:
    program = small()
    session = cvm.Session(program, executor="native", threads=2)
    runs = feeds(program, 4)
    known = [session.run(feed)["s"].tolist() for feed in runs]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda index: session.run(runs[index % 4])["s"].tolist(), range(200)))
    assert found == [known[index % 4] for index in range(200)]


@pytest.mark.parametrize("count", [24, pytest.param(240, marks=pytest.mark.long)])
def test_many_executors_run_in_many_threads_at_once(count: int) -> None:
    """Each made, used and dropped in a thread of its own, while others have the workers."""
    program = small()
    verified, runs = verify(program), feeds(program, 4)
    known = expected(verified, runs)

    def live(number: int) -> None:
        require_equal(verified, runs, known, GENERIC, 1 + number % 5, frozenset())

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(live, range(count)))) == count


@pytest.mark.parametrize("rounds", [40, pytest.param(150, marks=pytest.mark.long)])
def test_jobs_are_freed_only_when_workers_have_left_them(rounds: int) -> None:
    """Workers that wake late find no memory, and no code, of executors that are gone."""
    program = small()
    verified, (feed, *_) = verify(program), feeds(program, 1)
    for number in range(rounds):
        native = NativeExecutor(verified, 2 + number % 7, GENERIC)
        if number % 3 == 0:
            time.sleep(0.002)  # workers sleep
        native.run(feed, {})
        del native
        if number % 10 == 0:
            gc.collect()
    compare(program, machines=[GENERIC], threads=[8], captures=[frozenset()])


def test_workers_of_a_stopped_run_help_the_next_one() -> None:
    """A job is hidden when it has run: nothing shows it but its own run."""
    _, _, native, run = ready(small(), 3)
    run(0)
    pool = threads.workers(GENERIC)
    assert pool.control[sharing.JOB // 8] == 0
    assert pool.control[sharing.BUSY // 8] == 0
    threads.settled(native._main._free[0].heads[0])
    before = int(pool.control[sharing.TICKET // 8])
    for index in range(5):
        run(index)
    assert int(pool.control[sharing.TICKET // 8]) == before + 5


def test_a_run_that_finds_the_workers_taken_runs_alone() -> None:
    _, _, _, run = ready(small(), 3)
    run(0)
    pool = threads.workers(GENERIC)
    pool.control[sharing.BUSY // 8] = 1
    try:
        before = int(pool.control[sharing.TICKET // 8])
        for index in range(5):
            run(index)
        assert int(pool.control[sharing.TICKET // 8]) == before
    finally:
        pool.control[sharing.BUSY // 8] = 0
    run(0)


def test_a_process_that_gets_no_threads_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Workers(GENERIC)
    monkeypatch.setattr(threads, "_pool", pool)

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        _, _, _, run = ready(small(), 4)
        for index in range(2000):
            run(index % 4)
    assert pool._threads == []
    run(0)
    assert len(pool._threads) == 3
    pool.stop()


def test_more_threads_than_a_counter_holds_chunks_of() -> None:
    native = NativeExecutor(verify(small()), 2**16 + 1, GENERIC)
    assert native._main.threads == 2**16 + 1
    assert calls.chunks(10**5, 1e12, 10**6, CHUNKS) == 2**16 - 1


@posix
def test_a_forked_child_computes_and_exits() -> None:
    script = """
import os, signal, sys, threading, time
import numpy as np
from cvm.executors.native.runtime import networks as one
one.WORTH = 0
from tests.executors.native.test_threads import ready, small
verified, runs, native, run = ready(small(), 3)
for index in range(20):
    run(index)
stop = threading.Event()
def always():
    while not stop.is_set():
        run(1)
others = [threading.Thread(target=always) for _ in range(2)]
for sleep in (0.0, 0.05) * 3:  # workers that look for work, and workers that sleep
    time.sleep(sleep)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for index in range(50):
            run(index)
        assert threading.active_count() >= 3
        sys.exit(7)  # with everything that an interpreter does at its end
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    run(2)
for other in others:
    other.start()
for _ in range(5):  # while other threads run, who are not there in the child
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for index in range(20):
            run(index)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
stop.set()
for other in others:
    other.join()
print("done")
"""
    assert process("import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" + script) == "done"


@pytest.mark.parametrize("state", ["spinning", "parked", "stopping in a thread"])
def test_the_interpreter_exits_whatever_workers_do(state: str) -> None:
    script = f"""
import threading, time
from cvm.executors.native.runtime import networks as one, threads
one.WORTH = 0
if {state!r} == "spinning":
    threads.BUDGET = 2**60
from tests.executors.native.test_threads import ready, small
_, _, _, run = ready(small(), 4)
for index in range(20):
    run(index)
if {state!r} == "parked":
    time.sleep(0.3)
if {state!r} == "stopping in a thread":
    def always():
        while True:
            run(1)
    for _ in range(2):
        threading.Thread(target=always, daemon=True).start()
    time.sleep(0.05)
print("done")
"""
    begin = time.monotonic()
    assert process(script) == "done"
    assert time.monotonic() - begin < 60


@posix
def test_interrupts_leave_the_executor_usable() -> None:
    script = """
import random, signal, time
from cvm.executors.native.runtime import networks as one
one.WORTH = 0
from tests.executors.native.test_threads import ready, small
_, _, _, run = ready(small(), 2)
for index in range(5):
    run(index)
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupts, end = 0, time.monotonic() + 60
while interrupts < 300 and time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        for index in range(20):
            run(index)
    except KeyboardInterrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
for index in range(20):
    run(index)
print(interrupts)
"""
    assert int(process(script)) == 300


@posix
def test_another_process_takes_the_cores() -> None:
    """Slower, and the same."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        _, _, _, run = ready(small(), 4)
        for index in range(300):
            run(index)
    finally:
        for burner in burners:
            burner.send_signal(signal.SIGKILL)
            burner.wait()


@pytest.mark.long
@posix
def test_two_hundred_thousand_inferences_under_load() -> None:
    """Eight Python threads, executors of random numbers of threads, cores that others want: no mismatch, no leak."""
    script = """
import os, random, sys, threading, time
import numpy as np
from cvm.executors import initial_state
from cvm.executors.native import NativeExecutor
from cvm.executors.native.runtime import calls, networks as one
from cvm.executors.native.runtime.select import available
from cvm.program import verify
from tests.executors.native.comparison import expected
from tools.feeds import feeds
from tests.executors.native.test_threads import small
one.WORTH = 0
RUNS, THREADS = int(sys.argv[1]), 8
program = small(8)
verified, runs = verify(program), feeds(program, 4)
known = expected(verified, runs)
machines = available()
NativeExecutor(verified, 2, machines[0])
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
done, wrong, sizes = [0] * THREADS, [], []
def live(number):
    chance = random.Random(number)
    while done[number] < RUNS // THREADS and not wrong:
        native = NativeExecutor(verified, chance.choice((1, 2, 3, 5, 8)), chance.choice(machines))
        for _ in range(min(500, RUNS // THREADS - done[number])):
            index = chance.randrange(4)
            found = native.run(runs[index], {}).values
            if any(not np.array_equal(tensor, known[index].values[name]) for name, tensor in found.items()):
                wrong.append(number)
            done[number] += 1
people = [threading.Thread(target=live, args=(number,)) for number in range(THREADS)]
begin = time.monotonic()
for person in people:
    person.start()
while any(person.is_alive() for person in people):
    time.sleep(0.5)
    sizes.append((sum(done), resident()))
for person in people:
    person.join()
assert not wrong, wrong
assert sum(done) == RUNS
half = [size for count, size in sizes if RUNS // 4 < count < RUNS // 2]
last = [size for count, size in sizes if count > 3 * RUNS // 4]
print(sum(done), time.monotonic() - begin, max(half) >> 20, max(last) >> 20)
"""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, "200000"], cwd=ROOT, capture_output=True, text=True, timeout=3000
        )
    finally:
        for burner in burners:
            burner.send_signal(signal.SIGKILL)
            burner.wait()
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    count, seconds, middle, last = done.stdout.split()
    print(f"{count} inferences in {float(seconds):.0f} s; resident {middle} MiB in the second quarter, then {last} MiB")
    assert int(count) == 200_000
    assert int(last) <= int(middle) + 16


def test_the_threshold_of_sharing_is_restored() -> None:
    """The settings of these tests are those that conftest made."""
    assert networks.WORTH == 0
    assert calls.GRAIN == 1
