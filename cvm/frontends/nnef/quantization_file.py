"""Quantization files: NNEF 1.0.1 section 5.3, and the algorithms of the current Khronos tools.

Lexical rules, also those for comments, are those of the structure description (section 3.1). Arguments may be
compile-time expressions whether or not the document enables them: section 5.3 allows them without a condition. An
algorithm may be a fragment of the document (`cvm.frontends.nnef.quantizer_fragments`). Arguments of
``zero_point_linear_quantize`` and ``min_max_linear_quantize`` may be lists with an item per channel; a list of one item
counts as that item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, NoReturn

from cvm.errors import CvmError, LimitExceeded
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.channels import ChannelAxes
from cvm.frontends.nnef.declarations import is_library, khronos_library, standard_library
from cvm.frontends.nnef.expressions import Environment, Evaluator
from cvm.frontends.nnef.faults import MAX_ERRORS, collected, invalid
from cvm.frontends.nnef.inference import Inference
from cvm.frontends.nnef.parser import parse_quantization
from cvm.frontends.nnef.quantizer_fragments import Expansion, expand_algorithm, is_algorithm
from cvm.frontends.nnef.types import ArrayType, Primitive, TensorType, Type
from cvm.frontends.nnef.values import Array, FlatGraph, FlatTensor, NeededDialect, Value
from cvm.limits import DEFAULT, Limits
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.records import dataclass

__all__ = ["QuantizationInfo", "read_quantization"]


@dataclass(frozen=True, slots=True)
class QuantizationInfo:
    """The contents of a quantization file: quantisers by tensor, and the dialect that the file is written in."""

    quantizers: Mapping[str, Quantizer] = field(default_factory=lambda: MappingProxyType({}))
    dialect: NeededDialect = "1.0.1"
    expansions: Mapping[str, Expansion] = field(default_factory=lambda: MappingProxyType({}))
    """The operations to insert before the quantisers of some tensors, which come from fragments of the document."""


def read_quantization(text: str, graph: FlatGraph, limits: Limits = DEFAULT) -> QuantizationInfo:
    """The quantisers of a quantization file, for the exported tensors of a graph.

    Raises `Malformed`, `Invalid` or `LimitExceeded` with line and column; `Invalid` also for an algorithm that
    ``graph.allowed`` excludes. The error of the first wrong entry carries those of the others.
    """
    channels = ChannelAxes(graph)
    quantizers: dict[str, Quantizer] = {}
    expansions: dict[str, Expansion] = {}
    errors: list[CvmError] = []
    dialect: NeededDialect = "1.0.1"
    for entry in parse_quantization(text, limits):
        try:
            tensor = _tensor(entry, graph)
            if entry.tensor in quantizers:
                raise invalid("quantization.duplicate", f"there are two entries for {entry.tensor!r}", entry)
            fragment = _own_fragment(entry, graph)
            reader = _Reader(entry, tensor, channels, limits, fragment or khronos_library()[entry.algorithm])
            if fragment is not None:
                reader.read_arguments()
                quantizers[entry.tensor], expansion = expand_algorithm(entry, tensor, graph, limits)
                if expansion is not None:
                    expansions[entry.tensor] = expansion
                continue
            if entry.algorithm not in standard_library():
                dialect = "khronos"
            quantizers[entry.tensor] = reader.quantizer()
        except CvmError as error:
            errors.append(error)
            if isinstance(error, LimitExceeded) or len(errors) == MAX_ERRORS:
                break
    if errors:
        raise collected(errors)
    return QuantizationInfo(MappingProxyType(quantizers), dialect, MappingProxyType(expansions))


def _tensor(entry: syntax.Entry, graph: FlatGraph) -> FlatTensor:
    """The tensor of an entry, after a check that the algorithm may quantise it."""
    tensor = graph.exported.get(entry.tensor)
    if tensor is None:
        raise invalid("quantization.unknown-tensor", f"{entry.tensor[:80]!r} is not a tensor of the graph", entry)
    if tensor.dtype != "scalar":
        message = f"{entry.tensor!r} is a tensor of type {tensor.dtype}; only scalars are quantised"
        raise invalid("quantization.data-type", message, entry)
    if _own_fragment(entry, graph) is not None:
        return tensor
    if entry.algorithm not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        message = (
            f"there is no algorithm {entry.algorithm!r}; known are {known}, and fragments of the document that map "
        )
        raise invalid("quantization.algorithm", message + "one tensor<scalar> to another", entry)
    if graph.allowed == "1.0.1" and entry.algorithm not in standard_library():
        message = f"algorithm {entry.algorithm!r} is not of NNEF 1.0.1; the dialect khronos has it"
        raise invalid("quantization.algorithm", message, entry)
    return tensor


def _own_fragment(entry: syntax.Entry, graph: FlatGraph) -> syntax.Fragment | None:
    """The fragment of the document that an entry names as its algorithm; None for a library algorithm."""
    fragment = graph.fragments.get(entry.algorithm)
    if fragment is None or is_library(fragment) or not is_algorithm(fragment):
        return None
    return fragment


class _NoOperations:
    """The operations of compile-time expressions in a quantization file: there are none, so each raises `Invalid`."""

    def invoke(self, node: syntax.Invocation, environment: Environment, lengths: tuple[int | None, ...]) -> NoReturn:
        raise invalid("quantization.expression", "arguments must be compile-time expressions", node)

    def apply(self, name: str, operands: tuple[Value, ...], node: syntax.SyntaxNode) -> NoReturn:
        raise invalid("quantization.expression", "arguments must be compile-time expressions", node)


class _Reader:
    """Reads one entry; an error of the quantiser is located at the argument that causes it."""

    def __init__(
        self,
        entry: syntax.Entry,
        tensor: FlatTensor,
        channels: ChannelAxes,
        limits: Limits,
        declaration: syntax.Fragment,
    ) -> None:
        self._entry = entry
        self._declaration = declaration
        self._tensor = tensor
        self._channels = channels
        self._limits = limits
        self._places: dict[str, syntax.Expression] = {}
        self.values: dict[str, Any] = {}

    def quantizer(self) -> Quantizer:
        self.read_arguments()
        try:
            return _ALGORITHMS[self._entry.algorithm](self)
        except CvmError as error:
            if error.code.startswith("nnef."):
                raise
            rule = error.code.rpartition(".")[2]
            at = next((self._places[name] for name in _CAUSES.get(rule, ()) if name in self._places), self._entry)
            raise invalid(f"quantization.{rule}", error.message, at) from None

    def read_arguments(self) -> None:
        """Evaluate all parameters of the algorithm except the first, which is the tensor itself."""
        entry = self._entry
        parameters = {parameter.name: parameter for parameter in self._declaration.parameters[1:]}
        inference, evaluator = Inference(khronos_library(), None), Evaluator(_NoOperations(), self._limits)
        for argument in entry.arguments:
            if argument.name is None:
                raise invalid("quantization.positional", "arguments must be given by name", argument)
            if argument.name in self.values:
                raise invalid("quantization.twice", f"parameter {argument.name!r} is given twice", argument)
            if argument.name not in parameters:
                expected = ", ".join(parameters)
                message = f"there is no parameter {argument.name!r}; {entry.algorithm} needs {expected}"
                raise invalid("quantization.unknown-parameter", message, argument)
            self._check_type(argument.name, parameters[argument.name].type, inference.infer(argument.value), argument)
            self.values[argument.name] = evaluator.evaluate(argument.value, Environment({}))
            self._places[argument.name] = argument.value
        for name in parameters:
            if name not in self.values:
                raise invalid("quantization.missing", f"parameter {name!r} of {entry.algorithm} is not given", entry)

    def _check_type(self, name: str, formal: Type, found: Type, argument: syntax.Argument) -> None:
        wanted = Primitive(formal.name or "scalar") if isinstance(formal, TensorType) else formal
        added = is_library(self._declaration) and self._entry.algorithm not in standard_library()
        lists = added and isinstance(formal, TensorType)
        if found == wanted or (lists and found == ArrayType(wanted)):
            return
        message = f"parameter {name!r} must be {wanted}{f' or {wanted}[]' if lists else ''}, found {found}"
        raise invalid("quantization.type", message, argument.value)

    def per_channel(self, *names: str) -> tuple[list[tuple[Any, ...]], int | None]:
        """Arguments that may be lists, all with the same number of items, and the axis that the items belong to."""
        lists: list[tuple[Any, ...]] = []
        for name in names:
            value = self.values[name]
            lists.append(tuple(value) if isinstance(value, Array) else (value,))
        length = max(map(len, lists))
        for name, items in zip(names, lists, strict=True):
            if len(items) not in (1, length):
                message = f"{name!r} has {len(items)} items, another argument has {length}"
                raise invalid("quantization.lists", message, self._places[name])
        axis = None
        if length > 1:
            longest = names[max(range(len(lists)), key=lambda index: len(lists[index]))]
            axis = self._channels.axis(self._tensor, length, self._places[longest])
        return [items * length if len(items) == 1 else items for items in lists], axis


_CAUSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bits": ("bits",), "range": ("min", "max"), "scale": ("scale",), "codes": ("bits",)}
)
"""For each rule of quantisers, the arguments that may break it; the error is located at the first that is given."""


def _linear(entry: _Reader) -> Quantizer:
    values = entry.values
    return LinearQuantizer.linear(values["min"], values["max"], values["bits"])


def _logarithmic(entry: _Reader) -> Quantizer:
    return LogarithmicQuantizer.of(entry.values["max"], entry.values["bits"])


def _zero_point(entry: _Reader) -> Quantizer:
    (zero_point, scale), axis = entry.per_channel("zero_point", "scale")
    values = entry.values
    return LinearQuantizer.zero_point(zero_point, scale, values["bits"], values["signed"], values["symmetric"], axis)


def _min_max(entry: _Reader) -> Quantizer:
    (minimum, maximum), axis = entry.per_channel("min", "max")
    values = entry.values
    return LinearQuantizer.min_max(minimum, maximum, values["bits"], values["signed"], values["symmetric"], axis)


_ALGORITHMS: Mapping[str, Callable[[_Reader], Quantizer]] = MappingProxyType(
    {
        "linear_quantize": _linear,
        "logarithmic_quantize": _logarithmic,
        "zero_point_linear_quantize": _zero_point,
        "min_max_linear_quantize": _min_max,
    }
)
