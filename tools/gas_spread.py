"""Measure how many nanoseconds a unit of gas takes, for every op; fails if an op takes too long for its gas.

    python tools/gas_spread.py [--executor NAME] [--limit RATIO] [--seconds S]

Each op runs by itself, on tensors so large that the fixed cost of a call does not count. Ops whose time depends on data
run on their worst data. Gas is not a clock: a convolution always takes less time per unit of gas than a
division. But the gas of an op must not be far below its time, since a program of little gas could then keep a
verifier busy for long. So the slowest op may take at most RATIO times as long as the median op. Times are processor
times, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # waiting threads would count as processor time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from cvm.executors import choose_executor, create
from cvm.ops import REGISTRY
from cvm.program import Output, ProgramBuilder, verify
from tools.plain_ops import PLAIN

LIMIT = 32
"""The most time per gas that the slowest op may take, relative to the median op."""
MOST = 2**31 - 1


@dataclass(frozen=True)
class Specimen:
    """One use of an op: run-time inputs as shape, lo, hi; parameters; and attributes."""

    inputs: Sequence[tuple[tuple[int, ...], int, int]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parameters: Sequence[Any] = ()
    data: Callable[[], Sequence[np.ndarray]] | None = None
    """The elements of the inputs, if they matter; else they are drawn uniformly from the intervals."""


PLANE = ((1, 64, 64, 64), -1000, 1000)
WIDE = ((1, 64, 64, 64), -MOST, MOST)
ROWS = 512


def boxes() -> list[np.ndarray]:
    """Valid rows, in rising order of score, with boxes that do not overlap: nothing is ever suppressed."""
    k = np.arange(ROWS)
    rows = np.stack([k * 0, k, 10 * k, k * 0, 10 * k + 5, k * 0 + 5], axis=1)
    return [rows[None].astype(np.int32)]


SPECIMENS: Mapping[str, Specimen] = {
    **{name: Specimen([WIDE]) for name in PLAIN},
    "sum": Specimen([PLANE], {"axes": (2, 3)}),
    "max": Specimen([PLANE], {"axes": (1,)}),
    **{f"broadcast_{name}": Specimen([PLANE, ((1, 64, 1, 1), -99, 99)]) for name in ("add", "sub", "mul", "max")},
    "broadcast_div": Specimen([WIDE, ((1, 64, 64, 64), -MOST, MOST)]),
    "broadcast_greater": Specimen([WIDE, WIDE]),
    "conv2d": Specimen([((1, 32, 28, 28), -127, 127), ((32, 32, 3, 3), -127, 127)], {"padding": (1, 1)}),
    "dense": Specimen([((8, 512), -127, 127), ((512, 512), -127, 127)]),
    "matmul": Specimen([((4, 64, 128), -127, 127), ((2, 128, 64), -127, 127)]),
    "quotient": Specimen(
        [((64, 1024), -MOST, MOST), ((64, 1024), 1, MOST)],  # sums of 93 bits, with another divisor for each element
        {"terms": 1, "rounding": "half_even", "lo": -MOST, "hi": MOST},
        [[2**62 - 1], [2**62 - 3], [5], [1]],
    ),
    "normalize": Specimen(
        [((64, 1024), -32767, 32767)],
        {"axes": (1,), "statistic": "variance", "rounding": "half_up", "lo": -MOST, "hi": MOST},
        [[2**50], [0], [2**20], [1], [1]],  # results of 31 bits, which no estimate of 30 bits decides
    ),
    "update_slice": Specimen([((64, 64, 64), -MOST, MOST), ((64, 1, 64), -MOST, MOST), ((1,), 0, 63)], {"axis": 1}),
    "max_pool2d": Specimen([PLANE], {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}),
    "upsampling": Specimen([((1, 64, 32, 32), -MOST, MOST)], {"scale": 2}),
    **{name: Specimen([PLANE, PLANE]) for name in ("elemwise_add", "elemwise_sub")},
    "clip": Specimen([WIDE], {"a_min": -100, "a_max": 100}),
    "cvm_clip": Specimen([WIDE], {"precision": 8}),
    "cvm_right_shift": Specimen([WIDE], {"precision": 8, "shift_bit": 9}),
    "cvm_left_shift": Specimen([WIDE], {"precision": 20, "shift_bit": 9}),
    "repeat": Specimen([((64, 64, 32), -MOST, MOST)], {"axis": 2, "repeats": 3}),
    "tile": Specimen([((64, 64, 32), -MOST, MOST)], {"reps": (1, 2, 3)}),
    "concatenate": Specimen([((64, 64, 32), -MOST, MOST)] * 3, {"axis": 2}),
    "transpose": Specimen([((64, 64, 64), -MOST, MOST)], {"axes": (2, 1, 0)}),
    "slice": Specimen(
        [((64, 64, 64), -MOST, MOST)], {"begin": (63, 0, 1), "end": (-64, 64, 64), "strides": (-1, 1, 2)}
    ),
    "slice_like": Specimen([((64, 64, 64), -MOST, MOST), ((32, 32, 32), 0, 1)], {"axes": ()}),
    "take": Specimen([((4096, 8), -MOST, MOST), ((8192,), -9, 5000)], {"axis": 0}),
    "cvm_lut": Specimen([((65536,), -MOST, MOST), ((64, 64, 64), -9, 66000)]),
    "expand_dims": Specimen([WIDE], {"axis": 1, "num_newaxis": 1}),
    "reshape": Specimen([WIDE], {"target_shape": (4096, 64)}),
    "squeeze": Specimen([WIDE], {"axes": (0,)}),
    "where": Specimen([((64, 64, 64), 0, 1), ((64, 64, 64), -MOST, MOST), ((64, 64, 64), -MOST, MOST)]),
    "get_valid_count": Specimen([((4, 8192, 6), -MOST, MOST)], {"score_threshold": 0}),
    "non_max_suppression": Specimen(
        [((1, ROWS, 6), -MOST, MOST), ((1,), 0, ROWS)],
        {"iou_threshold": 50},
        data=lambda: [*boxes(), np.array([ROWS], np.int32)],
    ),
    "requantize": Specimen(
        [((1, 64, 64, 64), -(2**20), 2**20)],
        {"rounding": "half_even", "lo": -128, "hi": 127},
        [np.full((1, 64, 1, 1), 2**30 + 1), np.full((1, 64, 1, 1), 3), np.full((1,), 43)],
    ),
}


def measured(op: str, executor: str, seconds: float) -> tuple[int, float]:
    """The gas of the specimen of an op, and the nanoseconds of one run."""
    specimen = SPECIMENS[op]
    builder = ProgramBuilder()
    names = [builder.input(f"x{index}", *item) for index, item in enumerate(specimen.inputs)]
    names += [builder.parameter(item) for item in specimen.parameters]
    made = builder.add(op, names, specimen.attributes)
    verified = verify(builder.build([Output(name, name) for name in made]))
    runner = create(executor, verified, 1)
    random = np.random.default_rng(1)
    arrays = [random.integers(lo, hi, shape, np.int32, endpoint=True) for shape, lo, hi in specimen.inputs]
    feed = dict(zip(names, specimen.data() if specimen.data else arrays, strict=False))
    runner.run(feed, {})
    best, end = float("inf"), time.monotonic() + seconds
    for _ in range(3):
        while True:
            start = time.process_time_ns()
            runner.run(feed, {})
            best = min(best, time.process_time_ns() - start)
            if time.monotonic() > end:
                break
    return verified.gas, best


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--executor", default=choose_executor()[0])
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each op")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if set(SPECIMENS) != set(REGISTRY):
        print(f"without a specimen, or no op: {sorted(set(SPECIMENS) ^ set(REGISTRY))}", file=sys.stderr)
        return 1
    found = {op: measured(op, options.executor, options.seconds) for op in REGISTRY}
    rates = {op: nanoseconds / gas for op, (gas, nanoseconds) in found.items()}
    middle = median(rates.values())
    slow = [op for op, rate in rates.items() if rate > options.limit * middle]
    if options.json:
        print(json.dumps({"executor": options.executor, "median": middle, "ns_per_gas": rates, "slow": slow}))
        return 1 if slow else 0
    print(f"{'op':<22}{'gas':>12}{'microseconds':>15}{'ns per gas':>12}{'to median':>11}")
    for op in sorted(rates, key=lambda name: -rates[name]):
        gas, nanoseconds = found[op]
        print(f"{op:<22}{gas:>12}{nanoseconds / 1000:>15.1f}{rates[op]:>12.4f}{rates[op] / middle:>11.2f}")
    print(f"{options.executor}: median {middle:.4f} ns per gas; too slow for their gas: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
