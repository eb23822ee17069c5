"""The time of a network by kernel calls, measured in place: one thread, with caches as they are in a run.

    python tools/bench/profile_layers.py NETWORK|PROGRAM.. [--machine NAME] [--seconds S] [--json]

NETWORK is one of tools/bench/networks.py, PROGRAM a program file or an NNEF model. The compiled network reads the
processor's time stamp counter before every call, so this needs x86. A call's time is the least of many runs, which
other work on the machine hardly changes, less the time of an empty stretch. `python tools/generate_pages.py layers
--measure` writes the tables of docs/layers.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cvm.audit.costs import macs
from cvm.cli.models import open_program
from cvm.executors.base import returned
from cvm.executors.native.emit.ir import Code, Module, V
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.kernels.registry import emit, plan
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import choice, named
from cvm.program.verifier import VerifiedProgram, verify
from tools.bench.layer_bounds import shares
from tools.bench.networks import NETWORKS
from tools.bench.peak import multiply_add_peak, read_peak
from tools.bench.programs import program_of

__all__ = ["Profile", "Row", "profile"]


@dataclass(frozen=True, slots=True)
class Row:
    """One call: the value that it computes, its kernel, nanoseconds, its multiply-adds (0: none), and what binds it."""

    what: str
    function: str
    note: str
    nanoseconds: float
    macs: int
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """The calls of a program on one thread, the nanoseconds of the fastest run that does not read the counter, and the
    bytes of its packed constants, which every run reads.
    """

    rows: list[Row]
    whole: float
    constants: int


def profile(verified: VerifiedProgram, machine: Machine, seconds: float, peak: float, read: float) -> Profile:
    """Run a program for some seconds, and measure its calls.

    ``peak`` is the machine's in multiply-adds per second, ``read`` its rate of bytes from memory.
    """
    made = plan(verified, machine, returned(verified.program, frozenset()))
    loaded = Loaded(compiled(_text(made, machine), machine), machine)
    types = [ctypes.c_void_p] * 4
    plain, looking = (ctypes.CFUNCTYPE(None, *types)(loaded.address(name)) for name in ("plain", "looking"))
    ticks = np.zeros(len(made.calls) + 2, np.int64)
    memory = [_aligned(made.arena), _aligned(len(made.constants))]
    memory[1][: len(made.constants)] = np.frombuffer(made.constants, np.uint8)
    table, keep = _table(verified, made)
    arguments = (memory[0].ctypes.data, memory[1].ctypes.data, table.ctypes.data, ticks.ctypes.data)
    stretches: list[npt.NDArray[np.int64]] = []
    whole: list[int] = []
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(whole) < 5:
        start = time.perf_counter_ns()
        plain(*arguments)
        whole.append(time.perf_counter_ns() - start)
        start = time.perf_counter_ns()
        looking(*arguments)
        ratios.append((time.perf_counter_ns() - start) / int(ticks[-1] - ticks[0]))
        stretches.append(np.diff(ticks))
    del keep
    nanoseconds = np.array(stretches, np.float64).min(axis=0) * float(np.median(ratios))
    work = _work(verified, made)
    sums = Counter(call.what for call in made.calls if _kind(call.function) in _SUMS)
    rows = []
    for call, spent in zip(made.calls, (nanoseconds[:-1] - nanoseconds[-1]).tolist(), strict=True):
        kernel, count = made.functions[call.function], _share(call, work, sums)
        bound = shares(kernel, call, count, spent, machine, peak, read).bound
        rows.append(Row(call.what, call.function, call.note, spent, count, bound))
    return Profile(rows, float(min(whole)), len(made.constants))


_SUMS = ("conv2d", "dense", "depthwise", "matrices", "products")
"""The kinds of functions that do the multiply-adds of a value."""


def _kind(function: str) -> str:
    return function.split("_")[0]


def _share(call: KernelCall, work: Mapping[str, int], sums: Mapping[str, int]) -> int:
    """The multiply-adds of one call: the groups of a convolution have one each."""
    return work.get(call.what, 0) // sums[call.what] if _kind(call.function) in _SUMS else 0


def _text(made: Plan, machine: Machine) -> str:
    """The source of two functions: ``plain`` makes the calls, ``looking`` also stores the counter before each one."""
    module = Module()
    for name, kernel in made.functions.items():
        emit(module, name, kernel, machine)
    names = ("arena", "constants", "arrays", "ticks")
    for function in ("plain", "looking"):
        arena, constants, arrays, ticks = parameters = [V("ptr", f"%{name}") for name in names]
        code = Code(module, function, parameters)
        given = [code.load("ptr", code.at(arrays, 8 * place)) for place in range(len(made.arrays))]
        for number, call in enumerate(made.calls):
            bases = {"arena": arena, "constants": constants}
            places = [
                code.at(bases[buffer.kind], offset + made.offsets.get(buffer, 0))
                if buffer.kind != "array"
                else code.at(given[buffer.index], offset)
                for buffer, offset in call.arguments
            ]
            if function == "looking":
                _look(code, ticks, number)
            code.line(f"call void @{call.function}({', '.join(map(str, places))}, i64 0, i64 {call.units})")
        if function == "looking":
            _look(code, ticks, len(made.calls))
            _look(code, ticks, len(made.calls) + 1)
        code.finish()
    return str(module)


def _look(code: Code, ticks: V, index: int) -> None:
    code.store(code.call("i64", "llvm.readcyclecounter"), code.at(ticks, 8 * index))


def _table(verified: VerifiedProgram, made: Plan) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int32]]]:
    """The addresses of the caller's arrays, and the arrays, with random codes in the inputs."""
    random = np.random.default_rng(0)
    fed = {item.value.name: item.value for item in verified.program.inputs}
    fed |= {item.value.name: item.value for item in verified.program.state}
    read, written = made.arrays[: made.written], made.arrays[made.written :]
    values = [fed[name] for name in read]
    arrays = [random.integers(value.lo, value.hi, value.shape, np.int32, endpoint=True) for value in values]
    arrays += [np.zeros(verified.shapes[name], np.int32) for name in written]
    return np.array([array.ctypes.data for array in arrays], np.int64), arrays


def _work(verified: VerifiedProgram, made: Plan) -> dict[str, int]:
    """The multiply-adds of each value that a kernel computes."""
    work: dict[str, int] = {}
    for node, count in zip(verified.program.nodes, macs(verified), strict=True):
        name = node.outputs[0].name
        root = made.joined.get(name, name)
        work[root] = work.get(root, 0) + count
    return work


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    raw = np.zeros(size + 192, np.uint8)
    return raw[-raw.ctypes.data % 64 :]


def _print(name: str, machine: Machine, found: Profile, peak: float, read: float) -> None:
    rows, whole = found.rows, found.whole
    total, count = sum(row.nanoseconds for row in rows), sum(row.macs for row in rows)
    print(f"{name} on {machine.name}: {whole / 1e3:.1f} us in one run, {total / 1e3:.1f} us in {len(rows)} calls")
    print(f"  {_rate(count, whole, peak)} of the peak of {peak / 1e9:.1f}")
    rate = found.constants / whole
    share = f"{1e11 * rate / read:.0f} % of the {read / 1e9:.1f} that a thread reads from memory"
    print(f"  {found.constants / 1e6:.1f} MB of constants at {rate:.1f} GB/s, {share}")
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(_kind(row.function), []).append(row)
    for kind, alike in sorted(kinds.items(), key=lambda item: -sum(row.nanoseconds for row in item[1])):
        spent, done = sum(row.nanoseconds for row in alike), sum(row.macs for row in alike)
        times = f"{spent / 1e3:9.1f} us {100 * spent / total:5.1f} %"
        print(f"  {kind:<12} {len(alike):4d} calls {times} {_rate(done, spent, peak)}")
    for row in rows:
        times = f"{row.nanoseconds / 1e3:8.2f} us {100 * row.nanoseconds / total:5.1f} %"
        print(f"  {times} {_rate(row.macs, row.nanoseconds, peak)}  {row.what}: {row.function}, {row.note}; "
              f"bound by {row.bound}")  # fmt: skip


def _rate(work: int, nanoseconds: float, peak: float) -> str:
    if not work or nanoseconds <= 0:
        return " " * 21
    return f"{work / nanoseconds:7.1f} GMAC/s {1e11 * work / nanoseconds / peak:4.0f} %"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="NETWORK|PROGRAM")
    parser.add_argument("--machine")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if platform.machine().lower() not in ("x86_64", "amd64"):
        print("profile_layers: reads the time stamp counter, which needs an x86 processor", file=sys.stderr)
        return 2
    machine = named(options.machine) if options.machine else choice().machine
    if machine is None:
        print(f"profile_layers: {choice().reason}", file=sys.stderr)
        return 1
    peak, read = multiply_add_peak(machine), read_peak(machine)
    documents = []
    for name in options.programs:
        verified = verify(program_of(NETWORKS[name]())) if name in NETWORKS else open_program(Path(name))
        found = profile(verified, machine, options.seconds, peak, read)
        calls = [asdict(row) for row in found.rows]
        rates = {"peak": peak, "read": read, "nanoseconds": found.whole, "constants": found.constants}
        documents.append({"program": name, "machine": machine.name, **rates, "calls": calls})
        if not options.json:
            _print(name, machine, found, peak, read)
    if options.json:
        print(json.dumps(documents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
