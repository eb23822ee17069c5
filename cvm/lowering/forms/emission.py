"""What is emitted while a graph is lowered: ops, constants, and what is claimed of each tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location, Unsupported
from cvm.graph import GraphOperation
from cvm.limits import INT32_MAX, Limits
from cvm.program.build import ProgramBuilder
from cvm.program.model import Exactness

__all__ = ["Emission"]


class Emission:
    """The program that is being built, and the report on its exactness."""

    def __init__(self, limits: Limits) -> None:
        self.builder = ProgramBuilder(limits)
        self.report: list[Exactness] = []

    def emit(self, operation: GraphOperation, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node whose name tells the tensor it serves; returns its value.

        Raises `Unsupported` (``lowering.range``) where the result is not proven to fit 32 bits.
        """
        try:
            (value,) = self.builder.add(op, inputs, attributes, name=f"{operation.outputs[0]}.{op}")
        except Invalid as error:
            if error.code != "program.range":
                raise
            message = f"{operation.name}: {error.message}: give the operands quantisers of fewer bits"
            raise Unsupported("lowering.range", message, self.location(operation)) from None
        return value

    def tensor_constant(self, operation: GraphOperation, values: npt.NDArray[Any], what: str) -> str:
        """Add an int32 constant. Raises `Unsupported` where an item does not fit."""
        if values.size and max(abs(int(values.min())), abs(int(values.max()))) > INT32_MAX:
            raise self.unsupported(operation, f"{what} does not fit 32 bits: it needs quantisation information")
        return self.builder.constant(values.astype(np.int64), name=f"{operation.outputs[0]}.{what}")

    def location(self, operation: GraphOperation) -> Location:
        """Where the operation stands in the document."""
        at = operation.location
        return Location(at.file, at.line, at.column, operation.outputs[0], operation.name)

    def unsupported(self, operation: GraphOperation, message: str) -> Unsupported:
        """The refusal of an operation, with the reason."""
        return Unsupported("lowering.operation", f"{operation.name}: {message}", self.location(operation))
