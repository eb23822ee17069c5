"""The time of a network on a GPU by launches, by the clock of the GPU.

Each launch is repeated in a graph of its own, so that the processor's part does not count; a repeated launch may find
its operands in the second-level cache where a run does not. The launches of a run add up to more or less than the
graph of the whole run for that reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cvm.audit.costs import macs
from cvm.executors.base import returned
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.network import Memory, Network
from cvm.executors.native.plan.steps import KernelCall
from cvm.program.verifier import VerifiedProgram

__all__ = ["Layer", "layers", "table"]

REPEATS = 20
BEST = 3
"""The least of so many graphs counts."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A launch: what it computes, its kernel, its grid and threads, its seconds, and its multiply-adds (0: none)."""

    what: str
    kernel: str
    note: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    seconds: float
    macs: int


def layers(device: Driver, verified: VerifiedProgram, samples: int) -> tuple[list[Layer], float]:
    """The launches of a run on so many samples, and the seconds of the graph of all of them, without copies.

    Of several launches of one call, the last one multiplies; those before it prepare operands.
    """
    network = Network(verified, device, returned(verified.program, frozenset()))
    memory = Memory(network, samples)
    prepared = memory.prepared()
    calls = [network.plan.calls[number] for number in network.kernels.calls]
    whole = device.prepare(network.code, prepared)
    whole.start()
    whole.wait()
    work = _work(verified, network)
    last = [call is not after for call, after in pairwise([*calls, None])]
    main = [_multiplies(call) and ends for call, ends in zip(calls, last, strict=True)]
    sums = Counter(call.what for call, multiplies in zip(calls, main, strict=True) if multiplies)
    found = []
    for call, multiplies, one in zip(calls, main, prepared, strict=True):
        run = device.prepare(network.code, [one] * REPEATS)
        seconds = min(run.timed() for _ in range(BEST)) / REPEATS
        run.close()
        count = samples * work.get(call.what, 0) // sums[call.what] if multiplies else 0
        found.append(Layer(call.what, one.function, call.note, one.grid, one.block, one.shared, seconds, count))
    total = min(whole.timed() for _ in range(BEST))
    whole.close()
    memory.close()
    network.close()
    return found, total


def _multiplies(call: KernelCall) -> bool:
    return call.function.split("_")[0] in ("conv2d", "dense", "depthwise", "matrices", "products")


def _work(verified: VerifiedProgram, network: Network) -> Counter[str]:
    """The multiply-adds of each value that a kernel computes."""
    work: Counter[str] = Counter()
    for node, count in zip(verified.program.nodes, macs(verified), strict=True):
        name = node.outputs[0].name
        work[network.plan.joined.get(name, name)] += count
    return work


def table(found: Sequence[Layer], whole: float, peak: float | None, longest: int | None = None) -> str:
    """The launches in Markdown, the longest first, below their sum and the time of the whole run.

    ``longest`` is how many there are at most (None: all).
    """
    total = sum(one.seconds for one in found)
    lines = [
        f"{len(found)} launches of {1e3 * total:.3f} ms; the run as a graph, without copies: {1e3 * whole:.3f} ms",
        "",
        "| us | % | of the peak, % | kernel | grid | threads | shared | value | note |",
        "|---:|---:|---:|---|---|---:|---:|---|---|",
    ]
    for one in sorted(found, key=lambda layer: -layer.seconds)[:longest]:
        share = f"{100 * one.macs / one.seconds / peak:.1f}" if one.macs and one.seconds and peak else ""
        cells = (f"{1e6 * one.seconds:.1f}", f"{100 * one.seconds / total:.1f}" if total else "", share, one.kernel,
                 " x ".join(map(str, one.grid)), one.block, one.shared, one.what, one.note)  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
