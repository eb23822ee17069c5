"""Tensors that a context owns (WebNN 8.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Location
from cvm.frontends.webnn.errors import InvalidStateError, type_error
from cvm.frontends.webnn.operand import Described, MLOperandDescriptor

if TYPE_CHECKING:
    from cvm.webnn.context import MLContext

__all__ = ["MLTensor"]


class MLTensor(Described):
    """A tensor of a context, made by `MLContext.create_tensor` or `create_constant_tensor`; zeros at first."""

    def __init__(
        self, context: MLContext, descriptor: MLOperandDescriptor, readable: bool, writable: bool, constant: bool
    ) -> None:
        super().__init__(descriptor)
        self._context = context
        self._readable, self._writable, self._constant = readable, writable, constant
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
        """Whether it is constant."""
        return self._constant

    @property
    def context(self) -> MLContext:
        """The context that owns it."""
        return self._context

    @property
    def destroyed(self) -> bool:
        """Whether `destroy` was called."""
        return self._values is None

    def destroy(self) -> None:
        """Free the contents; the tensor cannot be used any more."""
        self._values = None

    def contents(self, op: str) -> npt.NDArray[Any]:
        """The elements. Raises `MLTypeError` where the tensor was destroyed."""
        if self._values is None:
            raise type_error(op, "destroyed", "the tensor was destroyed")
        return self._values

    def store(self, values: npt.NDArray[Any], op: str) -> None:
        """Replace the elements, by an array of the tensor's data type and shape."""
        if self._values is None:
            raise type_error(op, "destroyed", "the tensor was destroyed")
        if values.dtype != np.dtype(self.data_type) or values.shape != self.shape:
            message = f"{values.dtype}{list(values.shape)} is not {self.data_type}{list(self.shape)}"
            raise type_error(op, "descriptor", message)
        self._values = values.copy()


def state_error(op: str, message: str) -> InvalidStateError:
    """An object that was destroyed."""
    return InvalidStateError(f"webnn.{op}.state", f"{op}: {message}", Location(op=op))
