"""A quantised graph of any format as an ONNX model with QuantizeLinear and DequantizeLinear nodes.

Each operation becomes its ONNX operator (`cvm.export.onnx.operations`); an operation without one is refused by name.
Each tensor with a quantiser is quantised where it is computed; a stored tensor with one is stored as codes. As in
`cvm.export.onnx.file`, scales are float32 and ranges of activations contain zero, so the program of the file differs a
little.

Source: ONNX operators of opset 21.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import narrowest
from cvm.errors import Location, Unsupported
from cvm.export.onnx.file import float32_above, grid_of
from cvm.export.onnx.operations import RULES, NoMapping
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import quantize
from cvm.reference.values import stored

__all__ = ["graph_model", "halves_rounded_otherwise"]

_OPSET, _IR_VERSION = 21, 10


def graph_model(graph: QuantizedGraph) -> bytes:
    """The file of an ONNX model that computes a graph.

    Raises `Unsupported` (``export.onnx.*``): ``package`` where the package onnx is missing; ``operation`` for one
    without a mapping; ``bits`` for codes of an activation of other than 8 or 16 bits; ``form`` for a quantiser whose
    codes have no zero; ``type`` for inputs and outputs that are not real.
    """
    try:
        import onnx
    except ImportError:
        advice = "install it: pip install 'cvm[onnx]'"
        raise Unsupported("export.onnx.package", f"writing models of ONNX needs the package onnx; {advice}") from None
    writer = _Writer(onnx, graph)
    for tensor in graph.tensors.values():
        if tensor.kind != "computed":
            writer.introduce(tensor)
    for operation in graph.operations:
        writer.operation(operation)
    found: bytes = writer.model().SerializeToString()
    return found


_AVERAGES = ("avg_pool", "box", "mean_reduce", "sum_reduce")
_BEHIND = ("relu", "clamp", "copy", "reshape", "squeeze", "unsqueeze", "transpose")


def halves_rounded_otherwise(graph: QuantizedGraph) -> list[str]:
    """The averages of a graph whose ties QuantizeLinear rounds differently: to the code at an even distance from zero.

    Any number may be a tie between two codes, but means of few codes often are: one in 64 for a mean of 64 codes.
    """
    made_by = {name: operation for operation in graph.operations for name in operation.outputs}
    found = []
    for tensor in graph.tensors.values():
        quantizer, maker = tensor.quantizer, made_by.get(tensor.name)
        while maker is not None and maker.name in _BEHIND:
            operand = maker.inputs["x" if "x" in maker.inputs else "input"]
            before = graph.tensors[operand] if isinstance(operand, str) else None
            maker = made_by.get(before.name) if before is not None and before.quantizer is None else None
        if maker is not None and maker.name in _AVERAGES and isinstance(quantizer, LinearQuantizer):
            alike = quantizer.rounding == "half_even" and all(
                offset / scale % 2 == 0 for offset, scale in zip(quantizer.offset, quantizer.scale, strict=True)
            )
            found += [] if alike else [tensor.name]
    return found


class _Writer:
    """The ONNX model under construction.

    The rounded values of a tensor have its name, the unrounded values another name; an input has the name of the
    graph's.
    """

    def __init__(self, onnx: Any, graph: QuantizedGraph) -> None:
        self._onnx, self._graph = onnx, graph
        self._nodes: list[Any] = []
        self._stored: list[Any] = []
        self._inputs: list[Any] = []
        self._names: dict[str, str] = {}
        self._taken = set(graph.tensors)

    # Interface of the rules

    def tensor(self, name: str) -> GraphTensor:
        """A tensor of the graph."""
        return self._graph.tensors[name]

    def constant(self, values: npt.NDArray[Any], name: str = "") -> str:
        """Store a tensor with these elements; returns its name."""
        name = name or self._new("constant")
        self._stored.append(self._onnx.numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, **attributes: Any) -> str:
        """Add a node; where it gives the results of an operation, their quantisers follow it."""
        results = [self._new(op)] if outputs is None else list(outputs)
        real = [self._new(f"{name}_real") if self._is_rounded(name) else name for name in results]
        given = [self._names.get(name, name) for name in inputs]
        self._nodes.append(self._onnx.helper.make_node(op, given, real, **attributes))
        for source, name in zip(real, results, strict=True):
            if source != name:
                self._round(self.tensor(name), source, name)
        return results[0]

    # The graph

    def introduce(self, tensor: GraphTensor) -> None:
        """Add an input, or a stored tensor."""
        if tensor.dtype != "scalar":
            raise self._refused("type", f"its elements are {tensor.dtype}; only real tensors can be written", tensor)
        if tensor.data is not None:
            self._store(tensor, tensor.data)
            return
        kind = self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(tensor.name, kind, tensor.shape))
        if tensor.quantizer is not None:
            self._names[tensor.name] = self._new(f"{tensor.name}_dequantized")
            self._round(tensor, tensor.name, self._names[tensor.name])

    def operation(self, operation: GraphOperation) -> None:
        """Add the nodes of an operation, and the quantisers of its results."""
        result, rule = self.tensor(operation.outputs[0]), RULES.get(operation.name)
        if rule is None:
            raise self._refused("operation", f"{operation.name} has no mapping to ONNX", result)
        try:
            rule(self, operation)
        except NoMapping as error:
            raise self._refused("operation", f"{operation.name}: ONNX has no {error}", result) from None

    def model(self) -> Any:
        """The finished model. Its outputs are real numbers."""
        helper, kind, outputs = self._onnx.helper, self._onnx.TensorProto.FLOAT, []
        for name in self._graph.outputs:
            tensor = self.tensor(name)
            if tensor.dtype != "scalar" or tensor.kind != "computed":
                raise self._refused("type", "it is an output, and no operation computes it as real numbers", tensor)
            outputs.append(helper.make_tensor_value_info(name, kind, tensor.shape))
        graph = helper.make_graph(self._nodes, self._graph.name or "graph", self._inputs, outputs, self._stored)
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION, producer_name="cvm")

    def _new(self, stem: str) -> str:
        name = next(item for item in chain((stem,), (f"{stem}_{i}" for i in count(2))) if item not in self._taken)
        self._taken.add(name)
        return name

    def _is_rounded(self, name: str) -> bool:
        return name in self._graph.tensors and self.tensor(name).quantizer is not None

    # Quantisers

    def _round(self, tensor: GraphTensor, source: str, result: str) -> None:
        quantizer = self._linear(tensor)
        bits = (quantizer.hi - quantizer.lo).bit_length()
        if bits not in (8, 16) or quantizer.hi - quantizer.lo != 2**bits - 1 or not quantizer.per_tensor:
            message = f"codes in [{quantizer.lo}, {quantizer.hi}] fit no ONNX type: use --bits 8 or 16"
            raise self._refused("bits", message, tensor)
        grid = grid_of(quantizer, bits)
        scale = self.constant(grid.scales.reshape(()), self._new(f"{tensor.name}_scale"))
        zero = self.constant(grid.zeros.reshape(()), self._new(f"{tensor.name}_zero"))
        codes = self._new(f"{tensor.name}_codes")
        make = self._onnx.helper.make_node
        self._nodes.append(make("QuantizeLinear", [source, scale, zero], [codes]))
        self._nodes.append(make("DequantizeLinear", [codes, scale, zero], [result]))

    def _store(self, tensor: GraphTensor, data: TensorData) -> None:
        """Store floats as float32, and numbers with a quantiser as codes with zero for 0, in the narrowest type.

        Codes that have a quantiser of their own, when the tensor has none, stay codes; where no code is zero they
        become floats.
        """
        values = stored(data, tensor).astype(np.float64)
        if tensor.quantizer is not None:
            quantizer = self._linear(tensor)
            found = _codes_from_zero(quantize(values, quantizer), quantizer)
            if isinstance(found, str):
                raise self._refused("form" if "zero" in found else "bits", found, tensor)
            self._store_codes(tensor.name, found, quantizer)
            return
        held = data.quantizer
        found = _codes_from_zero(data.values, held) if isinstance(held, LinearQuantizer) else ""
        if isinstance(found, str) or not isinstance(held, LinearQuantizer):
            self.constant(values.astype(np.float32), tensor.name)
        else:
            self._store_codes(tensor.name, found, held)

    def _store_codes(self, name: str, codes: npt.NDArray[Any], quantizer: LinearQuantizer) -> None:
        scales = np.array([float32_above(scale) for scale in quantizer.scale], np.float32)
        one = quantizer.axis is None
        inputs = [self.constant(codes, self._new(f"{name}_codes"))]
        inputs.append(self.constant(scales.reshape(() if one else scales.shape), self._new(f"{name}_scale")))
        attributes = {} if one else {"axis": quantizer.axis}
        self._nodes.append(self._onnx.helper.make_node("DequantizeLinear", inputs, [name], **attributes))

    def _linear(self, tensor: GraphTensor) -> LinearQuantizer:
        if not isinstance(tensor.quantizer, LinearQuantizer):
            raise self._refused("form", "ONNX has no logarithmic quantiser", tensor)
        return tensor.quantizer

    def _refused(self, rule: str, message: str, tensor: GraphTensor) -> Unsupported:
        advice = "keep the program (-o model.cvm)"
        return Unsupported(f"export.onnx.{rule}", f"{message}; {advice}", Location(tensor=tensor.name))


def _codes_from_zero(codes: npt.NDArray[Any], quantizer: LinearQuantizer) -> npt.NDArray[Any] | str:
    """Codes shifted so that code 0 stands for the number 0, in the narrowest type; or the reason why that fails."""
    zeros = [-offset / scale for offset, scale in zip(quantizer.offset, quantizer.scale, strict=True)]
    if any(zero.denominator != 1 or abs(zero) > INT32_MAX for zero in zeros):
        return "no code of its quantiser is zero"
    if max(-int(codes.min()), int(codes.max())) > 2 * INT32_MAX:
        return "its codes do not fit 32 bits"
    shape = [-1 if i == quantizer.axis else 1 for i in range(codes.ndim)] if quantizer.axis is not None else []
    moved = codes.astype(np.int64) - np.array([int(zero) for zero in zeros], np.int64).reshape(shape or ())
    width = narrowest(int(moved.min()), int(moved.max()))
    return "its codes do not fit 32 bits" if width is np.int64 else moved.astype(width)
