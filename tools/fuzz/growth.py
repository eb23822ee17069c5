"""A program that grows node by node: values to choose from, and ways to fit any value to an op."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.program import ProgramBuilder

__all__ = ["LARGEST", "Draw", "Growth", "Seeded", "Shape"]

T = TypeVar("T")
Shape = tuple[int, ...]

LARGEST = 60
"""The most elements of a tensor that ops are applied to; results may be a few times larger."""


class Draw(Protocol):
    """The source of random choices: a random generator, or hypothesis, which can shrink a failure."""

    def integer(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi]."""

    def boolean(self) -> bool:
        """True or false."""

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""


class Seeded:
    """A `Draw` from a random generator."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def integer(self, lo: int, hi: int) -> int:
        """See `Draw.integer`."""
        return self._random.randint(lo, hi)

    def boolean(self) -> bool:
        """See `Draw.boolean`."""
        return self._random.random() < 0.5

    def choice(self, items: Sequence[T]) -> T:
        """See `Draw.choice`."""
        return self._random.choice(items)

    def permutation(self, items: Sequence[T]) -> list[T]:
        """See `Draw.permutation`."""
        return self._random.sample(items, len(items))


class Growth:
    """A builder with its values and a source of choices. ``latest`` is the value that the next node reads first."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.builder = ProgramBuilder()
        self.random = Random(draw.integer(0, 2**32 - 1))
        self.values: list[str] = []
        self.ops: list[str] = []
        self.depth: dict[str, int] = {}

    # Random choices.

    def number(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi]."""
        return self.draw.integer(lo, hi)

    def chance(self) -> bool:
        """True or false."""
        return self.draw.boolean()

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self.draw.choice(items)

    def shape(self, rank: int | None = None) -> Shape:
        """Small extents; in a high rank, few of them above 1."""
        rank = rank or self.choice((1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8))
        wide = min(rank, 3)
        extents = [self.number(1, 4) if index < wide else self.number(1, 2 if rank < 6 else 1) for index in range(rank)]
        self.random.shuffle(extents)
        return tuple(extents)

    # Elements: half of them are ends of the interval.

    def elements(self, shape: Shape, lo: int, hi: int) -> npt.NDArray[np.int64]:
        """Elements in [lo, hi]; the ends are frequent."""
        edges = [edge for edge in (lo, hi, 0, 1, -1) if lo <= edge <= hi]
        pick = self.random
        items = [pick.choice(edges) if pick.random() < 0.5 else pick.randint(lo, hi) for _ in range(prod(shape))]
        return np.array(items, np.int64).reshape(shape)

    def interval(self) -> tuple[int, int]:
        """An interval of one to 31 bits, around zero, above it or below it."""
        largest = 2 ** self.number(0, 31) - 1
        return self.choice(
            ((-largest, largest), (0, largest), (-largest, 0), (-largest - 1, largest), (largest, largest))
        )

    # Sources.

    def source(self, shape: Shape, limit: int = INT32_MAX) -> str:
        """A new input or constant with elements up to ``limit``."""
        lo, hi = (max(-limit, min(bound, limit)) for bound in self.interval())
        if self.chance():
            return self.kept(self.builder.input(f"x{len(self.values)}", shape, lo, hi), 0)
        return self.kept(self.builder.constant(self.elements(shape, lo, hi)), 0)

    def constant(self, items: Any) -> str:
        """A constant that no node reads unless it is asked to."""
        return self.builder.constant(np.asarray(items))

    def kept(self, name: str, depth: int) -> str:
        """Makes the value of a name available to later nodes; returns the name."""
        self.depth.setdefault(name, depth)
        if name not in self.values:
            self.values.append(name)
        return name

    # Values.

    @property
    def latest(self) -> str:
        """The value that was added last."""
        return self.values[-1]

    def shape_of(self, name: str) -> Shape:
        """The shape of a value."""
        return self.builder.shape(name)

    def magnitude(self, name: str) -> int:
        """The largest absolute value that a value may hold."""
        return self.builder.range(name).magnitude()

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> tuple[str, ...]:
        """Apply an op; its results become values."""
        names = self.builder.add(op, inputs, attributes)
        self.ops.append(op)
        depth = 1 + max(self.depth.get(name, 0) for name in inputs)
        for name in names:
            self.kept(name, depth)
        return names

    def one(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Apply an op of one result."""
        (name,) = self.add(op, inputs, **attributes)
        return name

    def operand(self) -> str:
        """Mostly the latest value, so that programs are deep; reduced if it is large."""
        name = self.latest if self.number(0, 3) else self.choice(self.values)
        return self.small(name)

    def small(self, name: str) -> str:
        """A value with few elements: the value itself, or its first elements along every axis."""
        if prod(self.shape_of(name)) <= LARGEST:
            return name
        end: list[int] = []
        for extent in self.shape_of(name):
            room = max(1, LARGEST // (2 * prod(end)))
            end.append(min(extent, room))
        return self.one("slice", name, begin=(), end=tuple(end), strides=())

    def adapted(self, name: str, shape: Shape) -> str:
        """A value of that shape: the same elements if their number fits, else elements at drawn indices."""
        if self.shape_of(name) == shape:
            return name
        count = prod(self.shape_of(name))
        if count == prod(shape):
            return self.one("reshape", name, target_shape=shape)
        chosen = np.array([self.random.randint(-1, count) for _ in range(prod(shape))]).reshape(shape)
        return self.one("take", name, self.constant(chosen))

    def ranked(self, rank: int) -> str:
        """An operand of that rank."""
        name = self.operand()
        shape = self.shape_of(name)
        return name if len(shape) == rank else self.adapted(name, self.shape(rank))

    def like(self, shape: Shape) -> str:
        """Another operand of that shape: a value that has it, an adapted value, or a new one."""
        same = [name for name in self.values if self.shape_of(name) == shape]
        kind = self.number(0, 3)
        if kind == 0 or (kind == 1 and not same):
            return self.source(shape)
        return self.choice(same) if kind == 1 else self.adapted(self.small(self.choice(self.values)), shape)

    def broadcastable(self, shape: Shape) -> Shape:
        """A shape that broadcasts with ``shape``; it may be larger where ``shape`` has extents of 1."""
        kept = shape[self.number(0, len(shape) - 1) :] if self.chance() else shape
        room = max(1, LARGEST // prod(shape))
        grown = tuple(
            1 if not self.number(0, 2) else self.number(1, min(3, room)) if extent == 1 else extent for extent in kept
        )
        return grown if prod(np.broadcast_shapes(shape, grown)) <= 4 * LARGEST else kept

    def limited(self, name: str, bits: int) -> str:
        """A value of magnitude below 2^bits: the value itself, or the result of an op that clips or scales it."""
        bound = 2**bits - 1
        if self.magnitude(name) <= bound:
            return name
        way = self.number(0, 3)
        if way == 0 or bits == 0:
            return self.one("clip", name, a_min=-bound, a_max=bound)
        if way == 1:
            return self.one("cvm_clip", name, precision=bits + 1)
        shift = max(1, self.magnitude(name).bit_length() - bits)
        if way == 2:
            return self.one("cvm_right_shift", name, precision=bits + 1, shift_bit=shift)
        m, c, s = (self.builder.parameter([item]) for item in (1, 0, shift))
        return self.one("requantize", name, m, c, s, rounding="half_even", lo=-bound, hi=bound)
