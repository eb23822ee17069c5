"""The networks on a GPU: cvm, TensorRT int8, ONNX Runtime with CUDA and torch's products, side by side in one run.

    python -m tools.bench.gpu [NETWORK..] [--batches 1,32,128] [--seconds 2] [--rounds 3] [--peers tensorrt,torch]
                              [--program NAME=FILE.cvm].. [--device 0] [-o FILE.json]

NETWORK is one of tools/bench/networks.py (default: resnet18 resnet50 mobilenet_v1 mobilenet_v2). --program adds a
program of cvm that no other engine runs, such as a transformer (docs/cuda.md says how to make one with 12 layers).
Every call takes arrays of the host and gives arrays back. Engines run by turns, --rounds times. The table has the
median time of a call, images per second, the share of the peak of the GPU's tensor cores for products of bytes, and
joules per image if the package nvidia-ml-py (pynvml) is installed. The bytes of cvm are compared with the NumPy
executor's before anything is timed. Without a device, it says so and exits with 3. An engine that is not installed is
named in the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvm.audit.costs import macs
from cvm.bench.engines import random_inputs
from cvm.errors import CvmError
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.program.files import load_verified
from cvm.program.verifier import VerifiedProgram, verify
from cvm.session import Session
from tools.bench.gpu_peers import PEERS
from tools.bench.networks import NETWORKS, Network
from tools.bench.programs import program_of

__all__ = ["RATES", "Entry", "Row", "main", "peak", "table"]

USUAL = ("resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2")
RATES = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096}
"""Multiply-adds of bytes per clock and multiprocessor on tensor cores, without sparsity, by compute capability.

Source: the peaks that NVIDIA states for products of bytes (white papers of the A100, GA102, Ada and H100: 624, 284 on
an RTX 3090, 661 on an RTX 4090, 1,979 tera-operations per second), divided by two, by multiprocessors and boost clock.
"""
NO_DEVICE = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A network to time: its program and, if other engines can run it, its layers."""

    name: str
    verified: VerifiedProgram
    network: Network | None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: times of calls in seconds, or why there are none."""

    network: str
    engine: str
    batch: int
    median: float | None = None
    least: float | None = None
    share: float | None = None
    joules: float | None = None
    failure: str = ""


def peak(capability: tuple[int, int], processors: int, kilohertz: int) -> float | None:
    """The multiply-adds of bytes per second of a GPU; None for a capability of which the rate is not known."""
    rate = RATES.get(capability)
    return None if rate is None else rate * processors * kilohertz * 1e3


def entries(names: Sequence[str], programs: Sequence[str]) -> Iterator[Entry]:
    """The networks by name, then the programs ``NAME=FILE``."""
    for name in names:
        network = NETWORKS[name]()
        yield Entry(name, verify(program_of(network)), network)
    for item in programs:
        name, _, file = item.partition("=")
        yield Entry(name, load_verified(Path(file)), None)


def opened(entry: Entry, engine: str, batch: int, device: Driver) -> Callable[[], object]:
    """A call of an engine on one batch. Raises what the engine raises."""
    if engine != "cvm":
        if entry.network is None:
            raise ImportError("this network is a program of cvm alone")
        return PEERS[engine](entry.network, batch, device)
    inputs = random_inputs(entry.verified.program, batch)
    ours, numpy = Session(entry.verified, "cuda", device=device.found.index), Session(entry.verified, "numpy")
    few = random_inputs(entry.verified.program, min(batch, 2))
    expected, found = numpy.run(few, codes=True), ours.run(few, codes=True)
    if any(not np.array_equal(found[name], expected[name]) for name in expected):
        raise RuntimeError("the bytes are not those of the NumPy executor")
    return lambda: ours.run(inputs, codes=True)


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """The times of calls during so many seconds, after three calls that are not counted."""
    for _ in range(3):
        run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def energy(index: int) -> Callable[[], float] | None:
    """A function that gives the joules that a GPU has used so far; None if they cannot be read."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # the package has an error of its own for each reason, and none matters here
        return None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000


def measured(
    entry: Entry, batch: int, engines: Sequence[str], device: Driver, rounds: int, seconds: float
) -> Iterator[Row]:
    """A row for each engine; they run by turns."""
    calls: dict[str, Callable[[], object]] = {}
    for engine in engines:
        try:
            calls[engine] = opened(entry, engine, batch, device)
            calls[engine]()
        except ImportError as error:
            calls.pop(engine, None)
            yield Row(entry.name, engine, batch, failure=f"not there: {error}")
        except Exception as error:  # an engine may raise anything, and the others shall be timed all the same
            calls.pop(engine, None)
            yield Row(entry.name, engine, batch, failure=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    meter = energy(device.found.index)
    times: dict[str, list[float]] = {engine: [] for engine in calls}
    used: dict[str, list[float]] = {engine: [] for engine in calls}
    for _ in range(rounds):
        for engine, call in calls.items():
            before = None if meter is None else meter()
            found = timed(call, seconds)
            times[engine] += found
            if meter is not None and before is not None:
                used[engine].append((meter() - before) / (batch * (len(found) + 3)))
    best = peak(device.capability, device.attribute("MULTIPROCESSOR_COUNT"), device.attribute("CLOCK_RATE"))
    work = batch * sum(macs(entry.verified))
    for engine, found in times.items():
        median = statistics.median(found)
        share = None if best is None else work / median / best
        joules = statistics.median(used[engine]) if used[engine] else None
        yield Row(entry.name, engine, batch, median, min(found), share, joules)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, with the time of each engine divided by that of TensorRT in the same group."""
    lines = ["| network | batch | engine | ms, median | least | images/s | % of the peak | J/image | x TensorRT |",
             "|---|---:|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    base = {(row.network, row.batch): row.median for row in rows if row.engine == "tensorrt" and row.median}
    for row in rows:
        start = f"| {row.network} | {row.batch} | {row.engine} |"
        if row.median is None or row.least is None:
            lines.append(f"{start} {row.failure} | | | | | |")
            continue
        other = base.get((row.network, row.batch))
        cells = [
            f"{1e3 * row.median:.3f}",
            f"{1e3 * row.least:.3f}",
            f"{row.batch / row.median:.0f}",
            "" if row.share is None else f"{100 * row.share:.1f}",
            "" if row.joules is None else f"{row.joules:.4f}",
            "" if other is None else f"{row.median / other:.2f}",
        ]
        lines.append(f"{start} {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", choices=[*NETWORKS, []])
    parser.add_argument("--batches", default="1,32,128", help="the samples of a call")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--program", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("-o", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        device = Driver(options.device, ptx.assembled)
        ptx.nearest(device.capability)
    except CvmError as error:
        print(f"no device: {error.message}", file=sys.stderr)
        return NO_DEVICE
    engines = ["cvm", *(name for name in options.peers.split(",") if name)]
    rows: list[Row] = []
    for entry in entries(options.networks or USUAL, options.program):
        for batch in map(int, options.batches.split(",")):
            rows += measured(entry, batch, engines, device, options.rounds, options.seconds)
    print(f"{device.name}\n\n{table(rows)}")
    if options.o is not None:
        document: dict[str, Any] = {"device": device.name, "rows": [asdict(row) for row in rows]}
        options.o.write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
