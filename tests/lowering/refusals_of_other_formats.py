"""Operations that NNEF has not and that do not compile: an operation of NNEF with the same operands stands for each."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from cvm.lowering import claims
from tests.lowering.refusals import Case, Q, per, quantised

__all__ = ["CASES"]


def normalised(why: str, body: str, quantisers: dict[str, str], **attributes: Any) -> Case:
    """A layer_normalization, for which ``y = batch_normalization(x, ..)`` stands."""
    settings = {"axes": (1,), "epsilon": Fraction(1), **attributes}
    return Case("layer_normalization", why, body, quantisers,
                becomes={"batch_normalization": ("layer_normalization", settings)})  # fmt: skip


def normalisations() -> Iterator[Case]:
    """Each condition of the claim."""
    conditions = {condition.split()[0]: condition for condition in claims.CLAIMS["layer_normalization"].refuses}
    line = "x = external(shape = [1, 4]);"
    plain = "y = batch_normalization(x, 0.0, 1.0, 0.0, 1.0, epsilon = 0.5);"
    yield normalised(conditions["epsilon"], f"{line} {plain}", quantised("x y"), epsilon=Fraction(0))
    yield normalised(conditions["the"], f"{line} {plain} z = copy(y);", quantised("x z"))
    channels = per(18).replace("bits = 8", "bits = 16")
    yield normalised(claims.APART, f"x = external(shape = [1, 18]); {plain}", {"x": channels, "y": Q})
    computed = f"{line} s = external(shape = [1, 4]); {plain.replace('0.0, 1.0, eps', '0.0, s, eps')}"
    yield normalised(conditions["scale"], computed, quantised("x s y"))


CASES: list[Case] = list(normalisations())
