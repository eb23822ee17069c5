"""How tokens are chosen: the temperature, the number of candidates, and the random generator."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from cvm.arguments import expected
from cvm.errors import Invalid
from cvm.records import dataclass

__all__ = ["MODULUS", "MULTIPLIER", "SEEDS", "Sampling", "checked_seed", "temperature_of"]

MODULUS = 2**31 - 1
"""The prime modulus of the random generator: s' = MULTIPLIER * s mod MODULUS, with s from 1 to MODULUS - 1."""
MULTIPLIER = 742_938_285
"""A primitive root of MODULUS whose sequences do best in the spectral test (Fishman and Moore, An exhaustive analysis
of multiplicative congruential random number generators with modulus 2^31 - 1, SIAM J. Sci. Stat. Comput. 7, 1986)."""
SEEDS = (1, MODULUS - 1)
"""The least and the greatest seed."""

MOST_TEMPERATURE = 1000
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen from logits; a part of the program, and so of its digest.

    With temperature 0 it is the token of the greatest logit, the first one of equals. Otherwise token i has the weight
    exp(logit_i / temperature), and a token is drawn among the ``top_k`` with the greatest logits, of equals those that
    come first; None: among all. Raises `Invalid` (``generation.temperature``, ``generation.top_k``).
    """

    temperature: Fraction = Fraction(1)
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= MOST_TEMPERATURE:
            found = f"expected a temperature from 0 (greedy) to {MOST_TEMPERATURE}, found {self.temperature}"
            raise Invalid("generation.temperature", found)
        if self.top_k is not None and self.top_k < 1:
            raise Invalid("generation.top_k", f"expected at least 1 candidate (top_k), found {self.top_k}")
        if self.greedy and self.top_k is not None:
            message = "temperature 0 takes the greatest logit: leave top_k out, or give a temperature above 0"
            raise Invalid("generation.top_k", message)

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0


def temperature_of(given: object) -> Fraction:
    """The exact temperature that a decimal text or a number states; a float means its shortest decimal text.

    Raises `Invalid` (``generation.temperature``) for a text that is no decimal, and ``argument.temperature``.
    """
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal | Fraction):
        raise expected("temperature", "a number, or a decimal as text: '0.8'", given)
    if isinstance(given, Fraction):
        return given
    text = str(given)
    if not _DECIMAL.fullmatch(text):
        message = f"expected a decimal such as 0.8, with at most 9 digits before and after the point, found {text!r}"
        raise Invalid("generation.temperature", message)
    return Fraction(text)


def checked_seed(seed: object) -> int:
    """The seed. Raises `Invalid` (``generation.seed``) if it is none of `SEEDS`."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise expected("seed", f"a whole number from {SEEDS[0]} to {SEEDS[1]}", seed)
    if not SEEDS[0] <= seed <= SEEDS[1]:
        raise Invalid("generation.seed", f"expected a seed from {SEEDS[0]} to {SEEDS[1]}, found {seed}")
    return seed
