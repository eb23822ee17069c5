"""A `QuantizedGraph` while it is made: operations with fresh names, constants, integers of a data type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import Location
from cvm.frontends.common.data_types import bounds, unit
from cvm.frontends.common.grids import rational
from cvm.graph import Attribute, GraphOperation, GraphTensor, Operand, TensorData, declaration
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer

__all__ = ["Emission"]

_DType = Literal["scalar", "integer", "logical"]


class Emission:
    """Tensors and operations in order. Rank 0 is (1,) here: graphs know tensors, not numbers."""

    def __init__(self, overflow: Literal["wrap", "error"]) -> None:
        self._overflow = overflow
        self._tensors: dict[str, GraphTensor] = {}
        self._operations: list[GraphOperation] = []

    @property
    def overflow(self) -> str:
        """What happens to 8-bit results that do not fit: "wrap" or "error"."""
        return self._overflow

    def place(self) -> tuple[str, str]:
        """The name that results get where none is wished, and the operator that is translated; "" for none."""
        return "", ""

    def name_of_constant(self) -> str:
        """The name that a constant gets where it is free."""
        return "constant"

    def made(self, name: str) -> None:
        """A result was entered."""

    def emit(
        self, op: str, inputs: Mapping[str, Operand], shape: Sequence[int], quantizer: LinearQuantizer | None = None, *,
        dtype: _DType = "scalar", wish: str = "", **attributes: Attribute,
    ) -> str:  # fmt: skip
        """Add an operation with one result of ``shape``; returns its name."""
        return self.emit_many(op, inputs, [shape], quantizer=quantizer, dtype=dtype, wish=wish, **attributes)[0]

    def emit_many(
        self, op: str, inputs: Mapping[str, Operand], shapes: Sequence[Sequence[int]], *,
        quantizer: LinearQuantizer | None = None, dtype: _DType = "scalar", wish: str = "", **attributes: Attribute,
    ) -> list[str]:  # fmt: skip
        """As `emit`, with several results. Parameters that are not given get the default values of the declaration."""
        if op == "reshape":
            attributes.setdefault("shape", tuple(shapes[0]) or (1,))
        operands, complete = declaration(op).complete(inputs, attributes)
        default, operator = self.place()
        names = []
        for shape in shapes:
            name = self._fresh(wish or default or op)
            self._tensors[name] = GraphTensor(name, tuple(shape) or (1,), "computed", dtype, quantizer)
            self.made(name)
            names.append(name)
        location = Location(op=operator or op)
        self._operations.append(GraphOperation(op, operands, complete, tuple(names), location))
        return names

    def constant(self, values: npt.NDArray[Any], shape: Sequence[int], quantizer: LinearQuantizer | None = None) -> str:
        """A constant tensor: numbers as they are, or codes."""
        name = self._fresh(self.name_of_constant())
        shape = tuple(shape) or (1,)
        items = np.asarray(values).reshape(shape)
        if items.dtype == np.float16:
            items = items.astype(np.float32)
        self._tensors[name] = GraphTensor(name, shape, "constant", data=TensorData(items, quantizer))
        return name

    def numbers(self, values: npt.NDArray[Any], shape: Sequence[int]) -> Operand:
        """Scales or zero points for a tensor of ``shape``: a literal, or a constant whose blocks are spread."""
        flat = values.ravel()
        if (flat == flat[0]).all():
            return rational(flat[0])
        items = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
        for axis, (extent, blocks) in enumerate(zip(shape, items.shape, strict=True)):
            if blocks not in (1, extent):
                items = np.repeat(items, extent // blocks, axis)
        return self.constant(items, items.shape)

    def wrapped(self, name: str, data_type: str, shape: Sequence[int], modular: bool = False) -> str:
        """The integers of a tensor wrapped to a data type, as a tensor of integers.

        Those of wide types must fit the machine; with ``modular`` they may be negative where the type has no sign.
        """
        lo, hi = bounds(data_type)
        if hi > INT32_MAX or lo < -INT32_MAX:
            lo, hi = -INT32_MAX if modular else max(lo, -INT32_MAX), min(hi, INT32_MAX)
        return self.emit("wrap", {"x": name}, shape, quantizer=unit(lo, hi), lo=lo, hi=hi, overflow=self._overflow)

    def is_taken(self, name: str) -> bool:
        """Whether a new tensor must not have this name."""
        return name in self._tensors

    def _fresh(self, wish: str) -> str:
        if not self.is_taken(wish):
            return wish
        number = 2
        while self.is_taken(f"{wish}.{number}"):
            number += 1
        return f"{wish}.{number}"
