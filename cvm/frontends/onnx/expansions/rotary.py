"""Heads of attention, and rotary embeddings, which rotate pairs of numbers of each head by an angle.

The angle depends on the position of the token and on the pair.

Sources: ONNX, RotaryEmbedding; ONNX Runtime, "Contrib operators" (com.microsoft).
"""

from __future__ import annotations

import numpy as np

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import MICROSOFT, Shape
from cvm.frontends.onnx.writing import Writer
from cvm.records import dataclass

__all__ = ["Heads", "Rotation", "heads", "joined", "part_of", "rotated", "rotation"]


@dataclass(frozen=True, slots=True)
class Heads:
    """A tensor of shape (batch, heads, items, size) under a name."""

    name: str
    shape: Shape

    @property
    def count(self) -> int:
        """The number of heads."""
        return self.shape[1]

    @property
    def items(self) -> int:
        """The length of the sequence."""
        return self.shape[2]

    @property
    def size(self) -> int:
        """The size of a head."""
        return self.shape[3]


def heads(w: Writer, name: str, shape: Shape, count: int) -> Heads:
    """A tensor of shape (batch, items, heads * size), or (batch, heads, items, size), as heads."""
    if len(shape) == 4:
        return Heads(name, shape)
    if len(shape) != 3 or count < 1 or shape[2] % count:
        raise w.call.invalid("shape", f"{name!r} has shape {list(shape)}, which is not of {count} heads")
    batch, items, hidden = shape
    split = w.reshape(name, (batch, items, count, hidden // count))
    return Heads(w.add("Transpose", [split], perm=(0, 2, 1, 3)), (batch, count, items, hidden // count))


def joined(w: Writer, found: Heads, output: str = "") -> str:
    """Heads as a tensor of shape (batch, items, heads * size)."""
    batch, count, items, size = found.shape
    return w.reshape(w.add("Transpose", [found.name], perm=(0, 2, 1, 3)), (batch, items, count * size), output)


# Rotary embeddings


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of shape (1 or batch, 1, items, half of what is rotated), and how pairs lie in a head."""

    cos: str
    sin: str
    half: int
    interleaved: bool


def rotated(w: Writer, x: Heads, by: Rotation) -> Heads:
    """Each pair (a, b) of a head becomes (a cos - b sin, a sin + b cos); what is beyond the pairs stays."""
    if 2 * by.half > x.size:
        raise w.call.invalid("shape", f"{2 * by.half} items of heads of {x.size} are rotated")
    first, second = _pairs(w, x, by)
    real = w.add("Sub", [w.add("Mul", [first, by.cos]), w.add("Mul", [second, by.sin])])
    imaginary = w.add("Add", [w.add("Mul", [first, by.sin]), w.add("Mul", [second, by.cos])])
    if by.interleaved:
        one = w.integers([-1])
        both = [w.add("Unsqueeze", [part, one]) for part in (real, imaginary)]
        parts = [w.reshape(w.add("Concat", both, axis=-1), (*x.shape[:3], 2 * by.half))]
    else:
        parts = [real, imaginary]
    if 2 * by.half < x.size:
        parts.append(part_of(w, x.name, 2 * by.half, x.size))
    return Heads(parts[0] if len(parts) == 1 else w.add("Concat", parts, axis=-1), x.shape)


def part_of(w: Writer, name: str, begin: int, end: int, step: int = 1) -> str:
    """The items from ``begin`` up to ``end`` along the last axis."""
    return w.add("Slice", [name, *(w.integers([item]) for item in (begin, end, -1, step))])


def _pairs(w: Writer, x: Heads, by: Rotation) -> tuple[str, str]:
    if by.interleaved:
        return part_of(w, x.name, 0, 2 * by.half, 2), part_of(w, x.name, 1, 2 * by.half, 2)
    return part_of(w, x.name, 0, by.half), part_of(w, x.name, by.half, 2 * by.half)


def rotation(w: Writer, cos: int, sin: int, positions: str, interleaved: bool) -> Rotation:
    """The rotation of two operands, tables of angles by position, at ``positions`` of shape (1 or batch, items)."""
    tables = []
    shapes = {w.call.operand(index).shape for index in (cos, sin)}
    if len(shapes) != 1:
        raise w.call.invalid("shape", f"cosines and sines have the shapes {sorted(map(list, shapes))}")
    (shape,) = shapes
    for name in w.required(cos, sin):
        found = w.add("Gather", [name, positions], axis=0) if positions else name
        tables.append(w.add("Unsqueeze", [found, w.integers([1])]))
    if len(shape) != (2 if positions else 3):
        raise w.call.invalid("shape", f"cosines have shape {list(shape)}, with{'' if positions else 'out'} positions")
    return Rotation(tables[0], tables[1], shape[-1], interleaved)


@expansion("RotaryEmbedding")
def rotary_embedding(w: Writer) -> None:
    """RotaryEmbedding: each pair of numbers of a head is rotated by the angle of its position."""
    positions = w.input(3)
    _rotate(w, rotation(w, 1, 2, positions, w.call.flag("interleaved", False)))


@expansion("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_positions(w: Writer) -> None:
    """RotaryEmbedding of com.microsoft: positions are (batch, items), or the first one alone."""
    w.call.ignore("scale", "is_packed_batching")
    source, given = w.call.operand(), w.call.operand(1)
    items = source.shape[1 if source.rank == 3 else 2]
    positions = w.required(1)[0]
    if given.rank != 2:
        first = w.reshape(positions, (1, 1))
        positions = w.add("Add", [first, w.constant(np.arange(items).reshape(1, items), given.data_type)])
    _rotate(w, rotation(w, 2, 3, positions, w.call.flag("interleaved", False)))


def _rotate(w: Writer, by: Rotation) -> None:
    source, count = w.call.operand(), w.call.integer("num_heads", 0)
    whole = w.call.integer("rotary_embedding_dim", 0)
    if whole and whole != 2 * by.half:
        raise w.call.invalid("shape", f"{whole} items are rotated by {by.half} angles")
    if source.rank == 3 and not count:
        if whole or source.shape[2] % (2 * by.half):
            raise w.call.invalid("attribute", "num_heads is needed for an input of three axes")
        count = source.shape[2] // (2 * by.half)
    found = rotated(w, heads(w, w.required(0)[0], source.shape, count), by)
    if source.rank == 3:
        joined(w, found, w.node.outputs[0])
    else:
        w.add("Identity", [found.name], w.node.outputs[0])
