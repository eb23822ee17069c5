"""Random networks that aim at kernels: shapes and intervals at which layouts, tiles, passes and arithmetics change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.program import Output, Program, ProgramBuilder

CODES = ((0, 1), (0, 15), (0, 255), (-128, 127), (-127, 127), (-200, 55), (-1, 254), (5, 9), (-9, -5), (0, 65535),
         (-32768, 32767), (-3000, 3000), (-(2**19), 2**19))  # fmt: skip
"""Intervals of codes: those of every format, and intervals between them."""
ROUNDINGS = ("half_up", "half_up", "half_even", "toward_zero")


class Maker:
    """A program that grows by blocks of ops. ``maps`` are its tensors of four axes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.seldom = np.random.default_rng([seed, 1])  # apart, so that it changes no other choice
        self.builder = ProgramBuilder()
        self.maps: list[str] = []
        self.results: list[str] = []

    # Parts --------------------------------------------------------------------------------------------------------

    def number(self, lo: int, hi: int) -> int:
        """A random number of the interval."""
        return self.random.randint(lo, hi)

    def extent(self) -> int:
        """Mostly small; widths of vectors and their neighbours are more likely than other numbers."""
        return self.random.choice((1, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 20))

    def channels(self) -> int:
        """The widths of blocks of channels, and their neighbours."""
        return self.random.choice((1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40, 63, 64, 65, 70))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.builder.shape(name)

    def bits(self, name: str) -> int:
        """The bits of the greatest magnitude of a value."""
        return self.builder.range(name).magnitude().bit_length()

    def elements(self, shape: Sequence[int], lo: int, hi: int) -> npt.NDArray[np.int64]:
        """Random elements; the ends of the interval are frequent."""
        values = self.numbers.integers(lo, hi, shape, endpoint=True)
        ends = self.numbers.choice(np.array([lo, hi]), shape)
        return np.where(self.numbers.random(shape) < self.random.choice((0.0, 0.3, 1.0)), ends, values)

    def weights(self, shape: Sequence[int], bits: int) -> npt.NDArray[np.int64]:
        """Random elements of ``bits`` bits and a sign; half of those of 8 bits or more are a byte less a zero point."""
        if bits < 8 or self.random.random() < 0.5:
            return self.elements(shape, -(2**bits), 2**bits - 1)
        lo = self.number(-255, 0)
        return self.elements(shape, lo, lo + 255)

    def seldom_large(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The weights, three in ten times with all but a few within [-64, 64]."""
        if self.seldom.random() >= 0.3:
            return weights
        large = self.seldom.random(weights.shape[1:]) < self.seldom.choice((0.01, 0.1))
        return np.where(large, weights, weights.clip(-64, 64))

    def add(self, op: str, inputs: Sequence[str], **attributes: object) -> str:
        """The first result of an op."""
        return self.builder.add(op, inputs, attributes)[0]

    def input(self, shape: Sequence[int] | None = None) -> str:
        """A new input of codes."""
        shape = shape or (self.random.choice((1, 1, 1, 2, 3)), self.channels(), self.extent(), self.extent())
        while prod(shape) > 20_000:
            shape = tuple(max(1, extent // 2) for extent in shape)
        lo, hi = self.random.choice(CODES)
        name = self.builder.input(f"x{len(self.maps)}", shape, lo, hi)
        self.maps.append(name)
        return name

    def map(self, largest: int = 20_000) -> str:
        """A map; the latest ones are frequent."""
        fitting = [name for name in self.maps if prod(self.shape(name)) <= largest]
        if not fitting:
            return self.input((1, self.channels(), self.number(1, 6), self.number(1, 6)))
        return self.random.choice(fitting[-2:] if self.random.random() < 0.7 else fitting)

    def kept(self, name: str) -> str:
        """Keep a result, so that later blocks may read it or it becomes an output; returns its name."""
        if len(self.shape(name)) == 4:
            self.maps.append(name)
        else:
            self.results.append(name)
        return name

    def within(self, name: str, bits: int) -> str:
        """The value, reduced to ``bits`` bits."""
        return name if self.bits(name) <= bits else self.add("cvm_clip", [name], precision=bits + 1)

    def parameter_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape per tensor, per channel, per element, or per any set of axes."""
        kind = self.number(0, 5)
        if kind == 0 or len(shape) < 2:
            return (1,)
        if kind == 5:
            return tuple(n if self.random.random() < 0.5 else 1 for n in shape)
        if kind == 4 and prod(shape) < 3000:
            return tuple(shape)
        return tuple(n if axis == 1 else 1 for axis, n in enumerate(shape))

    def codes(self, name: str) -> str:
        """A requantize of one to three terms: all arithmetics, roundings, and shapes of parameters."""
        shape, xs = self.shape(name), [name]
        same = [other for other in self.maps if self.shape(other) == shape]
        xs += [self.random.choice(same or [name]) for _ in range(self.random.choice((0, 0, 0, 1, 2)))]
        wide = max(self.bits(x) for x in xs)
        room = max(0, 60 - wide - len(xs))
        bits = min(room, self.random.choice((1, 7, 15, 26, 30, 31, 40, 61)))
        down = max(0, min(62, wide + bits - self.random.choice((1, 4, 8, 16, 31))))
        ms = [self.elements(self.parameter_shape(shape), -(2**bits) // 3, 2**bits) for _ in xs]
        c = self.elements(self.parameter_shape(shape), -(2 ** (wide + bits) // 2), 2 ** (wide + bits) // 2)
        s = self.elements(self.parameter_shape(shape), max(0, down - self.number(0, 3)), down)
        lo, hi = self.random.choice((*CODES, (-INT32_MAX, INT32_MAX)))
        parameters = [self.builder.parameter(array) for array in (*ms, c, s)]
        return self.add("requantize", [*xs, *parameters], rounding=self.random.choice(ROUNDINGS), lo=lo, hi=hi)

    def after(self, name: str) -> str:
        """A chain of ops after a result, which the kernel of that result may compute."""
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            name = self.random.choice(CHAINED)(self, name)
        return name

    # Blocks -------------------------------------------------------------------------------------------------------

    def convolution(self, depthwise: bool = False) -> None:
        """A convolution of any geometry, mostly requantized, and the ops after it."""
        x = self.map()
        _, c, h, w = self.shape(x)
        groups = c if depthwise else self.random.choice([k for k in (1, 1, 1, 2, 3, 4, c) if c % k == 0])
        per_group = 1 if depthwise and self.random.random() < 0.8 else self.number(1, max(1, 70 // groups))
        kernel = (self.random.choice((1, 1, 2, 3, 3, 5)), self.random.choice((1, 1, 2, 3, 3, 5)))
        dilation, stride = (self.number(1, 3), self.number(1, 3)), (self.number(1, 3), self.number(1, 3))
        padding = (self.random.choice((0, 0, 1, 2, 5)), self.random.choice((0, 0, 1, 2, 5)))
        # As much padding as the window needs, which may exceed the map.
        reach = [(k - 1) * d + 1 - extent for k, d, extent in zip(kernel, dilation, (h, w), strict=True)]
        padding = (max(padding[0], -(-reach[0] // 2)), max(padding[1], -(-reach[1] // 2)))
        shape = (groups * per_group, c // groups, *kernel)
        products = prod(shape[1:]).bit_length()
        bits = self.random.choice((4, 7, 8, 8, 8, 15) if depthwise else (1, 4, 7, 7, 8, 9, 15, 20))
        x = self.within(x, max(1, min(28 - products - 1, 29 - products - bits)) if self.random.random() < 0.5 else 15)
        bits = max(0, min(bits, 29 - products - self.bits(x)))
        if bits == 0:
            x, bits = self.within(x, 8), 7
        weights = self.seldom_large(self.weights(shape, bits))
        if self.random.random() < (0.4 if depthwise else 0.1):  # only the last row of a window is wide
            weights[:, :, :-1] = weights[:, :, :-1].clip(-128, 127)
        if self.random.random() < 0.3:  # groups and channels of other widths
            weights[: shape[0] // 2] = np.clip(weights[: shape[0] // 2], -70, 65)
        inputs = [x, self.builder.constant(weights)]
        if self.random.random() < 0.6:
            inputs.append(self.builder.constant(self.elements(shape[:1], -(2**29), 2**29)))
        attributes = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}
        sums = self.builder.add("conv2d", inputs, attributes)[0]
        self.kept(self.after(self.codes(sums) if self.random.random() < 0.8 else sums))

    def depthwise(self) -> None:
        """A depthwise convolution: as many groups as channels."""
        self.convolution(depthwise=True)

    def computed_weights(self) -> None:
        """A convolution whose weights are an input."""
        x = self.within(self.map(3000), 9)
        c = self.shape(x)[1]
        w = self.builder.input(f"w{len(self.maps)}", (self.number(1, 5), c, 1, self.number(1, 2)), -100, 100)
        self.kept(self.after(self.add("conv2d", [x, w], padding=(self.number(0, 1), 1))))

    def dense(self) -> None:
        """A matrix product of a flattened map."""
        x = self.map(6000)
        shape = self.shape(x)
        flat = self.add("reshape", [x], target_shape=(shape[0], prod(shape[1:])))
        if self.random.random() < 0.3:
            flat = self.add("transpose", [flat], axes=(1, 0))
        depth = self.shape(flat)[1]
        bits = self.random.choice((3, 7, 8, 15))
        flat = self.within(flat, max(1, 29 - bits - depth.bit_length()))
        weights = self.seldom_large(self.weights((self.channels(), depth), bits))
        sums = self.add("dense", [flat, self.builder.constant(weights)])
        self.kept(self.after(self.codes(sums)))

    def pool(self) -> None:
        """Maxima of windows."""
        x = self.map()
        _, _, h, w = self.shape(x)
        size = (self.number(1, min(4, h)), self.number(1, min(4, w)))
        padding = (self.number(0, min(1, size[0] - 1)), self.number(0, min(1, size[1] - 1)))
        strides = (self.number(1, size[0]), self.number(1, size[1]))
        self.kept(self.add("max_pool2d", [x], pool_size=size, strides=strides, padding=padding))

    def concatenation(self) -> None:
        """A concatenation of maps, a constant and a computed part."""
        x = self.map()
        same = [name for name in self.maps if self.shape(name) == self.shape(x)]
        parts = [self.random.choice(same) for _ in range(self.number(1, 4))]
        if self.random.random() < 0.4:
            parts.append(self.builder.constant(self.elements(self.shape(x), *self.random.choice(CODES))))
        if self.random.random() < 0.4:
            parts.append(self.add("negative", [x]))
        self.kept(self.after(self.add("concatenate", parts, axis=self.random.choice((1, 1, 1, 0, 2, -1)))))

    def movement(self) -> None:
        """A chain of ops that only move elements."""
        x = self.map(3000)
        for _ in range(self.number(1, 4)):
            x = self.random.choice(MOVED)(self, x)
        self.kept(self.after(self.as_map(x)))

    def as_map(self, x: str) -> str:
        """The value with four axes."""
        shape = self.shape(x)
        if len(shape) == 4:
            return x
        if len(shape) < 4:
            return self.add("expand_dims", [x], axis=self.number(0, len(shape)), num_newaxis=4 - len(shape))
        return self.add("reshape", [x], target_shape=(*shape[:3], prod(shape[3:])))

    def residual(self) -> None:
        """Two maps of one shape, joined element by element."""
        x = self.map()
        same = [name for name in self.maps if self.shape(name) == self.shape(x)]
        a, b = self.within(x, 29), self.within(self.random.choice(same), 29)
        op = self.random.choice(("elemwise_add", "elemwise_sub", "broadcast_max", "broadcast_greater"))
        self.kept(self.after(self.add(op, [a, b])))

    def reduction(self) -> None:
        """A sum or a maximum over any axes."""
        x = self.map(6000)
        axes = tuple(axis for axis in range(4) if self.random.random() < 0.5)
        op = self.random.choice(("sum", "max"))
        if op == "sum":
            x = self.within(x, 15)
        self.kept(self.after(self.add(op, [x], axes=axes, keepdims=self.random.random() < 0.7,
                                      exclude=self.random.random() < 0.2)))  # fmt: skip

    def boxes(self) -> None:
        """Detections from the elements of any map."""
        x = self.within(self.map(1500), 20)
        rows = prod(self.shape(x)) // 6
        if rows == 0:
            return
        flat = self.add("slice", [self.add("reshape", [x], target_shape=(prod(self.shape(x)),))], begin=(0,),
                        end=(6 * rows,))  # fmt: skip
        x = self.add("reshape", [flat], target_shape=(1, rows, 6))
        count, rows_kept = self.builder.add("get_valid_count", [x], {"score_threshold": self.number(-2, 2)})
        self.results += [count, rows_kept]
        self.results.append(
            self.add("non_max_suppression", [rows_kept, count], iou_threshold=self.random.choice((1, 30, 100)),
                     max_output_size=self.number(-1, rows), force_suppress=True, top_k=self.number(-1, rows))
        )  # fmt: skip


def _relu(make: Maker, x: str) -> str:
    return make.add("relu", [x])


def _clip(make: Maker, x: str) -> str:
    lo, hi = make.random.choice(CODES)
    return make.add("clip", [x], a_min=lo, a_max=hi)


def _requantize(make: Maker, x: str) -> str:
    return make.codes(x)


def _other(make: Maker, x: str) -> str:
    """Another operand: a map of the same shape, or a constant that broadcasts."""
    shape = make.shape(x)
    same = [name for name in make.maps if make.shape(name) == shape]
    if same and make.random.random() < 0.5:
        return make.within(make.random.choice(same), 29)
    extents = make.parameter_shape(shape)
    return make.builder.constant(make.elements(extents, *make.random.choice(CODES)))


def _sum(make: Maker, x: str) -> str:
    operands = [make.within(x, 29), _other(make, x)]
    make.random.shuffle(operands)
    return make.add(make.random.choice(("broadcast_add", "broadcast_sub")), operands)


def _product(make: Maker, x: str) -> str:
    return make.add("broadcast_mul", [make.within(x, 14), make.within(_other(make, x), 14)])


def _quotient(make: Maker, x: str) -> str:
    return make.add("broadcast_div", [x, _other(make, x)])


def _table(make: Maker, x: str) -> str:
    count = make.random.choice((1, 2, 16, 255, 256, 257, 1000))
    table = make.builder.constant(make.elements((count,), *make.random.choice((*CODES, (-INT32_MAX, INT32_MAX)))))
    return make.add("cvm_lut", [table, x])


def _shift(make: Maker, x: str) -> str:
    op = make.random.choice(("cvm_right_shift", "cvm_left_shift"))
    return make.add(op, [x], precision=make.number(1, 32), shift_bit=make.number(1, 32))


def _one(make: Maker, x: str) -> str:
    return make.add(make.random.choice(("negative", "abs", "cvm_precision")), [x])


def _where(make: Maker, x: str) -> str:
    condition = make.add("broadcast_greater", [x, make.builder.constant([make.number(-3, 3)])])
    return make.add("where", [condition, x, make.add("negative", [x])])


CHAINED: tuple[Callable[[Maker, str], str], ...] = (
    _relu, _clip, _requantize, _requantize, _sum, _sum, _product, _quotient, _table, _shift, _one, _where
)  # fmt: skip


def _transposed(make: Maker, x: str) -> str:
    axes = list(range(len(make.shape(x))))
    make.random.shuffle(axes)
    return make.add("transpose", [x], axes=tuple(axes))


def _reshaped(make: Maker, x: str) -> str:
    left, target = prod(make.shape(x)), []
    for _ in range(make.number(0, 4)):
        factor = make.random.choice([k for k in range(1, left + 1) if left % k == 0])
        target.append(factor)
        left //= factor
    target.insert(make.number(0, len(target)), left)
    return make.add("reshape", [x], target_shape=tuple(target))


def _sliced(make: Maker, x: str) -> str:
    begin, end, strides = [], [], []
    for n in make.shape(x):
        stride, first = make.random.choice((1, 1, 1, 2, 3, -1, -2)), make.number(0, n - 1)
        begin.append(first)
        end.append(make.number(first + 1, n) if stride > 0 else -n - 1 + make.number(0, first))
        strides.append(stride)
    return make.add("slice", [x], begin=tuple(begin), end=tuple(end), strides=tuple(strides))


def _tiled(make: Maker, x: str) -> str:
    if prod(make.shape(x)) > 2000:
        return x
    reps = [1] * len(make.shape(x))
    reps[make.number(0, len(reps) - 1)] = make.number(1, 3)
    return make.add("tile", [x], reps=tuple(reps))


def _repeated(make: Maker, x: str) -> str:
    if prod(make.shape(x)) > 2000:
        return x
    return make.add("repeat", [x], axis=make.number(0, len(make.shape(x)) - 1), repeats=make.number(1, 3))


def _upsampled(make: Maker, x: str) -> str:
    x = make.as_map(x)
    return make.add("upsampling", [x], scale=make.number(1, 2)) if prod(make.shape(x)) <= 2000 else x


def _taken(make: Maker, x: str) -> str:
    axis = make.number(0, len(make.shape(x)) - 1)
    n = make.shape(x)[axis]
    return make.add("take", [x, make.builder.constant(make.elements((make.number(1, 5),), -1, n))], axis=axis)


MOVED: tuple[Callable[[Maker, str], str], ...] = (
    _transposed, _transposed, _reshaped, _reshaped, _sliced, _sliced, _tiled, _repeated, _upsampled, _taken
)  # fmt: skip

Block = Callable[[Maker], None]
AIMS: dict[str, tuple[Block, ...]] = {
    "convolutions": (Maker.convolution, Maker.convolution, Maker.convolution, Maker.pool, Maker.residual),
    "depthwise convolutions": (Maker.depthwise, Maker.depthwise, Maker.depthwise, Maker.convolution),
    "products": (Maker.dense, Maker.dense, Maker.convolution, Maker.computed_weights),
    "concatenations": (Maker.concatenation, Maker.concatenation, Maker.convolution, Maker.residual, Maker.pool),
    "movement": (Maker.movement, Maker.movement, Maker.convolution, Maker.dense, Maker.concatenation),
    "reductions": (Maker.reduction, Maker.reduction, Maker.movement, Maker.pool, Maker.boxes),
}
"""The blocks of a network, by its aim."""


def network(aim: str, seed: int) -> Program:
    """A network of one to five blocks; every value that nothing reads is an output, and some others are."""
    make = Maker(seed)
    make.input()
    if make.random.random() < 0.4:
        make.input(make.shape(make.maps[0]))
    for _ in range(make.number(1, 5)):
        make.random.choice(AIMS[aim])(make)
    ends = [*make.maps[-2:], *make.results]
    if make.random.random() < 0.3:
        ends.append(make.random.choice(make.maps))
    return make.builder.build([Output(f"y{index}", name) for index, name in enumerate(ends)])
