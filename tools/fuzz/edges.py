"""Numbers, intervals and parameters of `requantize` at the edges of machine integers.

Wrong bytes come from sums that wrap, tables that are one entry too short and shifts that are one too large. So
constants lie at powers of two at which machine code changes, and at their neighbours. If a result depends on constants,
the other numbers are chosen so that the results are neither all clipped nor refused by the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

__all__ = ["CHANNELS", "FORMATS", "RESULTS", "ROUNDINGS", "WILD", "Parameters", "Term", "edge", "parameters"]

POWERS = (7, 8, 15, 16, 23, 31, 32, 52, 53, 62, 63)
NUMBERS = tuple(sorted({sign * (2**k + d) for k in POWERS for d in (-3, -1, 0, 1, 3) for sign in (-1, 1)} | {-1, 0, 1}))
"""Powers of two at which code changes, and numbers beside them."""
CHANNELS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Widths of vectors and of blocks of vectors, and one more or less."""
WILD = ("edge", "limit", "limit", "limit", "zero", "far", "far", "far")
"""Kinds at the ends of what fits: multipliers at edges, as large as possible, or zero, and offsets far away."""
ROUNDINGS = ("half_up", "half_even", "toward_zero")
INT32_MAX, INT64_MAX, MULTIPLIER_MAX, SHIFT_MAX = 2**31 - 1, 2**63 - 1, 2**62 - 1, 62

FORMATS: dict[str, tuple[tuple[int, int], ...]] = {
    "u8": ((0, 1), (0, 15), (0, 127), (0, 128), (0, 254), (0, 255)),
    "u8 + 128": ((-128, 127), (-127, 127), (-1, 127), (-1, 1), (-128, 0), (-8, 7)),
    "u8 + other": ((-200, 55), (-129, 126), (-255, 0), (-254, 1), (-1, 254), (-1, 128)),
    "i16": ((-(2**15), 2**15 - 1), (-(2**15) + 1, 0), (-129, 127), (-1, 255), (0, 256), (0, 2**15 - 1), (-300, 300)),
    "u16": ((0, 2**16 - 1), (0, 2**15), (0, 2**16 - 2), (0, 40_000)),
    "i32": ((-(2**15) - 1, 0), (0, 2**16), (-1, 2**15), (-(2**22), 2**22), (-(2**23), 2**23 + 1),
            (-INT32_MAX, INT32_MAX)),
}  # fmt: skip
"""The ways in which the native executor stores tensors, and intervals of each."""

RESULTS = (
    (0, 255), (-128, 127), (0, 255), (-128, 127), (0, 1), (0, 3), (-1, 0), (-127, 127), (-200, 55), (5, 90), (-1, 254),
    (-129, 127), (-(2**15), 2**15 - 1), (-700, 700), (0, 2**16 - 1), (-1, 2**16), (-(2**23), 2**23),
    (-INT32_MAX, INT32_MAX),
)  # fmt: skip
"""Bounds of results, of every format; those of bytes are frequent."""


def edge(random: Random, largest: int) -> int:
    """A number at an edge, of at most the magnitude ``largest``."""
    fitting = [number for number in NUMBERS if abs(number) <= largest]
    return random.choice(fitting)


@dataclass(frozen=True, slots=True)
class Term:
    """The proven interval of one operand of a requantize at an index."""

    lo: int
    hi: int

    @property
    def magnitude(self) -> int:
        """The largest absolute value."""
        return max(-self.lo, self.hi, 0)

    def products(self, multiplier: int) -> tuple[int, int]:
        """The least and the largest product, each with zero."""
        ends = (multiplier * self.lo, multiplier * self.hi)
        return min(0, *ends), max(0, *ends)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a requantize at an index: a multiplier of each term, the offset and the shift."""

    multipliers: tuple[int, ...]
    offset: int
    shift: int

    def fit(self, terms: Sequence[Term]) -> bool:
        """Whether the verifier accepts them: every part of the sum lies within 64 bits."""
        if not 0 <= self.shift <= SHIFT_MAX or any(abs(m) > MULTIPLIER_MAX for m in self.multipliers):
            return False
        pairs = [term.products(m) for term, m in zip(terms, self.multipliers, strict=True)]
        most = sum(high for _, high in pairs) + max(self.offset, 0) + ((1 << self.shift) >> 1)
        least = sum(low for low, _ in pairs) + min(self.offset, 0)
        return most <= INT64_MAX and least >= -INT64_MAX


def parameters(
    random: Random,
    terms: Sequence[Term],
    lo: int,
    hi: int,
    arithmetic: str,
    kind: str = "steps",
    style: int = 0,
    shift: int | None = None,
) -> Parameters:
    """Parameters that fit: their results take ``steps`` values all over [lo, hi], or they are of a kind of `WILD`.

    ``arithmetic`` is the arithmetic that the multipliers should lead to. ``style`` stands for a number of bits and of
    results, which the elements of a tensor share; otherwise the largest would decide. With a ``shift`` the multipliers
    follow it.
    """
    sizes = _bits(arithmetic, max(term.hi - term.lo for term in terms))
    bits = sizes[style % len(sizes)]
    multipliers = [_multiplier(random, kind, bits) for _ in terms]
    if arithmetic == "fused" and kind == "steps":
        multipliers = [abs(m) for m in multipliers]
    if kind == "limit":
        return _at_limit(random, terms, multipliers, style)
    span = sum(abs(m) * (term.hi - term.lo) for m, term in zip(multipliers, terms, strict=True))
    steps = (1, 2, max(1, hi - lo), 2 * (hi - lo) + 1, 16 * (hi - lo) + 16)[style // 8 % 5]
    if kind == "far":
        steps = random.choice((1, 2, 8, 30))
        shift = random.randint(36, 54) if shift is None and random.random() < 0.7 else shift
    if arithmetic == "fused":
        steps = min(steps, 900)
    elif arithmetic == "narrow":  # bounds far from zero take bits of the offset as well
        steps = max(steps, min(abs(lo), abs(hi)) if lo * hi > 0 else 1)
    if shift is None:
        shift = max(0, min(SHIFT_MAX, (span // max(1, steps)).bit_length() + random.choice((-1, 0, 0, 0, 1))))
    elif kind in ("steps", "far"):
        multipliers = [_scaled(random, term, steps, shift, m < 0) for m, term in zip(multipliers, terms, strict=True)]
    # A drawn sum gets a drawn result.
    total = sum(m * random.randint(term.lo, term.hi) for m, term in zip(multipliers, terms, strict=True))
    offset = (_code(random, lo, hi, steps, shift) << shift) - total + random.randrange(1 << shift)
    if kind == "zero":
        offset = edge(random, INT64_MAX)
    elif kind == "far":
        # So large that the amount that a format or a start adds, about as large as the products, leaves 64 bits.
        less = random.choice((random.randint(1, 64) * span, random.randrange(2 ** random.randint(0, 61))))
        offset = random.choice((-1, 1, 1, 1)) * (INT64_MAX - less)
    return _fitted(Parameters(tuple(multipliers), offset, shift), terms)


def _code(random: Random, lo: int, hi: int, steps: int, shift: int) -> int:
    """A result in [lo, hi], so near to zero that the offset needs no more bits than the products, if possible."""
    most = min(steps, 2 ** max(0, 60 - shift))
    return min(max(random.randint(-most, most), lo), hi)


def _bits(arithmetic: str, extent: int) -> tuple[int, ...]:
    """The bits of multipliers that lead to an arithmetic, for an operand of ``extent`` values."""
    if arithmetic == "narrow":
        most = max(1, 28 - extent.bit_length())
        return 1, min(7, most), min(15, most), most, most
    if arithmetic == "high":
        return 24, 28, 30, 31
    if arithmetic == "fused":
        return 30, 31, 31
    return 32, 33, 40, 40, 36, 52, max(32, 61 - extent.bit_length())


def _multiplier(random: Random, kind: str, bits: int) -> int:
    if kind == "zero":
        return 0
    if kind == "edge":
        return edge(random, MULTIPLIER_MAX)
    sign = random.choice((1, 1, 1, -1))
    return sign * ((1 << bits) - 1 - random.choice((0, 1, random.randrange(1 << (bits - 1)))))


def _scaled(random: Random, term: Term, steps: int, shift: int, negative: bool) -> int:
    """A multiplier with which a term takes ``steps`` results."""
    size = (steps << shift) // max(1, term.hi - term.lo) + random.randint(-3, 3)
    size = max(1, min(size, 2**31 - 1))
    return -size if negative else size


def _at_limit(random: Random, terms: Sequence[Term], multipliers: Sequence[int], style: int) -> Parameters:
    """Multipliers or an offset as large as the verifier accepts, or a little less; all elements share the choice."""
    shift = (1, 2, 20, 31, 32, 33, 54, 55, 0, 56, 31, 62, 1)[style % 13]
    less = (0, 0, 0, 1, 1000, random.randrange(2**40), random.randrange(2**55), random.randrange(2**58))[
        style // 13 % 8
    ]
    room = INT64_MAX - ((1 << shift) >> 1)
    if style // 104 % 3 == 0:
        least = sum(-term.products(m)[0] for m, term in zip(multipliers, terms, strict=True))
        most = sum(term.products(m)[1] for m, term in zip(multipliers, terms, strict=True))
        offset = max(0, room - most) - less if random.random() < 0.5 else -max(0, INT64_MAX - least) + less
        return _fitted(Parameters(tuple(multipliers), offset, shift), terms)
    shares = [max(0, room // len(terms) // max(1, term.magnitude) - less) for term in terms]
    signed = tuple(random.choice((-1, 1, 1)) * min(MULTIPLIER_MAX - less % 2**20, share) for share in shares)
    return _fitted(Parameters(signed, 0 if style // 312 % 5 else edge(random, 2**32), shift), terms)


def _fitted(found: Parameters, terms: Sequence[Term]) -> Parameters:
    """The parameters, reduced until the verifier accepts them: the offset first, as little as possible."""
    multipliers, offset, shift = found.multipliers, found.offset, found.shift
    while True:
        pairs = [term.products(m) for m, term in zip(multipliers, terms, strict=True)]
        most = INT64_MAX - ((1 << shift) >> 1) - sum(high for _, high in pairs)
        least = -INT64_MAX - sum(low for low, _ in pairs)
        if least <= 0 <= most:
            return Parameters(multipliers, min(max(offset, least), most), shift)
        multipliers = tuple((abs(m) >> 1) * (1 if m > 0 else -1) for m in multipliers)
        shift = max(0, shift - 1)
