"""Tensors that a context owns (WebNN 8.8)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Location
from cvm.frontends.webnn.errors import InvalidStateError, type_error
from cvm.frontends.webnn.operand import Described, MLOperandDescriptor, MLTensorDescriptor
from cvm.webnn.owner import Owner

__all__ = ["MLTensor", "fill", "state_error"]

_BYTES = bytes | bytearray | memoryview


class MLTensor(Described):
    """A tensor of a context, made by `MLContext.create_tensor` or `create_constant_tensor`; it holds zeros at first."""

    def __init__(self, context: Owner, descriptor: MLTensorDescriptor, constant: bool) -> None:
        super().__init__(MLOperandDescriptor(descriptor.data_type, descriptor.shape))
        self._context = context
        self._readable, self._writable, self._constant = descriptor.readable, descriptor.writable, constant
        self._values: npt.NDArray[Any] | None = np.zeros(descriptor.shape, descriptor.data_type)

    @property
    def readable(self) -> bool:
        """Whether `MLContext.read_tensor` may read it."""
        return self._readable

    @property
    def writable(self) -> bool:
        """Whether `MLContext.write_tensor` may write it."""
        return self._writable

    @property
    def constant(self) -> bool:
        """Whether the tensor is constant."""
        return self._constant

    @property
    def context(self) -> Owner:
        """The context that owns it."""
        return self._context

    @property
    def destroyed(self) -> bool:
        """Whether `destroy` was called for the tensor."""
        return self._values is None

    def destroy(self) -> None:
        """Free the contents; the tensor cannot be used any more."""
        self._values = None

    def contents(self, op: str) -> npt.NDArray[Any]:
        """The elements. Raises `MLTypeError` where the tensor was destroyed."""
        if self._values is None:
            raise type_error(op, "destroyed", "the tensor was destroyed")
        return self._values

    def store(self, data: Any, op: str) -> None:
        """Replace the elements by an array of the tensor's data type and shape, or by bytes."""
        if self._values is None:
            raise type_error(op, "destroyed", "the tensor was destroyed")
        values = np.asarray(self._of_bytes(bytes(data), op) if isinstance(data, _BYTES) else data)
        if values.dtype != np.dtype(self.data_type) or values.shape != self.shape:
            message = f"{values.dtype}{list(values.shape)} is not {self.data_type}{list(self.shape)}"
            raise type_error(op, "descriptor", message)
        self._values = values.copy()

    def _of_bytes(self, data: bytes, op: str) -> npt.NDArray[Any]:
        """The elements of a buffer of little-endian bytes in row-major order."""
        dtype = np.dtype(self.data_type).newbyteorder("<")
        if len(data) != math.prod(self.shape) * dtype.itemsize:
            message = f"the buffer has {len(data)} bytes, not {math.prod(self.shape) * dtype.itemsize}"
            raise type_error(op, "length", message)
        return np.frombuffer(data, dtype).astype(self.data_type).reshape(self.shape)


def fill(output: Any, values: npt.NDArray[Any]) -> None:
    """Write elements into an array of the same data type and number of elements, or into a buffer of bytes."""
    if isinstance(output, np.ndarray):
        if output.dtype != values.dtype or output.size != values.size or not output.flags.writeable:
            message = f"{output.dtype}{list(output.shape)} cannot hold {values.dtype}{list(values.shape)}"
            raise type_error("readTensor", "output", message)
        output[...] = values.reshape(output.shape)
        return
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    if not isinstance(output, bytearray | memoryview) or memoryview(output).readonly:
        message = f"must be an array or a buffer that can be written, found {type(output).__name__}"
        raise type_error("readTensor", "output", message)
    if memoryview(output).nbytes < len(data):
        message = f"has {memoryview(output).nbytes} bytes, of which {len(data)} are needed"
        raise type_error("readTensor", "output", message)
    memoryview(output).cast("B")[: len(data)] = data


def state_error(op: str, message: str) -> InvalidStateError:
    """The error for an object that was destroyed."""
    return InvalidStateError(f"webnn.{op}.state", f"{op}: {message}", Location(op=op))
