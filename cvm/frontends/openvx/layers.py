"""The functions that create nodes: those of section 2.1.4, and the normalisation of OpenVX 1.3.

Parameters stand in the order of the specification, without the sizes of structures in bytes, which Python does not
need. All functions raise `InvalidParameters`, `InvalidValue`, `InvalidReference` or `InvalidScope` for an argument that
is wrong by itself. Whether tensors fit each other is checked when the graph is verified.
"""

from __future__ import annotations

from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.graph import OpenvxNode, RecordedGraph, add_node
from cvm.frontends.openvx.objects import Tensor
from cvm.frontends.openvx.parameters import NNConvolutionParams, NNDeconvolutionParams, NNROIPoolParams

__all__ = [
    "activation_layer",
    "convolution_layer",
    "deconvolution_layer",
    "fully_connected_layer",
    "local_response_normalization_layer",
    "normalization_layer",
    "pooling_layer",
    "roi_pooling_layer",
    "softmax_layer",
]


def activation_layer(
    graph: RecordedGraph, inputs: Tensor, function: int, a: float, b: float, outputs: Tensor, *, name: str | None = None
) -> OpenvxNode:
    """VxActivationLayer: a function of every element. ``a`` and ``b`` are not negative."""
    return add_node(graph, Kernels.VX_KERNEL_ACTIVATION_LAYER, (inputs, function, a, b, outputs), name)


def convolution_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    weights: Tensor,
    biases: Tensor | None,
    convolution_params: NNConvolutionParams,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxConvolutionLayer: inputs [width, height, IFM, batches..], weights [kernel_x, kernel_y, IFM, OFM]."""
    arguments = (inputs, weights, biases, convolution_params, outputs)
    return add_node(graph, Kernels.VX_KERNEL_CONVOLUTION_LAYER, arguments, name)


def deconvolution_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    weights: Tensor,
    biases: Tensor | None,
    deconvolution_params: NNDeconvolutionParams,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxDeconvolutionLayer: inputs [width, height, IFM, batches], weights [width, height, IFM, OFM]."""
    arguments = (inputs, weights, biases, deconvolution_params, outputs)
    return add_node(graph, Kernels.VX_KERNEL_DECONVOLUTION_LAYER, arguments, name)


def fully_connected_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    weights: Tensor,
    biases: Tensor | None,
    overflow_policy: int,
    rounding_policy: int,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxFullyConnectedLayer: inputs [IFM, batches..] or [width, height, IFM, batches..], weights [IFM, OFM]."""
    arguments = (inputs, weights, biases, overflow_policy, rounding_policy, outputs)
    return add_node(graph, Kernels.VX_KERNEL_FULLY_CONNECTED_LAYER, arguments, name)


def local_response_normalization_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    type: int,
    normalization_size: int,
    alpha: float,
    beta: float,
    bias: float,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxLocalResponseNormalizationLayer of OpenVX 1.3: `normalization_layer` with a bias in place of 1."""
    arguments = (inputs, type, normalization_size, alpha, beta, bias, outputs)
    return add_node(graph, Kernels.VX_KERNEL_LOCAL_RESPONSE_NORMALIZATION_LAYER, arguments, name)


def normalization_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    type: int,
    normalization_size: int,
    alpha: float,
    beta: float,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxNormalizationLayer: ``normalization_size`` is 3, 5 or 7, ``alpha`` and ``beta`` are positive."""
    arguments = (inputs, type, normalization_size, alpha, beta, outputs)
    return add_node(graph, Kernels.VX_KERNEL_NORMALIZATION_LAYER, arguments, name)


def pooling_layer(
    graph: RecordedGraph,
    inputs: Tensor,
    pooling_type: int,
    pooling_size_x: int,
    pooling_size_y: int,
    pooling_padding_x: int,
    pooling_padding_y: int,
    rounding: int,
    outputs: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxPoolingLayer: the maximum or the mean of rectangles of [width, height, IFM, batches]."""
    arguments = (
        inputs, pooling_type, pooling_size_x, pooling_size_y, pooling_padding_x, pooling_padding_y, rounding, outputs
    )  # fmt: skip
    return add_node(graph, Kernels.VX_KERNEL_POOLING_LAYER, arguments, name)


def roi_pooling_layer(
    graph: RecordedGraph,
    input_data: Tensor,
    input_rois: Tensor,
    roi_pool_params: NNROIPoolParams,
    output_arr: Tensor,
    *,
    name: str | None = None,
) -> OpenvxNode:
    """VxROIPoolingLayer: regions [4, roi_count, batches], outputs [width, height, IFM, roi_count, batches]."""
    arguments = (input_data, input_rois, roi_pool_params, output_arr)
    return add_node(graph, Kernels.VX_KERNEL_ROI_POOLING_LAYER, arguments, name)


def softmax_layer(graph: RecordedGraph, inputs: Tensor, outputs: Tensor, *, name: str | None = None) -> OpenvxNode:
    """VxSoftmaxLayer: over dimension 0 of tensors with 1 or 2 dimensions, over dimension 2 of those with 3 or 4."""
    return add_node(graph, Kernels.VX_KERNEL_SOFTMAX_LAYER, (inputs, outputs), name)
