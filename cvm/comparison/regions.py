"""The numbers around one quantised tensor: the operator that computes it, its operands, and its result before rounding.

A rounding model of an engine is a function of few numbers: an integer accumulator and its scale, or the codes of two
operands, and the quantiser of the result. `Region` finds them in the severed graph, whatever the format of the file is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.interpolations import interpolations
from cvm.comparison.model import Model, in_graph
from cvm.comparison.severed import seen, severed
from cvm.frontends.common.places import Place
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, computed_from_inputs, makers, names_in
from cvm.inputs import Feed
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass
from cvm.reference import Reference

__all__ = ["Coded", "Region", "Regions"]

Array = npt.NDArray[Any]
_MOVES = ("reshape", "transpose", "squeeze", "unsqueeze", "copy", "slice", "pad")
_SUMS = ("conv", "deconv", "linear", "matmul")
_CLIPS = ("relu", "clamp", "max", "min")


@dataclass(frozen=True, slots=True)
class Coded:
    """A real tensor that is a scale times integers: ``real = scale * (code - zero)``."""

    tensor: str
    scale: Array
    """float64; one number, or one for each channel in the shape of the tensor. Scales of files are float32 numbers."""
    zero: int
    lowest: int = 0
    """The least code."""


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """What a rounding model needs to know about a place."""

    place: Place
    kind: str
    """"sum" (convolutions and products with a bias), or the name of the operation."""
    operation: GraphOperation
    operands: tuple[Coded | None, ...]
    """The data operands; None for one whose scale is not known."""
    bias: str | None
    result: str
    """The tensor of the operation's result."""
    scale: Fraction
    zero: int
    """The quantiser of the place: ``real = scale * (code - zero)``."""
    lo: int
    hi: int
    """The codes of the place, after fused activations."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that the operation reads."""
        return tuple(name for operand in self.operation.inputs.values() for name in names_in(operand))

    @property
    def unit(self) -> Array | None:
        """For sums: the scale of the accumulator, the product of the operands' scales. None if it is not known."""
        if self.kind != "sum" or any(item is None for item in self.operands):
            return None
        found: Array = np.array(1.0)
        for item in self.operands:
            assert item is not None
            found = found * item.scale
        return found


class Regions:
    """All regions of a model, and the real numbers in them for the tensors that an engine showed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph: QuantizedGraph = severed(model.graph, model.places)
        self.makers = makers(self.graph.operations)
        self._computed = computed_from_inputs(self.graph)
        self._reference = Reference(self.graph)
        self.regions: dict[str, Region] = {}
        self._twins = {seen(number): place for number, place in enumerate(model.places)}
        for place in model.places:
            region = self._region(place)
            if region is not None:
                self.regions[place.name] = region

    def values(self, feed: Feed, engine: Mapping[str, Array]) -> dict[str, Array]:
        """Every real number of the graph in float64, where every operator reads the engine's own tensors."""
        given: dict[str, Array] = {}
        for name in self.graph.inputs:
            given[name] = feed[name] if name in feed else self._engine_codes(name, engine)
        names = {name for region in self.regions.values() for name in self._wanted(region)}
        return self._reference.run(given, sorted(names))

    def _engine_codes(self, name: str, engine: Mapping[str, Array]) -> Array:
        place = self._twins[name]
        return in_graph(engine[place.name], place).reshape(self.graph.tensors[name].shape)

    @staticmethod
    def _wanted(region: Region) -> set[str]:
        names = {region.result, *region.reads, *(item.tensor for item in region.operands if item is not None)}
        return names | ({region.bias} if region.bias else set())

    def recomputed(self, region: Region, operands: Mapping[str, Array]) -> Array:
        """The result of a region's operation for other operands, in float64."""
        operation = region.operation
        names = region.reads
        given = {name: np.asarray(operands[name], np.float64) for name in names}
        tensors = {name: GraphTensor(name, given[name].shape, "external") for name in names} | {
            name: replace(self.graph.tensors[name], quantizer=None) for name in operation.outputs
        }
        graph = QuantizedGraph("", names, operation.outputs, tensors, (operation,))
        return Reference(graph).run(given)[operation.outputs[0]]

    def carried(self, region: Region, array: Array) -> Array:
        """An array in the shape of a region's result, carried through the moves to the tensor of its place."""
        path, name = [], region.place.tensor
        while name != region.result:
            operation = self.makers[name]
            path.append(operation)
            name = self._source(operation)
        for operation in reversed(path):
            if operation.name == "transpose":
                array = np.transpose(array, [int(axis) for axis in operation.attributes["axes"]])  # type: ignore[union-attr, arg-type]
            elif operation.name == "reshape":
                array = array.reshape(self.graph.tensors[operation.outputs[0]].shape)
        return array

    # Finding a region

    def _region(self, place: Place) -> Region | None:
        """The region of a place; None if its operation is not alone between the quantisers."""
        name, scale, zero = self._quantised(place)
        if scale is None:
            return None
        lo, hi = place.quantizer.lo, place.quantizer.hi
        while True:
            operation = self.makers.get(name)
            if operation is None:
                return None
            if operation.name in _CLIPS:
                clipped = self._clip(operation, scale, zero)
                if clipped is None:
                    break
                name, least, most = clipped
                lo, hi = max(lo, least) if least is not None else lo, min(hi, most) if most is not None else hi
            elif operation.name in ("reshape", "transpose", "copy") and self._coded(name) is None:
                name = self._source(operation)
            else:
                break
            if name not in self.makers:
                coded = self._coded(name)  # an activation or a quantiser alone, behind the engine's own tensor
                codes = None if coded is None else (coded,)
                return codes and Region(place, "copy", operation, codes, None, name, scale, zero, lo, hi)
        return self._described(place, name, scale, zero, lo, hi)

    def _quantised(self, place: Place) -> tuple[str, Fraction | None, int]:
        """The real tensor that is rounded to the codes of a place, with the scale and the zero point."""
        name = place.tensor
        while self.graph.tensors[name].quantizer is None and name in self.makers:
            if self.makers[name].name not in ("reshape", "transpose"):
                break
            name = self._source(self.makers[name])  # a quantiser for the whole tensor rounds alike before a move
        quantizer = self.graph.tensors[name].quantizer
        if isinstance(quantizer, LinearQuantizer) and quantizer.per_tensor and quantizer.scale[0] != 1:
            return name, quantizer.scale[0], -int(quantizer.offset[0] / quantizer.scale[0])
        # ONNX: codes are real / scale + zero point. TFLite may have a scale of 1.
        whole, name, zero, scale = name, place.tensor, 0, None
        operation = self.makers.get(name)
        if operation is not None and operation.name == "add" and isinstance(operation.inputs["y"], Fraction):
            zero, name = int(operation.inputs["y"]), str(operation.inputs["x"])
            operation = self.makers.get(name)
        if operation is not None and operation.name == "div" and isinstance(operation.inputs["y"], Fraction):
            scale, name = operation.inputs["y"], str(operation.inputs["x"])
        elif isinstance(quantizer, LinearQuantizer) and quantizer.per_tensor:
            return whole, quantizer.scale[0], -int(quantizer.offset[0])
        return name, scale, zero

    def _clip(self, operation: GraphOperation, scale: Fraction, zero: int) -> tuple[str, int | None, int | None] | None:
        """What an activation clips, and the codes to which it clips; None if its ends are not known."""
        if operation.name == "relu":
            return str(operation.inputs["x"]), zero, None
        ends = [operation.inputs.get(key) for key in ("a", "b")]
        if operation.name != "clamp" or not all(isinstance(end, Fraction) for end in ends):
            return None
        least, most = (zero + round(end / scale) for end in ends if isinstance(end, Fraction))
        return str(operation.inputs["x"]), least, most

    def _described(self, place: Place, name: str, scale: Fraction, zero: int, lo: int, hi: int) -> Region | None:
        operation = self.makers[name]
        inputs = operation.inputs
        result, bias = name, None
        keys: tuple[str, ...]
        if operation.name == "add" and not self._is_binary(operation):
            return None
        if operation.name in ("conv", "deconv", "linear"):
            keys = ("input", "filter")
            bias = inputs.get("bias") if isinstance(inputs.get("bias"), str) else None
        elif operation.name == "matmul":
            keys = ("A", "B")
        elif operation.name in ("add", "sub", "mul", "div"):
            product = self._biased_product(operation)
            if product is not None:
                return self._described_sum(place, product, name, scale, zero, lo, hi)
            resize = interpolations(self.graph, self.makers, name)
            if resize is not None:
                source = self._coded(resize[0].source)
                return Region(place, "resize", operation, (source,), None, name, scale, zero, lo, hi)
            keys = ("x", "y")
        else:
            keys = tuple(key for key in ("x", "input") if key in inputs)
        operands = tuple(self._operand(inputs[key], operation, key) for key in keys)
        kind = "sum" if operation.name in _SUMS else operation.name
        return Region(
            place, kind, operation, operands, bias if isinstance(bias, str) else None, result, scale, zero, lo, hi
        )

    def _is_binary(self, operation: GraphOperation) -> bool:
        return all(isinstance(operation.inputs[key], str) for key in ("x", "y"))

    def _biased_product(self, operation: GraphOperation) -> tuple[GraphOperation, str] | None:
        """For an addition of a stored bias to a product: the product and the bias."""
        if operation.name != "add":
            return None
        for one, other in (("x", "y"), ("y", "x")):
            left, right = operation.inputs[one], operation.inputs[other]
            if isinstance(left, str) and isinstance(right, str) and right not in self._computed:
                maker = self.makers.get(left)
                if maker is not None and maker.name in ("matmul", "linear"):
                    return maker, right
        return None

    def _described_sum(
        self, place: Place, product: tuple[GraphOperation, str], name: str, scale: Fraction, zero: int, lo: int, hi: int
    ) -> Region:
        operation, bias = product
        keys = ("A", "B") if operation.name == "matmul" else ("input", "filter")
        operands = tuple(self._operand(operation.inputs[key], operation, key) for key in keys)
        return Region(place, "sum", operation, operands, bias, name, scale, zero, lo, hi)

    # Scales of operands

    def _operand(self, operand: Any, operation: GraphOperation, key: str) -> Coded | None:
        if not isinstance(operand, str):
            return None
        tensor = self.graph.tensors[operand]
        if key in ("filter", "B") and tensor.data is not None:
            return self._weights(operand, operation)
        return self._coded(operand)

    def _weights(self, name: str, operation: GraphOperation) -> Coded | None:
        """A stored operand with a scale for all, or one for each output channel."""
        data = self.graph.tensors[name].data
        quantizer = None if data is None else data.quantizer
        if not isinstance(quantizer, LinearQuantizer):
            return None
        scales = np.array([float(scale) for scale in quantizer.scale])
        if scales.size > 1:
            rank = len(self.graph.tensors[operation.outputs[0]].shape)
            axis = 1 if operation.name in ("conv", "deconv") else rank - 1
            scales = scales.reshape([-1 if n == axis else 1 for n in range(rank)])
        else:
            scales = scales.reshape(())
        return Coded(name, scales, -int(quantizer.offset[0] / quantizer.scale[0]))

    def _coded(self, name: str) -> Coded | None:
        """A tensor that is an engine's tensor, or a move of one, with its scale and zero point."""
        start = name
        while True:
            tensor = self.graph.tensors[name]
            quantizer = tensor.quantizer
            if isinstance(quantizer, LinearQuantizer) and (tensor.kind == "external" or quantizer.scale[0] != 1):
                if tensor.kind != "external" or not quantizer.per_tensor:
                    return None
                zero = -int(quantizer.offset[0] / quantizer.scale[0])
                return Coded(start, np.array(float(quantizer.scale[0])), zero, quantizer.lo)
            operation = self.makers.get(name)
            if operation is None:
                return None
            if operation.name == "mul" and isinstance(operation.inputs["y"], Fraction):
                return self._dequantised(start, operation)
            if operation.name not in _MOVES:
                return None
            name = self._source(operation)

    def _dequantised(self, start: str, operation: GraphOperation) -> Coded | None:
        """ONNX: (code - zero point) * scale."""
        scale, source = operation.inputs["y"], operation.inputs["x"]
        below = self.makers.get(source) if isinstance(source, str) else None
        if below is None or below.name != "sub" or not isinstance(below.inputs["y"], Fraction):
            return None
        assert isinstance(scale, Fraction)
        codes = self.graph.tensors[str(below.inputs["x"])].quantizer
        lowest = codes.lo if isinstance(codes, LinearQuantizer) else 0
        return Coded(start, np.array(float(scale)), int(below.inputs["y"]), lowest)

    @staticmethod
    def _source(operation: GraphOperation) -> str:
        return str(operation.inputs["input" if "input" in operation.inputs else "x"])
