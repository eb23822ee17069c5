"""The checks of a node when its graph is verified: whether its tensors fit each other, and the attributes that follow.

Each check raises `InvalidFormat`, `InvalidDimension` or `InvalidValue`, and returns the attributes that it derives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from cvm.frontends.openvx.constants import Kernels, NormType
from cvm.frontends.openvx.errors import InvalidDimension, InvalidFormat, InvalidValue
from cvm.frontends.openvx.geometry import skip_of, upscale_of
from cvm.frontends.openvx.graph import OpenvxNode

__all__ = ["check_node", "divisor_bounds"]

Dims = tuple[int, ...]


def check_node(node: OpenvxNode) -> dict[str, int]:
    """Check the arguments of a node against each other. Returns the attributes that follow from the sizes of its
    tensors.
    """
    node.require_complete()
    tensors = node.tensors()
    for parameter, tensor in tensors:
        if tensor.released:
            raise InvalidValue(
                "tensor.released", f"{parameter.name} was released", node.location(parameter.name), node.label
            )
        if not tensor.dims:
            message = f"{parameter.name} is a virtual tensor without dimensions; give them, they cannot be derived"
            raise InvalidDimension("tensor.dims", message, node.location(parameter.name), node.label)
        if tensor.format is None:
            message = f"{parameter.name} is a virtual tensor without a data type; give it one"
            raise InvalidFormat("tensor.data_type", message, node.location(parameter.name), node.label)
    first = tensors[0][1]
    for parameter, tensor in tensors:
        if tensor.format != first.format:
            kinds = f"{parameter.name} is {tensor!r}, {tensors[0][0].name} is {first!r}"
            message = f"{kinds}: all tensors of a node have one format"
            raise InvalidFormat("node.format", message, node.location(parameter.name), node.label)
    return _CHECKS[node.declaration.kernel](node)


def _wrong(node: OpenvxNode, parameter: str, message: str) -> InvalidDimension:
    return InvalidDimension(
        f"{node.declaration.function}.dims", f"{parameter}: {message}", node.location(parameter), node.label
    )


def _require(node: OpenvxNode, parameter: str, found: Dims, wanted: Dims) -> None:
    if found != wanted:
        raise _wrong(node, parameter, f"dimensions {list(wanted)} are needed, found {list(found)}")


def _ranks(node: OpenvxNode, parameter: str, *ranks: int) -> Dims:
    dims: Dims = node[parameter].dims
    if len(dims) not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise _wrong(node, parameter, f"{wanted} dimensions are needed, found {len(dims)}")
    return dims


def _least(node: OpenvxNode, parameter: str, rank: int) -> Dims:
    dims: Dims = node[parameter].dims
    if len(dims) < rank:
        raise _wrong(node, parameter, f"at least {rank} dimensions are needed, found {len(dims)}")
    return dims


def _skips(node: OpenvxNode, sizes: Dims, paddings: Dims, rounding: Any, dilations: Dims = (0, 0)) -> dict[str, int]:
    inputs, outputs = node["inputs"].dims, node["outputs"].dims
    found = {}
    for i, axis in enumerate("xy"):
        arguments = (inputs[i], outputs[i], sizes[i], paddings[i], rounding, dilations[i])
        skip = skip_of(*arguments)
        if skip is None:
            message = (
                f"no skip leads from {inputs[i]} items with windows of {sizes[i]} (padding {paddings[i]}, dilation "
                f"{dilations[i]}, {rounding.name}) to {outputs[i]} in {axis}"
            )
            raise _wrong(node, "outputs", message)
        found[f"skip_{axis}"] = skip
    return found


def _biases(node: OpenvxNode, maps: int, extents: Dims | None) -> None:
    biases = node["biases"]
    if biases is None:
        return
    wanted: tuple[Dims, ...] = ((maps,), (*extents, maps)) if extents else ((maps,),)
    if biases.dims not in wanted:
        kinds = " or ".join(str(list(dims)) for dims in wanted)
        raise _wrong(node, "biases", f"dimensions {kinds} are needed, found {list(biases.dims)}")


def _convolution(node: OpenvxNode) -> dict[str, int]:
    inputs, weights = _least(node, "inputs", 3), _ranks(node, "weights", 4)
    outputs, params = _least(node, "outputs", 3), node["convolution_params"]
    _require(node, "weights", weights[2:3], inputs[2:3])
    _require(node, "outputs", outputs[2:], (weights[3], *inputs[3:]))
    _biases(node, weights[3], outputs[:2])
    return _skips(
        node, weights[:2], (params.padding_x, params.padding_y), params.down_scale_size_rounding,
        (params.dilation_x, params.dilation_y),
    )  # fmt: skip


def _deconvolution(node: OpenvxNode) -> dict[str, int]:
    inputs, weights = _ranks(node, "inputs", 3, 4), _ranks(node, "weights", 4)
    outputs, params = _ranks(node, "outputs", 3, 4), node["deconvolution_params"]
    _require(node, "weights", weights[2:3], inputs[2:3])
    _require(node, "outputs", outputs[2:], (weights[3], *inputs[3:]))
    _biases(node, weights[3], None)
    found = {}
    for i, axis in enumerate("xy"):
        padding, a = (getattr(params, f"{name}_{axis}") for name in ("padding", "a"))
        if weights[i] < padding - 1:
            message = f"kernel_{axis} >= padding_{axis} - 1 is needed, found {weights[i]} and {padding}"
            raise _wrong(node, "weights", message)
        upscale = upscale_of(inputs[i], outputs[i], weights[i], padding, a)
        if upscale is None:
            sum_of_sizes = f"(size - 1) * upscale - 2 * {padding} + {weights[i]} + {a}"
            message = f"no upscale leads from {inputs[i]} items to {outputs[i]} in {axis}: {sum_of_sizes}"
            raise _wrong(node, "outputs", message)
        if a >= upscale:
            message = f"a_{axis} must be less than upscale_{axis} = {upscale}, found {a}"
            raise InvalidValue("deconvolution_layer.a", message, node.location("deconvolution_params"), node.label)
        found[f"upscale_{axis}"] = upscale
    return found


def _fully_connected(node: OpenvxNode) -> dict[str, int]:
    inputs, weights = _least(node, "inputs", 1), _ranks(node, "weights", 2, 4)
    outputs = _least(node, "outputs", 1)
    maps = weights[-1]
    _biases(node, maps, None)
    for core in (1, 3) if len(weights) == 2 else (3,):
        fits = weights[:-1] in (inputs[:core], (math.prod(inputs[:core]),))
        if core <= len(inputs) and fits and outputs == (maps, *inputs[core:]):
            return {"core": core}
    message = (
        f"weights {list(weights)} do not lead from inputs {list(inputs)} to outputs {list(outputs)}: [IFM, batches..] "
        "or [width, height, IFM, batches..] to [OFM, batches..]"
    )
    raise _wrong(node, "weights", message)


def _pooling(node: OpenvxNode) -> dict[str, int]:
    inputs, outputs = _ranks(node, "inputs", 3, 4), _ranks(node, "outputs", 3, 4)
    _require(node, "outputs", outputs[2:], inputs[2:])
    sizes, paddings = (
        tuple(node[f"pooling_{what}_{axis}"] for axis in "xy") for what in ("size", "padding")
    )  # fmt: skip
    return _skips(node, sizes, paddings, node["rounding"])


def _alike(node: OpenvxNode) -> dict[str, int]:
    _require(node, "outputs", node["outputs"].dims, node["inputs"].dims)
    return {}


def _softmax(node: OpenvxNode) -> dict[str, int]:
    inputs = _ranks(node, "inputs", 1, 2, 3, 4)
    _alike(node)
    return {"axis": 0 if len(inputs) < 3 else 2}


def _normalization(node: OpenvxNode) -> dict[str, int]:
    _ranks(node, "inputs", 3, 4)
    _alike(node)
    size = node["normalization_size"]
    return {"count": size if node["type"] == NormType.VX_NN_NORMALIZATION_ACROSS_MAPS else size * size}


def divisor_bounds(node: OpenvxNode) -> tuple[Fraction, Fraction]:
    """The bias and the alpha of a normalisation, as rationals."""
    bias = node["bias"]
    return Fraction(1) if bias is None else bias, node["alpha"]


def _roi(node: OpenvxNode) -> dict[str, int]:
    inputs, rois = _ranks(node, "inputs", 3, 4), _ranks(node, "inputs_rois", 2, 3)
    outputs = _ranks(node, "output_arr", 4, 5)
    _require(node, "inputs_rois", (*rois[:1], *rois[2:]), (4, *inputs[3:]))
    _require(node, "output_arr", outputs[2:], (inputs[2], *rois[1:]))
    return {}


_CHECKS: Mapping[Kernels, Callable[[OpenvxNode], dict[str, int]]] = {
    Kernels.VX_KERNEL_CONVOLUTION_LAYER: _convolution,
    Kernels.VX_KERNEL_FULLY_CONNECTED_LAYER: _fully_connected,
    Kernels.VX_KERNEL_POOLING_LAYER: _pooling,
    Kernels.VX_KERNEL_SOFTMAX_LAYER: _softmax,
    Kernels.VX_KERNEL_NORMALIZATION_LAYER: _normalization,
    Kernels.VX_KERNEL_ACTIVATION_LAYER: _alike,
    Kernels.VX_KERNEL_ROI_POOLING_LAYER: _roi,
    Kernels.VX_KERNEL_DECONVOLUTION_LAYER: _deconvolution,
    Kernels.VX_KERNEL_LOCAL_RESPONSE_NORMALIZATION_LAYER: _normalization,
}
