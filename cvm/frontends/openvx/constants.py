"""Enumerations of OpenVX 1.2 and of its neural network extension, with their C names and C values.

Every constant is also available without the prefix ``VX_``.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ENUMERATIONS",
    "Activation",
    "Attribute",
    "ConvertPolicy",
    "GraphState",
    "Kernels",
    "NormType",
    "Pooling",
    "RoundPolicy",
    "SizeRounding",
    "Status",
    "Type",
    "constant",
    "constants",
]


def _base(number: int) -> int:
    """VX_ENUM_BASE(VX_ID_KHRONOS, number), which equals VX_KERNEL_BASE."""
    return number << 12


class Status(IntEnum):
    """vx_status_e."""

    VX_SUCCESS = 0
    VX_FAILURE = -1
    VX_ERROR_NOT_IMPLEMENTED = -2
    VX_ERROR_NOT_SUPPORTED = -3
    VX_ERROR_NOT_SUFFICIENT = -4
    VX_ERROR_NOT_ALLOCATED = -5
    VX_ERROR_NOT_COMPATIBLE = -6
    VX_ERROR_NO_RESOURCES = -7
    VX_ERROR_NO_MEMORY = -8
    VX_ERROR_OPTIMIZED_AWAY = -9
    VX_ERROR_INVALID_PARAMETERS = -10
    VX_ERROR_INVALID_MODULE = -11
    VX_ERROR_INVALID_REFERENCE = -12
    VX_ERROR_INVALID_LINK = -13
    VX_ERROR_INVALID_FORMAT = -14
    VX_ERROR_INVALID_DIMENSION = -15
    VX_ERROR_INVALID_VALUE = -16
    VX_ERROR_INVALID_TYPE = -17
    VX_ERROR_INVALID_GRAPH = -18
    VX_ERROR_INVALID_NODE = -19
    VX_ERROR_INVALID_SCOPE = -20
    VX_ERROR_GRAPH_SCHEDULED = -21
    VX_ERROR_GRAPH_ABANDONED = -22
    VX_ERROR_MULTIPLE_WRITERS = -23
    VX_ERROR_REFERENCE_NONZERO = -24
    VX_STATUS_MIN = -25


class Type(IntEnum):
    """vx_type_e, restricted to the types of tensors and scalars, and vx_nn_type_e."""

    VX_TYPE_INVALID = 0x000
    VX_TYPE_INT8 = 0x002
    VX_TYPE_UINT8 = 0x003
    VX_TYPE_INT16 = 0x004
    VX_TYPE_UINT16 = 0x005
    VX_TYPE_INT32 = 0x006
    VX_TYPE_UINT32 = 0x007
    VX_TYPE_FLOAT32 = 0x00A
    VX_TYPE_ENUM = 0x00C
    VX_TYPE_SIZE = 0x00D
    VX_TYPE_NN_CONVOLUTION_PARAMS = 0x025
    VX_TYPE_NN_DECONVOLUTION_PARAMS = 0x026
    VX_TYPE_NN_ROI_POOL_PARAMS = 0x027
    VX_TYPE_REFERENCE = 0x800
    VX_TYPE_CONTEXT = 0x801
    VX_TYPE_GRAPH = 0x802
    VX_TYPE_NODE = 0x803
    VX_TYPE_KERNEL = 0x804
    VX_TYPE_SCALAR = 0x80D
    VX_TYPE_TENSOR = 0x815


class EnumType(IntEnum):
    """vx_enum_e, restricted to the enumerations of this module, and vx_nn_enum_e."""

    VX_ENUM_DIRECTION = 0x00
    VX_ENUM_CONVERT_POLICY = 0x0A
    VX_ENUM_ACCESSOR = 0x11
    VX_ENUM_ROUND_POLICY = 0x12
    VX_ENUM_GRAPH_STATE = 0x15
    VX_ENUM_NN_ROUNDING_TYPE = 0x1A
    VX_ENUM_NN_POOLING_TYPE = 0x1B
    VX_ENUM_NN_NORMALIZATION_TYPE = 0x1C
    VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE = 0x1D


class ConvertPolicy(IntEnum):
    """vx_convert_policy_e: whether results that do not fit the format wrap or saturate."""

    VX_CONVERT_POLICY_WRAP = _base(EnumType.VX_ENUM_CONVERT_POLICY)
    VX_CONVERT_POLICY_SATURATE = _base(EnumType.VX_ENUM_CONVERT_POLICY) + 1


class RoundPolicy(IntEnum):
    """vx_round_policy_e."""

    VX_ROUND_POLICY_TO_ZERO = _base(EnumType.VX_ENUM_ROUND_POLICY) + 1
    VX_ROUND_POLICY_TO_NEAREST_EVEN = _base(EnumType.VX_ENUM_ROUND_POLICY) + 2


class Accessor(IntEnum):
    """vx_accessor_e."""

    VX_READ_ONLY = _base(EnumType.VX_ENUM_ACCESSOR) + 1
    VX_WRITE_ONLY = _base(EnumType.VX_ENUM_ACCESSOR) + 2
    VX_READ_AND_WRITE = _base(EnumType.VX_ENUM_ACCESSOR) + 3


class GraphState(IntEnum):
    """vx_graph_state_e."""

    VX_GRAPH_STATE_UNVERIFIED = _base(EnumType.VX_ENUM_GRAPH_STATE)
    VX_GRAPH_STATE_VERIFIED = _base(EnumType.VX_ENUM_GRAPH_STATE) + 1
    VX_GRAPH_STATE_RUNNING = _base(EnumType.VX_ENUM_GRAPH_STATE) + 2
    VX_GRAPH_STATE_ABANDONED = _base(EnumType.VX_ENUM_GRAPH_STATE) + 3
    VX_GRAPH_STATE_COMPLETED = _base(EnumType.VX_ENUM_GRAPH_STATE) + 4


class Attribute(IntEnum):
    """Attributes of contexts, graphs and tensors that can be queried."""

    VX_CONTEXT_EXTENSIONS = (Type.VX_TYPE_CONTEXT << 8) + 0x7
    VX_GRAPH_NUMNODES = Type.VX_TYPE_GRAPH << 8
    VX_GRAPH_STATE = (Type.VX_TYPE_GRAPH << 8) + 0x4
    VX_TENSOR_NUMBER_OF_DIMS = Type.VX_TYPE_TENSOR << 8
    VX_TENSOR_DIMS = (Type.VX_TYPE_TENSOR << 8) + 0x1
    VX_TENSOR_DATA_TYPE = (Type.VX_TYPE_TENSOR << 8) + 0x2
    VX_TENSOR_FIXED_POINT_POSITION = (Type.VX_TYPE_TENSOR << 8) + 0x3


class SizeRounding(IntEnum):
    """vx_nn_rounding_type_e: how output sizes are rounded."""

    VX_NN_DS_SIZE_ROUNDING_FLOOR = _base(EnumType.VX_ENUM_NN_ROUNDING_TYPE)
    VX_NN_DS_SIZE_ROUNDING_CEILING = _base(EnumType.VX_ENUM_NN_ROUNDING_TYPE) + 1


class Pooling(IntEnum):
    """vx_nn_pooling_type_e."""

    VX_NN_POOLING_MAX = _base(EnumType.VX_ENUM_NN_POOLING_TYPE)
    VX_NN_POOLING_AVG = _base(EnumType.VX_ENUM_NN_POOLING_TYPE) + 1


class NormType(IntEnum):
    """vx_nn_norm_type_e."""

    VX_NN_NORMALIZATION_SAME_MAP = _base(EnumType.VX_ENUM_NN_NORMALIZATION_TYPE)
    VX_NN_NORMALIZATION_ACROSS_MAPS = _base(EnumType.VX_ENUM_NN_NORMALIZATION_TYPE) + 1


class Activation(IntEnum):
    """vx_nn_activation_function_e."""

    VX_NN_ACTIVATION_LOGISTIC = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE)
    VX_NN_ACTIVATION_HYPERBOLIC_TAN = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 1
    VX_NN_ACTIVATION_RELU = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 2
    VX_NN_ACTIVATION_BRELU = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 3
    VX_NN_ACTIVATION_SOFTRELU = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 4
    VX_NN_ACTIVATION_ABS = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 5
    VX_NN_ACTIVATION_SQUARE = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 6
    VX_NN_ACTIVATION_SQRT = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 7
    VX_NN_ACTIVATION_LINEAR = _base(EnumType.VX_ENUM_NN_ACTIVATION_FUNCTION_TYPE) + 8


class Kernels(IntEnum):
    """vx_kernel_nn_ext_e; the last kernel is the one that OpenVX 1.3 has in place of the fifth."""

    VX_KERNEL_CONVOLUTION_LAYER = _base(1)
    VX_KERNEL_FULLY_CONNECTED_LAYER = _base(1) + 1
    VX_KERNEL_POOLING_LAYER = _base(1) + 2
    VX_KERNEL_SOFTMAX_LAYER = _base(1) + 3
    VX_KERNEL_NORMALIZATION_LAYER = _base(1) + 4
    VX_KERNEL_ACTIVATION_LAYER = _base(1) + 5
    VX_KERNEL_ROI_POOLING_LAYER = _base(1) + 6
    VX_KERNEL_DECONVOLUTION_LAYER = _base(1) + 7
    VX_KERNEL_LOCAL_RESPONSE_NORMALIZATION_LAYER = _base(1) + 8


class Library(IntEnum):
    """The library of the extension's kernels."""

    VX_LIBRARY_KHR_NN_EXTENSION = 0x1


ENUMERATIONS: tuple[type[IntEnum], ...] = (
    Status, Type, EnumType, ConvertPolicy, RoundPolicy, Accessor, GraphState, Attribute, SizeRounding, Pooling,
    NormType, Activation, Kernels, Library,
)  # fmt: skip

_BY_NAME: dict[str, IntEnum] = {}
for _enumeration in ENUMERATIONS:
    for _name, _member in _enumeration.__members__.items():
        _BY_NAME[_name] = _BY_NAME[_name.removeprefix("VX_")] = _member


def constant(name: str) -> IntEnum:
    """The constant with a C name, with or without the prefix. Raises KeyError."""
    return _BY_NAME[name]


def constants() -> list[str]:
    """The names of all constants, with and without the prefix."""
    return sorted(_BY_NAME)
