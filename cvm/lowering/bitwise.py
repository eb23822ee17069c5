"""Operations on the bits of integers, which NNEF has none of: by tables, of digits of 8 bits where there are many.

The bits of a negative integer are those of its two's complement, of any width: with x = sum_i d_i * 256^i, where the
last digit is in [-128, 127] and the others in [0, 255], and y likewise, the result is the sum of the results of digits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from cvm.errors import Unsupported
from cvm.graph import GraphOperation
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import LinearForm, Shape, Term
from cvm.lowering.integers import combined
from cvm.lowering.operands import function, integers, sum_of
from cvm.lowering.table import lattice, tabulate
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, rational

__all__: list[str] = []

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_DIGIT = 8
_INT32_MAX = 2**31 - 1


@rule("bitwise", claim=exact("a table over both operands, or over each digit of 8 bits of both"))
def bitwise(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The attribute ``kind`` ("and", "or", "xor") of the bits of x and y, which have one rank and hold integers."""
    of_bits = _FUNCTIONS[str(operation.attributes["kind"])]

    def real(x: Real, y: Real) -> Real:
        assert x.exact is not None
        assert y.exact is not None
        return rational(of_bits(int(x.exact), int(y.exact)))

    try:
        return [function(lowering, operation, ["x", "y"], real)]
    except Unsupported as error:
        if error.code != "lowering.unquantized":
            raise
    shape = lowering.output_shape(operation)
    pairs = _digits(lowering, operation, [integers(lowering, operation, name) for name in ("x", "y")])
    total = LinearForm(shape, (), Rationals.scalar(0, len(shape)))
    for place, pair in enumerate(pairs):
        table = tabulate(lowering, operation, [_form(lowering, digit) for digit in pair], real, shape)
        found = lattice(lowering, table, f"{operation.outputs[0]}.digit{place}")
        assert found is not None
        weight = Rationals.scalar(2 ** (_DIGIT * place), len(shape))
        terms = tuple(Term(term.value, term.factor * weight) for term in found.terms)
        total = sum_of(total, LinearForm(shape, terms, found.constant * weight))
    return [total]


def _form(lowering: Lowering, value: str) -> LinearForm:
    shape: Shape = lowering.builder.shape(value)
    one, zero = (Rationals.scalar(item, len(shape)) for item in (1, 0))
    return LinearForm(shape, (Term(value, one),), zero)


def _digits(lowering: Lowering, operation: GraphOperation, values: list[str]) -> list[list[str]]:
    """Pairs of digits of two values, from the least one on; both values have as many."""
    found = []
    everything = (-_INT32_MAX, _INT32_MAX)
    while not all(_is_digit(*lowering.builder.range(value).hull()) for value in values):
        half = 2 ** (_DIGIT - 1)  # added by rounding, so that it is a floor
        above = [combined(lowering, operation, [value], (1,), -half, _DIGIT, everything) for value in values]
        found.append(
            [
                combined(lowering, operation, [value, more], (1, -(2**_DIGIT)), 0, 0, (0, 2**_DIGIT - 1))
                for value, more in zip(values, above, strict=True)
            ]
        )
        values = above
    return [*found, values]


def _is_digit(lo: int, hi: int) -> bool:
    """Whether integers have as many as a digit, counted from zero on or around it."""
    return bool((lo >= 0 and hi < 2**_DIGIT) or (lo >= -(2 ** (_DIGIT - 1)) and hi < 2 ** (_DIGIT - 1)))
