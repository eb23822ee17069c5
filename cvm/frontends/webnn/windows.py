"""Operators of the builder with sliding windows (WebNN 8.9.10, 8.9.11, 8.9.37, 8.9.41)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvm.frontends.webnn.operand import MLOperand
from cvm.frontends.webnn.recorder import RecordedCall, Recorder
from cvm.records import dataclass

__all__ = ["FILTERS", "Windows", "spatial"]

Sizes = Sequence[int] | None
FILTERS = {"conv2d": ("oihw", "hwio", "ohwi", "ihwo"), "convTranspose2d": ("iohw", "hwoi", "ohwi")}
"""The filter layouts of both convolutions; i stands for the input channels (of one group, for conv2d)."""


def spatial(layout: str) -> tuple[int, int]:
    """The indices of the axes of height and width in a layout."""
    return layout.index("h"), layout.index("w")


def _shaped(layout: str, batches: int, channels: int, height: int, width: int) -> tuple[int, ...]:
    extents = {"n": batches, "c": channels, "h": height, "w": width}
    return tuple(extents[letter] for letter in layout)


class Windows(Recorder):
    """Convolution, pooling and resampling; every method takes ``label``."""

    def conv2d(
        self,
        input: MLOperand,
        filter: MLOperand,
        *,
        padding: Sizes = None,
        strides: Sizes = None,
        dilations: Sizes = None,
        groups: int = 1,
        input_layout: str = "nchw",
        filter_layout: str = "oihw",
        bias: MLOperand | None = None,
        label: str = "",
    ) -> MLOperand:
        """2-D convolution with zero padding (top, bottom, left, right), by groups of channels."""
        call = RecordedCall(self, "conv2d", label, {"input": input, "filter": filter, "bias": bias})
        pads, steps, gaps = _geometry(call, padding, strides, dilations)
        given = _convolution(call, groups, input_layout, filter_layout)
        channels, inner, outputs, groups = given.channels, given.inner, given.outputs, given.groups
        if channels % groups or channels // groups != inner:
            message = f"has {inner} input channels, but the input has {channels} in {groups} groups"
            raise call.error("channels", message, "filter")
        if outputs % groups:
            raise call.error("groups", f"{outputs} output channels cannot be divided into {groups} groups")
        call.shaped("bias", (outputs,))
        sizes = []
        for i, extent in enumerate(given.plane):
            free = extent + sum(pads[2 * i : 2 * i + 2]) - ((given.kernel[i] - 1) * gaps[i] + 1)
            if free < 0:
                raise call.error("filter", f"the window of {['height', 'width'][i]} is larger than the padded input")
            sizes.append(free // steps[i] + 1)
        shape = _shaped(input_layout, input.shape[0], outputs, *sizes)
        return call.result(input.data_type, shape, padding=pads, strides=steps, dilations=gaps, groups=groups,
                           input_layout=input_layout, filter_layout=filter_layout)  # fmt: skip

    def conv_transpose2d(
        self,
        input: MLOperand,
        filter: MLOperand,
        *,
        padding: Sizes = None,
        strides: Sizes = None,
        dilations: Sizes = None,
        output_padding: Sizes = None,
        output_sizes: Sizes = None,
        groups: int = 1,
        input_layout: str = "nchw",
        filter_layout: str = "iohw",
        bias: MLOperand | None = None,
        label: str = "",
    ) -> MLOperand:
        """The transpose of a 2-D convolution; where output_sizes is given, output_padding is ignored."""
        call = RecordedCall(self, "convTranspose2d", label, {"input": input, "filter": filter, "bias": bias})
        pads, steps, gaps = _geometry(call, padding, strides, dilations)
        given = _convolution(call, groups, input_layout, filter_layout)
        if given.channels != given.inner:
            raise call.error("channels", f"has {given.inner} input channels, not {given.channels}", "filter")
        outputs = given.outputs * given.groups
        call.shaped("bias", (outputs,))
        extra = call.integers("outputPadding", (0, 0) if output_padding is None else output_padding, 2)
        if output_sizes is None and any(item >= step for item, step in zip(extra, steps, strict=True)):
            raise call.error("outputPadding", f"{list(extra)} must be below the strides {list(steps)}")
        wished = None if output_sizes is None else call.integers("outputSizes", output_sizes, 2)
        sizes = []
        for i, extent in enumerate(given.plane):
            least = (extent - 1) * steps[i] + (given.kernel[i] - 1) * gaps[i] + 1 - sum(pads[2 * i : 2 * i + 2])
            size = least + extra[i] if wished is None else wished[i]
            if not least <= size < least + steps[i] or size < 1:
                raise call.error("outputSizes", f"the size {size} is not in {max(least, 1)}..{least + steps[i] - 1}")
            sizes.append(size)
        shape = _shaped(input_layout, input.shape[0], outputs, *sizes)
        return call.result(input.data_type, shape, padding=pads, strides=steps, dilations=gaps, groups=given.groups,
                           input_layout=input_layout, filter_layout=filter_layout, sizes=tuple(sizes))  # fmt: skip

    def average_pool2d(self, input: MLOperand, *, label: str = "", **options: Any) -> MLOperand:
        """The mean of each window over its elements that are not padding. Options as for `max_pool2d`."""
        return self._pool("averagePool2d", input, label, **options)

    def l2_pool2d(self, input: MLOperand, *, label: str = "", **options: Any) -> MLOperand:
        """The root of the sum of squares of each window. Options as for `max_pool2d`."""
        return self._pool("l2Pool2d", input, label, **options)

    def max_pool2d(self, input: MLOperand, *, label: str = "", **options: Any) -> MLOperand:
        """The maximum of each window; padding never wins.

        Options: window_dimensions (the whole plane by default), padding, strides, dilations, layout ("nchw"),
        output_shape_rounding ("floor" or "ceil"; rounding_type in older graphs), output_sizes.
        """
        return self._pool("maxPool2d", input, label, **options)

    def _pool(
        self,
        op: str,
        input: MLOperand,
        label: str,
        *,
        window_dimensions: Sizes = None,
        padding: Sizes = None,
        strides: Sizes = None,
        dilations: Sizes = None,
        layout: str = "nchw",
        output_shape_rounding: str = "floor",
        rounding_type: str | None = None,
        output_sizes: Sizes = None,
    ) -> MLOperand:
        call = RecordedCall(self, op, label, {"input": input})
        output_shape_rounding = output_shape_rounding if rounding_type is None else rounding_type
        layout = call.word("layout", layout, "nchw", "nhwc")
        rounding = call.word("outputShapeRounding", output_shape_rounding, "floor", "ceil")
        plane = [input.shape[axis] for axis in spatial(layout)]
        window = call.integers(
            "windowDimensions", plane if window_dimensions is None else window_dimensions, 2, least=1
        )
        pads, steps, gaps = _geometry(call, padding, strides, dilations)
        floors, ceilings = [], []
        for i, extent in enumerate(plane):
            free = extent + sum(pads[2 * i : 2 * i + 2]) - ((window[i] - 1) * gaps[i] + 1)
            if free < 0:
                message = f"the window of {['height', 'width'][i]} is larger than the padded input"
                raise call.error("windowDimensions", message)
            floors.append(free // steps[i] + 1)
            ceilings.append(-(-free // steps[i]) + 1)
        sizes = floors if rounding == "floor" else ceilings
        if output_sizes is not None:
            sizes = list(call.integers("outputSizes", output_sizes, 2, least=1))
            if sizes not in (floors, ceilings):
                raise call.error("outputSizes", f"{sizes} is neither {floors} nor {ceilings}")
        shape = _shaped(layout, input.shape[0], input.shape[layout.index("c")], *sizes)
        return call.result(input.data_type, shape, window=window, padding=pads, strides=steps, dilations=gaps,
                           layout=layout, sizes=tuple(sizes))  # fmt: skip

    def resample2d(
        self,
        input: MLOperand,
        *,
        mode: str = "nearest-neighbor",
        scales: Sequence[Any] | None = None,
        sizes: Sizes = None,
        axes: Sizes = None,
        label: str = "",
    ) -> MLOperand:
        """The input resampled along two axes; where sizes is given, scales is ignored."""
        call = RecordedCall(self, "resample2d", label, {"input": input})
        mode = call.word("mode", mode, "nearest-neighbor", "linear")
        factors = [1, 1] if scales is None else list(scales)
        if len(factors) != 2:
            raise call.error("scales", f"scales must have 2 items, found {len(factors)}")
        numbers = [call.number("scales", factor) for factor in factors]
        if any(number <= 0 for number in numbers):
            raise call.error("scales", f"scales must be above 0, found {factors}")
        wished = None if sizes is None else call.integers("sizes", sizes, 2, least=1)
        where = call.axes("axes", (2, 3) if axes is None else axes, 4)
        if len(where) != 2:
            raise call.error("axes", f"axes must have 2 items, found {len(where)}")
        shape = list(input.shape)
        for i, axis in enumerate(where):
            shape[axis] = numbers[i] * input.shape[axis] // 1 if wished is None else wished[i]
        return call.result(input.data_type, shape, mode=mode, axes=where)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The extents and layouts of a convolution, taken from its operands."""

    channels: int
    """The channels of the input."""
    inner: int
    """The input channels of the filter, per group for conv2d."""
    outputs: int
    """The output channels of the filter, per group for convTranspose2d."""
    groups: int
    plane: tuple[int, int]
    kernel: tuple[int, int]


def _convolution(call: RecordedCall, groups: Any, input_layout: Any, filter_layout: Any) -> _Convolution:
    """Check what conv2d and convTranspose2d share: data types, groups and layouts."""
    call.same_type("input", "filter", "bias")
    groups = call.unsigned("groups", groups, least=1)
    layout = call.word("inputLayout", input_layout, "nchw", "nhwc")
    order = call.word("filterLayout", filter_layout, *FILTERS[call.op])
    source = dict(zip(layout, call.operands["input"].shape, strict=True))
    kernel = dict(zip(order, call.operands["filter"].shape, strict=True))
    return _Convolution(
        source["c"], kernel["i"], kernel["o"], groups, (source["h"], source["w"]), (kernel["h"], kernel["w"])
    )


def _geometry(
    call: RecordedCall, padding: Sizes, strides: Sizes, dilations: Sizes
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return (
        call.integers("padding", (0, 0, 0, 0) if padding is None else padding, 4),
        call.integers("strides", (1, 1) if strides is None else strides, 2, least=1),
        call.integers("dilations", (1, 1) if dilations is None else dilations, 2, least=1),
    )
