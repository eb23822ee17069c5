"""The OpenVX neural-network extension (KHR_NN_8, KHR_NN_16) over the integer machine.

Functions have the names of OpenVX without ``vx``, in snake_case, with the same parameters; enumerators have their C
names, with or without ``VX_``. A graph is created, verified and processed:

    context = create_context()
    graph = create_graph(context)
    ...                                   # tensors, and nodes such as convolution_layer(graph, ..)
    verify_graph(graph)                   # or graph.verify()
    process_graph(graph)                  # or graph.process()

``graph.program`` is an ordinary `cvm.Program`. ``docs/openvx.md`` says what each kernel computes.
"""

from __future__ import annotations

from enum import IntEnum

from cvm.frontends.openvx.constants import constant, constants
from cvm.frontends.openvx.errors import (
    Error,
    InvalidDimension,
    InvalidFormat,
    InvalidGraph,
    InvalidParameters,
    InvalidReference,
    InvalidScope,
    InvalidType,
    InvalidValue,
    MultipleWriters,
    NotAllocated,
    NotImplementedKernel,
    NotSufficient,
    NotSupported,
)
from cvm.frontends.openvx.geometry import skip_of, upscale_of
from cvm.frontends.openvx.graph import (
    Kernel,
    OpenvxNode,
    create_generic_node,
    get_kernel_by_enum,
    get_kernel_by_name,
    set_parameter_by_index,
)
from cvm.frontends.openvx.layers import (
    activation_layer,
    convolution_layer,
    deconvolution_layer,
    fully_connected_layer,
    local_response_normalization_layer,
    normalization_layer,
    pooling_layer,
    roi_pooling_layer,
    softmax_layer,
)
from cvm.frontends.openvx.objects import (
    Context,
    Reference,
    Scalar,
    Tensor,
    copy_tensor_patch,
    create_scalar,
    create_tensor,
    create_tensor_from_view,
    create_virtual_tensor,
)
from cvm.frontends.openvx.parameters import NNConvolutionParams, NNDeconvolutionParams, NNROIPoolParams
from cvm.openvx.graph import (
    Graph,
    create_context,
    create_graph,
    is_graph_verified,
    process_graph,
    query_context,
    query_graph,
    query_tensor,
    release,
    set_reference_name,
    verify_graph,
)

__all__ = [
    "Context",
    "Error",
    "Graph",
    "InvalidDimension",
    "InvalidFormat",
    "InvalidGraph",
    "InvalidParameters",
    "InvalidReference",
    "InvalidScope",
    "InvalidType",
    "InvalidValue",
    "Kernel",
    "MultipleWriters",
    "NNConvolutionParams",
    "NNDeconvolutionParams",
    "NNROIPoolParams",
    "NotAllocated",
    "NotImplementedKernel",
    "NotSufficient",
    "NotSupported",
    "OpenvxNode",
    "Reference",
    "Scalar",
    "Tensor",
    "activation_layer",
    "convolution_layer",
    "copy_tensor_patch",
    "create_context",
    "create_generic_node",
    "create_graph",
    "create_scalar",
    "create_tensor",
    "create_tensor_from_view",
    "create_virtual_tensor",
    "deconvolution_layer",
    "fully_connected_layer",
    "get_kernel_by_enum",
    "get_kernel_by_name",
    "is_graph_verified",
    "local_response_normalization_layer",
    "normalization_layer",
    "pooling_layer",
    "process_graph",
    "query_context",
    "query_graph",
    "query_tensor",
    "release",
    "roi_pooling_layer",
    "set_parameter_by_index",
    "set_reference_name",
    "skip_of",
    "softmax_layer",
    "upscale_of",
    "verify_graph",
]


def __getattr__(name: str) -> IntEnum:
    """An enumerator by its C name: ``VX_TYPE_INT16``, or ``TYPE_INT16``."""
    try:
        return constant(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *constants()])
