"""The rate of the native kernel of every op beside the machine's limit, on one thread, as a Markdown table.

    python -m tools.bench.ops [NAME..] [--machine NAME] [--seconds S] [--below PERCENT]

Each op runs by itself at a shape that real networks have, on tensors in the formats in which the executor stores them.
Its rate counts the bytes of these formats, each element read and written once, or for products the multiply-adds. It
is measured twice: again and again on the same memory, which the caches hold, and on one copy after the other of more
memory than they hold. The limit of bytes is a kernel that reads and writes as many bytes, vector by vector, of the same
memory in the same ways and does nothing else; that of products is the peak of dot products in registers. Both are
measured in the same run. Times are the least of several processor times. With NAME, only ops with this in their name
are measured.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cvm.audit.costs import macs
from cvm.executors.base import returned
from cvm.executors.native.emit.ir import Code, Module, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.kernels.registry import emit, plan
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import available, named
from cvm.program import Output, ProgramBuilder, VerifiedProgram, verify
from tools.bench.op_cases import CASES, Case
from tools.bench.peak import multiply_add_peak

__all__ = ["Row", "measured"]

BEYOND = 2**26
"""The bytes of all copies of an arena together: more than the caches hold."""
FEWEST = 3
"""The fewest copies of an arena, and the fewest times that something is measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One op: its multiply-adds, the bytes that it reads and writes at the stored widths, and nanoseconds.

    Nanoseconds and limits are pairs: in the caches, and from memory.
    """

    case: Case
    macs: int
    read: int
    written: int
    nanoseconds: tuple[float, float]
    limits: tuple[float, float]
    notes: tuple[str, ...]

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of the limit that the op reaches, in percent."""
        cached, memory = (100 * limit / spent for limit, spent in zip(self.limits, self.nanoseconds, strict=True))
        return cached, memory


def measured(case: Case, machine: Machine, peak: float, seconds: float) -> Row:
    """Compile one op and measure it and its limit. ``peak`` is the rate of dot products per second."""
    verified, name, sources = _program(case)
    made = plan(verified, machine, returned(verified.program, frozenset()))
    calls = _calls(made, case, name, sources)
    read, written = _bytes(verified, made, case, name)
    module = Module()
    for function, kernel in made.functions.items():
        emit(module, function, kernel, machine)
    _runner(module, "whole", made, made.calls)
    _runner(module, "op", made, calls)
    _toucher(module, machine, read, written)
    loaded = Loaded(compiled(str(module), machine), machine)
    size = -(-max(made.arena, read + written + 4096) // 4096) * 4096 + 64
    copies = max(FEWEST, -(-BEYOND // size))
    memory, constants = _aligned(size * copies), _aligned(len(made.constants) + 64)
    constants[: len(made.constants)] = np.frombuffer(made.constants, np.uint8)
    table, keep = _arrays(verified, made)
    run = {name: ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(loaded.address(name))
           for name in ("whole", "op", "touch")}  # fmt: skip

    start, others = memory.ctypes.data, (constants.ctypes.data, table.ctypes.data)
    run["whole"](start, *others, size, copies)

    def least(apart: int, fixed: int) -> list[float]:
        """The least nanoseconds of the op and of its limit, measured by turns."""
        both = [_Least(lambda count, name=name: run[name](start, *others, apart, count), fixed)  # type: ignore[misc]
                for name in ("op", "touch")]  # fmt: skip
        end = time.perf_counter() + 2 * seconds
        while not all(one.samples >= FEWEST for one in both) or time.perf_counter() < end:
            for one in both:
                one.sample()
        return [one.nanoseconds for one in both]

    work = sum(macs(verified))
    cached, beyond = least(0, 0), least(size, copies)
    spent, limits = (cached[0], beyond[0]), (cached[1], beyond[1])
    if work:
        dots = 1e9 * work / (peak / _factor(verified, made))
        limits = max(limits[0], dots), max(limits[1], dots)
    del keep
    return Row(case, work, read, written, spent, limits, tuple(dict.fromkeys(call.note for call in calls)))


def _program(case: Case) -> tuple[VerifiedProgram, str, tuple[str, ...]]:
    """A program that computes the tensors of a case, applies the op, and reads the results; the name of the result
    whose calls count, and the names of the tensors.
    """
    build = ProgramBuilder()
    sources: list[str] = []
    for index, tensor in enumerate(case.tensors):
        given = build.input(f"x{index}", tensor.shape, *tensor.span)
        sources += build.add("clip", [given], dict(zip(("a_min", "a_max"), tensor.span, strict=True)), f"in{index}")
    constants = [build.constant(values) for values in case.constants]
    names = [*constants, *sources] if case.first else [*sources * case.times, *constants]
    names += [build.parameter(values) for values in case.parameters]
    made = build.add(case.op, names, case.attributes, "result")
    results = list(made)
    if case.moves:
        shape = list(build.shape(made[0]))
        axis = 2 if case.op == "upsampling" else 0
        shape[axis] = 1
        beside = build.constant(np.zeros(shape, np.int32))
        results = list(build.add("concatenate", [made[0], beside], {"axis": axis}, "moved"))
    ends: list[str] = []
    for value in [*sources, *results]:
        axes = {"axes": (), "keepdims": False}
        ends += build.add("max", [value], axes, f"end of {value}")
    return verify(build.build([Output(end, end) for end in ends])), results[0].split(".")[0], tuple(sources)


def _calls(made: Plan, case: Case, name: str, sources: Sequence[str]) -> list[KernelCall]:
    """The calls of the op: all but those that compute its tensors and those that read its results."""
    others = {*sources, *(f"end of {source}" for source in sources)}
    calls = [
        call
        for call in made.calls
        if call.what not in others and not call.what.startswith("end of ") and not call.what.endswith("to the caller")
    ]
    assert calls, f"{case.name} has no kernel"
    return calls


def _bytes(verified: VerifiedProgram, made: Plan, case: Case, name: str) -> tuple[int, int]:
    """The bytes that the op reads and writes, at the widths in which values are stored."""
    widths = _widths(verified, made)
    (node,) = (node for node in verified.program.nodes if node.outputs[0].name.split(".")[0] == "result")
    written = sum(math.prod(value.shape) * widths.get(value.name, 4) for value in node.outputs)
    most = sum(math.prod(value.shape) for value in node.outputs)
    if case.moves:
        written = most * widths[node.inputs[0]]
    read = 0
    for value in (value for value in node.inputs if value.startswith("in")):
        elements = math.prod(verified.shapes[value])
        if case.op == "take" or (case.op == "slice" and case.attributes["strides"][-1] == 1):  # the other lines rest
            elements = min(elements, most)
        read += elements * widths[value]
    return read, written


def _factor(verified: VerifiedProgram, made: Plan) -> int:
    """How many times fewer products a dot product of a vector adds up than one of bytes."""
    widths = _widths(verified, made)
    return max(widths[name] for name in widths if name.startswith("in"))


def _widths(verified: VerifiedProgram, made: Plan) -> dict[str, int]:
    """The bytes of an element of each value that a kernel computes."""
    found: dict[str, int] = {}
    for claim in made.claims:
        if isinstance(claim, Computes):
            found |= {value.name: home.format.bytes
                      for value, home in zip(claim.root.outputs, claim.targets, strict=True)}  # fmt: skip
    for node in verified.program.nodes:  # an op that moves elements keeps their format
        if node.outputs[0].name not in found:
            found[node.outputs[0].name] = found.get(node.inputs[0], 4)
    return found


def _runner(module: Module, name: str, made: Plan, calls: Sequence[KernelCall]) -> None:
    """``name(arena, constants, arrays, step, count)``: repeat the calls on arenas ``step`` bytes apart."""
    arena, constants, arrays, step, count = _parameters()
    code = Code(module, name, [arena, constants, arrays, step, count])

    def once(index: V, _: list[V]) -> list[V]:
        here = code.at(arena, code.binary("mul", index, step))
        for call in calls:
            places = []
            for buffer, offset in call.arguments:
                if buffer.kind == "array":
                    places.append(code.at(code.load("ptr", code.at(arrays, 8 * buffer.index)), offset))
                else:
                    base = here if buffer.kind == "arena" else constants
                    places.append(code.at(base, offset + made.offsets.get(buffer, 0)))
            code.line(f"call void @{call.function}({', '.join(map(str, places))}, i64 0, i64 {call.units})")
        return []

    code.loop(0, count, 1, once)
    code.finish()


def _parameters() -> tuple[V, V, V, V, V]:
    return V("ptr", "%a"), V("ptr", "%b"), V("ptr", "%c"), V("i64", "%step"), V("i64", "%count")


def _toucher(module: Module, machine: Machine, read: int, written: int) -> None:
    """``touch``: read and write as many bytes, in the proportion of an op, and nothing else."""
    size, type_ = 4 * machine.width, vector(32, machine.width)
    unit = max(read, written) / 8
    loads, stores = (round(bytes_ / unit) for bytes_ in (read, written))
    blocks = max(1, round((read + written) / ((loads + stores) * size)))
    arena, _, arrays, step, count = _parameters()
    code = Code(module, "touch", [arena, V("ptr", "%b"), arrays, step, count])

    def block(index: V, totals: list[V], here: V) -> list[V]:
        totals = list(totals)
        source = code.at(here, code.mul(index, loads * size))
        target = code.at(here, code.add(code.mul(index, stores * size), blocks * loads * size))
        for number in range(max(loads, stores)):
            if number < loads:
                found = code.load(type_, code.at(source, number * size))
                totals[number % 4] = code.binary("add", totals[number % 4], found)
            if number < stores:
                code.store(totals[number % 4], code.at(target, number * size))
        return totals

    def once(index: V, _: list[V]) -> list[V]:
        here = code.at(arena, code.binary("mul", index, step))
        totals = code.loop(0, blocks, 1, lambda at, now: block(at, now, here), [typed(type_, 0)] * 4)
        for number, total in enumerate(totals):
            code.store(total, code.at(here, number * size))
        return []

    code.loop(0, count, 1, once)
    code.finish()


def _arrays(verified: VerifiedProgram, made: Plan) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int32]]]:
    """The addresses of the caller's arrays, and the arrays, with random codes in the inputs."""
    random = np.random.default_rng(0)
    fed = {item.value.name: item.value for item in verified.program.inputs}
    arrays = [
        random.integers(fed[name].lo, fed[name].hi, fed[name].shape, np.int32, endpoint=True)
        if name in fed
        else np.zeros(verified.shapes[name], np.int32)
        for name in made.arrays
    ]
    return np.array([array.ctypes.data for array in arrays], np.int64), arrays


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    raw = np.ones(size + 4096, np.uint8)
    return raw[-raw.ctypes.data % 64 :]


class _Least:
    """The least processor time of one repetition, of stretches of 50 us or more, unless their length is ``fixed``."""

    def __init__(self, run: Callable[[int], None], fixed: int) -> None:
        self._run, self._fixed, self._count = run, fixed, fixed or 1
        self.nanoseconds, self.samples = math.inf, 0

    def sample(self) -> None:
        """Measure one stretch."""
        while True:
            start = time.thread_time_ns()
            self._run(self._count)
            spent = time.thread_time_ns() - start
            if self._fixed or spent >= 50_000:
                break
            self._count *= 2
        self.nanoseconds = min(self.nanoseconds, spent / self._count)
        self.samples += 1


def _line(row: Row) -> str:
    work, unit = (row.macs, "GMAC/s") if row.macs else (row.read + row.written, "GB/s")
    cells = []
    for spent, limit, share in zip(row.nanoseconds, row.limits, row.shares, strict=True):
        cells += [f"{work / spent:.1f}", f"{work / limit:.1f}", f"{share:.0f} %"]
    binds = row.case.binds if min(row.shares) < 50 else ""
    return f"| {row.case.name} | {row.nanoseconds[0] / 1e3:.2f} | {unit} | {' | '.join(cells)} | {binds} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--machine")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each measurement")
    parser.add_argument("--below", type=float, default=math.inf, help="print only ops below this percentage")
    options = parser.parse_args(arguments)
    machine = named(options.machine) if options.machine else available()[0]
    assert machine is not None
    peak = multiply_add_peak(machine, 0.3)
    print(f"One thread of {machine.name}; dot products reach {peak / 1e9:.0f} GMAC/s.\n")
    print("| op | us | unit | in caches | limit | share | from memory | limit | share | what binds it |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---|")
    for case in CASES:
        if not options.names or any(name in case.name for name in options.names):
            row = measured(case, machine, peak, options.seconds)
            if min(row.shares) < options.below:
                print(_line(row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
