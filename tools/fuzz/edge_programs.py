"""Small programs of one contraction or element-wise op and a `requantize`, whose constants lie at the edges.

Programs come in families. All members of a family have the same inputs, shapes, bounds and roundings, and constants of
their own: the native executor compiles one kernel for many of them, which makes them cheap to compare. An `Aim` says
which way through the native executor a family should take; the plan says whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.program import Output, Program, ProgramBuilder
from tools.fuzz.edges import CHANNELS, FORMATS, RESULTS, ROUNDINGS, WILD, Parameters, Term, edge, parameters

__all__ = ["ARITHMETICS", "KERNELS", "STARTS", "STORES", "Aim", "Family", "drawn_aim", "family"]

T = TypeVar("T")
Integers = npt.NDArray[np.int64]

KERNELS = ("conv", "depthwise", "dense", "pointwise")
ARITHMETICS = ("narrow", "high", "fused", "wide")
STARTS = ("own", "folded")
STORES = ("plain", "biased", "residual")
INT32_MAX = 2**31 - 1
PRODUCTS = 60_000
"""The most multiplications of a member, for the speed of NumPy."""
ELEMENTS = 2_000
"""The most elements of an operand."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The way through the native executor that the programs of a family should take.

    ``kernel`` computes the sums (``pointwise``: there are none). ``operand`` is the storage of the tensor that it
    reads, ``arithmetic`` the arithmetic of the requantize. ``start`` is ``folded`` if the offset contains the start of
    the sums. ``store`` is ``biased`` if the offset contains the bias of the result's format, and ``residual`` if
    another tensor is added in words of 16 bits.
    """

    kernel: str
    operand: str
    arithmetic: str
    start: str
    store: str


@dataclass(frozen=True, slots=True)
class Family:
    """A program with an output for each member of a family; the verifier has refused ``refused`` further members."""

    program: Program
    members: int
    refused: int


def drawn_aim(random: Random) -> Aim:
    """A random aim; fused contractions and narrow operands are frequent."""
    kernel = random.choice(("conv", "conv", "depthwise", "dense", "pointwise"))
    operand = random.choice(tuple(FORMATS))
    if kernel == "depthwise" and random.random() < 0.7:
        operand = random.choice(("u8", "u8 + 128", "u8 + other"))
    arithmetic = random.choice(("narrow", "narrow", "high", "fused", "fused", "wide"))
    return Aim(kernel, operand, arithmetic, random.choice(STARTS), random.choice(("plain", "biased", *STORES)))


def family(random: Random, aim: Aim, members: int, wild: float, small: bool = False) -> Family:
    """A family of at most ``members`` members; a share ``wild`` of them has parameters at the ends of what fits.

    ``small`` families have few channels and pixels, so that their kernels compile quickly.

    Raises `CvmError` if the part that all members share is refused.
    """
    maker = _Maker(random, aim, wild, small)
    outputs: list[Output] = []
    refused = 0
    # Numbers of whole tensors are written into the code, so hardly any two members would share one kernel.
    members = min(members, 4) if maker.parameter_kind == "tensor" else members
    for number in range(members):
        try:
            outputs.append(Output(f"y{number}", maker.member()))
        except CvmError:
            refused += 1
    if not outputs:
        raise CvmError("fuzz.empty", "no member of the family was accepted")
    if len(outputs) > 1 and random.random() < 0.15:
        joined = maker.joined([output.value for output in outputs[:3]])
        outputs.append(Output("joined", joined))
    if maker.state is not None:
        maker.builder.update(maker.state, maker.source)
    return Family(maker.builder.build(outputs), members, refused)


class _Maker:
    """The parts that the members of a family share, and the making of one member after the other."""

    def __init__(self, random: Random, aim: Aim, wild: float, small: bool = False) -> None:
        self.random, self.aim, self.wild = random, aim, wild
        self.numbers = np.random.default_rng(random.getrandbits(64))
        self.builder = ProgramBuilder()
        self.shared: dict[str, object] = {}
        self.after = self._after()
        self.lo, self.hi = self._results()
        self.rounding = self._rounding()
        self.parameter_kind = random.choice(("channel",) * 7 + ("tensor", "position", "mixed"))
        interval = random.choice(FORMATS[aim.operand])
        self.geometry = _GEOMETRIES[aim.kernel](random, aim, small)
        self.source = self.builder.input("x", self.geometry.shape, *interval)
        self.state: str | None = None
        if random.random() < 0.08:
            zeros = self.builder.constant(np.zeros(self.geometry.shape, np.int64) + interval[0])
            self.state = self.builder.state("kept", zeros, *interval)
        self.x = self._operand()
        self.before = self._before()
        self.others = self._others()
        self.outer: tuple[str, ...] = ()
        self.bits = self._sum_bits()
        self.has_bias = random.random() < 0.6 or self._needs_bias

    # Shared by all members ----------------------------------------------------------------------------------------

    def _results(self) -> tuple[int, int]:
        byte = [(lo, hi) for lo, hi in RESULTS if hi - lo <= 255]
        words = [(lo, hi) for lo, hi in RESULTS if lo >= -(2**15) and hi < 2**15]
        wide = [(lo, hi) for lo, hi in RESULTS if hi - lo > 255]
        plain = list(RESULTS) if self.after else wide  # the offset of bytes contains their bias
        fitting = {"biased": byte, "residual": words, "plain": plain}[self.aim.store]
        return self.random.choice(fitting)

    def _rounding(self) -> str:
        usual = self.aim.arithmetic != "wide" or self.random.random() < 0.3
        return "half_up" if usual else self.random.choice(ROUNDINGS[1:])

    @property
    def _zero_weights(self) -> bool:
        """Whether all weights are zero, so that the offset can contain the start of the sums of a 32-bit operand."""
        return self.aim.operand == "i32" and self.aim.start == "folded" and self.aim.kernel != "pointwise"

    @property
    def _needs_bias(self) -> bool:
        return self._zero_weights or (self.aim.start == "folded" and self.aim.arithmetic == "narrow")

    def _add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        return self.builder.add(op, inputs, attributes)[0]

    def _operand(self) -> str:
        """The tensor that the kernel reads: an array of the caller, or the same tensor in memory of the network."""
        x = self.state if self.state is not None and self.random.random() < 0.5 else self.source
        if len(self.geometry.shape) == 4 and self.random.random() < (0.9 if self.aim.kernel == "pointwise" else 0.4):
            x = self._add("max_pool2d", [x], pool_size=(1, 1), strides=(1, 1))
        if self.aim.kernel == "dense" and len(self.geometry.shape) == 4:
            x = self._add("reshape", [x], target_shape=self.geometry.shape[:2])
        return x

    def _before(self) -> str | None:
        """An op between the sums and the requantize, which keeps the start out of the offset."""
        own = self.aim.start == "own" and self.aim.kernel != "pointwise"
        return self.random.choice(("relu", "clip", "negative")) if own and self.aim.arithmetic != "narrow" else None

    def _after(self) -> tuple[str, ...]:
        if self.aim.store != "plain":
            return ()
        count = self.random.choice((0, 0, 1, 1, 2))
        return tuple(self.random.choice(tuple(_CHAINED)) for _ in range(count))

    def _others(self) -> list[str]:
        """Further terms of the requantize: inputs of the result's shape, inputs that broadcast to it, or constants."""
        own = self.aim.kernel == "pointwise" or (self.aim.start == "own" and self.aim.store != "residual")
        count = self.random.choice((0, 0, 0, 1, 1, 2, 7)) if own and self.aim.arithmetic != "fused" else 0
        found = []
        for number in range(count):
            shape = tuple(n if self.random.random() < 0.8 else 1 for n in self.geometry.result)
            interval = self.random.choice(FORMATS[self.random.choice(tuple(FORMATS))])
            if self.random.random() < 0.3:
                found.append(self.builder.constant(self._elements(shape, *interval)))
            else:
                found.append(self.builder.input(f"other{number}", shape, *interval))
        return found

    def _elements(self, shape: Sequence[int], lo: int, hi: int) -> Integers:
        """Random elements in [lo, hi]; the ends are frequent."""
        values = self.numbers.integers(lo, hi, shape, endpoint=True)
        ends = self.numbers.choice(np.array([lo, hi]), shape)
        return np.where(self.numbers.random(shape) < self.random.choice((0.0, 0.2, 1.0)), ends, values)

    def _sum_bits(self) -> int:
        """The wanted number of bits of the sums."""
        narrow = (8, 12, 16, 20, 24)
        fused = (17, 19, 20, 20, 21, 21, 22, 22, 22, 23, 23)
        sizes = {"narrow": narrow, "high": (24, 26, 28, 30), "fused": fused, "wide": (8, 16, 23, 24, 30)}
        return self.random.choice(sizes[self.aim.arithmetic])

    # One member ---------------------------------------------------------------------------------------------------

    def member(self) -> str:
        """The value of a further member."""
        value = self.x
        if self.geometry.weights is not None:
            inputs = [self.x, self.builder.constant(self._weights().reshape(self.geometry.weights))]
            if self.has_bias:
                inputs.append(self.builder.constant(self._bias(inputs)))
            value = self._add(self.geometry.op, inputs, **self.geometry.attributes)
        if self.before is not None:
            value = _CHAINED[self.before](self, value)
        value = self._requantized(value)
        if self.aim.store == "residual":
            value = self._residual(value)
        for op in self.after:
            value = _CHAINED[op](self, value)
        return value

    def _weights(self) -> Integers:
        """Weights (channels, products) whose sums have about the wanted number of bits."""
        assert self.geometry.weights is not None
        channels, products = self.geometry.weights[0], prod(self.geometry.weights[1:])
        if self._zero_weights:
            return np.zeros((channels, products), np.int64)
        magnitude = self.builder.range(self.x).magnitude()
        # The bound of a sum follows from the bounds of the stored elements.
        stored = 255 if self.aim.operand.startswith("u8") else max(magnitude, 2**16 - 1)
        wanted = max(1, 2**self.bits // (stored if self.aim.arithmetic == "fused" else max(1, magnitude)))
        # Machines whose products of bytes saturate multiply bytes by weights of up to 64, and by few that are larger.
        most = self.random.choice((wanted // products, 64, 64, 127, 128, 200, 255, 2**15 - 1, 2**15, 2**16))
        if self.aim.kernel == "depthwise" and self.random.random() < 0.9:
            most = min(most, 255)  # wider weights would be grouped convolutions
        most = max(1, min(most, wanted // products if wanted >= products else 1, INT32_MAX // max(1, magnitude)))
        signs = ((-most, most), (-most, most), (0, most), (-most, 0), (-most, -most))
        byte = ((max(-most, most - 255), most), (-most, min(most, 255 - most)))  # weights less a zero point
        low, high = self.random.choice((*signs, *byte))
        found = self._elements((channels, products), low, high)
        if most in (127, 128, 200) and self.random.random() < 0.5:
            seldom = self.numbers.random(-(-products // 4)) < self.random.choice((0.03, 0.1, 0.2))
            found = np.where(np.repeat(seldom, 4)[:products], found, found.clip(-64, 64))
        if wanted < products:
            found = np.where(self.numbers.random(found.shape) < wanted / products, found, 0)
        total = np.abs(found).sum(axis=1, keepdims=True) * magnitude
        return np.where(total < 2**30, found, 0)

    def _bias(self, inputs: Sequence[str]) -> Integers:
        channels = self.geometry.weights[0] if self.geometry.weights is not None else 1
        most = 2**30 - 1
        if self._needs_bias:
            return self._elements((channels,), 2**29 - 5000, 2**29) * self.random.choice((-1, 1))
        if self.random.random() < 0.85:
            return self._elements((channels,), -(2**12), 2**12)
        return np.array([edge(self.random, most) for _ in range(channels)])

    def _requantized(self, value: str) -> str:
        shape = self.builder.shape(value)
        extents = self._parameter_shape(shape)
        if self.random.random() < self.wild / 4:  # numbers of whole tensors are written into the code
            extents = (1,) * len(shape)
        values = [value, *self.others]
        bounds = [self._bounds(name, shape, extents) for name in values]
        shift = self._shared_shift(bounds)
        found = np.empty((len(values) + 2, prod(extents)), np.int64)
        wild, style = self._wild_indices(prod(extents)), self.random.randrange(10**6)
        kind = self.random.choice(WILD)
        for number in range(prod(extents)):
            terms = [Term(int(lo[number]), int(hi[number])) for lo, hi in bounds]
            one = self._parameters(terms, number, kind if number in wild else "steps", style, shift)
            found[:, number] = (*one.multipliers, one.offset, one.shift)
        names = [self.builder.parameter(row.reshape(extents)) for row in found]
        return self._add("requantize", [*values, *names], rounding=self.rounding, lo=self.lo, hi=self.hi)

    def _wild_indices(self, count: int) -> frozenset[int]:
        """The indices at which a member has parameters at the ends of what fits: none, one or two, or all."""
        if self.random.random() >= self.wild:
            return frozenset()
        if self.random.random() < 0.5:
            return frozenset(range(count))
        return frozenset(self.random.randrange(count) for _ in range(2))

    def _shared_shift(self, bounds: Sequence[tuple[Integers, Integers]]) -> int | None:
        """A shift that prevents the planner from trying operands of few values one by one."""
        if self.aim.arithmetic != "high" or self.aim.store == "biased":
            return None
        values = max(int((hi - lo).max()) for lo, hi in bounds)
        return self.random.randint(56, 60) if values < 2**16 and self.random.random() < 0.8 else None

    def _parameters(self, terms: Sequence[Term], number: int, kind: str, style: int, shift: int | None) -> Parameters:
        lo, hi, arithmetic = self.lo, self.hi, self.aim.arithmetic
        if self._zero_weights and arithmetic in ("high", "fused"):
            constant = self._of_a_constant(terms, number)
            if constant.fit(terms):
                return constant
        return parameters(self.random, terms, lo, hi, arithmetic, kind, style, shift)

    def _of_a_constant(self, terms: Sequence[Term], number: int) -> Parameters:
        """Parameters for sums that consist of their start alone. 32 bits are enough for most of them, but not
        if one shift is zero and others are large.
        """
        m, s = self.random.randrange(2**29, 2**30), self.random.randint(40, 52)
        if self.aim.arithmetic == "fused":
            code = min(max(self.random.randint(-3, 3), self.lo), self.hi)
            return Parameters((m,), (code << s) - m * terms[0].lo + self.random.randrange(2**s), s)
        s = 0 if number == 0 else s
        return Parameters((m,), self.random.randrange(2**29) - m * terms[0].lo - ((1 << s) >> 1), s)

    def _bounds(self, name: str, shape: Sequence[int], extents: Sequence[int]) -> tuple[Integers, Integers]:
        """The proven interval of a value for each element of a parameter of shape ``extents``."""
        proven = self.builder.range(name).per_channel()
        rank = len(shape)
        found = []
        for bounds, reduce in ((proven.lo, np.min), (proven.hi, np.max)):
            spread = bounds.reshape((1,) * (rank - bounds.ndim) + bounds.shape).astype(np.int64)
            varies = [axis for axis in range(rank) if extents[axis] == 1 and spread.shape[axis] > 1]
            for axis in varies:
                spread = reduce(spread, axis=axis, keepdims=True)
            found.append(np.broadcast_to(spread, extents).reshape(-1))
        return found[0], found[1]

    def _parameter_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape of the result's rank: per tensor, per channel, per element, or along any axes."""
        kinds: dict[str, Callable[[int], bool]] = {
            "tensor": lambda axis: False,
            "channel": lambda axis: axis == 1,
            "position": lambda axis: prod(shape) <= 600 or axis == 1,
            "mixed": lambda axis: axis != 0 and (axis != 1 or prod(shape) <= 600),
        }
        return tuple(n if kinds[self.parameter_kind](axis) else 1 for axis, n in enumerate(shape))

    def _residual(self, codes: str) -> str:
        """The sum of the codes and another tensor of bytes, requantized with numbers that all members share."""
        if not self.outer:
            shape = self.builder.shape(codes)
            whole = shape if len(shape) == 4 else (*shape, 1, 1)
            lo, hi = self.random.choice(FORMATS[self.random.choice(("u8", "u8 + 128", "u8 + other"))])
            other = self.builder.input("residual", whole, lo, hi)
            other = self._add("max_pool2d", [other], pool_size=(1, 1), strides=(1, 1))
            other = other if len(shape) == 4 else self._add("reshape", [other], target_shape=shape)
            inner = Term(self.lo, self.hi)
            found = parameters(self.random, [inner, Term(lo, hi)], -128, 127, "narrow", "steps", 3 + 8 * 2)
            numbers = (*found.multipliers, found.offset, found.shift)
            self.outer = (other, *(self.builder.parameter([number]) for number in numbers))
        lo, hi = self.random.choice(((-128, 127), (-128, 127), (0, 255)))
        return self._add("requantize", [codes, *self.outer], rounding="half_up", lo=lo, hi=hi)

    def joined(self, values: Sequence[str]) -> str:
        """A concatenation, whose parts are computed directly in its buffer."""
        axis = self.random.choice((1, 1, 0, -1))
        return self._add("concatenate", list(values), axis=axis)

    # Ops before and after -----------------------------------------------------------------------------------------

    def relu(self, x: str) -> str:
        return self._add("relu", [x])

    def negative(self, x: str) -> str:
        return self._add("negative", [x])

    def clip(self, x: str) -> str:
        lo, hi = self.builder.range(x).hull()
        bounds = self._once("clip", lambda: (lo + (hi - lo) // 8, hi - (hi - lo) // 8))
        return self._add("clip", [x], a_min=bounds[0], a_max=bounds[1])

    def table(self, x: str) -> str:
        count = self._once("entries", lambda: self.random.choice((1, 2, 16, 255, 256, 257)))
        values = self._elements((count,), *self._once("table", lambda: self.random.choice(RESULTS)))
        return self._add("cvm_lut", [self.builder.constant(values), x])

    def shifted(self, x: str) -> str:
        op = self._once("shift", lambda: self.random.choice(("cvm_right_shift", "cvm_left_shift")))
        precision = self._once("precision", lambda: self.random.choice((8, 9, 16, 31, 32)))
        return self._add(op, [x], precision=precision, shift_bit=self._once("by", lambda: self.random.randint(1, 9)))

    def summed(self, x: str) -> str:
        """The sum with one constant per channel."""
        lo, hi = self.builder.range(x).hull()
        room = min(INT32_MAX + lo, INT32_MAX - hi, 2**20)
        extents = [n if axis == 1 else 1 for axis, n in enumerate(self.builder.shape(x))]
        return self._add("broadcast_add", [x, self.builder.constant(self._elements(extents, -room, room))])

    def again(self, x: str) -> str:
        """A further requantize, with numbers per channel."""
        extents = [n if axis == 1 else 1 for axis, n in enumerate(self.builder.shape(x))]
        term = Term(*self.builder.range(x).hull())
        bounds = self._once("again", lambda: self.random.choice(RESULTS))
        arithmetic = self._once("arithmetic", lambda: self.random.choice(ARITHMETICS))
        style = self.random.randrange(10**6)
        found = [parameters(self.random, [term], *bounds, arithmetic, "steps", style) for _ in range(prod(extents))]
        rows = zip(*((*one.multipliers, one.offset, one.shift) for one in found), strict=True)
        names = [self.builder.parameter(np.array(row).reshape(extents)) for row in rows]
        return self._add("requantize", [x, *names], rounding="half_up", lo=bounds[0], hi=bounds[1])

    def _once(self, what: str, drawn: Callable[[], T]) -> T:
        """A value drawn for the first member and used for all others, so that one kernel computes them all."""
        return self.shared.setdefault(what, drawn())  # type: ignore[return-value]


_CHAINED: dict[str, Callable[[_Maker, str], str]] = {
    "relu": _Maker.relu, "negative": _Maker.negative, "clip": _Maker.clip, "table": _Maker.table,
    "shifted": _Maker.shifted, "summed": _Maker.summed, "again": _Maker.again,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The shapes of a family: of the operand, of its weights (None: it has none) and of the result."""

    shape: tuple[int, ...]
    result: tuple[int, ...]
    op: str = ""
    weights: tuple[int, ...] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


WIDE_ENOUGH = (31, 32, 63, 64, 65, 128, 129)
"""Numbers of channels at which blocks of two or four vectors are interleaved, for every width of a vector."""


def _channels(random: Random, aim: Aim, small: bool) -> int:
    fitting = WIDE_ENOUGH if aim.store == "residual" else CHANNELS
    return random.choice([count for count in fitting if count <= (32 if small else 129)])


def _window(random: Random, rows: int) -> tuple[int, int, int, int]:
    """A window along one axis: its size, padding, stride and dilation, and no more padding than it needs."""
    size, dilation = random.choice((1, 1, 1, 2, 3)), random.choice((1, 1, 2))
    padding = max(random.choice((0, 0, 1, 2)), -(-((size - 1) * dilation + 1 - rows) // 2))
    return size, padding, random.choice((1, 1, 2, 3)), dilation


def _convolution(random: Random, aim: Aim, small: bool) -> _Geometry:
    """Any convolution, or a depthwise one."""
    extent = 3 if small else 9
    images, rows, columns = random.choice((1, 1, 2)), random.randint(1, extent), random.randint(2, extent)
    OC = _channels(random, aim, small)
    if aim.kernel == "depthwise" and random.random() < 0.9:  # its code grows with the strips of columns
        rows, columns, OC = min(rows, 5), min(columns, 4), min(OC, 64)
    groups = OC if aim.kernel == "depthwise" else random.choice([k for k in (1, 1, 1, 2, 3, 4) if OC % k == 0])
    if aim.kernel == "depthwise" and OC == 1:
        OC = groups = 2
    if aim.kernel == "depthwise" and not aim.operand.startswith("u8"):  # there is one call per group
        OC = groups = random.choice((2, 3, 9))
    per_group = 1 if aim.kernel == "depthwise" else random.choice([k for k in CHANNELS if k * groups <= 130])
    windows = [_window(random, rows), _window(random, columns)]
    if aim.store == "residual":  # with a single pixel, vectors are not interleaved
        windows[1] = (windows[1][0], windows[1][1], 1, 1)
        columns += 2
    sizes, padding, stride, dilation = (tuple(pair) for pair in zip(*windows, strict=True))
    while prod(sizes) * per_group * OC * rows * columns > PRODUCTS and rows * columns * per_group > 2:
        per_group = max(1, per_group // 2)
        rows, columns = max(_reach(windows[0]), rows // 2, 1), max(_reach(windows[1]), columns // 2, 2)
        if per_group == 1 and (rows, columns) == (max(_reach(windows[0]), 1), max(_reach(windows[1]), 2)):
            break
    shape = (images, groups * per_group, rows, columns)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, p, s, d) in zip(shape[2:], windows, strict=True))
    attributes = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}
    return _Geometry(shape, (images, OC, *out), "conv2d", (OC, per_group, *sizes), attributes)


def _reach(window: tuple[int, int, int, int]) -> int:
    """The extent that a window needs besides the padding."""
    size, padding, _, dilation = window
    return (size - 1) * dilation + 1 - 2 * padding


def _dense(random: Random, aim: Aim, small: bool) -> _Geometry:
    rows, products, channels = random.randint(1, 9), random.choice(CHANNELS), _channels(random, aim, small)
    if aim.store == "residual":
        rows = max(rows, 2)
    shape = (rows, products) if random.random() < 0.6 else (rows, products, 1, 1)
    return _Geometry(shape, (rows, channels), "dense", (channels, products))


def _pointwise(random: Random, aim: Aim, small: bool) -> _Geometry:
    rows, columns = random.randint(1, 3 if small else 9), random.choice((1, 2, 3) if small else (1, 2, 3, 8, 9))
    shape = (random.choice((1, 1, 2)), random.choice(CHANNELS), rows, columns)
    while prod(shape) > ELEMENTS:
        shape = (1, shape[1], (shape[2] + 1) // 2, (shape[3] + 1) // 2)
    return _Geometry(shape, shape)


_GEOMETRIES: dict[str, Callable[[Random, Aim, bool], _Geometry]] = {
    "conv": _convolution, "depthwise": _convolution, "dense": _dense, "pointwise": _pointwise
}  # fmt: skip
