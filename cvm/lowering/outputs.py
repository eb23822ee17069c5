"""The outputs of a program: the codes of a tensor with a quantiser, or the integers of a tensor of integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cvm.graph import GraphTensor
from cvm.lowering.context import Lowering
from cvm.lowering.forms.form import Known
from cvm.lowering.forms.logarithms import codes_of_known
from cvm.lowering.forms.unquantized import unquantized
from cvm.lowering.parts.operands import integer_value
from cvm.program.model import Output

__all__ = ["output"]


def output(lowering: Lowering, name: str) -> Output:
    """The output for a tensor of the graph.

    Logical tensors are given as 0 and 1 and integer tensors as their integers, without a quantiser. Raises
    `Unsupported` (``lowering.unquantized``) for real numbers without one.
    """
    tensor = lowering.graph.tensors[name]
    quantizer = tensor.quantizer
    if name in lowering.values:
        return Output(name, lowering.values[name].name, quantizer)
    if name in lowering.known and (quantizer is not None or tensor.dtype != "scalar"):
        return Output(name, _constant(lowering, tensor, lowering.known[name]), quantizer)
    if tensor.dtype == "scalar":
        raise unquantized(
            f"the output {name!r} needs a quantiser in graph.quant: a program gives codes, and without a quantiser "
            "these real numbers have none",
            replace(tensor.location, tensor=name),
        )
    (operation,) = (operation for operation in lowering.graph.operations if name in operation.outputs)
    with lowering.at(operation), lowering.serving(name):
        value = integer_value(lowering, lowering.linear_of(name, name), "output")
        lowering.claim(value, "integers")
    lowering.values[name] = value
    return Output(name, value.name)


def _constant(lowering: Lowering, tensor: GraphTensor, known: Known) -> str:
    if tensor.quantizer is None:
        values = known.rationals().broadcast(known.shape)
        codes = values.numerators // values.denominator
    else:
        codes = codes_of_known(known, tensor.quantizer)
    lowering.report[:] = [item for item in lowering.report if item.tensor != tensor.name]
    with lowering.serving(tensor.name):
        value = lowering.tensor_constant(codes.astype(np.int64), "")
        lowering.claim(value, "constant")
    lowering.values[tensor.name] = value
    return value.name
