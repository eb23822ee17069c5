"""The builder of a `QuantizedGraph` for front ends: it adds operations under fresh names and infers their shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Location
from cvm.graph.declaration import Parameter, declaration
from cvm.graph.model import Attribute, GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData
from cvm.graph.shapes import Shape
from cvm.graph.uses import names_in
from cvm.graph.verifier import broken, shapes_of_results, verify
from cvm.quantization import Quantizer

__all__ = ["GraphBuilder"]

_DType = Literal["scalar", "integer", "logical"]
_DTYPES: dict[str, _DType] = {"tensor<integer>": "integer", "tensor<logical>": "logical"}


class GraphBuilder:
    """Tensors and operations in order. A number is a tensor of shape (1,) here: these graphs have no tensors of rank 0.

    ``stage`` names the front end in messages. A subclass may decide how results are named (`origin`,
    `name_of_constant`, `is_taken`) and record each new result (`made`).
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._tensors: dict[str, GraphTensor] = {}
        self._operations: list[GraphOperation] = []
        self._numbers: dict[str, int] = {}

    # Decisions of the front end

    def origin(self) -> tuple[str, str]:
        """The default name of results, and the operator that is being translated; each "" where there is none."""
        return "", ""

    def name_of_constant(self) -> str:
        """The name that a constant gets unless another tensor has it."""
        return "constant"

    def made(self, name: str) -> None:
        """Record a new result. A front end overrides this where it needs to."""

    def is_taken(self, name: str) -> bool:
        """Whether a tensor has this name already."""
        return name in self._tensors

    # Queries

    @property
    def tensors(self) -> Mapping[str, GraphTensor]:
        """All tensors so far, by name."""
        return MappingProxyType(self._tensors)

    @property
    def operations(self) -> tuple[GraphOperation, ...]:
        """All operations so far, in order."""
        return tuple(self._operations)

    def shape(self, name: str) -> Shape:
        """The shape of a tensor."""
        return self._tensors[name].shape

    def finish(self, name: str, inputs: Sequence[str], outputs: Sequence[str], digest: str = "") -> QuantizedGraph:
        """The whole graph, verified; ``digest`` is the SHA-256 of the document, in hexadecimal.

        Raises `Invalid` as `verify` does.
        """
        tensors, operations = dict(self._tensors), tuple(self._operations)
        return verify(QuantizedGraph(name, tuple(inputs), tuple(outputs), tensors, operations, digest), self._stage)

    # Additions

    def external(self, name: str, shape: Sequence[int], quantizer: Quantizer | None) -> str:
        """Add a tensor that the caller gives, under a name that no tensor has yet; returns the name."""
        self._tensors[name] = GraphTensor(name, tuple(shape) or (1,), "external", quantizer=quantizer)
        return name

    def variable(self, name: str, values: npt.NDArray[Any], quantizer: Quantizer | None) -> str:
        """Add a state that `update` changes, with its initial codes or numbers; returns its name, made unique if need
        be.
        """
        name = self._fresh(name)
        data = TensorData(np.asarray(values), quantizer)
        shape = data.values.shape or (1,)
        self._tensors[name] = GraphTensor(name, shape, "variable", quantizer=quantizer, data=data, label=name)
        return name

    def zero_state(self, name: str, shape: Sequence[int], quantizer: Quantizer | None) -> str:
        """Add a state that is zero before the first run and that `update` changes; returns its name, as `variable`
        does.
        """
        name = self._fresh(name)
        extents = tuple(shape) or (1,)
        data = TensorData(np.zeros(extents), None)
        self._tensors[name] = GraphTensor(name, extents, "variable", quantizer=quantizer, data=data, label=name)
        return name

    def constant(self, values: npt.NDArray[Any], shape: Sequence[int], quantizer: Quantizer | None = None) -> str:
        """Add a constant tensor, from real numbers (no quantiser) or from codes; returns its name."""
        name = self._fresh(self.name_of_constant())
        shape = tuple(shape) or (1,)
        items = np.asarray(values).reshape(shape)
        if items.dtype == np.float16:
            items = items.astype(np.float32)
        self._tensors[name] = GraphTensor(name, shape, "constant", data=TensorData(items, quantizer))
        return name

    def emit(
        self,
        op: str,
        *operands: Operand,
        inputs: Mapping[str, Operand] | None = None,
        quantizer: Quantizer | None = None,
        dtype: _DType | None = None,
        wish: str = "",
        **attributes: Attribute,
    ) -> str:
        """Add an operation with one result, as `emit_many` does; returns its name."""
        (name,) = self.emit_many(
            op, *operands, inputs=inputs, quantizer=quantizer, dtype=dtype, wish=wish, **attributes
        )  # fmt: skip
        return name

    def emit_many(
        self,
        op: str,
        *operands: Operand,
        inputs: Mapping[str, Operand] | None = None,
        quantizer: Quantizer | None = None,
        dtype: _DType | None = None,
        wish: str = "",
        **attributes: Attribute,
    ) -> list[str]:
        """Add an operation; returns the names of its results.

        ``operands`` are the first inputs in the order of the declaration, ``inputs`` are others by name; a parameter
        that is not given gets the default value of the declaration. Every result gets ``quantizer`` and the declared
        data type; where the declaration leaves the data type open, ``dtype`` gives it (default "scalar"). Raises
        `Invalid` (``graph.shapes``) for arguments that the operation does not admit.
        """
        declared = declaration(op)
        given = {item.name: operand for item, operand in zip(declared.inputs, operands, strict=False)}
        tensors, others = declared.complete(given | dict(inputs or {}), attributes)
        default, operator = self.origin()
        try:
            shapes = shapes_of_results(op, tensors, others, self._tensors)
        except CvmError as error:
            raise broken(self._stage, op, (), "shapes", error.message) from error
        results = []
        for index, shape in enumerate(shapes):
            name = self._fresh(wish or default or op)
            kind = dtype or _dtype(declared.results[min(index, len(declared.results) - 1)])
            self._tensors[name] = GraphTensor(name, shape or (1,), "computed", kind, quantizer)
            self.made(name)
            results.append(name)
        self._operations.append(GraphOperation(op, tensors, others, tuple(results), Location(op=operator or op)))
        return results

    def reshape(
        self, name: str, shape: Sequence[int], quantizer: Quantizer | None = None, dtype: _DType | None = None
    ) -> str:
        """Add a `reshape`, even where the shape does not change; returns the name of its result."""
        return self.emit("reshape", name, shape=tuple(shape) or (1,), quantizer=quantizer, dtype=dtype)

    # Changes

    def rewrite(self, rewritten: Callable[[GraphOperation], GraphOperation]) -> None:
        """Put in the place of each operation what a function makes of it; what the function adds comes before."""
        operations, self._operations = self._operations, []
        for operation in operations:
            self._operations.append(rewritten(operation))

    def keep(self, outputs: Collection[str]) -> None:
        """Leave out operations whose results neither ``outputs`` nor a state needs, and these results."""
        needed, kept = set(outputs), []
        for operation in reversed(self._operations):
            if operation.name == "update" or needed.intersection(operation.outputs):
                kept.append(operation)
                needed |= {name for operand in operation.inputs.values() for name in names_in(operand)}
        self._operations = kept[::-1]
        made = {name for operation in self._operations for name in operation.outputs}
        self._tensors = {name: item for name, item in self._tensors.items() if item.kind != "computed" or name in made}

    def _fresh(self, wish: str) -> str:
        return self._numbered(wish) if self.is_taken(wish) else wish

    def _numbered(self, wish: str) -> str:
        """The first free name of ``wish.2``, ``wish.3``, ..; names that were found taken before are not tried again."""
        number = self._numbers.get(wish, 2)
        while self.is_taken(f"{wish}.{number}"):
            number += 1
        self._numbers[wish] = number
        return f"{wish}.{number}"


def _dtype(declared: Parameter) -> _DType:
    return _DTYPES.get(declared.type.removesuffix("[]"), "scalar")
