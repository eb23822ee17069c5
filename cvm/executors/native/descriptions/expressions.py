"""Formulas: how a kernel computes the value at one index from the elements that it reads there, as data."""

from __future__ import annotations

from typing import Literal, TypeAlias

from cvm.executors.native.descriptions.formats import Format
from cvm.records import dataclass

__all__ = ["SINGLE", "TABLE", "Formula", "FormulaStep", "Requantization", "Residual", "Static"]


@dataclass(frozen=True, slots=True)
class Requantization:
    """The parts of a requantization that are known when code is written: arithmetic, number of terms, rounding and
    bounds.

    The operands of the step are x_1 .. x_n, then the parameters m_1 .. m_n, c and s. In ``high`` arithmetic, s is the
    shift minus 32; in ``fused`` there is no s. ``scaled`` is ``high`` for x times a factor, which is the first
    parameter. The parameters of ``digits`` are m, n, c, d and s: the multiplier is m 2^bits + n, the offset c 2^bits +
    d, and the shift s + bits. Those of ``words`` are k, M, a and b (see `emit.words`). Without ``clips`` the result is
    not clipped to [lo, hi]; the store clips it.
    """

    arithmetic: Literal["narrow", "words", "high", "scaled", "digits", "fused", "wide"]
    terms: int
    rounding: str
    lo: int
    hi: int
    clips: bool = True
    short: bool = False
    """Whether all m fit in 32 bits. The 64-bit product of two 32-bit numbers takes one instruction."""
    bits: int = 0
    """In ``fused`` arithmetic, the number of bits of the sums, none of which is negative; in ``digits``, the number of
    bits of the lower digits; in ``words``, the shift."""
    least: int = 0
    """In ``words`` arithmetic, the element that is stored as the byte 0."""


Static: TypeAlias = "int | Format | Requantization"


TABLE = 256
"""The entries of a table that a byte numbers. A step ``permute`` or ``shuffle`` reads such a table, and one more entry
may be a number of the step.
"""


SINGLE = 24
"""The bits of integers that float32 numbers hold. The static part of a step ``div`` is this number if all operands are
proven to have fewer; then float32 is enough for the quotient.
"""


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """One operation on earlier values. ``static`` holds the numbers and formats that are known when code is written."""

    op: str
    arguments: tuple[int, ...] = ()
    static: tuple[Static, ...] = ()


@dataclass(frozen=True, slots=True)
class Formula:
    """A list of steps. Values 0 .. ``reads`` - 1 are the tensors read; each step adds one; the last is the result."""

    reads: int
    steps: tuple[FormulaStep, ...] = ()

    @property
    def result(self) -> int:
        """The number of the last value."""
        return self.reads + len(self.steps) - 1


@dataclass(frozen=True, slots=True)
class Residual:
    """A formula whose last step requantizes a sum of two tensors of codes.

    ``codes`` computes the first codes before they are clipped to ``clip``; ``read`` is the number of the other tensor.
    ``high`` and ``low`` are the upper and the lower digits of the two multipliers, the one of the first codes first.
    """

    codes: Formula
    clip: tuple[int, int]
    read: int
    high: tuple[int, int]
    low: tuple[int, int]
    offset: int
    rule: Requantization
    shift: int
