"""Elements of single ops computed in small steps, and what the steps read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cvm.audit.dispute import vision
from cvm.audit.dispute.folds import FoldCall
from cvm.audit.dispute.reading import NotedTensor, Operands
from cvm.audit.dispute.records import OpRecord
from cvm.audit.dispute.targets import auxiliary_count, fold
from cvm.program.model import Value
from cvm.vectors import decode
from cvm.vectors.format import OpCase
from formal.registry import OPS
from formal.tensor import elements, stored

VECTORS = Path(__file__).parents[3] / "spec_vectors" / "ops"
LARGEST = 4_000
"""Elements of a tensor up to which all of them are compared."""

Reads = dict[int, set[int]]
"""Numbers of elements, by the position of the operand."""


@dataclass(frozen=True)
class Application:
    """An op applied to tensors."""

    record: OpRecord
    arrays: Sequence[np.ndarray]

    @staticmethod
    def of(op: str, arrays: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> Application:
        """With the outputs that FORMAL gives."""
        result = OPS[op](*(stored(a.shape, a.ravel().tolist()) for a in arrays), **attributes)
        shapes = [y.shape for y in (result if isinstance(result, tuple) else (result,))]
        values = tuple(Value(f"y{i}", shape, 0, 0) for i, shape in enumerate(shapes))
        return Application(OpRecord(op, attributes, tuple(range(len(arrays))), len(arrays), values), arrays)

    def operands(self, auxiliaries: bool = True) -> Operands:
        """The operands, which note what is read."""
        arrays = [*self.arrays, *(self.auxiliaries() if auxiliaries else ())]
        return Operands(len(arrays), lambda position: noted(arrays[position]))

    def auxiliaries(self) -> list[np.ndarray]:
        """The auxiliary tensors."""
        if not auxiliary_count(self.record.op):
            return []
        made = vision.auxiliaries(FoldCall(self.record, 0, self.operands(auxiliaries=False), ()))
        return [np.array(items).reshape(self.record.outputs[0].shape[:2]) for items in made]

    def folded(self, target: int, element: int) -> tuple[int, list[Reads]]:
        """An element, and what each step reads; every step stands alone, with operands of its own."""
        course = fold(self.record, target, element, self.operands())
        partial, reads = course.start, []
        for step in range(course.count):
            operands = self.operands()
            partial = fold(self.record, target, element, operands).step(step, partial)
            reads.append({position: set(tensor.numbers) for position, tensor in operands.taken.items()})
        return partial, reads

    def formal(self) -> list[list[int]]:
        """All elements of all outputs, by FORMAL."""
        result = OPS[self.record.op](
            *(stored(a.shape, a.ravel().tolist()) for a in self.arrays), **self.record.attributes
        )
        return [elements(y) for y in (result if isinstance(result, tuple) else (result,))]

    def formal_reads(self, output: int, element: int) -> Reads:
        """What FORMAL's function of the op reads for one element."""
        tensors = [noted(array) for array in self.arrays]
        result = OPS[self.record.op](*tensors, **self.record.attributes)
        y = (result if isinstance(result, tuple) else (result,))[output]
        y[tuple(int(i) for i in np.unravel_index(element, y.shape))]
        return {position: tensor.numbers for position, tensor in enumerate(tensors) if tensor.numbers}


def noted(array: np.ndarray) -> NotedTensor:
    flat = array.reshape(-1)
    return NotedTensor(array.shape, lambda number: int(flat[number]))


def united(reads: Sequence[Reads]) -> Reads:
    """What all steps together read."""
    found: Reads = {}
    for step in reads:
        for position, numbers in step.items():
            if numbers:
                found.setdefault(position, set()).update(numbers)
    return found


@cache
def cases() -> dict[str, list[OpCase]]:
    """The vectors of every op that have a value and are not too large."""
    found: dict[str, list[OpCase]] = {}
    for path in sorted(VECTORS.rglob("*.msgpack")):
        for case in decode(path.read_bytes()).cases:
            if not isinstance(case, OpCase) or case.verdict != "value":
                continue
            if max(tensor.array().size for tensor in (*case.inputs, *case.outputs)) <= LARGEST:
                found.setdefault(case.op, []).append(case)
    return found
