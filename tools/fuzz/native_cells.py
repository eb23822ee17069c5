"""The ways through the native executor: those that a program takes, read from its plan, and those that are possible.

A `Cell` is one way of a `requantize`: the machine, the kernel that computes it, how its operand is stored, its
arithmetic, what adds the start of the sums, and how the result is stored. `IMPOSSIBLE` lists cells that cannot occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from cvm.executors.base import returned
from cvm.executors.native.descriptions.expressions import Formula, Requantization
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.descriptions.sums import Contraction, Depthwise
from cvm.executors.native.descriptions.winograd import Winograd
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.residual import residual
from cvm.executors.native.emit.tiles import Tiled
from cvm.executors.native.kernels.registry import PLANS
from cvm.executors.native.plan.planner import Planner
from cvm.program import Program, verify
from cvm.program.verifier import VerifiedProgram
from tools.fuzz.edge_programs import ARITHMETICS, KERNELS, STARTS, STORES, Aim, family
from tools.fuzz.edges import FORMATS

__all__ = ["IMPOSSIBLE", "Cell", "Coverage", "Rule", "cells", "covering", "possible", "stored_as", "why_impossible"]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One way of a `requantize` through the native executor; see `tools.fuzz.edge_programs.Aim` for the words."""

    machine: str
    kernel: str
    operand: str
    arithmetic: str
    start: str
    store: str

    @property
    def aim(self) -> Aim:
        """The aim with which programs for this cell are drawn."""
        return Aim(self.kernel, self.operand, self.arithmetic, self.start, self.store)


@dataclass(frozen=True, slots=True)
class Rule:
    """Cells that cannot occur, and why."""

    reason: str
    holds: Callable[[Cell, Machine], bool]


IMPOSSIBLE: tuple[Rule, ...] = (
    Rule(
        "a depthwise kernel reads bytes: convolutions of wider operands are planned as grouped ones",
        lambda cell, machine: cell.kernel == "depthwise" and not cell.operand.startswith("u8"),
    ),
    Rule(
        "the fused arithmetic needs multiply-adds of 52 bits, which this machine has not",
        lambda cell, machine: cell.arithmetic == "fused" and not machine.fuses,
    ),
    Rule(
        "without a contraction there are no sums: none to fuse with, no start to take over, no store that clips",
        lambda cell, machine: (
            cell.kernel == "pointwise"
            and (cell.arithmetic == "fused" or cell.start == "folded" or cell.store != "plain")
        ),
    ),
    Rule(
        "the fused arithmetic moves the sums' start, so its offset always takes it over",
        lambda cell, machine: cell.arithmetic == "fused" and cell.start == "own",
    ),
    Rule(
        "in 64-bit lanes the result is clipped before it is narrowed, so that no store can do it",
        lambda cell, machine: cell.arithmetic == "wide" and cell.store != "plain",
    ),
    Rule(
        "sums with another tensor are made in words only where there are instructions that narrow with saturation",
        lambda cell, machine: cell.store == "residual" and not machine.packs,
    ),
)
"""Why some cells are empty. Every other cell can be filled."""


def why_impossible(cell: Cell, machine: Machine) -> str | None:
    """The reason why a cell cannot occur, or None."""
    return next((rule.reason for rule in IMPOSSIBLE if rule.holds(cell, machine)), None)


def possible(machine: Machine) -> Iterator[Cell]:
    """The cells of a machine that can occur."""
    for kernel, operand, arithmetic, start, store in product(KERNELS, FORMATS, ARITHMETICS, STARTS, STORES):
        cell = Cell(machine.name, kernel, operand, arithmetic, start, store)
        if why_impossible(cell, machine) is None:
            yield cell


def stored_as(format_: Format) -> str:
    """The name of a format."""
    if format_.bits == 8:
        return {0: "u8", 128: "u8 + 128"}.get(format_.bias, "u8 + other")
    return {(16, True): "i16", (16, False): "u16"}.get((format_.bits, format_.signed), "i32")


def cells(verified: VerifiedProgram, machine: Machine, captured: bool = False) -> set[Cell]:
    """The cells that a program fills on a machine."""
    planner = _Noting(verified, machine, returned(verified.program, "all" if captured else frozenset()))
    planner.plan()
    return set(planner.cells())


class _Noting(Planner):
    """A planner that records the kernels of its calls, with the value that each computes."""

    def __init__(self, verified: VerifiedProgram, machine: Machine, names: frozenset[str]) -> None:
        self.kernels: dict[str, Any] = {}
        super().__init__(verified, machine, names, PLANS)

    def kernel(self, kernel: object, prefix: str) -> str:
        """See `Planner.kernel`."""
        name = super().kernel(kernel, prefix)
        self.kernels[name] = kernel.kernel if isinstance(kernel, Tiled) else kernel
        return name

    def cells(self) -> Iterator[Cell]:
        """The cells of all calls."""
        for call in self.calls:
            kernel = self.kernels.get(call.function)
            if isinstance(kernel, Nest):
                yield from self._nest(kernel)
            elif isinstance(kernel, Contraction):
                yield from self._sums("dense" if self._op(call.what) == "dense" else "conv", kernel, kernel.input)
            elif isinstance(kernel, Winograd):
                name = self.groups.sums[call.what].inputs[0]
                yield from self._sums("conv", kernel.products, Format.of(*self.hull(name)))
            elif isinstance(kernel, Depthwise):
                name = self.groups.sums[call.what].inputs[0]
                yield from self._sums("depthwise", kernel, Format.of(*self.hull(name)))

    def _op(self, name: str) -> str:
        return self.groups.sums[name].op

    def _nest(self, nest: Nest) -> Iterator[Cell]:
        for first, rule in _requantizations(nest.formula):
            if first < nest.formula.reads:
                operand = stored_as(nest.formats[first])
                yield Cell(self.machine.name, "pointwise", operand, rule.arithmetic, "own", "plain")

    def _sums(self, kind: str, kernel: Contraction | Depthwise, operand: Format) -> Iterator[Cell]:
        found = list(_requantizations(kernel.formula))
        if not found or not _follows_sums(kernel.formula, found[0][0]):
            return
        _, rule = found[0]
        start = "folded" if rule.arithmetic == "fused" or not kernel.starts else "own"
        store = "plain"
        if self.machine.packs and _joint(kernel):
            store = "residual"
        elif kernel.output.clamp is not None and len(found) == 1:
            store = "biased"
        yield Cell(self.machine.name, kind, stored_as(operand), rule.arithmetic, start, store)


def _requantizations(formula: Formula) -> Iterator[tuple[int, Requantization]]:
    """The first operand and the rule of every requantize of a formula, in order."""
    for step in formula.steps:
        if step.op == "requantize" and isinstance(step.static[0], Requantization):
            yield step.arguments[0], step.static[0]


def _follows_sums(formula: Formula, number: int) -> bool:
    """Whether a value is the sums, or computed from them."""
    if number < formula.reads:
        return number == 0
    return any(_follows_sums(formula, argument) for argument in formula.steps[number - formula.reads].arguments)


def _joint(kernel: Contraction | Depthwise) -> bool:
    """Whether some block of a kernel adds its codes to another tensor's in words."""
    biases: Mapping[int, int] = {
        number: read.format.bias
        for number, read in enumerate(kernel.reads, 1)
        if read.pixels is not None and read.pixels.channel == 1 and read.format.bits == 8 and not read.format.signed
    }
    blocks: Sequence[bool] = [segment.block.interleaved for segment in kernel.segments]
    return any(blocks) and residual(kernel.formula, biases) is not None


@dataclass(frozen=True, slots=True)
class Coverage:
    """For each machine, the programs that fill cells that earlier ones do not, and the cells of each machine."""

    programs: Mapping[str, Sequence[Program]]
    filled: frozenset[Cell]


def covering(machines: Sequence[Machine], seed: int, rounds: int, wild: float = 0.1) -> Coverage:
    """Draw families for every possible cell, until each is filled or was the aim of ``rounds`` rounds."""
    left = {machine.name: set(possible(machine)) for machine in machines}
    programs: dict[str, list[Program]] = {machine.name: [] for machine in machines}
    filled: set[Cell] = set()
    for number in range(rounds):
        for aim in sorted({cell.aim for wanted in left.values() for cell in wanted}, key=str):
            wanting = [machine for machine in machines if any(cell.aim == aim for cell in left[machine.name])]
            if not wanting:
                continue
            verified = verify(family(Random(f"{seed}:{number}:{aim}"), aim, 1, wild, small=True).program)
            for machine in wanting:
                found = cells(verified, machine)
                filled |= found
                if found & left[machine.name]:
                    left[machine.name] -= found
                    programs[machine.name].append(verified.program)
    return Coverage(programs, frozenset(filled))
