"""Operands and the nodes that compute them: what a builder has recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.frontends.webnn.declarations import DATA_TYPES, MAX_RANK
from cvm.frontends.webnn.errors import type_error
from cvm.limits import DEFAULT, INT32_MAX

__all__ = [
    "Described",
    "Descriptor",
    "MLOperand",
    "MLOperandDescriptor",
    "Shape",
    "WebnnNode",
    "data_type_of",
    "describe",
    "valid_shape",
]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MLOperandDescriptor:
    """Data type and shape of an operand or tensor (WebNN 8.5).

    ``data_type`` is an MLOperandDataType or a NumPy dtype. Raises `MLTypeError` for another data type, for an extent
    outside of 1..2^31 - 1, and for more elements than the limits profile admits.
    """

    data_type: str
    shape: Shape = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", data_type_of(self.data_type, "MLOperandDescriptor"))
        object.__setattr__(self, "shape", valid_shape(self.shape, "MLOperandDescriptor"))


Descriptor: TypeAlias = MLOperandDescriptor | tuple[str, Sequence[int]] | Mapping[str, Any]


def describe(descriptor: Descriptor) -> MLOperandDescriptor:
    """A descriptor given as such, as a pair, or as a dictionary (``dataType`` or ``data_type``, ``shape``)."""
    if isinstance(descriptor, MLOperandDescriptor):
        return descriptor
    if isinstance(descriptor, Mapping):
        unknown = set(descriptor) - {"dataType", "data_type", "shape"}
        if unknown or not {"dataType", "data_type"} & set(descriptor):
            raise type_error("MLOperandDescriptor", "members", f"needs dataType and shape, found {sorted(descriptor)}")
        data_type = descriptor["dataType"] if "dataType" in descriptor else descriptor["data_type"]
        return MLOperandDescriptor(data_type, descriptor.get("shape", ()))
    if isinstance(descriptor, tuple) and len(descriptor) == 2:
        return MLOperandDescriptor(descriptor[0], descriptor[1])  # type: ignore[arg-type]
    raise type_error("MLOperandDescriptor", "members", f"expected a descriptor, found {type(descriptor).__name__}")


def data_type_of(wish: Any, op: str, label: str = "") -> str:
    """The MLOperandDataType that a string or a NumPy dtype names."""
    name = wish
    if not isinstance(wish, str):
        try:
            name = np.dtype(wish).name
        except TypeError:
            name = repr(wish)
    if name not in DATA_TYPES:
        raise type_error(op, "data-type", f"expected one of {', '.join(DATA_TYPES)}, found {name!r}", label)
    return str(name)


def valid_shape(shape: Any, op: str, label: str = "") -> Shape:
    """A shape as a tuple of Python integers. Raises `MLTypeError`."""
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence | np.ndarray):
        raise type_error(op, "shape", f"expected a sequence of extents, found {type(shape).__name__}", label)
    if len(shape) > MAX_RANK:
        raise type_error(op, "rank", f"the rank {len(shape)} is above {MAX_RANK}", label)
    found = []
    for extent in shape:
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or not 1 <= extent <= INT32_MAX:
            raise type_error(op, "shape", f"the extent {extent!r} is not in 1..2^31 - 1", label)
        found.append(int(extent))
    if math.prod(found) > DEFAULT.elements:
        raise type_error(op, "shape", f"{math.prod(found)} elements exceed the limit of {DEFAULT.elements}", label)
    return tuple(found)


@dataclass(frozen=True, eq=False, slots=True)
class WebnnNode:
    """One call of an operator: operands by their names (a list's are numbered), attributes, results."""

    op: str
    operands: Mapping[str, MLOperand]
    attributes: Mapping[str, Any]
    label: str
    number: int
    """Its index among the calls of the builder."""
    outputs: list[MLOperand] = field(default_factory=list)


class Described:
    """An object with a descriptor. Operands and tensors are both."""

    def __init__(self, descriptor: MLOperandDescriptor) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> MLOperandDescriptor:
        """Data type and shape."""
        return self._descriptor

    @property
    def data_type(self) -> str:
        """The MLOperandDataType."""
        return self._descriptor.data_type

    @property
    def shape(self) -> Shape:
        """The extents; () for a scalar."""
        return self._descriptor.shape

    dataType = data_type  # noqa: N815  (the specification's name)


class MLOperand(Described):
    """A tensor of the graph that is built (WebNN 8.6). Made by the methods of `MLGraphBuilder` alone."""

    def __init__(
        self,
        builder: object,
        name: str,
        descriptor: MLOperandDescriptor,
        node: WebnnNode | None = None,
        values: npt.NDArray[Any] | None = None,
        interval: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(descriptor)
        self._builder = builder
        self._name = name
        self._node = node
        self._values = values
        self._interval = interval

    @property
    def name(self) -> str:
        """The name of an input; else one made of the label or the operator, and a number."""
        return self._name

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def node(self) -> WebnnNode | None:
        """The call that computes it; None for inputs and constants."""
        return self._node

    @property
    def values(self) -> npt.NDArray[Any] | None:
        """The contents of a constant."""
        return self._values

    @property
    def interval(self) -> tuple[int, int] | None:
        """The integers that an input has promised to stay within."""
        return self._interval

    @property
    def builder(self) -> object:
        """The `MLGraphBuilder` that made it: operands of two builders cannot meet."""
        return self._builder

    def __repr__(self) -> str:
        return f"<MLOperand {self._name!r} {self.data_type}{list(self.shape)}>"
