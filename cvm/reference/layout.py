"""The arrangement of samples and cycles in the arrays of one call.

The rules are the same everywhere in cvm: an array has the shape of the external; or that shape after a batch axis; or
N in place of a leading 1. With cycles it has one more axis, after the batch axis. Outputs are arranged alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cvm.errors import Invalid, Location
from cvm.records import dataclass
from cvm.reference.registry import Array

__all__ = ["Feed", "Layout", "arranged"]

Shape: TypeAlias = tuple[int, ...]
Feed: TypeAlias = dict[str, Array]
"""The inputs of one run, by name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Extents of the batch and the cycle axis; None where there is no such axis."""

    samples: int | None = None
    cycles: int | None = None
    in_place: bool = False
    """Whether the batch takes the place of a leading extent 1 of a tensor."""

    def shape(self, shape: Shape) -> Shape:
        """The shape of an array that holds a tensor of ``shape`` for every run."""
        runs = tuple(extent for extent in (self.samples, self.cycles) if extent is not None)
        return runs + (shape[1:] if self.in_place and shape[:1] == (1,) else shape)

    def join(self, runs: Sequence[Array]) -> Array:
        """A tensor of every run, sample by sample and cycle by cycle, as one new array."""
        return np.stack(runs).reshape(self.shape(runs[0].shape))


def _readings(shape: Shape, found: Shape, cycles: bool) -> list[Layout]:
    """The layouts under which an array of shape ``found`` holds tensors of ``shape``, the simplest first."""
    lead = found[: max(len(found) - len(shape), 0)]
    readings = []
    if found[len(lead) :] == shape and lead[int(cycles) + 1 :] == () and len(lead) >= int(cycles):
        samples = lead[0] if len(lead) > int(cycles) else None
        readings.append(Layout(samples, lead[-1] if cycles else None))
        if samples is not None and shape[:1] != (1,):
            readings.append(Layout(samples, readings[0].cycles, in_place=True))
    if not cycles and shape[:1] == (1,) and len(found) == len(shape) and found[1:] == shape[1:]:
        readings.append(Layout(found[0], in_place=True))
    return readings


def arranged(shapes: Mapping[str, Shape], arrays: Mapping[str, Array], cycles: bool) -> tuple[Layout, list[list[Feed]]]:
    """The layout of a call and its runs: a list of samples, each a list of cycles.

    ``shapes`` are the shapes of the externals. Raises `Invalid` with code ``input.<rule>``: names, shape, batch.
    """
    listed = ", ".join(map(repr, shapes)) or "none"
    for name in [*arrays, *shapes]:
        if name not in shapes:
            raise Invalid("input.names", f"there is no input {name!r}; the inputs are {listed}")
        if name not in arrays:
            raise Invalid("input.names", f"the input {name!r} is missing", Location(tensor=name))
    common: list[Layout] | None = None
    for name, shape in shapes.items():
        found, where = arrays[name].shape, Location(tensor=name)
        readings = _readings(shape, found, cycles)
        if not readings or arrays[name].size == 0:
            expected = ["T", *shape] if cycles else list(shape)
            message = f"expected an array of shape {expected}, or several of them, found {list(found)}"
            raise Invalid("input.shape", message.replace("'", ""), where)
        common = readings if common is None else [layout for layout in common if layout in readings]
        if not common:
            message = f"an array of shape {list(found)} holds other runs than that of another input"
            raise Invalid("input.batch", message, where)
    layout = common[0] if common else Layout()
    samples, length = layout.samples or 1, layout.cycles or 1
    parts = {name: arrays[name].reshape(samples, length, *shape) for name, shape in shapes.items()}
    return layout, [[{name: part[i, j] for name, part in parts.items()} for j in range(length)] for i in range(samples)]
