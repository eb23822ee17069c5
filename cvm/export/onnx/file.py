"""An ONNX model with the quantisers that calibration found for it, as QuantizeLinear and DequantizeLinear nodes.

The nodes of the model stay as they are. An activation is quantised after the node that computes it (an input, before
the nodes that read it); a filter is stored as codes, which a DequantizeLinear converts to numbers. Engines then run the
same quantised network that `cvm compile` reads from the file.

ONNX keeps scales as float32, zero points as codes, and rounds half to even. So scales are rounded up to float32, and
ranges are widened to contain zero; the program of the file differs a little from that of ``-o model.cvm``.

Source: ONNX operators QuantizeLinear and DequantizeLinear, since opset 10, per axis since 13; of 16 bits since 21, and
in the domain com.microsoft before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.calibration import CalibratedTensor, Calibration
from cvm.calibration.roles import moved_operands
from cvm.errors import Location, Unsupported
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import quantize, round_fraction
from cvm.records import dataclass

__all__ = ["Grid", "float32_above", "grid_of", "quantized_model"]

_TYPES: Mapping[int, type[np.integer[Any]]] = MappingProxyType({8: np.uint8, 16: np.uint16})
"""The data type of the codes of an activation, by bits."""

_PER_AXIS, _WIDE = 13, 21
"""The opsets from which on scales per axis and codes of 16 bits are defined."""

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """A quantiser in the terms of ONNX: float32 scales, zero points in the type of the codes, and the axis of the
    scales.
    """

    scales: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.integer[Any]]
    axis: int | None

    @property
    def quantizer(self) -> LinearQuantizer:
        """The same quantiser with exact scales."""
        scales = tuple(Fraction(float(scale)) for scale in self.scales)
        offsets = tuple(-int(zero) * scale for zero, scale in zip(self.zeros, scales, strict=True))
        ends = np.iinfo(self.zeros.dtype)
        return LinearQuantizer(scales, offsets, int(ends.min), int(ends.max), self.axis, rounding="half_even")


def quantized_model(data: bytes, calibration: Calibration) -> bytes:
    """The file of an ONNX model, given as bytes, with the quantisers of ``calibration`` added.

    Raises `Unsupported` (``export.onnx.*``): ``package`` where the package onnx is missing; ``tensor`` for a quantiser
    of a tensor that no node of the file computes, such as one inside of an operator; ``bits`` for codes of other than 8
    or 16 bits; ``opset`` for a model before opset 13.
    """
    try:
        import onnx
    except ImportError:
        advice = "install it: pip install 'cvm[onnx]'"
        raise Unsupported("export.onnx.package", f"writing models of ONNX needs the package onnx; {advice}") from None
    model = onnx.load_model_from_string(data)
    if _opset(model) < _PER_AXIS:
        message = f"the model is of opset {_opset(model)}, and scales per axis are of opset {_PER_AXIS}"
        advice = f"convert it first: onnx.version_converter.convert_version(model, {_PER_AXIS})"
        raise Unsupported("export.onnx.opset", f"{message}; {advice}")
    writer = _Writer(onnx, model)
    shown = {item.name: item.quantizer for item in calibration.tensors if writer.has(item.name)}
    for item in calibration.tensors:
        home = _home(calibration.graph, item.name, writer.has)
        if item.name in shown or (home not in shown and item.quantizer not in shown.values()):
            writer.add(replace(item, name=home))
    writer.finish()
    found: bytes = model.SerializeToString()
    return found


def _home(graph: QuantizedGraph, name: str, is_in_file: Callable[[str], bool]) -> str:
    """The tensor of the file that a tensor inside of an operator is a move of; or the name itself."""
    sources = {result: operation for operation in graph.operations for result in operation.outputs}
    found = name
    while not is_in_file(found):
        moved = moved_operands(sources[found]) if found in sources else ()
        if len(moved) != 1:
            return name
        (found,) = moved
    return found


def _opset(model: Any) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


class _Writer:
    def __init__(self, onnx: Any, model: Any) -> None:
        self._onnx, self._model, self._graph = onnx, model, model.graph
        self._opset = _opset(model)
        self._stored = {item.name: item for item in self._graph.initializer}
        self._inputs = {item.name for item in self._graph.input} - set(self._stored)
        self._computed = {name: node for node in self._graph.node for name in node.output}
        self._added: dict[str, list[Any]] = {}
        self._uses_microsoft = False
        for node in self._graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                message = f"{node.op_type} contains a graph, and quantisers cannot be added inside of it"
                raise Unsupported("export.onnx.tensor", message, Location(op=node.op_type))

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self._stored or name in self._inputs or name in self._computed

    def add(self, item: CalibratedTensor) -> None:
        """Quantise one tensor of the file."""
        name = item.name
        if not isinstance(item.quantizer, LinearQuantizer):
            raise Unsupported("export.onnx.form", "ONNX has no logarithmic quantiser", Location(tensor=name))
        if item.quantizer.hi - item.quantizer.lo > 2**16:
            return  # integers need no quantiser in the file
        grid = _grid(item, item.quantizer)
        if name in self._stored:
            self._store(name, grid)
        elif name in self._inputs:
            self._insert(name, f"{name}_dequantized", grid, name)
            for node in self._graph.node:
                node.input[:] = [f"{name}_dequantized" if other == name else other for other in node.input]
        elif name in self._computed:
            node = self._computed[name]
            node.output[:] = [f"{name}_real" if other == name else other for other in node.output]
            self._insert(f"{name}_real", name, grid, name)
        else:
            message = "this tensor is inside of an operator, where the file cannot hold a quantiser"
            raise Unsupported(
                "export.onnx.tensor", f"{message}: keep the program (-o model.cvm)", Location(tensor=name)
            )

    def finish(self) -> None:
        """Insert the new nodes: before all nodes of the file, or after the node that computes what they read."""
        nodes = list(self._graph.node)
        del self._graph.node[:]
        self._graph.node.extend(self._added.pop("", []))
        for node in nodes:
            self._graph.node.append(node)
            for name in node.output:
                self._graph.node.extend(self._added.pop(name, []))
        domains = {entry.domain for entry in self._model.opset_import}
        if self._uses_microsoft and _MICROSOFT not in domains:
            self._model.opset_import.append(self._onnx.helper.make_opsetid(_MICROSOFT, 1))

    def _store(self, name: str, grid: Grid) -> None:
        """Store a tensor as codes, and add a DequantizeLinear that gives its numbers under the same name."""
        initializer = self._stored.pop(name)
        values = self._onnx.numpy_helper.to_array(initializer)
        codes = quantize(values, grid.quantizer).astype(grid.zeros.dtype)
        self._graph.initializer.remove(initializer)
        # Older models list stored tensors among the inputs.
        kept = [item for item in self._graph.input if item.name != name]
        if len(kept) < len(self._graph.input):
            del self._graph.input[:]
            self._graph.input.extend(kept)
        self._constant(f"{name}_codes", codes)
        self._node("DequantizeLinear", [f"{name}_codes"], name, grid, name, "")

    def _insert(self, source: str, result: str, grid: Grid, label: str) -> None:
        after = "" if source in self._inputs else source
        self._node("QuantizeLinear", [source], f"{label}_codes", grid, label, after)
        self._node("DequantizeLinear", [f"{label}_codes"], result, grid, label, after)

    def _node(self, op: str, inputs: list[str], result: str, grid: Grid, label: str, after: str) -> None:
        """A new node that follows the node that computes ``after``, or precedes all nodes where ``after`` is ""."""
        helper, attributes = self._onnx.helper, {} if grid.axis is None else {"axis": grid.axis}
        shape = () if grid.axis is None else grid.scales.shape
        self._constant(f"{label}_scale", grid.scales.reshape(shape))
        self._constant(f"{label}_zero", grid.zeros.reshape(shape))
        domain = _MICROSOFT if grid.zeros.dtype.itemsize > 1 and self._opset < _WIDE else ""
        self._uses_microsoft |= bool(domain)
        parameters = [f"{label}_scale", f"{label}_zero"]
        node = helper.make_node(op, inputs + parameters, [result], f"{result}_{op}", domain=domain, **attributes)
        self._added.setdefault(after, []).append(node)

    def _constant(self, name: str, values: npt.NDArray[Any]) -> None:
        if all(item.name != name for item in self._graph.initializer):
            self._graph.initializer.append(self._onnx.numpy_helper.from_array(values, name))


def _grid(item: CalibratedTensor, quantizer: LinearQuantizer) -> Grid:
    """The quantiser with scales that are float32 numbers and a range that contains zero; filters are symmetric."""
    bits = (quantizer.hi - quantizer.lo).bit_length()
    if item.role == "filter":
        scales = np.array([float32_above(scale) for scale in quantizer.scale])
        return Grid(scales, np.zeros(scales.shape, np.int8 if bits <= 8 else np.int16), quantizer.axis)
    if bits not in _TYPES:
        message = f"codes of {bits} bits have no type in ONNX: use --bits 8 or 16"
        raise Unsupported("export.onnx.bits", message, Location(tensor=item.name))
    return grid_of(quantizer, bits)


def grid_of(quantizer: LinearQuantizer, bits: int) -> Grid:
    """The quantiser of an activation with codes of 8 or 16 bits, with a range that contains zero."""
    (scale,), (offset,), codes = quantizer.scale, quantizer.offset, 2**bits - 1
    low, high = min(scale * quantizer.lo + offset, Fraction(0)), max(scale * quantizer.hi + offset, Fraction(0))
    held = float32_above(max(scale, (high - low) / codes))
    zero = min(round_fraction(-low / Fraction(float(held)), "half_up"), codes)
    return Grid(np.array([held]), np.array([zero], _TYPES[bits]), None)


def float32_above(scale: Fraction) -> np.float32:
    """The least float32 that is not below a positive rational."""
    found = np.float32(float(scale))
    return found if Fraction(float(found)) >= scale else np.nextafter(found, np.float32(np.inf))
