"""Quantisers: linear and logarithmic (4.9.5), and the Khronos tools' zero-point and min-max ones.

A linear quantiser is a grid: code q in lo..hi stands for offset + q * step, and a number x has the code
floor((x - offset) / step + 1/2), clamped. Clamping the code instead of x is the same, as rounding is monotone and keeps
the codes lo and hi. A logarithmic code is sign(x) * (q - (m - r) + 1) with q, m, r of 4.9.5, and 0 for x = 0; its
magnitude is 1 .. r + 1, and the value is sign(x) * 2^q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .elementwise import binary_logarithm
from .real import Number, floor_of, reciprocal, sign
from .tensors import (
    Flags,
    Tensor,
    TensorLike,
    aligned,
    common_rank,
    exact,
    flags,
    from_codes,
    from_numbers,
    require,
    tensor,
)

Codes = npt.NDArray[np.int64]
Index = tuple[int, ...]
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Grid:
    """Codes lo..hi of the numbers offset + code * step, step > 0."""

    offset: Fraction
    step: Fraction
    lo: int
    hi: int

    def __post_init__(self) -> None:
        if not (self.step > 0 and self.lo < self.hi):
            raise ValueError(f"not a quantiser: {self}")

    def codes(self, x: Tensor, shift: Fraction = Fraction(0)) -> tuple[Codes, Flags]:
        """The codes of x + shift * step, and the exact ties among x: halves between two codes, decided upwards."""
        floors, whole = x.floors(1 / self.step, HALF + shift - self.offset / self.step)
        ties = whole & flags(floors > self.lo) & flags(floors <= self.hi)
        return np.asarray(np.clip(floors, self.lo, self.hi), dtype=np.int64), ties

    def values(self, codes: Codes) -> Tensor:
        """The numbers that codes stand for."""
        return from_codes(codes, self.offset, self.step)


@dataclass(frozen=True)
class Powers:
    """logarithmic_quantize: powers of two with exponents highest - 2^bits + 1 .. highest, of both signs, and 0."""

    highest: int
    bits: int

    @property
    def lo(self) -> int:
        """The least code."""
        return -self.hi

    @property
    def hi(self) -> int:
        """r + 1."""
        return int(2**self.bits)

    def codes(self, x: Tensor, shift: Fraction = Fraction(0)) -> tuple[Codes, Flags]:
        """The codes of x * (1 + shift), and the exact ties among x: |x| = 2^(k - 1/2) between two codes."""
        lowest = self.highest - self.hi + 1

        def decide(item: Any) -> tuple[int, bool]:
            number = item * Fraction(1, x.denominator) * (1 + shift)
            side = sign(number)
            if side == 0:
                return 0, False
            exponent, tie = _rounded_exponent(number * side, lowest - 1, self.highest + 1)
            clamped = min(max(exponent, lowest), self.highest)
            return side * (clamped - lowest + 1), tie and clamped == exponent and exponent > lowest

        found: Any = np.frompyfunc(decide, 1, 2)(x.items)
        return np.asarray(found[0], dtype=np.int64), flags(found[1])

    def values(self, codes: Codes) -> Tensor:
        """sign * 2^q."""
        lowest = self.highest - self.hi + 1

        def decode(code: int) -> Fraction:
            power = Fraction(2) ** (abs(code) - 1 + lowest)
            return power if code > 0 else Fraction(0) if code == 0 else -power

        return from_numbers(exact(np.frompyfunc(decode, 1, 1)(codes.astype(object))))


def _rounded_exponent(x: Number, least: int, most: int) -> tuple[int, bool]:
    """round(log2 x) = floor(log2 x + 1/2) of x > 0, and whether x is 2^(k - 1/2); clamped to least..most.

    k <= log2 x + 1/2 means 2^(2k - 1) <= x^2, that is 2k - 1 <= L = floor(log2 x^2). A rational x gives L by lengths in
    bits, and no tie, as no odd power of 2 is a square; otherwise the largest such k is found by bisection.
    """
    square = x * x
    if isinstance(square, Fraction) and isinstance(x, Fraction):
        length = square.numerator.bit_length() - square.denominator.bit_length()
        exponent = (length + (square >= Fraction(2) ** length)) // 2
        return min(max(exponent, least), most), False
    if least > most or _below(square, least):
        return least, False
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if _below(square, middle) else (middle, high)
    return low, bool(square == Fraction(2) ** (2 * low - 1))


def _below(square: Number, k: int) -> bool:
    return bool(square < Fraction(2) ** (2 * k - 1))


Channel = Grid | Powers


@dataclass(frozen=True)
class Quantiser:
    """One channel for the whole tensor, or one per index of dimension `axis`."""

    channels: tuple[Channel, ...]
    axis: int | None = None

    def on_axis(self, shape: Sequence[int], axis: int | None) -> Quantiser:
        """This quantiser for a tensor of `shape`: a list needs an axis of its length, given if there are several."""
        if len(self.channels) == 1:
            return self
        fitting = [k for k, extent in enumerate(shape) if extent == len(self.channels)]
        if axis is None and len(fitting) == 1:
            return replace(self, axis=fitting[0])
        if axis not in fitting:
            raise ValueError(f"a list of {len(self.channels)} needs an axis among {fitting} of shape {tuple(shape)}")
        return replace(self, axis=axis)

    def _per_channel(self, items: npt.NDArray[Any]) -> list[tuple[Channel, npt.NDArray[Any]]]:
        if self.axis is None:
            return [(self.channels[0], items)]
        parts = np.split(items, len(self.channels), axis=self.axis)
        return list(zip(self.channels, parts, strict=True))

    def codes(self, x: Tensor, shift: Fraction = Fraction(0)) -> tuple[Codes, Flags]:
        """Codes of all items, and which are exact ties."""
        found = [channel.codes(x.map(part), shift) for channel, part in self._per_channel(x.items)]
        if self.axis is None:
            return found[0]
        codes, ties = zip(*found, strict=True)
        return np.concatenate(codes, axis=self.axis), np.concatenate(ties, axis=self.axis)

    def values(self, codes: Codes) -> Tensor:
        """The numbers that codes stand for; codes outside of lo..hi are refused."""
        parts = []
        for channel, part in self._per_channel(codes):
            if part.size and not channel.lo <= int(part.min()) <= int(part.max()) <= channel.hi:
                raise ValueError(f"codes outside of {channel.lo}..{channel.hi}")
            parts.append(channel.values(part))
        if self.axis is None:
            return parts[0]
        items, denominator = aligned(parts)
        return Tensor(exact(np.concatenate(items, axis=self.axis)), denominator)


# --- the four algorithms, as graph.quant names them -------------------------------------------------------------------

Parameter = Fraction | int | Sequence[Any]


def _channels(make: Callable[..., Channel], *parameters: Parameter) -> Quantiser:
    """One channel per item of the lists among the parameters."""
    lengths = {len(parameter) for parameter in parameters if isinstance(parameter, list | tuple)}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError("the lists of a quantiser have one length")
    count = lengths.pop() if lengths else 1
    rows = [p if isinstance(p, list | tuple) else [p] * count for p in parameters]
    return Quantiser(tuple(make(*row) for row in zip(*rows, strict=True)))


def _levels(bits: int) -> int:
    require(type(bits) is int and bits >= 1, "bits is at least 1")
    return int(2**bits - 1)


def linear(min: Parameter, max: Parameter, bits: int) -> Quantiser:
    """linear_quantize: q = round((clamp(x) - min) / (max - min) * r), value q / r * (max - min) + min."""
    levels = _levels(bits)
    return _channels(lambda low, high: Grid(Fraction(low), Fraction(high - low) / levels, 0, levels), min, max)


def logarithmic(max: Parameter, bits: int) -> Quantiser:
    """logarithmic_quantize: m = ceil(log2(max))."""
    _levels(bits)

    def powers(bound: Fraction | int) -> Powers:
        require(bound > 0, "max is positive")
        return Powers(-floor_of(binary_logarithm(1 / Fraction(bound)))[0], bits)

    return _channels(powers, max)


def zero_point_linear(zero_point: Parameter, scale: Parameter, bits: int, signed: bool, symmetric: bool) -> Quantiser:
    """Khronos: q = clamp(round(x / s) + z, lo, hi), value (q - z) * s."""
    levels = _levels(bits)
    half = (levels + 1) // 2
    lo, hi = (-half + symmetric, half - 1) if signed else (0, levels)

    def grid(z: int, s: Fraction) -> Grid:
        require(type(z) is int, "zero_point is an integer")
        return Grid(-z * Fraction(s), Fraction(s), lo, hi)

    return _channels(grid, zero_point, scale)


def min_max_linear(min: Parameter, max: Parameter, bits: int, signed: bool, symmetric: bool) -> Quantiser:
    """Khronos: q = round((clamp(x) - min) / (max - min) * r) - p, value (q + p) / r * (max - min) + min."""
    levels = _levels(bits) - (signed and symmetric)
    p = (_levels(bits) + 1) // 2 - symmetric if signed else 0

    def grid(low: Fraction, high: Fraction) -> Grid:
        step = Fraction(high - low) / levels
        return Grid(low + p * step, step, -p, levels - p)

    return _channels(grid, min, max)


ALGORITHMS: dict[str, Callable[..., Quantiser]] = {
    "linear_quantize": linear,
    "logarithmic_quantize": logarithmic,
    "zero_point_linear_quantize": zero_point_linear,
    "min_max_linear_quantize": min_max_linear,
}
"""By name; all parameters but the tensor."""


# --- quantising a tensor ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Quantised:
    """The codes of a tensor and the indices of its exact ties (and near ties, if asked for)."""

    codes: Codes
    ties: list[Index]
    near_ties: list[Index] | None


def _indices(found: Flags) -> list[Index]:
    return [tuple(int(i) for i in index) for index in np.argwhere(found)]


def quantise(x: Tensor, quantiser: Quantiser, near: Fraction | None = None) -> Quantised:
    """Codes, ties and near ties: an item is a near tie if a shift of `near` steps (or, of a logarithmic quantiser, by
    the relative amount `near`) either way gives it another code.
    """
    codes, ties = quantiser.codes(x)
    if near is None:
        return Quantised(codes, _indices(ties), None)
    below, above = (quantiser.codes(x, shift)[0] for shift in (-near, near))
    return Quantised(codes, _indices(ties), _indices(ties | (below != above)))


@dataclass(frozen=True, eq=False)
class Coded(Tensor):
    """The result of a quantisation operation in the graph: a tensor that also knows its codes."""

    codes: Codes | None = None


def _by_items(x: TensorLike, ranges: Sequence[TensorLike], quantiser: Callable[..., Quantiser]) -> Coded:
    """Every item by the quantiser of its own (broadcast) range, items of one range together."""
    require(all(tensor(bound).is_rational for bound in ranges), "ranges are rational")
    source, *bounds = np.broadcast_arrays(*(t.numbers() for t in common_rank(x, *ranges)))
    items, rows = source.ravel(), list(zip(*(bound.ravel() for bound in bounds), strict=True))
    codes, values = np.zeros(items.shape, dtype=np.int64), np.empty(items.shape, dtype=object)
    for row in set(rows):
        where = np.array([other == row for other in rows])
        chosen = quantiser(*row)
        codes[where] = chosen.codes(from_numbers(items[where]))[0]
        values[where] = chosen.values(codes[where]).numbers()
    result = from_numbers(values.reshape(source.shape))
    return Coded(result.items, result.denominator, codes.reshape(source.shape))


def linear_quantize(x: TensorLike, min: TensorLike, max: TensorLike, bits: int) -> Coded:
    """4.9.5 with ranges known at run time only (7.2). Where max <= min every value is min: the clamp gives min."""
    if all(tensor(bound).is_rational for bound in (min, max)):

        def quantiser(low: Fraction, high: Fraction) -> Quantiser:
            return linear(low, high, bits) if low < high else Quantiser((_Single(low),))  # type: ignore[arg-type]

        return _by_items(x, [min, max], quantiser)
    return _between_irrationals(x, min, max, _levels(bits))


@dataclass(frozen=True)
class _Single:
    """The empty range: code 0, and the value is min."""

    value: Fraction
    lo: int = 0
    hi: int = 0

    def codes(self, x: Tensor, shift: Fraction = Fraction(0)) -> tuple[Codes, Flags]:
        return np.zeros(x.shape, dtype=np.int64), np.zeros(x.shape, dtype=bool)

    def values(self, codes: Codes) -> Tensor:
        return from_codes(codes, self.value, Fraction(1))


def _between_irrationals(x: TensorLike, low: TensorLike, high: TensorLike, levels: int) -> Coded:
    """The formula item by item, for ranges that are not rational."""

    def one(item: Number, a: Number, b: Number) -> tuple[int, Number]:
        if b <= a or item <= a:
            return 0, a
        position = (item - a) * reciprocal(b - a) * levels if item < b else levels
        code = floor_of(position + HALF)[0]
        return code, (b - a) * Fraction(code, levels) + a

    parts = [t.numbers() for t in common_rank(x, low, high)]
    found: Any = np.frompyfunc(one, 3, 2)(*parts)
    result = from_numbers(exact(found[1]))
    return Coded(result.items, result.denominator, np.asarray(found[0], dtype=np.int64))


def logarithmic_quantize(x: TensorLike, max: TensorLike, bits: int) -> Coded:
    """4.9.5 with a range known at run time only."""
    levels = _levels(bits)

    def exponent(bound: Number) -> Fraction:
        require(sign(bound) > 0, "max is positive")
        return Fraction(-floor_of(binary_logarithm(bound) * -1)[0])

    highest = np.frompyfunc(exponent, 1, 1)(tensor(max).numbers())
    assert levels >= 1
    return _by_items(x, [from_numbers(exact(highest))], lambda m: Quantiser((Powers(int(m), bits),)))


def zero_point_linear_quantize(
    x: TensorLike, zero_point: TensorLike, scale: TensorLike, bits: int, signed: bool, symmetric: bool
) -> Coded:
    """Khronos dialect."""
    return _by_items(
        x, [zero_point, scale], lambda z, s: zero_point_linear(int(z) if z == int(z) else z, s, bits, signed, symmetric)
    )


def min_max_linear_quantize(
    x: TensorLike, min: TensorLike, max: TensorLike, bits: int, signed: bool, symmetric: bool
) -> Coded:
    """Khronos dialect."""
    return _by_items(x, [min, max], lambda low, high: min_max_linear(low, high, bits, signed, symmetric))
