"""Operands, and the calls of operators that compute them, as a builder records them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.frontends.webnn.declarations import DATA_TYPES, MAX_RANK
from cvm.frontends.webnn.errors import type_error
from cvm.frontends.webnn.operators import PythonOperators
from cvm.limits import DEFAULT, INT32_MAX
from cvm.records import dataclass

__all__ = [
    "Described",
    "Descriptor",
    "MLOperand",
    "MLOperandDescriptor",
    "MLTensorDescriptor",
    "Shape",
    "WebnnNode",
    "data_type_of",
    "describe",
    "describe_tensor",
    "valid_shape",
]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MLOperandDescriptor:
    """The data type and the shape of an operand or tensor (WebNN 8.5).

    ``data_type`` is an MLOperandDataType or a NumPy dtype. Raises `MLTypeError` for another data type, for an extent
    outside of 1..2^31 - 1, and for more elements than the limits profile admits.
    """

    data_type: str
    shape: Shape = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", data_type_of(self.data_type, "MLOperandDescriptor"))
        object.__setattr__(self, "shape", valid_shape(self.shape, "MLOperandDescriptor"))


Descriptor: TypeAlias = MLOperandDescriptor | tuple[str, Sequence[int]] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MLTensorDescriptor(MLOperandDescriptor):
    """Data type and shape of a tensor of a context, and whether it can be read and written (WebNN 8.7)."""

    readable: bool = False
    writable: bool = False


_MEMBERS = {"dataType": "data_type", "data_type": "data_type", "shape": "shape"}


def describe(descriptor: Descriptor, further: Sequence[str] = ()) -> MLOperandDescriptor:
    """The descriptor that an object describes: a descriptor, a pair, or a dictionary (``dataType``/``data_type``,
    ``shape``).

    A dictionary may also have the members ``further``, which this function ignores.
    """
    if isinstance(descriptor, MLOperandDescriptor):
        return MLOperandDescriptor(descriptor.data_type, descriptor.shape)
    if isinstance(descriptor, Mapping):
        members = {_MEMBERS.get(name, name): value for name, value in descriptor.items() if name not in further}
        if "data_type" not in members or set(members) - {"data_type", "shape"}:
            message = f"needs dataType and shape, found {sorted(map(str, descriptor))}"
            raise type_error("MLOperandDescriptor", "members", message)
        return MLOperandDescriptor(members["data_type"], members.get("shape", ()))
    if isinstance(descriptor, tuple) and len(descriptor) == 2:
        return MLOperandDescriptor(descriptor[0], descriptor[1])  # type: ignore[arg-type]
    raise type_error("MLOperandDescriptor", "members", f"expected a descriptor, found {type(descriptor).__name__}")


def describe_tensor(descriptor: Descriptor, readable: bool, writable: bool) -> MLTensorDescriptor:
    """`describe` for an MLTensorDescriptor; ``readable`` and ``writable`` are the defaults of these members."""
    described = describe(descriptor, ("readable", "writable"))
    flags = {"readable": readable, "writable": writable}
    if isinstance(descriptor, MLTensorDescriptor):
        flags = {name: flag or getattr(descriptor, name) for name, flag in flags.items()}
    if isinstance(descriptor, Mapping):
        flags |= {name: descriptor[name] for name in flags if name in descriptor}
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise type_error("MLTensorDescriptor", name, f"{name} must be a boolean, found {flag!r}")
    return MLTensorDescriptor(
        described.data_type, described.shape, **{name: bool(flag) for name, flag in flags.items()}
    )


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
    """A shape as a tuple of Python integers. Raises `MLTypeError` for anything else."""
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
    """One call of an operator: operands by their names (those of a list are numbered), attributes and results."""

    op: str
    operands: Mapping[str, MLOperand]
    attributes: Mapping[str, Any]
    label: str
    number: int
    """The index of the call among the calls of the builder."""
    outputs: list[MLOperand] = field(default_factory=list)


class Described:
    """An object with a descriptor: an operand or a tensor."""

    def __init__(self, descriptor: MLOperandDescriptor) -> None:
        self._descriptor = descriptor

    @property
    def descriptor(self) -> MLOperandDescriptor:
        """The data type and the shape."""
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


class MLOperand(Described, PythonOperators):
    """A tensor of the graph that is being built (WebNN 8.6). Only methods of `MLGraphBuilder` make operands."""

    def __init__(
        self,
        builder: object,
        name: str,
        descriptor: MLOperandDescriptor,
        node: WebnnNode | None = None,
        values: npt.NDArray[Any] | None = None,
        interval: tuple[int, int] | None = None,
        promised: bool = False,
    ) -> None:
        super().__init__(descriptor)
        self._builder = builder
        self._name = name
        self._node = node
        self._values = values
        self._interval = interval
        self._promised = promised

    @property
    def name(self) -> str:
        """The name of an input; for other operands a name made of the label or the operator, and a number."""
        return self._name

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def node(self) -> WebnnNode | None:
        """The call that computes the operand; None for inputs and constants."""
        return self._node

    @property
    def values(self) -> npt.NDArray[Any] | None:
        """The contents of a constant; None for any other operand."""
        return self._values

    @property
    def interval(self) -> tuple[int, int] | None:
        """The interval of an input: the one that the caller promised, or the machine integers of its data type."""
        return self._interval

    @property
    def promised(self) -> bool:
        """Whether the caller promised the interval of the input."""
        return self._promised

    @property
    def builder(self) -> object:
        """The `MLGraphBuilder` that made the operand: operands of two builders cannot be combined."""
        return self._builder

    def __repr__(self) -> str:
        return f"<MLOperand {self._name!r} {self.data_type}{list(self.shape)}>"
