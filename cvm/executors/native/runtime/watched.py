"""Networks whose tensors are shown to the caller while they run.

A watched network is compiled like one of which every tensor is captured, but stops after every window of nodes
(`cvm.executors.base.windows`). The tensors of all windows share one piece of memory, of the size of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Int32Array, Watch, windows
from cvm.executors.native.plan.arena import ALIGNMENT
from cvm.executors.native.plan.steps import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from cvm.program import Program
    from cvm.program.model import Value

__all__ = ["Watched", "stage_ends"]


class _Stages(Protocol):
    """What runs the stages."""

    def run(self, arrays: Sequence[Int32Array], after: Callable[[int], None] | None = None) -> bool:
        """See `cvm.executors.native.runtime.networks.Network.run`."""


def _groups(program: Program) -> list[list[Value]]:
    """The values of each window, which are shown together."""
    return [[value for node in program.nodes[first:end] for value in node.outputs] for first, end in windows(program)]


def stage_ends(program: Program, plan: Plan) -> list[int]:
    """After how many calls the tensors of each window are in the caller's arrays."""
    return [max(plan.ready[value.name] for value in group) for group in _groups(program)]


class Watched:
    """A network of stages, and windows for as many runs at once as there were so far.

    ``returned`` are the values that the caller gives arrays for; all others lie in the window.
    """

    def __init__(self, network: _Stages, program: Program, plan: Plan, returned: frozenset[str]) -> None:
        self._network, self.returned = network, returned
        self._groups = _groups(program)
        self._order = plan.arrays[plan.written :]
        self._places: dict[str, tuple[int, Value]] = {}
        self._size = 0
        for group in self._groups:
            start = 0
            for value in group:
                if value.name not in returned:
                    self._places[value.name] = (start, value)
                    start += -(-4 * math.prod(value.shape) // ALIGNMENT) * ALIGNMENT
            self._size = max(self._size, start)
        self._free: list[npt.NDArray[np.uint8]] = []

    def run(self, fed: Mapping[str, Int32Array], results: Mapping[str, Int32Array], watch: Watch) -> bool:
        """Run once; False, and nothing is done or shown, where an element of ``fed`` is outside its bounds."""
        try:
            memory = self._free.pop()  # one instruction of the interpreter: no lock is needed
        except IndexError:
            memory = np.empty(self._size, np.uint8)
        held = {name: _tensor(memory, start, value) for name, (start, value) in self._places.items()}
        held.update(results)

        def after(done: int) -> None:
            if not done:
                watch(fed)
            elif self._groups:
                watch({value.name: held[value.name] for value in self._groups[done - 1]})

        try:
            return self._network.run([*fed.values(), *(held[name] for name in self._order)], after)
        finally:
            self._free.append(memory)


def _tensor(memory: npt.NDArray[np.uint8], start: int, value: Value) -> Int32Array:
    size = 4 * math.prod(value.shape)
    return memory[start : start + size].view(np.int32).reshape(value.shape)
