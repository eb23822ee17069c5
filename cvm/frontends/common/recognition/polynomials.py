"""Polynomials with rational coefficients, in symbols that are strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias

from cvm.records import dataclass

__all__ = ["Monomial", "Polynomial", "symbol"]

Monomial: TypeAlias = tuple[tuple[str, int], ...]
"""A monomial: its symbols with their nonzero exponents, sorted by symbol."""
_MOST_TERMS = 16
"""The most terms of a polynomial: with more, nothing is recognised, so that products cannot grow without bound."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """The nonzero coefficient of each monomial."""

    terms: Mapping[Monomial, Fraction]

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for monomial, factor in other.terms.items():
            total[monomial] = total.get(monomial, Fraction(0)) + factor
        return _reduced(total)

    def scaled(self, factor: Fraction) -> Polynomial:
        """The polynomial times a number."""
        return _reduced({monomial: item * factor for monomial, item in self.terms.items()})

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: dict[Monomial, Fraction] = {}
        for one, first in self.terms.items():
            for two, second in other.terms.items():
                product = _product(one, two)
                total[product] = total.get(product, Fraction(0)) + first * second
        return _reduced(total)

    def raised(self, exponent: int) -> Polynomial | None:
        """A power of a polynomial with a single term, for any exponent; None for a polynomial with more terms."""
        if len(self.terms) != 1:
            return None
        ((monomial, factor),) = self.terms.items()
        return Polynomial({tuple((name, count * exponent) for name, count in monomial): factor**exponent})

    def replaced(self, numbers: Callable[[str], Fraction | None]) -> Polynomial:
        """The polynomial with each symbol that ``numbers`` knows replaced by its number."""
        total = Polynomial({})
        for monomial, factor in self.terms.items():
            known = {name: numbers(name) for name, _ in monomial}
            left, product = [], factor
            for name, count in monomial:
                number = known[name]
                if number is None or (number == 0 and count < 0):
                    left.append((name, count))
                else:
                    product *= number**count
            total += _reduced({tuple(left): product})
        return total

    def fits(self) -> bool:
        """Whether the polynomial has few enough terms to compute further with it."""
        return len(self.terms) <= _MOST_TERMS


def symbol(name: str, exponent: int = 1) -> Polynomial:
    """A symbol, or a power of it; the number 1 where the name is ""."""
    return Polynomial({((name, exponent),) if name else (): Fraction(1)})


def _reduced(terms: Mapping[Monomial, Fraction]) -> Polynomial:
    return Polynomial({monomial: factor for monomial, factor in terms.items() if factor})


def _product(one: Monomial, two: Monomial) -> Monomial:
    counts = Counter(dict(one))
    for name, count in two:
        counts[name] += count
    return tuple(sorted((name, count) for name, count in counts.items() if count))
