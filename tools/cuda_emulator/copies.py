"""Asynchronous copies from global to shared memory (cp.async).

What a copy writes can be read when the thread that began it has waited for its group, and by other threads after a
barrier behind that. Until then nobody may touch the bytes; the copied bytes are those at the time of the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.cuda_emulator.access import located, read_bytes
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.group import Group
from tools.cuda_emulator.kinds import Array, Value
from tools.cuda_emulator.memory import Memory
from tools.cuda_emulator.module import Instruction
from tools.cuda_emulator.shadows import Access, Conflict

if TYPE_CHECKING:
    from tools.cuda_emulator.machine import Machine

__all__ = ["Copies", "function", "size"]

_COPY = re.compile(r"llvm\.nvvm\.cp\.async\.(?:cg\.shared\.global\.(16)|ca\.shared\.global\.(4|8|16))(?:\.s)?$")


@dataclass(slots=True)
class _Copy:
    """Copies that threads have begun: ``groups`` is the number of the group that each belongs to."""

    memory: Memory
    grain: int
    threads: Array
    places: Array
    data: Array
    groups: Array

    def part(self, chosen: Array) -> _Copy:
        """The copies of some of the threads."""
        rest = (array[chosen] for array in (self.threads, self.places, self.data, self.groups))
        return _Copy(self.memory, self.grain, *rest)


class Copies:
    """The copies that are under way, and how many groups each thread has closed."""

    def __init__(self, threads: int) -> None:
        self.closed = np.zeros(threads, np.int64)
        self.open: list[_Copy] = []

    def begin(self, machine: Machine, group: Group, to: Array, data: Array) -> None:
        """Begin to write ``data``, (n, size)."""
        size = data.shape[1]
        for here in located(machine, group, group.full(to), size, size):
            access = here.access(size, machine.floor)
            if here.chosen is not None or access is None or here.memory.shadows is None:
                raise Conflict("outside", 0, "the target of an asynchronous copy is not one array of shared memory")
            here.memory.free_of_copies(here.places, size)
            here.memory.shadows.write(access)
            here.memory.expect(here.places, size, True)
            threads = group.threads
            self.open.append(_Copy(here.memory, here.grain, threads, here.places, data, self.closed[threads].copy()))

    def close(self, group: Group) -> None:
        """Close the group of each thread."""
        self.closed[group.threads] += 1

    def wait(self, machine: Machine, group: Group, left: int) -> None:
        """Let all groups of these threads arrive but the last ``left`` ones."""
        waits = np.zeros(len(self.closed), bool)
        waits[group.threads] = True
        still = []
        for copy in self.open:
            arrives = waits[copy.threads] & (copy.groups < self.closed[copy.threads] - left)
            if arrives.any():
                self._arrive(machine, copy if arrives.all() else copy.part(arrives))
            if not arrives.all():
                still.append(copy.part(~arrives))
        self.open = still

    def _arrive(self, machine: Machine, copy: _Copy) -> None:
        size = copy.data.shape[1]
        copy.memory.expect(copy.places, size, False)
        assert copy.memory.shadows is not None
        keys = machine.keys[copy.threads]
        copy.memory.shadows.write(Access(copy.places, size, keys, machine.floor, copy.grain))
        copy.memory.write(copy.places, copy.data)


def size(word: str) -> int:
    """The bytes that an instruction copies; 0 if it does not copy."""
    found = _COPY.match(word)
    return int(found[1] or found[2]) if found else 0


def function(instruction: Instruction) -> Callable[..., Value] | None:
    """The function of an instruction on copies; None if it is none."""
    count = size(instruction.word)
    if count:
        return _begun(count)
    match instruction.word:
        case "llvm.nvvm.cp.async.commit.group":
            return lambda machine, group: machine.copies.close(group)
        case "llvm.nvvm.cp.async.wait.group":
            if instruction.operands[0].value is None:
                raise unknown("a number of groups that only a run knows", instruction.text)
            left = instruction.operands[0].known
            return lambda machine, group, _: machine.copies.wait(machine, group, left)
        case "llvm.nvvm.cp.async.wait.all":
            return _all
    return None


def _all(machine: Machine, group: Group) -> None:
    machine.copies.close(group)
    machine.copies.wait(machine, group, 0)


def _begun(count: int) -> Callable[..., Value]:
    def begun(machine: Machine, group: Group, to: Array, source: Array, read: Array | None = None) -> None:
        if read is None:
            data = group.full(read_bytes(machine, group, source, count, count))
        else:
            data = _padded(machine, group, source, group.full(read), count)
        machine.copies.begin(machine, group, to, data)

    return begun


def _padded(machine: Machine, group: Group, source: Array, read: Array, count: int) -> Array:
    """The first ``read`` bytes, then zeros."""
    if ((read < 0) | (read > count)).any():
        raise Conflict("poison", int(np.argmax((read < 0) | (read > count))), "a copy of more bytes than it writes")
    data = np.zeros((len(group), count), np.uint8)
    source = group.full(source)
    for bytes_ in np.unique(read):
        chosen = np.nonzero(read == bytes_)[0]
        some = Group(group.at, group.threads[chosen], group.block, [])
        if (source[chosen] & count - 1).any():
            raise Conflict("misaligned", int(chosen[0]), f"the source of a copy is no multiple of {count}")
        width = count if bytes_ == count else 1
        for start in range(0, int(bytes_), width):
            raw = read_bytes(machine, some, source[chosen] + start, width, width)
            data[chosen, start : start + width] = raw
    return data
