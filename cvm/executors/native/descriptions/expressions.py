"""Formulas: what a kernel computes at one index, from what it reads there, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cvm.executors.native.descriptions.formats import Format

__all__ = ["Formula", "FormulaStep", "Requantization", "Residual", "Static"]


@dataclass(frozen=True, slots=True)
class Requantization:
    """The parts of a requantization that are known when code is written: arithmetic, number of terms, rounding and
    bounds.

    The operands are x_1 .. x_n and the parameters m_1 .. m_n, c and s; in ``high``, s is the shift less 32. ``fused``
    has no s. Without ``clips`` the result is not clipped to [lo, hi]; the store does that.
    """

    arithmetic: Literal["narrow", "high", "fused", "wide"]
    terms: int
    rounding: str
    lo: int
    hi: int
    clips: bool = True
    short: bool = False
    """Whether all m have 32 bits: the 64-bit product of two such numbers takes one instruction."""
    bits: int = 0
    """The bits of the sums of ``fused``, none of which is negative."""


Static: TypeAlias = "int | Format | Requantization"


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """One operation on earlier values. ``static`` holds the numbers and formats that are known when code is written."""

    op: str
    arguments: tuple[int, ...] = ()
    static: tuple[Static, ...] = ()


@dataclass(frozen=True, slots=True)
class Formula:
    """The steps over ``reads`` tensors; the last value is the result."""

    reads: int
    steps: tuple[FormulaStep, ...] = ()

    @property
    def result(self) -> int:
        """The number of the last value."""
        return self.reads + len(self.steps) - 1


@dataclass(frozen=True, slots=True)
class Residual:
    """A formula that ends with the sum of two tensors of codes. ``codes`` computes the first ones, not yet clipped to
    ``clip``; ``read`` is the number of the other tensor.

    ``high`` and ``low`` are the digits of both multipliers, those of the first codes first.
    """

    codes: Formula
    clip: tuple[int, int]
    read: int
    high: tuple[int, int]
    low: tuple[int, int]
    offset: int
    rule: Requantization
    shift: int
