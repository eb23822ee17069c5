"""The costs of evidence: the time of receipts and traces of a program, and their share of the machine's SHA-256 rate.

    python tools/audit_costs.py PROGRAM [--executor E] [--threads N] [--repeat N]

PROGRAM is a program file or a model. Inputs are the middles of their intervals. "rate" is the speed of `hashlib` on one
long message per thread, all threads at once. "share" is the bytes of the trace per second divided by that rate: once
for tensors that are in memory, and once for the time that hashing adds to a run that shows its tensors. Processor time
is printed beside the clock's, because on a busy machine only processor time says what the code costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np

from cvm.audit import trace_bytes
from cvm.audit.hashing import tensor_roots
from cvm.audit.record import Observer
from cvm.cli.models import open_program
from cvm.executors import EXECUTORS, Int32Array, choose_executor, cores, create, initial_state


def best(action: Callable[[], object], repeat: int) -> tuple[float, float]:
    """The least clock time and the least processor time of an action, in seconds."""
    clock, processors = [], []
    for _ in range(repeat):
        start = time.perf_counter(), time.process_time()
        action()
        clock.append(time.perf_counter() - start[0])
        processors.append(time.process_time() - start[1])
    return min(clock), min(processors)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--executor", choices=EXECUTORS, default=choose_executor()[0])
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--repeat", type=int, default=9)
    options = parser.parse_args()
    verified = open_program(options.program)
    program = verified.program
    executor = create(options.executor, verified, options.threads)
    state = initial_state(program)
    feed = {
        item.value.name: np.full(item.value.shape, (item.value.lo + item.value.hi) // 2, np.int32)
        for item in program.inputs
    }
    result = executor.run(feed, state, "all")
    size = trace_bytes(program)
    data = b"".join(array.tobytes() for array in result.values.values())
    assert len(data) == size

    def streams() -> None:
        with ThreadPoolExecutor(options.threads) as pool:
            list(pool.map(lambda _: sha256(data).digest(), range(options.threads)))

    ends = {**feed, **{item.name: result.values[item.value] for item in program.outputs}}
    shown = 0

    def show(tensors: Mapping[str, Int32Array]) -> None:
        nonlocal shown
        shown = max(shown, sum(array.nbytes for array in tensors.values()))

    def plain() -> None:
        Observer(program, feed, state, traced=False).end(result)

    def traced() -> None:
        observer = Observer(program, feed, state, traced=True)
        observer.end(executor.run(feed, state, watch=observer.watch))

    measured = {
        "run": best(lambda: executor.run(feed, state), options.repeat),
        "run, all tensors shown": best(lambda: executor.run(feed, state, watch=show), options.repeat),
        "run, all tensors hashed": best(traced, options.repeat),
        "SHA-256 streams": best(streams, options.repeat),
        "roots of all tensors": best(lambda: tensor_roots(result.values, options.threads), options.repeat),
        "roots of inputs and outputs": best(lambda: tensor_roots(ends), options.repeat),
        "record of a plain receipt": best(plain, options.repeat),
    }
    print(
        f"{options.program.name}: {len(program.nodes)} ops, {size} bytes of trace, at most {shown} at once, "
        f"{options.executor}, {options.threads} threads"
    )
    for what, (clock, processors) in measured.items():
        print(f"{what:<28} {1000 * clock:9.3f} ms, processors {1000 * processors:9.3f} ms")
    for index, kind in enumerate(("clock", "processors")):
        streamed = options.threads * size / measured["SHA-256 streams"][index]
        print(f"by the {kind}: rate {streamed / 1e9:.2f} GB/s")
        beyond = measured["run, all tensors hashed"][index] - measured["run, all tensors shown"][index]
        for what, seconds in (("in memory", measured["roots of all tensors"][index]), ("as they are made", beyond)):
            hashed = size / max(seconds, 1e-9)  # the clock shows no difference for a very small program
            print(f"    tensors {what}: {hashed / 1e9:.2f} GB/s, share {hashed / streamed:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
