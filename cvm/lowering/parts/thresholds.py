"""Functions of one operand: by a table or, if a sum has too many values, by thresholds for the result's quantiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from cvm.errors import Unsupported
from cvm.lowering.context import Coded, Lowering, Result
from cvm.lowering.forms.form import LinearForm, SurdForm
from cvm.lowering.parts.operands import expanded, table_or
from cvm.lowering.proofs.curves import Course, Curve
from cvm.lowering.proofs.staircase import staircase_codes
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import Real, Undecided, Undefined

__all__ = ["function_of_sum"]

_MOST_BITS = 16


def function_of_sum(lowering: Lowering, real: Callable[[Real], Real], course: Course) -> Result:
    """Lower the function ``real`` of the operand ``x``. ``course`` says where the function rises and where it falls.

    Raises `Unsupported` as `table_or` does, and with ``lowering.undefined`` and ``lowering.undecided`` for sums.
    """
    return table_or(lowering, ["x"], real, lambda refusal: _by_thresholds(lowering, real, course, refusal))


def _by_thresholds(lowering: Lowering, real: Callable[[Real], Real], course: Course, refusal: Unsupported) -> Result:
    """Emit the codes as a staircase over the sum.

    Raises ``refusal`` if the operand is no sum, or if the result has no linear quantiser of at most 16 bits that rounds
    to the nearest.
    """
    quantizer = lowering.quantizer()
    operand = expanded(lowering, lowering.operand("x"), lowering.output_shape())
    if not isinstance(quantizer, LinearQuantizer) or not isinstance(operand, LinearForm | SurdForm):
        raise refusal
    if quantizer.rounding == "toward_zero" or (quantizer.hi - quantizer.lo).bit_length() > _MOST_BITS:
        raise refusal
    try:
        branches = Curve(operand, real, course).branches
        value, note = staircase_codes(lowering, replace(operand, lower=None, upper=None), quantizer, branches=branches)
    except (Undefined, Undecided) as error:
        what = "undefined" if isinstance(error, Undefined) else "undecided"
        message = f"{lowering.operation.name} of a sum: {error}"
        raise Unsupported(f"lowering.{what}", message, lowering.location) from None
    return Coded(value, Fraction(0), f"function of a sum: {note}", any_rounding=True)
