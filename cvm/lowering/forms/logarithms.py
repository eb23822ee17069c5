"""Codes of logarithmic quantisers (NNEF 1.0.1 section 4.9.5), which stand for signed powers of two.

A code c stands for sign(c) * 2^(top - r - 1 + |c|). If 2^e is the least power that occurs in a tensor, all its items
are integers times 2^e.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Location, Unsupported
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, Shape, TableForm
from cvm.quantization import LogarithmicQuantizer, Quantizer
from cvm.quantization.exact import quantize_rationals
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import rational

__all__ = ["codes_of_known", "decoded", "known_power_codes", "known_powers"]

_MOST_CODES = 2**13 + 1
"""The most codes of a computed tensor. A table has an entry for each code."""


def decoded(value: Value, shape: Shape, quantizer: LogarithmicQuantizer) -> TableForm:
    """The real tensor whose codes of ``quantizer`` are in ``value``. It is a table, since powers are not evenly spaced.

    Raises `Unsupported` (``lowering.logarithmic``) if too many codes occur.
    """
    owner = value.emission.owner
    lo, hi = value.range.hull()
    if hi - lo >= _MOST_CODES:
        message = f"the codes of {owner!r} stand for powers of two down to 2^{quantizer.top - quantizer.hi + 1}"
        raise Unsupported("lowering.logarithmic", f"{message}: at most 12 bits are lowered", Location(tensor=owner))
    if lo:
        least = value.emission.tensor_constant(np.full((1,) * len(shape), -lo, np.int64), "least")
        value = value.plus(least, label="place")
    return TableForm(shape, value, tuple(rational(quantizer.value(code)) for code in range(lo, hi + 1)))


def codes_of_known(known: Known, quantizer: Quantizer) -> npt.NDArray[Any]:
    """The codes of a constant tensor that ``quantizer`` has quantised, at full extent."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return quantize_rationals(known.rationals().broadcast(known.shape), quantizer)
    return known.codes.astype(np.int64)


def known_powers(values: Rationals, quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor of exact numbers after quantisation by ``quantizer``."""
    return known_power_codes(quantize_rationals(values, quantizer), quantizer)


def known_power_codes(codes: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor with these codes of the quantiser: integers times the least power that occurs."""
    items = [int(code) for code in codes.ravel().tolist()]
    least = min((abs(code) for code in items if code), default=1)
    integers = np.array([0 if c == 0 else 2 ** (abs(c) - least) * (1 if c > 0 else -1) for c in items], dtype=object)
    rank = codes.ndim
    scale = Rationals.scalar(quantizer.value(least), rank)
    return Known(integers.reshape(codes.shape), scale, Rationals.scalar(0, rank))
