"""Quantization files: NNEF 1.0.1 section 5.3.

Lexical rules, comments included, are those of the structure description (section 3.1), and arguments may be
compile-time expressions whether or not the document enables them: section 5.3 allows them without a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NoReturn

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import standard_library
from cvm.frontends.nnef.expressions import Environment, Evaluator
from cvm.frontends.nnef.faults import invalid, unsupported
from cvm.frontends.nnef.inference import Inference
from cvm.frontends.nnef.parser import parse_quantization
from cvm.frontends.nnef.types import Primitive, TensorType
from cvm.frontends.nnef.values import FlatTensor, Value
from cvm.limits import DEFAULT, Limits
from cvm.quantization import LinearQuantizer

__all__ = ["read_quantization"]


def read_quantization(
    text: str, tensors: Mapping[str, FlatTensor], limits: Limits = DEFAULT
) -> Mapping[str, LinearQuantizer]:
    """The quantisers of a quantization file by tensor; ``tensors`` are those that the document exports.

    Raises `Malformed`, `Invalid`, `Unsupported` or `LimitExceeded` with line and column.
    """
    quantizers: dict[str, LinearQuantizer] = {}
    for entry in parse_quantization(text, limits):
        if entry.tensor not in tensors:
            message = f"{entry.tensor[:80]!r} is not a tensor of the graph"
            raise invalid("quantization.unknown-tensor", message, entry)
        if entry.tensor in quantizers:
            raise invalid("quantization.duplicate", f"there are two entries for {entry.tensor!r}", entry)
        if tensors[entry.tensor].dtype != "scalar":
            message = f"{entry.tensor!r} is a tensor of type {tensors[entry.tensor].dtype}; only scalars are quantised"
            raise invalid("quantization.data-type", message, entry)
        algorithm = _ALGORITHMS.get(entry.algorithm)
        if algorithm is None:
            raise invalid("quantization.algorithm", f"there is no algorithm {entry.algorithm!r}", entry)
        quantizers[entry.tensor] = algorithm(entry, limits)
    return MappingProxyType(quantizers)


class _NoOperations:
    """Compile-time expressions of a quantization file have no tensors, so no operation can be applied."""

    def invoke(self, node: syntax.Invocation, environment: Environment, lengths: tuple[int | None, ...]) -> NoReturn:
        raise invalid("quantization.expression", "arguments must be compile-time expressions", node)

    def apply(self, name: str, operands: tuple[Value, ...], node: syntax.Node) -> NoReturn:
        raise invalid("quantization.expression", "arguments must be compile-time expressions", node)


def _arguments(entry: syntax.Entry, limits: Limits) -> dict[str, Value]:
    """The values of all parameters of the algorithm but its first, which is the tensor itself."""
    parameters = {parameter.name: parameter for parameter in standard_library()[entry.algorithm].parameters[1:]}
    inference, evaluator = Inference(standard_library(), None), Evaluator(_NoOperations(), limits)
    values: dict[str, Value] = {}
    for argument in entry.arguments:
        if argument.name is None:
            raise invalid("quantization.positional", "arguments must be given by name", argument)
        if argument.name in values:
            raise invalid("quantization.twice", f"parameter {argument.name!r} is given twice", argument)
        if argument.name not in parameters:
            expected = ", ".join(parameters)
            message = f"there is no parameter {argument.name!r}; {entry.algorithm} needs {expected}"
            raise invalid("quantization.unknown-parameter", message, argument)
        formal = parameters[argument.name].type
        wanted = Primitive(formal.name or "scalar") if isinstance(formal, TensorType) else formal
        found = inference.infer(argument.value)
        if found != wanted:
            message = f"parameter {argument.name!r} must be {wanted}, found {found}"
            raise invalid("quantization.type", message, argument.value)
        values[argument.name] = evaluator.evaluate(argument.value, Environment({}))
    for name in parameters:
        if name not in values:
            raise invalid("quantization.missing", f"parameter {name!r} of {entry.algorithm} is not given", entry)
    return values


def _linear(entry: syntax.Entry, limits: Limits) -> LinearQuantizer:
    values = _arguments(entry, limits)
    minimum, maximum, bits = values["min"], values["max"], values["bits"]
    assert isinstance(minimum, Fraction)
    assert isinstance(maximum, Fraction)
    assert isinstance(bits, int)
    try:
        return LinearQuantizer.linear(minimum, maximum, bits)
    except CvmError as error:
        rule = error.code.rpartition(".")[2]
        raise invalid(f"quantization.{rule}", error.message, entry) from None


def _later(entry: syntax.Entry, _: Limits) -> NoReturn:
    message = f"{entry.algorithm} is not supported yet; use linear_quantize"
    raise unsupported("quantization.algorithm", message, entry)


_ALGORITHMS: Mapping[str, Callable[[syntax.Entry, Limits], LinearQuantizer]] = MappingProxyType(
    {
        "linear_quantize": _linear,
        "logarithmic_quantize": _later,
        "zero_point_linear_quantize": _later,
        "min_max_linear_quantize": _later,
    }
)
