"""Formulas: what a kernel computes at one index, from what it reads there, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cvm.executors.native.descriptions.formats import Format

__all__ = ["Formula", "FormulaStep", "Requantization", "Residual", "Static"]


@dataclass(frozen=True, slots=True)
class Requantization:
    """What is known of a requantization beforehand: arithmetic, number of terms, rounding and bounds.

    The operands are x_1 .. x_n and the parameters m_1 .. m_n, c and s; in ``high`` s counts from 32.
    ``fused`` has no s. Without ``clips`` the result is not cut to [lo, hi], which is left to whoever stores it.
    """

    arithmetic: Literal["narrow", "high", "fused", "wide"]
    terms: int
    rounding: str
    lo: int
    hi: int
    clips: bool = True
    short: bool = False
    """Whether all m have 32 bits: a 64-bit product of two such takes one instruction."""
    bits: int = 0
    """Of ``fused``: those of the sums, none of which is negative."""


Static: TypeAlias = "int | Format | Requantization"


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """One operation on earlier values; ``static`` is what it knows beforehand."""

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
    """A formula that ends so: ``codes`` gives the first codes, not yet cut to ``clip``; ``read`` is the other tensor.

    ``high`` and ``low`` are the digits of both multipliers, that of the first codes first.
    """

    codes: Formula
    clip: tuple[int, int]
    read: int
    high: tuple[int, int]
    low: tuple[int, int]
    offset: int
    rule: Requantization
    shift: int
