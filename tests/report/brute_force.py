"""The definitions of the measures, computed one element at a time with exact fractions: independent of `cvm.report`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from cvm.quantization import LinearQuantizer


@dataclass
class Expected:
    """What is to be found about the elements of one tensor."""

    signal: Fraction = Fraction(0)
    noise: Fraction = Fraction(0)
    error: Fraction = Fraction(0)
    worst: Fraction = Fraction(0)
    worst_sample: int = 0
    differing: int = 0
    below: int = 0
    above: int = 0
    elements: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    float_codes: Counter[int] = field(default_factory=Counter)
    floats: list[float] = field(default_factory=list)

    def add(self, real: float, code: int, quantizer: LinearQuantizer | None, channel: int, sample: int) -> None:
        """Count one element."""
        scale, offset = at(quantizer, channel)
        stands_for, exact = Fraction(number(code, quantizer, channel)), Fraction(real)
        self.signal += exact**2
        self.noise += (exact - stands_for) ** 2
        self.error += stands_for - exact
        self.differing += stands_for != exact
        if abs(stands_for - exact) > self.worst:
            self.worst, self.worst_sample = abs(stands_for - exact), sample
        nearest = math.floor((exact - offset) / scale + Fraction(1, 2))
        if quantizer is not None and nearest < quantizer.lo:
            self.below += 1
        elif quantizer is not None and nearest > quantizer.hi:
            self.above += 1
        else:
            self.float_codes[nearest] += 1
        self.codes[code] += 1
        self.elements += 1
        self.floats.append(real)

    @property
    def sqnr(self) -> float:
        """In decibels."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def number(code: int, quantizer: LinearQuantizer | None, channel: int) -> float:
    """What a code stands for: the nearest float64, or as the float reference has it where there are channels."""
    scale, offset = at(quantizer, channel)
    if quantizer is not None and quantizer.axis is not None:
        return float(offset) + float(scale) * code
    return float(offset + scale * code)


def at(quantizer: LinearQuantizer | None, channel: int) -> tuple[Fraction, Fraction]:
    """The scale and the offset of a channel; without a quantiser, integers stand for themselves."""
    if quantizer is None:
        return Fraction(1), Fraction(0)
    index = 0 if quantizer.axis is None else channel
    return quantizer.scale[index], quantizer.offset[index]
