"""Contexts, tensors and scalars: the data objects of OpenVX, with OpenVX's order of dimensions.

Dimension 0 is the one whose elements are neighbours in memory. So the NumPy array of a tensor, in C order, has the
extents in reverse: a tensor of dimensions [width, height, channels] is an array of shape (channels, height, width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import LimitExceeded, Location
from cvm.frontends.openvx.constants import Accessor, Type
from cvm.frontends.openvx.errors import (
    InvalidDimension,
    InvalidFormat,
    InvalidParameters,
    InvalidReference,
    InvalidScope,
    InvalidType,
    InvalidValue,
)
from cvm.frontends.openvx.formats import FORMATS, Format
from cvm.limits import DEFAULT, INT32_MAX, MAX_RANK, elements

__all__ = [
    "EXTENSIONS",
    "Box",
    "Context",
    "Order",
    "Reference",
    "Scalar",
    "Tensor",
    "copy_tensor_patch",
    "create_scalar",
    "create_tensor",
    "create_tensor_from_view",
    "create_virtual_tensor",
    "integer",
    "require",
]

EXTENSIONS = "KHR_NN_8 KHR_NN_16"
"""The extension strings (section 1.6)."""

Order = Literal["numpy", "vx"]
Box = tuple[tuple[int, int], ...]
"""A box: start and end along every dimension, in OpenVX's order."""


def integer(value: Any, what: str, least: int = 0, most: int = INT32_MAX) -> int:
    """An argument that must be an integer in [least, most]. Raises `InvalidParameters` or `InvalidValue`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidParameters("argument.integer", f"{what} must be an integer, found {value!r}")
    found = int(value.__index__())
    if not least <= found <= most:
        raise InvalidValue("argument.range", f"{what} must be in [{least}, {most}], found {found}")
    return found


class Reference:
    """An object of a context (vx_reference). It may have a name; the caller releases it when it is no longer needed."""

    kind = Type.VX_TYPE_REFERENCE

    def __init__(self, context: Context | None, name: str | None = None) -> None:
        self._context = context
        self.name: str | None = None
        if name is not None:
            self.rename(name)
        self.released = False

    @property
    def context(self) -> Context:
        """The context that owns the object."""
        found = self if self._context is None else self._context
        assert isinstance(found, Context)
        return found

    def rename(self, name: str) -> None:
        """Set the name of the object. Raises `InvalidValue` where it is not a string, or empty."""
        if not isinstance(name, str) or not name:
            raise InvalidValue("reference.name", f"a name must be a string that is not empty, found {name!r}")
        self.name = name

    def release(self) -> None:
        """Release the object. Functions refuse a released object with `InvalidReference`."""
        self.released = True

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def require(reference: Any, kind: type[Any], what: str, context: Context | None = None) -> None:
    """Raise `InvalidParameters` for an object of another kind, `InvalidReference` for a released or foreign object."""
    if not isinstance(reference, kind):
        message = f"{what} must be a {kind.__name__}, found {type(reference).__name__}"
        raise InvalidParameters("argument.reference", message)
    if reference.released:
        raise InvalidReference("reference.released", f"{what} was released")
    if reference.context.released:
        raise InvalidReference("reference.released", f"the context of {what} was released")
    if context is not None and reference.context is not context:
        raise InvalidReference("reference.context", f"{what} is of another context")


class Context(Reference):
    """A context (vx_context), the owner of all other objects. `create_context` makes it."""

    kind = Type.VX_TYPE_CONTEXT

    def __init__(self, executor: str | None = None) -> None:
        super().__init__(None)
        self.executor = executor


def _dimensions(dims: Sequence[int]) -> tuple[int, ...]:
    if isinstance(dims, (str, bytes)) or not hasattr(dims, "__len__"):
        raise InvalidParameters("tensor.dims", f"dims must be a sequence of integers, found {dims!r}")
    if not 1 <= len(dims) <= MAX_RANK:
        raise InvalidDimension("tensor.dims", f"a tensor has 1 to {MAX_RANK} dimensions, found {len(dims)}")
    try:
        found = tuple(integer(extent, "a dimension", 1) for extent in dims)
        elements(found, DEFAULT)
    except (InvalidValue, LimitExceeded) as error:
        raise InvalidDimension("tensor.dims", error.message) from None
    return found


class Tensor(Reference):
    """A tensor (vx_tensor), or a view of one; made by `create_tensor`, `create_virtual_tensor` or
    `create_tensor_from_view`.

    Elements are raw integers: a raw integer of S16 with fixed-point position 8 stands for raw / 256.
    """

    kind = Type.VX_TYPE_TENSOR

    def __init__(
        self,
        context: Context,
        dims: tuple[int, ...],
        format: Format | None,
        graph: Reference | None = None,
        parent: Tensor | None = None,
        box: Box | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(context, name)
        self.dims = dims
        self.format = format
        self.graph = graph
        """The graph that a virtual tensor belongs to; None for any other tensor."""
        self.parent = parent
        self.box: Box = box if box is not None else tuple((0, extent) for extent in dims)
        """The box of a view in its root tensor."""
        self.version = 0
        """How many times the elements have been set; only roots count it."""
        self._values: npt.NDArray[Any] | None = None

    @property
    def root(self) -> Tensor:
        """The tensor that owns the elements: the tensor itself, or the root of a view."""
        return self if self.parent is None else self.parent.root

    @property
    def virtual(self) -> bool:
        """Whether the tensor exists only inside of a graph."""
        return self.root.graph is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the NumPy array: the dimensions in reverse."""
        return self.dims[::-1]

    @property
    def data_type(self) -> Type:
        """The data type; VX_TYPE_INVALID for a virtual tensor that has none yet."""
        return self.format.data_type if self.format else Type.VX_TYPE_INVALID

    @property
    def fixed_point_position(self) -> int:
        """The number of fraction bits."""
        return self.format.position if self.format else 0

    @property
    def initialised(self) -> bool:
        """Whether elements have been set."""
        return self.root._values is not None

    def _whole(self) -> tuple[slice, ...]:
        return tuple(slice(*ends) for ends in self.box[::-1])

    def _require_host(self) -> Format:
        require(self, Tensor, "the tensor")
        if self.virtual:
            raise InvalidScope("tensor.virtual", "the elements of a virtual tensor cannot be reached")
        assert self.format is not None
        return self.format

    def contents(self) -> npt.NDArray[Any]:
        """The elements in C order, without a copy; zeros where none have been set."""
        root = self.root
        if root._values is None:
            assert root.format is not None
            return np.zeros(self.shape, root.format.dtype)
        return root._values[self._whole()]

    def store(self, values: npt.NDArray[Any], static: bool = True) -> None:
        """Replace the elements by an array of the tensor's shape; with ``static``, verified graphs that read them must
        verify again.
        """
        root = self.root
        if root._values is None:
            assert root.format is not None
            root._values = np.zeros(root.shape, root.format.dtype)
        root._values[self._whole()] = values
        root.version += int(static)

    def numpy(self, order: Order = "numpy") -> npt.NDArray[Any]:
        """A copy of the raw integers: in C order, or with ``order="vx"`` with the dimensions in OpenVX's order."""
        self._require_host()
        return self.contents().copy() if _checked(order) == "numpy" else self.contents().T.copy()

    def to_float(self, order: Order = "numpy") -> npt.NDArray[np.float64]:
        """The numbers that the elements stand for, raw / 2^fixed_point_position; exact in float64."""
        format = self._require_host()
        return np.asarray(self.numpy(order) / np.float64(2**format.position))

    def copy_from(self, values: npt.ArrayLike, order: Order = "numpy") -> Tensor:
        """Set the elements to raw integers, an array in the shape of `numpy`. Returns the tensor.

        Raises `InvalidDimension` for another shape, `InvalidFormat` for anything but integers, `InvalidValue` for
        integers outside of the data type.
        """
        format = self._require_host()
        items = _array(values)
        items = items.T if _checked(order) == "vx" else items
        if items.shape != self.shape:
            wanted, found = (list(shape[:: 1 if order == "numpy" else -1]) for shape in (self.shape, items.shape))
            raise InvalidDimension("tensor.copy", f"the array must have shape {wanted}, found {found}", self._place())
        if items.dtype.kind not in "iu":
            message = f"elements are raw integers, found dtype {items.dtype}; from_float takes real numbers"
            raise InvalidFormat("tensor.copy", message, self._place())
        least, most = int(items.min()), int(items.max())
        if least < format.lo or most > format.hi:
            outside = least if least < format.lo else most
            message = f"{outside} is not in [{format.lo}, {format.hi}] of {format.name}"
            raise InvalidValue("tensor.copy", message, self._place())
        self.store(items)
        return self

    def from_float(self, values: npt.ArrayLike, order: Order = "numpy") -> Tensor:
        """Set the elements to the nearest integers of values * 2^fixed_point_position, ties to even; they saturate."""
        from cvm.quantization.exact import quantize

        format = self._require_host()
        items = _array(values)
        if items.dtype.kind not in "iuf" or not np.isfinite(items).all():
            raise InvalidFormat("tensor.copy", "elements must be real numbers", self._place())
        return self.copy_from(quantize(items, format.quantizer()), order)

    @staticmethod
    def from_numpy(
        context: Context, values: npt.NDArray[Any], fixed_point_position: int | None = None, name: str | None = None
    ) -> Tensor:
        """Create a tensor with the elements, shape and data type of an array in C order.

        The default of ``fixed_point_position`` is that of the data type: 8 for int16, 0 for uint8 and int8.
        """
        items = _array(values)
        for (data_type, position), format in FORMATS.items():
            if items.dtype == np.dtype(format.dtype):
                point = position if fixed_point_position is None else fixed_point_position
                return create_tensor(context, items.shape[::-1], data_type, point, name).copy_from(items)
        raise InvalidFormat("tensor.data_type", f"an array of uint8, int8 or int16 is taken, found {items.dtype}")

    def _place(self) -> Location:
        return Location(tensor=self.name)

    def __repr__(self) -> str:
        kind = self.format.name if self.format else "no format"
        label = f" {self.name!r}" if self.name else ""
        return f"<{'virtual ' if self.virtual else ''}tensor{label} {list(self.dims)} {kind}>"


def _array(values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidParameters("tensor.copy", "elements must be an array, all of whose rows are alike") from None


def _checked(order: str) -> Order:
    if order not in ("numpy", "vx"):
        raise InvalidValue("tensor.order", f"order is 'numpy' or 'vx', found {order!r}")
    return order  # type: ignore[return-value]


def _format(data_type: int, position: int, virtual: bool = False) -> Format | None:
    wanted = integer(data_type, "data_type", -(2**31))
    if wanted not in list(Type):
        raise InvalidType("tensor.data_type", f"{wanted} is none of vx_type_e")
    if virtual and wanted == Type.VX_TYPE_INVALID:
        return None
    found = FORMATS.get((Type(wanted), integer(position, "fixed_point_position")))
    if found is None:
        known = ", ".join(f"{item.data_type.name} with {item.position}" for item in FORMATS.values())
        message = f"{Type(wanted).name} with fixed-point position {position} is no format of {EXTENSIONS}: {known}"
        raise InvalidFormat("tensor.data_type", message)
    return found


def create_tensor(
    context: Context, dims: Sequence[int], data_type: int, fixed_point_position: int = 0, name: str | None = None
) -> Tensor:
    """vxCreateTensor: a tensor of these dimensions, in OpenVX's order. Its elements are not set.

    Raises `InvalidDimension`, and `InvalidFormat` for a format that neither extension has.
    """
    require(context, Context, "context")
    return Tensor(context, _dimensions(dims), _format(data_type, fixed_point_position), name=name)


def create_virtual_tensor(
    graph: Reference, dims: Sequence[int], data_type: int, fixed_point_position: int = 0, name: str | None = None
) -> Tensor:
    """vxCreateVirtualTensor: a tensor between nodes of one graph, whose elements cannot be read or written.

    A graph with a virtual tensor without dimensions (an empty list) or with VX_TYPE_INVALID cannot be verified: skips
    are derived from sizes, so the dimensions of an output cannot be derived from the node.
    """
    if getattr(graph, "kind", None) is not Type.VX_TYPE_GRAPH:
        raise InvalidParameters("argument.reference", f"graph must be a RecordedGraph, found {type(graph).__name__}")
    require(graph, Reference, "graph")
    extents = () if hasattr(dims, "__len__") and not len(dims) else _dimensions(dims)
    return Tensor(graph.context, extents, _format(data_type, fixed_point_position, True), graph, name=name)


def create_tensor_from_view(
    tensor: Tensor, view_start: Sequence[int], view_end: Sequence[int], name: str | None = None
) -> Tensor:
    """vxCreateTensorFromView: the part of a tensor from start up to, but not including, end along every dimension.

    A view has no elements of its own. Nodes that write views of one tensor merge their results in it; nodes that read
    views of it read parts.
    """
    require(tensor, Tensor, "tensor")
    rank = len(tensor.dims)
    if not all(hasattr(ends, "__len__") for ends in (view_start, view_end)):
        raise InvalidParameters("view.dims", "starts and ends are sequences of integers")
    if not rank or len(view_start) != rank or len(view_end) != rank:
        raise InvalidDimension("view.dims", f"a view of {tensor!r} has {rank} starts and ends")
    box = []
    for start, end, extent, (offset, _) in zip(view_start, view_end, tensor.dims, tensor.box, strict=True):
        first, last = integer(start, "a start"), integer(end, "an end")
        if not first < last <= extent:
            raise InvalidDimension("view.range", f"[{first}, {last}) is no part of [0, {extent})")
        box.append((offset + first, offset + last))
    dims = tuple(end - start for start, end in box)
    assert math.prod(dims)
    return Tensor(tensor.context, dims, tensor.format, None, tensor, tuple(box), name)


def copy_tensor_patch(
    tensor: Tensor, view_start: Sequence[int], view_end: Sequence[int], user_array: npt.NDArray[Any], usage: int
) -> None:
    """vxCopyTensorPatch: copy a part of a tensor into an array (VX_READ_ONLY), or an array into it (VX_WRITE_ONLY).

    The array is in C order and has the extents of the part in reverse, as for `Tensor.numpy`.
    """
    part = create_tensor_from_view(tensor, view_start, view_end)
    if usage == Accessor.VX_WRITE_ONLY:
        part.copy_from(user_array)
    elif usage == Accessor.VX_READ_ONLY:
        found = part.numpy()
        if not isinstance(user_array, np.ndarray) or user_array.shape != found.shape:
            raise InvalidDimension("tensor.copy", f"an array of shape {list(found.shape)} is needed")
        if user_array.dtype != found.dtype:
            raise InvalidFormat("tensor.copy", f"an array of {found.dtype} is needed, found {user_array.dtype}")
        user_array[...] = found
    else:
        raise InvalidValue("tensor.usage", "usage is VX_READ_ONLY or VX_WRITE_ONLY")


class Scalar(Reference):
    """A scalar (vx_scalar), for parameters of generic nodes. `create_scalar` makes it."""

    kind = Type.VX_TYPE_SCALAR

    def __init__(self, context: Context, data_type: Type, value: Any) -> None:
        super().__init__(context)
        self.data_type = data_type
        self.value = value


def create_scalar(context: Context, data_type: int, value: Any) -> Scalar:
    """VxCreateScalar. Enumerators and sizes are integers; VX_TYPE_FLOAT32 holds the nearest float32."""
    require(context, Context, "context")
    if data_type not in list(Type):
        raise InvalidType("scalar.data_type", f"{data_type!r} is none of vx_type_e")
    return Scalar(context, Type(data_type), value)
