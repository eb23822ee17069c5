"""An engine with one planted defect: it computes a model exactly, but for the operators of one tensor.

What follows from the wrong tensor is computed from the wrong tensor. The roundings are written here once more, element
by element in Python, from the published definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison import Model, Setting, Shown
from cvm.comparison.model import in_file
from cvm.comparison.models import Numbers
from cvm.comparison.regions import Region, Regions
from cvm.inputs import Feed

Array = npt.NDArray[Any]
Rule = Callable[[int, Fraction, "Region"], int]
"""From an accumulator and its multiplier to steps of the output's scale."""


def half_away(x: Fraction) -> int:
    """The nearest integer, ties away from zero."""
    return math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)


def doubled(acc: int, factor: Fraction, _: Region) -> int:
    """Two roundings: the upper half of the doubled product, then the shift."""
    fraction, exponent = math.frexp(float(factor))
    multiplier = half_away(Fraction(fraction) * 2**31)
    left, right = max(exponent, 0), max(-exponent, 0)
    product = (acc << left) * multiplier
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    return half_away(Fraction(high, 2**right))


def reduced(acc: int, factor: Fraction, _: Region) -> int:
    """One rounding of a product with a multiplier of 15 bits, ties upward."""
    fraction, exponent = math.frexp(float(factor))
    multiplier = half_away(Fraction(fraction) * 2**31)
    short = min((multiplier + 2**15) // 2**16, 2**15 - 1)
    return math.floor(Fraction(acc * short, 2 ** (15 - exponent)) + Fraction(1, 2))


def brain(acc: int, factor: Fraction, region: Region) -> int:
    """The result is a bfloat16, a number of 8 bits; then steps of the scale, ties to even."""
    real = acc * factor * region.scale
    if real == 0:
        return 0
    unit = Fraction(2) ** (math.frexp(float(real))[1] - 8)
    return round(round(real / unit) * unit / region.scale)


def cut(acc: int, factor: Fraction, _: Region) -> int:
    """No rounding: cut toward zero."""
    return int(acc * factor)


def upward(acc: int, factor: Fraction, _: Region) -> int:
    """Always upward: no model of any engine."""
    return math.ceil(acc * factor)


def rounded(model: Model, name: str, rule: Rule) -> Callable[[Feed, dict[str, Array]], Array]:
    """The codes of a tensor of a convolution or product, rounded by ``rule``."""
    regions = Regions(model)
    region = regions.regions[name]

    def codes(feed: Feed, engine: dict[str, Array]) -> Array:
        numbers = Numbers(region, regions.values(feed, engine), regions)
        acc, unit = numbers.accumulator()
        factors = np.broadcast_to(unit, acc.shape)
        steps = [
            rule(int(a), Fraction(float(u)) / region.scale, region)
            for a, u in zip(acc.ravel(), factors.ravel(), strict=True)
        ]
        made = np.clip(np.array(steps).reshape(acc.shape) + region.zero, region.lo, region.hi)
        return in_file(regions.carried(region, made), region.place)

    return codes


def shown_with(model: Model, feeds: list[Feed], name: str, wrong: Callable[[Feed, dict[str, Array]], Array]) -> Shown:
    """What the engine shows if the tensor ``name`` is made by ``wrong``."""
    order = [place.name for place in model.places]
    runs = []
    for feed in feeds:
        engine = dict(model.exact(feed))
        engine[name] = wrong(feed, engine).reshape(engine[name].shape)
        while True:
            follows = model.follows(feed, engine)
            stale = [other for other in order if other != name and (follows[other] != engine[other]).any()]
            if not stale:
                break
            engine |= {other: follows[other] for other in stale}
        runs.append(engine)
    codes = {key: np.stack([run[key] for run in runs]).astype(np.int64) for key in order}
    return Shown(Setting("command", command=("mock",)), "", codes, {}, {})
