"""Functions of sums that have too many values for a table: an exact search finds where each code begins.

For a function that rises, each code begins at one real number x. Bisection finds a bracket a < x <= b: at a the
function has not reached the step to that code, at b it has, and enclosures decide both. The bracket is much narrower
than the unit of the sum, so that it mostly tells at which integer the code begins, for all channels; an integer whose
number lies inside of the bracket is decided by itself.

A function that falls is treated as one of -x, which rises. One that first falls and then rises is searched in two
ranges. They meet where its ``slope``, another function, which rises and has the sign of the derivative, reaches 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isqrt
from types import MappingProxyType

import numpy as np

from cvm.lowering.forms.form import LinearForm, SurdForm
from cvm.lowering.proofs.staircase import Branch, Reached, sum_reached, surd_reached
from cvm.quantization.reals import Real, exp, power, rational
from cvm.quantization.steps import Step

__all__ = ["COURSES", "Course", "Curve"]

_PARTS = 16
"""A bracket is at most this part of the unit of the sum wide: 1 / `_PARTS`."""

Function = Callable[[Real], Real]


@dataclass(frozen=True, slots=True)
class Course:
    """Where a function of one number rises or falls.

    By default it rises everywhere, which means that it nowhere decreases. With ``falls`` it falls everywhere. With a
    ``slope`` it falls where the slope is negative, and rises elsewhere; the slope is a function that rises itself.
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
"""The course of each function, by its name as an operation of graphs. Other functions are lowered by tables only."""


@dataclass(slots=True)
class _Rising:
    """A function that rises on the numbers in [low, high], with a cache of where it reaches each step.

    ``surd`` tells that the sums are those of a `SurdForm`.
    """

    function: Function
    low: Fraction
    high: Fraction
    surd: bool
    within: Callable[[Real], bool]
    """Whether a number is in the part where the function rises; a number before that part reaches no step."""
    _met: dict[Step, bool] = field(default_factory=dict)
    """Whether the greatest number reaches a step."""
    _brackets: dict[Step, tuple[Fraction, Fraction] | None] = field(default_factory=dict)

    def reached(self, step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int | None:
        """As `cvm.lowering.proofs.staircase.Reached`.

        Where no number reaches the step, the result is an integer past that of the greatest number.
        """
        least = surd_reached if self.surd else sum_reached
        if step not in self._met:
            self._met[step] = self._has_reached(rational(self.high), step)
        if not self._met[step]:
            return least(replace(Step.at(self.high), strict=True), unit, constants)
        bracket = self._bracket(step, _width(unit, constants))
        if bracket is None:
            return None
        low, high = (least(Step.at(end), unit, constants) for end in bracket)
        while low < high:
            middle = (low + high) // 2
            reached = self._has_reached(_number(middle, unit, constants), step)
            low, high = (low, middle) if reached else (middle + 1, high)
        return low

    def _bracket(self, step: Step, width: Fraction) -> tuple[Fraction, Fraction] | None:
        """Numbers a and b, at most ``width`` apart: b reaches the step, a does not. None where ``low`` reaches it."""
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


def _width(unit: Fraction, constants: Sequence[Fraction]) -> Fraction:
    """The width of a bracket: a small part of how much one unit of the sum changes the number."""
    if len(constants) == 1:
        return unit / _PARTS
    return unit / (_PARTS * (isqrt(math.ceil(constants[2])) + 1))


def _number(total: int, unit: Fraction, constants: Sequence[Fraction]) -> Real:
    """The number that a sum of ``total`` units stands for, in a linear form (one constant) or in a surd form."""
    if len(constants) == 1:
        return rational(total * unit + constants[0])
    origin, offset, radicand = constants
    return rational(offset) + rational(total * unit + origin) * power(rational(radicand), Fraction(-1, 2))


class Curve:
    """A function of the numbers of a form; `branches` tells where it rises and falls, and where it reaches a step."""

    def __init__(self, form: LinearForm | SurdForm, function: Function, course: Course) -> None:
        """The ``function`` of the numbers of ``form``, after its pending clamp; ``course`` tells where it rises."""
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

        Raises `Undecided` where a comparison cannot be decided, `Undefined` where the function has no value.
        """
        if self._falling is None:
            assert self._rising is not None
            return [Branch(lo, hi, self._rising.reached)]
        fallen = self._fallen(self._falling)
        if self._rising is None or self._slope is None:
            return [Branch(lo, hi, fallen, falls=True)]
        found = self._slope.reached(Step.at(Fraction(0)), unit, constants)
        turn = lo if found is None else min(max(found, lo), hi + 1)
        branches = [Branch(lo, turn - 1, fallen, falls=True), Branch(turn, hi, self._rising.reached)]
        return [branch for branch in branches if branch.lo <= branch.hi]

    @staticmethod
    def _fallen(falling: _Rising) -> Reached:
        """`Reached` of a branch that falls: it takes the negated sum, so that origin and offset are negated too."""

        def reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int | None:
            return falling.reached(step, unit, [*(-item for item in constants[:2]), *constants[2:]])

        return reached


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
            most = Fraction(isqrt(2**64 * radicand.denominator // radicand.numerator) + 1, 2**32)  # 1 / root, or above
            low, high = offset + min(low, Fraction(0)) * most, offset + max(high, Fraction(0)) * most
        found += [low, high]
    return min(found), max(found)
