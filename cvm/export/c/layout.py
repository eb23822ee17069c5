"""The layout of an exported program: its names in C, the steps of a run, and the place of every tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from cvm.export.c.elements import Source
from cvm.export.c.movement import scratch
from cvm.export.c.plan import in_place, plan
from cvm.export.c.storage import TYPES, CType, Lifetime, Place, narrowest, planned, together
from cvm.program.model import Constant, Node, Shape, Value
from cvm.program.verifier import VerifiedProgram

__all__ = ["Layout"]


def _identifiers(names: Sequence[str]) -> list[str]:
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
    """What a program is in C. ``traced``: every tensor is stored, so that a run can show it. ``dots``: see `Source`."""

    def __init__(self, verified: VerifiedProgram, name: str, traced: bool, dots: bool = False) -> None:
        self.verified, self.name, self.traced = verified, name, traced
        self.program = verified.program
        self.plan = plan(verified, traced)
        self.inputs = _identifiers([item.value.name for item in self.program.inputs])
        self.outputs = _identifiers([item.name for item in self.program.outputs])
        self.states = _identifiers([item.value.name for item in self.program.state])
        self.copied = self._copied_updates()
        self.source = Source(verified, self.plan, {}, dots)
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
        self.constants = [*self.program.constants, *self._biases()]
        for number, constant in enumerate(self.constants):
            places[constant.name] = Place.constant(constant, f"c{number}")
        for state, word in zip(self.program.state, self.states, strict=True):
            value = state.value
            places[value.name] = Place(f"state->{word}", 0, value.shape, narrowest(value.lo, value.hi))

    def _biases(self) -> list[Constant]:
        """The biases of convolutions that read a tensor inside a border."""
        given = {name: item.bias for name, item in self.plan.borders.items() if item.bias is not None}
        return [Constant.of(f"{name}\nbias", np.array(bias)) for name, bias in given.items()]

    def _steps(self) -> list[int]:
        """The numbers of the nodes for which code is written, in order."""
        nodes = self.program.nodes
        return [
            number
            for number in sorted(self.plan.live)
            if nodes[number].outputs[0].name not in self.plan.inlined | set(self.plan.aliases)
        ]

    def _place_arena(self) -> int:
        """Give a place in the arena to every value that a node stores; returns the size of the arena."""
        nodes = {value.name: node for node in self.program.nodes for value in node.outputs}
        last: dict[str, int] = {}
        made: dict[str, tuple[Value, int]] = {}
        needs: dict[str, Lifetime] = {}
        for time, number in enumerate(self.steps):
            node = self.program.nodes[number]
            for name in self.plan.reads(node, nodes):
                last[name] = time
            for value in node.outputs:
                made[value.name] = (value, time)
            if count := scratch(self.source, node):
                needs[f"{node.outputs[0].name}\nscratch"] = Lifetime(4 * count, time, time)
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
            types[f"{value.name}\nnext"] = (value.shape, found)
            needs[f"{value.name}\nnext"] = Lifetime(found.size * math.prod(value.shape), end, end)
        owners = {} if self.traced else self._owners(nodes, needs)
        offsets, size = planned(together(needs, owners))
        for name in needs:
            shape, kind = types.get(name, ((needs[name].bytes // 4,), _INT32))
            offset = offsets[owners.get(name, name)]
            self.source.places[name] = Place(f"a->{kind.member}", offset // kind.size, shape, kind)
        return size

    def _owners(self, nodes: Mapping[str, Node], needs: Mapping[str, Lifetime]) -> dict[str, str]:
        """The first tensor at the place of each value that is stored where another tensor was.

        That tensor is read for the last time where the value is made, each element before it is overwritten.
        """
        owners: dict[str, str] = {}
        for time, number in enumerate(self.steps):
            node = self.program.nodes[number]
            name = node.outputs[0].name
            for other in sorted(in_place(self.plan, self.verified, node, nodes)):
                fits = other in needs and needs[other].last == time and needs[other].bytes == needs[name].bytes
                if fits and len(node.outputs) == 1:
                    owners[name] = owners.get(other, other)
                    break
        return owners

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
