"""Loads, stores, atomic operations and addresses: the function of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tools.cuda_emulator.arithmetic import unsigned
from tools.cuda_emulator.constants import stride
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.group import Group, part
from tools.cuda_emulator.kinds import Array, Value, container
from tools.cuda_emulator.memory import Memory
from tools.cuda_emulator.module import Instruction
from tools.cuda_emulator.shadows import Access, Conflict
from tools.cuda_emulator.shapes import bytes_of, decoder

if TYPE_CHECKING:
    from tools.cuda_emulator.machine import Machine

__all__ = ["Located", "atomic", "distance", "identity", "load", "located", "read_bytes", "store"]

Threaded = Callable[..., Value]
"""From the run, the group and the values of the operands to the value of the result."""

OFFSET = 40
"""An address has an offset in so many bits, below the number of its allocation."""


class Located:
    """Where the threads of a group, or some of them (``chosen``), access one memory."""

    def __init__(self, memory: Memory, places: Array, keys: Array | None, grain: int, chosen: Array | None) -> None:
        self.memory, self.places, self.keys, self.grain, self.chosen = memory, places, keys, grain, chosen

    def access(self, size: int, floor: int) -> Access | None:
        """The access with the keys of its threads; None if it needs no trace."""
        if self.keys is None:
            return None
        places = self.places if len(self.places) == len(self.keys) else np.broadcast_to(self.places, self.keys.shape)
        return Access(places, size, self.keys, floor, self.grain)


def located(machine: Machine, group: Group, addresses: Array, size: int, align: int) -> Sequence[Located]:
    """Where addresses lie, by memory. Raises `Conflict` for addresses outside, and misaligned ones."""
    tops = addresses >> OFFSET
    if len(tops) == 1 or np.logical_and.reduce(tops == tops[0]):
        return (_located(machine, group, addresses, int(tops[0]), (size, align), None),)
    found = []
    full = group.full(addresses)
    for top in np.unique(tops):
        chosen = np.nonzero(full >> OFFSET == top)[0]
        try:
            found.append(_located(machine, group, full[chosen], int(top), (size, align), chosen))
        except Conflict as conflict:
            conflict.entry = int(chosen[conflict.entry])
            raise
    return found


def _located(
    machine: Machine, group: Group, addresses: Array, top: int, sizes: tuple[int, int], chosen: Array | None
) -> Located:
    memory = machine.memory(top)
    if memory is None:
        raise Conflict("outside", 0, machine.stray(int(addresses[0])))
    offsets = addresses - (top << OFFSET)
    memory.check(offsets, *sizes)
    rows, keys, grain = machine.rows(group, top), None, 1
    if memory.shadows is not None and not memory.frozen:
        keys, grain = machine.keys_of(group), machine.grain(top)
    if chosen is not None:
        rows, keys = part(rows, chosen), part(keys, chosen)
    return Located(memory, memory.places(offsets, rows), keys, grain, chosen)


def read_bytes(machine: Machine, group: Group, addresses: Array, size: int, align: int, frozen: bool = False) -> Array:
    """The bytes at addresses: (n, size), or (1, size) if all threads read the same ones."""
    found = np.zeros((0, size), np.uint8)
    for here in located(machine, group, addresses, size, align):
        try:
            raw = here.memory.read(here.places, size)
            access = here.access(size, machine.floor)
            if access is not None and here.memory.shadows is not None:
                here.memory.shadows.read(access, frozen)
        except Conflict as conflict:
            conflict.entry = conflict.entry if here.chosen is None else int(here.chosen[conflict.entry])
            raise
        if here.chosen is None:
            return raw
        if not len(found):
            found = np.zeros((len(group), size), np.uint8)
        found[here.chosen] = raw
    return found


def load(instruction: Instruction) -> Threaded:
    """The function of a load."""
    kind, align, frozen = instruction.kind, instruction.align, "invariant" in instruction.flags
    if kind.kind == "ptr" or kind.width % 8:
        raise unknown(f"a load of {kind}", instruction.text)

    size, value = kind.size, decoder(kind)

    def loaded(machine: Machine, group: Group, addresses: Array) -> Value:
        return value(read_bytes(machine, group, addresses, size, align, frozen))

    return loaded


def store(instruction: Instruction) -> Threaded:
    """The function of a store."""
    kind, align = instruction.kind, instruction.align
    if kind.kind == "ptr" or kind.width % 8:
        raise unknown(f"a store of {kind}", instruction.text)

    def stored(machine: Machine, group: Group, addresses: Array, values: Array) -> None:
        raw = bytes_of(values, kind)
        for here in located(machine, group, addresses, kind.size, align):
            mine = group.full(raw) if here.chosen is None else part(raw, here.chosen)
            _write(machine, here, mine, len(group))

    return stored


def _write(machine: Machine, here: Located, raw: Array, count: int) -> None:
    """Store bytes. Threads that write the same place conflict."""
    try:
        access = here.access(raw.shape[1], machine.floor)
        if access is not None and here.memory.shadows is not None:
            here.memory.shadows.write(access)
        places = here.places if access is None else access.places
        here.memory.write(places, np.broadcast_to(raw, (len(places), raw.shape[1])))
    except Conflict as conflict:
        conflict.entry = conflict.entry if here.chosen is None else int(here.chosen[conflict.entry])
        raise


_ATOMICS = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum,
    "min": np.minimum, "umax": np.maximum, "umin": np.minimum,
}  # fmt: skip


def atomic(instruction: Instruction, used: bool) -> Threaded:
    """The function of an atomic operation, whose result nobody may read: it depends on the order of threads."""
    kind, word = instruction.kind, instruction.word
    if word not in _ATOMICS or kind.kind != "int" or kind.bits not in (32, 64):
        raise unknown(f"atomicrmw {word} {kind}", instruction.text)
    size, dtype = kind.size, container(kind)

    def changed(machine: Machine, group: Group, addresses: Array, values: Array) -> Array:
        if used:
            raise Conflict("order", 0, "the result of an atomic operation depends on the order of threads")
        for here in located(machine, group, group.full(addresses), size, max(size, instruction.align)):
            mine = group.full(values) if here.chosen is None else part(group.full(values), here.chosen)
            old = here.memory.read(here.places, size)
            access = here.access(size, machine.floor)
            if access is not None and here.memory.shadows is not None:
                here.memory.shadows.write(access, atomic=True)
            here.memory.write(here.places, old)  # it is checked like a store
            words = here.memory.data.view(dtype)
            if word[0] == "u":
                words, mine = unsigned(words, kind.bits), unsigned(mine, kind.bits)
            _ATOMICS[word].at(words, here.places // size, mine)
        return values

    return changed


def distance(instruction: Instruction) -> Callable[..., Value]:
    """The function of a getelementptr. Its indices have signs."""
    if instruction.type.kind != "ptr" or any(one.type.kind == "vector" for one in instruction.operands):
        raise unknown("addresses in vectors", instruction.text)
    steps = stride(instruction.kind, len(instruction.operands) - 1)

    def moved(address: Array, *indices: Array) -> Array:
        for index, step in zip(indices, steps, strict=True):
            wide = index.astype(np.int64)
            address = address + (wide if step == 1 else wide * step)
        return address

    return moved


def identity(number: int) -> Callable[[], Value]:
    """The function that gives one number."""
    value = np.array([number], np.int64)
    return lambda: value
