"""`MLGraphBuilder`: inputs, constants, quantisation, and the operators that its base classes define (WebNN 8.9)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.data_types import bounds, is_float
from cvm.frontends.webnn.arguments import callable_as_specified, in_snake_case, snake_case
from cvm.frontends.webnn.declarations import OPERATORS
from cvm.frontends.webnn.elementwise import Elementwise, cast_number
from cvm.frontends.webnn.errors import type_error
from cvm.frontends.webnn.movement import Movement
from cvm.frontends.webnn.operand import (
    Descriptor,
    MLOperand,
    MLOperandDescriptor,
    data_type_of,
    describe,
)
from cvm.frontends.webnn.recorder import RecordedCall
from cvm.frontends.webnn.recurrent import Recurrent
from cvm.frontends.webnn.sums import Sums
from cvm.frontends.webnn.windows import Windows
from cvm.limits import INT32_MAX

__all__ = ["Context", "MLGraphBuilder", "snake_case"]

_METHODS = frozenset({*OPERATORS, "input", "constant", "build"})
_UNSIGNED_BITS = np.dtype(np.uint16)
"""The type in which JavaScript passes the bits of float16."""


class Context(Protocol):
    """The interface of a context that a builder needs: its settings for scales, its tensors, and its compiler."""

    strict_scale_rank: bool
    allow_negative_scale: bool

    def contents_of(self, tensor: Any) -> tuple[MLOperandDescriptor, npt.NDArray[Any]] | None:
        """The descriptor and the contents of a constant tensor; None for any other object."""

    def compile(
        self,
        outputs: Mapping[str, MLOperand],
        inputs: Mapping[str, MLOperand],
        calibration: Any,
        settings: Mapping[str, Any],
    ) -> Any:
        """Compile the graph of these outputs; ``calibration`` is None or a list of samples of the inputs."""


class MLGraphBuilder(Elementwise, Movement, Windows, Sums, Recurrent):
    """Builds one graph (WebNN 8.9). Methods have the specification's names in snake_case; camelCase works, too.

    Options are keywords, or members of one dictionary after the operands; an array is a constant operand.

    Raises `MLTypeError` where the specification throws TypeError, `InvalidStateError` after `build` was called.
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        if not hasattr(context, "contents_of"):
            raise type_error("MLGraphBuilder", "context", f"expected an MLContext, found {type(context).__name__}")
        self._context = context
        self._inputs: dict[str, MLOperand] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _METHODS or snake_case(name) == name:
            raise AttributeError(f"MLGraphBuilder has no operator {name!r}")
        return in_snake_case(getattr(self, snake_case(name)))

    # Inputs and constants (8.9.2, 8.9.3)

    def input(self, name: str, descriptor: Descriptor, *, value_range: tuple[int, int] | None = None) -> MLOperand:
        """An input of the graph.

        ``value_range``, an extension, is a promise about integers that every run checks; it lets the compiler prove
        that results fit. Without it, the input may hold every machine integer of its data type, that is those from
        -(2^31 - 1) to 2^31 - 1. A wider range, promised or of the data type, is accepted where every call that reads
        the input gives the same result for the nearest machine integer, as `sign` does, or clamps it as an index.
        """
        self.require_open("input")
        if not isinstance(name, str) or not name:
            raise type_error("input", "name", "the name must be a string that is not empty")
        if name in self._inputs:
            raise type_error("input", "name", f"another input is called {name!r}")
        described = describe(descriptor)
        interval = _interval(name, described, value_range)
        operand = MLOperand(self, name, described, interval=interval, promised=value_range is not None)
        self._inputs[name] = operand
        return operand

    def constant(self, descriptor: Any, value: Any = None, *, name: str = "") -> MLOperand:
        """A constant: (descriptor, buffer), (data type, number), an array, or a constant MLTensor.

        A buffer is an array of the data type with as many elements, or bytes; for float16 also an array of uint16 bits.
        """
        self.require_open("constant")
        if value is None:
            found = self._context.contents_of(descriptor)
            if found is not None:
                described, values = found
            elif isinstance(descriptor, np.ndarray | np.generic):
                values = np.asarray(descriptor)
                described = MLOperandDescriptor(data_type_of(values.dtype, "constant"), values.shape)
            else:
                raise type_error("constant", "arguments", f"expected a constant, found {type(descriptor).__name__}")
        elif isinstance(value, bool | int | float | np.generic) and not isinstance(descriptor, Mapping | tuple):
            described = MLOperandDescriptor(descriptor, ())
            values = np.array(cast_number(value, described.data_type), described.data_type)
        else:
            described = describe(descriptor)
            values = _contents(described, value)
        return MLOperand(self, name or self.fresh("constant"), described, values=values.copy())

    # Quantisation (8.9.16, 8.9.17)

    def dequantize_linear(
        self, input: MLOperand, scale: MLOperand, zero_point: MLOperand | None = None, *, label: str = ""
    ) -> MLOperand:
        """(input - zero_point) * scale. As an extension, the zero point may be left out; it is then 0."""
        call = RecordedCall(self, "dequantizeLinear", label, {"input": input, "scale": scale, "zeroPoint": zero_point})
        call.same_type("input", "zeroPoint")
        self._require_scales(call, input, scale)
        return call.result(scale.data_type, input.shape)

    def quantize_linear(
        self, input: MLOperand, scale: MLOperand, zero_point: MLOperand | None = None, *, label: str = ""
    ) -> MLOperand:
        """clamp(round_half_even(input / scale) + zero_point). As an extension, a zero point that is left out is 0 of
        int8.
        """
        call = RecordedCall(self, "quantizeLinear", label, {"input": input, "scale": scale, "zeroPoint": zero_point})
        call.same_type("input", "scale")
        self._require_scales(call, input, scale)
        return call.result("int8" if zero_point is None else zero_point.data_type, input.shape)

    def _require_scales(self, call: RecordedCall, input: MLOperand, scale: MLOperand) -> None:
        """Require one shape for scale and zero point: the input's rank, with extents that divide the input's."""
        call.shaped("zeroPoint", scale.shape)
        if scale.rank != input.rank and (self._context.strict_scale_rank or scale.rank > input.rank):
            message = f"has rank {scale.rank}, but the input {input.rank}; strict_scale_rank=False admits fewer"
            raise call.error("rank", message, "scale")
        extents = input.shape[input.rank - scale.rank :]
        if any(n % blocks for n, blocks in zip(extents, scale.shape, strict=True)):
            message = f"{list(scale.shape)} does not divide {list(input.shape)} into blocks"
            raise call.error("shape", message, "scale")
        values = scale.values
        if values is None:
            return
        if (
            not np.isfinite(values).all()
            or not values.all()
            or ((values < 0).any() and not self._context.allow_negative_scale)
        ):
            message = "holds a scale that is not above 0; allow_negative_scale=True admits negative ones"
            raise call.error("scale", message, "scale")

    # build (8.9.4)

    def build(
        self,
        outputs: Mapping[str, MLOperand],
        *,
        calibration: Sequence[Mapping[str, npt.ArrayLike]] | Mapping[str, npt.ArrayLike] | None = None,
        **settings: Any,
    ) -> Any:
        """Compile the graph of these outputs; returns an MLGraph. A builder builds once.

        ``calibration``, an extension, compiles graphs of floats: it is a list of samples, each an array for every
        input. They determine a quantiser for each tensor that needs one; quantisers in the graph are kept. ``settings``
        are those of `cvm.calibration.Settings`: bits (8), weight_bits, per_channel (True), method ("minmax"),
        percentile.

        Raises `MLTypeError` for outputs that the specification does not allow, `NotSupportedError` for a graph that
        would need float arithmetic, or integers that are not proven to fit.
        """
        self.require_open("build")
        if not isinstance(outputs, Mapping) or not outputs:
            raise type_error("build", "outputs", "outputs must be a dictionary that is not empty")
        for name, operand in outputs.items():
            if not isinstance(name, str) or not name:
                raise type_error("build", "name", "the name of an output must be a string that is not empty")
            if not isinstance(operand, MLOperand) or operand.builder is not self:
                raise type_error("build", "operand", "must be an operand of this builder", operand=name)
            if operand.node is None:
                message = "is an input or a constant, which cannot be an output; use builder.identity() of it"
                raise type_error("build", "operand", message, operand=name)
        self._has_built = True
        return self._context.compile(dict(outputs), dict(self._inputs), calibration, settings)

    async def build_async(self, outputs: Mapping[str, MLOperand], **options: Any) -> Any:
        """`build`, as a coroutine."""
        return self.build(outputs, **options)


for _op in OPERATORS:
    setattr(MLGraphBuilder, snake_case(_op), callable_as_specified(_op, getattr(MLGraphBuilder, snake_case(_op))))
MLGraphBuilder.where_ = MLGraphBuilder.where


def _interval(name: str, described: MLOperandDescriptor, wish: tuple[int, int] | None) -> tuple[int, int] | None:
    if is_float(described.data_type):
        if wish is not None:
            raise type_error("input", "value_range", "a range is a promise of integers", operand=name)
        return None
    lo, hi = bounds(described.data_type)
    if wish is None:
        return max(lo, -INT32_MAX), min(hi, INT32_MAX)
    low, high = wish
    if not lo <= low <= high <= hi:
        raise type_error("input", "value_range", f"{wish} is no interval within {described.data_type}", operand=name)
    return int(low), int(high)


def _contents(described: MLOperandDescriptor, value: Any) -> npt.NDArray[Any]:
    """The elements of a buffer. Raises `MLTypeError` unless its type and length agree with the descriptor."""
    dtype = np.dtype(described.data_type)
    if isinstance(value, bytes | bytearray | memoryview):
        if len(bytes(value)) != math.prod(described.shape) * dtype.itemsize:
            length = math.prod(described.shape) * dtype.itemsize
            raise type_error("constant", "length", f"expected {length} bytes, found {len(bytes(value))}")
        return np.frombuffer(bytes(value), dtype.newbyteorder("<")).astype(dtype).reshape(described.shape)
    values = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else _listed(value, dtype)
    if values.dtype == _UNSIGNED_BITS and described.data_type == "float16":
        values = values.view(np.float16)
    if values.dtype != dtype:
        raise type_error("constant", "buffer", f"the buffer is of {values.dtype}, not {described.data_type}")
    if values.size != math.prod(described.shape):
        raise type_error("constant", "length", f"expected {math.prod(described.shape)} elements, found {values.size}")
    return values.reshape(described.shape)


def _listed(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        return np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise type_error("constant", "buffer", f"the buffer does not hold elements of {dtype}: {error}") from None
