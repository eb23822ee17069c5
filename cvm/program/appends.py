"""Appends: states of which a run writes a slice and keeps the rest, such as the caches of a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cvm.program.model import ProgramParts, Shape

__all__ = ["Append", "appends", "spans"]


@dataclass(frozen=True, slots=True)
class Append:
    """The next value of a state is the state with ``count`` indices along ``axis`` replaced.

    They begin at the element of the value ``index``, clipped so that they fit.
    """

    node: int
    """The number of the node ``update_slice(state, .., index)``, whose result is the next value."""
    shape: Shape
    axis: int
    count: int
    index: str

    def start(self, index: int) -> int:
        """The first index that is replaced if the value ``index`` holds this number."""
        return min(max(index, 0), self.shape[self.axis] - self.count)


def spans(shape: Shape, axis: int, start: int, count: int) -> npt.NDArray[np.int64]:
    """The elements of a tensor with ``count`` indices from ``start`` on along an axis.

    Returns (first, end) of each run of neighbouring elements in row-major order: an array of shape (runs, 2).
    """
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    firsts = np.arange(outer, dtype=np.int64) * (shape[axis] * inner) + start * inner
    return np.stack([firsts, firsts + count * inner], axis=1)


def appends(program: ProgramParts) -> dict[str, Append]:
    """The states of a program that a run appends to, by name."""
    made = {value.name: number for number, node in enumerate(program.nodes) for value in node.outputs}
    shapes = {value.name: value.shape for node in program.nodes for value in node.outputs}
    shapes |= {item.value.name: item.value.shape for item in program.inputs}
    shapes |= {item.value.name: item.value.shape for item in program.state}
    shapes |= {constant.name: constant.shape for constant in program.constants}
    found = {}
    for item in program.state:
        name = item.value.name
        number = made.get(item.update)
        if number is None or program.nodes[number].op != "update_slice" or program.nodes[number].inputs[0] != name:
            continue
        _, replaced, index = program.nodes[number].inputs
        axis = int(program.nodes[number].attributes["axis"]) % len(item.value.shape)  # type: ignore[arg-type]
        found[name] = Append(number, item.value.shape, axis, shapes[replaced][axis], index)
    return found
