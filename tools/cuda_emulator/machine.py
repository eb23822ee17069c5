"""The run of some blocks of a launch: which threads go on, where they wait, and where they meet again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tools.cuda_emulator.copies import Copies
from tools.cuda_emulator.defects import KernelDefect
from tools.cuda_emulator.group import Group, joined, part
from tools.cuda_emulator.kinds import Array, Value
from tools.cuda_emulator.memory import Memory
from tools.cuda_emulator.module import LOCAL, SHARED, Instruction
from tools.cuda_emulator.program import Edge, Program, Segment
from tools.cuda_emulator.shadows import BLOCK, PHASE, Conflict

__all__ = ["OFFSET", "Machine"]

OFFSET = 40


class Machine:
    """The blocks ``first`` .. ``first + blocks - 1`` of a launch of ``grid`` blocks with ``block`` threads each.

    ``memories`` are allocations and constants by the upper bits of their addresses; ``shared`` the bytes of shared
    variables likewise. Keys of the launch's blocks begin above ``floor``. A group may take ``most`` segments in all.
    """

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: int,
        first: int,
        blocks: int,
        memories: Mapping[int, Memory],
        shared: Mapping[int, tuple[str, int]],
        floor: int,
        most: int,
    ) -> None:
        self.program, self.grid, self.block, self.first, self.blocks = program, grid, block, first, blocks
        self.floor, self._left = floor, most
        self._memories = dict(memories)
        for top, (name, size) in shared.items():
            self._memories[top] = Memory(f"shared memory {name}", size, rows=blocks)
        for number, size in program.rooms.items():
            top = LOCAL << 20 | number
            self._memories[top] = Memory("local memory", size, rows=blocks * block, traced=False)
        numbers = np.arange(blocks * block)
        self.keys = floor + BLOCK * (first + 1 + numbers // block) + numbers % block
        self._phases = 0
        self.copies = Copies(blocks * block)
        self._ready: dict[int, list[Group]] = {}
        self._waiting: dict[int, list[Group]] = {}

    # What instructions ask for ----------------------------------------------------------------------------------------

    def memory(self, top: int) -> Memory | None:
        """The memory of addresses with these upper bits; None if there is none."""
        return self._memories.get(top)

    def rows(self, group: Group, top: int) -> Array | None:
        """Which copy of a memory each thread has; None if there is one for all."""
        space = top >> 20
        if space == LOCAL:
            return group.threads
        return group.blocks if space == SHARED and self.blocks > 1 else None

    def keys_of(self, group: Group) -> Array:
        """The keys of the threads: see `Shadows`."""
        return self.keys if len(group) == len(self.keys) else self.keys[group.threads]

    def grain(self, top: int) -> int:
        """See `Program.grains`."""
        return self.program.grains.get(top >> 20, 1)

    def block_index(self, group: Group, axis: int) -> Array:
        """The index of each thread's block along an axis of the grid."""
        x, y, _ = self.grid
        number = self.first + (group.blocks if self.blocks > 1 else np.zeros(1, np.int64))
        return (number % x, number // x % y, number // (x * y))[axis].astype(np.int32)

    def stray(self, address: int) -> str:
        """An address that belongs to no memory, in words."""
        top, offset = address >> OFFSET, address & (1 << OFFSET) - 1
        above = self._memories.get(top + 1)
        if above is not None and offset >= 1 << OFFSET - 1:
            return f"offset {offset - (1 << OFFSET)} of {above.name}"
        return f"address {address:#x} belongs to no allocation"

    # The run ----------------------------------------------------------------------------------------------------------

    def run(self, addresses: tuple[int, ...]) -> None:
        """Run the blocks from the beginning to the end. Raises `KernelDefect`."""
        values: list[Value] = list(self.program.template)
        for slot, address in zip(self.program.parameters, addresses, strict=True):
            values[slot] = np.array([address], np.int64)
        self._ready = {0: [Group(0, np.arange(self.blocks * self.block), self.block, values)]}
        while self._ready or self._waiting:
            if not self._ready:
                self._release()
            at = min(self._ready)
            segment = self.program.segments[at]
            group = joined(self._ready.pop(at), segment.needs, self.program.template)
            self._steps(group, segment)
            self._leave(group, segment)
            self._left -= 1
            if self._left < 0:
                raise KernelDefect("endless", "the kernel takes too many steps", self.program.function.name)

    def _steps(self, group: Group, segment: Segment) -> None:
        values = group.values
        for step in segment.steps:
            try:
                operands = [values[slot] for slot in step.operands]
                result = step.run(self, group, *operands) if step.threads else step.run(*operands)
            except Conflict as conflict:
                raise self._defect(conflict, group, step.instruction) from None
            if step.result is not None:
                values[step.result] = result
            for slot in step.last:
                values[slot] = None

    def _leave(self, group: Group, segment: Segment) -> None:
        """Send the threads of a group to where they go after a segment."""
        if segment.barrier is not None:
            self._waiting.setdefault(segment.edges[0].to, []).append(self._moved(group, segment.edges[0]))
            return
        if not segment.edges:
            return
        if segment.condition is None:
            self._arrive(self._moved(group, segment.edges[0]))
            return
        condition: Array = group.values[segment.condition]
        if condition.all():
            self._arrive(self._moved(group, segment.edges[0]))
        elif not condition.any():
            self._arrive(self._moved(group, segment.edges[1]))
        else:
            for edge, chosen in zip(segment.edges, (condition, ~condition), strict=True):
                self._arrive(self._split(group, edge, chosen))

    def _arrive(self, group: Group) -> None:
        self._ready.setdefault(group.at, []).append(group)

    @staticmethod
    def _moved(group: Group, edge: Edge) -> Group:
        """All threads of a group behind an edge."""
        taken = [group.values[source] for _, source in edge.phis]
        for (slot, _), value in zip(edge.phis, taken, strict=True):
            group.values[slot] = value
        group.at = edge.to
        return group

    def _split(self, group: Group, edge: Edge, chosen: Array) -> Group:
        """Some threads of a group behind an edge."""
        values: list[Value] = list(self.program.template)
        target = self.program.segments[edge.to]
        for slot in target.needs:
            values[slot] = part(group.values[slot], chosen)
        for slot, source in edge.phis:
            values[slot] = part(group.values[source], chosen)
        return Group(edge.to, group.threads[chosen], self.block, values)

    def _release(self) -> None:
        """Let blocks go on behind a barrier. Raises the defect of a barrier that some of their threads do not reach."""
        for at, groups in self._waiting.items():
            threads = np.concatenate([group.threads for group in groups])
            counts = np.bincount(threads // self.block, minlength=self.blocks)
            short = (counts > 0) & (counts < self.block)
            if short.any():
                block = int(np.argmax(short))
                (barrier,) = (s.barrier for s in self.program.segments if s.barrier and s.edges[0].to == at)
                message = (
                    f"{counts[block]} of {self.block} threads of block {self._block(block)} wait at the barrier,"
                    " and the others have returned or wait at another one"
                )
                raise KernelDefect("barrier", message, self.program.function.name, barrier.text)
            self.keys[threads] += PHASE
        self._phases += 1
        if self._phases >= BLOCK // PHASE:
            raise KernelDefect("endless", "the kernel passes too many barriers", self.program.function.name)
        self._ready, self._waiting = self._waiting, {}

    def _block(self, number: int) -> tuple[int, int, int]:
        """The index of a block in the grid."""
        x, y, _ = self.grid
        number += self.first
        return number % x, number // x % y, number // (x * y)

    def _defect(self, conflict: Conflict, group: Group, instruction: Instruction) -> KernelDefect:
        thread = int(group.threads[min(conflict.entry, len(group) - 1)])
        where = f"thread {thread % self.block} of block {self._block(thread // self.block)}"
        name = self.program.function.name
        return KernelDefect(conflict.kind, f"{where}: {conflict.message}", name, instruction.text)
