"""State that stays in the caller's arrays from run to run, in narrow formats.

A network of this kind reads the state from these arrays, and leaves the next state in them. An updated slice is written
over the state if nothing reads the old one afterwards. The next values of all other states are copied into their arrays
at the end, when all old ones have been read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.program import Program
from cvm.program.appends import appends
from cvm.program.model import Node, Value

__all__ = ["Residence", "state_format"]


def state_format(value: Value) -> Format:
    """The format in which a resident state is stored."""
    return Format.of(value.lo, value.hi)


class _Planning(Protocol):
    """The planner, as far as state concerns it (see `planner.Planner`)."""

    program: Program
    homes: dict[str, Home]
    arrays: dict[str, Home]

    def destination(self, name: str) -> tuple[str, int, int] | None:
        """(concatenation, axis, start) if the value is computed as a part of a concatenation's result, else None."""

    def roots(self) -> Mapping[str, str]:
        """For every joined value, the result of its group's root."""

    def home(self, name: str) -> Home:
        """The home of a value."""

    def fresh(self, shape: tuple[int, ...], format_: Format) -> Home:
        """Allocate memory for a tensor."""

    def copy(self, source: Home, target: Home, what: str) -> None:
        """Add a call that copies the elements of one home to another."""


class Residence:
    """Which states are updated in place, and how the others are updated."""

    def __init__(self, planner: _Planning) -> None:
        self._planner = planner
        self._state = {item.value.name: item for item in planner.program.state}
        self._appends = appends(planner.program)
        self._placed: set[str] = set()

    def in_place(self, node: Node) -> Home | None:
        """The home of the state that a node updates, if nothing reads the old state any more; else None.

        The result of the node is in this home then.
        """
        planner, name, result = self._planner, node.inputs[0], node.outputs[0].name
        found = self._appends.get(name)
        if found is None or self._state[name].update != result or planner.destination(result) is not None:
            return None
        home = planner.arrays[name]
        old = {value for value, known in planner.homes.items() if known.buffer is home.buffer} | {name}
        if old & {*node.inputs[1:], *(item.update for item in self._state.values())}:
            return None
        if any(number > found.node and old & set(inputs) for number, inputs in self._reads()):
            return None
        self._placed.add(name)
        planner.homes[result] = home
        return home

    def _reads(self) -> list[tuple[int, Collection[str]]]:
        """What each node reads, and the number of the node whose kernel computes it."""
        nodes, roots = self._planner.program.nodes, self._planner.roots()
        numbers = {value.name: number for number, node in enumerate(nodes) for value in node.outputs}
        return [(numbers[roots.get(node.outputs[0].name, node.outputs[0].name)], node.inputs) for node in nodes]

    def update(self) -> None:
        """Copy the next values of the states that were not updated in place into their arrays."""
        planner = self._planner
        left = {name: item.update for name, item in self._state.items() if name not in self._placed}
        left = {name: update for name, update in left.items() if update != name}
        targets = {name: planner.arrays[name] for name in left}
        overwritten: set[Buffer] = {home.buffer for home in targets.values()}
        sources = {update: planner.home(update) for update in left.values()}
        for update, home in sources.items():
            if home.buffer in overwritten:  # the old value of a state becomes the next one of another
                fresh = planner.fresh(home.view.shape, home.format)
                planner.copy(home, fresh, f"{update}, kept")
                sources[update] = fresh
        for name, update in left.items():
            planner.copy(sources[update], targets[name], f"{name}, the next one")
