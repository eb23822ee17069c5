"""The networks on a GPU: cvm, TensorRT int8, ONNX Runtime with CUDA and torch, side by side in one run.

    python -m tools.bench.gpu [NETWORK..] [--batches 1,32,128] [--seconds 2] [--rounds 3] [--peers tensorrt,torch]
                              [--program NAME=FILE.cvm].. [--layers] [--device 0] [--within S] [-o FILE.json]

NETWORK is one of tools/bench/networks.py or bert_base (tools/bench/transformer.py); the usual ones are resnet50
resnet18 mobilenet_v1 mobilenet_v2 bert_base. --program adds a program of cvm that no other engine runs. Every call
takes arrays of the host and gives arrays back. Engines run by turns, --rounds times, each in a process of its own
(tools/bench/gpu_process.py), so that one that fails takes none with it. The first round of an engine follows when it is
ready, so that one that hangs later takes no time of those before it. The table has the median time of a call,
samples per second, the share of the peak of the GPU's tensor cores for products of bytes, and joules per sample if the
package nvidia-ml-py (pynvml) is installed. The bytes of cvm are compared with the NumPy executor's before anything is
timed. --layers adds the time of every launch of cvm, by the clock of the GPU; the longest are printed, all are in the
file. --within bounds the whole run: what has not begun by then is left out, an engine gets at most half of the time
that is left to answer, and one that has not answered is named. -o writes what is known so far
after each network and batch. Without a device, it says so and exits with 3. An engine that is not installed is named in
the table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cvm.errors import CvmError
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.writing import write_atomically
from tools.bench.gpu_layers import Layer
from tools.bench.gpu_layers import table as layer_table
from tools.bench.gpu_peers import PEERS
from tools.bench.gpu_process import NAMES, Failure, Opened

__all__ = ["RATES", "Row", "main", "measured", "peak", "table"]

USUAL = ("resnet50", "resnet18", "mobilenet_v1", "mobilenet_v2", "bert_base")
RATES = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096}
"""Multiply-adds of bytes per clock and multiprocessor on tensor cores, without sparsity, by compute capability.

Source: the peaks that NVIDIA states for products of bytes (white papers of the A100, GA102, Ada and H100: 624, 284 on
an RTX 3090, 661 on an RTX 4090, 1,979 tera-operations per second), divided by two, by multiprocessors and boost clock.
"""
NO_DEVICE = 3
LONGEST = 15
"""The most launches of a run that are printed."""
OPENING = 300.0
"""The most seconds in which an engine must be ready, and in which a round must have ended beyond its own time."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: times of calls in seconds, and why there are none or fewer than were asked for."""

    network: str
    engine: str
    batch: int
    median: float | None = None
    least: float | None = None
    share: float | None = None
    joules: float | None = None
    failure: str = ""


@dataclass(slots=True)
class Rounds:
    """The rounds of an engine: times of calls in seconds, joules of a sample, and why there are no more of them."""

    macs: int = 0
    times: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    failure: str = ""

    def row(self, network: str, engine: str, batch: int, best: float | None) -> Row:
        """The line of the table. ``best`` is the peak of the GPU in multiply-adds per second."""
        if not self.times:
            return Row(network, engine, batch, failure=self.failure)
        median = statistics.median(self.times)
        share = None if best is None else batch * self.macs / median / best
        spent = statistics.median(self.joules) if self.joules else None
        return Row(network, engine, batch, median, min(self.times), share, spent, self.failure)


@dataclass(slots=True)
class Found:
    """What is known so far: the rows, and the launches of cvm by network and batch, with the time of the whole run."""

    rows: list[Row] = field(default_factory=list)
    layers: dict[str, tuple[list[Layer], float]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def write(self, file: Path | None, device: str) -> None:
        """Write all of it, if there is a file."""
        if file is None:
            return
        layers = {name: {"run": whole, "launches": [asdict(one) for one in found]}
                  for name, (found, whole) in self.layers.items()}  # fmt: skip
        document: dict[str, Any] = {"device": device, "rows": [asdict(row) for row in self.rows], "layers": layers,
                                    "left out": self.left}  # fmt: skip
        write_atomically(file, json.dumps(document, indent=1).encode())


def peak(capability: tuple[int, int], processors: int, kilohertz: int) -> float | None:
    """The multiply-adds of bytes per second of a GPU; None for a capability of which the rate is not known."""
    rate = RATES.get(capability)
    return None if rate is None else rate * processors * kilohertz * 1e3


def measured(
    network: str, batch: int, engines: Sequence[str], best: float | None, options: argparse.Namespace, found: Found,
    end: float = math.inf,
) -> Iterator[Row]:  # fmt: skip
    """A row for each engine; they run by turns. ``best`` is the peak of the GPU, ``end`` when all must have ended."""

    def limit(usual: float) -> float:
        return max(1.0, min(usual, (end - time.monotonic()) / 2))

    opened: dict[str, Opened] = {}
    rounds = {engine: Rounds() for engine in engines}

    def timed(engine: str) -> None:
        times, joules = opened[engine].timed(options.seconds, limit(options.seconds + OPENING))
        rounds[engine].times += times
        rounds[engine].joules += [] if joules is None else [joules / batch]

    with ExitStack() as stack:
        for engine in engines:
            try:
                one = stack.enter_context(Opened(engine, network, batch, options.device, options.program))
                one.ready(limit(OPENING))
                opened[engine], rounds[engine].macs = one, one.macs
                timed(engine)
                if options.layers and engine == "cvm":
                    launches, whole = one.layers(limit(OPENING))
                    found.layers[f"{network}, batch {batch}"] = [Layer(**launch) for launch in launches], whole
            except Failure as failure:
                opened.pop(engine, None)
                rounds[engine].failure = str(failure)
        for _ in range(options.rounds - 1):
            for engine in [*opened]:
                try:
                    timed(engine)
                except Failure as failure:
                    del opened[engine]
                    rounds[engine].failure = str(failure)
    for engine in engines:
        yield rounds[engine].row(network, engine, batch, best)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, with the time of each engine divided by that of TensorRT in the same group."""
    lines = ["| network | batch | engine | ms, median | least | samples/s | % of the peak | J/sample | x TensorRT |",
             "|---|---:|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    base = {(row.network, row.batch): row.median for row in rows if row.engine == "tensorrt" and row.median}
    for row in rows:
        start = f"| {row.network} | {row.batch} | {row.engine}"
        if row.median is None or row.least is None:
            lines.append(f"{start} | {row.failure} | | | | | |")
            continue
        start += f", until: {row.failure} |" if row.failure else " |"
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


def _peak_of(device: Driver) -> float | None:
    try:
        return peak(device.capability, device.attribute("MULTIPROCESSOR_COUNT"), device.attribute("CLOCK_RATE"))
    except CvmError:  # the driver does not say, and the shares are left out
        return None


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", choices=[*NAMES, []])
    parser.add_argument("--batches", default="1,32,128", help="the samples of a call")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--program", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("-o", dest="file", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    options = _options(arguments)
    end = time.monotonic() + options.within
    try:
        device = Driver(options.device, ptx.assembled)
        ptx.nearest(device.capability)
    except CvmError as error:
        print(f"no device: {error.message}", file=sys.stderr)
        return NO_DEVICE
    best = _peak_of(device)
    device.close()
    engines = ["cvm", *(name for name in options.peers.split(",") if name)]
    found = Found()
    names = [*(options.networks or USUAL), *(item.partition("=")[0] for item in options.program)]
    for name in names:
        for batch in map(int, options.batches.split(",")):
            if time.monotonic() > end:
                found.left.append(f"{name}, batch {batch}")
                continue
            print(f"{name}, batch {batch} ..", file=sys.stderr, flush=True)
            for row in measured(name, batch, engines, best, options, found, end):
                found.rows.append(row)
                found.write(options.file, device.name)
    for name, (launches, whole) in found.layers.items():
        print(f"{name}: {layer_table(launches, whole, best, LONGEST)}\n")
    for name in found.left:
        print(f"left out: {name}")
    print(f"{device.name}\n\n{table(found.rows)}")  # at the end, since that is what a terminal and a log show
    found.write(options.file, device.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
