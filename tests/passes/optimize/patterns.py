"""Hypothesis strategies for programs that invite every pass, with the constants on which their conditions depend."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.program import Exactness, Output, Program, ProgramBuilder, Provenance

__all__ = ["programs"]

SHAPES = ((1, 2, 3, 1), (2, 1, 2, 3), (1, 3, 2, 2), (1, 1, 2, 2))
ROUNDINGS = ("half_up", "half_even", "toward_zero")
LARGEST = 2**31 - 1


class _Growth:
    """A program that grows by ops on values of rank 4."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.builder = ProgramBuilder()
        self.values: list[str] = []
        self.taken = 0

    def number(self, lo: int, hi: int) -> int:
        return self.draw(st.integers(lo, hi))

    def one(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def value(self) -> str:
        """A value, more likely a late one."""
        return self.values[-1] if self.chance() else self.one(self.values)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> None:
        """Add a node, where the rules allow it."""
        with suppress(Invalid):
            self.values += self.builder.add(op, inputs, attributes)

    def constant(self, shape: tuple[int, ...], parameter: bool = False, lo: int = -9, hi: int = 9) -> str:
        """A constant for a tensor of that shape: one number, one for each channel, or one for each element."""
        extents = self.one([(1,), (1,) * len(shape), (1, shape[1], *(1,) * (len(shape) - 2)), shape])
        values = [self.number(lo, hi) for _ in range(int(np.prod(extents)))]
        if self.chance():
            values = [values[0]] * len(values)
        return self.builder.constant(np.array(values).reshape(extents), kind="parameter" if parameter else "tensor")

    def requantize(self) -> None:
        x = self.value()
        shape = self.builder.shape(x)
        xs = [x, *(name for name in self.values if self.builder.shape(name) == shape and self.chance())][:3]
        if self.chance():
            xs.append(self.constant(shape))
        shift = self.one([0, 0, 1, 2, 8, 30])
        near = 1 << shift
        factors = [self.constant(shape, True, *self.one([(near, near), (-near, near), (-3, 3), (0, 0)])) for _ in xs]
        offset = self.constant(shape, True, *self.one([(-1, -1), (0, 0), (-near, near), (near >> 1, near >> 1)]))
        shifts = self.constant(shape, True, *self.one([(shift, shift), (0, shift)]))
        lo, hi = sorted((self.number(-20, 20), self.number(-20, 20)))
        if self.chance():
            lo, hi = self.one([(-LARGEST, LARGEST), (-128, 127), (0, 255)])
        self.add("requantize", [*xs, *factors, offset, shifts], rounding=self.one(ROUNDINGS), lo=lo, hi=hi)

    def unary(self) -> None:
        lo, hi = sorted((self.number(-20, 20), self.number(-20, 20)))
        op, attributes = self.one([
            ("abs", {}), ("negative", {}), ("relu", {}), ("clip", {"a_min": lo, "a_max": hi}),
            ("cvm_clip", {"precision": self.number(1, 9)}), ("cvm_precision", {}),
            ("cvm_left_shift", {"precision": self.one([6, 32]), "shift_bit": self.number(1, 3)}),
            ("cvm_right_shift", {"precision": 9, "shift_bit": self.number(1, 3)}),
        ])  # fmt: skip
        self.add(op, [self.value()], **attributes)

    def step(self) -> None:
        x = self.value()
        shape = self.builder.shape(x)
        other = self.constant(shape, False, *self.one([(0, 0), (1, 1), (-9, 9), (-1, -1), (-20, -20)]))
        if self.chance():
            other = self.value()
        inputs = [x, other] if self.chance() else [other, x]
        names = ["add", "sub", "mul", "max", "div", "greater"]
        self.add(f"broadcast_{self.one(names)}", inputs)

    def table(self) -> None:
        size = self.one([3, 8, 41])
        table = self.builder.constant(np.array([self.number(-20, 20) for _ in range(size)]))
        if self.chance():
            table = self.builder.constant(np.arange(size))
        if self.number(0, 4) == 0:
            table = self.value()
        self.add("cvm_lut", [table, self.value()])

    def transpose(self) -> None:
        axes = self.one([(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 2, 3), (3, 1, 2, 0), (0, 1, 3, 2)])
        self.add("transpose", [self.value()], axes=axes)

    def reshape(self) -> None:
        x = self.value()
        shape = self.builder.shape(x)
        flat = int(np.prod(shape))
        target = self.one([shape, (1, flat, 1, 1), (1, 1, 1, flat), shape[::-1]])
        self.add("reshape", [x], target_shape=target)

    def move(self) -> None:
        x = self.value()
        shape = self.builder.shape(x)
        op, attributes = self.one([
            ("repeat", {"axis": self.number(0, 3), "repeats": self.number(1, 2)}), ("tile", {"reps": (1, 1, 1, 1)}),
            ("slice", {"begin": (0, -1), "end": (9, -shape[1] - 1), "strides": (1, -1)}),
            ("slice", {"begin": (), "end": (9, 9), "strides": (1, 1)}),
            ("slice", {"begin": (0, self.number(0, 1)), "end": shape[:2], "strides": ()}),
            ("upsampling", {"scale": self.number(1, 2)}), ("sum", {"axes": (self.number(0, 3),), "keepdims": True}),
            ("max", {"axes": (self.number(0, 3),), "keepdims": True}),
            ("max_pool2d", {"pool_size": self.one([(1, 1), (1, 2)]), "strides": self.one([(1, 1), (1, 2)])}),
        ])  # fmt: skip
        self.add(op, [x], **attributes)

    def concatenate(self) -> None:
        x = self.value()
        axis = self.number(0, 3)
        shape = self.builder.shape(x)
        beside = [extent if k != axis else self.number(1, 2) for k, extent in enumerate(shape)]
        constant = self.builder.constant(np.full(beside, self.number(-2, 2)))
        parts = self.one([[x], [x, constant], [constant, x, constant], [x, x]])
        self.add("concatenate", parts, axis=axis - 4 * self.number(0, 1))

    def convolution(self) -> None:
        x = self.value()
        channels = self.builder.shape(x)[1]
        weights = np.array([self.number(-3, 3) for _ in range(2 * channels)]).reshape(2, channels, 1, 1)
        inputs = [x, self.builder.constant(weights)]
        if self.chance():
            inputs.append(self.builder.constant(np.array([self.number(-9, 9) for _ in range(2)])))
        self.add("conv2d", inputs, padding=self.one([(0, 0), (0, 0), (1, 0)]))

    def layer(self) -> None:
        """A convolution that reads a sum with a constant, moved on the way."""
        x = self.value()
        zero = self.builder.constant(np.array([self.number(-9, 9)]))
        self.add(self.one(["broadcast_add", "broadcast_sub"]), [x, zero])
        for _ in range(self.number(0, 2)):
            self.one([_Growth.concatenate, _Growth.reshape, _Growth.move])(self)
        self.convolution()

    def sandwich(self) -> None:
        """Ops between two transposes, often inverse to each other."""
        axes = self.one([(0, 2, 3, 1), (0, 3, 1, 2), (3, 1, 2, 0)])
        inverse = tuple(axes.index(index) for index in range(4))
        self.add("transpose", [self.value()], axes=axes)
        for _ in range(self.number(0, 3)):
            self.one([_Growth.unary, _Growth.step, _Growth.concatenate, _Growth.requantize])(self)
        self.add("transpose", [self.values[-1]], axes=inverse if self.number(0, 3) else axes)

    def where(self) -> None:
        x = self.value()
        same = [name for name in self.values if self.builder.shape(name) == self.builder.shape(x)]
        self.add("where", [self.one(same), x, self.one(same)])


_GROWERS = (
    _Growth.requantize, _Growth.requantize, _Growth.unary, _Growth.unary, _Growth.step, _Growth.step, _Growth.table,
    _Growth.transpose, _Growth.reshape, _Growth.move, _Growth.concatenate, _Growth.convolution, _Growth.where,
    _Growth.layer, _Growth.sandwich, _Growth.sandwich, _Growth.table,
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of up to a dozen nodes: some values are outputs, some tensors of a document, one may be a state."""
    g = _Growth(draw)
    shape = g.one(SHAPES)
    for name in ("x", "z")[: g.number(1, 2)]:
        lo, hi = g.one([(-128, 127), (0, 255), (-3, 2), (0, 1), (5, 5), (-LARGEST, LARGEST), (-40_000, 40_000)])
        g.values.append(g.builder.input(name, shape, lo, hi))
    kept = g.chance()
    if kept:
        initial = g.builder.constant(np.full(shape, g.number(-3, 3)))
        g.values.append(g.builder.state("h", initial, -LARGEST, LARGEST))
    for _ in range(g.number(1, 12)):
        g.one(_GROWERS)(g)
    if kept:
        g.builder.update("h", g.one([name for name in g.values if g.builder.shape(name) == shape]))
    chosen = [g.values[-1], *(name for name in g.values if g.number(0, 7) == 0)]
    named = [name for name in g.values if g.number(0, 3) == 0]
    report = tuple(Exactness(f"tensor {name}", name, Fraction(0), (0, 1)) for name in named)
    outputs = [Output(f"y{number}", name) for number, name in enumerate(chosen)]
    return g.builder.build(outputs, Provenance("test", exactness=report))
