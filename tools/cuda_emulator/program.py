"""A kernel, prepared for runs: segments of steps, where each value has a slot.

A segment is a basic block, or a part of one that a barrier begins or ends. If threads are in different segments, one
segment runs after the other: always the one that comes first in the text. The writers of kernels put the body of a loop
or of a condition before what follows it; so threads that part meet again as early as they can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from tools.cuda_emulator import arithmetic, copies, floats, intrinsics, warps
from tools.cuda_emulator.access import atomic, distance, identity, load, store
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.kinds import Value
from tools.cuda_emulator.module import GLOBAL, LOCAL, SHARED, Block, Function, Instruction
from tools.cuda_emulator.shapes import cast, moved

__all__ = ["Edge", "Program", "Segment", "Step", "prepared"]

_BARRIERS = ("llvm.nvvm.barrier0", "llvm.nvvm.barrier.cta.sync.aligned.all", "llvm.nvvm.barrier.cta.sync.all")


@dataclass(slots=True)
class Step:
    """An instruction as a function of values. With ``threads`` it also takes the run and the group."""

    run: Callable[..., Value]
    threads: bool
    result: int | None
    operands: tuple[int, ...]
    instruction: Instruction
    last: tuple[int, ...] = ()
    """The slots that nobody reads afterwards."""


@dataclass(slots=True)
class Edge:
    """A way to another segment, and what its phis take: pairs of slots (phi, source)."""

    to: int
    phis: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Segment:
    """Steps, and where the threads go then: one edge, two edges by ``condition``, or none, where they return."""

    steps: list[Step] = field(default_factory=list)
    edges: tuple[Edge, ...] = ()
    condition: int | None = None
    barrier: Instruction | None = None
    """The barrier at the end."""
    needs: tuple[int, ...] = ()
    """The slots that must have values at the beginning, those of phis among them."""
    phis: tuple[int, ...] = ()


@dataclass(slots=True)
class Program:
    """A prepared kernel. ``template`` has the constants in their slots; ``rooms`` are local memory: bytes by number.

    ``grains``: all accesses to a memory (`GLOBAL`, `SHARED`) have sizes and alignments that are multiples of so many
    bytes.
    """

    function: Function
    segments: list[Segment]
    template: list[Value]
    parameters: tuple[int, ...]
    rooms: dict[int, int]
    grains: dict[int, int]


class _Preparation:
    """The state while a kernel is prepared."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.slots: dict[str, int] = {}
        self.template: list[Any] = []
        self.rooms: dict[int, int] = {}
        self.grains = {GLOBAL: 16, SHARED: 16}
        instructions = [one for block in function.blocks for one in block.instructions]
        self.read = {operand.name for one in instructions for operand in one.operands}

    def slot(self, name: str) -> int:
        """The slot of a value."""
        if name not in self.slots:
            self.slots[name] = len(self.template)
            self.template.append(None)
        return self.slots[name]

    def operands(self, instruction: Instruction) -> tuple[int, ...]:
        """The slots of an instruction's operands. Constants get their own."""
        found = []
        for operand in instruction.operands:
            if operand.name is not None:
                found.append(self.slot(operand.name))
            else:
                found.append(len(self.template))
                self.template.append(operand.value)
        return tuple(found)

    def step(self, instruction: Instruction) -> Step | None:
        """An instruction as a step; None if it does nothing."""
        if instruction.op == "call" and intrinsics.IGNORED.match(instruction.word):
            return None
        result = self.slot(instruction.result) if instruction.result else None
        run, threads = self._function(instruction)
        return Step(run, threads, result, self.operands(instruction), instruction)

    def _function(self, instruction: Instruction) -> tuple[Callable[..., Value], bool]:
        pure = _pure(instruction)
        if pure is not None:
            return pure, False
        op = instruction.op
        if op == "alloca":
            number = 2 * (len(self.rooms) + 1)
            self.rooms[number] = instruction.kind.size
            return identity(LOCAL << 60 | number << 40), False
        if op in ("load", "store", "atomicrmw"):
            self._grain(instruction.operands[0].type.space, instruction.kind.size, instruction.align)
        if op == "load":
            return load(instruction), True
        if op == "store":
            return store(instruction), True
        if op == "atomicrmw":
            return atomic(instruction, instruction.result in self.read), True
        if op == "call":
            return self._call(instruction), True
        raise unknown(f"the instruction {op}", instruction.text)

    def _call(self, instruction: Instruction) -> Callable[..., Value]:
        word = instruction.word
        made = copies.function(instruction)
        if made is not None:
            size = copies.size(word)
            for space in (GLOBAL, SHARED) if size else ():
                self._grain(space, size, size)
            return made
        made = warps.function(instruction)
        if made is None:
            raise unknown(f"the function {word}", instruction.text)
        if "ldmatrix" in word:
            self._grain(SHARED, 4, 4)
        return made

    def _grain(self, space: int, size: int, align: int) -> None:
        for memory in (space,) if space in self.grains else tuple(self.grains):
            self.grains[memory] = gcd(self.grains[memory], gcd(size, align))


def _pure(instruction: Instruction) -> Callable[..., Value] | None:
    """The function of an instruction that needs no memory and no other thread."""
    op = instruction.op
    if op in floats.FLOATS:
        return floats.FLOATS[op]
    if op == "fneg":
        return lambda a: -a
    if op == "icmp":
        return arithmetic.compared(instruction.word, instruction.operands[0].type)
    if op == "fcmp" and instruction.word in floats.COMPARISONS:
        return floats.COMPARISONS[instruction.word]
    if op in ("trunc", "zext", "sext", "bitcast", "sitofp", "uitofp", "fptosi", "fptoui", "addrspacecast", "ptrtoint"):
        return cast(instruction)
    if op == "getelementptr":
        return distance(instruction)
    if op == "call":
        return intrinsics.intrinsic(instruction)
    return moved(instruction) or (arithmetic.binary(instruction) if instruction.type.element.kind == "int" else None)


def prepared(function: Function) -> Program:
    """Prepare a kernel. Raises `NotEmulated` for an instruction that the emulator does not know."""
    preparation = _Preparation(function)
    parameters = tuple(preparation.slot(name) for name in function.parameters)
    first: dict[str, int] = {}
    ends: list[tuple[int, Block]] = []
    segments: list[Segment] = []
    for block in function.blocks:
        first[block.label] = len(segments)
        phis = [one.result for one in block.instructions if one.op == "phi" and one.result]
        segments.append(Segment(phis=tuple(map(preparation.slot, phis))))
        for instruction in block.instructions:
            if instruction.op in ("phi", "br", "ret"):
                continue
            if instruction.op == "call" and instruction.word in _BARRIERS:
                if instruction.operands and (instruction.operands[0].value is None or instruction.operands[0].known):
                    raise unknown("a barrier other than number 0", instruction.text)
                segments[-1].barrier = instruction
                segments[-1].edges = (Edge(len(segments)),)
                segments.append(Segment())
                continue
            step = preparation.step(instruction)
            if step is not None:
                segments[-1].steps.append(step)
        ends.append((len(segments) - 1, block))
    targets = {block.label: block for block in function.blocks}
    for number, block in ends:
        _end(preparation, segments[number], block, targets, first)
    _liveness(segments, preparation.template)
    return Program(function, segments, preparation.template, parameters, preparation.rooms, preparation.grains)


def _end(
    preparation: _Preparation, segment: Segment, block: Block, targets: dict[str, Block], first: dict[str, int]
) -> None:
    """Enter where a segment's threads go."""
    last = block.instructions[-1]
    if last.operands:
        (segment.condition,) = preparation.operands(last)
    edges = []
    for label in last.labels:
        phis = []
        for phi in targets[label].instructions:
            if phi.op == "phi":
                slots = preparation.operands(phi)
                assert phi.result
                phis.append((preparation.slot(phi.result), slots[phi.labels.index(block.label)]))
        edges.append(Edge(first[label], tuple(phis)))
    segment.edges = tuple(edges)


def _liveness(segments: list[Segment], template: list[Value]) -> None:
    """Enter which values each segment needs, and after which step a value is not read any more."""
    constants = {slot for slot, value in enumerate(template) if value is not None}
    needs: list[set[int]] = [set() for _ in segments]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(segments))):
            live = _after(segments[number], segments, needs)
            for step in reversed(segments[number].steps):
                live.discard(-1 if step.result is None else step.result)
                live.update(step.operands)
            live -= constants
            if live != needs[number]:
                needs[number], changed = live, True
    for segment, need in zip(segments, needs, strict=True):
        segment.needs = tuple(sorted(need))
        live = _after(segment, segments, needs) | constants
        for step in reversed(segment.steps):
            ends = {*step.operands, *([] if step.result is None else [step.result])} - live
            step.last = tuple(ends)
            live.discard(-1 if step.result is None else step.result)
            live.update(step.operands)


def _after(segment: Segment, segments: list[Segment], needs: list[set[int]]) -> set[int]:
    """The slots that are read after the steps of a segment."""
    live = set() if segment.condition is None else {segment.condition}
    for edge in segment.edges:
        live |= needs[edge.to] - set(segments[edge.to].phis)
        live.update(source for _, source in edge.phis)
    return live
