"""The kernels as data: names, numbers, parameters in order with [static] and optional, and the arithmetic of each.

The functions, generic nodes, checks and the page docs/openvx.md all read these declarations. Sections are those of the
extension's specification.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

from cvm.frontends.openvx.constants import (
    Activation,
    ConvertPolicy,
    Kernels,
    NormType,
    Pooling,
    RoundPolicy,
    SizeRounding,
)
from cvm.frontends.openvx.errors import InvalidValue, NotSupported
from cvm.frontends.openvx.objects import Context, Scalar, Tensor, integer, require
from cvm.frontends.openvx.parameters import (
    NNConvolutionParams,
    NNDeconvolutionParams,
    NNROIPoolParams,
    checked,
    enumerator,
    float32,
)
from cvm.records import dataclass

__all__ = ["KERNELS", "KernelDeclaration", "Parameter"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel; its index in the list is its number in OpenVX."""

    name: str
    kind: Literal["tensor", "enum", "float", "size", "structure"] = "tensor"
    output: bool = False
    static: bool = False
    optional: bool = False
    type: Any = None
    """The enumeration or the structure that the argument must belong to."""
    zero: bool = False
    """Whether a float may be 0."""
    least: int = 1
    choices: tuple[int, ...] = ()
    """The allowed sizes; empty: any."""

    def accept(self, value: Any, context: Context) -> Any:
        """The argument after checks of its kind and range; `check_node` checks how arguments fit each other."""
        if isinstance(value, Scalar) and self.kind != "tensor":
            require(value, Scalar, self.name, context)
            value = value.value
        if value is None and self.optional:
            return None
        if self.kind == "tensor":
            require(value, Tensor, self.name, context)
            return value
        if self.kind == "enum":
            return enumerator(value, self.type, self.name)
        if self.kind == "size":
            return self._size(value)
        if self.kind == "float":
            return float32(value, self.name, self.zero)
        found = checked(value, self.type, self.name)
        if isinstance(found, NNROIPoolParams) and found.pool_type != Pooling.VX_NN_POOLING_MAX:
            raise NotSupported("roi.pool_type", "regions have VX_NN_POOLING_MAX only")
        return found

    def _size(self, value: Any) -> int:
        found = integer(value, self.name, self.least)
        if self.choices and found not in self.choices:
            raise InvalidValue("argument.range", f"{self.name} must be one of {self.choices}, found {found}")
        return found


@dataclass(frozen=True, slots=True)
class KernelDeclaration:
    """One kernel."""

    kernel: Kernels
    function: str
    parameters: tuple[Parameter, ...]
    meaning: str
    compat: str
    """The arithmetic of ``compat="khronos-sample-1.3"``; empty: that mode does not offer the kernel."""

    @property
    def name(self) -> str:
        """The name for get_kernel_by_name (section 1.5)."""
        return f"org.khronos.nn_extension.{self.function}"


_INPUTS = Parameter("inputs")
_WEIGHTS = Parameter("weights", static=True)
_BIASES = Parameter("biases", static=True, optional=True)
_OUTPUTS = Parameter("outputs", output=True)
_OVERFLOW = Parameter("overflow_policy", "enum", static=True, type=ConvertPolicy)
_ROUNDING = Parameter("rounding_policy", "enum", static=True, type=RoundPolicy)
_NORM = (
    _INPUTS,
    Parameter("type", "enum", static=True, type=NormType),
    Parameter("normalization_size", "size", static=True, choices=(3, 5, 7)),
    Parameter("alpha", "float", static=True),
    Parameter("beta", "float", static=True),
)
_PER_PRODUCT = (
    "every product rounded and converted by itself, every sum of an input map converted; biases as raw integers"
)

KERNELS = MappingProxyType(
    {
        item.kernel: item
        for item in (
            KernelDeclaration(
                Kernels.VX_KERNEL_CONVOLUTION_LAYER,
                "convolution_layer",
                (
                    _INPUTS,
                    _WEIGHTS,
                    _BIASES,
                    Parameter("convolution_params", "structure", static=True, type=NNConvolutionParams),
                    _OUTPUTS,
                ),
                "the exact sum with its bias, rounded once, converted once; tap m of output x reads x * skip + "
                "m * (dilation + 1) - padding; biases [OFM] or [width, height, OFM]; nested batches",
                f"{_PER_PRODUCT}; every tap is shifted by the dilation",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_FULLY_CONNECTED_LAYER,
                "fully_connected_layer",
                (_INPUTS, _WEIGHTS, _BIASES, _OVERFLOW, _ROUNDING, _OUTPUTS),
                "as convolution_layer; inputs [IFM, batches..] or [width, height, IFM, batches..], weights [IFM, OFM] "
                "or [width, height, IFM, OFM]",
                "every product rounded and converted by itself, the whole sum converted; biases as raw integers",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_POOLING_LAYER,
                "pooling_layer",
                (
                    _INPUTS,
                    Parameter("pooling_type", "enum", static=True, type=Pooling),
                    Parameter("pooling_size_x", "size", static=True),
                    Parameter("pooling_size_y", "size", static=True),
                    Parameter("pooling_padding_x", "size", static=True, least=0),
                    Parameter("pooling_padding_y", "size", static=True, least=0),
                    Parameter("rounding", "enum", static=True, type=SizeRounding),
                    _OUTPUTS,
                ),
                "zeros of the padding take part; a mean is the sum over pooling_size_x * pooling_size_y, truncated",
                "maxima ignore padding, a window of padding alone gives the least integer; means of S8 and S16 are the "
                "least integer",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_SOFTMAX_LAYER,
                "softmax_layer",
                (_INPUTS, _OUTPUTS),
                "over dimension 0 of 1 or 2 dimensions, over dimension 2 of 3 or 4; exponentials to 2^-60, compared "
                "with every step between codes; rounded half to even",
                "",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_NORMALIZATION_LAYER,
                "normalization_layer",
                (*_NORM, _OUTPUTS),
                "x / (1 + alpha / n * sum x^2)^beta over n = size maps, or size^2 items of one map; zeros beyond the "
                "borders; rounded half to even",
                "",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_ACTIVATION_LAYER,
                "activation_layer",
                (
                    _INPUTS,
                    Parameter("function", "enum", static=True, type=Activation),
                    Parameter("a", "float", static=True, zero=True),
                    Parameter("b", "float", static=True, zero=True),
                    _OUTPUTS,
                ),
                "all nine functions, correctly rounded half to even, saturated; sqrt of a negative number is 0",
                "relu, which is the same; the other functions are refused",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_ROI_POOLING_LAYER,
                "roi_pooling_layer",
                (
                    Parameter("inputs"),
                    Parameter("inputs_rois"),
                    Parameter("roi_pool_params", "structure", static=True, type=NNROIPoolParams),
                    Parameter("output_arr", output=True),
                ),
                "maxima of cells floor(i * w / ow) .. ceil((i + 1) * w / ow) of a region of inclusive raw integer "
                "corners, clipped to the image; an empty cell gives 0",
                "a cell that begins before the image is empty",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_DECONVOLUTION_LAYER,
                "deconvolution_layer",
                (
                    _INPUTS,
                    _WEIGHTS,
                    _BIASES,
                    Parameter("deconvolution_params", "structure", static=True, type=NNDeconvolutionParams),
                    _OUTPUTS,
                ),
                "zeros between the inputs, then convolution_layer with the weights as they are and a padding of kernel "
                "- padding - 1",
                f"{_PER_PRODUCT}; inputs whose index times the upscale is beyond the input's size are not read",
            ),
            KernelDeclaration(
                Kernels.VX_KERNEL_LOCAL_RESPONSE_NORMALIZATION_LAYER,
                "local_response_normalization_layer",
                (*_NORM, Parameter("bias", "float", static=True), _OUTPUTS),
                "that of OpenVX 1.3: x / (bias + alpha / n * sum x^2)^beta",
                "",
            ),
        )
    }
)
"""By number (vx_kernel_nn_ext_e)."""
