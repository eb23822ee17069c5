"""Cross-layer equalisation: channels between two linear layers are rescaled so that one quantiser suits all of them.

If only positively homogeneous functions, f(s x) = s f(x) for s > 0, lie between two linear layers, channel i of the
first may be multiplied by s[i] and the second divides it by s[i]: the function of the graph does not change. Every s[i]
is a power of two, so even the float64 outputs do not change by a bit (except where numbers leave the range of float64).

Let r1[i] be the greatest magnitude of a channel, and r2[i] that of the second layer's weights for it; then s[i] is the
power of two nearest to sqrt(r2[i] / r1[i]). r1 is taken from the first layer's weights; where these have a scale per
channel, or a normalisation lies between, it is taken from the numbers that the second layer reads on the data.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721,
section 4.1; for r1 from data, Xiao et al., "SmoothQuant", arXiv:2211.10438, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.blocks import greatest, made_in_blocks
from cvm.calibration.contents import Floats, owned, stored_floats, with_contents
from cvm.calibration.observing import Measurements, measure
from cvm.calibration.roles import Product, Uses, filter_axis
from cvm.graph import GraphOperation, Operand, QuantizedGraph, verify
from cvm.records import dataclass

__all__ = ["Rescaled", "equalized", "magnitudes_wanted"]

_HOMOGENEOUS = frozenset(("copy", "relu", "leaky_relu", "prelu"))

_MOST = 16
"""The greatest exponent of the power of two by which a channel is multiplied or divided."""


@dataclass(frozen=True, slots=True)
class Rescaled:
    """One rescaling: channel i of ``tensor``, which the second layer reads, is multiplied by 2^``exponents``[i]."""

    tensor: str
    filters: tuple[str, str]
    """The filters of the two layers."""
    exponents: tuple[int, ...]


@dataclass(slots=True)
class _Pair:
    """Two layers: the stored tensors to multiply, each with its axis of channels, and the filter to divide."""

    tensor: str
    channels: int
    axis: int
    first: str
    weights: str | None
    """The filter of the first layer, where it is to be multiplied; None where a normalisation lies between."""
    multiplied: dict[str, int] = field(default_factory=dict)
    second: str = ""
    reader: GraphOperation | None = None


def magnitudes_wanted(graph: QuantizedGraph, per_channel: bool) -> dict[str, int]:
    """The tensors whose magnitudes by channel `equalized` takes from data, with their axes of channels."""
    return {pair.tensor: pair.axis for pair in _pairs(Uses(graph)) if per_channel or pair.weights is None}


def equalized(
    graph: QuantizedGraph,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    per_channel: bool,
    cycles: bool = False,
    known: Mapping[str, Floats] = MappingProxyType({}),
) -> tuple[QuantizedGraph, tuple[Rescaled, ...]]:
    """The graph with rescaled channels, and the rescalings; tensors with a quantiser or codes are not changed.

    ``per_channel`` says that filters get a scale for each output channel. ``known`` are magnitudes that were measured
    before (`magnitudes_wanted`); the graph is evaluated if some are not there. Raises the errors of `Reference.run`.
    """
    wanted, magnitudes = magnitudes_wanted(graph, per_channel), known
    if not wanted.keys() <= known.keys():
        magnitudes = measure(graph, inputs, Measurements(magnitudes=wanted), cycles).magnitudes
    found = []
    for pair in list(_pairs(Uses(graph))):
        weights = None if pair.tensor in wanted else pair.weights
        first = magnitudes[pair.tensor] if weights is None else _per_index(graph, weights, pair.multiplied[weights])
        exponents = _exponents(first, _of_inputs(graph, pair))
        changed = _rescaled(graph, pair, exponents)
        if changed:
            graph = with_contents(graph, changed)
            found.append(Rescaled(pair.tensor, (pair.first, pair.second), tuple(exponents.tolist())))
    return (verify(graph, "the calibration") if found else graph), tuple(found)


def _pairs(uses: Uses) -> Iterator[_Pair]:
    for operation in uses.graph.operations:
        factors = uses.product(operation)
        pair = None if factors is None else _begun(uses, operation, factors)
        if pair is not None and _followed(uses, pair, operation.outputs[0]):
            yield pair


def _begun(uses: Uses, operation: GraphOperation, factors: Product) -> _Pair | None:
    """The first layer of a pair; None where its weights must not be changed."""
    weights = owned(uses, factors.filter)
    shape = uses.graph.tensors[factors.filter].shape
    parameter = next(name for name, value in operation.inputs.items() if value == factors.filter)
    axis = filter_axis(operation, parameter, len(shape), shape[1] if len(shape) > 1 else 1)
    extent = uses.graph.tensors[operation.outputs[0]].shape[factors.channels]
    if weights != factors.filter or axis is None or axis < 0 or shape[axis] != extent:
        return None
    pair = _Pair("", extent, factors.channels, weights, weights, {weights: axis})
    bias = operation.inputs.get("bias", False)
    return pair if _takes(uses, pair, bias) else None


def _takes(uses: Uses, pair: _Pair, operand: Operand) -> bool:
    """Whether an operand that is added to the channels can be multiplied with them; if so, it is
    recorded in the pair.
    """
    if not isinstance(operand, str):
        return operand == 0
    name, shape = owned(uses, operand), uses.graph.tensors[operand].shape
    if name is None or len(shape) <= pair.axis or shape[pair.axis] != pair.channels:
        return False
    if uses.graph.tensors[name].shape == shape:
        pair.multiplied[name] = pair.axis
        return True
    if uses.graph.tensors[name].shape != (pair.channels,):
        return False
    pair.multiplied[name] = 0
    return True


def _followed(uses: Uses, pair: _Pair, name: str) -> bool:
    """Follow the result of the first layer to a second layer. Returns whether there is one."""
    while (reader := uses.only_reader(name)) is not None and uses.graph.tensors[name].quantizer is None:
        operation, parameter = reader
        factors = uses.product(operation)
        if factors is not None and factors.input == name:
            return _ended(uses, pair, operation, factors)
        if not _passes(uses, pair, operation, parameter, name):
            return False
        name = operation.outputs[0]
    return False


def _passes(uses: Uses, pair: _Pair, operation: GraphOperation, parameter: str, name: str) -> bool:
    """Whether an operation maps multiplied channels to multiplied channels; what it adds must be multiplied, too."""
    others = [value for key, value in operation.inputs.items() if key != parameter]
    tensors = uses.graph.tensors
    if not all(map(uses.fixed, others)) or tensors[operation.outputs[0]].shape != tensors[name].shape:
        return False
    if operation.name in _HOMOGENEOUS:
        return parameter == "x"
    if operation.name == "add":
        return _takes(uses, pair, others[0])
    if operation.name == "batch_normalization" and parameter == "input":
        pair.multiplied.clear()
        pair.weights = None
        scale, offset = operation.inputs["scale"], operation.inputs["offset"]
        return isinstance(scale, str) and _takes(uses, pair, scale) and _takes(uses, pair, offset)
    return False


def _ended(uses: Uses, pair: _Pair, operation: GraphOperation, factors: Product) -> bool:
    """Whether the operation is a second layer whose weights can be divided, per channel of its input."""
    shape = uses.graph.tensors[factors.input].shape
    axis = 1
    if operation.name == "matmul":
        swapped = operation.attributes["transposeA" if operation.inputs["A"] == factors.input else "transposeB"]
        is_left = operation.inputs["A"] == factors.input
        axis = len(shape) - (1 if is_left != bool(swapped) else 2)
    pair.tensor, pair.second, pair.reader = factors.input, factors.filter, operation
    return axis == pair.axis and owned(uses, factors.filter) == factors.filter and factors.filter != pair.first


def _channel_of_items(graph: QuantizedGraph, pair: _Pair) -> npt.NDArray[np.int64]:
    """For each element of the second filter, the input channel that it multiplies, as an array that broadcasts to the
    filter.

    A grouped convolution has filters of shape [outputs, channels of one group, ...].
    """
    operation, shape = pair.reader, graph.tensors[pair.second].shape
    assert operation is not None
    ones = (1,) * (len(shape) - 2)
    if operation.name == "conv":
        groups = pair.channels // shape[1]
        group = np.arange(shape[0]) // (shape[0] // groups)
        return (group[:, None] * shape[1] + np.arange(shape[1])).reshape(*shape[:2], *ones)
    if operation.name == "deconv":
        return np.arange(shape[0]).reshape(-1, 1, *ones)
    if operation.name == "linear":
        return np.arange(shape[1])[None]
    is_right = operation.inputs["B"] == pair.second
    swapped = bool(operation.attributes["transposeB" if is_right else "transposeA"])
    axis = len(shape) - (2 if is_right != swapped else 1)
    return np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _of_inputs(graph: QuantizedGraph, pair: _Pair) -> Floats:
    """The greatest magnitude of the second layer's weights for each input channel."""
    channels = _channel_of_items(graph, pair)
    weights = greatest(stored_floats(graph, pair.second), tuple(i for i, n in enumerate(channels.shape) if n == 1))
    found = np.zeros(pair.channels)
    np.maximum.at(found, channels.ravel(), weights.ravel())
    return found


def _per_index(graph: QuantizedGraph, name: str, axis: int) -> Floats:
    """The greatest magnitude of a stored tensor for each index of an axis."""
    values = stored_floats(graph, name)
    return greatest(values, tuple(i for i in range(values.ndim) if i != axis)).reshape(-1)


def _exponents(first: Floats, second: Floats) -> npt.NDArray[np.int64]:
    """round(log2(sqrt(second / first))) minus the median; 0 for channels that are zero in either layer."""
    used = (first > 0.0) & (second > 0.0) & np.isfinite(first)
    halves = np.zeros(len(first))
    halves[used] = (np.log2(second[used]) - np.log2(first[used])) / 2
    if used.any():
        halves[used] -= np.median(halves[used])
    return np.clip(np.rint(halves), -_MOST, _MOST).astype(np.int64)


def _rescaled(graph: QuantizedGraph, pair: _Pair, exponents: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """The new contents of the multiplied and divided tensors; empty where nothing changes, or a number would be
    rounded.
    """
    if not exponents.any():
        return {}
    powers = {}
    for name, axis in pair.multiplied.items():
        powers[name] = exponents.reshape([-1 if i == axis else 1 for i in range(len(graph.tensors[name].shape))])
    powers[pair.second] = -exponents[_channel_of_items(graph, pair)]
    try:
        return {name: _multiplied(stored_floats(graph, name), power) for name, power in powers.items()}
    except _Inexact:
        return {}


class _Inexact(Exception):
    """A product is no number of the floating-point type in which the tensor is stored."""


def _multiplied(values: npt.NDArray[Any], powers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Numbers times powers of two, in their floating-point type. Raises `_Inexact` where one would be rounded."""
    powers = np.broadcast_to(powers, values.shape)

    def block(at: tuple[Any, ...]) -> npt.NDArray[Any]:
        before = values[at].astype(np.float64)
        with np.errstate(all="ignore"):
            after: npt.NDArray[Any] = np.ldexp(before, powers[at]).astype(values.dtype)
        if not np.array_equal(np.ldexp(after.astype(np.float64), -powers[at]), before):
            raise _Inexact
        return after

    return made_in_blocks(values.shape, values.dtype, block)
