"""The layout of an exported program: its names in C, the steps of a run, and the place of every tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from cvm.export.c.elements import Source
from cvm.export.c.movement import scratch
from cvm.export.c.plan import plan
from cvm.export.c.storage import TYPES, CType, Lifetime, Place, narrowest, planned
from cvm.program.model import Node, Shape, Value
from cvm.program.verifier import VerifiedProgram

__all__ = ["Layout", "identifiers"]


def identifiers(names: Sequence[str]) -> list[str]:
    """Different identifiers of C for these names, which stay recognisable."""
    found: list[str] = []
    for number, name in enumerate(names):
        words = re.sub("[^a-z0-9_]", "_", name.lower())[:40].strip("_")
        if not words or words[0].isdigit() or words in _KEYWORDS or words in found:
            words = f"{words}_{number}" if words and not words[0].isdigit() else f"value_{number}"
        found.append(words)
    return found


_KEYWORDS = frozenset(
    re.findall(
        "[a-z]+",
        "auto break case char const continue default do double else enum extern float for goto if inline int long "
        "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while",
    )
)


class Layout:
    """What a program is in C. ``traced``: every tensor is stored, so that a run can show it."""

    def __init__(self, verified: VerifiedProgram, name: str, traced: bool) -> None:
        self.verified, self.name, self.traced = verified, name, traced
        self.program = verified.program
        self.plan = plan(verified, traced)
        self.inputs = identifiers([item.value.name for item in self.program.inputs])
        self.outputs = identifiers([item.name for item in self.program.outputs])
        self.states = identifiers([item.value.name for item in self.program.state])
        self.copied = self._copied_updates()
        self.source = Source(verified, self.plan, {})
        self.steps = self._steps()
        self._place_given()
        self.arena_bytes = self._place_arena()

    def _copied_updates(self) -> list[int]:
        """The numbers of the states whose next value is a state: it is kept in the arena while states change."""
        states = {item.value.name for item in self.program.state}
        return [
            number
            for number, item in enumerate(self.program.state)
            if self.plan.stored(item.update) in states and self.plan.stored(item.update) != item.value.name
        ]

    def _place_given(self) -> None:
        """The places of inputs, constants and state."""
        places = self.source.places
        for item, word in zip(self.program.inputs, self.inputs, strict=True):
            value = item.value
            places[value.name] = Place(f"in->{word}", 0, value.shape, narrowest(value.lo, value.hi))
        for number, constant in enumerate(self.program.constants):
            places[constant.name] = Place.constant(constant, f"c{number}")
        for state, word in zip(self.program.state, self.states, strict=True):
            value = state.value
            places[value.name] = Place(f"state->{word}", 0, value.shape, narrowest(value.lo, value.hi))

    def _steps(self) -> list[int]:
        """The numbers of the nodes for which code is written, in order."""
        nodes = self.program.nodes
        return [
            number
            for number in sorted(self.plan.live)
            if nodes[number].outputs[0].name not in self.plan.inlined | set(self.plan.aliases)
        ]

    def _reads(self, node: Node) -> Iterator[str]:
        """The stored values that the code of a node reads, also inside the chain that it ends."""
        for name in node.inputs:
            if name in self.plan.inlined:
                yield from self._reads(self.source.node(name))
            else:
                yield self.plan.stored(name)

    def _place_arena(self) -> int:
        """Give a place in the arena to every value that a node stores; returns the size of the arena."""
        last: dict[str, int] = {}
        made: dict[str, tuple[Value, int]] = {}
        needs: dict[str, Lifetime] = {}
        for time, number in enumerate(self.steps):
            node = self.program.nodes[number]
            for name in self._reads(node):
                last[name] = time
            for value in node.outputs:
                made[value.name] = (value, time)
            if count := scratch(self.source, node):
                needs[f"{node.outputs[0].name} scratch"] = Lifetime(4 * count, time, time)
        end = len(self.steps)
        for name in (*(item.value for item in self.program.outputs), *(item.update for item in self.program.state)):
            last[self.plan.stored(name)] = end
        types: dict[str, tuple[Shape, CType]] = {}
        for name, (value, time) in made.items():
            found = narrowest(*self.source.hull(name))
            types[name] = (value.shape, found)
            needs[name] = Lifetime(found.size * math.prod(value.shape), time, last.get(name, time))
        for number in self.copied:
            value = self.program.state[number].value
            found = narrowest(value.lo, value.hi)
            types[f"{value.name} next"] = (value.shape, found)
            needs[f"{value.name} next"] = Lifetime(found.size * math.prod(value.shape), end, end)
        offsets, size = planned(needs)
        for name, offset in offsets.items():
            shape, kind = types.get(name, ((needs[name].bytes // 4,), _INT32))
            self.source.places[name] = Place(f"a->{kind.member}", offset // kind.size, shape, kind)
        return size

    def parameters(self) -> str:
        """The parameters of the function that runs the program."""
        name = self.name
        parts = [f"{name}_arena *a", f"const {name}_inputs *in", f"const {name}_outputs *out"]
        if self.program.state:
            parts.append(f"{name}_state *state")
        if self.traced:
            parts += [f"{name}_hook hook", "void *context"]
        return ", ".join(parts)

    def output_type(self, value: str) -> CType:
        """The type of the elements of an output."""
        return narrowest(*self.source.hull(value))


_INT32 = TYPES[4]
