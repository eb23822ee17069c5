"""Powers of two: what the codes of logarithmic quantisers (NNEF 1.0.1 section 4.9.5) stand for.

A code c stands for sign(c) * 2^(top - r - 1 + |c|). With 2^e the least power that occurs, every item is an integer
times 2^e: a tensor of powers of two is a tensor of integers.
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
"""Of a computed tensor: their numbers stand in a table."""


def decoded(value: Value, shape: Shape, quantizer: LogarithmicQuantizer) -> TableForm:
    """What a tensor of codes stands for: a table, since the numbers are not equally spaced.

    Raises `Unsupported` (``lowering.logarithmic``) where the codes that occur are too many.
    """
    owner = value.emission.owner
    lo, hi = value.range.hull()
    if hi - lo >= _MOST_CODES:
        message = f"the codes of {owner!r} stand for powers of two down to 2^{quantizer.top - quantizer.hi + 1}"
        raise Unsupported("lowering.logarithmic", f"{message}: at most 12 bits are lowered", Location(tensor=owner))
    if lo:
        least = value.emission.tensor_constant(np.full((1,) * len(shape), -lo, np.int64), "least")
        value = value.apply("broadcast_add", least, label="place")
    return TableForm(shape, value, tuple(rational(quantizer.value(code)) for code in range(lo, hi + 1)))


def codes_of_known(known: Known, quantizer: Quantizer) -> npt.NDArray[Any]:
    """The codes of a constant tensor that a quantiser has made."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return quantize_rationals(known.rationals().broadcast(known.shape), quantizer)
    return known.codes.astype(np.int64)


def known_powers(values: Rationals, quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor that the quantiser makes of exact numbers."""
    return known_power_codes(quantize_rationals(values, quantizer), quantizer)


def known_power_codes(codes: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor that codes of the quantiser stand for: integers times the least power that occurs."""
    items = [int(code) for code in codes.ravel().tolist()]
    least = min((abs(code) for code in items if code), default=1)
    integers = np.array([0 if c == 0 else 2 ** (abs(c) - least) * (1 if c > 0 else -1) for c in items], dtype=object)
    rank = codes.ndim
    scale = Rationals.scalar(quantizer.value(least), rank)
    return Known(integers.reshape(codes.shape), scale, Rationals.scalar(0, rank))
