"""Functions of sums that have too many values for a table: an exact search finds where each code begins.

For a rising function, each code begins at one real number x. Bisection finds a bracket a < x <= b: enclosures prove
that the function has not reached the step to that code at a, and has reached it at b. Where float64 is fine enough,
this is done for all codes at once (`cvm.lowering.proofs.crossings`). The bracket is much narrower than the unit of the
sum, so for most codes it decides at which integer they begin, in all channels. If an integer lies inside the bracket,
the function is evaluated there.

A falling function of x is treated as a rising function of -x. A function that first falls and then rises is searched in
two intervals. They meet where its ``slope`` reaches 0, another function, which rises and has the sign of the
derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from math import isqrt
from types import MappingProxyType

import numpy as np

from cvm.lowering.forms.form import LinearForm, SurdForm
from cvm.lowering.proofs.crossings import BELOW, BETWEEN, OPEN, Crossings
from cvm.lowering.proofs.staircase import Branch, sum_reached, surd_reached
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import Real, exp, power, rational
from cvm.quantization.steps import Step, step
from cvm.quantization.surds import least_integer
from cvm.records import dataclass

__all__ = ["COURSES", "Course", "Curve"]

_PARTS = 16
"""The width of a bracket is at most the unit of the sum divided by this number."""

Function = Callable[[Real], Real]


@dataclass(frozen=True, slots=True)
class Course:
    """Where a function of one number rises or falls.

    By default it rises everywhere, that is, it never decreases. With ``falls`` it falls everywhere. With a ``slope`` it
    falls where the slope is negative, and rises elsewhere; the slope itself is a rising function.
    """

    falls: bool = False
    slope: Function | None = None


_RISE = ("exp", "log", "log2", "sqrt", "sigmoid", "tanh", "softplus", "atan", "floor", "ceil", "round")

COURSES: Mapping[str, Course] = MappingProxyType(
    {
        **dict.fromkeys(_RISE, Course()),
        "rsqrt": Course(falls=True),
        **dict.fromkeys(("sqr", "cosh"), Course(slope=lambda x: x)),
        # The derivative of x / (1 + e^-x), divided by a positive number.
        "silu": Course(slope=lambda x: exp(x) + rational(1) + x),
    }
)
"""The course of each function, by the name of its graph operation. Other functions are lowered by tables only."""


@dataclass(slots=True)
class _Rising:
    """A function that rises on the numbers in [low, high], with a cache of the numbers at which it reaches each step.

    ``surd`` says that the sums are those of a `SurdForm`.
    """

    function: Function
    low: Fraction
    high: Fraction
    surd: bool
    within: Callable[[Real], bool]
    """Whether a number is in the interval where the function rises. Lower numbers reach no step."""
    _reached_by_greatest: dict[Step, bool] = field(default_factory=dict)
    """Whether the greatest number reaches the step, for the steps examined so far."""
    _brackets: dict[Step, tuple[Fraction, Fraction] | None] = field(default_factory=dict)
    _crossings: dict[tuple[Fraction, Fraction, int, int], Crossings] = field(default_factory=dict)
    """The crossings of a channel that float64 has found, by its scale, offset and codes."""

    def reached(self, step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int | None:
        """See `cvm.lowering.proofs.staircase.Reached`.

        If no number reaches the step, the result is an integer above that of the greatest number.
        """
        if step not in self._reached_by_greatest:
            self._reached_by_greatest[step] = self._has_reached(rational(self.high), step)
        if not self._reached_by_greatest[step]:
            return self._beyond(unit, constants)
        bracket = self._bracket(step, _width(unit, constants))
        if bracket is None:
            return None
        low, high = (_least(end, unit, constants) for end in bracket)
        return self._first(step, low, high, unit, constants)

    def all_reached(
        self, quantizer: LinearQuantizer, channel: int, unit: Fraction, constants: Sequence[Fraction]
    ) -> list[int | None]:
        """`reached` for the steps of a channel to all codes but the least. Steps that floats cannot decide are decided
        exactly.
        """
        crossings = self._crossed(quantizer, channel, _width(unit, constants))
        beyond = self._beyond(unit, constants)
        least = _least_of(unit, constants)
        found: list[int | None] = []
        ends = (crossings.where.tolist(), crossings.below.tolist(), crossings.reached.tolist())
        for code, (where, below, reached) in enumerate(zip(*ends, strict=True), quantizer.lo + 1):
            if where == BETWEEN:
                low, high = least(below), least(reached)
                if low < high:
                    at = step(quantizer, code, channel)
                    self._reached_by_greatest[at] = True
                    self._brackets.setdefault(at, (Fraction(below), Fraction(reached)))
                    found.append(self.reached(at, unit, constants))
                else:
                    found.append(low)
            elif where == OPEN:
                found.append(self.reached(step(quantizer, code, channel), unit, constants))
            else:
                found.append(None if where == BELOW else beyond)
        return found

    def _crossed(self, quantizer: LinearQuantizer, channel: int, width: Fraction) -> Crossings:
        key = quantizer.scale[channel], quantizer.offset[channel], quantizer.lo, quantizer.hi
        if key not in self._crossings:
            ends = self.low, self.high
            self._crossings[key] = Crossings.of(self.function, self.within, ends, quantizer, channel, width)
        return self._crossings[key]

    def _beyond(self, unit: Fraction, constants: Sequence[Fraction]) -> int:
        """An integer above that of the greatest number."""
        least = surd_reached if self.surd else sum_reached
        return least(replace(Step.at(self.high), strict=True), unit, constants)

    def _first(self, step: Step, low: int, high: int, unit: Fraction, constants: Sequence[Fraction]) -> int:
        """The least integer in [low, high] that reaches the step. ``high`` is known to reach it."""
        while low < high:
            middle = (low + high) // 2
            reached = self._has_reached(_number(middle, unit, constants), step)
            low, high = (low, middle) if reached else (middle + 1, high)
        return low

    def _bracket(self, step: Step, width: Fraction) -> tuple[Fraction, Fraction] | None:
        """(a, b), at most ``width`` apart, where b reaches the step and a does not; None if ``low`` reaches it."""
        if step not in self._brackets:
            reached = self._has_reached(rational(self.low), step)
            self._brackets[step] = None if reached else (self.low, self.high)
        bracket = self._brackets[step]
        if bracket is None:
            return None
        low, high = bracket
        while high - low > width:
            middle = (low + high) / 2
            low, high = (low, middle) if self._has_reached(rational(middle), step) else (middle, high)
        self._brackets[step] = low, high
        return low, high

    def _has_reached(self, x: Real, step: Step) -> bool:
        if not self.within(x):
            return False
        number = self.function(x)
        if number.exact is not None:
            return step.reached(number.exact)
        return number.compare(step.number()) > 0


def _least(x: Fraction, unit: Fraction, constants: Sequence[Fraction]) -> int:
    """The least integer whose number (see `_number`) is at least ``x``."""
    return _least_of(unit, constants)(x)


def _least_of(unit: Fraction, constants: Sequence[Fraction]) -> Callable[[Fraction | float], int]:
    """`_least` for one unit and constants.

    For a sum, it is the least L with L * u + c >= x. For a surd form, it is the least L with L * u + origin >= (x -
    offset) * sqrt(radicand), which is decided by comparing squares.
    """
    if len(constants) == 1:
        (constant,) = constants
        return lambda x: _quotient(x, constant, unit)
    origin, offset, radicand = constants
    scale, start = radicand / unit**2, -origin / unit

    def least(x: Fraction | float) -> int:
        distance = Fraction(x) - offset
        sign = (distance > 0) - (distance < 0)
        return least_integer(start, [(sign, distance * distance * scale)])

    return least


def _quotient(x: Fraction | float, constant: Fraction, unit: Fraction) -> int:
    """ceil((x - constant) / unit), computed in integers."""
    p, q = x.as_integer_ratio()
    c, d = constant.as_integer_ratio()
    u, v = unit.as_integer_ratio()
    return -((c * q - p * d) * v // (d * q * u))


def _width(unit: Fraction, constants: Sequence[Fraction]) -> Fraction:
    """The width of a bracket: a small fraction of the difference that one unit of the sum makes."""
    if len(constants) == 1:
        return unit / _PARTS
    return unit / (_PARTS * (isqrt(math.ceil(constants[2])) + 1))


def _number(total: int, unit: Fraction, constants: Sequence[Fraction]) -> Real:
    """The number of a linear form (one constant) or of a surd form whose sum is ``total`` units."""
    if len(constants) == 1:
        return rational(total * unit + constants[0])
    origin, offset, radicand = constants
    return rational(offset) + rational(total * unit + origin) * power(rational(radicand), Fraction(-1, 2))


class Curve:
    """A function of the numbers of a form. `branches` gives the intervals where it rises and falls, and its steps."""

    def __init__(self, form: LinearForm | SurdForm, function: Function, course: Course) -> None:
        """The ``function`` is applied to the clamped numbers of ``form``; ``course`` says where it rises."""
        low, high = _numbers(form)
        surd = isinstance(form, SurdForm)

        def limited(x: Real) -> Real:
            x = x if form.upper is None or x.compare(form.upper) < 0 else rational(form.upper)
            return x if form.lower is None or x.compare(form.lower) > 0 else rational(form.lower)

        def behind(x: Real) -> bool:
            return course.slope is None or course.slope(limited(x)).sign >= 0

        def before(x: Real) -> bool:
            return course.slope is None or course.slope(limited(-x)).sign < 0

        self._rising = None if course.falls else _Rising(lambda x: function(limited(x)), low, high, surd, behind)
        self._falling = self._slope = None
        if course.falls or course.slope is not None:
            self._falling = _Rising(lambda x: function(limited(-x)), -high, -low, surd, before)
        if (slope := course.slope) is not None:
            self._slope = _Rising(lambda x: slope(limited(x)), low, high, surd, lambda x: True)

    def branches(self, lo: int, hi: int, unit: Fraction, constants: Sequence[Fraction]) -> list[Branch]:
        """The branches of the function on the sums from ``lo`` to ``hi``, in units of ``unit``.

        Raises `Undecided` if a comparison cannot be decided, `Undefined` if the function has no value.
        """
        if self._falling is None:
            assert self._rising is not None
            return [Branch(lo, hi, self._rising.reached, all_reached=self._rising.all_reached)]
        fallen = self._fallen(self._falling)
        if self._rising is None or self._slope is None:
            return [fallen(lo, hi)]
        found = self._slope.reached(Step.at(Fraction(0)), unit, constants)
        bottom = lo if found is None else min(max(found, lo), hi + 1)
        rising = Branch(bottom, hi, self._rising.reached, all_reached=self._rising.all_reached)
        branches = [fallen(lo, bottom - 1), rising]
        return [branch for branch in branches if branch.lo <= branch.hi]

    @staticmethod
    def _fallen(falling: _Rising) -> Callable[[int, int], Branch]:
        """A falling branch. It is a function of the negated sum, so origin and offset are negated too."""

        def reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int | None:
            return falling.reached(step, unit, negated(constants))

        def all_reached(
            quantizer: LinearQuantizer, channel: int, unit: Fraction, constants: Sequence[Fraction]
        ) -> list[int | None]:
            return falling.all_reached(quantizer, channel, unit, negated(constants))

        def negated(constants: Sequence[Fraction]) -> list[Fraction]:
            return [*(-item for item in constants[:2]), *constants[2:]]

        return lambda lo, hi: Branch(lo, hi, reached, falls=True, all_reached=all_reached)


def _numbers(form: LinearForm | SurdForm) -> tuple[Fraction, Fraction]:
    """A lower and an upper bound of the numbers of a form without its clamp, from the proven ranges of its values."""
    columns = [form.constant] if isinstance(form, LinearForm) else [form.origin, form.offset, form.radicand]
    columns = [*(term.factor for term in form.terms), *columns]
    extents = np.broadcast_shapes(*(column.shape for column in columns))
    rows = set(zip(*(column.broadcast(extents).fractions() for column in columns), strict=True))
    hulls = [term.value.range.hull() for term in form.terms]
    found: list[Fraction] = []
    for row in rows:
        constant, *root = row[len(hulls) :]
        ends = [sorted((factor * lo, factor * hi)) for factor, (lo, hi) in zip(row, hulls, strict=False)]
        low, high = (sum((end[side] for end in ends), constant) for side in (0, 1))
        if root:
            offset, radicand = root
            most = Fraction(isqrt(2**64 * radicand.denominator // radicand.numerator) + 1, 2**32)  # at least 1 / root
            low, high = offset + min(low, Fraction(0)) * most, offset + max(high, Fraction(0)) * most
        found += [low, high]
    return min(found), max(found)
