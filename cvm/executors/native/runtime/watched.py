"""Networks that show their tensors to the caller while they run.

A watched network is compiled like a network with all tensors captured, but it stops after every window of nodes
(`cvm.executors.base.windows`). The tensors of all windows share one buffer, as large as the largest window.
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
    """A network that runs in stages."""

    def run(self, arrays: Sequence[Int32Array], after: Callable[[int], None] | None = None) -> bool:
        """See `cvm.executors.native.runtime.networks.Network.run`."""


def _groups(program: Program) -> list[list[Value]]:
    """The values of each window. They are shown together."""
    return [[value for node in program.nodes[first:end] for value in node.outputs] for first, end in windows(program)]


def stage_ends(program: Program, plan: Plan) -> list[int]:
    """For each window, the number of calls after which the caller's arrays hold its tensors."""
    return [max(plan.ready[value.name] for value in group) for group in _groups(program)]


class Watched:
    """A network in stages, with the buffers of its runs.

    ``returned`` are the values for which the caller provides arrays; all others lie in the buffer of the windows.
    Buffers are reused: there are as many as there were runs at the same time so far.
    """

    def __init__(self, network: _Stages, program: Program, plan: Plan, returned: frozenset[str]) -> None:
        self._network, self.returned = network, returned
        self._groups = _groups(program)
        self._order = plan.arrays[plan.written :]
        self._offsets: dict[str, tuple[int, Value]] = {}
        self._size = 0
        for group in self._groups:
            start = 0
            for value in group:
                if value.name not in returned:
                    self._offsets[value.name] = (start, value)
                    start += -(-4 * math.prod(value.shape) // ALIGNMENT) * ALIGNMENT
            self._size = max(self._size, start)
        self._free: list[npt.NDArray[np.uint8]] = []

    def run(self, fed: Mapping[str, Int32Array], results: Mapping[str, Int32Array], watch: Watch) -> bool:
        """Run once. Returns False, without running anything, if an element of ``fed`` is outside its bounds."""
        try:
            memory = self._free.pop()  # atomic in the interpreter, so no lock is needed
        except IndexError:
            memory = np.empty(self._size, np.uint8)
        held = {name: _tensor(memory, start, value) for name, (start, value) in self._offsets.items()}
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
