"""Variables that carry a quantiser: the change by quantising them on load, measured as for any tensor.

The program holds such a variable in another form (transposed, folded, as parameters), so the quantiser itself makes the
codes here, from the stored numbers.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cvm.graph import GraphTensor, QuantizedGraph
from cvm.quantization import LogarithmicQuantizer, Quantizer
from cvm.quantization.exact import quantize
from cvm.records import dataclass
from cvm.reference.values import pseudo_quantized, stored
from cvm.report.measures import Measures, Meter
from cvm.report.ruler import Floats, Integers, ruler

__all__ = ["Stored", "stored_tensors"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A variable with a quantiser, and its measures."""

    number: int
    """The index of the variable among the tensors of the model."""
    tensor: GraphTensor
    measures: Measures


def stored_tensors(graph: QuantizedGraph, absent: Collection[str]) -> tuple[Stored, ...]:
    """The variables of a graph that have a quantiser and are ``absent`` from the program, in its order."""
    return tuple(
        Stored(number, tensor, _measured(tensor, tensor.quantizer))
        for number, tensor in enumerate(graph.tensors.values())
        if tensor.name in absent
        and tensor.kind == "variable"
        and tensor.data is not None
        and tensor.quantizer is not None
    )


def _measured(tensor: GraphTensor, quantizer: Quantizer) -> Measures:
    assert tensor.data is not None
    reals = stored(tensor.data, tensor)
    codes = tensor.data.values if tensor.data.quantizer == quantizer else _codes(reals, quantizer)
    meter = Meter(ruler(quantizer, tensor.shape, (quantizer.lo, quantizer.hi)))
    meter.add(reals, codes.reshape(reals.shape))
    return meter.result()


def _codes(reals: Floats, quantizer: Quantizer) -> Integers:
    if not isinstance(quantizer, LogarithmicQuantizer):
        return quantize(reals, quantizer)
    powers = pseudo_quantized(reals, quantizer)
    with np.errstate(divide="ignore"):
        exponents = np.where(powers == 0, quantizer.top - quantizer.hi, np.log2(np.abs(powers)))
    codes: Integers = (np.sign(powers) * (exponents - (quantizer.top - quantizer.hi))).astype(np.int64)
    return codes
